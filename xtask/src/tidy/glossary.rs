//! The words of the code: each names one thing, where the glossary says it is.

use std::path::Path;

use anyhow::{Context, Result};

use super::rooms::without_tests;
use crate::workspace::Workspace;

const DOCUMENT: &str = "ARCHITECTURE.md";
const TITLE: &str = "## Words of the code";

/// Every type of the glossary stands in its file, and no other type of the crates has its name.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn names_one_thing(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let words: Vec<(&str, &str)> = words(&text)
        .with_context(|| format!("{DOCUMENT} has no '{TITLE}'"))?
        .collect();
    let mut findings = Vec::new();
    let mut defined = Vec::new();
    for path in workspace.files()? {
        let is_source = path.starts_with("crates")
            && path.components().any(|part| part.as_os_str() == "src")
            && path.extension().is_some_and(|end| end == "rs");
        let Some(source) = workspace.text(&path)?.filter(|_| is_source) else {
            continue;
        };
        let own = types(&source);
        defined.extend(own.map(|name| (name.to_owned(), path.display().to_string())));
    }
    for (word, place) in &words {
        let places: Vec<&str> = defined
            .iter()
            .filter(|(name, _)| name == word)
            .map(|(_, place)| place.as_str())
            .collect();
        if places != [*place] {
            findings.push(format!(
                "{DOCUMENT}: '{word}' is to be one type, in {place}; it is defined in: {}",
                places.join(", ")
            ));
        }
    }
    if words.is_empty() {
        findings.push(format!("{DOCUMENT}: '{TITLE}' has no words"));
    }
    Ok(findings)
}

/// Words and their files: the first and the last column of the table below the title.
fn words(text: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let (_, below) = text.split_once(TITLE)?;
    let section = below.split("\n## ").next().unwrap_or_default();
    Some(section.lines().filter_map(|line| {
        let row = line.strip_prefix("| `")?.strip_suffix("` |")?;
        let (word, rest) = row.split_once('`')?;
        let (_, place) = rest.rsplit_once('`')?;
        Some((word, place))
    }))
}

/// Types that a source defines, but for those of its tests.
fn types(source: &str) -> impl Iterator<Item = &str> {
    without_tests(source).lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let mut word = words.next()?;
        if word.starts_with("pub") {
            word = words.find(|word| !word.ends_with(')') || word.starts_with("pub"))?;
        }
        if !matches!(word, "struct" | "enum" | "trait" | "type" | "union") {
            return None;
        }
        let name = words.next()?;
        let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        Some(end.map_or(name, |end| &name[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_first_column_and_files_the_last() {
        let text = format!(
            "x\n{TITLE}\n\n| word | meaning | where |\n|---|---|---|\n| `Cause` | why, see `x` | `a/b.rs` |\n\n## Next\n| `No` | | `c` |\n"
        );
        let found: Vec<_> = words(&text).expect("there").collect();
        assert_eq!(found, [("Cause", "a/b.rs")]);
        assert!(words("x").is_none());
    }

    #[test]
    fn types_of_tests_do_not_count() {
        let source = "pub(crate) struct One(u8);\nenum Two<T> {}\n    pub type Three = u8;\npub(in crate::a) trait Four {}\npub fn no() {}\n#[cfg(test)]\nmod tests {\n    struct Five;\n}\n";
        let found: Vec<_> = types(source).collect();
        assert_eq!(found, ["One", "Two", "Three", "Four"]);
    }
}
