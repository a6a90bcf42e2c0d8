//! What a node remembers: moves and minutes, through the death of its daemon, a damaged file and a full disk.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure};

const PATIENCE: Duration = Duration::from_secs(60);
/// A minute ends within this time, and is written.
const A_MINUTE: Duration = Duration::from_secs(90);
const STATE: &str = "/var/lib/whim";
/// What must be seen by nobody but its user.
const SECRET: &str = "token-0f42b";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("history::of_moves", 2, of_moves),
        Case::in_lab("history::home_by_itself", 2, home_by_itself),
        Case::in_lab("history::off", 2, off),
        Case::in_lab("history::full::killed", 2, killed),
        Case::in_lab("history::full::disk_full", 2, disk_full),
    ]
}

/// Rows of `whim history --json` on n1, of one kind.
fn rows(cluster: &Cluster, kind: &str) -> Result<Vec<Value>> {
    let text = cluster.whim("n1", &["history", "--json", "--since", "1d"])?;
    of_kind(&text, kind)
}

fn of_kind(text: &str, kind: &str) -> Result<Vec<Value>> {
    let rows: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let of_kind = rows.into_iter().filter(|row| row["history"] == kind);
    Ok(of_kind.collect())
}

/// Where moves went that are remembered, in their order.
fn ways(cluster: &Cluster) -> Result<Vec<String>> {
    let way = |row: &Value| {
        let word = |name: &str| row[name].as_str().unwrap_or("?").to_owned();
        format!("{}-{} {}", word("from"), word("to"), word("outcome"))
    };
    Ok(rows(cluster, "move")?.iter().map(way).collect())
}

/// Moves are there at once, with the program's name alone, and why one failed is told to those whose it is.
fn of_moves(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    cluster.move_to(pid, "n2")?;
    cluster.move_to(pid, "home")?;
    cluster.move_to(pid, "n2")?;
    // All its moves count, not only those since it last left.
    let why = cluster.whim("n1", &["why", &pid.to_string()])?;
    ensure!(why.contains("has moved 3 times"), "{why}");
    cluster.move_to(pid, "home")?;
    cluster.configure("n2", "[guests]\nmax = 0\n")?;
    cluster.restart_daemon("n2")?;
    eventually(PATIENCE, "n2 refuses", || {
        let reason = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        Ok(reason.contains("guests already").then_some(()))
    })?;
    let ways = ways(cluster)?;
    let done = ["n1-n2 done", "n2-n1 done"];
    ensure!(ways[..4] == [done, done].concat(), "{ways:?}");
    ensure!(
        ways[4..].iter().all(|way| way == "n1-n2 failed"),
        "{ways:?}"
    );
    let all = cluster.whim("n1", &["history", "--json"])?;
    ensure!(!all.contains(SECRET), "{all}");
    let moves = of_kind(&all, "move")?;
    let first = &moves[0];
    ensure!(
        first["program"] == "python3" && first["pid"] == pid,
        "{first}"
    );
    ensure!(first["cause"] == "user" && first["uid"] == 0, "{first}");
    let (frozen, took) = (first["freeze_ms"].as_f64(), first["total_ms"].as_f64());
    ensure!(frozen > Some(0.0) && frozen <= took, "{first}");
    // The log counts it alike.
    let log = cluster.whim("n1", &["log"])?;
    let line = log.lines().find(|line| line.contains("moved"));
    let told = format!(", {:.0} ms in all;", took.unwrap_or_default());
    ensure!(
        line.is_some_and(|line| line.contains(&told)),
        "{told} {log}"
    );
    let failed = moves.last().context("none failed")?;
    let reason = failed["reason"].as_str().unwrap_or_default();
    ensure!(
        failed["phase"] == "admit" && reason.contains("guests already"),
        "{failed}"
    );
    // The node was looked at meanwhile.
    let sample = eventually(PATIENCE, "a sample", || Ok(rows(cluster, "sample")?.pop()))?;
    has_stable_names(&sample)?;
    let table = cluster.whim("n1", &["history"])?;
    let shown = table.contains("OF CPUS") && table.contains("failed at admit");
    ensure!(shown && table.contains("python3"), "{table}");
    logs_of_one_program(cluster, pid)?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "read from the history how another user's program was started, and why it did not move",
    );
    let whim = cluster.whim_path().display().to_string();
    for words in [&["history"][..], &["history", "--json"]] {
        let all = [&[whim.as_str()], words].concat();
        let told = process::succeed(&mut cluster.command_as("nobody", "n1", &all), PATIENCE)?;
        ensure!(told.contains("python3") && told.contains("n2"), "{told}");
        ensure!(
            !told.contains(SECRET) && !told.contains("guests already"),
            "{told}"
        );
    }
    attempt.failed("the program's name and where it went are told, and no more");
    talk.go()?;
    talk.succeed()
}

