//! Moves processes at random moments to random places while a program runs.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::cluster::{Cluster, Moved, Row};
use crate::process::Running;
use crate::random::Random;

/// Requests in a row that may find nothing to do before something is wrong with the test.
const FRUITLESS_MAX: u32 = 2000;

/// What shall be moved, and how fast.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Only processes whose command holds one of these; none: all.
    pub focus: &'a [&'a str],
    /// Mean time between two moves.
    pub gap: Duration,
    /// How long the program may take.
    pub limit: Duration,
}

/// What the mover did.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    pub completed: u32,
    /// Of those, how many of processes that match each word of the focus.
    pub by_focus: Vec<u32>,
    /// Reasons, with numbers left out, and how often each was given.
    pub refused: BTreeMap<String, u32>,
    /// Time spent in moves.
    pub moving: Duration,
    /// One line per request, for those who look for a fault.
    pub history: Vec<String>,
    /// The same as `completed`, for another thread.
    progress: Arc<AtomicU32>,
}

impl Moves {
    /// Adds what another run did.
    pub fn add(&mut self, other: Self) {
        self.completed += other.completed;
        self.moving += other.moving;
        self.by_focus.resize(other.by_focus.len(), 0);
        for (sum, count) in self.by_focus.iter_mut().zip(other.by_focus) {
            *sum += count;
        }
        for (reason, count) in other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.history.extend(other.history);
    }
}

impl std::fmt::Display for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let refusals: u32 = self.refused.values().sum();
        let mean = self.moving.as_secs_f64() * 1e3 / f64::from(self.completed.max(1));
        write!(
            f,
            "{} moves ({mean:.0} ms each), {refusals} refusals",
            self.completed
        )?;
        for (reason, count) in &self.refused {
            write!(f, "\n    {count} x {reason}")?;
        }
        Ok(())
    }
}

/// Moves processes of n1 until the program ends.
///
/// # Errors
/// When `whim` behaves strangely, or the program does not end in time.
pub fn drive(
    cluster: &Cluster,
    running: &mut Running,
    plan: &Plan<'_>,
    random: &mut Random,
) -> Result<(ExitStatus, Moves)> {
    let mut moves = Moves {
        by_focus: vec![0; plan.focus.len()],
        ..Moves::default()
    };
    let wait = |gap| running.wait_up_to(gap);
    let outcome = keep_moving(cluster, wait, plan, random, &mut moves);
    if outcome.is_err() {
        print_history(&moves);
    }
    Ok((outcome?, moves))
}

/// Prints the last requests: for a test that fails.
pub fn print_history(moves: &Moves) {
    for line in &moves.history[moves.history.len().saturating_sub(40)..] {
        println!("  {line}");
    }
}

/// Moves processes of n1 until something comes through the channel, or its other end is dropped;
/// the number of completed moves can be watched meanwhile.
///
/// # Errors
/// When `whim` behaves strangely.
pub fn drive_until(
    cluster: &Cluster,
    end: &Receiver<()>,
    plan: &Plan<'_>,
    random: &mut Random,
    progress: Arc<AtomicU32>,
) -> Result<Moves> {
    let by_focus = vec![0; plan.focus.len()];
    let mut moves = Moves {
        by_focus,
        progress,
        ..Moves::default()
    };
    let wait = |gap| Ok((end.recv_timeout(gap) != Err(RecvTimeoutError::Timeout)).then_some(()));
    let outcome = keep_moving(cluster, wait, plan, random, &mut moves);
    if outcome.is_err() {
        print_history(&moves);
    }
    outcome.map(|()| moves)
}

/// `wait` waits no longer than it is told and returns what there is at the end.
fn keep_moving<T>(
    cluster: &Cluster,
    mut wait: impl FnMut(Duration) -> Result<Option<T>>,
    plan: &Plan<'_>,
    random: &mut Random,
    moves: &mut Moves,
) -> Result<T> {
    let begun = Instant::now();
    let mut fruitless = 0;
    loop {
        let gap = random.below(u64::try_from(2 * plan.gap.as_micros())?.max(2));
        if let Some(status) = wait(Duration::from_micros(gap))? {
            return Ok(status);
        }
        ensure!(
            begun.elapsed() < plan.limit,
            "The program has not ended after {:?}",
            plan.limit
        );
        ensure!(
            fruitless < FRUITLESS_MAX,
            "There is nothing to move: {moves}"
        );
        fruitless += 1;
        let rows = match cluster.rows("n1", false) {
            Ok(rows) => rows,
            Err(error) => match wait(Duration::ZERO)? {
                Some(status) => return Ok(status),
                None => return Err(error),
            },
        };
        let Some((row, target)) = choose(cluster, &rows, plan, moves, random) else {
            continue;
        };
        let started = Instant::now();
        let result = cluster.migrate(row.pid, &target);
        let took = started.elapsed();
        let line = |what: &str| {
            let at = begun.elapsed().as_secs_f64();
            format!(
                "{at:7.3} {} {} {}->{target}: {what}",
                row.pid, row.command, row.place
            )
        };
        match result {
            Ok(Moved::Done(report)) => {
                fruitless = 0;
                moves.completed += 1;
                moves.progress.store(moves.completed, Ordering::Relaxed);
                moves.moving += took;
                moves.history.push(line(&report));
                for (count, word) in moves.by_focus.iter_mut().zip(plan.focus) {
                    *count += u32::from(row.command.contains(word));
                }
            }
            Ok(Moved::Refused(reason)) => {
                moves.history.push(line(&reason));
                *moves.refused.entry(without_numbers(&reason)).or_default() += 1;
            }
            Err(error) => {
                moves.history.push(line(&format!("{error:#}")));
                bail!("{error:#}");
            }
        }
    }
}

/// A process and a place where it is not. Words of the focus that had fewer moves go first, so
/// that each member of a pipeline has its turn.
fn choose(
    cluster: &Cluster,
    rows: &[Row],
    plan: &Plan<'_>,
    moves: &Moves,
    random: &mut Random,
) -> Option<(Row, String)> {
    let movable: Vec<&Row> = rows
        .iter()
        .filter(|row| matches!(row.state.as_str(), "home" | "away"))
        .collect();
    let row = if plan.focus.is_empty() {
        *random.pick(&movable)?
    } else {
        let mut groups: Vec<(u32, Vec<&Row>)> = Vec::new();
        for (word, count) in plan.focus.iter().zip(&moves.by_focus) {
            let group: Vec<&Row> = movable
                .iter()
                .copied()
                .filter(|row| row.command.contains(word))
                .collect();
            if !group.is_empty() {
                groups.push((*count, group));
            }
        }
        let fewest = groups.iter().map(|(count, _)| *count).min()?;
        let behind: Vec<_> = groups
            .iter()
            .filter(|(count, _)| *count == fewest)
            .collect();
        *random.pick(&random.clone().pick(&behind)?.1)?
    };
    let targets: Vec<String> = (1..=cluster.nodes())
        .map(|number| format!("n{number}"))
        .filter(|node| *node != row.place)
        .map(|node| {
            if node == row.home {
                "home".to_owned()
            } else {
                node
            }
        })
        .collect();
    Some((row.clone(), random.pick(&targets)?.clone()))
}

/// The text with each number as `#`, so that equal reasons are equal.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if !character.is_ascii_digit() {
            out.push(character);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reasons_are_counted_without_numbers() {
        assert_eq!(
            without_numbers("Process 4711 of n12 is gone"),
            "Process # of n# is gone"
        );
    }
}
