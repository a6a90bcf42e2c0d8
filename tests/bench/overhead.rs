//! What a program that may move and does not pays for that: nothing.

use std::process::Command;
use std::time::Duration;

use whim_system_tests::{Cluster, Context, Result, guest, process};

use super::figures::{Goals, Row, median};
use super::load::Watch;

const LOW: f64 = 0.98;
const HIGH: f64 = 1.02;
const PAIRS: usize = 30;
const PAIRS_MAX: usize = 200;
/// About a second of work.
const ROUNDS: &str = "250";
const LIMIT: Duration = Duration::from_secs(60);

/// User and system time of two runs, in microseconds.
#[derive(Clone, Copy)]
struct Pair {
    plain: f64,
    movable: f64,
}

/// A ratio with the interval that holds it in 95 of 100 cases.
struct Interval {
    low: f64,
    middle: f64,
    high: f64,
}

impl Interval {
    fn is_good(&self) -> bool {
        LOW <= self.low && self.high <= HIGH
    }
}

pub(super) fn measure() -> Result<()> {
    let cluster = Cluster::up(1)?;
    cluster.explaining(|| {
        let mut watch = Watch::new(&cluster)?;
        let program = guest::c("bench_work")?.display().to_string();
        let words = [program.as_str(), ROUNDS];
        let mut plain_first = false;
        let mut pairs: Vec<Pair> = Vec::new();
        let (mut discarded, mut foreign, mut disturbed) = (0, Vec::new(), false);
        let mut found = None;
        while pairs.len() < PAIRS_MAX {
            let kept = watch.steady(PAIRS.min(PAIRS_MAX - pairs.len()), || {
                plain_first = !plain_first;
                pair(&cluster, &words, plain_first)
            })?;
            discarded += kept.discarded;
            foreign.push(kept.foreign_percent);
            disturbed |= kept.disturbed;
            pairs.extend(kept.samples);
            let interval = ratio(&pairs);
            let good = interval.is_good();
            found = Some(interval);
            if good {
                break;
            }
        }
        let found = found.context("Nothing was measured")?;
        let row = Row::new("overhead", "`whim run` to plain");
        row.put("user and system time", found.middle, "ratio")?;
        row.put("interval from", found.low, "ratio")?;
        row.put("interval to", found.high, "ratio")?;
        let plain: Vec<f64> = pairs.iter().map(|pair| pair.plain / 1e6).collect();
        row.put("plain, median", median(&plain), "s")?;
        row.put("pairs", f64::from(u32::try_from(pairs.len())?), "count")?;
        row.put("foreign load", median(&foreign), "%")?;
        row.put("discarded", f64::from(discarded), "runs")?;
        let mut goals = Goals::default();
        let what = format!(
            "the interval {:.4} to {:.4} lies within {LOW} to {HIGH}",
            found.low, found.high
        );
        goals.judge(&what, found.is_good(), disturbed);
        goals.conclude()
    })
}

fn pair(cluster: &Cluster, words: &[&str], plain_first: bool) -> Result<Pair> {
    let plain = || cpu_us(cluster.command("n1", words));
    let movable = || cpu_us(cluster.run_command("n1", words));
    if plain_first {
        let plain = plain()?;
        let movable = movable()?;
        return Ok(Pair { plain, movable });
    }
    let movable = movable()?;
    let plain = plain()?;
    Ok(Pair { plain, movable })
}

fn cpu_us(mut command: Command) -> Result<f64> {
    let text = process::succeed(&mut command, LIMIT)?;
    Ok(text.trim().parse()?)
}

/// The geometric mean of the ratios, and 1.96 (with few pairs a little more) standard errors around.
fn ratio(pairs: &[Pair]) -> Interval {
    let logs: Vec<f64> = pairs
        .iter()
        .map(|pair| (pair.movable / pair.plain).ln())
        .collect();
    let count = f64::from(u32::try_from(logs.len()).unwrap_or(u32::MAX)).max(2.0);
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let student = 1.96 + 2.4 / (count - 1.0);
    let margin = student * (variance / count).sqrt();
    Interval {
        low: (mean - margin).exp(),
        middle: mean.exp(),
        high: (mean + margin).exp(),
    }
}
