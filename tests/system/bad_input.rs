//! What cannot be done is refused with a sentence and exit status 1, and harms nobody.

use std::process::Stdio;
use std::time::Duration;

use whim_system_tests::cluster::Moved;
use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Result, Running, Talk, ensure, guest};

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("bad_input::{name}"), 3, body)
    };
    vec![
        case("pids_and_nodes", pids_and_nodes),
        case("not_yours", not_yours),
        case("dead_node", dead_node),
        case("two_moves_at_once", two_at_once),
        case("where_it_is", where_it_is),
        case("wrong_use", wrong_use),
        case("run_reports_like_a_shell", run_reports),
        case("hosts_limits", host_limits),
        case("descriptor_limit", descriptor_limit),
        case("damaged_record_of_a_journey", damaged_journey),
    ]
}

pub(crate) fn counting(cluster: &Cluster) -> Result<(Talk, i32)> {
    let program = guest::c("patient")?.display().to_string();
    let mut guest = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &[program.as_str(), "counts"]),
    )?;
    let pid = guest.ready()?;
    Ok((guest, pid))
}

/// That the program goes on: what it appends grows, number by number.
pub(crate) fn goes_on(cluster: &Cluster, pid: i32) -> Result<()> {
    let path = format!("/proc/{pid}/cwd/place/log");
    let length = || -> Result<u64> {
        Ok(cluster
            .run("n1", &["stat", "-Lc", "%s", &path])?
            .trim()
            .parse()?)
    };
    let before = length()?;
    eventually(Duration::from_secs(10), "the program goes on", || {
        Ok((length()? > before).then_some(()))
    })?;
    let text = cluster.run("n1", &["cat", &path])?;
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    ensure!(
        numbers
            .iter()
            .zip(0..)
            .all(|(number, expected)| *number == expected),
        "Numbers are missing, or there twice"
    );
    Ok(())
}

fn pids_and_nodes(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    let pid_text = pid.to_string();
    for bad in ["999999", "2147483647"] {
        println!("{}", cluster.refused("n1", &["migrate", bad, "n2"])?);
        println!("{}", cluster.refused("n1", &["why", bad])?);
    }
    // A thread is no process; the first process is not ours to move.
    println!("{}", cluster.refused("n1", &["migrate", "1", "n2"])?);
    for bad in ["n9", "nowhere", "../n2", &"x".repeat(300)] {
        println!("{}", cluster.refused("n1", &["migrate", &pid_text, bad])?);
    }
    // Gone meanwhile.
    let mut short = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &["sh", "-c", "echo ready $$"]),
    )?;
    let gone = short.ready()?;
    short.succeed()?;
    println!(
        "{}",
        cluster.refused("n1", &["migrate", &gone.to_string(), "n2"])?
    );
    goes_on(cluster, pid)
}

fn not_yours(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    let whim = cluster.whim_path().display().to_string();
    let number = pid.to_string();
    for words in [
        vec!["migrate", number.as_str(), "n2"],
        vec!["adopt", number.as_str()],
        vec!["bring", "--hold", number.as_str()],
        vec!["remove", "n3"],
        vec!["token"],
    ] {
        let all: Vec<&str> = [whim.as_str()]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let output = process::output(
            &mut cluster.command_as("nobody", "n1", &all),
            Duration::from_secs(30),
        )?;
        let text = String::from_utf8_lossy(&output.stderr);
        println!("{words:?}: {}", text.trim());
        ensure!(
            output.status.code() == Some(1),
            "{words:?}: {}: {text}",
            output.status
        );
        ensure!(
            !text.trim().is_empty(),
            "{words:?} was refused without a reason"
        );
    }
    goes_on(cluster, pid)
}

fn dead_node(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    cluster.lab(&["kill", "n2"])?;
    println!(
        "{}",
        cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?
    );
    goes_on(cluster, pid)?;
    cluster.move_to(pid, "n3")?;
    println!(
        "{}",
        cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?
    );
    goes_on(cluster, pid)?;
    cluster.lab(&["start", "n2"])?;
    eventually(Duration::from_secs(30), "n2 takes guests again", || {
        Ok(matches!(cluster.migrate(pid, "n2")?, Moved::Done(_)).then_some(()))
    })?;
    goes_on(cluster, pid)
}

