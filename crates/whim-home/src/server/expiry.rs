//! Calls whose time the supervisor has to measure, because a stop has cut their wait in two.

use super::{Active, ServeError, Server};
use std::time::Duration;
use whim_image::freeze_calls;
use whim_image::freeze_observe::monotonic_ns;

impl Server {
    /// When the time of a call with a relative timeout is over.
    pub(super) fn deadline(&self, active: &Active) -> Option<u64> {
        if active.deadline_ns.is_some() {
            return active.deadline_ns;
        }
        let pid = self.deputy.pid();
        let (_, total) = freeze_calls::relative_timeout(pid, active.number, &active.args)?;
        let passed = u64::try_from(active.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Some((monotonic_ns() + total).saturating_sub(passed))
    }

    /// Cuts off calls whose time is over. For a timeout in memory or of a socket, the kernel would
    /// otherwise wait for the whole of it once more.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn expire(&mut self) -> Result<(), ServeError> {
        let now = monotonic_ns();
        for seat in 0..self.callers.len() {
            if let Some(active) = &mut self.callers[seat].active
                && !active.expired
                && active.deadline_ns.is_some_and(|deadline| deadline <= now)
            {
                active.expired = true;
                self.deputy.cancel(seat)?;
            }
        }
        Ok(())
    }

    /// How long it takes until the next call expires.
    #[must_use]
    pub fn until_expiry(&self) -> Duration {
        let active = self.callers.iter().filter_map(|c| c.active.as_ref());
        let pending = active.filter(|active| !active.expired);
        let next = pending.filter_map(|active| active.deadline_ns).min();
        next.map_or(Duration::MAX, |next| {
            Duration::from_nanos(next.saturating_sub(monotonic_ns()))
        })
    }

    /// Interrupts every call in flight, for a move that the program is not to notice.
    ///
    /// # Errors
    /// Tracing failed.
    pub fn interrupt_all(&mut self) -> Result<(), ServeError> {
        for seat in self.active_seats() {
            if let Some(active) = &mut self.callers[seat].active {
                active.disturbed = true;
            }
            self.deputy.cancel(seat)?;
        }
        Ok(())
    }
}
