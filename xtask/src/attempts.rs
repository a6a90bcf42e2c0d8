//! Attempts at breaking in or out: made by the tests, listed here, stored in `docs/attempts.md`.
//!
//! The tests declare their attempts where they make them (`tests/attempts`). This task runs each test
//! program whose sources do so, collects what they write, and compares it with the stored list: one
//! that is in the list and was not made is a finding, and so is one that is not in the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::system;
use crate::tally::Tally;
use crate::tidy;
use crate::units::SYSTEM_TESTS;
use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/attempts.md";
/// The heading of the document's tables.
const HEADING: &str = "| attempt | outcome | test |";
/// As in `tests/attempts`.
const FILE: &str = "WHIM_ATTEMPTS";
const DECLARATION: &str = "use whim_attempts::";
const INTRODUCTION: &str = "\
# Attempts at breaking in or out

Written by `cargo xtask attempts --write`, which runs the tests named here; `cargo xtask attempts` runs
them and fails when one succeeds, was not made, or is missing in this list. Those of `full` tests are made by
`cargo xtask system` alone, and stay in this list as they are. What is promised to whom:
[threat-model.md](threat-model.md).
";

/// What is asked for besides the list itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub count: bool,
    pub write: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    party: String,
    what: String,
    test: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    succeeded: bool,
    how: String,
}

type Made = BTreeMap<Key, Outcome>;

/// Runs the tests that make attempts and lists these; true when each was made and none succeeded.
///
/// # Errors
/// When the tests do not build, or files cannot be read or written.
pub(crate) fn run(workspace: &Workspace, wish: Wish) -> Result<bool> {
    let output = workspace.output("attempts")?;
    fs::write(&output, "").with_context(|| format!("Could not write {}", output.display()))?;
    let mut tally = Tally::default();
    for program in programs(workspace)? {
        program.run(workspace, &output, &mut tally)?;
    }
    let made = parse(&fs::read_to_string(&output)?)?;
    for (key, outcome) in &made {
        let mark = if outcome.succeeded {
            "SUCCEEDED"
        } else {
            "failed"
        };
        println!("{}: {} ... {mark}: {}", key.party, key.what, outcome.how);
    }
    if wish.write {
        let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
        let listed = listed(&made, &text);
        fs::write(workspace.root.join(DOCUMENT), document(&listed))
            .with_context(|| format!("Could not write {DOCUMENT}"))?;
    }
    let stored = stored(workspace)?;
    for finding in findings(&made, &stored) {
        println!("{finding}");
        tally.fail(finding);
    }
    if wish.count {
        print!("{}", counts(&made));
    }
    tally.pass(made.len());
    tally.close(workspace)
}

/// Whether this task runs it.
fn is_run_here(key: &Key) -> bool {
    system::is_quick(&key.test)
}

/// What was made, and what the document says of those that are not run here.
fn listed(made: &Made, text: &str) -> Made {
    let stored = rows(text).into_iter();
    let kept = stored.filter(|row| !is_run_here(&row.key));
    let kept = kept.map(|Row { key, how, .. }| {
        let succeeded = false;
        (key, Outcome { succeeded, how })
    });
    kept.chain(made.clone()).collect()
}

/// What differs from what should be.
fn findings(made: &Made, stored: &BTreeSet<Key>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, outcome) in made {
        let Key { party, what, test } = key;
        if outcome.succeeded {
            found.push(format!("succeeded: {party}: {what} ({test})"));
        }
        if !stored.contains(key) {
            found.push(format!(
                "not in {DOCUMENT}: {party}: {what} ({test}): run `cargo xtask attempts --write`"
            ));
        }
    }
    let not_made = |key: &&Key| is_run_here(key) && !made.contains_key(key);
    for key in stored.iter().filter(not_made) {
        let Key { party, what, test } = key;
        found.push(format!("was not made: {party}: {what} ({test})"));
    }
    found
}

fn counts(made: &Made) -> String {
    let mut parties: BTreeMap<&str, usize> = BTreeMap::new();
    for key in made.keys() {
        *parties.entry(&key.party).or_default() += 1;
    }
    let mut text = String::new();
    for (party, count) in parties {
        text += &format!("{count:4} {party}\n");
    }
    let succeeded = made.values().filter(|outcome| outcome.succeeded).count();
    text + &format!("{:4} attempts, {succeeded} succeeded\n", made.len())
}

