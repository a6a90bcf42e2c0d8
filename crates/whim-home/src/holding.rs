//! Threads that their tracer holds until a call ends, so that a stop stays invisible.

use std::time::Duration;
use whim_image::freeze::FreezeError;
use whim_image::freeze_release::{Held, Progress};

/// Longest sleep between two polls; a command may come meanwhile.
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

    /// Handles what the kernel reports, and cuts off calls whose time is over.
    ///
    /// # Errors
    /// Tracing failed. The threads go on, but a call of one of them may end late.
    pub fn attend(&mut self) -> Result<(), FreezeError> {
        let mut failed = None;
        for held in self.take() {
            match held.poll() {
                Ok(Progress::Held(held)) => self.held.push(held),
                Ok(Progress::Over) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The longest time until [`attend`](Self::attend) has to be called again.
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
