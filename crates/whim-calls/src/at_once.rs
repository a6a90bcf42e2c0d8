//! Waits under a mask of their own (ppoll and its kin), asked for what is ready without a wait.
//!
//! A guest asks so when a signal waits already that the mask lets through. The kernel looks first at what is ready, and
//! the signal goes on waiting then: only what would sleep is interrupted. Home knows what is ready, and the signal
//! waits in the guest.

use crate::resolve::row;
use crate::stopped::Asked;
use crate::types::{Direction, Forward, Region, Returned};
use whim_model::Syscall;

/// What is asked in place of a call that waits under a mask.
#[derive(Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Nothing: the call only sleeps, so the signal interrupts it.
    Sleeps,
    /// The call as it stands: it does not sleep.
    AsItStands(Forward),
    /// This call: its result is the other one's, but for 0.
    By(u64, Forward),
}

/// What to ask home in place of this call, which waits under a mask.
#[must_use]
pub fn at_once(call: &Syscall, mut forward: Forward) -> AtOnce {
    let args = call.args;
    let Some(asked) = row(call.number).and_then(|row| row.stopped.asked) else {
        return AtOnce::Sleeps;
    };
    let (count, time) = match asked {
        Asked::Poll => (args[1], args[2]),
        Asked::Select => (args[0], args[4]),
        // Without time it does not look for signals.
        Asked::Epoll if !forward.may_block => return AtOnce::AsItStands(forward),
        Asked::Epoll => (1, 0),
        Asked::EpollByTimespec => (1, args[3]),
    };
    let sleeps = match take_time(&mut forward, time) {
        Some(true) => true,
        Some(false) => asked != Asked::EpollByTimespec,
        None => false,
    };
    forward.may_block = false;
    if !sleeps {
        return AtOnce::AsItStands(forward);
    }
    // The kernel takes the low half.
    if count & u64::from(u32::MAX) == 0 {
        return AtOnce::Sleeps;
    }
    forward.timeout = None;
    let number = match asked {
        Asked::Poll => {
            forward.args = [args[0], args[1], 0, 0, 0, 0];
            libc::SYS_poll.cast_unsigned()
        }
        Asked::Select => {
            // No time at all has to stand somewhere: there the mask stands, which home does not need.
            forward.args[4] = args[5];
            forward.regions.push(no_time(args[5]));
            call.number
        }
        Asked::Epoll | Asked::EpollByTimespec => {
            forward.args = [args[0], args[1], args[2], 0, 0, 0];
            libc::SYS_epoll_wait.cast_unsigned()
        }
    };
    AtOnce::By(number, forward)
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

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 0x2000;

    /// A call of these arguments, with a time of so many seconds and nanoseconds.
    fn looked(number: i64, args: [u64; 6], time: (i64, i64)) -> AtOnce {
        let data = [time.0.to_ne_bytes(), time.1.to_ne_bytes()].concat();
        let time = Region {
            address: TIME,
            length: 16,
            direction: Direction::InOut,
            returned: Returned::WholeAlways,
            data,
        };
        let forward = Forward {
            regions: vec![no_time(0x1000), time],
            may_block: number != libc::SYS_epoll_pwait || args[3] != 0,
            may_fault: false,
            timeout: None,
            wait_mask: Some(0),
            args,
        };
        at_once(&Syscall::new(number, &args), forward)
    }

    fn asked(at_once: AtOnce) -> (i64, [u64; 6], Vec<u64>) {
        let AtOnce::By(number, forward) = at_once else {
            panic!("{at_once:?}");
        };
        assert!(!forward.may_block && forward.timeout.is_none());
        let regions = forward.regions.iter().map(|region| region.address);
        (number.cast_signed(), forward.args, regions.collect())
    }

    #[test]
    fn what_waits_is_asked_without_its_time_and_mask() {
        let ppoll = looked(libc::SYS_ppoll, [0x1000, 2, TIME, 0x3000, 8, 0], (3, 0));
        let poll = (libc::SYS_poll, [0x1000, 2, 0, 0, 0, 0], vec![0x1000]);
        assert_eq!(asked(ppoll), poll);
        // The time of the call stays as it is, so another one stands where the mask stood.
        let args = [5, 0x1000, 0, 0, TIME, 0x3000];
        let (number, args, regions) = asked(looked(libc::SYS_pselect6, args, (3, 0)));
        assert_eq!((number, args[4]), (libc::SYS_pselect6, 0x3000));
        assert_eq!(regions, [0x1000, 0x3000]);
        let args = [7, 0x1000, 4, u64::MAX, 0x3000, 8];
        let (number, args, _) = asked(looked(libc::SYS_epoll_pwait, args, (3, 0)));
        assert_eq!(
            (number, args),
            (libc::SYS_epoll_wait, [7, 0x1000, 4, 0, 0, 0])
        );
        let args = [7, 0x1000, 4, TIME, 0x3000, 8];
        let (number, _, regions) = asked(looked(libc::SYS_epoll_pwait2, args, (0, 1)));
        assert_eq!((number, regions), (libc::SYS_epoll_wait, vec![0x1000]));
    }

    #[test]
    fn what_does_not_sleep_is_asked_as_it_stands_and_what_only_sleeps_not_at_all() {
        let as_it_stands = |look| matches!(look, AtOnce::AsItStands(forward) if !forward.may_block);
        let epoll = [7, 0x1000, 4, 0, 0x3000, 8];
        assert!(as_it_stands(looked(libc::SYS_epoll_pwait, epoll, (3, 0))));
        let epoll = [7, 0x1000, 4, TIME, 0x3000, 8];
        assert!(as_it_stands(looked(libc::SYS_epoll_pwait2, epoll, (0, 0))));
        // The kernel refuses these times before it looks for signals.
        for time in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            let ppoll = [0x1000, 2, TIME, 0x3000, 8, 0];
            assert!(as_it_stands(looked(libc::SYS_ppoll, ppoll, time)));
        }
        // Without a descriptor there is nothing to be ready; the kernel takes half of the argument.
        let none = [0x1000, 1 << 32, TIME, 0x3000, 8, 0];
        assert_eq!(looked(libc::SYS_ppoll, none, (3, 0)), AtOnce::Sleeps);
        // poll looks for signals without time, too.
        let ppoll = [0x1000, 2, TIME, 0x3000, 8, 0];
        assert_eq!(
            asked(looked(libc::SYS_ppoll, ppoll, (0, 0))).0,
            libc::SYS_poll
        );
    }
}
