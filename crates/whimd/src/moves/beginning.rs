//! A process that `whim run` has begun is `whim` itself until it executes its program. Who asks for it at once, by the
//! number that a shell has told, means the program.

use std::time::{Duration, Instant};
use whim_machine::processes::{self, Caller, Stat};

use crate::line::probes::Patience;
use crate::moves::Moves;

/// A process of `whim` that has lived for longer is no beginning: it is a monitor, or waits for something else.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Waits while a process that this caller may see is a program of ours that may still become another one.
pub(crate) async fn begun(moves: &Moves, caller: &Caller, pid: i32) {
    let its = processes::credentials(pid);
    if !its.is_ok_and(|its| caller.may_see(its.uids[0])) {
        return;
    }
    let end = Instant::now() + BEGINS_WITHIN;
    while let Some(ours) = beginning(moves, pid) {
        // Its mappings are looked at no more until it executes something: many may wait.
        while is_still(&ours) {
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

/// Whether a process is a program of ours that may still become another one.
#[must_use]
pub(crate) fn is_beginning(moves: &Moves, pid: i32) -> bool {
    beginning(moves, pid).is_some()
}

fn beginning(moves: &Moves, pid: i32) -> Option<Stat> {
    let stat = processes::stat(pid).ok()?;
    let age = stat.age(processes::uptime()?);
    let programs = moves.programs();
    let is_ours = age < BEGINS_WITHIN.as_secs_f64()
        && programs.are_executed_by(moves.probes(), &stat, Patience::Long);
    is_ours.then_some(stat)
}

/// Whether it executes what it has executed then: another program has its code elsewhere.
fn is_still(ours: &Stat) -> bool {
    processes::stat(ours.pid)
        .is_ok_and(|now| (now.start_time, now.code) == (ours.start_time, ours.code))
}
