//! Waits under a mask of their own (ppoll and its kin), for which a signal waits already that the mask lets through.
//!
//! The kernel looks first at what is ready, and the signal goes on waiting then: only what would sleep is interrupted.
//! Home knows what is ready, and the signal waits here. So home is asked once, without a wait.

use crate::guest::{Forwarded, Guest};
use whim_calls::{Direction, Forward, Region, Returned};
use whim_model::Syscall;

/// What is asked in place of a call that waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing: the call only sleeps, so the signal interrupts it.
    Sleeps,
    /// The call as it stands: it does not sleep.
    AsItStands(Forward),
    /// This call: its result is the other one's, but for 0.
    Once(u64, Forward),
}

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

/// What to ask home in place of this call, which waits under a mask.
pub(crate) fn look(call: &Syscall, mut forward: Forward) -> Look {
    let args = call.args;
    let number = call.number.cast_signed();
    let (count, time) = match number {
        libc::SYS_ppoll => (args[1], args[2]),
        libc::SYS_pselect6 => (args[0], args[4]),
        // Without time it does not look for signals.
        libc::SYS_epoll_pwait if !forward.may_block => return Look::AsItStands(forward),
        libc::SYS_epoll_pwait => (1, 0),
        libc::SYS_epoll_pwait2 => (1, args[3]),
        _ => return Look::Sleeps,
    };
    let sleeps = match take_time(&mut forward, time) {
        Some(true) => true,
        Some(false) => number != libc::SYS_epoll_pwait2,
        None => false,
    };
    if !sleeps {
        forward.may_block = false;
        return Look::AsItStands(forward);
    }
    // The kernel takes the low half.
    if count & u64::from(u32::MAX) == 0 {
        return Look::Sleeps;
    }
    let number = match number {
        libc::SYS_pselect6 => {
            // No time at all has to stand somewhere: there the mask stands, which home does not need.
            forward.args[4] = args[5];
            forward.regions.push(no_time(args[5]));
            number
        }
        libc::SYS_ppoll => {
            forward.args = [args[0], args[1], 0, 0, 0, 0];
            libc::SYS_poll
        }
        _ => {
            forward.args = [args[0], args[1], args[2], 0, 0, 0];
            libc::SYS_epoll_wait
        }
    };
    forward.may_block = false;
    forward.timeout = None;
    Look::Once(number.cast_unsigned(), forward)
}

/// Takes the time out that stands at this address, and tells whether it is more than none. If the kernel refuses it,
/// it is not taken out.
fn take_time(forward: &mut Forward, address: u64) -> Option<bool> {
    if address == 0 {
        return Some(true);
    }
    let mut regions = forward.regions.iter();
    let at = regions.position(|region| region.address == address && region.data.len() == 16)?;
    let (seconds, rest) = forward.regions[at].data.split_at(8);
    let seconds = i64::from_ne_bytes(seconds.try_into().ok()?);
    let nanoseconds = i64::from_ne_bytes(rest.try_into().ok()?);
    if seconds < 0 || !(0..1_000_000_000).contains(&nanoseconds) {
        return None;
    }
    if (seconds, nanoseconds) != (0, 0) {
        forward.regions.remove(at);
    }
    Some((seconds, nanoseconds) != (0, 0))
}

/// A timespec of zeros that home has for itself.
fn no_time(address: u64) -> Region {
    Region {
        address,
        length: 16,
        direction: Direction::In,
        returned: Returned::Nothing,
        data: vec![0; 16],
    }
}
