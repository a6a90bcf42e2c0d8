//! Calls that concern signals which descriptors of the program read (signalfd). Those of them that a thread blocks
//! wait at home, where the descriptor finds them. What takes them without it, asks for them, or lets them through
//! is done at home.
//!
//! Without such a descriptor these calls run in the guest, and are not trapped.

use crate::builder::{Builder, Flow, go_home, run_here, special};
use crate::types::{MaskChange, Special, word};

/// Trapped where descriptors read signals.
pub(crate) const TRAPPED: [i64; 4] = [
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
];

/// The kernel's set of signals.
const LENGTH: u64 = 8;

/// The set of signals at an argument; none if the kernel refuses it.
fn set(builder: &Builder<'_>, pointer: usize, size: usize) -> Option<u64> {
    let bytes = builder.peek(builder.value(pointer), LENGTH);
    let sound = builder.value(size) == LENGTH && bytes.len() == 8;
    sound.then(|| word(&bytes, 0))
}

pub(crate) fn rt_sigprocmask(builder: &mut Builder<'_>) -> Flow {
    let how = builder.int(0);
    let read = builder.context.descriptor_signals;
    if read == 0 || builder.value(1) == 0 {
        return run_here();
    }
    match set(builder, 1, 3) {
        Some(set) if how == libc::SIG_SETMASK || set & read != 0 => {
            special(Special::SignalMask(MaskChange { how, set }))
        }
        _ => run_here(),
    }
}

pub(crate) fn rt_sigsuspend(builder: &mut Builder<'_>) -> Flow {
    if builder.context.descriptor_signals == 0 {
        return run_here();
    }
    let how = libc::SIG_SETMASK;
    match set(builder, 0, 1) {
        Some(set) => special(Special::SignalMask(MaskChange { how, set })),
        None => run_here(),
    }
}

pub(crate) fn rt_sigtimedwait(builder: &mut Builder<'_>) -> Flow {
    let read = builder.context.descriptor_signals;
    match set(builder, 0, 3) {
        Some(set) if set & read != 0 => {
            go_home("it waits for a signal that a descriptor reads, too")
        }
        _ => run_here(),
    }
}

pub(crate) fn rt_sigpending(builder: &mut Builder<'_>) -> Flow {
    if builder.context.descriptor_signals != 0 {
        return go_home("signals that a descriptor reads wait at home");
    }
    run_here()
}
