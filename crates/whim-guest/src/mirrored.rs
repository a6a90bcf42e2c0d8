//! What home has been told of the guest's signal actions.
//!
//! Home's kernel has to know which signals are caught. A program may set handlers again and again: gnuplot sets one for
//! SIGFPE for each point that it computes, and takes it away again, and asking home each time made it hundreds of times
//! slower. So what home knows is not said again. Only of caught signals, though: an action that ignores a signal
//! discards those that wait, also when it was ignored before.
//!
//! Of a fault (SIGFPE and its like) home goes on taking it for caught once it was. Its kernel sends the deputy none for
//! what the guest does, and reports one that somebody sends to the tracer in either case; what is left is a bit of
//! SigCgt in /proc/PID/status.

use std::collections::BTreeMap;
use whim_journey::message::Disposition;

/// Signals by which a kernel tells a thread what the thread itself has done.
const FAULTS: [i32; 4] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];

/// A new action, as far as home's kernel has to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// 1 to 64.
    pub signal: u8,
    pub disposition: Disposition,
    /// SA_ flags.
    pub flags: u64,
}

impl Mirror {
    fn is_fault(self) -> bool {
        FAULTS.contains(&i32::from(self.signal))
    }
}

/// The caught signals of which home knows, with their flags. Empty when a guest begins.
#[derive(Debug, Default)]
pub(crate) struct Mirrored {
    caught: BTreeMap<u8, u64>,
}

impl Mirrored {
    #[must_use]
    pub(crate) fn is_known(&self, action: Mirror) -> bool {
        let Some(flags) = self.caught.get(&action.signal) else {
            return false;
        };
        match action.disposition {
            Disposition::Caught | Disposition::Default if action.is_fault() => true,
            Disposition::Caught => *flags == action.flags,
            Disposition::Default | Disposition::Ignore => false,
        }
    }

    /// Home is told of this action: what it knows of the signal is open until it has answered.
    pub(crate) fn told(&mut self, action: Mirror) {
        self.caught.remove(&action.signal);
    }

    /// Home has answered. If another thread has told it of the same signal meanwhile, that answer is the last one.
    pub(crate) fn answered(&mut self, action: Mirror) {
        match action.disposition {
            Disposition::Caught => self.caught.insert(action.signal, action.flags),
            Disposition::Default | Disposition::Ignore => self.caught.remove(&action.signal),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_home_has_answered_is_known() {
        let mut mirrored = Mirrored::default();
        let action = |disposition, flags| Mirror {
            signal: 10,
            disposition,
            flags,
        };
        let caught = action(Disposition::Caught, 0);
        assert!(!mirrored.is_known(caught));
        mirrored.told(caught);
        assert!(!mirrored.is_known(caught));
        mirrored.answered(caught);
        assert!(mirrored.is_known(caught));
        assert!(!mirrored.is_known(Mirror {
            signal: 11,
            ..caught
        }));
        let restarts = action(Disposition::Caught, 0x1000_0000);
        assert!(!mirrored.is_known(restarts));
        mirrored.told(restarts);
        assert!(!mirrored.is_known(caught), "one is on its way");
        mirrored.answered(restarts);
        assert!(mirrored.is_known(restarts) && !mirrored.is_known(caught));
        for other in [Disposition::Ignore, Disposition::Default] {
            let other = action(other, 0);
            mirrored.answered(caught);
            mirrored.told(other);
            mirrored.answered(other);
            assert!(!mirrored.is_known(caught));
            assert!(
                !mirrored.is_known(other),
                "it discards what waits, each time"
            );
        }
    }

    #[test]
    fn a_fault_that_was_caught_need_not_be_told_of_again() {
        let mut mirrored = Mirrored::default();
        let fault = |disposition| Mirror {
            signal: 8,
            disposition,
            flags: 0,
        };
        let [default, ignored, caught] = [
            Disposition::Default,
            Disposition::Ignore,
            Disposition::Caught,
        ]
        .map(fault);
        mirrored.told(default);
        mirrored.answered(default);
        assert!(!mirrored.is_known(default), "home may show it as caught");
        mirrored.told(caught);
        mirrored.answered(caught);
        assert!(mirrored.is_known(default) && mirrored.is_known(caught));
        assert!(!mirrored.is_known(ignored));
        mirrored.told(ignored);
        mirrored.answered(ignored);
        assert!(!mirrored.is_known(caught));
    }
}
