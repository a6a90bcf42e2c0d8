//! The limits that `docs/limits.md` names: each constant is there with that value, each test is there.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::promises::{has_test, sources};
use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/limits.md";
const TESTED: &str = "| limit | value | where | at the edge | test |";
const UNTESTED: &str = "| limit | value | where | at the edge |";

/// A line of a table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    value: String,
    file: String,
    constant: String,
    /// None where the table has no such column.
    tests: Option<Vec<String>>,
}

/// Every constant has the value that the document tells, and every test is there.
pub(super) fn as_documented(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let (rows, mut findings) = rows(&text);
    let sources = sources(workspace)?;
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for row in &rows {
        let Row { line, file, .. } = row;
        if !files.contains_key(file) {
            let text = workspace.text(Path::new(file)).unwrap_or_default();
            files.insert(file.clone(), text.unwrap_or_default());
        }
        let at = |finding: String| format!("{DOCUMENT}:{line}: {finding}");
        match value_of(&files[file], &row.constant) {
            None => findings.push(at(format!("{file} has no constant {}", row.constant))),
            Some(value) if value != row.value => findings.push(at(format!(
                "{} is `{value}` in {file}, here it is `{}`",
                row.constant, row.value
            ))),
            Some(_) => {}
        }
        let Some(tests) = &row.tests else { continue };
        if tests.is_empty() {
            findings.push(at("this limit names no test".to_owned()));
        }
        for test in tests.iter().filter(|test| !has_test(&sources, test)) {
            findings.push(at(format!("there is no test `{test}`")));
        }
    }
    if rows.is_empty() {
        findings.push(format!("{DOCUMENT} lists no limit"));
    }
    Ok(findings)
}

/// What stands in code marks.
fn marked(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn rows(text: &str) -> (Vec<Row>, Vec<String>) {
    let (mut found, mut findings) = (Vec::new(), Vec::new());
    let mut columns = 0;
    for (index, line) in text.lines().enumerate() {
        if line == TESTED || line == UNTESTED {
            columns = line.matches(" | ").count() + 1;
            continue;
        }
        if !line.starts_with('|') {
            columns = 0;
        }
        if columns == 0 || line.starts_with("|--") {
            continue;
        }
        let inner = line.trim_start_matches("| ").trim_end_matches(" |");
        let cells: Vec<&str> = inner.split(" | ").collect();
        let named = cells.get(2).map(|cell| marked(cell)).unwrap_or_default();
        let value = cells
            .get(1)
            .and_then(|cell| marked(cell).into_iter().next());
        match (value, &named[..]) {
            (Some(value), [file, constant]) if cells.len() == columns => found.push(Row {
                line: index + 1,
                value,
                file: file.clone(),
                constant: constant.clone(),
                tests: cells.get(4).map(|cell| marked(cell)),
            }),
            _ => findings.push(format!(
                "{DOCUMENT}:{}: give `value` and `file` `CONSTANT`, in {columns} columns",
                index + 1
            )),
        }
    }
    (found, findings)
}

/// The expression that a constant stands for.
fn value_of(source: &str, constant: &str) -> Option<String> {
    let (_, rest) = source.split_once(&format!("const {constant}: "))?;
    let (_, rest) = rest.split_once(" = ")?;
    Some(rest.split_once(';')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let text = format!(
            "{TESTED}\n|---|\n| a | `1 << 4` bytes | `x.rs` `A_MAX` | no | `one`, `two` |\n\n\
             {UNTESTED}\n|---|\n| b | `2` | `y.rs` `B` | no |\n| c | 3 | `y.rs` | no |\n"
        );
        let (rows, findings) = rows(&text);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].line, rows[0].value.as_str()), (3, "1 << 4"));
        assert_eq!(rows[0].tests, Some(vec!["one".into(), "two".into()]));
        assert_eq!((rows[1].constant.as_str(), &rows[1].tests), ("B", &None));
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn constants_are_found_with_their_value() {
        let source = "pub const LONG_MAX: usize = 7;\nconst MAX: u64 = (1 << 20) + 4;\n";
        assert_eq!(value_of(source, "MAX").as_deref(), Some("(1 << 20) + 4"));
        assert_eq!(value_of(source, "LONG_MAX").as_deref(), Some("7"));
        assert_eq!(value_of(source, "MIN"), None);
    }
}
