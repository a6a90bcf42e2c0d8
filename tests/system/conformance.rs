//! Every system call of the table gives away what it gives at home: result, errno, every byte of
//! memory around its buffers, signals.
//!
//! The guests below `tests/guests/conformance` make the calls and tell what came of each. They run
//! once at home, where nothing is moved, and once away, and the two transcripts must be the same.
//! A case begins away and must end there: what brings it home lacks a shape in the table. Cases
//! whose names begin with `home_` are those that have to come home.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest};

/// Differing lines that are shown of one case.
const SHOWN: usize = 12;
/// How a program of a family ends: by the call that ends all of its threads, away.
const STATUS: i32 = 7;

/// One case, as it was told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    lines: Vec<String>,
    /// The calls that it covers, as it says.
    covers: Vec<String>,
    /// It ended at home, although it began away: why.
    went_home: Option<String>,
}

/// The ordinary user of the slow tests: other calls fail, with other errors.
const NOBODY: &str = "nobody";

/// Two tests for each file of guests: by root, and by an ordinary user.
pub(crate) fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for family in families()? {
        for (module, user) in [("", None), ("full::", Some(NOBODY))] {
            let family = family.clone();
            let name = format!("conformance::{module}{family}");
            cases.push(Case::new(name, move |_| {
                let cluster = Cluster::up(2)?;
                cluster.explaining(|| compare(&cluster, &family, user))
            }));
        }
    }
    Ok(cases)
}

