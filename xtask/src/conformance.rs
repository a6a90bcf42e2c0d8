//! Which case of the conformance suite covers which system call, and `docs/syscalls.md`.
//!
//! The relation stands in one place, beside the calls themselves: the guests below
//! `tests/guests/conformance` declare with `CASE(name, "call call", ...)` what a case covers. Each
//! case is run at home and away by the system tests `conformance::*`, which also check that it
//! really makes the calls that it declares.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use whim_calls::{CallClass, doc, rows};

use crate::workspace::Workspace;

const GUESTS: &str = "tests/guests/conformance";
const DOCUMENT: &str = "docs/syscalls.md";
const SETTINGS: &str = "docs/settings.md";

/// Cases by the call that they cover.
type Relation = BTreeMap<String, Vec<String>>;

/// Writes the document, or with `check` looks only; true when nothing was found.
///
/// # Errors
/// When the guests cannot be read or the document cannot be written.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<bool> {
    if !check {
        let text = document(&relation(workspace)?);
        fs::write(workspace.root.join(DOCUMENT), text)
            .with_context(|| format!("Could not write {DOCUMENT}"))?;
        fs::write(workspace.root.join(SETTINGS), doc::settings())
            .with_context(|| format!("Could not write {SETTINGS}"))?;
    }
    let relation = relation(workspace)?;
    let findings = findings(workspace)?;
    for finding in &findings {
        println!("{finding}");
    }
    for class in [CallClass::Forward, CallClass::ByArgument, CallClass::Local] {
        let of_class = || rows().iter().filter(|row| row.class() == class);
        let covered = of_class().filter(|row| relation.contains_key(row.name()));
        println!(
            "{class:?}: {} of {} calls have a case",
            covered.count(),
            of_class().count()
        );
    }
    Ok(findings.is_empty())
}

/// What is wrong, for the checks of the sources.
///
/// # Errors
/// When the guests or the document cannot be read.
pub(crate) fn findings(workspace: &Workspace) -> Result<Vec<String>> {
    let relation = relation(workspace)?;
    let mut findings = gaps(&relation);
    for (name, text) in [(DOCUMENT, document(&relation)), (SETTINGS, doc::settings())] {
        let stored = fs::read_to_string(workspace.root.join(name))
            .with_context(|| format!("Could not read {name}"))?;
        if stored != text {
            findings.push(format!("{name} is stale: run `cargo xtask conformance`"));
        }
    }
    Ok(findings)
}

fn document(relation: &Relation) -> String {
    doc::markdown(&|call| relation.get(call).cloned().unwrap_or_default())
}

/// Calls without a case, and cases of calls that do not exist.
fn gaps(relation: &Relation) -> Vec<String> {
    let mut findings = Vec::new();
    for (call, cases) in relation {
        if !rows().iter().any(|row| row.name() == call) {
            findings.push(format!(
                "{GUESTS}: {} covers {call}, which is not in the table",
                cases.join(", ")
            ));
        }
    }
    let tested = |class| matches!(class, CallClass::Forward | CallClass::ByArgument);
    for row in rows().iter().filter(|row| tested(row.class())) {
        if !relation.contains_key(row.name()) {
            findings.push(format!(
                "{GUESTS}: no case covers {}: write one that compares it at home and away",
                row.name()
            ));
        }
    }
    findings
}

fn relation(workspace: &Workspace) -> Result<Relation> {
    let mut relation = Relation::new();
    let directory = workspace.root.join(GUESTS);
    let mut paths: Vec<_> = fs::read_dir(&directory)
        .with_context(|| format!("Could not read {GUESTS}"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let family = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("Could not read {}", path.display()))?;
        let found = cases(&text).with_context(|| format!("In {}", path.display()))?;
        for (case, calls) in found {
            for call in calls {
                let of_call = relation.entry(call).or_default();
                of_call.push(format!("{family}::{case}"));
            }
        }
    }
    ensure!(!relation.is_empty(), "{GUESTS} has no cases");
    Ok(relation)
}

/// The cases of a guest's source, with the calls that each covers.
fn cases(text: &str) -> Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    for piece in text.split("\nCASE(").skip(1) {
        let Some((name, rest)) = piece.split_once(',') else {
            bail!("A CASE has no comma behind its name");
        };
        // Strings, one behind the other as C joins them, up to the comma before `prepare`.
        let mut covers = String::new();
        let mut rest = rest.trim_start();
        while let Some(string) = rest.strip_prefix('"') {
            let Some((inner, behind)) = string.split_once('"') else {
                bail!("The string of the case {name} does not end");
            };
            covers.push_str(inner);
            rest = behind.trim_start();
        }
        ensure!(
            rest.starts_with(','),
            "The case {name} does not say what it covers, as a string"
        );
        let calls = covers.split_whitespace().map(str::to_owned).collect();
        found.push((name.trim().to_owned(), calls));
    }
    Ok(found)
}

#[cfg(test)]
mod test {
    use super::*;

    const SOURCE: &str = "int x;\nCASE(one, \"read write \"\n   \"lseek\", before)\n{\n}\n\
                          \nCASE(two, \"\", NULL)\n{\n}\n";

    #[test]
    fn declarations_are_read() {
        let found = cases(SOURCE).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, "one");
        assert_eq!(found[0].1, ["read", "write", "lseek"]);
        assert!(found[1].1.is_empty());
        assert!(cases("\nCASE(one, calls, NULL)").is_err());
    }

    #[test]
    fn gaps_and_strangers_are_found() {
        let mut relation: Relation = rows()
            .iter()
            .map(|row| (row.name().to_owned(), vec!["f::c".to_owned()]))
            .collect();
        assert!(gaps(&relation).is_empty());
        relation.remove("openat");
        // Calls that never leave the guest need no case.
        relation.remove("getpid");
        relation.insert("opennat".to_owned(), vec!["f::c".to_owned()]);
        let found = gaps(&relation);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("opennat") && found[1].contains("openat"));
    }
}