/// The log is asked for what one program did, and for what was lately.
fn logs_of_one_program(cluster: &Cluster, pid: i32) -> Result<()> {
    let pids = |words: &[&str]| -> Result<BTreeSet<i64>> {
        let text = cluster.whim("n1", &[&["log", "--json"], words].concat())?;
        let rows = text.lines().map(serde_json::from_str::<Value>);
        let pids = rows.map(|row| Ok(row?["pid"].as_i64().unwrap_or(0)));
        pids.collect()
    };
    // The nodes have joined before, which is of no program.
    let all = BTreeSet::from([0, pid.into()]);
    let one = BTreeSet::from([i64::from(pid)]);
    let text = pid.to_string();
    ensure!(
        pids(&[])? == all && pids(&["--since", "1d"])? == all,
        "of all"
    );
    ensure!(pids(&[&text])? == one, "of {pid} alone");
    ensure!(
        pids(&["--since", "1d", &text])? == one,
        "of {pid}, of a day"
    );
    ensure!(pids(&["1"])?.is_empty(), "of a program that did nothing");
    let lately = || Ok(pids(&["--since", "1s"])?.is_empty().then_some(()));
    eventually(PATIENCE, "nothing was within a second", lately)
}

/// What comes home by itself is remembered with its reason.
fn home_by_itself(cluster: &Cluster) -> Result<()> {
    let forks = format!("{WAITS}\nos.waitpid(os.fork() or os._exit(0), 0)\nsys.stdin.readline()");
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", &forks])?;
    cluster.move_to(pid, "n2")?;
    talk.go()?;
    let row = eventually(PATIENCE, "it is remembered", || {
        let mut moves = rows(cluster, "move")?.into_iter();
        Ok(moves.find(|row| row["cause"] == "itself"))
    })?;
    ensure!(row["from"] == "n2" && row["to"] == "n1", "{row}");
    ensure!(row["outcome"] == "done" && row["pid"] == pid, "{row}");
    ensure!(
        row["reason"].as_str().is_some_and(|text| !text.is_empty()),
        "{row}"
    );
    println!("{row}");
    talk.go()?;
    talk.succeed()
}

fn has_stable_names(sample: &Value) -> Result<()> {
    let names: BTreeSet<&str> = (sample.as_object().context("no object")?.keys())
        .map(String::as_str)
        .collect();
    let expected =
        "history time_ms span_ms looks load memory_used_bytes guests cpus memory_total_bytes";
    ensure!(names == expected.split(' ').collect(), "{sample}");
    let load = &sample["load"];
    let spread = ["min", "mean", "max"].map(|name| load[name].as_f64());
    ensure!(spread.is_sorted() && spread[0].is_some(), "{sample}");
    ensure!(sample["cpus"].as_f64() > Some(0.0), "{sample}");
    ensure!(
        sample["looks"].as_u64() > Some(0) && sample["span_ms"] == 60_000,
        "{sample}"
    );
    Ok(())
}

/// Where nothing is wanted nothing is kept, and `whim history` says why.
fn off(cluster: &Cluster) -> Result<()> {
    cluster.configure("n1", "[history]\nkeep = \"off\"\n")?;
    cluster.restart_daemon("n1")?;
    let reason = cluster.refused("n1", &["history"])?;
    ensure!(reason.contains("[history] keep"), "{reason}");
    ensure!(
        !cluster.state("n1").join("history.redb").exists(),
        "It is kept"
    );
    Ok(())
}

/// Waits until the file has been written again since now, which is when a minute ends.
fn written(cluster: &Cluster) -> Result<()> {
    let path = cluster.state("n1").join("history.redb");
    let state = || fs::metadata(&path).and_then(|about| about.modified()).ok();
    let before = state();
    eventually(A_MINUTE, "the history is written", || {
        Ok((state() != before).then_some(()))
    })
}

