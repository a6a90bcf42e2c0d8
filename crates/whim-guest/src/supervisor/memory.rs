//! What is done when the guests of this host come near their memory limit.

use super::{Supervisor, SupervisorError};
use crate::limits::Verdict;
use std::time::Instant;
use whim_journey::lease::HEARTBEAT_MAX;
use whim_journey::message::ToHome;

impl Supervisor {
    /// Near the memory limit of this host's guests, one guest is stopped and goes home. Those of
    /// the others that grow meanwhile have to wait.
    pub(super) fn watch_memory(&mut self) -> Result<(), SupervisorError> {
        let Some(guest) = self.guest.as_mut().filter(|_| self.stay.is_valid()) else {
            return Ok(());
        };
        let now = Instant::now();
        if now < self.memory_due || guest.holds.move_away {
            return Ok(());
        }
        if guest.holds.memory {
            self.memory_due = now
                + self
                    .limits
                    .let_stop(guest.threads.len(), guest.is_stopping());
            return Ok(());
        }
        let look = self
            .limits
            .read(|| guest.status(guest.host_tid).resident, now);
        self.memory_due = now + look.again.min(HEARTBEAT_MAX);
        match look.verdict {
            Verdict::Leaves => {
                let reason = look.reason(&self.job.node);
                self.leave_for_memory(reason)
            }
            verdict => self.wait_for_memory(verdict == Verdict::Waits),
        }
    }

    fn leave_for_memory(&mut self, reason: String) -> Result<(), SupervisorError> {
        // From this, home checks whether it has room for what the guest uses.
        self.report()?;
        let Some(guest) = &mut self.guest else {
            return Ok(());
        };
        guest.holds.memory = true;
        guest.interrupt_all()?;
        self.limits.let_stop(guest.threads.len(), true);
        let tid = guest.pid;
        guest.say(ToHome::GoHome { tid, reason });
        Ok(())
    }

    fn wait_for_memory(&mut self, waits: bool) -> Result<(), SupervisorError> {
        let Some(guest) = self.guest.as_mut().filter(|g| g.holds.pressure != waits) else {
            return Ok(());
        };
        tracing::info!(waits, "other guests leave no memory");
        guest.holds.pressure = waits;
        Ok(guest.hold(waits)?)
    }
}
