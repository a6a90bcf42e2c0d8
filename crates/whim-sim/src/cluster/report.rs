//! What a run came to.

use super::program::{Fate, Program};
use serde::Serialize;
use whim_journey::cause::Cause;

/// A move that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Moved {
    /// Seconds at which it began, and that it took.
    pub at: f64,
    pub took: f64,
    pub program: usize,
    pub from: usize,
    pub to: usize,
    pub cause: Cause,
}

/// What a node looked like at one of its looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct SimulatedSample {
    pub at: f64,
    pub node: usize,
    pub programs: usize,
    pub load: f64,
    pub memory: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// Programs that did all they had to; that were lost with their host, or with their home; that were
    /// still there at the end.
    pub done: usize,
    pub lost_host: usize,
    pub lost_home: usize,
    pub left: usize,
    /// From the beginning of the first one until the last one was done, in seconds.
    pub makespan: f64,
    /// Of those that were done: their slowdowns.
    #[serde(skip)]
    pub slowdowns: Vec<f64>,
    /// Of those that were left: CPU seconds.
    #[serde(skip)]
    pub progress: Vec<f64>,
    pub moves: Vec<Moved>,
    /// Moves that the target did not admit; that failed on their way; that found no room any more when
    /// they came, and went back.
    pub refused: usize,
    pub failed: usize,
    pub crowded: usize,
    /// Of each node: the largest part of its memory that was in use.
    pub peaks: Vec<f64>,
    pub looks: u64,
    /// Words of gossip.
    pub words: u64,
    pub over_at: f64,
    #[serde(skip)]
    pub samples: Vec<SimulatedSample>,
    /// Invariants that did not hold: the first of them.
    pub broken: Vec<String>,
}

/// More broken invariants than this are not kept.
const BROKEN_MAX: usize = 10;

