//! Unit, integration and documentation tests: each test counts by itself.
//!
//! Most of their time is waiting, as in the system tests, so two programs of them run at once. Nothing may be built
//! beside them that they run: cargo would put it in the place of theirs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::lanes;
use crate::process;
use crate::tally::Tally;
use crate::workspace::{TOOLKIT, Workspace};

/// The package whose tests need a lab; they have a runner of their own.
pub(crate) const SYSTEM_TESTS: &str = "whim-system-tests";

/// Whose tests these are, as options of cargo.
const SELECTION: [&str; 6] = [
    "--locked",
    "--workspace",
    "--exclude",
    TOOLKIT,
    "--exclude",
    SYSTEM_TESTS,
];

/// What is done beside something else.
enum Work<Other> {
    Other(Other),
    Tests(Tests),
}

/// A program of tests, and the directory in which cargo would run it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tests {
    pub program: PathBuf,
    directory: PathBuf,
}

/// Builds and runs them, and does something else beside them.
pub(crate) fn run(
    workspace: &Workspace,
    tally: &mut Tally,
    other: impl Fn(&Mutex<&mut Tally>) + Send + Sync,
) {
    println!("--- tests: cargo test {}", SELECTION.join(" "));
    let ran = build(workspace, &SELECTION).and_then(|programs| {
        run_programs(tally, programs, other);
        run_examples(workspace, tally)
    });
    if let Err(error) = ran {
        tally.fail(format!("tests: {error:#}"));
    }
}

/// Builds the programs of tests that these options of cargo select.
///
/// # Errors
/// When they do not build, or there are none.
pub(crate) fn build(workspace: &Workspace, selection: &[&str]) -> Result<Vec<Tests>> {
    let arguments = [
        "test",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    let mut programs = Vec::new();
    let command = workspace.cargo(&[&arguments, selection].concat());
    let status = process::each_line(command, |line| programs.extend(announced(line)))?;
    anyhow::ensure!(
        status.success(),
        "The tests do not build: see the output above"
    );
    anyhow::ensure!(!programs.is_empty(), "cargo names no programs of tests");
    Ok(programs)
}

/// The program of tests that this message of cargo announces.
fn announced(message: &str) -> Option<Tests> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Tests {
        program: program.into(),
        directory: manifest.parent()?.to_owned(),
    })
}

fn run_programs(
    tally: &mut Tally,
    programs: Vec<Tests>,
    other: impl Fn(&Mutex<&mut Tally>) + Send + Sync,
) {
    let tally = Mutex::new(tally);
    let work = std::iter::once(Work::Other(other)).chain(programs.into_iter().map(Work::Tests));
    lanes::each(work.collect(), |work| match work {
        Work::Other(other) => other(&tally),
        Work::Tests(tests) => run_program(&tests, &tally),
    });
}

/// Runs one program, and prints what it has said when it has ended.
fn run_program(tests: &Tests, tally: &Mutex<&mut Tally>) {
    let output = Command::new(&tests.program)
        .current_dir(&tests.directory)
        .env("CARGO_MANIFEST_DIR", &tests.directory)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("Could not run {}", tests.program.display()));
    let mut tally = lanes::lock(tally);
    let output = match output {
        Ok(output) => output,
        Err(error) => return tally.fail(format!("tests: {error:#}")),
    };
    println!("     Running {}", tests.program.display());
    let mut failed = 0_usize;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        failed += count(line, &mut tally);
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    if !output.status.success() && failed == 0 {
        let (program, status) = (tests.program.display(), output.status);
        tally.fail(format!(
            "tests: {program} ended with {status} before or outside a test, see its output above"
        ));
    }
}

/// The examples in the documentation, which cargo alone can run.
fn run_examples(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut failed = 0;
    let arguments = [&["test", "--doc", "--no-fail-fast"][..], &SELECTION].concat();
    let status = process::each_line(workspace.cargo(&arguments), |line| {
        failed += count(line, tally);
    })?;
    if !status.success() && failed == 0 {
        tally.fail("tests: `cargo test --doc` failed outside an example, see its output above");
    }
    Ok(())
}

/// Prints a line and counts the test whose end it tells; the number of tests that failed by it.
fn count(line: &str, tally: &mut Tally) -> usize {
    println!("{line}");
    match test_result(line) {
        Some((name, true)) if !name.is_empty() => tally.pass(1),
        Some((name, false)) => {
            tally.fail(format!("test {name}"));
            return 1;
        }
        _ => {}
    }
    0
}

/// The name of the test that this line of libtest reports, and whether it passed.
fn test_result(line: &str) -> Option<(&str, bool)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    match result {
        "ok" => Some((name, true)),
        "FAILED" => Some((name, false)),
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lines_of_libtest_are_understood() {
        assert_eq!(test_result("test a::b ... ok"), Some(("a::b", true)));
        assert_eq!(
            test_result("test a::b - should panic ... ok"),
            Some(("a::b", true))
        );
        let failed = test_result("test src/lib.rs - f (line 3) ... FAILED");
        assert_eq!(failed, Some(("src/lib.rs - f (line 3)", false)));
        assert_eq!(
            test_result("test result: ok. 3 passed; 0 failed; 0 ignored"),
            None
        );
        assert_eq!(test_result("running 3 tests"), None);
    }

    #[test]
    fn programs_are_run_where_their_packages_are() {
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml",
                "profile":{{"test":{test}}},"executable":"/w/target/a-1"}}"#
            )
        };
        let tests = Tests {
            program: "/w/target/a-1".into(),
            directory: "/w/crates/a".into(),
        };
        assert_eq!(announced(&message(true)), Some(tests));
        assert_eq!(announced(&message(false)), None);
        assert_eq!(announced("not JSON"), None);
    }
}
