//! The rooms of the daemon: a room uses those below it, and none above.

use std::path::{Component, Path};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

const DOCUMENT: &str = "ARCHITECTURE.md";
const TITLE: &str = "## The rooms of the daemon";
const SOURCES: &str = "crates/whimd/src";

/// No file of a room names a room that stands above its own in the table, tests aside.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn use_what_is_below(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let rooms =
        names_in_table(&text, TITLE).with_context(|| format!("{DOCUMENT} has no '{TITLE}'"))?;
    let mut findings = Vec::new();
    let mut found = vec![false; rooms.len()];
    for path in workspace.files()? {
        let Some(place) = path.strip_prefix(SOURCES).ok().and_then(|inner| {
            let room = room(inner)?;
            rooms.iter().position(|name| *name == room)
        }) else {
            continue;
        };
        let Some(source) = workspace.text(&path)? else {
            continue;
        };
        found[place] = true;
        for (above, line) in named(&source, &rooms[..place]) {
            findings.push(format!(
                "{}:{line}: '{}' uses '{above}', which stands above it in {DOCUMENT}: move what it needs down, or the file up",
                path.display(),
                rooms[place]
            ));
        }
    }
    let missing = rooms.iter().zip(&found).filter(|(_, found)| !**found);
    findings.extend(missing.map(|(room, _)| format!("{DOCUMENT}: there is no room '{room}'")));
    Ok(findings)
}

/// The names in the first column of the table below this title, in its order.
pub(super) fn names_in_table<'a>(text: &'a str, title: &str) -> Option<Vec<&'a str>> {
    let (_, below) = text.split_once(title)?;
    let section = below.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("| `")?.split_once("` |")?;
        Some(name)
    });
    Some(rows.collect())
}

/// The room in which a file of the daemon stands: its directory, or itself.
fn room(inner: &Path) -> Option<&str> {
    let Some(Component::Normal(first)) = inner.components().next() else {
        return None;
    };
    let first = first.to_str()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// A source without its tests. (Tests in a file of their own are named at its beginning, where nothing ends.)
pub(super) fn without_tests(source: &str) -> &str {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default()
}

/// The lines of a source outside of its tests, each without its comment.
pub(super) fn code_lines(source: &str) -> impl Iterator<Item = &str> {
    let lines = without_tests(source).lines();
    lines.map(|line| line.split("//").next().unwrap_or_default())
}

/// Which of these rooms a source names, and in which line for the first time.
fn named<'a>(source: &str, rooms: &[&'a str]) -> Vec<(&'a str, usize)> {
    let first = |room: &&'a str| {
        let path = format!("crate::{room}");
        let names = |code: &str| {
            code.match_indices(&path).any(|(at, _)| {
                let next = code[at + path.len()..].chars().next();
                !next.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
            })
        };
        let line = code_lines(source).position(names)?;
        Some((*room, line + 1))
    };
    rooms.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_stand_in_the_order_of_the_table() {
        let text = format!(
            "x\n{TITLE}\n\n| room | in it |\n|---|---|\n| `a` | x `y` |\n| `b` | |\n\n## Next\n| `c` | |\n"
        );
        assert_eq!(names_in_table(&text, TITLE).expect("there"), ["a", "b"]);
        assert_eq!(room(Path::new("a/b.rs")), Some("a"));
        assert_eq!(room(Path::new("a.rs")), Some("a"));
    }

    #[test]
    fn only_code_outside_of_tests_names_a_room() {
        let source = "#[cfg(test)]\nmod tests;\nuse crate::b;\n// crate::a\nuse crate::ab::c;\nfn x() { crate::a::y() }\n#[cfg(test)]\nmod tests {\nuse crate::d;\n}\n";
        assert_eq!(named(source, &["a", "b", "d"]), [("a", 6), ("b", 3)]);
    }
}
