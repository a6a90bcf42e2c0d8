//! A process that `whim run` has begun is `whim` itself until it executes its program. Who asks for it at once, by the
//! number that a shell has told, means the program.

use std::time::{Duration, Instant};
use whim_machine::processes;

use crate::line::probes::Patience;
use crate::moves::Moves;

/// A process of `whim` that has lived for longer is no beginning: it is a monitor, or waits for something else.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Waits while a process [`is_beginning`].
pub(crate) async fn begun(moves: &Moves, pid: i32) {
    let end = Instant::now() + BEGINS_WITHIN;
    while is_beginning(moves, pid) && Instant::now() < end {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Whether a process is a program of ours that may still become another one.
#[must_use]
pub(crate) fn is_beginning(moves: &Moves, pid: i32) -> bool {
    let (Ok(stat), Some(uptime)) = (processes::stat(pid), processes::uptime()) else {
        return false;
    };
    let programs = moves.programs();
    stat.age(uptime) < BEGINS_WITHIN.as_secs_f64()
        && programs.are_executed_by(moves.probes(), &stat, Patience::Long)
}
