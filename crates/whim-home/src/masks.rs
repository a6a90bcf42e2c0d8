//! Signal masks that act in the deputy while it executes a call.

use crate::deputy::Deputy;
use whim_model::Syscall;
use whim_sys::resident::DATA_LENGTH;

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The part of a mask that may act in the deputy. The kernel looks at SIGTTIN and SIGTTOU when a
/// process in the background uses the terminal. No other signal may be kept from its tracer, but those that
/// wait for a descriptor of the program.
#[must_use]
pub(crate) fn job_control(mask: u64) -> u64 {
    mask & (bit(libc::SIGTTIN) | bit(libc::SIGTTOU))
}

/// Adds one of [`job_control`] to the thread's signal mask (`SIG_BLOCK`), or takes it away (`SIG_UNBLOCK`). The
/// masks stand at the end of the data area, each in its own place, so that none is overwritten before the thread
/// gets there.
#[must_use]
pub(crate) fn changing(deputy: &Deputy, how: i32, mask: u64) -> Syscall {
    let part = |signal| usize::from(mask & bit(signal) != 0);
    let index = part(libc::SIGTTIN) + 2 * part(libc::SIGTTOU);
    let deck = deputy.deck();
    let at = DATA_LENGTH - 8 * (1 + index);
    deck.write_data(at, &mask.to_le_bytes());
    let address = deputy.address(deck.data_offset()) + at as u64;
    let how = u64::from(how.cast_unsigned());
    Syscall::new(libc::SYS_rt_sigprocmask, &[how, address, 0, 8])
}
