//! `whim run` on a node whose daemon is away: it was ended, is restarted, or is replaced by a newer one.

use std::process::Output;
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Result, Talk, ensure};

const SHORT: Duration = Duration::from_secs(30);
/// What is said once the daemon has been waited for.
const NOBODY: &str = "No daemon has answered for 0 s";
/// The interpreter itself: what some put before it is a script, which comes home to start processes.
const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("alone::a_program_runs_here_without_a_daemon", 1, runs_here),
        Case::in_lab("alone::what_would_not_hold_waits_for_a_daemon", 2, waits),
    ]
}

fn end_daemon(cluster: &Cluster) -> Result<()> {
    // It has noted by then how the node is called.
    eventually(SHORT, "the node's name is noted", || {
        let noted = cluster.run("n1", &["sh", "-c", "cat /run/whim/node || true"])?;
        Ok((noted == "n1").then_some(()))
    })?;
    let pid = cluster.daemon_pid("n1")?;
    cluster.run("n1", &["kill", "-KILL", &pid])?;
    eventually(SHORT, "the daemon is gone", || {
        Ok(cluster.daemon_pid("n1")?.is_empty().then_some(()))
    })
}

/// Runs a program by `whim --wait 0 run`, which nobody answers.
fn run(cluster: &Cluster, options: &[&str]) -> Result<Output> {
    let program = ["--", "sh", "-c", "echo it ran; exit 7"];
    let all = [&["--wait", "0", "run"], options, &program].concat();
    process::output(&mut cluster.whim_command("n1", &all), SHORT)
}

/// No job is lost: it runs where it was started, if that is all that was asked.
fn runs_here(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    for options in [
        &[][..],
        &["--on", "n1"],
        &["--pin", "--only", "n2,n1", "--avoid", "n3"],
        &["--portable", "--class", "batch"],
    ] {
        let output = run(cluster, options)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(7), "{options:?}: {output:?}");
        ensure!(output.stdout == b"it ran\n", "{options:?}: {output:?}");
        ensure!(said.contains(NOBODY), "{options:?}: {said}");
        ensure!(said.lines().count() == 1, "{options:?}: {said}");
    }
    let output = run(cluster, &["--strict"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125), "{output:?}");
    ensure!(output.stdout.is_empty(), "{output:?}");
    ensure!(said.contains("No daemon answers"), "{said}");
    // A daemon that comes back in time hears of the program as ever.
    let words = ["--wait", "60", "run", "--", PYTHON, "-c", WAITS];
    let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    cluster.lab(&["start", "--daemon", "n1"])?;
    let pid = talk.ready()?;
    ensure!(cluster.row(pid)?.is_some(), "It is not known");
    ensure!(talk.errors().is_empty(), "{}", talk.errors());
    Ok(())
}

/// What the daemon alone can see to is waited for, and holds.
fn waits(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    let waiting = |options: &[&str]| -> Result<Talk> {
        let program = ["--", PYTHON, "-c", WAITS];
        let all = [&["--wait", "0", "run"], options, &program].concat();
        let talk = Talk::start(cluster, &mut cluster.whim_command("n1", &all))?;
        let says = format!("without one {} would not hold", options.join(" "));
        eventually(SHORT, "it says that it waits", || {
            let said = talk.errors();
            Ok((said.contains(NOBODY) && said.contains(&says)).then_some(()))
        })?;
        Ok(talk)
    };
    let mut sent = waiting(&["--on", "n2"])?;
    let mut kept = waiting(&["--avoid", "n1,n2"])?;
    let mut bound = waiting(&["--only", "n2"])?;
    ensure!(sent.said.is_empty(), "It has begun");
    cluster.lab(&["start", "--daemon", "n1"])?;
    let pid = sent.ready()?;
    eventually(SHORT, "it is where it was to go", || {
        Ok((cluster.place(pid)? == "n2").then_some(()))
    })?;
    let pid = kept.ready()?.to_string();
    let refusal = cluster.refused("n1", &["migrate", &pid, "n2"])?;
    ensure!(refusal.contains("--avoid n2"), "{refusal}");
    let pid = bound.ready()?;
    cluster.move_to(pid, "n2")?;
    for talk in [&mut sent, &mut kept, &mut bound] {
        talk.go()?;
        talk.succeed()?;
        ensure!(talk.errors().lines().count() == 1, "{}", talk.errors());
    }
    Ok(())
}
