//! The system tests: real processes in labs, each test in a process of its own.
//!
//! One process per test gives a time limit to each, which the test harness does not have. The kind of
//! a test is told by its path: a segment `full` marks a slow one, a segment `bench` a measurement,
//! anything else is quick.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::durations;
use crate::lanes;
use crate::process::{self, Ending};
use crate::tally::Tally;
use crate::units::{self, SYSTEM_TESTS};
use crate::workspace::{TOOLKIT, Workspace};

const QUICK_LIMIT: Duration = Duration::from_secs(5 * 60);
const FULL_LIMIT: Duration = Duration::from_secs(40 * 60);
/// How much of a failed test's output is shown; the whole is in its log.
const SHOWN_LINES: usize = 60;

/// Which tests to run.
#[derive(Debug)]
pub(crate) enum Selection {
    Quick,
    /// Those, of any kind but measurements, whose path contains this.
    Named(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Quick,
    Full,
    Bench,
}

fn kind(name: &str) -> Kind {
    let mut segments = name.split("::");
    match segments.find(|segment| matches!(*segment, "full" | "bench")) {
        None => Kind::Quick,
        Some("full") => Kind::Full,
        Some(_) => Kind::Bench,
    }
}

/// Whether the test of this path is a quick one.
pub(crate) fn is_quick(name: &str) -> bool {
    kind(name) == Kind::Quick
}

/// One test: the program that holds it and its path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    program: PathBuf,
    pub name: String,
}

impl Case {
    pub(crate) fn is_quick(&self) -> bool {
        is_quick(&self.name)
    }

    pub(crate) fn is_bench(&self) -> bool {
        kind(&self.name) == Kind::Bench
    }
}

/// The directory of the programs under test and the tests that use them.
#[derive(Debug)]
pub(crate) struct Built {
    programs: PathBuf,
    pub cases: Vec<Case>,
}

/// Builds the programs and the tests, and lists the tests. `WHIM_BIN_DIR` names other
/// programs to be tested.
///
/// # Errors
/// When something does not build, or a test program cannot list its tests.
pub(crate) fn build(workspace: &Workspace, release: bool) -> Result<Built> {
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let programs = [
        "build",
        "--locked",
        "--workspace",
        "--exclude",
        TOOLKIT,
        "--exclude",
        "xtask",
        "--bins",
    ];
    let status = workspace.cargo(&programs).args(profile).status()?;
    if !status.success() {
        bail!("The programs do not build: see the output above");
    }
    let tests = [&["--locked", "-p", SYSTEM_TESTS], profile].concat();
    let executables = units::build(workspace, &tests)?;
    let mut cases = Vec::new();
    for tests in executables {
        cases.extend(list(&tests.program)?);
    }
    cases.sort_by(|left, right| left.name.cmp(&right.name));
    let directory = if release { "release" } else { "debug" };
    let others = std::env::var_os("WHIM_BIN_DIR").map(PathBuf::from);
    if let Some(others) = &others {
        println!("Of the programs in {}", others.display());
    }
    Ok(Built {
        programs: others.unwrap_or_else(|| workspace.target.join(directory)),
        cases,
    })
}

fn list(program: &Path) -> Result<Vec<Case>> {
    let output = Command::new(program)
        .args(["--list", "--format", "terse"])
        .output()
        .with_context(|| format!("Could not run {}", program.display()))?;
    if !output.status.success() {
        bail!("{} could not list its tests", program.display());
    }
    let cases = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(|name| Case {
            program: program.to_owned(),
            name: name.to_owned(),
        })
        .collect();
    Ok(cases)
}

/// Builds what is needed, runs the selected tests and counts them.
pub(crate) fn run(workspace: &Workspace, selection: &Selection, tally: &mut Tally) {
    println!("--- system tests");
    if let Err(error) = run_selected(workspace, selection, tally) {
        tally.fail(format!("system tests: {error:#}"));
    }
}

fn run_selected(workspace: &Workspace, selection: &Selection, tally: &mut Tally) -> Result<()> {
    let built = build(workspace, false)?;
    let selected = select(&built.cases, selection);
    println!("{} of {} system tests", selected.len(), built.cases.len());
    let (company, single): (Vec<_>, Vec<_>) = selected
        .into_iter()
        .partition(|case| lanes::may_have_company(&case.name));
    let (tally, ended) = (Mutex::new(tally), Mutex::new(Ok(())));
    let one = |case: &Case| {
        if let Err(error) = run_and_note(workspace, &built, case, &tally) {
            *lanes::lock(&ended) = Err(error);
        }
    };
    lanes::each(company, one);
    single.into_iter().for_each(one);
    ended.into_inner().unwrap_or(Ok(()))
}

