//! Waits under a mask of their own (ppoll and its kin), for which a signal waits already that the mask lets through.

use crate::guest::{Forwarded, Guest};

impl Guest {
    /// Whether a signal waits that acts on a call with this mask. It need not have a handler, unless the call is made
    /// `again`, after one that has been dropped.
    pub(crate) fn is_due(&self, host_tid: i32, mask: u64, again: bool) -> bool {
        self.has_deliverable(host_tid, Some(mask)) || !again && self.has_let_through(host_tid, mask)
    }

    /// Whether home's answer that nothing was ready is not to be told, since a signal waits that interrupts the call.
    pub(crate) fn is_due_behind(&self, host_tid: i32, forwarded: &Forwarded) -> bool {
        let mask = forwarded.wait_mask.filter(|_| !forwarded.is_quick);
        mask.is_some_and(|mask| self.is_due(host_tid, mask, false))
    }
}
