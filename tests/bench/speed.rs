//! Whether a guest computes as fast as the same program at home.

use whim_system_tests::{Cluster, Context, Result, ensure, guest};

use super::figures::{Goals, Row, median};
use super::load::Watch;
use super::worker::{Worker, migrate};

/// Goal: the guest has at least this of home's speed.
const GOAL: f64 = 0.98;
const PAIRS: usize = 20;
const MEGABYTES: u64 = 1024;
/// The kind of work, its name, and millions of steps that take about half a second.
const KINDS: [(&str, &str, u32); 3] = [
    ("integers", "bound by the CPU, integers", 60),
    ("numbers", "bound by the CPU, floating point", 40),
    ("writes", "random writes over 1 GiB in huge pages", 8),
];

/// Elapsed times in milliseconds.
struct Pair {
    home: f64,
    away: f64,
}

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let program = guest::c("bench_speed")?.display().to_string();
        let size = MEGABYTES.to_string();
        let words = [program.as_str(), size.as_str()];
        let mut stayed = Worker::start(&cluster, &words, false)?;
        let mut away = Worker::start(&cluster, &words, true)?;
        let home_mb = huge_pages_mb(&cluster, "n1")?;
        migrate(&cluster, away.pid, "n2")?;
        let mut goals = Goals::default();
        let mut home_first = false;
        for (kind, name, millions) in KINDS {
            let order = format!("{kind} {millions}");
            let kept = watch.steady(PAIRS, || {
                home_first = !home_first;
                pair(&order, &mut stayed, &mut away, home_first)
            })?;
            let row = Row::new("speed", name);
            let ratio = median(&kept.each(|pair| pair.home / pair.away));
            row.put("speed away to home, median", ratio, "ratio")?;
            row.put("home, median", median(&kept.each(|pair| pair.home)), "ms")?;
            row.put("away, median", median(&kept.each(|pair| pair.away)), "ms")?;
            row.load(&kept)?;
            goals.judge(
                &format!("{name}: {ratio:.3} of {GOAL}"),
                ratio >= GOAL,
                kept.disturbed,
            );
        }
        let row = cluster.row(away.pid)?.context("It is not listed")?;
        ensure!(row.state == "away", "The program is not away: {row:?}");
        let away_mb = huge_pages_mb(&cluster, "n2")?;
        let row = Row::new("speed", "of the memory, in huge pages");
        row.put("home", home_mb, "MB")?;
        row.put("away", away_mb, "MB")?;
        let what = format!("{away_mb} MB of {home_mb} MB are in huge pages again");
        goals.judge(&what, away_mb >= GOAL * home_mb, false);
        goals.conclude()
    })
}

fn pair(order: &str, stayed: &mut Worker, away: &mut Worker, home_first: bool) -> Result<Pair> {
    if home_first {
        let home = elapsed_ms(stayed, order)?;
        let away = elapsed_ms(away, order)?;
        return Ok(Pair { home, away });
    }
    let away = elapsed_ms(away, order)?;
    let home = elapsed_ms(stayed, order)?;
    Ok(Pair { home, away })
}

fn elapsed_ms(worker: &mut Worker, order: &str) -> Result<f64> {
    let times = worker.times_us(order)?;
    Ok(times.first().context("It gives no time")? / 1000.0)
}

/// The huge pages of that process of a node which has most of them.
fn huge_pages_mb(cluster: &Cluster, node: &str) -> Result<f64> {
    // Processes that end meanwhile are no fault.
    let script = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null; true";
    let text = cluster.run(node, &["sh", "-c", script])?;
    let sizes = text.lines().filter_map(|line| {
        let size = line.strip_prefix("AnonHugePages:")?.trim();
        size.strip_suffix(" kB")?.parse::<f64>().ok()
    });
    Ok(sizes.fold(0.0, f64::max) / 1024.0)
}
