//! Reasons to stay that lie in a program's own seccomp filters.

use crate::freeze_observe::Status;
use crate::stay::{Policy, StayReason};
use thiserror::Error;
use whim_calls::judge::Unfit;

/// `Seccomp` in /proc/PID/status: read, write, exit and sigreturn are all that is allowed.
pub(crate) const STRICT: u32 = 1;

/// Why a program with filters stays, as a sentence for users.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FilterReason {
    #[error("It has installed a seccomp filter of its own, which root's daemon alone can read")]
    OfRoot,
    #[error("It is in seccomp's strict mode")]
    Strict,
    #[error("Its seccomp filter {}", .0.why())]
    Unfit(Unfit),
    #[error("Its seccomp filter does not allow {0}, which it would have to make while it is away")]
    Refuses(&'static str),
    #[error("Its threads have different seccomp filters")]
    Differ,
    #[error("Its seccomp filter cannot be read: the kernel shows none")]
    Hidden,
    #[error("Its seccomp filter cannot be read: {0}")]
    Unreadable(whim_sys::ptrace::TraceError),
}

/// The reason of one thread, as far as /proc tells it.
pub(crate) fn reason(thread: &Status, policy: &Policy) -> Option<StayReason> {
    let reason = match thread.seccomp {
        0 => return None,
        STRICT => FilterReason::Strict,
        _ if policy.filters => return None,
        _ => FilterReason::OfRoot,
    };
    Some(reason.into())
}
