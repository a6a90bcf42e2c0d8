//! How soon the cluster does what it has to: programs come home that ask home much or wait for their user,
//! nodes are emptied; and what of it a build notices.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Cluster, Result, Running, Talk, ensure, place};

use super::figures::{Goals, Row, median, quantile};
use super::load::Watch;
use crate::balancing::{Obedient, at_terminal, await_place, busy, tell};
use crate::orders::{desktop, knows};

const RUNS: usize = 3;
const LIMIT: Duration = Duration::from_secs(600);
/// Guests of so much memory each.
const GUEST_BYTES: f64 = 100e6;
const HOLDER: &str = "import os, sys
b = bytearray(os.urandom(1 << 20)) * 95
print('ready', os.getpid(), flush=True)
for line in sys.stdin: print(2 * line.strip(), flush=True)";

pub(super) fn measure() -> Result<()> {
    let mut goals = Goals::default();
    drain(&mut goals)?;
    owner(&mut goals)?;
    homeward(&mut goals)?;
    keys(&mut goals)?;
    build(&mut goals)?;
    goals.conclude()
}

fn seconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}

/// Programs of n1 that hold so much memory each.
fn holders(cluster: &Cluster, count: usize) -> Result<Vec<(Talk, i32)>> {
    let python = ["python3", "-c", HOLDER];
    (0..count)
        .map(|_| Talk::run(cluster, &[], &python))
        .collect()
}

/// Bytes a second of a move of one of them.
fn rate(cluster: &Cluster, pid: i32) -> Result<f64> {
    let mut rates = Vec::new();
    for node in ["n2", "n3", "n2"] {
        let begun = Instant::now();
        cluster.move_to(pid, node)?;
        rates.push(GUEST_BYTES / seconds(begun));
    }
    Ok(median(&rates))
}

/// A node with 20 guests of 100 MB is emptied.
fn drain(goals: &mut Goals) -> Result<()> {
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let mut programs = holders(&cluster, 20)?;
        let rate = rate(&cluster, programs[0].1)?;
        let mut watch = Watch::new(&cluster)?;
        let kept = watch.steady(RUNS, || {
            for (_, pid) in &programs {
                if cluster.place(*pid)? != "n2" {
                    cluster.move_to(*pid, "n2")?;
                }
            }
            let begun = Instant::now();
            cluster.whim("n1", &["drain", "n2"])?;
            let took = seconds(begun);
            cluster.whim("n1", &["undrain", "n2"])?;
            eventually(LIMIT, "n2 takes guests again", || {
                let told = cluster.whim("n1", &["nodes"])?;
                Ok((!told.contains("draining")).then_some(()))
            })?;
            Ok(took)
        })?;
        for (talk, pid) in &mut programs {
            talk.say("word")?;
            ensure!(talk.line()? == "wordword", "{pid} lost something");
        }
        let row = Row::new("reactions", "`whim drain` of 20 guests of 100 MB");
        let took = median(&kept.samples);
        let most = 20.0 * GUEST_BYTES / rate + 3.0;
        row.put("one move", rate / 1e6, "MB/s")?;
        row.put("empty after", took, "s")?;
        row.put("bytes / rate + 3 s", most, "s")?;
        row.load(&kept)?;
        goals.judge(
            &format!("drained in {took:.1} s, at most {most:.1}"),
            took <= most,
            kept.disturbed,
        );
        Ok(())
    })
}

/// The owner of a node with 10 guests of 100 MB comes back.
fn owner(goals: &mut Goals) -> Result<()> {
    const GUESTS: usize = 10;
    let cluster = Cluster::up(3)?;
    cluster.explaining(|| {
        let mut programs = holders(&cluster, GUESTS)?;
        let rate = rate(&cluster, programs[0].1)?;
        cluster.move_to(programs[0].1, "home")?;
        let (mut terminal, path) = desktop(&cluster)?;
        let text = format!("owner = true\nowner_idle = 2\nowner_terminals = [\"{path}\"]\n");
        cluster.configure("n2", &text)?;
        cluster.restart_daemon("n2")?;
        let mut watch = Watch::new(&cluster)?;
        let kept = watch.steady(RUNS, || {
            knows(&cluster, "n2", "blocked", &false.into())?;
            for (_, pid) in &programs {
                cluster.move_to(*pid, "n2")?;
            }
            let begun = Instant::now();
            eventually(LIMIT, "the guests have left", || {
                terminal.press(":\n")?;
                Ok(cluster.rows("n2", true)?.is_empty().then_some(()))
            })?;
            Ok(seconds(begun))
        })?;
        for (talk, pid) in &mut programs {
            talk.say("word")?;
            ensure!(talk.line()? == "wordword", "{pid} lost something");
        }
        let row = Row::new(
            "reactions",
            "the owner of a node with 10 guests of 100 MB returns",
        );
        let took = median(&kept.samples);
        let most = f64::from(u32::try_from(GUESTS)?) * GUEST_BYTES / rate + 2.0;
        row.put("one move", rate / 1e6, "MB/s")?;
        row.put("empty after", took, "s")?;
        row.put("bytes / rate + 2 s", most, "s")?;
        row.load(&kept)?;
        goals.judge(
            &format!("empty in {took:.1} s, at most {most:.1}"),
            took <= most,
            kept.disturbed,
        );
        Ok(())
    })
}