/// A line each, as `tests/attempts` writes them. One that is made several times has succeeded if it
/// has succeeded once.
fn parse(text: &str) -> Result<Made> {
    let mut made = Made::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [party, what, test, outcome, how] = fields[..] else {
            bail!("'{line}' is no attempt");
        };
        let key = Key {
            party: party.to_owned(),
            what: what.to_owned(),
            test: test.to_owned(),
        };
        let succeeded = outcome != "failed";
        let known = made.get(&key).is_some_and(|known| known.succeeded);
        if !known {
            let how = steady(how);
            made.insert(key, Outcome { succeeded, how });
        }
    }
    Ok(made)
}

/// Addresses differ from run to run: what is stored does not tell them.
fn steady(how: &str) -> String {
    let mut text = String::new();
    for (index, piece) in how.split("0x").enumerate() {
        if index > 0 {
            text += "0x...";
            text += piece.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        } else {
            text += piece;
        }
    }
    text
}

fn document(made: &Made) -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut party = "";
    for (key, outcome) in made {
        if key.party != party {
            party = &key.party;
            text += &format!("\n## By a {party}\n\n{HEADING}\n|---|---|---|\n");
        }
        let Key { what, test, .. } = key;
        text += &format!("| {what} | {} | `{test}` |\n", outcome.how);
    }
    text.replace("## By a old", "## By an old")
}

fn stored(workspace: &Workspace) -> Result<BTreeSet<Key>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    Ok(rows(&text).into_iter().map(|row| row.key).collect())
}

/// One of the document's attempts.
struct Row {
    line: usize,
    key: Key,
    how: String,
}

fn rows(text: &str) -> Vec<Row> {
    let mut found = Vec::new();
    let mut party = "";
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("## By a") {
            party = name.trim_start_matches('n').trim_start();
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [what, how, test] = cells[..] else {
            continue;
        };
        if line == HEADING || !line.starts_with('|') || party.is_empty() {
            continue;
        }
        let key = Key {
            party: party.to_owned(),
            what: what.to_owned(),
            test: test.trim_matches('`').to_owned(),
        };
        found.push(Row {
            line: index + 1,
            key,
            how: how.to_owned(),
        });
    }
    found
}

/// For the checks of the sources: every test that the list names is there, and the list is not empty.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn tests_exist(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let sources = tidy::sources(workspace)?;
    let rows = rows(&text);
    let mut found: Vec<String> = rows
        .iter()
        .filter(|row| !tidy::has_test(&sources, &row.key.test))
        .map(|Row { line, key, .. }| format!("{DOCUMENT}:{line}: there is no test `{}`", key.test))
        .collect();
    if rows.is_empty() {
        found.push(format!("{DOCUMENT} lists no attempt"));
    }
    Ok(found)
}

/// A test program, or a part of it, that makes attempts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// An integration test.
    Integration { package: String, name: String },
    /// A module of a library.
    Unit { package: String, module: String },
    /// The quick system tests of a file.
    System { module: String },
}

fn programs(workspace: &Workspace) -> Result<BTreeSet<Program>> {
    let mut found = BTreeSet::new();
    for path in workspace.files()? {
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        if is_rust
            && workspace
                .text(&path)?
                .unwrap_or_default()
                .contains(DECLARATION)
        {
            found.extend(program(&path)?);
        }
    }
    Ok(found)
}

/// Where a file that declares attempts is run; none where it is this one.
fn program(path: &Path) -> Result<Option<Program>> {
    let words: Vec<String> = path
        .with_extension("")
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Some(match words[..] {
        ["xtask", ..] => return Ok(None),
        ["crates", package, "tests", name, ..] => Program::Integration {
            package: package.to_owned(),
            name: name.to_owned(),
        },
        ["crates", package, "src", ref module @ ..] => Program::Unit {
            package: package.to_owned(),
            module: module.join("::"),
        },
        ["tests", "system", module, ..] => Program::System {
            module: module.to_owned(),
        },
        _ => bail!(
            "{} declares attempts and belongs to no test",
            path.display()
        ),
    }))
}

