//! Signals that descriptors of the program read (signalfd). The descriptors are at home, and signals that wait to be
//! read are there, too: each thread of the deputy blocks the signals that its thread here blocks, so that home's kernel
//! keeps them for the next read. Neither may change while the program is away.

use crate::error::GuestError;
use crate::guest::Guest;
use crate::signals::bit;
use whim_calls::{MaskChange, Signal};
use whim_sys::seccomp::Response;

/// Why a program comes home that is to block other ones of these signals.
const OTHER_MASK: &str = "under its mask other ones wait of the signals that a descriptor reads";

impl Guest {
    /// Takes the program home if the thread would block other ones of these signals under this mask than it does now;
    /// whether it does.
    pub(crate) fn goes_home_for(&mut self, host_tid: i32, mask: Option<u64>) -> bool {
        let read = self.context.descriptor_signals;
        let goes = mask
            .is_some_and(|mask| read != 0 && (self.status(host_tid).blocked ^ mask) & read != 0);
        if goes {
            self.go_home(host_tid, OTHER_MASK);
        }
        goes
    }

    /// A thread is to have another mask.
    pub(crate) fn change_mask(
        &mut self,
        host_tid: i32,
        change: MaskChange,
    ) -> Result<(), GuestError> {
        let mask = change.of(self.status(host_tid).blocked);
        if self.goes_home_for(host_tid, Some(mask)) {
            return Ok(());
        }
        self.respond(host_tid, Response::Continue)
    }

    /// Whether a signal that the program sends to itself would wait where a descriptor of its reads it.
    pub(crate) fn waits_at_home(&mut self, signal: &Signal) -> bool {
        let bit = bit(signal.signal);
        if self.context.descriptor_signals & bit == 0 {
            return false;
        }
        match signal.tid {
            Some(tid) => {
                let target = self.thread_of(tid).map(|thread| thread.host_tid);
                target.is_some_and(|host_tid| self.blocked(host_tid) & bit != 0)
            }
            None => self.chosen(signal.signal).is_none(),
        }
    }
}
