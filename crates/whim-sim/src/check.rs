//! Invariants, checked in many runs; each line of the result is one of them, at its worst.

mod ages;
mod fair;
mod faults;
mod pingpong;
mod speed;
mod spread;
mod ushering;

use crate::cluster::{Setting, seconds};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    /// Moves for load are few when nothing happens
    Pingpong,
    /// Memory runs out nowhere while there is room somewhere
    Ushering,
    /// Nodes that die and links that are cut cost no more than the contract says
    Faults,
    /// What nodes know of each other is as old as the formula says
    Ages,
    /// 16 programs on one node are spread over four
    Spread,
    /// Programs that take turns at sharing a CPU get nearly the same, by few moves
    Fair,
    /// How long simulations of 1,000 and 10,000 nodes take
    Speed,
}

/// How much is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub first: u64,
    pub seeds: u64,
    pub hours: f64,
    /// Only large clusters of the speed and age checks up to so many nodes.
    pub nodes: usize,
}

/// One figure of one run, and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub what: String,
    pub value: f64,
    pub limit: Limit,
}

impl Figure {
    fn new(what: impl Into<String>, value: f64, limit: Limit) -> Self {
        Self {
            what: what.into(),
            value,
            limit,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn is_worse(self, value: f64, than: f64) -> bool {
        match self {
            Self::AtMost(_) => value > than,
            Self::AtLeast(_) => value < than,
        }
    }
}

/// Time in which programs find their places, after the last one has begun.
const SETTLES: f64 = 30.0;

/// When programs have found their places, in seconds.
fn settled(setting: &Setting) -> f64 {
    let last = setting.programs.last();
    last.map_or(0.0, |program| seconds(program.arrives)) + SETTLES
}

/// A figure in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Line {
    pub what: String,
    pub runs: u64,
    pub mean: f64,
    pub worst: f64,
    /// The first run with it.
    pub seed: u64,
    pub limit: Limit,
    pub holds: bool,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Checked {
    pub subject: Subject,
    pub lines: Vec<Line>,
    /// Invariants that did not hold within a run, with its seed.
    pub broken: Vec<(u64, String)>,
    /// Commands that repeat the runs in which something did not hold.
    pub repeat: Vec<String>,
}

/// What one seed gave: figures, and invariants that broke.
type Found = (Vec<Figure>, Vec<String>);

/// Checks.
#[must_use]
pub(crate) fn check(subject: Subject, extent: &Extent) -> Checked {
    let one = |seed| match subject {
        Subject::Pingpong => pingpong::one(seed, extent.hours),
        Subject::Ushering => ushering::one(seed),
        Subject::Faults => faults::one(seed),
        Subject::Ages => ages::one(seed, extent.nodes),
        Subject::Spread => spread::one(seed),
        Subject::Fair => fair::one(seed, extent.hours),
        Subject::Speed => speed::one(seed, extent.nodes),
    };
    // Times are taken one after the other.
    let threads = match subject {
        Subject::Speed => 1,
        _ => thread::available_parallelism().map_or(1, usize::from),
    };
    let found = each(extent.first, extent.seeds, threads, one);
    conclude(subject, extent, &found)
}

/// Runs seeds on several threads; gives what they found, in the order of seeds.
fn each(
    first: u64,
    seeds: u64,
    threads: usize,
    one: impl Fn(u64) -> Found + Sync,
) -> Vec<(u64, Found)> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                return found;
            }
            let seed = first.wrapping_add(number);
            found.push((number, (seed, one(seed))));
        }
    };
    let mut all: Vec<(u64, (u64, Found))> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .flat_map(|found| found.unwrap_or_else(|fault| std::panic::resume_unwind(fault)))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, found)| found).collect()
}

