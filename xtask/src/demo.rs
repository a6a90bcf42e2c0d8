//! The demonstration: an ordinary shell computes, leaves its node in the middle of its work, goes on
//! at two others and comes home; then its output is compared with that of an unmoved run.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::workspace::Workspace;

/// Name of the lab; the next `lab up` cleans up after a demonstration that was interrupted.
const LAB: &str = "demo";
/// A program for bash, which prints its pid, its host's name, a counter and what it has computed.
const PROGRAM: &str = include_str!("demo.sh");
/// After which lines it moves, and where to.
const MOVES: &[(usize, &str)] = &[(8, "n2"), (16, "n3"), (24, "home")];

/// Runs the demonstration with the programs of the development build.
///
/// # Errors
/// What went wrong, in one sentence; the lab is gone in any case.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let whim = Whim {
        program: workspace.target.join("debug/whim").display().to_string(),
    };
    println!("A lab of three nodes on this machine: n1, n2, n3");
    whim.run(&["lab", "up", "--name", LAB, "--nodes", "3"])?;
    let shown = show(&whim);
    let down = whim.run(&["lab", "down", "--name", LAB]);
    shown?;
    down.map(|_| ())
}

fn show(whim: &Whim) -> Result<()> {
    println!("The program runs on n1 without Whimbrel, to compare with later");
    let unmoved = whim.on_n1(&["bash", "-c", PROGRAM])?;
    println!("Now it runs under `whim run`, and moves while it runs");
    let moved = moved_run(whim)?;
    let unmoved = without_pids(&unmoved);
    ensure!(
        without_pids(&moved) == unmoved,
        "The output differs from the unmoved run:\n{moved}\ninstead of\n{unmoved}"
    );
    println!(
        "All {} lines are equal to the unmoved run's",
        unmoved.lines().count()
    );
    Ok(())
}

/// Runs the program and moves it; its output.
fn moved_run(whim: &Whim) -> Result<String> {
    let mut child = whim.start_on_n1(&["whim", "run", "--", "bash", "-c", PROGRAM])?;
    let ran = follow(whim, &mut child);
    if ran.is_err() {
        // Its lab goes down in a moment; what it says about that helps nobody.
        let _ = child.kill();
    }
    let status = child.wait().context("Could not wait for the program")?;
    let output = ran?;
    ensure!(status.success(), "The program ended with {status}");
    Ok(output)
}

fn follow(whim: &Whim, child: &mut Child) -> Result<String> {
    let stdout = child.stdout.take().context("The program has no output")?;
    let mut output = String::new();
    let mut first_pid = None;
    let mut moving: Option<JoinHandle<Result<()>>> = None;
    for (index, line) in BufReader::new(stdout).lines().enumerate() {
        let line = line.context("Could not read what the program prints")?;
        let (pid, name) = parse(&line)?;
        ensure!(
            name == "n1",
            "The program believes that it is on {name}, and not at home"
        );
        ensure!(
            *first_pid.get_or_insert(pid) == pid,
            "The program's pid has changed to {pid}"
        );
        println!("  {line:<48} computed on {}", whim.place_of(pid)?);
        output.push_str(&line);
        output.push('\n');
        if let Some((_, node)) = MOVES.iter().find(|(after, _)| *after == index + 1) {
            finish(moving.take())?;
            moving = Some(whim.migrate(pid, node));
        }
    }
    finish(moving)?;
    Ok(output)
}

fn finish(moving: Option<JoinHandle<Result<()>>>) -> Result<()> {
    match moving.map(JoinHandle::join) {
        None => Ok(()),
        Some(Ok(result)) => result,
        Some(Err(_)) => bail!("The thread that moved the program has failed"),
    }
}

/// The pid and the host's name in one line of the program.
fn parse(line: &str) -> Result<(u32, &str)> {
    let parsed = line
        .strip_prefix("pid ")
        .and_then(|rest| rest.split_once(": "))
        .and_then(|(head, _)| head.split_once(" on "))
        .and_then(|(pid, name)| Some((pid.parse().ok()?, name)));
    parsed.with_context(|| format!("The program printed a line that it should not: {line}"))
}

