//! `whim run` on a node whose daemon is away: it was ended, is restarted, or is replaced by a newer one.

use std::process::Output;
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Result, Talk, ensure};

const SHORT: Duration = Duration::from_secs(30);
/// What is said once the daemon has been waited for.
const NOBODY: &str = "No daemon has answered for 0 s";
/// The interpreter itself: what some put before it is a script, which comes home to start processes.
const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("alone::a_program_runs_here_without_a_daemon", 1, runs_here),
        Case::in_lab("alone::what_cannot_be_said_loses_nothing", 1, unsaid),
        Case::in_lab("alone::what_would_not_hold_waits_for_a_daemon", 2, waits),
        Case::in_lab("alone::what_began_meanwhile_stays", 2, began_meanwhile),
        Case::in_lab("alone::what_holds_holds_for_ever", 2, holds),
        Case::in_lab("alone::what_holds_holds_for_what_it_starts", 2, nested),
        Case::in_lab("alone::a_terminal_that_lets_none_write", 1, not_stopped),
        Case::in_lab("alone::a_daemon_that_says_nothing_is_none", 1, says_nothing),
        Case::in_lab("alone::a_daemon_that_dies_is_waited_for", 1, dies),
        Case::in_lab(
            "alone::a_daemon_without_room_is_asked_again",
            1,
            without_room,
        ),
    ]
}

fn end_daemon(cluster: &Cluster) -> Result<()> {
    // It has noted by then how the node is called.
    eventually(SHORT, "the node's name is noted", || {
        let noted = cluster.run("n1", &["sh", "-c", "cat /run/whim/node || true"])?;
        Ok((noted == "n1").then_some(()))
    })?;
    cluster.written_down("n1")?;
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
    // As most people start it: who has said nothing about waiting waits for a restart.
    let words = ["run", "--", "echo", "it ran"];
    let output = process::output(&mut cluster.whim_command("n1", &words), SHORT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.stdout == b"it ran\n", "{output:?}");
    ensure!(said.contains("answered for 5 s"), "{said}");
    let output = run(cluster, &["--strict"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(125), "{output:?}");
    ensure!(output.stdout.is_empty(), "{output:?}");
    let starts = "--daemon n1' starts it again";
    ensure!(said.contains(starts), "{said}");
    // A daemon that comes back in time hears of the program as ever.
    let words = ["--wait", "60", "run", "--", PYTHON, "-c", WAITS];
    let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    cluster.lab(&["start", "--daemon", "n1"])?;
    let pid = talk.ready()?;
    ensure!(cluster.row(pid)?.is_some(), "It is not known");
    ensure!(talk.errors().is_empty(), "{}", talk.errors());
    Ok(())
}

/// A program runs, too, where nobody can be told that it does so alone, and where its limits are narrow.
fn unsaid(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    // Each before the words of the command, and behind them.
    for (before, behind) in [
        ("", "2>/dev/full"),
        ("", "2>&-"),
        // The reader ends at once, before there is anything to read.
        (
            "mkfifo /tmp/gone; exec 3<>/tmp/gone 4>/tmp/gone 3<&-;",
            "2>&4",
        ),
        // It is read by nobody, and has no room.
        (
            "mkfifo /tmp/full; exec 5<>/tmp/full; head -c 65536 /dev/zero >&5;",
            "2>&5",
        ),
        ("ulimit -f 0;", "2>/tmp/said"),
        ("ulimit -s 64;", ""),
        ("ulimit -s 96;", ""),
    ] {
        let whim = cluster.whim_path().display().to_string();
        let script =
            format!("{before} exec \"$0\" --wait 0 run -- sh -c 'echo it ran; exit 7' {behind}");
        let mut command = cluster.command("n1", &["bash", "-c", &script, &whim]);
        let output = process::output(&mut command, SHORT)?;
        ensure!(output.status.code() == Some(7), "{script}: {output:?}");
        ensure!(output.stdout == b"it ran\n", "{script}: {output:?}");
    }
    Ok(())
}

/// One that is there, and has taken the connection, or may take it yet.
fn says_nothing(cluster: &Cluster) -> Result<()> {
    let pid = cluster.daemon_pid("n1")?;
    cluster.run("n1", &["kill", "-STOP", &pid])?;
    let silent = "The daemon is there and has not answered for 1 s";
    let program = ["--", PYTHON, "-c", WAITS];
    let start = |options: &[&str]| {
        let all = [&["--wait", "1", "run"], options, &program].concat();
        Talk::start(cluster, &mut cluster.whim_command("n1", &all))
    };
    let mut alone = start(&[])?;
    alone.ready()?;
    let said = alone.errors();
    ensure!(said.contains(silent) && said.lines().count() == 1, "{said}");
    // It may have noted that this one does without some features of the CPU.
    let mut portable = start(&["--portable"])?;
    eventually(SHORT, "it says that it waits", || {
        let said = portable.errors();
        let waits = said.contains(silent) && said.contains("--portable would not hold");
        Ok(waits.then_some(()))
    })?;
    ensure!(portable.said.is_empty(), "It has begun");
    cluster.run("n1", &["kill", "-CONT", &pid])?;
    let pid = portable.ready()?;
    ensure!(cluster.row(pid)?.is_some(), "It is not known");
    for talk in [&mut alone, &mut portable] {
        talk.go()?;
        talk.succeed()?;
    }
    Ok(())
}

/// Its end is met by a program that it has been told of, and has not answered.
fn dies(cluster: &Cluster) -> Result<()> {
    let pid = cluster.daemon_pid("n1")?;
    cluster.run("n1", &["kill", "-STOP", &pid])?;
    let connections = || cluster.run("n1", &["grep", "--count", "control.sock", "/proc/net/unix"]);
    let before = connections()?;
    let words = ["--wait", "60", "run", "--", PYTHON, "-c", WAITS];
    let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    eventually(SHORT, "it waits for an answer", || {
        Ok((connections()? != before).then_some(()))
    })?;
    cluster.run("n1", &["kill", "-KILL", &pid])?;
    eventually(SHORT, "the daemon is gone", || {
        Ok(cluster.daemon_pid("n1")?.is_empty().then_some(()))
    })?;
    cluster.lab(&["start", "--daemon", "n1"])?;
    let pid = talk.ready()?;
    ensure!(cluster.row(pid)?.is_some(), "It is not known");
    ensure!(talk.errors().is_empty(), "{}", talk.errors());
    talk.go()?;
    talk.succeed()
}

/// What the daemon alone can see to is waited for, and holds.
fn waits(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    let words = [
        "--wait", "0", "run", "--on", "n2", "--", PYTHON, "-c", WAITS,
    ];
    let mut sent = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    eventually(SHORT, "it says that it waits", || {
        let said = sent.errors();
        Ok((said.contains(NOBODY) && said.contains("--on n2 would not hold")).then_some(()))
    })?;
    ensure!(sent.said.is_empty(), "It has begun");
    for options in [["--on", ""], ["--avoid", "N1"], ["--only", "n1,@"]] {
        let refused = run(cluster, &options)?;
        let why = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            refused.status.code() == Some(125) && why.contains("can be called"),
            "{options:?}: {why}"
        );
    }
    cluster.lab(&["start", "--daemon", "n1"])?;
    let pid = sent.ready()?;
    eventually(SHORT, "it is where it was to go", || {
        Ok((cluster.place(pid)? == "n2").then_some(()))
    })?;
    sent.go()?;
    sent.succeed()?;
    ensure!(sent.errors().lines().count() == 1, "{}", sent.errors());
    Ok(())
}

