//! The full set: all system tests, and beside them the fuzz targets, Miri and the sanitizer.
//!
//! It takes hours, so it is run in parts of about equal length, by what each test took when it was
//! measured last (`tests/durations.txt`). A part can be taken up again: what has passed with the present
//! sources is not run once more.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::durations::{self, Durations, FUZZ};
use crate::fuzz;
use crate::soundness;
use crate::system::{self, Built};
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// Part `index` (from 1) of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    index: usize,
    count: usize,
}

impl Part {
    pub(crate) const WHOLE: Self = Self { index: 1, count: 1 };
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = text
            .split_once('/')
            .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parsed {
            Some((index, count)) if 1 <= index && index <= count => Ok(Self { index, count }),
            _ => bail!("'{text}' is not a part: write k/n with 1 <= k <= n, for example 2/4"),
        }
    }
}

/// Divides tests among so many parts of about equal length: the longest first, each to the part that
/// has least (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969: at most 4/3 of the best).
fn divide(names: &[String], durations: &Durations, count: usize) -> Vec<BTreeSet<String>> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort_by_key(|name| (std::cmp::Reverse(durations.of(name)), name.as_str()));
    let mut parts = vec![(Duration::ZERO, BTreeSet::new()); count];
    for name in names {
        let least = parts.iter_mut().min_by_key(|(sum, _)| *sum);
        if let Some((sum, part)) = least {
            *sum += durations.of(name);
            part.insert(name.clone());
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// The names of everything in the full set.
fn names(workspace: &Workspace, built: &Built) -> Result<Vec<String>> {
    let cases = built.cases.iter().filter(|case| !case.is_bench());
    let mut names: Vec<String> = cases.map(|case| case.name.clone()).collect();
    names.extend(["memcheck".to_owned(), "miri".to_owned()]);
    let targets = fuzz::targets(workspace)?;
    names.extend(targets.into_iter().map(|target| format!("{FUZZ}{target}")));
    Ok(names)
}

/// Runs a part of the full set; false when something failed.
///
/// # Errors
/// The tests do not build, or notes cannot be written.
pub(crate) fn run(workspace: &Workspace, part: Part) -> Result<bool> {
    let built = system::build(workspace, false)?;
    let durations = Durations::read(workspace)?;
    let all = names(workspace, &built)?;
    let mine = divide(&all, &durations, part.count).swap_remove(part.index - 1);
    println!(
        "Part {} of {}: {} of {} tests, about {:.0} minutes",
        part.index,
        part.count,
        mine.len(),
        all.len(),
        durations.sum(&mine).as_secs_f64() / 60.0
    );
    let mut tally = Tally::default();
    let record = Record::open(workspace)?;
    for name in &mine {
        if record.has(name) {
            println!("test {name} ... ok, in an earlier run");
            tally.pass(1);
            continue;
        }
        let begun = Instant::now();
        match one(workspace, &built, name, &mut tally) {
            Ok(true) => {
                durations::note(workspace, name, begun.elapsed())?;
                record.add(name)?;
            }
            Ok(false) => {}
            Err(error) => tally.fail(format!("{name}: {error:#}")),
        }
    }
    tally.close(workspace)
}

/// Runs one of them; true when it passed.
fn one(workspace: &Workspace, built: &Built, name: &str, tally: &mut Tally) -> Result<bool> {
    if let Some(target) = name.strip_prefix(FUZZ) {
        // Once they are built this takes a moment.
        fuzz::build(workspace)?;
        return fuzz::one(workspace, target, fuzz::SECONDS, tally);
    }
    match name {
        "memcheck" => soundness::memcheck(workspace, tally),
        "miri" => soundness::miri(workspace, tally),
        _ => {
            let case = built.cases.iter().find(|case| case.name == name);
            let case = case.context("There is no such test")?;
            system::run_case(workspace, built, case, &[], tally)
        }
    }
}

/// Lists how long each of so many parts takes; or takes over what tests have taken here since.
///
/// # Errors
/// The tests do not build, or a file cannot be read or written.
pub(crate) fn plan(workspace: &Workspace, count: usize, write: bool) -> Result<bool> {
    let built = system::build(workspace, false)?;
    let all = names(workspace, &built)?;
    let mut durations = Durations::read(workspace)?;
    if write {
        durations.take_over(workspace, &all)?;
    }
    for (part, number) in divide(&all, &durations, count).iter().zip(1..) {
        let known = part.iter().filter(|name| durations.knows(name));
        println!(
            "part {number:>3}: {:>5.1} minutes, {} tests, {} of them measured",
            durations.sum(part).as_secs_f64() / 60.0,
            part.len(),
            known.count()
        );
    }
    Ok(true)
}

/// What has passed with the present sources, so that a long run can be taken up again.
struct Record {
    path: PathBuf,
    passed: BTreeSet<String>,
}

impl Record {
    fn open(workspace: &Workspace) -> Result<Self> {
        let path = workspace.output(&format!("passed-{}", sources_id(workspace)?))?;
        let text = fs::read_to_string(&path).unwrap_or_default();
        let passed = text.lines().map(str::to_owned).collect();
        Ok(Self { path, passed })
    }

    fn has(&self, name: &str) -> bool {
        self.passed.contains(name)
    }

    /// Written at once: the run may be ended at any moment.
    fn add(&self, name: &str) -> Result<()> {
        workspace::append(&self.path, name)
    }
}

/// An identity of the sources as they are, committed or not.
fn sources_id(workspace: &Workspace) -> Result<String> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&workspace.root)
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"]).context("Could not ask git for the commit")?;
    let changes = git(&["diff", "HEAD"]).context("Could not ask git for local changes")?;
    if changes.is_empty() {
        return Ok(head);
    }
    Ok(format!("{head}-{:016x}", fingerprint(changes.as_bytes())))
}

