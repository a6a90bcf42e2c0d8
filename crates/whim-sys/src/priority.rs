//! A thread's share of the CPU: its policy and niceness.

use libc::{c_int, c_long, pid_t};
use nix::errno::Errno;

/// `sched_getscheduler` sets this bit beside the policy if children do not inherit the policy.
const RESET_ON_FORK: c_long = 0x4000_0000;
/// The kernel returns 20 minus the niceness, so that the result is never negative.
const NICE_OFFSET: c_long = 20;

/// What `sched_getscheduler(2)` and `getpriority(2)` say of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// SCHED_OTHER (0), SCHED_BATCH (3) or SCHED_IDLE (5); others can be read, and are not set.
    pub policy: u8,
    /// -20 to 19.
    pub nice: i8,
}

/// # Errors
/// ESRCH.
pub fn of(tid: pid_t) -> Result<Priority, Errno> {
    // JUSTIFICATION: nix has neither call, and libc's `getpriority` hides errors.
    // SAFETY: two integers, and one.
    let (offset, policy) = unsafe {
        (
            libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid),
            libc::syscall(libc::SYS_sched_getscheduler, tid),
        )
    };
    if offset < 0 || policy < 0 {
        return Err(Errno::last());
    }
    let out_of_range = |_| Errno::ERANGE;
    Ok(Priority {
        policy: u8::try_from(policy & !RESET_ON_FORK).map_err(out_of_range)?,
        nice: i8::try_from(NICE_OFFSET - offset).map_err(out_of_range)?,
    })
}

/// Sets policy and niceness. If the policy is not SCHED_OTHER, SCHED_BATCH or SCHED_IDLE, only the
/// niceness is set.
///
/// # Errors
/// ESRCH; EACCES or EPERM for more than the caller may give.
pub fn set(tid: pid_t, priority: Priority) -> Result<(), Errno> {
    let policy = c_int::from(priority.policy);
    if [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy) {
        let parameter: c_int = 0;
        // JUSTIFICATION: nix does not have the call.
        // SAFETY: the pointer is to a live value of the size of `struct sched_param`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                tid,
                policy,
                &raw const parameter,
            )
        };
        Errno::result(result)?;
    }
    // JUSTIFICATION: nix does not have the call.
    // SAFETY: three integers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_setpriority,
            libc::PRIO_PROCESS,
            tid,
            c_int::from(priority.nice),
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::gettid;

    #[test]
    fn a_thread_gets_what_it_was_given() {
        let nicer = std::thread::spawn(|| {
            let tid = gettid().as_raw();
            let before = of(tid).expect("our own");
            let wanted = Priority {
                policy: 3,
                nice: before.nice.saturating_add(3).min(19),
            };
            set(tid, wanted).expect("less is allowed");
            (wanted, of(tid).expect("our own"))
        });
        let (wanted, got) = nicer.join().expect("the thread");
        assert_eq!(wanted, got);
    }

    #[test]
    fn a_thread_that_is_gone_has_none() {
        assert_eq!(of(0x3fff_ffff), Err(Errno::ESRCH));
        assert!(set(0x3fff_ffff, Priority::default()).is_err());
    }
}
