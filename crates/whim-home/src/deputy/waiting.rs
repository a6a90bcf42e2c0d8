//! Waiting for the deputy's threads, which a frozen control group keeps from running for as long as
//! it likes.

use super::{Deputy, DeputyError};
use crate::company::Company;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use whim_sys::pulse;

/// A thread that has not done our work by then may be in a frozen group.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long we sleep between two looks at a frozen group.
const FROZEN_SLEEP: Duration = Duration::from_millis(10);

/// One wait for a thread of the deputy. The time in which its group is frozen does not count.
#[derive(Debug)]
pub(crate) struct Waiting {
    begun: Instant,
    looked: Instant,
}

impl Waiting {
    #[must_use]
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            looked: now,
        }
    }
}

impl Deputy {
    /// The directory of the control group whose freeze holds the deputy now.
    #[must_use]
    pub(crate) fn frozen_group(&mut self) -> Option<PathBuf> {
        self.freezers.frozen()
    }

    /// To be called again and again while a thread is waited for: whether that takes longer than it
    /// may. Meanwhile the host is kept company, because it would take our silence for our end; the time
    /// in which the group is frozen does not count.
    ///
    /// # Errors
    /// The host breaks the protocol.
    pub(crate) fn is_late(
        &mut self,
        waiting: &mut Waiting,
        limit: Duration,
    ) -> Result<bool, DeputyError> {
        if waiting.looked.elapsed() < LOOK_EVERY {
            return Ok(false);
        }
        // Trap: a-frozen-group-looks-like-a-lost-thread
        let frozen = self.freezers.frozen().is_some();
        pulse::hold(frozen);
        let begun = Instant::now();
        if let Some(company) = &mut self.company {
            company.keep(frozen)?;
        }
        if !frozen {
            waiting.looked = begun;
            return Ok(waiting.begun.elapsed() > limit);
        }
        waiting.begun = begun;
        std::thread::sleep(FROZEN_SLEEP);
        self.held += begun.elapsed();
        Ok(false)
    }

    /// Who is to be kept company while a thread is waited for.
    pub(crate) fn accompany(&mut self, company: Box<Company>) {
        self.company = Some(company);
    }

    /// For how long our waits met a frozen group since this was asked last.
    pub(crate) fn take_held(&mut self) -> Duration {
        std::mem::take(&mut self.held)
    }

    /// Ends [`accompany`](Self::accompany).
    pub(crate) fn part(&mut self) -> Option<Box<Company>> {
        self.company.take()
    }
}
