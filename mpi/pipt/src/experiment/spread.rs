//! Independent processes, all started on the first node, which the cluster's balancer spreads.

use super::TOGETHER;
use super::error::ExperimentError;
use super::half::Setup;
use super::lab::Lab;
use super::record::{Kept, Look, Move, Process, Seen, Spread, Started, objects};
use super::watch::Program;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// It is looked so often who runs where.
const LOOKS: Duration = Duration::from_millis(700);
/// What the history is asked for: more than any experiment takes.
const SINCE: &str = "7d";

/// A routine, the batch file by which its process is known, and where its results go.
struct Asked {
    routine: String,
    job: PathBuf,
    to: PathBuf,
}

impl Setup<'_> {
    /// The routines in groups: those of a group are started at the same time, on the first node.
    ///
    /// # Errors
    ///
    /// One fails, or a signal has come.
    pub fn spread(&self, lab: &Lab, say: &dyn Fn(&str)) -> Result<Spread, ExperimentError> {
        let mut spread = Spread::default();
        let mut known = BTreeMap::new();
        for (number, routines) in self.asked.routines().chunks(TOGETHER).enumerate() {
            self.group(lab, (number, routines), &mut spread, &mut known)?;
            let seconds = spread.groups[number].seconds;
            say(&format!(
                "{} as processes that may move: {seconds:.1} s",
                routines.join(", ")
            ));
        }
        let home = &lab.nodes[0];
        let history = ["history", "--since", SINCE, "--json"];
        let said = lab.ask(home, &history, self.work, self.watch)?;
        spread.moves = moves(objects("whim history --json", &said)?, &known);
        Ok(spread)
    }

    fn group(
        &self,
        lab: &Lab,
        (number, routines): (usize, &[&str]),
        spread: &mut Spread,
        known: &mut BTreeMap<i64, String>,
    ) -> Result<(), ExperimentError> {
        let asked = routines.iter().map(|routine| {
            let (job, to) = self.job("moved", routine)?;
            let routine = (*routine).to_owned();
            Ok(Asked { routine, job, to })
        });
        let asked: Vec<Asked> = asked.collect::<Result<_, ExperimentError>>()?;
        let (begun, begin_ms) = (Instant::now(), now_ms());
        let mut programs = Vec::new();
        for one in &asked {
            let mut command = lab.on(&lab.nodes[0], &self.programs.whim);
            command.args(["run", "--"]).args(self.words(&one.job));
            let what = format!("{} as a process that may move", one.routine);
            programs.push(Program::start(command, &what, &one.to)?);
        }
        let mut next = begun;
        let mut seen = BTreeMap::new();
        let mut look = |at: Instant| {
            if at >= next {
                next = at + LOOKS;
                self.look(lab, (number, &asked), spread, &mut seen)?;
            }
            Ok(())
        };
        self.watch
            .finish(&mut programs, &mut || look(Instant::now()))?;
        let seconds = begun.elapsed().as_secs_f64();
        // Once more, for what has happened since, and for who was too quick.
        self.look(lab, (number, &asked), spread, &mut seen)?;
        for (one, program) in asked.iter().zip(&programs) {
            let said = program.printed()?;
            let run = self.run_of(&one.routine, (&said, program.seconds()), 1)?;
            let Some((pid, moves)) = seen.get(&one.routine).copied() else {
                let line = format!("nothing about {}", one.job.display());
                return Err(ExperimentError::Output("whim ps --all --json", line));
            };
            known.insert(pid, one.routine.clone());
            spread.processes.push(Process {
                routine: one.routine.clone(),
                pid,
                moves,
                begin_ms,
                seconds: run.seconds,
            });
            spread.runs.push(run);
        }
        let routines = asked.into_iter().map(|one| one.routine).collect();
        spread.groups.push(Started {
            routines,
            begin_ms,
            seconds,
        });
        Ok(())
    }

    /// Looks who runs where, and keeps each process's id and moves.
    fn look(
        &self,
        lab: &Lab,
        (group, asked): (usize, &[Asked]),
        spread: &mut Spread,
        seen: &mut BTreeMap<String, (i64, u64)>,
    ) -> Result<(), ExperimentError> {
        let words = ["ps", "--all", "--json"];
        let said = lab.ask(&lab.nodes[0], &words, self.work, self.watch)?;
        let mut places = Vec::new();
        for process in objects::<Seen>("whim ps --all --json", &said)? {
            let Some(one) = asked.iter().find(|one| is_of(&process.command, &one.job)) else {
                continue;
            };
            seen.insert(one.routine.clone(), (process.pid, process.moves));
            if process.state != "ended" {
                places.push((one.routine.clone(), process.place));
            }
        }
        if !places.is_empty() {
            places.sort();
            let time_ms = now_ms();
            spread.looks.push(Look {
                time_ms,
                group,
                places,
            });
        }
        Ok(())
    }
}

/// Whether a command's words have the batch file.
fn is_of(command: &str, job: &Path) -> bool {
    let job = job.to_string_lossy();
    command
        .split(&*job)
        .nth(1)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The moves of processes that are known by their ids, in their order, without those that failed.
fn moves(kept: Vec<Kept>, known: &BTreeMap<i64, String>) -> Vec<Move> {
    let moves = kept.into_iter().filter_map(|kept| match kept {
        Kept::Move(moved) if moved.outcome == "done" => {
            let routine = known.get(&moved.pid)?.clone();
            Some(Move {
                routine,
                pid: moved.pid,
                time_ms: moved.time_ms,
                from: moved.from,
                to: moved.to,
                cause: moved.cause,
                bytes: moved.bytes,
                freeze_ms: moved.freeze_ms,
                total_ms: moved.total_ms,
            })
        }
        _ => None,
    });
    let mut moves: Vec<Move> = moves.collect();
    moves.sort_by_key(|one| one.time_ms);
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::record::Moved;

    #[test]
    fn a_process_is_known_by_its_batch_file() {
        let job = Path::new("/tmp/w/moved-CoOccurMax.job");
        assert!(is_of(
            "pipt run /tmp/w/moved-CoOccurMax.job --threads 1",
            job
        ));
        assert!(is_of("pipt run /tmp/w/moved-CoOccurMax.job", job));
        assert!(!is_of("pipt run /tmp/w/moved-CoOccurMax.jobs", job));
        assert!(!is_of("pipt run /tmp/w/moved-CoOccurEnergy.job", job));
    }

    #[test]
    fn moves_are_those_of_our_processes_that_were_done() {
        let of = |pid: i64, time_ms: u64, outcome: &str| {
            Kept::Move(Moved {
                time_ms,
                pid,
                from: "n1".to_owned(),
                to: "n2".to_owned(),
                cause: "load".to_owned(),
                outcome: outcome.to_owned(),
                bytes: 1,
                freeze_ms: 1.0,
                total_ms: 2.0,
            })
        };
        let known = BTreeMap::from([(7, "CoOccurMax".to_owned())]);
        let kept = vec![
            of(7, 30, "done"),
            Kept::Sample {},
            of(8, 10, "done"),
            of(7, 20, "failed"),
            of(7, 10, "done"),
        ];
        let found = moves(kept, &known);
        let times: Vec<u64> = found.iter().map(|one| one.time_ms).collect();
        assert_eq!(times, [10, 30]);
        assert_eq!(found[0].routine, "CoOccurMax");
    }
}
