//! What the daemon uses where nothing is to be done.

use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::{Cluster, Context, Result, Running, ensure};

use super::figures::{Goals, Row, median};
use super::load::{Watch, cpu_seconds};

const NODES: usize = 20;
/// Of the processes of n1, those that sleep, and those that do a little each second.
const ASLEEP: usize = 290;
const AWAKE: usize = 10;
const RUNS: usize = 3;
const LASTS: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(600);
const GOAL_PERCENT: f64 = 0.3;
const GOAL_MB: f64 = 40.0;

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::balancing(NODES, &[])?;
    cluster.explaining(|| {
        let script = format!(
            "for i in $(seq {ASLEEP}); do sleep 100000 & done
             for i in $(seq {AWAKE}); do
               perl -e 'while (1) {{ select undef, undef, undef, 1; my $x = 0; $x += $_ for 1 .. 1000; }}' &
             done
             echo ready; wait"
        );
        let _processes = Running::spawn(&mut cluster.command("n1", &["sh", "-c", &script]))?;
        // Each node measures its speed as soon as it has nothing else to do.
        eventually(LIMIT, "all speeds are measured", || {
            let rows = cluster.members("n1")?;
            let measured = rows.iter().filter(|row| row["speed_estimated"] == false);
            Ok((measured.count() == NODES).then_some(()))
        })?;
        let pid = cluster.daemon_pid("n1")?;
        let mut watch = Watch::new(&cluster)?;
        let kept = watch.steady(RUNS, || {
            let before = used(&cluster, &pid)?;
            std::thread::sleep(LASTS);
            Ok(100.0 * (used(&cluster, &pid)? - before) / LASTS.as_secs_f64())
        })?;
        let percent = median(&kept.samples);
        let megabytes = resident(&cluster, &pid)?;
        let row = Row::new("idle", "`whimd`, 20 nodes, 300 processes");
        row.put("of a core", percent, "%")?;
        row.put("memory", megabytes, "MB")?;
        row.load(&kept)?;
        let mut goals = Goals::default();
        goals.judge(
            &format!("{percent:.2} % of a core, at most {GOAL_PERCENT}"),
            percent <= GOAL_PERCENT,
            kept.disturbed,
        );
        goals.judge(
            &format!("{megabytes:.1} MB, at most {GOAL_MB}"),
            megabytes <= GOAL_MB,
            false,
        );
        goals.conclude()
    })
}

/// CPU seconds that a process has used.
fn used(cluster: &Cluster, pid: &str) -> Result<f64> {
    let text = cluster.run("n1", &["cat", &format!("/proc/{pid}/stat")])?;
    cpu_seconds(&text)
}

/// Megabytes of memory that a process has.
fn resident(cluster: &Cluster, pid: &str) -> Result<f64> {
    let text = cluster.run("n1", &["cat", &format!("/proc/{pid}/status")])?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .context("VmRSS")?
        .parse()?;
    ensure!(kib > 0.0, "It has no memory");
    Ok(kib * 1024.0 / 1e6)
}
