//! A process whose control group at home is frozen (`docker pause`, `systemctl freeze`): it stands still,
//! wherever it computes.
//!
//! The guest is told, and holds its threads until the group is thawed. The supervisor is in another group, so
//! its heartbeats go on, and the lease does not run. A deputy that is frozen executes nothing: what is asked
//! of it has to wait. So it does not come home meanwhile, and does not move on, and who asks for that is told
//! so at once.

use super::Away;
use crate::server::Outgoing;
use anyhow::Result;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use whim_image::stay::StayReason;
use whim_journey::message::ToGuest;
use whim_journey::recall::Event as RecallEvent;
use whim_sys::freezer::sentence;

/// How often the deputy's groups are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is known of the deputy's control group.
#[derive(Debug)]
pub(super) struct Group {
    looked: Instant,
    frozen: Option<PathBuf>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            looked: Instant::now(),
            frozen: None,
        }
    }
}

impl Away {
    /// Does work in which the deputy may be waited for. The host is kept company meanwhile, so this must
    /// not use the connections.
    pub(super) fn accompanied<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        if let Some(company) = self.connections.lend() {
            self.server.deputy.accompany(company);
        }
        let done = work(self);
        let company = self.server.deputy.part();
        self.connections.give_back(company);
        let duration = self.server.deputy.take_held();
        if !duration.is_zero() {
            self.recall(RecallEvent::Held { duration });
        }
        done
    }

    /// Looks whether the deputy's group is frozen, when it is time.
    pub(super) fn watch_group(&mut self) -> Result<()> {
        // The guest was told to stand still while we waited for the deputy, which is over.
        let over = self.connections.is_told_frozen() && self.group.frozen.is_none();
        if self.until_group_is_watched().is_zero() || over {
            self.look_at_group()?;
        }
        Ok(())
    }

    /// Looks whether the deputy's group is frozen, and tells the guest if that has changed.
    pub(super) fn look_at_group(&mut self) -> Result<()> {
        self.group.looked = Instant::now();
        let frozen = self.server.deputy.frozen_group();
        let is = frozen.is_some();
        let was = self.group.frozen.is_some();
        self.group.frozen = frozen;
        // Trap: a-frozen-group-leaves-its-guest-running
        if self.connections.told_frozen(is) != is {
            tracing::info!(frozen = is, "the control group at home");
            let message = ToGuest::Frozen { frozen: is };
            let tail = Vec::new();
            self.server.outgoing.push(Outgoing { message, tail });
        }
        if was && !is {
            return self.do_what_waited();
        }
        Ok(())
    }

    /// Whether the group is frozen at this moment.
    pub(super) fn stands_still(&mut self) -> Result<bool> {
        self.look_at_group()?;
        Ok(self.group.frozen.is_some())
    }

    /// Why the process stands still, if its group was frozen when that was last looked at.
    pub(super) fn standstill(&self) -> Option<String> {
        self.group.frozen.as_deref().map(sentence)
    }

    /// Why a move or a return is refused while the process stands still, in the words in which it is refused at home.
    pub(super) fn stays(&self) -> Option<String> {
        let stopped = self.stopped.then(|| StayReason::Stopped.to_string());
        stopped.or_else(|| self.standstill())
    }

    pub(super) fn until_group_is_watched(&self) -> Duration {
        LOOK_EVERY.saturating_sub(self.group.looked.elapsed())
    }
}
