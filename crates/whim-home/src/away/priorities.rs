//! The threads' shares of the CPU. The deputy has them, whichever process changes them, and the
//! host is told of each share that has changed.

use super::Away;
use anyhow::Result;
use std::collections::HashMap;
use whim_journey::message::ToGuest;
use whim_sys::priority::{self, Priority};

impl Away {
    /// Tells the host which shares have changed since it was told last.
    pub(super) fn tell_priorities(&mut self) -> Result<()> {
        if self.transition.is_some() {
            // There may be no guest to be told.
            return Ok(());
        }
        self.server.priorities_changed = false;
        // At a new host every thread has the default share.
        let is_new = self.connections.told.is_empty();
        let deputy = &self.server.deputy;
        let seats = 0..deputy.thread_count();
        // Threads that are gone are left out, because another thread may get the number.
        let now: HashMap<i32, Priority> = seats
            .filter_map(|seat| {
                let share = priority::of(deputy.traced_as(seat)).ok()?;
                Some((deputy.own_of(seat).number(), share))
            })
            .collect();
        let told = std::mem::replace(&mut self.connections.told, now.clone());
        for (tid, share) in now {
            let before = told.get(&tid).copied();
            if before.or(is_new.then_some(Priority::default())) == Some(share) {
                continue;
            }
            let Priority { policy, nice } = share;
            let message = ToGuest::Priority { tid, policy, nice };
            self.connections.queue(&message, &[])?;
        }
        Ok(())
    }
}