/// Starts what its input names, and says so.
const STARTS: &str = "import os, subprocess, sys
print('ready', os.getpid(), flush=True)
for line in sys.stdin:
    subprocess.Popen(line, shell=True, stdin=subprocess.DEVNULL)";

/// The program that starts it may go anywhere, but this one may not: nobody has told the next daemon.
fn began_meanwhile(cluster: &Cluster) -> Result<()> {
    let words = ["run", "--", PYTHON, "-c", STARTS];
    let mut outer = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    let outer_pid = outer.ready()?;
    end_daemon(cluster)?;
    let whim = cluster.whim_path().display().to_string();
    let sleeps = "sh -c 'echo inner $$; exec sleep 600'";
    outer.say(&format!("exec {whim} --wait 0 run --pin -- {sleeps}"))?;
    let inner: i32 = outer.until("inner ")?.parse()?;
    cluster.start_daemon("n1")?;
    ensure!(cluster.row(outer_pid)?.is_some(), "The outer one is lost");
    outer.say(&format!("exec {sleeps}"))?;
    let later: i32 = outer.until("inner ")?.parse()?;
    eventually(SHORT, "what begins now is taken up", || cluster.row(later))?;
    ensure!(
        cluster.row(inner)?.is_none(),
        "It is taken up without --pin"
    );
    let why = cluster.whim("n1", &["why", &inner.to_string()])?;
    ensure!(why.contains("while no daemon was here"), "{why}");
    for pid in [inner, later] {
        cluster.run("n1", &["kill", &pid.to_string()])?;
    }
    Ok(())
}

