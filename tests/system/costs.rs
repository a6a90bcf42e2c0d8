//! What a program is spared: a tracer, a filter and a preload at home, its memory while away.

use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest, place};

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("costs::{name}"), 2, body)
    };
    vec![
        case("never_moved_is_untouched", never_moved),
        case("home_again_is_untouched", home_again),
        case("memory_is_released_while_away", memory_released),
        case("adopted_without_touch", adopted),
    ]
}

fn holder(cluster: &Cluster, megabytes: &str, may_move: bool) -> Result<(Talk, i32)> {
    let program = guest::c("patient")?.display().to_string();
    let words = [program.as_str(), "holds", megabytes];
    let mut command = if may_move {
        cluster.run_command("n1", &words)
    } else {
        cluster.command("n1", &words)
    };
    let mut guest = Talk::start(cluster, &mut command)?;
    let pid = guest.ready()?;
    Ok((guest, pid))
}

fn proc_file(cluster: &Cluster, pid: i32, name: &str) -> Result<String> {
    cluster.run("n1", &["cat", &format!("/proc/{pid}/{name}")])
}

/// The number in a line of /proc/PID/status.
fn field(status: &str, name: &str) -> Result<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok())
        .with_context(|| format!("No {name} in:\n{status}"))
}

fn untouched(cluster: &Cluster, pid: i32) -> Result<()> {
    let status = proc_file(cluster, pid, "status")?;
    ensure!(
        field(&status, "TracerPid")? == 0,
        "It has a tracer:\n{status}"
    );
    ensure!(
        field(&status, "Seccomp")? == 0,
        "It has a filter:\n{status}"
    );
    ensure!(
        field(&status, "NoNewPrivs")? == 0,
        "It may not gain privileges:\n{status}"
    );
    let maps = proc_file(cluster, pid, "maps")?;
    // The program's own file may lie in a directory of ours.
    let room = place::room()?.display().to_string();
    let mut others = maps.lines().filter(|line| !line.contains(&room));
    ensure!(
        !others.any(|line| line.contains("whim")),
        "Something of ours is mapped:\n{maps}"
    );
    let environment = proc_file(cluster, pid, "environ")?;
    ensure!(!environment.contains("LD_PRELOAD"), "It has a preload");
    Ok(())
}

/// The same mappings, descriptors and limits as without `whim run`, apart from addresses.
fn shape(cluster: &Cluster, pid: i32) -> Result<String> {
    let maps = proc_file(cluster, pid, "maps")?;
    let mut shape: String = maps
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!(
                "{} {}\n",
                words.get(1).unwrap_or(&""),
                words.get(5).unwrap_or(&"")
            )
        })
        .collect();
    shape += &cluster.run("n1", &["ls", &format!("/proc/{pid}/fd")])?;
    shape += &proc_file(cluster, pid, "limits")?;
    let status = proc_file(cluster, pid, "status")?;
    for name in [
        "Uid", "Gid", "Groups", "Threads", "SigBlk", "SigIgn", "SigCgt", "CapEff", "CapPrm",
    ] {
        shape += status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        shape.push('\n');
    }
    Ok(shape)
}

/// The lines that only one of two texts has.
fn difference(before: &str, after: &str) -> String {
    let only = |one: &str, other: &str, sign: char| -> String {
        one.lines()
            .filter(|line| !other.lines().any(|known| known == *line))
            .map(|line| format!("{sign} {line}\n"))
            .collect()
    };
    only(before, after, '-') + &only(after, before, '+')
}

fn never_moved(cluster: &Cluster) -> Result<()> {
    let (_plain, plain) = holder(cluster, "1", false)?;
    let (_guest, pid) = holder(cluster, "1", true)?;
    cluster.find("patient")?;
    untouched(cluster, pid)?;
    let (expected, found) = (shape(cluster, plain)?, shape(cluster, pid)?);
    ensure!(
        expected == found,
        "Plain:\n{expected}\nunder `whim run`:\n{found}"
    );
    Ok(())
}

/// After a round trip nothing is left on it either.
fn home_again(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holder(cluster, "4", true)?;
    let before = shape(cluster, pid)?;
    for _ in 0..3 {
        cluster.move_to(pid, "n2")?;
        guest.go()?;
        guest.ready()?;
        cluster.move_to(pid, "home")?;
    }
    untouched(cluster, pid)?;
    let after = shape(cluster, pid)?;
    ensure!(
        before == after,
        "After three round trips:\n{}",
        difference(&before, &after)
    );
    Ok(())
}

fn memory_released(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holder(cluster, "200", true)?;
    let resident = || field(&proc_file(cluster, pid, "status")?, "VmRSS");
    let before = resident()?;
    ensure!(before > 200 << 10, "It has only {before} kB");
    cluster.move_to(pid, "n2")?;
    let away = eventually(
        std::time::Duration::from_secs(10),
        "home's memory is released",
        || Ok(Some(resident()?).filter(|kilobytes| *kilobytes < 20 << 10)),
    )?;
    println!("resident at home: {before} kB before, {away} kB while away");
    let row = cluster.row(pid)?.context("no row")?;
    ensure!(
        row.command.contains("patient"),
        "`whim ps` has lost its command: {row:?}"
    );
    let line = proc_file(cluster, pid, "cmdline")?;
    ensure!(
        line.contains("patient\0holds") || line.contains("holds"),
        "/proc shows '{line}'"
    );
    guest.go()?;
    guest.ready()?;
    cluster.move_to(pid, "home")?;
    let back = resident()?;
    ensure!(back > 200 << 10, "After its return it has only {back} kB");
    guest.go()?;
    guest.ready().map(drop)
}

/// A program that was started without us, and before the daemon, is taken into care and moves.
fn adopted(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holder(cluster, "2", false)?;
    cluster.restart_daemon("n1")?;
    ensure!(
        pid < cluster.daemon_pid("n1")?.parse()?,
        "The daemon is older"
    );
    cluster.whim("n1", &["adopt", &pid.to_string()])?;
    untouched(cluster, pid)?;
    eventually(Duration::from_secs(30), "a move after the restart", || {
        Ok(cluster.move_to(pid, "n2").is_ok().then_some(()))
    })?;
    guest.go()?;
    guest.ready()?;
    cluster.move_to(pid, "home")?;
    untouched(cluster, pid)?;
    guest.go()?;
    guest.ready().map(drop)
}