/// Runs one test, beside which others may run, and notes what it took.
fn run_and_note(
    workspace: &Workspace,
    built: &Built,
    case: &Case,
    tally: &Mutex<&mut Tally>,
) -> Result<()> {
    let ran = execute(workspace, built, case, &[])?;
    let mut tally = lanes::lock(tally);
    if ran.report(case, &mut tally) {
        durations::note(workspace, &case.name, ran.took)?;
    }
    Ok(())
}

fn select<'a>(cases: &'a [Case], selection: &Selection) -> Vec<&'a Case> {
    let tests = cases.iter().filter(|case| kind(&case.name) != Kind::Bench);
    match selection {
        Selection::Quick => tests
            .filter(|case| kind(&case.name) == Kind::Quick)
            .collect(),
        Selection::Named(filter) => tests.filter(|case| case.name.contains(filter)).collect(),
    }
}

/// Runs one test with its output in a log of its own; true when it passed.
///
/// # Errors
/// When its log cannot be written or the test cannot be started.
pub(crate) fn run_case(
    workspace: &Workspace,
    built: &Built,
    case: &Case,
    variables: &[(&str, &Path)],
    tally: &mut Tally,
) -> Result<bool> {
    Ok(execute(workspace, built, case, variables)?.report(case, tally))
}

/// How a test ended.
struct Ran {
    ending: Ending,
    took: Duration,
    log: PathBuf,
}

impl Ran {
    /// Prints and counts it; true when it passed.
    fn report(&self, case: &Case, tally: &mut Tally) -> bool {
        let seconds = self.took.as_secs_f64();
        let how = match self.ending {
            Ending::Succeeded => {
                println!("test {} ... ok ({seconds:.1} s)", case.name);
                tally.pass(1);
                return true;
            }
            Ending::TimedOut => "ran too long",
            Ending::Failed => "failed",
        };
        println!("test {} ... FAILED ({seconds:.1} s, {how})", case.name);
        show_end(&self.log);
        tally.fail(format!(
            "test {} {how} after {seconds:.1} s: {}",
            case.name,
            self.log.display()
        ));
        false
    }
}

/// The test finds the programs through `WHIM_BIN_DIR` and things that the bootstrap fetched
/// through `WHIM_TOOLCHAIN_DIR`.
fn execute(
    workspace: &Workspace,
    built: &Built,
    case: &Case,
    variables: &[(&str, &Path)],
) -> Result<Ran> {
    let log_path = workspace.output(&format!("logs/{}.log", case.name.replace("::", ".")))?;
    let log = File::create(&log_path)
        .with_context(|| format!("Could not write {}", log_path.display()))?;
    let mut command = Command::new(&case.program);
    command
        .args(["--exact", &case.name, "--nocapture"])
        .current_dir(&workspace.root)
        .env("WHIM_BIN_DIR", &built.programs)
        .env("WHIM_TOOLCHAIN_DIR", workspace.root.join(".toolchain"))
        .envs(variables.iter().copied());
    let started = Instant::now();
    let ending = process::with_limit(command, &log, limit(&case.name)?)?;
    Ok(Ran {
        ending,
        took: started.elapsed(),
        log: log_path,
    })
}

/// The time limit of a test; `WHIM_TEST_LIMIT` (seconds) replaces it on slow machines.
fn limit(name: &str) -> Result<Duration> {
    if let Ok(seconds) = env::var("WHIM_TEST_LIMIT") {
        let seconds = seconds
            .parse()
            .with_context(|| format!("WHIM_TEST_LIMIT is '{seconds}', not a number of seconds"))?;
        return Ok(Duration::from_secs(seconds));
    }
    Ok(if kind(name) == Kind::Quick {
        QUICK_LIMIT
    } else {
        FULL_LIMIT
    })
}

fn show_end(log: &Path) {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        println!("    {line}");
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn cases(names: &[&str]) -> Vec<Case> {
        let case = |name: &&str| Case {
            program: PathBuf::new(),
            name: (*name).to_owned(),
        };
        names.iter().map(case).collect()
    }

    fn names(selected: &[&Case]) -> Vec<String> {
        selected.iter().map(|case| case.name.clone()).collect()
    }

    #[test]
    fn the_path_tells_the_kind() {
        assert_eq!(kind("journey::comes_home"), Kind::Quick);
        assert_eq!(kind("programs::full::bash"), Kind::Full);
        assert_eq!(kind("bench::freeze"), Kind::Bench);
        assert_eq!(kind("journey::fully_there"), Kind::Quick);
    }

    #[test]
    fn the_quick_set_holds_no_slow_test() {
        let all = cases(&["a", "b::full::c", "bench::x", "d"]);
        assert_eq!(names(&select(&all, &Selection::Quick)), ["a", "d"]);
        let named = Selection::Named("c".to_owned());
        assert_eq!(names(&select(&all, &named)), ["b::full::c"]);
    }
}
