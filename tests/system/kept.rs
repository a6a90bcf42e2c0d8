//! What the kernel keeps for a process and its threads is the same wherever it computes, and when it is
//! home again: what was set before it left, and what it sets while it is away.

use std::io::Write;
use std::process::{Command, Stdio};

use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("kept::settings", 3, settings),
        Case::in_lab("kept::mappings", 3, mappings),
        Case::in_lab("kept::queues_of_signals", 3, queues),
    ]
}

/// What the program says to these lines where nobody moves it.
fn unmoved(program: &str, lines: &[&str]) -> Result<Vec<String>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    for line in lines {
        writeln!(input, "{line}")?;
    }
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout)?;
    Ok(said.lines().skip(1).map(str::to_owned).collect())
}

/// The program says the same at these places as where nobody moves it.
fn same(cluster: &Cluster, program: &str, steps: &[(&str, &str)]) -> Result<()> {
    let program = guest::c(program)?.display().to_string();
    let lines: Vec<&str> = steps.iter().map(|(_, line)| *line).collect();
    let expected = unmoved(&program, &lines)?;
    let command = &mut cluster.run_command("n1", &[program.as_str()]);
    let mut talk = Talk::start(cluster, command)?;
    let pid = talk.ready()?;
    let mut place = "n1";
    for ((node, line), expected) in steps.iter().zip(&expected) {
        if *node != place {
            cluster.move_to(pid, node)?;
            place = node;
        }
        talk.say(line)?;
        let said = talk.line()?;
        println!("{node}, {line}: {said}");
        ensure!(
            said == *expected,
            "On {node}, {line}:\n{said}\n instead of\n{expected}"
        );
    }
    talk.say("end")?;
    talk.succeed()
}

fn settings(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "set 2"),
        ("n2", "tell"),
        ("n3", "tell"),
        ("n3", "set 3"),
        ("n2", "tell"),
        ("home", "tell"),
        ("n3", "set 4"),
        ("home", "tell"),
    ];
    same(cluster, "kept", &steps)
}

/// What was said of mappings holds again when they have been elsewhere.
fn mappings(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "set 1"),
        ("n1", "map"),
        ("n2", "tell"),
        ("home", "map"),
        ("n2", "tell"),
        ("n3", "tell"),
        // To look at its mappings it comes home.
        ("n3", "map"),
    ];
    same(cluster, "kept", &steps)
}

/// A signal that waits for a thread alone waits for it elsewhere, too, in its place among the others.
fn queues(cluster: &Cluster) -> Result<()> {
    let places = ["n2", "n3", "home", "n3", "n2", "home"];
    same(cluster, "queues", &places.map(|place| (place, "take")))
}
