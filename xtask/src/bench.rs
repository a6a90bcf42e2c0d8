//! Measurements: runs the tests below a module `bench` and writes their tables into
//! `docs/benchmarks.md`.
//!
//! Each measurement appends one JSON object per line to the file that `WHIM_BENCH_FILE` names:
//! `section` (a table of the document), `case` (its row), `measure` (its column), `value`, `unit`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::system;
use crate::tally::Tally;
use crate::workspace::Workspace;

const DOCUMENT: &str = "docs/benchmarks.md";

/// Runs the measurements whose path contains the filter; true when all of them succeeded.
///
/// # Errors
/// When nothing can be built or the results cannot be written.
pub(crate) fn run(workspace: &Workspace, filter: &str) -> Result<bool> {
    let built = system::build(workspace, true)?;
    let results = workspace.output("bench.jsonl")?;
    fs::write(&results, "").with_context(|| format!("Could not write {}", results.display()))?;
    let mut tally = Tally::default();
    let variables = [("WHIM_BENCH_FILE", results.as_path())];
    for case in built
        .cases
        .iter()
        .filter(|case| case.is_bench() && case.name.contains(filter))
    {
        system::run_case(workspace, &built, case, &variables, &mut tally)?;
    }
    let records = parse(&fs::read_to_string(&results)?)?;
    if !records.is_empty() {
        let path = workspace.root.join(DOCUMENT);
        let document = fs::read_to_string(&path)
            .with_context(|| format!("Could not read {}", path.display()))?;
        fs::write(&path, fill(&document, &records, &machine())?)
            .with_context(|| format!("Could not write {}", path.display()))?;
        println!("Results are in {} and {DOCUMENT}", results.display());
    }
    tally.close(workspace)
}

/// One measured figure.
#[derive(Debug)]
struct Record {
    section: String,
    case: String,
    column: String,
    value: f64,
}

fn parse(text: &str) -> Result<Vec<Record>> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<Record> {
    let object: Value =
        serde_json::from_str(line).with_context(|| format!("A result is not JSON: {line}"))?;
    let text = |name: &str| -> Result<String> {
        let value = object[name].as_str();
        Ok(value
            .with_context(|| format!("A result has no '{name}': {line}"))?
            .to_owned())
    };
    let value = object["value"].as_f64();
    Ok(Record {
        section: text("section")?,
        case: text("case")?,
        column: format!("{} ({})", text("measure")?, text("unit")?),
        value: value.with_context(|| format!("A result has no 'value': {line}"))?,
    })
}

/// The document with the table of each measured section replaced. A section that was not measured
/// keeps what it has.
fn fill(document: &str, records: &[Record], machine: &str) -> Result<String> {
    let mut filled = document.to_owned();
    for section in distinct(records.iter().map(|record| record.section.as_str())) {
        let begin = format!("<!-- begin {section} -->");
        let end = format!("<!-- end {section} -->");
        let Some((before, rest)) = filled.split_once(&begin) else {
            bail!("{DOCUMENT} has no section between `{begin}` and `{end}`");
        };
        let Some((_, after)) = rest.split_once(&end) else {
            bail!("{DOCUMENT} has no `{end}` after `{begin}`");
        };
        let rows: Vec<&Record> = records
            .iter()
            .filter(|record| record.section == section)
            .collect();
        filled = format!("{before}{begin}\n{}\n{machine}\n{end}{after}", table(&rows));
    }
    Ok(filled)
}

fn table(records: &[&Record]) -> String {
    let columns = distinct(records.iter().map(|record| record.column.as_str()));
    let mut lines = vec![format!("| | {} |", columns.join(" | "))];
    lines.push(format!("|---|{}", "---|".repeat(columns.len())));
    for case in distinct(records.iter().map(|record| record.case.as_str())) {
        let cell = |column: &&str| {
            let found = records
                .iter()
                .rfind(|record| record.case == case && record.column == *column);
            found.map_or_else(String::new, |record| figure(record.value))
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        lines.push(format!("| {case} | {} |", cells.join(" | ")));
    }
    lines.join("\n") + "\n"
}

/// Three significant digits below 100, whole numbers above: more would be noise.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The distinct items in the order of their first appearance.
fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// One line that says what the figures were measured on.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = cpus
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "Measured {} at commit {} on {} x {}, Linux {}, load {} at the end.",
        said_by("date", &["--utc", "+%Y-%m-%d"]),
        said_by("git", &["rev-parse", "--short=12", "HEAD"]),
        models.len(),
        models.first().copied().unwrap_or("an unknown processor"),
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
    )
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod test {
    use super::*;

    const RESULTS: &str = r#"{"section":"freeze","case":"10 MB","measure":"median","unit":"ms","value":12.34}
{"section":"freeze","case":"10 MB","measure":"p95","unit":"ms","value":250.4}
{"section":"freeze","case":"1 GB","measure":"median","unit":"ms","value":0.5}"#;

    #[test]
    fn a_measured_section_is_replaced_and_the_rest_kept() {
        let document = "a\n<!-- begin freeze -->\nold\n<!-- end freeze -->\nb\n";
        let filled = fill(document, &parse(RESULTS).unwrap(), "Measured here.").unwrap();
        let expected = "a\n<!-- begin freeze -->\n| | median (ms) | p95 (ms) |\n|---|---|---|\n\
             | 10 MB | 12.3 | 250 |\n| 1 GB | 0.500 |  |\n\nMeasured here.\n\
             <!-- end freeze -->\nb\n";
        assert_eq!(filled, expected);
    }

    #[test]
    fn a_section_that_the_document_lacks_is_named() {
        let error = fill("", &parse(RESULTS).unwrap(), "")
            .unwrap_err()
            .to_string();
        assert!(error.contains("begin freeze"), "{error}");
    }

    #[test]
    fn a_result_without_a_value_is_refused() {
        let error = parse(r#"{"section":"s","case":"c","measure":"m","unit":"u"}"#).unwrap_err();
        assert!(error.to_string().contains("'value'"));
    }
}