/// The output with the one thing left out that differs between any two runs.
fn without_pids(output: &str) -> String {
    let line = |line: &str| {
        line.split_once(" on ")
            .map_or(line, |(_, rest)| rest)
            .to_owned()
            + "\n"
    };
    output.lines().map(line).collect()
}

#[derive(Clone)]
struct Whim {
    program: String,
}

impl Whim {
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("Could not run {}", self.program))?;
        ensure!(
            output.status.success(),
            "`whim {}` failed",
            arguments[..2].join(" ")
        );
        String::from_utf8(output.stdout).context("A program printed something that is not text")
    }

    /// The arguments of `whim` that run a command on n1. The word `whim` there stands for ours.
    fn exec<'a>(&'a self, command: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["lab", "exec", "--name", LAB, "n1", "--"];
        let ours = |word: &&'a str| {
            if *word == "whim" {
                self.program.as_str()
            } else {
                *word
            }
        };
        arguments.extend(command.iter().map(ours));
        arguments
    }

    fn on_n1(&self, command: &[&str]) -> Result<String> {
        self.run(&self.exec(command))
    }

    fn start_on_n1(&self, command: &[&str]) -> Result<Child> {
        Command::new(&self.program)
            .args(self.exec(command))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("Could not run {}", self.program))
    }

    /// The node that computes this process, as `whim ps` says. A line that the program printed
    /// while it moved may show either node.
    fn place_of(&self, pid: u32) -> Result<String> {
        let listing = self.on_n1(&["whim", "ps", "--json"])?;
        let rows = listing
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let row = rows.into_iter().find(|row| row["pid"] == pid);
        // After its last line the program may have ended already: then it ended at home.
        let place = row.as_ref().and_then(|row| row["where"].as_str());
        Ok(place.unwrap_or("n1").to_owned())
    }

    /// Moves the process from a thread of its own, so that its lines go on to be shown.
    fn migrate(&self, pid: u32, node: &'static str) -> JoinHandle<Result<()>> {
        let whim = self.clone();
        thread::spawn(move || {
            let report = whim.on_n1(&["whim", "migrate", "--json", &pid.to_string(), node])?;
            let freeze = freeze_ms(&report)
                .with_context(|| format!("`whim migrate` did not tell the freeze: {report}"))?;
            println!("  --- moved to {node}: frozen for {freeze:.1} ms");
            Ok(())
        })
    }
}

/// The last `freeze_ms` in lines of JSON, at any depth.
fn freeze_ms(report: &str) -> Option<f64> {
    fn find(value: &Value) -> Option<f64> {
        match value {
            Value::Object(object) => object
                .get("freeze_ms")
                .and_then(Value::as_f64)
                .or_else(|| object.values().find_map(find)),
            Value::Array(items) => items.iter().find_map(find),
            _ => None,
        }
    }
    report
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find_map(|v| find(&v))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_program_prints_what_is_expected_of_it() {
        let program = PROGRAM.replace("60000", "2").replace("32", "2");
        let output = Command::new("bash")
            .args(["-c", &program])
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.len(), 2, "{output}");
        let (pid, name) = parse(lines[0]).unwrap();
        assert!(pid > 0 && !name.is_empty());
        assert!(!without_pids(&output).contains("pid"));
        assert!(without_pids(&output).contains(": step 2, value "));
    }

    #[test]
    fn the_freeze_is_found_in_lines_of_json() {
        let report = "{\"event\":\"phase\"}\n{\"event\":\"done\",\"report\":{\"freeze_ms\":4.5}}\n";
        assert_eq!(freeze_ms(report), Some(4.5));
        assert_eq!(freeze_ms("not JSON"), None);
    }

    #[test]
    fn a_strange_line_is_refused() {
        assert!(parse("bash: out of memory").is_err());
        assert_eq!(parse("pid 7 on n1: step 1, value 2").unwrap(), (7, "n1"));
    }
}