impl Program {
    fn run(&self, workspace: &Workspace, output: &PathBuf, tally: &mut Tally) -> Result<()> {
        let command = match self {
            Self::System { module } => {
                return run_system(workspace, module, output, tally);
            }
            Self::Integration { package, name } => {
                let words = ["test", "--locked", "-p", package, "--test", name];
                workspace.cargo(&words)
            }
            Self::Unit { package, module } => {
                // The name of the thread is the name of the test only beside another thread.
                let words = ["test", "--locked", "-p", package, "--lib", "--", module];
                workspace.cargo(&words)
            }
        };
        self.finish(command, output, tally)
    }

    fn finish(&self, mut command: Command, output: &PathBuf, tally: &mut Tally) -> Result<()> {
        // In a single thread the standard harness would run tests without a name.
        command.env(FILE, output).env("RUST_TEST_THREADS", "2");
        let mut lines = Vec::new();
        let status = process::each_line(command, |line| lines.push(line.to_owned()))?;
        if !status.success() {
            for line in &lines {
                println!("    {line}");
            }
            tally.fail(format!("{self:?} failed"));
        }
        Ok(())
    }
}

fn run_system(workspace: &Workspace, module: &str, output: &Path, tally: &mut Tally) -> Result<()> {
    let built = system::build(workspace, false)
        .with_context(|| format!("Could not build {SYSTEM_TESTS}"))?;
    let prefix = format!("{module}::");
    for case in &built.cases {
        if case.name.starts_with(&prefix) && case.is_quick() {
            system::run_case(workspace, &built, case, &[(FILE, output)], tally)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    const WRITTEN: &str = "guest\topen\tescape::ways\tfailed\tENOENT at 0x7f12, 3\n\
         old version\tcall\tv::old\tsucceeded\tthe test did not see it fail\n\
         old version\tcall\tv::old\tfailed\trefused\n";

    #[test]
    fn what_is_stored_is_what_was_made() {
        let made = parse(WRITTEN).unwrap();
        assert_eq!(made.len(), 2);
        let text = document(&made);
        assert!(text.contains("ENOENT at 0x..., 3"), "{text}");
        let stored: BTreeSet<Key> = rows(&text).into_iter().map(|row| row.key).collect();
        assert_eq!(stored, made.keys().cloned().collect());
        let found = findings(&made, &stored);
        assert_eq!(found, ["succeeded: old version: call (v::old)"]);
    }

    #[test]
    fn what_was_not_made_is_a_finding() {
        let made = parse(WRITTEN).unwrap();
        let stored = made.keys().cloned().collect();
        assert!(findings(&Made::new(), &stored)[0].starts_with("was not made: guest"));
        assert!(findings(&made, &BTreeSet::new())[0].starts_with("not in "));
        assert!(parse("three\tfields\tonly\n").is_err());
    }

    #[test]
    fn those_of_full_tests_stay_as_they_are() {
        let written = "local user\tlook\tm::full::users\tfailed\tdenied\n";
        let text = document(&parse(written).unwrap());
        let made = parse(WRITTEN).unwrap();
        let both = listed(&made, &text);
        assert_eq!(both.len(), made.len() + 1);
        let again = document(&both);
        assert!(
            again.contains("| look | denied | `m::full::users` |"),
            "{again}"
        );
        let stored = rows(&again).into_iter().map(|row| row.key).collect();
        assert_eq!(findings(&made, &stored).len(), 1);
        // Of others the list says what was made now.
        assert_eq!(listed(&Made::new(), &again).len(), 1);
    }

    #[test]
    fn files_lead_to_their_programs() {
        let of = |path: &str| program(Path::new(path));
        let system = Program::System {
            module: "escape".into(),
        };
        assert_eq!(of("tests/system/escape.rs").unwrap(), Some(system));
        let unit = Program::Unit {
            package: "whimd".into(),
            module: "server::tests".into(),
        };
        assert_eq!(of("crates/whimd/src/server/tests.rs").unwrap(), Some(unit));
        let test = Program::Integration {
            package: "whim-net".into(),
            name: "join".into(),
        };
        assert_eq!(of("crates/whim-net/tests/join.rs").unwrap(), Some(test));
        assert!(of("tests/harness/case.rs").is_err());
    }
}