/// FNV-1a: enough to tell one set of local changes from another.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod test {
    use super::*;

    /// The longest that a part of `PARTS` may take, and what is left of it for building.
    const LIMIT: Duration = Duration::from_secs(45 * 60);
    const BUILDING: Duration = Duration::from_secs(5 * 60);
    const PARTS: usize = 30;

    #[test]
    fn a_part_out_of_range_is_refused() {
        for text in ["0/3", "4/3", "1", "a/b", "1/0", ""] {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains("k/n"), "{text}: {error}");
        }
        assert_eq!("2/4".parse::<Part>().unwrap(), Part { index: 2, count: 4 });
    }

    #[test]
    fn the_parts_hold_every_test_once_and_are_of_one_length() {
        let durations = Durations::parse("# seconds\n9 a\n5 b::full::c\n4 d\n4 e f\n2 g").unwrap();
        let names: Vec<String> = ["g", "e f", "a", "d", "b::full::c"]
            .map(str::to_owned)
            .into();
        let parts = divide(&names, &durations, 3);
        let parts: Vec<Vec<&str>> = parts
            .iter()
            .map(|part| part.iter().map(String::as_str).collect())
            .collect();
        assert_eq!(
            parts,
            [vec!["a"], vec!["b::full::c", "g"], vec!["d", "e f"]]
        );
    }

    /// CONTRIBUTING.md promises it.
    #[test]
    fn no_part_takes_longer_than_promised() {
        let workspace = Workspace::find().unwrap();
        let durations = Durations::read(&workspace).unwrap();
        let names: Vec<String> = durations.names().cloned().collect();
        assert!(!names.is_empty());
        for (part, number) in divide(&names, &durations, PARTS).iter().zip(1..) {
            let sum = durations.sum(part);
            assert!(
                sum + BUILDING <= LIMIT,
                "Part {number} takes {sum:?}: {part:#?}"
            );
        }
    }
}