fn two_at_once(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    let number = pid.to_string();
    let mut refusals = 0;
    for round in 0..10 {
        let targets = if round % 2 == 0 {
            ["n2", "n3"]
        } else {
            ["home", "n2"]
        };
        let mut started = Vec::new();
        for target in targets {
            let mut command = cluster.whim_command("n1", &["migrate", &number, target]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            started.push(Running::spawn(&mut command)?);
        }
        for running in &mut started {
            let code = running.wait(Duration::from_secs(60))?.code();
            ensure!(matches!(code, Some(0 | 1)), "exit status {code:?}");
            refusals += u32::from(code == Some(1));
        }
        goes_on(cluster, pid)?;
        let row = cluster.row(pid)?;
        ensure!(
            row.as_ref()
                .is_some_and(|row| matches!(row.state.as_str(), "home" | "away")),
            "{row:?}"
        );
    }
    println!("{refusals} of 20 were refused");
    Ok(())
}

/// To move where it is already changes nothing, whatever the answer.
fn where_it_is(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    println!("{:?}", cluster.migrate(pid, "home")?);
    println!("{:?}", cluster.migrate(pid, "n1")?);
    cluster.move_to(pid, "n2")?;
    println!("{:?}", cluster.migrate(pid, "n2")?);
    goes_on(cluster, pid)?;
    let row = cluster.row(pid)?;
    ensure!(
        row.as_ref()
            .is_some_and(|row| row.place == "n2" && row.moves == 1),
        "{row:?}"
    );
    Ok(())
}

fn wrong_use(cluster: &Cluster) -> Result<()> {
    for words in [
        &["migrate"][..],
        &["migrate", "x", "n2"],
        &["migrate", "-5", "n2"],
        &["migrate", "0", "n2"],
        &["migrate", "99999999999", "n2"],
        &["unheard-of"],
        &["ps", "--unheard-of"],
        &["why"],
    ] {
        let output = process::output(
            &mut cluster.whim_command("n1", words),
            Duration::from_secs(30),
        )?;
        ensure!(
            output.status.code() == Some(2),
            "{words:?}: {}",
            output.status
        );
        ensure!(!output.stderr.is_empty(), "{words:?} is refused in silence");
    }
    Ok(())
}

fn run_reports(cluster: &Cluster) -> Result<()> {
    for (words, code) in [
        (&["sh", "-c", "exit 0"][..], 0),
        (&["sh", "-c", "exit 77"], 77),
        (&["/proc/nonexistent"], 127),
        (&["nonexistent-command"], 127),
        (&["/etc/passwd"], 126),
        (&["/"], 126),
    ] {
        let output = process::output(
            &mut cluster.run_command("n1", words),
            Duration::from_secs(30),
        )?;
        ensure!(
            output.status.code() == Some(code),
            "{words:?}: {}",
            output.status
        );
    }
    // A program that a signal ends is reported by the shell's number by whoever stands in for it.
    let words = ["sh", "-c", "kill -TERM $$"];
    let plain = process::output(&mut cluster.command("n1", &words), Duration::from_secs(30))?;
    let run = process::output(
        &mut cluster.run_command("n1", &words),
        Duration::from_secs(30),
    )?;
    ensure!(
        plain.status == run.status,
        "{} instead of {}",
        run.status,
        plain.status
    );
    Ok(())
}

/// A host without memory or processes to spare refuses; the program goes on where it was.
fn host_limits(cluster: &Cluster) -> Result<()> {
    let small = Cluster::up_with(2, &["--memory", "4G,96M"])?;
    let result = small.explaining(|| {
        let program = guest::c("patient")?.display().to_string();
        let words = [program.as_str(), "holds", "300"];
        let mut guest = Talk::start(&small, &mut small.run_command("n1", &words))?;
        let pid = guest.ready()?;
        println!(
            "{}",
            small.refused("n1", &["migrate", &pid.to_string(), "n2"])?
        );
        guest.go()?;
        ensure!(guest.ready()? == pid, "another pid");
        guest.go()?;
        guest.ready().map(drop)
    });
    drop(small);
    result?;
    let (_guest, pid) = counting(cluster)?;
    goes_on(cluster, pid)
}

/// A program that has used up its descriptors moves, if its limit can be raised for the moment, or
/// is refused; and it still has none to spare.
fn descriptor_limit(cluster: &Cluster) -> Result<()> {
    let script = "
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (20, int(sys.argv[1])))
kept = []
try:
    while True:
        kept.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error:
    first = error.errno
print('ready', os.getpid(), flush=True)
sys.stdin.readline()
try:
    os.open('/dev/null', os.O_RDONLY)
    print('one more', flush=True)
except OSError as error:
    print('still full', error.errno == first, resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
sys.stdin.readline()
";
    for (hard, expected) in [
        ("200", "still full True (20, 200)"),
        ("20", "still full True (20, 20)"),
    ] {
        let words = ["/usr/bin/python3", "-c", script, hard];
        let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
        let pid = guest.ready()?;
        let moved = cluster.migrate(pid, "n2")?;
        println!("hard limit {hard}: {moved:?}");
        ensure!(
            hard == "20" || matches!(moved, Moved::Done(_)),
            "hard limit {hard}: {moved:?}"
        );
        guest.go()?;
        let line = guest.line()?;
        ensure!(line == expected, "hard limit {hard}: {line}");
        if matches!(moved, Moved::Done(_)) {
            cluster.move_to(pid, "home")?;
        }
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}

/// A daemon that cannot read what was noted of a journey takes its program neither for one at home nor for one that
/// somebody debugs.
fn damaged_journey(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    cluster.move_to(pid, "n2")?;
    let daemon = cluster.daemon_pid("n1")?;
    cluster.run("n1", &["kill", "-KILL", &daemon])?;
    let script = format!("head -c 300 /dev/zero > /var/lib/whim/journeys/{pid}-*.json");
    cluster.run("n1", &["bash", "-c", &script])?;
    cluster.lab(&["start", "--daemon", "n1"])?;
    let number = pid.to_string();
    let lost = "the record of its journey is damaged";
    let why = cluster.whim("n1", &["why", &number])?;
    ensure!(why.contains(lost) && !why.contains("traced"), "{why}");
    let rows = cluster.whim("n1", &["ps"])?;
    ensure!(rows.contains(lost), "{rows}");
    for to in ["home", "n3"] {
        let refused = cluster.refused("n1", &["migrate", &number, to])?;
        ensure!(refused.contains(lost), "{to}: {refused}");
    }
    talk.go()?;
    talk.succeed()
}
