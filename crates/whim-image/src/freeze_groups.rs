//! Waiting for threads of a stopped process whose control group is frozen meanwhile.
//!
//! Version 2 lets a frozen thread stop for its tracer, but executes nothing in it; version 1 does
//! neither, once the thread has frozen. Before a process has left, a frozen group ends the attempt:
//! threads that stop get their own registers back, and the others undo by themselves what was
//! changed, when they are thawed. Later there is no way back, and we wait.

use crate::freeze::{FreezeError, Frozen};
use std::time::{Duration, Instant};
use whim_sys::freezer::Freezers;
use whim_sys::ptrace::{Polled, Running, Stop, Stopped, TraceError, Waited};
use whim_sys::pulse;

/// A thread that has not done our work by then may be in a frozen group.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A thread in a frozen group that has not stopped by then does not stop before it is thawed.
const STOPS_WITHIN: Duration = Duration::from_millis(300);

/// What our waits do about a frozen group.
#[derive(Debug)]
pub(crate) struct Groups {
    pid: i32,
    freezers: Freezers,
    /// They go on until it is thawed.
    outlasts: bool,
}

/// One wait. The time in which a frozen group is outlasted does not count.
#[derive(Debug)]
pub(crate) struct Waiting {
    begun: Instant,
    looked: Instant,
}

impl Waiting {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
        }
    }
}

impl Groups {
    pub(crate) fn new(pid: i32, freezers: Freezers, outlasts: bool) -> Self {
        Self {
            pid,
            freezers,
            outlasts,
        }
    }

    /// Whether a frozen group is being outlasted.
    ///
    /// # Errors
    /// [`FreezeError::GroupFrozen`], if it is not to be outlasted.
    fn look(&mut self) -> Result<bool, FreezeError> {
        let frozen = self.frozen();
        pulse::hold(frozen.is_some() && self.outlasts);
        match frozen {
            Some(_) if self.outlasts => Ok(true),
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    fn frozen(&mut self) -> Option<FreezeError> {
        let pid = self.pid;
        let group = self.freezers.frozen()?;
        Some(FreezeError::GroupFrozen { pid, group })
    }

    /// Whether a wait takes longer than it may.
    ///
    /// # Errors
    /// [`FreezeError::GroupFrozen`], unless that is outlasted.
    pub(crate) fn is_late(
        &mut self,
        waiting: &mut Waiting,
        limit: Duration,
    ) -> Result<bool, FreezeError> {
        if waiting.looked.elapsed() < LOOK_EVERY {
            return Ok(false);
        }
        waiting.looked = Instant::now();
        if self.look()? {
            waiting.begun = Instant::now();
        }
        Ok(waiting.begun.elapsed() > limit)
    }

    /// Says of a process that does not stop that its group is frozen, if that is so.
    pub(crate) fn explain(&mut self, error: FreezeError) -> FreezeError {
        match error {
            FreezeError::Busy { .. } => self.frozen().unwrap_or(error),
            other => other,
        }
    }
}

/// How a wait for a thread has ended.
#[derive(Debug)]
pub(crate) enum Awaited {
    Event(Waited),
    /// The group is frozen, and the thread goes on with what it was told to do when it is thawed.
    Frozen(Running, FreezeError),
}

impl Frozen {
    /// Sets whether what is begun in the process from now on is carried through: a frozen group is waited for
    /// (`true`), or ends the attempt (`false`, with which a freeze begins).
    pub fn outlast_frozen_groups(&mut self, on: bool) {
        self.groups.outlasts = on;
    }

    /// [`FreezeError::GroupFrozen`] if the process's group is frozen now: nothing could be done in it.
    ///
    /// # Errors
    /// As it says.
    pub fn check_groups(&mut self) -> Result<(), FreezeError> {
        self.groups.frozen().map_or(Ok(()), Err)
    }

    /// The next event of a thread.
    pub(crate) fn await_event(&mut self, mut running: Running) -> Result<Awaited, FreezeError> {
        loop {
            running = match running.wait_gently_for(LOOK_EVERY)? {
                Polled::Event(event) => return Ok(Awaited::Event(event)),
                Polled::Still(running) => running,
            };
            // Trap: a-group-freezes-in-the-midst-of-a-move
            if let Err(error) = self.groups.look() {
                return Ok(Awaited::Frozen(running, error));
            }
        }
    }

    /// Waits for the stop that an interruption causes, passing on what cannot be blocked (SIGSTOP).
    pub(crate) fn await_interrupt(&mut self, mut running: Running) -> Result<Stopped, FreezeError> {
        let begun = Instant::now();
        loop {
            let stopped = match self.await_event(running)? {
                Awaited::Event(Waited::Stopped(stopped)) => stopped,
                Awaited::Event(_) => return Err(TraceError::Died.into()),
                Awaited::Frozen(still, _) if begun.elapsed() < STOPS_WITHIN => {
                    running = still;
                    continue;
                }
                Awaited::Frozen(_, error) => return Err(error),
            };
            let signal = match stopped.stop() {
                Stop::Interrupt => return Ok(stopped),
                Stop::Signal(signal) => signal,
                _ => 0,
            };
            stopped.interrupt()?;
            running = stopped.resume(signal)?;
        }
    }

    /// Stops a thread of a frozen group that has been told to do something and cannot. If it does not
    /// stop, it undoes that by itself when it is thawed.
    pub(crate) fn recall(&mut self, index: usize, running: Running) -> Result<(), FreezeError> {
        running.interrupt()?;
        match self.await_interrupt(running) {
            Ok(stopped) => self.threads[index].stopped = Some(stopped),
            Err(FreezeError::GroupFrozen { .. }) => self.escaped = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
