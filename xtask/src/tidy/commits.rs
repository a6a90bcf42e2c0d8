//! Checks of the history: a title is read in lists, and why behaviour changed is asked years later.

use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Commits after this one are held to it.
const SINCE: &str = "2644b53ee1287017d57e326031f2a1a95b708429";
/// Longest title, in characters.
const TITLE_MAX: usize = 72;

/// A commit, as far as the check goes.
#[derive(Debug, PartialEq, Eq)]
struct Commit<'a> {
    id: &'a str,
    title: &'a str,
    body: &'a str,
    files: Vec<&'a str>,
}

/// Every title is short, and a commit that changes programs says why.
///
/// # Errors
/// When git cannot be run.
pub(crate) fn say_why(workspace: &Workspace) -> Result<Vec<String>> {
    let range = format!("{SINCE}..HEAD");
    let format = "--format=%x1e%h%x1f%s%x1f%b%x1f";
    let log = Command::new("git")
        .args(["log", "--no-merges", "--name-only", format, &range])
        .current_dir(&workspace.root)
        .output()
        .context("git cannot be run")?;
    // Sources without their history (a package, a shallow clone) have no commits to look at.
    if !log.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&log.stdout);
    Ok(commits(&text).flat_map(findings_of).collect())
}

fn commits(log: &str) -> impl Iterator<Item = Commit<'_>> {
    log.split('\u{1e}').filter_map(|entry| {
        let mut fields = entry.splitn(4, '\u{1f}');
        Some(Commit {
            id: fields.next()?,
            title: fields.next()?,
            body: fields.next()?.trim(),
            files: fields.next()?.split_whitespace().collect(),
        })
    })
}

fn findings_of(commit: Commit<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    let length = commit.title.chars().count();
    if length > TITLE_MAX {
        findings.push(format!(
            "commit {}: its title has {length} characters: {TITLE_MAX} at most",
            commit.id
        ));
    }
    let changes_programs = commit.files.iter().any(|file| is_of_a_program(file));
    if changes_programs && commit.body.is_empty() {
        findings.push(format!(
            "commit {} changes programs and has no body: say why",
            commit.id
        ));
    }
    findings
}

/// `crates/NAME/src` and `mpi/NAME/src`.
fn is_of_a_program(file: &str) -> bool {
    let mut parts = file.split('/');
    matches!(parts.next(), Some("crates" | "mpi")) && parts.nth(1) == Some("src")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(title: &str, body: &str, files: &str) -> usize {
        let log = format!("\u{1e}abc\u{1f}{title}\u{1f}{body}\n\u{1f}\n\n{files}\n");
        let mut commits = commits(&log);
        let commit = commits.next().expect("one");
        assert_eq!((commit.id, commit.title), ("abc", title));
        assert!(commits.next().is_none());
        findings_of(commit).len()
    }

    #[test]
    fn titles_are_short_and_changes_of_programs_say_why() {
        let source = "README.md\ncrates/whim/src/run.rs";
        assert_eq!(found("Do it", "Since it was not done.", source), 0);
        assert_eq!(found("Do it", "", source), 1);
        assert_eq!(found("Do it", "", "mpi/pipt/src/lib.rs"), 1);
        for other in ["README.md", "crates/whim/tests/cli.rs", "xtask/src/main.rs"] {
            assert_eq!(found("Do it", "", other), 0, "{other}");
        }
        assert_eq!(found(&"ä".repeat(TITLE_MAX), "", ""), 0);
        assert_eq!(found(&"ä".repeat(TITLE_MAX + 1), "", source), 2);
    }
}