fn conclude(subject: Subject, extent: &Extent, found: &[(u64, Found)]) -> Checked {
    let mut lines: Vec<Line> = Vec::new();
    let mut broken = Vec::new();
    for (seed, (figures, breaks)) in found {
        broken.extend(breaks.iter().map(|what| (*seed, what.clone())));
        for figure in figures {
            take(&mut lines, *seed, figure);
        }
    }
    for line in &mut lines {
        line.mean /= line.runs as f64;
    }
    let failed = lines
        .iter()
        .filter(|line| !line.holds)
        .map(|line| line.seed);
    let mut seeds: Vec<u64> = failed.chain(broken.iter().map(|(seed, _)| *seed)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let repeat = seeds.into_iter().map(|seed| repeat(subject, extent, seed));
    Checked {
        subject,
        lines,
        broken,
        repeat: repeat.collect(),
    }
}

fn take(lines: &mut Vec<Line>, seed: u64, figure: &Figure) {
    let holds = figure.limit.holds(figure.value);
    let Some(line) = lines.iter_mut().find(|line| line.what == figure.what) else {
        lines.push(Line {
            what: figure.what.clone(),
            runs: 1,
            mean: figure.value,
            worst: figure.value,
            seed,
            limit: figure.limit,
            holds,
        });
        return;
    };
    line.runs += 1;
    line.mean += figure.value;
    line.holds &= holds;
    if line.limit.is_worse(figure.value, line.worst) {
        line.worst = figure.value;
        line.seed = seed;
    }
}

fn repeat(subject: Subject, extent: &Extent, seed: u64) -> String {
    let name = format!("{subject:?}").to_lowercase();
    let more = match subject {
        Subject::Pingpong => format!(" --hours {}", extent.hours),
        Subject::Ages | Subject::Speed => format!(" --nodes {}", extent.nodes),
        _ => String::new(),
    };
    format!("whim-sim check {name} --first {seed} --seeds 1{more}")
}

impl Checked {
    #[must_use]
    pub(crate) fn holds(&self) -> bool {
        self.repeat.is_empty()
    }

    pub(crate) fn print(&self) {
        println!("| figure | runs | mean | worst | limit | seed of the worst | holds |");
        println!("|---|---|---|---|---|---|---|");
        for line in &self.lines {
            let limit = match line.limit {
                Limit::AtMost(limit) => format!("<= {limit}"),
                Limit::AtLeast(limit) => format!(">= {limit}"),
            };
            println!(
                "| {} | {} | {:.3} | {:.3} | {limit} | {} | {} |",
                line.what,
                line.runs,
                line.mean,
                line.worst,
                line.seed,
                if line.holds { "yes" } else { "NO" },
            );
        }
        for (seed, what) in &self.broken {
            println!("Broken with seed {seed}: {what}");
        }
        for command in &self.repeat {
            println!("Repeat: {command}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent {
        first: 5,
        seeds: 20,
        hours: 1.0,
        nodes: 64,
    };

    #[test]
    fn the_worst_of_all_seeds_decides() {
        let figure = |seed: u64, limit| Figure {
            what: format!("{limit:?}"),
            value: seed as f64,
            limit,
        };
        let (high, low) = (Limit::AtMost(20.0), Limit::AtLeast(5.0));
        let one = |seed| (vec![figure(seed, high), figure(seed, low)], Vec::new());
        let checked = conclude(Subject::Pingpong, &EXTENT, &each(5, 20, 2, one));
        let lines: Vec<(f64, u64, bool)> = checked
            .lines
            .iter()
            .map(|line| (line.worst, line.seed, line.holds))
            .collect();
        assert_eq!(lines, [(24.0, 24, false), (5.0, 5, true)]);
        assert!((checked.lines[0].mean - 14.5).abs() < 1e-9 && !checked.holds());
        let command = "whim-sim check pingpong --first 24 --seeds 1 --hours 1";
        assert_eq!(checked.repeat, [command]);
    }

    #[test]
    fn an_invariant_that_breaks_is_told_with_its_seed() {
        let breaks = |seed| match seed == 7 {
            true => vec!["It broke".to_owned()],
            false => Vec::new(),
        };
        let one = |seed| (Vec::new(), breaks(seed));
        let checked = conclude(Subject::Faults, &EXTENT, &each(5, 20, 3, one));
        assert_eq!(checked.broken, [(7, "It broke".to_owned())]);
        let command = "whim-sim check faults --first 7 --seeds 1";
        assert_eq!(checked.repeat, [command]);
    }

    fn holds(subject: Subject, extent: &Extent) {
        let checked = check(subject, extent);
        checked.print();
        assert!(checked.holds());
        assert!(checked.lines.iter().all(|line| line.runs > 0));
        assert!(!checked.lines.is_empty());
    }

    #[test]
    fn nothing_moves_to_and_fro() {
        holds(
            Subject::Pingpong,
            &Extent {
                seeds: 4,
                hours: 0.5,
                ..EXTENT
            },
        );
    }

    #[test]
    fn memory_runs_out_nowhere() {
        holds(
            Subject::Ushering,
            &Extent {
                seeds: 20,
                ..EXTENT
            },
        );
    }

    #[test]
    fn faults_cost_what_the_contract_says() {
        holds(
            Subject::Faults,
            &Extent {
                seeds: 12,
                ..EXTENT
            },
        );
    }

    #[test]
    fn words_are_as_old_as_they_should_be() {
        holds(
            Subject::Ages,
            &Extent {
                seeds: 1,
                nodes: 256,
                ..EXTENT
            },
        );
    }

    #[test]
    fn programs_spread_over_the_lab() {
        holds(Subject::Spread, &Extent { seeds: 3, ..EXTENT });
        holds(
            Subject::Fair,
            &Extent {
                hours: 2.0,
                ..EXTENT
            },
        );
    }
}
