//! Checks of Rust sources.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

const LINES_MAX: usize = 800;

/// The crates that may hold unsafe code: raw kernel interfaces, calls of functions that are compiled for one
/// instruction set, libraries that are opened at run time, an MPI; and nothing else.
const UNSAFE_CRATES: &[&str] = &[
    "crates/whim-sys",
    "mpi/pipt-simd",
    "mpi/pipt-gdal",
    "mpi/pipt-load",
    "mpi/pipt-python",
    "mpi/whim-mpi",
];

fn may_be_unsafe(path: &Path) -> bool {
    UNSAFE_CRATES
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// What may not be left in the sources, and what to do instead. Written in halves, so that this
/// file does not find itself.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it"),
    (concat!("unimpl", "emented!("), "finish it"),
    (
        concat!("#[ign", "ore"),
        "move the test below a module `full`, or mend it",
    ),
    (concat!("FIX", "ME"), "mend it, or file it"),
    (concat!("TO", "DO"), "do it, or file it"),
    (concat!("XX", "X"), "mend it, or file it"),
    (concat!("clippy::too_many", "_lines"), "split the function"),
];

fn each_source(workspace: &Workspace, mut visit: impl FnMut(&Path, &str)) -> Result<()> {
    for path in workspace.files()? {
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(text) = workspace.text(&path)?
        {
            visit(&path, &text);
        }
    }
    Ok(())
}

/// No source file is longer than it can be read in one sitting.
pub(super) fn file_length(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    each_source(workspace, |path, text| {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            let path = path.display();
            findings.push(format!(
                "{path}: {lines} lines, more than {LINES_MAX}: split it"
            ));
        }
    })?;
    Ok(findings)
}

/// Every crate but the one for the kernel's interfaces forbids unsafe code.
pub(super) fn forbid_unsafe(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for root in workspace.crate_roots()? {
        if may_be_unsafe(&root) {
            continue;
        }
        let text = workspace.text(&root)?.unwrap_or_default();
        if !text
            .lines()
            .any(|line| line.trim_start().starts_with("#![forbid(unsafe_code"))
        {
            findings.push(format!("{}: add #![forbid(unsafe_code)]", root.display()));
        }
    }
    Ok(findings)
}

/// Every unsafe block says why it is needed and why it is sound. Where the compiler refuses unsafe
/// code there is nothing to look for.
pub(super) fn unsafe_comments(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    each_source(workspace, |path, text| {
        if !may_be_unsafe(path) {
            return;
        }
        for (line, missing) in undocumented(text) {
            findings.push(format!(
                "{}:{line}: unsafe without a // {missing}: comment",
                path.display()
            ));
        }
    })?;
    Ok(findings)
}

/// Nothing unfinished, and no test switched off.
pub(super) fn leftovers(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    each_source(workspace, |path, text| {
        for (index, line) in text.lines().enumerate() {
            for (word, cure) in LEFTOVERS {
                if holds_word(line, word) {
                    findings.push(format!(
                        "{}:{}: `{word}`: {cure}",
                        path.display(),
                        index + 1
                    ));
                }
            }
        }
    })?;
    Ok(findings)
}

/// Whether the line holds the word by itself, not within a longer one.
fn holds_word(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let open_before = word.starts_with(part_of_word) && before.is_some_and(part_of_word);
        let open_after = word.ends_with(part_of_word) && after.is_some_and(part_of_word);
        !open_before && !open_after
    })
}

/// Line number (from 1) and missing label of each unsafe block or implementation.
fn undocumented(text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if !(holds_word(code, "unsafe {") || holds_word(code, "unsafe impl")) {
            continue;
        }
        let comments = comments_above(&lines[..index]);
        for label in ["JUSTIFICATION", "SAFETY"] {
            if !comments
                .iter()
                .any(|comment| comment.contains(&format!("{label}:")))
            {
                found.push((index + 1, label));
            }
        }
    }
    found
}

/// The comments that belong to the statement that ends in the line after `above`: those right
/// before its first line, and those between its lines.
fn comments_above<'a>(above: &[&'a str]) -> Vec<&'a str> {
    let mut comments = Vec::new();
    for line in above.iter().rev() {
        if line.starts_with("//") {
            comments.push(*line);
        } else if line.starts_with("#[") {
            // An attribute stands between a statement and its comment.
        } else if !comments.is_empty() || ends_statement(line) {
            break;
        }
    }
    comments
}

fn ends_statement(line: &str) -> bool {
    line.is_empty() || line.ends_with([';', '{', '}', ','])
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn words_are_found_whole() {
        let marker = concat!("XX", "X");
        assert!(holds_word(&format!("// {marker}: later"), marker));
        assert!(!holds_word(&format!("\"file.{marker}{marker}\""), marker));
        assert!(holds_word("let a = unsafe { b };", "unsafe {"));
        assert!(!holds_word("not_unsafe { b }", "unsafe {"));
    }

    #[test]
    fn an_unsafe_block_needs_both_comments() {
        let good = "// JUSTIFICATION: a\n// SAFETY: b\n#[allow(x)]\nlet y =\n    unsafe { f() };";
        assert_eq!(undocumented(good), []);
        let bare = "f();\nunsafe { g() };";
        assert_eq!(undocumented(bare), [(2, "JUSTIFICATION"), (2, "SAFETY")]);
        let half = "// SAFETY: b\nunsafe { g() };";
        assert_eq!(undocumented(half), [(2, "JUSTIFICATION")]);
    }

    #[test]
    fn a_comment_of_the_statement_before_does_not_count() {
        let text = "// JUSTIFICATION: a\n// SAFETY: b\nunsafe { f() };\nunsafe { g() };";
        assert_eq!(undocumented(text), [(4, "JUSTIFICATION"), (4, "SAFETY")]);
    }

    #[test]
    fn a_comment_that_speaks_of_unsafe_code_is_none() {
        assert_eq!(undocumented("// unsafe { } is only allowed elsewhere"), []);
    }
}
