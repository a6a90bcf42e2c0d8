//! What is particular to the first process of a pid namespace.

use super::Deputy;
use whim_sys::ptrace::RawSigInfo;

impl Deputy {
    /// Whether the kernel would have ignored this SIGSTOP if nobody traced the process: the first process
    /// of a pid namespace is stopped from outside of it alone. For a sender out there the kernel says 0.
    pub(super) fn is_immune(&self, info: &RawSigInfo) -> bool {
        const FIRST: i32 = 1;
        const AT_PID: usize = 16;
        let is_first = self.own_pid.number() == FIRST && self.pid != FIRST;
        is_first && info[AT_PID..AT_PID + 4] != [0; 4]
    }
}
