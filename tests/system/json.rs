//! What commands print with `--json` is what `docs/json.md` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use whim_system_tests::process;
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("json::as_documented", 2, as_documented),
        Case::in_lab("json::what_is_not_written_is_told", 1, not_written),
        Case::new("json::every_command_is_documented", |_| all_documented()),
    ]
}

/// What writes without end ends with its reader, and nothing succeeds whose output is lost.
fn not_written(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let shell = |script: &str| {
        let words = ["bash", "-c", script, &whim];
        process::output(&mut cluster.command("n1", &words), PATIENCE)
    };
    for words in ["top --json", "mon --json", "nodes --json", "help"] {
        let script = format!("set -o pipefail; \"$0\" {words} | head -1");
        let output = shell(&script).with_context(|| format!("whim {words}"))?;
        ensure!(output.status.success(), "{words}: {output:?}");
        ensure!(output.stdout.iter().filter(|byte| **byte == b'\n').count() == 1);
    }
    for words in [
        "ps",
        "nodes",
        "nodes --json",
        "log",
        "help",
        "token",
        "top --json",
        "ps --help",
    ] {
        // A log without a word has nothing to lose.
        if words == "log" {
            cluster.whim("n1", &["block"])?;
        }
        let output = shell(&format!("\"$0\" {words} > /dev/full"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && said.contains("No space left on device"),
            "{words}: {:?}, {said}",
            output.status
        );
    }
    Ok(())
}

type Names = BTreeMap<String, String>;

fn document() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    Ok(std::fs::read_to_string(path)?)
}

/// The tables of the document, by their headings.
fn tables() -> Result<BTreeMap<String, Names>> {
    let text = document()?;
    let mut tables = BTreeMap::new();
    for section in text.split("\n## ").skip(1) {
        let (heading, body) = section.split_once('\n').context("A heading has a body")?;
        let row = |line: &str| -> Option<(String, String)> {
            let mut cells = line.strip_prefix("| `")?.split('|');
            let name = cells.next()?.trim().trim_end_matches('`').to_owned();
            Some((name, cells.next()?.trim().to_owned()))
        };
        tables.insert(
            heading.trim().to_owned(),
            body.lines().filter_map(row).collect(),
        );
    }
    Ok(tables)
}

fn is_of(value: &Value, kind: &str) -> bool {
    kind.split(" or ").any(|one| match one {
        "number" => value.is_number(),
        "text" => value.is_string(),
        "truth" => value.is_boolean(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        "any" => true,
        _ => false,
    })
}

fn check(what: &str, object: &Value, names: &Names) -> Result<()> {
    let object = object
        .as_object()
        .with_context(|| format!("{what}: {object}"))?;
    let printed: BTreeSet<&String> = object.keys().collect();
    let documented: BTreeSet<&String> = names.keys().collect();
    ensure!(
        printed == documented,
        "{what}: {printed:?} is not {documented:?}"
    );
    for (name, kind) in names {
        let value = &object[name];
        ensure!(is_of(value, kind), "{what}: {name} is {value}, not {kind}");
    }
    Ok(())
}

fn check_lines(what: &str, text: &str, names: &Names) -> Result<()> {
    ensure!(!text.trim().is_empty(), "{what} says nothing");
    for line in text.lines() {
        check(what, &serde_json::from_str(line)?, names)?;
    }
    Ok(())
}

fn as_documented(cluster: &Cluster) -> Result<()> {
    let tables = tables()?;
    let table = |name: &str| tables.get(name).with_context(|| format!("No table {name}"));
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    let number = pid.to_string();
    // In this order: what the later ones say is of what the former ones did.
    let commands: [(&str, &[&str]); 16] = [
        ("whim ps", &["ps"]),
        ("whim migrate", &["migrate", &number, "n2"]),
        ("whim ps", &["ps", "--all"]),
        ("whim why", &["why", &number]),
        ("whim log", &["log"]),
        ("whim log", &["log", "--calls", &number]),
        ("whim nodes", &["nodes"]),
        ("whim web", &["web"]),
        ("whim doctor", &["doctor"]),
        ("whim top", &["top", "--once"]),
        ("whim top", &["mon", "--once"]),
        ("whim migrate", &["bring", &number]),
        ("whim config check", &["config", "check"]),
        ("whim tune", &["tune"]),
        ("whim tune", &["tune", "balance.fair", "true"]),
        ("whim history", &["history"]),
    ];
    for (name, words) in commands {
        let text = cluster.whim("n1", &[words, &["--json"]].concat())?;
        match name {
            "whim top" => check_feed(&text, &tables)?,
            "whim history" => check_history(&text, &tables)?,
            _ => check_lines(name, &text, table(name)?)?,
        }
    }
    let status = cluster.lab(&["status", "--json"])?;
    check_lines("whim lab status", &status, table("whim lab status")?)?;
    let list = process::succeed(
        Command::new(cluster.whim_path()).args(["lab", "list", "--json"]),
        PATIENCE,
    )?;
    check_lines("whim lab list", &list, table("whim lab list")?)?;
    talk.go()?;
    talk.succeed()
}

fn check_history(text: &str, tables: &BTreeMap<String, Names>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let mut row: Value = serde_json::from_str(line)?;
        let object = row.as_object_mut().context("A row is an object")?;
        let kind = object.remove("history").context("A row says what it is")?;
        let kind = format!("whim history {}", kind.as_str().context("In a word")?);
        let names = tables.get(&kind).with_context(|| format!("No {kind}"))?;
        check(&kind, &row, names)?;
        seen.insert(kind);
    }
    let expected = ["whim history move", "whim history sample"].map(str::to_owned);
    ensure!(seen == expected.into(), "The history has {seen:?}");
    Ok(())
}

fn check_feed(text: &str, tables: &BTreeMap<String, Names>) -> Result<()> {
    let kinds = tables.get("whim top").context("The feed is documented")?;
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let mut update: Value = serde_json::from_str(line)?;
        let object = update.as_object_mut().context("An update is an object")?;
        let kind = object
            .remove("update")
            .context("An update says what it is")?;
        let kind = kind.as_str().context("In a word")?.to_owned();
        let names = kinds.get(&kind).with_context(|| format!("No row {kind}"))?;
        match names.split_once("those of `") {
            Some((_, command)) => check(&kind, &update, &tables[command.trim_end_matches('`')])?,
            None => ensure!(names.contains("time_ms"), "{kind}: {names}"),
        }
        seen.insert(kind);
    }
    let expected = ["log", "node", "process", "tick"].map(str::to_owned);
    ensure!(seen == expected.into(), "The first batch has {seen:?}");
    Ok(())
}

/// Whoever takes `--json` stands in the document.
fn all_documented() -> Result<()> {
    let text = document()?;
    let whim = whim_system_tests::place::built()?.join("whim");
    let mut pending = vec![String::from("whim")];
    let mut found = 0;
    while let Some(name) = pending.pop() {
        let words: Vec<&str> = name.split(' ').skip(1).collect();
        let help = process::succeed(Command::new(&whim).args(words).arg("--help"), PATIENCE)?;
        if help.contains("--json") {
            found += 1;
            ensure!(text.contains(&name), "{name} is not in docs/json.md");
        }
        let Some((_, commands)) = help.split_once("Commands:\n") else {
            continue;
        };
        let lines = commands.lines().take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.split_whitespace().next());
        pending.extend(
            names
                .filter(|word| *word != "help")
                .map(|word| format!("{name} {word}")),
        );
    }
    ensure!(found >= 14, "Only {found} commands were found");
    Ok(())
}
