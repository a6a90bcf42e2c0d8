//! What `whim run` adds to the start of a program, where there is more to do than CPUs.

use whim_system_tests::process::Running;
use whim_system_tests::{Cluster, Result, guest};

use super::figures::{Goals, Row, quantile};
use super::load::Watch;
use super::worker::Worker;

/// Loops that are busy all the time: two for each of two CPUs.
const BUSY: usize = 4;
/// Starts are taken in runs of so many pairs, of which others disturb some.
const RUNS: usize = 20;
const PAIRS_EACH: usize = 10;
const PROGRAM: &str = "/bin/true";
const GOAL_MS: f64 = 10.0;

/// Milliseconds from a start to the end.
#[derive(Clone, Copy, Debug)]
struct Pair {
    plain: f64,
    movable: f64,
}

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let mut goals = Goals::default();
        for busy in [0, BUSY] {
            beside(&cluster, busy, &mut goals)?;
        }
        goals.conclude()
    })
}

/// Starts beside so many loops, which may not move: those that could would make room.
fn beside(cluster: &Cluster, busy: usize, goals: &mut Goals) -> Result<()> {
    let spawn = |_| {
        let mut command = cluster.command("n1", &["sh", "-c", "while :; do :; done"]);
        Running::spawn(&mut command)
    };
    let _loops = (0..busy).map(spawn).collect::<Result<Vec<_>>>()?;
    let whim = cluster.whim_path().display().to_string();
    let program = guest::c("bench_starts")?.display().to_string();
    let words = [program.as_str(), PROGRAM, &whim, "run", "--"];
    let mut starter = Worker::start(cluster, &words, false)?;
    let mut watch = Watch::new(cluster)?;
    let kept = watch.steady(RUNS, || pairs(&mut starter))?;
    let pairs: Vec<Pair> = kept.samples.iter().flatten().copied().collect();
    let each = |time: fn(&Pair) -> f64| pairs.iter().map(time).collect::<Vec<f64>>();
    let more = each(|pair| pair.movable - pair.plain);
    let row = Row::new("start", format!("`true` beside {busy} busy loops"));
    row.spread("plain", &each(|pair| pair.plain), "ms")?;
    row.spread("`whim run`", &each(|pair| pair.movable), "ms")?;
    row.spread("difference", &more, "ms")?;
    row.put("pairs", f64::from(u32::try_from(pairs.len())?), "count")?;
    row.load(&kept)?;
    let most = quantile(&more, 0.95);
    goals.judge(
        &format!("95 of 100 starts beside {busy} busy loops take at most {most:.2} ms more, {GOAL_MS} are allowed"),
        most <= GOAL_MS,
        kept.disturbed,
    );
    Ok(())
}

fn pairs(starter: &mut Worker) -> Result<Vec<Pair>> {
    let times = starter.times_us(&PAIRS_EACH.to_string())?;
    let pair = |pair: &[f64]| Pair {
        plain: pair[0] / 1000.0,
        movable: pair[1] / 1000.0,
    };
    Ok(times.chunks_exact(2).map(pair).collect())
}