/// A program turns from computing to reading its home's files.
fn homeward(goals: &mut Goals) -> Result<()> {
    let cluster = Cluster::balancing(2, &["--cpu", "0.6,0.6"])?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let mut number = 0;
        let kept = watch.steady(RUNS, || {
            number += 1;
            let hogs = busy(&cluster, 1)?;
            let program = Obedient::start(&cluster, &format!("reader-{number}"), &[], "compute")?;
            await_place(&cluster, program.pid, "n2")?;
            // Until it has shown what it is like.
            std::thread::sleep(Duration::from_secs(5));
            program.tell("read")?;
            let begun = Instant::now();
            await_place(&cluster, program.pid, "n1")?;
            let took = seconds(begun);
            program.end()?;
            drop(hogs);
            Ok(took)
        })?;
        let row = Row::new("reactions", "a program begins to read its home's files");
        let took = row.spread("home after", &kept.samples, "s")?;
        row.load(&kept)?;
        goals.judge(
            &format!("home after {took:.1} s, at most 5"),
            took <= 5.0,
            kept.disturbed,
        );
        Ok(())
    })
}

/// What is typed before a program that computed away and now waits for its user.
fn keys(goals: &mut Goals) -> Result<()> {
    let cluster = Cluster::balancing(2, &["--cpu", "0.6,0.6"])?;
    cluster.explaining(|| {
        let hogs = busy(&cluster, 1)?;
        let (mut screen, pid, order) = at_terminal(&cluster)?;
        await_place(&cluster, pid, "n2")?;
        drop(hogs);
        tell(&order, "wait")?;
        let begun = Instant::now();
        await_place(&cluster, pid, "n1")?;
        let home = seconds(begun);
        let mut times = Vec::new();
        for number in 0..50 {
            let word = format!("k{number}e");
            let begun = Instant::now();
            screen.press(&format!("{word}\n"))?;
            screen.wait_for(&format!("{word}{word}"))?;
            times.push(seconds(begun) * 1000.0);
            std::thread::sleep(Duration::from_millis(200));
        }
        let row = Row::new("reactions", "a program that waits for its user");
        row.put("home after", home, "s")?;
        let p95 = quantile(&times, 0.95);
        row.spread("answer to a line", &times, "ms")?;
        goals.judge(
            &format!("95 of 100 answers within {p95:.1} ms, at most 50"),
            p95 < 50.0,
            false,
        );
        Ok(())
    })
}

/// Lua is built by 16 jobs, of which the cluster may move any, and by 16 that stay.
fn build(goals: &mut Goals) -> Result<()> {
    let source = place::toolchain().join("sources/lua5.4/src");
    let cluster = Cluster::balancing(4, &["--cpu", "0.8,0.4,0.4,0.2"])?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let once = |options: &[&str]| make(&cluster, &source, options);
        let kept = watch.steady(RUNS, || {
            let pinned = once(&["--pin"])?;
            let free = once(&[])?;
            println!("reactions: make: {free:.1} s, pinned {pinned:.1} s");
            Ok(free / pinned)
        })?;
        let row = Row::new("reactions", "`make -j16` of Lua, free to pinned");
        let ratio = median(&kept.samples);
        row.put("ratio", ratio, "ratio")?;
        row.load(&kept)?;
        goals.judge(
            &format!("a build takes {ratio:.3} of a pinned one, at most 1.05"),
            ratio <= 1.05,
            kept.disturbed,
        );
        Ok(())
    })
}

fn make(cluster: &Cluster, source: &PathBuf, options: &[&str]) -> Result<f64> {
    let directory = cluster.directory().join("make");
    let _ = fs::remove_dir_all(&directory);
    let mut copy = Command::new("cp");
    process::succeed(copy.arg("-r").arg(source).arg(&directory), LIMIT)?;
    let whim = cluster.whim_path().display().to_string();
    let mut words = vec![whim.as_str(), "run"];
    words.extend(options);
    words.extend(["--", "make", "-s", "-j16", "linux"]);
    let mut command = cluster.command("n1", &words);
    command.current_dir(&directory);
    let begun = Instant::now();
    let status = Running::spawn(&mut command)?.wait(LIMIT)?;
    ensure!(status.success(), "make ended with {status}");
    Ok(seconds(begun))
}
