//! Threads that their tracer holds until a call ends, so that a stop stays invisible.

use std::time::Duration;
use whim_image::freeze::FreezeError;
use whim_image::freeze_release::{Held, Progress};
use whim_sys::ptrace;

/// Longest sleep between two looks; a command may come meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// All held threads of one process.
#[derive(Debug, Default)]
pub struct Holding {
    held: Vec<Held>,
}

impl Holding {
    #[must_use]
    pub fn new(held: Vec<Held>) -> Self {
        Self { held }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes what the kernel reports, and cuts off calls whose time is over.
    ///
    /// # Errors
    /// Tracing failed; the threads go on, a call of theirs may end late.
    pub fn look(&mut self) -> Result<(), FreezeError> {
        while let Some((tid, status)) = ptrace::wait_any_nonblocking()? {
            let Some(at) = self.held.iter().position(|held| held.tid() == tid) else {
                continue;
            };
            let held = self.held.swap_remove(at);
            if let Progress::Held(held) = held.handle(status)? {
                self.held.push(held);
            }
        }
        let now = crate::link::clocks().monotonic_ns;
        for held in &mut self.held {
            if held.deadline_ns() <= now {
                held.expire()?;
            }
        }
        Ok(())
    }

    /// How long nothing has to be done, at most.
    #[must_use]
    pub fn patience(&self) -> Duration {
        LOOK
    }

    /// Hands the threads over to another freeze.
    #[must_use]
    pub fn take(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }
}