/// A daemon that hears later of a program goes by what it was started with, whoever asks.
fn holds(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    let mut programs = Vec::new();
    for options in [
        &["--pin"][..],
        &["--only", "n1"],
        &["--avoid", "n2"],
        &["--avoid", "n1,n2"],
    ] {
        let program = ["--", PYTHON, "-c", WAITS];
        let words = [&["--wait", "0", "run"], options, &program].concat();
        let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
        programs.push((options.join(" "), talk.ready()?.to_string(), talk));
    }
    cluster.start_daemon("n1")?;
    crate::orders::knows(cluster, "n2", "state", &"up".into())?;
    for (options, pid, talk) in &mut programs {
        let rule = match options.as_str() {
            "--avoid n1,n2" => "It was started with 'whim run --avoid n2'".to_owned(),
            options => format!("It was started with 'whim run {options}'"),
        };
        let refused = cluster.refused("n1", &["migrate", pid, "n2"])?;
        ensure!(refused.contains(&rule), "{options}: {refused}");
        cluster.refused("n1", &["migrate", pid, "best"])?;
        cluster.whim("n1", &["adopt", pid])?;
        let refused = cluster.refused("n1", &["migrate", pid, "n2"])?;
        ensure!(refused.contains(&rule), "{options}: {refused}");
        talk.go()?;
        talk.succeed()?;
    }
    Ok(())
}

/// `whim run` of a `whim run`, each with its options, as words.
fn within<'a>(whim: &'a str, outer: &[&'a str], inner: &[&'a str]) -> Vec<&'a str> {
    let again = ["--", whim, "--wait", "0", "run"];
    [&["--wait", "0", "run"], outer, &again, inner].concat()
}

/// A program of a program that has rules: both's hold, whether a daemon hears of it or not.
fn nested(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let program = ["--", PYTHON, "-c", WAITS];
    for has_daemon in [true, false] {
        let clash = within(&whim, &["--only", "n1"], &["--only", "n2", "--", "true"]);
        let output = process::output(&mut cluster.whim_command("n1", &clash), SHORT)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(125) && said.contains("--only n2 cannot hold"),
            "{said}"
        );
        let mut talks = Vec::new();
        for (outer, inner) in [
            (&["--pin"][..], &[][..]),
            (&["--avoid", "n2"], &["--only", "n1"]),
        ] {
            let words = within(&whim, outer, &[inner, &program].concat());
            let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
            talks.push((outer.join(" "), talk.ready()?.to_string(), talk));
        }
        if !has_daemon {
            cluster.start_daemon("n1")?;
            cluster.await_all_up("n1", SHORT)?;
            for (_, pid, _) in &talks {
                cluster.whim("n1", &["adopt", pid])?;
            }
        }
        for (outer, pid, talk) in &mut talks {
            let refused = cluster.refused("n1", &["migrate", pid, "n2"])?;
            ensure!(
                refused.contains(&format!("run {outer}")),
                "{outer}: {refused}"
            );
            talk.go()?;
            talk.succeed()?;
        }
        if has_daemon {
            end_daemon(cluster)?;
        }
    }
    Ok(())
}

/// A job in the background of a terminal that lets such ones not write would be stopped by what nobody reads.
fn not_stopped(cluster: &Cluster) -> Result<()> {
    end_daemon(cluster)?;
    let whim = cluster.whim_path().display().to_string();
    let script =
        "stty tostop; set -m; \"$0\" --wait 0 run -- sh -c 'exit 7' & wait $!; echo status $?";
    let command = cluster.command("n1", &["bash", "-c", script, &whim]);
    let mut terminal = Terminal::start(&command)?;
    terminal.wait_for("status 7")?;
    Ok(())
}

/// Has as many connections as one user may have, until it is told to go.
const CONNECTS: &str = "import os, socket, sys
kept = []
for _ in range(128):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].connect('/run/whim/control.sock')
    # By its answer the daemon has counted it.
    kept[-1].sendall(b'{\"request\":\"nodes\"}\\n')
    kept[-1].recv(1)
print('ready', os.getpid(), flush=True)
sys.stdin.readline()";

/// It is as if it were not there: no job is lost.
fn without_room(cluster: &Cluster) -> Result<()> {
    let start =
        |words: &[&str]| Talk::start(cluster, &mut cluster.command_as("nobody", "n1", words));
    let mut others = start(&[PYTHON, "-c", CONNECTS])?;
    others.ready()?;
    let whim = cluster.whim_path().display().to_string();
    let run = |options: &[&str]| {
        let words = [
            &[whim.as_str(), "--wait", "0", "run"],
            options,
            &["sh", "-c", "echo it ran"],
        ];
        let mut command = cluster.command_as("nobody", "n1", &words.concat());
        process::output(&mut command, SHORT)
    };
    let output = run(&[])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.stdout == b"it ran\n", "{output:?}");
    ensure!(said.contains("connections to the daemon already"), "{said}");
    ensure!(said.contains("the program runs here"), "{said}");
    let output = run(&["--strict"])?;
    ensure!(output.status.code() == Some(125), "{output:?}");
    let mut talk = start(&[&whim, "--wait", "60", "run", "--", PYTHON, "-c", WAITS])?;
    others.go()?;
    let pid = talk.ready()?;
    ensure!(cluster.row(pid)?.is_some(), "It is not known");
    ensure!(talk.errors().is_empty(), "{}", talk.errors());
    Ok(())
}
