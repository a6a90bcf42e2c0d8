//! The threat model's promises name their tests: those tests have to exist.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/threat-model.md";
/// The tables that are looked at have this as their heading.
const HEADING: &str = "| promise | test |";

/// All Rust sources, one behind the other.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn sources(workspace: &Workspace) -> Result<String> {
    let mut sources = String::new();
    for path in workspace.files()? {
        if path.extension().is_some_and(|extension| extension == "rs") {
            sources += &workspace.text(&path)?.unwrap_or_default();
        }
    }
    Ok(sources)
}

/// Every test that a promise names is in the sources, and every promise names one.
pub(super) fn tests_exist(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let sources = sources(workspace)?;
    let mut findings = Vec::new();
    for (line, names) in promises(&text) {
        if names.is_empty() {
            findings.push(format!("{DOCUMENT}:{line}: this promise names no test"));
        }
        for name in names.iter().filter(|name| !has_test(&sources, name)) {
            findings.push(format!("{DOCUMENT}:{line}: there is no test `{name}`"));
        }
    }
    if text.is_empty() {
        findings.push(format!("{DOCUMENT} is missing"));
    }
    Ok(findings)
}

/// Line numbers of promises, and the tests that they name.
fn promises(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if line == HEADING {
            inside = true;
        } else if !line.starts_with('|') {
            inside = false;
        } else if inside && !line.starts_with("|--") {
            let tests = line.trim_end_matches(" |").rsplit_once("| ");
            let tests = tests.map_or("", |(_, tests)| tests);
            let names = tests.split('`').skip(1).step_by(2);
            found.push((index + 1, names.map(str::to_owned).collect()));
        }
    }
    found
}

/// A function of that name, or a case whose path holds it.
#[must_use]
pub(crate) fn has_test(sources: &str, name: &str) -> bool {
    let path = name.trim_end_matches("::");
    let (module, last) = path.rsplit_once("::").unwrap_or(("", path));
    sources.contains(&format!("fn {last}("))
        || sources.contains(&format!("\"{path}"))
        || sources.contains(&format!("mod {path};"))
        || (sources.contains(&format!("\"{last}\"")) && sources.contains(&format!("{module}::")))
        || path.split_once("::full::").is_some_and(|(module, last)| {
            sources.contains(&format!("\"full::{last}\""))
                && sources.contains(&format!("{module}::"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_missed() {
        let text = "| promise | test |\n|---|---|\n| a `b` c | `x::one`, `two` (three) |\n| d | - |\n\n| e | f |\n";
        let found = promises(text);
        let names = vec!["x::one".to_owned(), "two".to_owned()];
        assert_eq!(found, [(3, names), (4, vec![])]);
        let sources =
            "fn one() {} Case::new(\"y::four\"); mod five; \"z::{name}\"; \"full::seven\"";
        assert!(
            has_test(sources, "x::one")
                && has_test(sources, "y::four")
                && has_test(sources, "five::")
                && has_test(sources, "z::full::seven")
        );
        for missing in ["x::two", "six::", "z::full::eight", "w::full::seven"] {
            assert!(!has_test(sources, missing), "{missing}");
        }
    }
}
