//! Signals whose handlers begin before a process leaves.
//!
//! A stop comes before the delivery of what waits. A thread that has sent a signal to its own process would be taken
//! away behind its call with the signal still on its way, and would run on there until home has passed it on: the
//! kernel has its handler run before the call returns. SIGCONT makes that likely, since its sending is a stop by itself
//! for a thread that is traced. So the kernel at home delivers what can be delivered.

use crate::freeze_observe::Status;
use std::time::{Duration, Instant};
use whim_sys::ptrace::{Running, Stopped, TraceError};

/// A signal that is not delivered within this has been taken by another thread.
const WITHIN: Duration = Duration::from_millis(2);
/// So many signals are awaited for one thread: others may come as fast as they are handled.
const MOST: u32 = 4;

/// What is still to be delivered to a thread that is to stop.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    awaited: u32,
    since: Option<Instant>,
}

impl Delivery {
    /// Whether a stopped thread is to go on, because a signal that it handles would be delivered now. If so, it is awaited
    /// from now on.
    pub(crate) fn is_due(&mut self, pid: i32, stopped: &Stopped) -> Result<bool, TraceError> {
        // Most have none, and the status takes longer.
        let waits = stopped.has_queued(true)? || stopped.has_queued(false)?;
        if !waits || self.awaited >= MOST {
            return Ok(false);
        }
        let Ok(status) = Status::read(pid, stopped.tid()) else {
            return Err(TraceError::Died);
        };
        if status.all_pending() & status.caught & !status.blocked == 0 {
            return Ok(false);
        }
        self.awaited += 1;
        self.since = Some(Instant::now());
        Ok(true)
    }

    /// A thread runs. It is stopped again if no delivery has come.
    pub(crate) fn awaited(&mut self, running: Running) -> Result<Running, TraceError> {
        if self.since.is_some_and(|since| since.elapsed() > WITHIN) {
            self.since = None;
            match running.interrupt() {
                Ok(()) | Err(TraceError::Died) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(running)
    }

    /// It has come.
    pub(crate) fn came(&mut self) {
        self.since = None;
    }
}
