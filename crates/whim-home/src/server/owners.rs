//! Signals that descriptors send (O_ASYNC): some are for one thread alone.

use std::fs;
use std::path::Path;
use whim_sys::foreign;
use whim_sys::ptrace::{RawSigInfo, Tid, info_word};

/// The most descriptors that are asked whose signals they send, where a signal does not name its own.
const ASKED_MAX: usize = 256;
const SI_KERNEL: i32 = 0x80;
/// In the place of the reason, where signals of this number have reasons of their own.
const SI_SIGIO: i32 = -5;
/// Why a descriptor has sent a signal of its program's choice (F_SETSIG): POLL_IN to POLL_HUP.
const REASONS: std::ops::RangeInclusive<i32> = 1..=6;

/// Whether a descriptor of process `pid` has sent this signal, which has come to thread `tid`, to that thread alone. Both
/// numbers are those of our own pid namespace.
pub(super) fn sent_to_thread(pid: i32, tid: Tid, info: &RawSigInfo) -> bool {
    let sends = |fd| foreign::signalled_thread(pid, fd) == Ok(Some(tid));
    match (info_word(info, 0), info_word(info, 8)) {
        (_, SI_SIGIO) => sends(info_word(info, 24)),
        (signal, code) if REASONS.contains(&code) && !has_reasons(signal) => {
            sends(info_word(info, 24))
        }
        (libc::SIGIO | libc::SIGURG, SI_KERNEL) => senders(pid).into_iter().any(sends),
        _ => false,
    }
}

/// Whether the kernel gives signals of this number reasons of their own.
fn has_reasons(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGILL
            | libc::SIGFPE
            | libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGTRAP
            | libc::SIGCHLD
            | libc::SIGSYS
    )
}

/// Descriptors that may send signals. Files do not, and to close a copy of one may take as long as its server likes.
fn senders(pid: i32) -> Vec<i32> {
    let sends = |link: &Path| {
        let link = link.to_string_lossy();
        ["socket:", "pipe:", "/dev/"]
            .iter()
            .any(|kind| link.starts_with(kind))
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let open = entries
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| sends(&link)));
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.take(ASKED_MAX).collect()
}
