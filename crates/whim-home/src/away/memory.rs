//! Whether home has room for what the process has grown to while it was away.
//!
//! If the process does not fit the memory that home's control groups leave to it, home's kernel would kill it
//! in the middle of its return, when there is no way back. So that is found out before the guest is frozen: a
//! client that asks for the return is refused, and a return that the guest itself needs waits until there is
//! room.
//!
//! How many mappings the process has by now is known only from its image. If home's kernel does not allow so
//! many, that is found out before anything is changed here, and the guest goes on where it is.

use super::Away;
use crate::client::Client;
use crate::moving::{Homeward, Transition};
use crate::room;
use anyhow::Result;
use std::time::{Duration, Instant};
use whim_journey::message::ToGuest;
use whim_sys::cgroup::MemoryRoom;
use whim_sys::freezer::sentence as sentence_of;

/// How long a process that has too many mappings is believed to have them still, unless a client asks for its
/// return. To find out, it has to be frozen and sent.
const EXCESS_HOLDS: Duration = Duration::from_secs(60);

/// Page tables and the like: a part of the whole, and something for each process.
const OVERHEAD_SHARE: u64 = 256;
const OVERHEAD_MIN: u64 = 4 << 20;

/// The sentence about what does not fit; `limit` is the limit of a control group, if there is one.
fn sentence(needed: u64, left: u64, limit: Option<u64>) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let (needed, left) = (needed.div_ceil(1 << 20), mib(left));
    match limit {
        Some(limit) => format!(
            "Home has no room for the {needed} MiB that it has now: the memory limit of its control group there, {} MiB, leaves {left} MiB; raise that limit",
            mib(limit)
        ),
        None => format!(
            "Home has no room for the {needed} MiB that it has now: {left} MiB of memory are free there"
        ),
    }
}

impl Away {
    /// Why the process cannot come home now, as far as that is known before it is frozen.
    pub(super) fn lack_of_room(&self, room: &MemoryRoom, is_asked: bool) -> Option<String> {
        let fresh = self
            .excess
            .filter(|(since, _)| !is_asked && since.elapsed() < EXCESS_HOLDS);
        self.lack_of_memory(room)
            .or_else(|| room::lack_of_mappings(fresh?.1))
    }

    /// Gives up a return whose image is here, because home does not allow so many mappings, or cannot work in
    /// the deputy. A guest that has sent everything waits for our answer, and goes on.
    pub(super) fn not_taken(&mut self) -> Result<()> {
        let Some(Transition::Homeward(homeward)) = self.transition.take() else {
            return Ok(());
        };
        let was_frozen = homeward.frozen().is_some();
        match homeward.frozen() {
            Some(group) => {
                let lack = sentence_of(group);
                self.return_failed(&lack);
                match homeward.client {
                    Some(mut client) => client.refuse(lack),
                    // It begins anew when the group is thawed.
                    None => self.wants_home = Some(homeward.reason),
                }
            }
            None => self.has_excess(*homeward),
        }
        self.say_unsaid()?;
        self.connections.queue(&ToGuest::Resume, &[])?;
        self.release_held();
        // A freeze may be over before we have looked for it.
        if was_frozen && !self.stands_still()? {
            self.do_what_waited()?;
        }
        Ok(())
    }

    fn has_excess(&mut self, homeward: Homeward) {
        let needed = homeward.excess().unwrap_or(0);
        self.excess = Some((Instant::now(), needed));
        let lack = room::lack_of_mappings(needed).unwrap_or_else(|| "Its return failed".into());
        self.return_failed(&lack);
        self.stay_away(homeward.client, homeward.reason, lack);
    }

    /// Why the process cannot come home now, if its memory is the reason. The guest's pages of unchanged
    /// files are counted, although they do not travel, because it is known only when the guest is frozen
    /// which of them have changed.
    fn lack_of_memory(&self, room: &MemoryRoom) -> Option<String> {
        let bytes = self.resident_bytes;
        let needed = bytes.saturating_add(OVERHEAD_MIN + bytes / OVERHEAD_SHARE);
        (bytes > 0 && needed > room.left).then(|| sentence(needed, room.left, room.limit))
    }

    /// Refuses the client that has asked, if there is one. A return that the guest itself wants is tried
    /// again later.
    pub(super) fn stay_away(&mut self, client: Option<Client>, reason: String, lack: String) {
        if let Some(mut client) = client {
            client.refuse(lack);
            return;
        }
        if self.lacks_memory.is_none() {
            tracing::warn!("It is to come home, and waits ({reason}): {lack}");
        }
        self.lacks_memory = Some(format!("It waits to come home ({reason}). {lack}"));
        self.wants_home = Some(reason);
    }

    pub(super) fn try_home_again(&mut self) -> Result<()> {
        let again = self.lacks_memory.is_some() || self.recall.is_removed();
        if self.transition.is_none()
            && again
            && let Some(reason) = self.wants_home.take()
        {
            self.begin_homeward(None, reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_says_what_is_missing() {
        let text = sentence(200 << 20, 50 << 20, Some(100 << 20));
        assert!(
            text.contains("200 MiB") && text.contains("100 MiB, leaves 50 MiB"),
            "{text}"
        );
        assert!(sentence(1, 0, None).contains("the 1 MiB that"));
    }
}