/// A daemon that is killed loses the minute that it is in. What is left of it is damaged then: it is set
/// aside, and history goes on.
fn killed(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    cluster.move_to(pid, "n2")?;
    written(cluster)?;
    // The write that has begun is over: the next request to the file waited for it.
    ensure!(ways(cluster)? == ["n1-n2 done"], "{:?}", ways(cluster)?);
    cluster.move_to(pid, "home")?;
    ensure!(ways(cluster)?.len() == 2, "{:?}", ways(cluster)?);
    cluster.restart_daemon("n1")?;
    let kept = ways(cluster)?;
    ensure!(
        kept.first().is_some_and(|way| way == "n1-n2 done"),
        "{kept:?}"
    );
    println!("{} of 2 moves are there after kill -9", kept.len());
    ensure!(!rows(cluster, "sample")?.is_empty(), "No sample is there");
    // An end in order loses nothing.
    cluster.move_to(pid, "n2")?;
    let before = ways(cluster)?;
    let daemon = cluster.daemon_pid("n1")?;
    cluster.run("n1", &["kill", "-TERM", &daemon])?;
    eventually(PATIENCE, "it has ended", || {
        Ok((cluster.daemon_pid("n1")? != daemon).then_some(()))
    })?;
    cluster.start_daemon("n1")?;
    ensure!(ways(cluster)? == before, "{:?}", ways(cluster)?);
    damaged(cluster)?;
    cluster.move_to(pid, "home")?;
    ensure!(ways(cluster)? == ["n2-n1 done"], "{:?}", ways(cluster)?);
    talk.go()?;
    talk.succeed()
}

fn damaged(cluster: &Cluster) -> Result<()> {
    let path = cluster.state("n1").join("history.redb");
    let mut bytes = fs::read(&path)?;
    bytes[..8192].iter_mut().for_each(|byte| *byte ^= 0x5a);
    fs::write(&path, &bytes)?;
    cluster.restart_daemon("n1")?;
    // Whatever the killed one wrote last.
    fs::write(&path, &bytes)?;
    let reason = cluster.refused("n1", &["history"])?;
    ensure!(
        reason.contains("is damaged") && reason.contains("set aside as"),
        "{reason}"
    );
    println!("{reason}");
    let aside = fs::read(cluster.state("n1").join("history.damaged"))?;
    ensure!(aside == bytes, "Another file was set aside");
    ensure!(ways(cluster)?.is_empty(), "{:?}", ways(cluster)?);
    Ok(())
}

/// A full disk costs minutes, and nothing else; with room on it history goes on.
fn disk_full(cluster: &Cluster) -> Result<()> {
    let script = format!(
        "cp -a {STATE} /tmp/kept && mount -t tmpfs -o size=2m,mode=711 tmpfs {STATE} && \
         cp -a /tmp/kept/. {STATE}"
    );
    cluster.run("n1", &["sh", "-c", &script])?;
    cluster.configure("n1", "[metrics]\nlisten = \"127.0.0.1:9947\"\n")?;
    cluster.restart_daemon("n1")?;
    let lost = || -> Result<f64> {
        let ask = "import urllib.request
print(urllib.request.urlopen('http://127.0.0.1:9947/metrics').read().decode())";
        let text = cluster.run("n1", &["python3", "-c", ask])?;
        let name = "whim_history_writes_failed_total ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.context("not told")?.parse()?)
    };
    ensure!(lost()? == 0.0, "Something was lost before");
    let fill = format!("head -c 4M /dev/zero > {STATE}/filler 2>/dev/null; true");
    cluster.run("n1", &["sh", "-c", &fill])?;
    eventually(A_MINUTE, "a minute is lost", || {
        Ok((lost()? > 0.0).then_some(()))
    })?;
    cluster.whim("n1", &["nodes"])?;
    cluster.run("n1", &["rm", &format!("{STATE}/filler")])?;
    // What is in memory is told, and what comes is written.
    let held = eventually(2 * A_MINUTE, "a minute is written", || {
        let samples = rows(cluster, "sample").unwrap_or_default();
        Ok((samples.len() >= 2).then_some(samples))
    })?;
    println!("{} samples after the disk had room", held.len());
    Ok(())
}
