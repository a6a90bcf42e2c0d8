//! Signals of a guest that is the first process of its pid namespace.
//!
//! The kernel keeps from such a process whatever its namespace sends it and it does not handle. The guest is
//! the first process of a namespace here, too (`sandbox::first`), but it is traced, and a traced process that
//! its kernel protects is not even ended by its own faults: it would make the same fault for ever. So a fault
//! goes home, where nobody traces the process, and where it makes the fault once more.

use crate::guest::Guest;
use crate::signals::Effect;
use whim_sys::ptrace::{RawSigInfo, info_word};

/// The number of a namespace's first process.
const NUMBER: i32 = 1;

impl Guest {
    pub(crate) fn is_first(&self) -> bool {
        self.pid == NUMBER
    }

    /// What a signal does that is about to be delivered with this siginfo.
    pub(crate) fn effect_of(&self, signal: i32, info: &RawSigInfo) -> Effect {
        let effect = self.effect(signal);
        // Trap: the-first-process-of-a-namespace
        if effect == Effect::Nothing && self.is_first() && is_fault(info) {
            return Effect::Ends;
        }
        effect
    }
}

/// Whether the kernel has sent the signal for what the thread itself has done.
pub(crate) fn is_fault(info: &RawSigInfo) -> bool {
    let by_kernel = info_word(info, 8) > 0;
    by_kernel
        && matches!(
            info_word(info, 0),
            libc::SIGSEGV
                | libc::SIGBUS
                | libc::SIGFPE
                | libc::SIGILL
                | libc::SIGTRAP
                | libc::SIGSYS
        )
}
