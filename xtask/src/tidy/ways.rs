//! The ways that ARCHITECTURE.md tells: what they name has to be there.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

const DOCUMENT: &str = "ARCHITECTURE.md";
const TITLE: &str = "\n## The way of ";

/// Each function, file and type that a section of the ways names is in the sources.
///
/// # Errors
/// When files cannot be read, or there are no such sections.
pub(crate) fn are_there(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?;
    let text = text.with_context(|| format!("{DOCUMENT} cannot be read"))?;
    let names = named(&text);
    ensure!(!names.is_empty(), "{DOCUMENT} has no '{}'", TITLE.trim());
    let (mut files, mut sources) = (Vec::new(), String::new());
    for path in workspace.files()? {
        let is_source =
            path.starts_with("crates") && path.extension().is_some_and(|end| end == "rs");
        if !is_source {
            continue;
        }
        files.push(path.display().to_string());
        sources.push_str(&workspace.text(&path)?.unwrap_or_default());
    }
    let missing = names
        .into_iter()
        .filter(|name| !is_there(name, &files, &sources));
    Ok(missing
        .map(|name| {
            format!("{DOCUMENT}: a way names '{name}', which is not in the sources any more")
        })
        .collect())
}

/// What the sections put between backticks, without arguments and commands.
fn named(text: &str) -> Vec<&str> {
    let sections = text.split(TITLE).skip(1);
    let sections = sections.map(|section| section.split("\n## ").next().unwrap_or_default());
    let quoted = sections.flat_map(|section| section.split('`').skip(1).step_by(2));
    let is_name = |name: &&str| {
        let is_letter = |letter: char| letter.is_alphanumeric() || "_/:.-".contains(letter);
        name.contains(['_', '/', ':', '.']) && name.chars().all(is_letter)
    };
    let mut names: Vec<&str> = quoted.filter(is_name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn is_there(name: &str, files: &[String], sources: &str) -> bool {
    if name.ends_with(".rs") {
        let end = format!("/{name}");
        return files
            .iter()
            .any(|file| *file == name || file.ends_with(&end));
    }
    // Of `a::b`, what is defined is `b`.
    let name = name.rsplit("::").next().unwrap_or(name);
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    sources.match_indices(name).any(|(at, _)| {
        let (before, after) = (&sources[..at], &sources[at + name.len()..]);
        let defined = ["fn ", "struct ", "enum ", "const ", "mod ", "    "].iter();
        defined.into_iter().any(|word| before.ends_with(word)) && !after.starts_with(is_letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_way_names_is_found() {
        let text = "\n## Other\n`no_such`\n## The way of a call\n`write(1)` in `calls.rs`, `take_calls`: `a::B`, `word`\n## End\n`x_y`\n";
        assert_eq!(named(text), ["a::B", "calls.rs", "take_calls"]);
        let files = ["crates/a/src/calls.rs".to_owned()];
        let sources = "fn take_calls_all() {}\nenum A {\n    B,\n}\n";
        let found = |name| is_there(name, &files, sources);
        assert!(found("calls.rs") && found("a::B") && found("take_calls_all"));
        assert!(!found("alls.rs") && !found("take_calls") && !found("judge"));
    }
}