/// Names of the files of guests.
pub(crate) fn families() -> Result<Vec<String>> {
    let mut families = Vec::new();
    for entry in fs::read_dir(guest::source("conformance"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(family) = name.strip_suffix(".c")
            && family != "common"
        {
            families.push(family.to_owned());
        }
    }
    Ok(families)
}

/// `WHIM_CASES=NAME` runs one case alone, for those who look for a fault.
fn words(family: &str) -> Result<Vec<String>> {
    let source = format!("{family}.c");
    let files = ["common.h", "common.c", source.as_str()];
    let program = guest::c_of("conformance", &format!("conformance-{family}"), &files)?;
    let only = std::env::var("WHIM_CASES").ok();
    Ok([program.display().to_string()]
        .into_iter()
        .chain(only)
        .collect())
}

/// Runs the cases of a family at home and away; they must tell the same.
pub(crate) fn compare(cluster: &Cluster, family: &str, user: Option<&str>) -> Result<()> {
    let words = words(family)?;
    let home = run(cluster, "home", &words, user, false)?;
    let away = run(cluster, "away", &words, user, true)?;
    ensure!(!home.is_empty(), "The guest {family} has no cases");
    let mut faults = Vec::new();
    let mut calls = BTreeSet::new();
    for (name, home) in &home {
        let away = away
            .get(name)
            .with_context(|| format!("Away, the case {name} was not run"))?;
        faults.extend(differences(name, home, away));
        calls.extend(home.lines.iter().filter_map(|line| call_of(line)));
    }
    for call in home.values().flat_map(|told| &told.covers) {
        if !calls.contains(call.as_str()) {
            faults.push(format!("It says that it covers {call}, and never makes it"));
        }
    }
    let lines: usize = home.values().map(|told| told.lines.len()).sum();
    println!(
        "{family}: {} cases, {} calls, {lines} lines",
        home.len(),
        calls.len()
    );
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The name of the call that a line of the transcript tells of.
fn call_of(line: &str) -> Option<&str> {
    let (name, _) = line.split_once([' ', ':'])?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some(name)
}

fn differences(name: &str, home: &Told, away: &Told) -> Vec<String> {
    let mut faults = Vec::new();
    match &away.went_home {
        Some(reason) if !name.starts_with("home_") => {
            faults.push(format!("{name}: it came home: {reason}"));
        }
        None if name.starts_with("home_") => {
            faults.push(format!(
                "{name}: it stayed away, although it must come home"
            ));
        }
        _ => {}
    }
    let pairs = home.lines.iter().zip(&away.lines);
    let differing = pairs.filter(|(home, away)| home != away);
    for (home, away) in differing.take(SHOWN) {
        let is_hole = away.contains("= -EFAULT") && !home.contains("= -EFAULT");
        let what = if is_hole {
            "a hole in the table"
        } else {
            "a difference"
        };
        faults.push(format!("{name}: {what}:\n  home {home}\n  away {away}"));
    }
    if home.lines.len() != away.lines.len() {
        let (at_home, there) = (home.lines.len(), away.lines.len());
        faults.push(format!("{name}: {at_home} lines at home, {there} away"));
    }
    faults
}

/// Runs all cases of a guest, each begun on n2 if `moves`.
fn run(
    cluster: &Cluster,
    place: &str,
    words: &[String],
    user: Option<&str>,
    moves: bool,
) -> Result<BTreeMap<String, Told>> {
    let whim = cluster.whim_path().display().to_string();
    let run = [whim, "run".to_owned(), "--".to_owned()];
    let before = if moves { &run[..] } else { &[] };
    let all: Vec<&String> = before.iter().chain(words).collect();
    let mut command = match user {
        Some(user) => cluster.command_as(user, "n1", &all),
        None => cluster.command("n1", &all),
    };
    let mut guest = Talk::start_in(cluster, place, &mut command)?;
    let mut told = BTreeMap::new();
    while let Some((pid, name)) = begin(&mut guest)? {
        if moves {
            hold_away(cluster, pid).with_context(|| format!("Before the case {name}"))?;
        }
        let before = guest.said.len();
        guest.go()?;
        guest
            .ready()
            .with_context(|| format!("In the case {name}"))?;
        let mut lines = guest.said[before..].to_vec();
        let last = lines.pop();
        ensure!(
            last == Some(format!("end {name}")),
            "The case {name} ended with {last:?}: {}",
            guest.errors()
        );
        let went_home = if moves {
            came_home(cluster, pid).with_context(|| format!("After the case {name}"))?
        } else {
            None
        };
        let covers = lines.pop().unwrap_or_default();
        let covers = covers.strip_prefix("covers ").unwrap_or_default();
        let covers = covers.split_whitespace().map(str::to_owned).collect();
        let case = Told {
            lines,
            covers,
            went_home,
        };
        told.insert(name, case);
        guest.go()?;
    }
    let status = guest.end()?;
    ensure!(
        status.code() == Some(STATUS),
        "The guest ended with {status}: {}",
        guest.errors()
    );
    Ok(told)
}

/// The next case: it stands before its first call. None when all have been run.
fn begin(guest: &mut Talk) -> Result<Option<(i32, String)>> {
    let Ok(pid) = guest.ready() else {
        return Ok(None);
    };
    let Some(name) = guest
        .said
        .last()
        .and_then(|line| line.strip_prefix("case "))
    else {
        bail!("The guest said {:?}", guest.said.last());
    };
    Ok(Some((pid, name.to_owned())))
}

fn place_of(cluster: &Cluster, pid: i32) -> Result<String> {
    let row = cluster.row(pid)?;
    Ok(row.with_context(|| format!("{pid} is gone"))?.place)
}

/// What prepares a case may have brought the guest home.
fn hold_away(cluster: &Cluster, pid: i32) -> Result<()> {
    if place_of(cluster, pid)? == "n2" {
        return Ok(());
    }
    cluster.move_to(pid, "n2")?;
    let place = place_of(cluster, pid)?;
    ensure!(place == "n2", "It was moved to n2 and is on {place}");
    Ok(())
}

/// Why it is at home, if it is.
fn came_home(cluster: &Cluster, pid: i32) -> Result<Option<String>> {
    if place_of(cluster, pid)? == "n2" {
        return Ok(None);
    }
    let log = cluster.log()?;
    let last = log.iter().rev().find_map(|event| {
        let text = event.to_string();
        text.contains("Home by itself").then_some(text)
    });
    Ok(Some(last.unwrap_or_default()))
}
