//! Checks of prose: the change log, links, and paths of one machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Beginnings of paths that exist on one machine only. Written in halves, so that this file does
/// not find itself.
const MACHINE_PATHS: &[&str] = &[concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// The headings of a release, as Keep a Changelog has them.
const KINDS: &[&str] = &[
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

/// No file names a path that only one machine has.
pub(super) fn machine_paths(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let checkout = format!("{}/", workspace.root.display());
    let mut beginnings = MACHINE_PATHS.to_vec();
    beginnings.push(&checkout);
    for path in workspace.files()? {
        let Some(text) = workspace.text(&path)? else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            if let Some(found) = beginnings.iter().find(|found| starts_path(line, found)) {
                findings.push(format!(
                    "{}:{}: {found} is a path of one machine",
                    path.display(),
                    index + 1
                ));
            }
        }
    }
    Ok(findings)
}

/// Whether a path beginning like this starts in the line; within a longer path it is harmless.
fn starts_path(line: &str, beginning: &str) -> bool {
    line.match_indices(beginning).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|character| {
            character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '}' | '/')
        })
    })
}

/// Every link between documents leads to a file.
pub(super) fn links(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in workspace.files()? {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = workspace.text(&path)?.unwrap_or_default();
        for (line, target) in local_links(&text) {
            let directory = path.parent().unwrap_or(Path::new(""));
            if !workspace.root.join(directory).join(&target).exists() {
                let target = target.display();
                findings.push(format!("{}:{line}: no file {target}", path.display()));
            }
        }
    }
    Ok(findings)
}

/// Line number (from 1) and file of each link that is neither outside nor within the document.
fn local_links(text: &str) -> Vec<(usize, PathBuf)> {
    let mut links = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for after in line.split("](").skip(1) {
            let target = after.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                links.push((index + 1, PathBuf::from(target)));
            }
        }
    }
    links
}

/// The change log is in the form of Keep a Changelog.
pub(super) fn changelog(workspace: &Workspace) -> Result<Vec<String>> {
    let path = Path::new("CHANGELOG.md");
    let text = workspace.text(path)?.context("CHANGELOG.md is not text")?;
    Ok(changelog_findings(&text))
}

fn changelog_findings(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if text.lines().next() != Some("# Changelog") {
        findings.push("CHANGELOG.md:1: begin with `# Changelog`".to_owned());
    }
    let mut releases = 0;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(release) = line.strip_prefix("## ") {
            releases += 1;
            let right = if releases == 1 {
                release == "[Unreleased]"
            } else {
                is_release(release)
            };
            if !right {
                findings.push(format!(
                    "CHANGELOG.md:{number}: `{release}`: write [Unreleased] first, \
                     then [1.2.3] - 2030-12-31"
                ));
            }
        } else if let Some(kind) = line.strip_prefix("### ")
            && (releases == 0 || !KINDS.contains(&kind))
        {
            findings.push(format!("CHANGELOG.md:{number}: `{kind}`: one of {KINDS:?}"));
        }
    }
    if releases == 0 {
        findings.push("CHANGELOG.md: add `## [Unreleased]`".to_owned());
    }
    findings
}

fn is_release(heading: &str) -> bool {
    let numbers = |text: &str, separator: char, count: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == count && parts.iter().all(|part| part.parse::<u32>().is_ok())
    };
    heading
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] - "))
        .is_some_and(|(version, date)| numbers(version, '.', 3) && numbers(date, '-', 3))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_right_changelog_has_no_findings() {
        let text =
            "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- a\n\n## [0.1.0] - 2030-01-31\n";
        assert_eq!(changelog_findings(text), Vec::<String>::new());
    }

    #[test]
    fn wrong_headings_are_named() {
        let text = "# Changes\n\n## [0.1.0] - 2030-01-31\n\n### New\n\n## 0.0.1\n";
        let findings = changelog_findings(text);
        assert_eq!(findings.len(), 4, "{findings:?}");
        assert!(findings[2].contains("New"));
        assert_eq!(changelog_findings("# Changelog\n").len(), 1);
    }

    #[test]
    fn only_links_to_files_are_followed() {
        let text = "[a](docs/a.md#part) [b](https://example.org/b)\n[c](#here) [d](../d.md)";
        let expected = [
            (1, PathBuf::from("docs/a.md")),
            (2, PathBuf::from("../d.md")),
        ];
        assert_eq!(local_links(text), expected);
    }

    #[test]
    fn a_path_of_one_machine_is_told_from_a_part_of_a_path() {
        let beginning = concat!("/ho", "me/");
        assert!(starts_path(&format!("see {beginning}someone"), beginning));
        assert!(!starts_path(&format!("crates{beginning}lib.rs"), beginning));
    }
}