impl Outcome {
    #[must_use]
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            peaks: vec![0.0; nodes],
            ..Self::default()
        }
    }

    pub(crate) fn breaks(&mut self, what: String) {
        if self.broken.len() < BROKEN_MAX {
            self.broken.push(what);
        }
    }

    pub(super) fn ended(&mut self, program: &Program, first: f64) {
        let Some((at, fate)) = program.fate else {
            return;
        };
        match fate {
            Fate::Done => {
                self.done += 1;
                self.makespan = self.makespan.max(super::seconds(at) - first);
                self.slowdowns.extend(program.slowdown());
            }
            Fate::LostHost => self.lost_host += 1,
            Fate::LostHome => self.lost_home += 1,
        }
    }

    pub(super) fn left(&mut self, program: &Program) {
        self.left += 1;
        self.progress.push(program.done);
    }

    pub(crate) fn print(&self) {
        println!("| begun | program | from | to | cause | took |");
        println!("|---|---|---|---|---|---|");
        for moved in &self.moves {
            let Moved {
                at,
                took,
                program,
                from,
                to,
                cause,
            } = moved;
            let cause = format!("{cause:?}").to_lowercase();
            println!("| {at:.1} s | {program} | {from} | {to} | {cause} | {took:.2} s |");
        }
        let peak = self.peaks.iter().copied().fold(0.0, f64::max);
        println!();
        println!("| figure | value |");
        println!("|---|---|");
        println!("| programs done | {} |", self.done);
        println!("| lost with their host | {} |", self.lost_host);
        println!("| lost with their home | {} |", self.lost_home);
        println!("| still there | {} |", self.left);
        println!("| makespan | {:.1} s |", self.makespan);
        println!("| mean slowdown | {:.3} |", self.mean_slowdown());
        println!(
            "| least progress over most, of those still there | {:.3} |",
            self.fairness()
        );
        println!("| moves | {} |", self.moves.len());
        println!(
            "| not admitted, failed, without room | {}, {}, {} |",
            self.refused, self.failed, self.crowded
        );
        println!(
            "| most of its memory that a node had in use | {:.1} % |",
            100.0 * peak
        );
        for what in &self.broken {
            println!("Broken: {what}");
        }
    }

    #[must_use]
    pub(crate) fn mean_slowdown(&self) -> f64 {
        self.slowdowns.iter().sum::<f64>() / (self.slowdowns.len().max(1) as f64)
    }

    /// The least that one got done, of those that were left, over the most.
    #[must_use]
    pub(crate) fn fairness(&self) -> f64 {
        let least = self.progress.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.progress.iter().copied().fold(0.0, f64::max);
        if most > 0.0 { least / most } else { 1.0 }
    }

    /// Of one program, for any cause.
    #[must_use]
    pub(crate) fn most_moves(&self) -> usize {
        let mut counts = std::collections::BTreeMap::<usize, usize>::new();
        for moved in &self.moves {
            *counts.entry(moved.program).or_default() += 1;
        }
        counts.values().copied().max().unwrap_or(0)
    }

    /// When moves for this cause began, after a time.
    fn begun(&self, cause: Cause, after: f64) -> Vec<f64> {
        let moves = self.moves.iter();
        let chosen = moves.filter(|moved| moved.cause == cause && moved.at >= after);
        let mut times: Vec<f64> = chosen.map(|moved| moved.at).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// The most moves for a cause in any so many seconds, after a time.
    #[must_use]
    pub(crate) fn most_within(&self, cause: Cause, seconds: f64, after: f64) -> usize {
        most_within(&self.begun(cause, after), seconds)
    }

    /// Moves for a cause in a minute, in the mean.
    #[must_use]
    pub(crate) fn per_minute(&self, cause: Cause, after: f64) -> f64 {
        let minutes = (self.over_at - after) / 60.0;
        self.begun(cause, after).len() as f64 / minutes.max(1.0)
    }

    /// The most moves of one program for a cause, in any hour.
    #[must_use]
    pub(crate) fn most_of_one(&self, causes: &[Cause]) -> usize {
        let mut times = std::collections::BTreeMap::<usize, Vec<f64>>::new();
        for moved in self
            .moves
            .iter()
            .filter(|moved| causes.contains(&moved.cause))
        {
            times.entry(moved.program).or_default().push(moved.at);
        }
        let hour = |times: &Vec<f64>| {
            let mut times = times.clone();
            times.sort_by(f64::total_cmp);
            most_within(&times, 3600.0)
        };
        times.values().map(hour).max().unwrap_or(0)
    }
}

/// Of times in order: the most in any so many seconds.
fn most_within(times: &[f64], seconds: f64) -> usize {
    /// What lies exactly so far apart does, whatever the rounding.
    const ROUNDING: f64 = 1e-3;
    let mut first = 0;
    let mut most = 0;
    for (last, at) in times.iter().enumerate() {
        while times[first] <= at - seconds + ROUNDING {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_slide() {
        let times = [0.0, 30.0, 59.0, 60.0, 200.0];
        assert_eq!(most_within(&times, 60.0), 3);
        assert_eq!(most_within(&times, 61.0), 4);
        assert_eq!(most_within(&[], 60.0), 0);
    }

    #[test]
    fn moves_are_counted_by_cause_and_program() {
        let moved = |at, program, cause| Moved {
            at,
            took: 0.2,
            program,
            from: 0,
            to: 1,
            cause,
        };
        let outcome = Outcome {
            moves: vec![
                moved(1.0, 1, Cause::Load),
                moved(40.0, 1, Cause::Load),
                moved(50.0, 2, Cause::Memory),
                moved(3650.0, 1, Cause::Load),
            ],
            over_at: 3660.0,
            ..Outcome::default()
        };
        assert_eq!(outcome.most_within(Cause::Load, 60.0, 0.0), 2);
        assert_eq!(outcome.most_within(Cause::Load, 60.0, 30.0), 1);
        assert_eq!(outcome.most_of_one(&[Cause::Load]), 2);
        assert_eq!(outcome.most_of_one(&[Cause::Memory]), 1);
        assert!((outcome.per_minute(Cause::Load, 60.0) - 1.0 / 60.0).abs() < 1e-9);
    }
}
