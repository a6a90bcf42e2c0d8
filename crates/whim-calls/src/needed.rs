//! The calls that a program's own filters have to allow if it is to be away: those that its deputy and its guest
//! make for us, beside its own.

use crate::judge::{Answer, Filters, Judged};

/// A call that we have the program make.
struct Needed {
    number: i64,
    name: &'static str,
    args: [Option<u64>; 6],
    /// We go on where it is refused.
    may_fail: bool,
}

const ANY: [Option<u64>; 6] = [None; 6];

const fn any(number: i64, name: &'static str) -> Needed {
    Needed {
        number,
        name,
        args: ANY,
        may_fail: false,
    }
}

const fn with(
    number: i64,
    name: &'static str,
    (index, value): (usize, u64),
    may_fail: bool,
) -> Needed {
    let mut args = ANY;
    args[index] = Some(value);
    Needed {
        number,
        name,
        args,
        may_fail,
    }
}

/// Where we go on without it: an error is no reason to stay, an end is.
const fn asked(number: i64, name: &'static str) -> Needed {
    Needed {
        may_fail: true,
        ..any(number, name)
    }
}

const READ: u64 = 1;
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
const ALL_RIGHTS: u64 = 7;
const PR_GET_TSC: u64 = 25;
const PR_SET_TSC: u64 = 26;
const PR_GET_TIMERSLACK: u64 = 30;
const PR_MCE_KILL_GET: u64 = 34;
const PR_SET_MM: u64 = 35;
const PR_GET_TID_ADDRESS: u64 = 40;
/// CLONE_VM and what makes a thread: [`crate::NewThread`].
const NEW_THREAD: u64 = crate::NewThread::FLAGS as u64;
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Of the resident loop and the deputy; then of the guest; some are of both.
const NEEDED: &[Needed] = &[
    any(libc::SYS_futex, "futex"),
    any(libc::SYS_restart_syscall, "restart_syscall"),
    with(libc::SYS_mmap, "mmap", (2, READ_WRITE), false),
    with(
        libc::SYS_mmap,
        "mmap of executable memory",
        (2, READ_EXECUTE),
        false,
    ),
    with(libc::SYS_mmap, "mmap to read", (2, READ), false),
    with(libc::SYS_mmap, "mmap without rights", (2, 0), false),
    // At the return each mapping gets its rights again, and there is no way back by then: what may not be made
    // executable any more (systemd's MemoryDenyWriteExecute= as a filter) may not leave.
    with(libc::SYS_mprotect, "mprotect", (2, READ_WRITE), false),
    with(libc::SYS_mprotect, "mprotect to read", (2, READ), false),
    with(libc::SYS_mprotect, "mprotect to no rights", (2, 0), false),
    with(
        libc::SYS_mprotect,
        "mprotect to executable memory",
        (2, READ_EXECUTE),
        false,
    ),
    with(
        libc::SYS_mprotect,
        "mprotect to all rights",
        (2, ALL_RIGHTS),
        true,
    ),
    any(libc::SYS_mremap, "mremap"),
    any(libc::SYS_munmap, "munmap"),
    any(libc::SYS_madvise, "madvise"),
    any(libc::SYS_memfd_create, "memfd_create"),
    any(libc::SYS_close, "close"),
    any(libc::SYS_fstat, "fstat"),
    any(libc::SYS_fstatfs, "fstatfs"),
    any(libc::SYS_readlinkat, "readlinkat"),
    any(libc::SYS_prlimit64, "prlimit64"),
    any(libc::SYS_set_robust_list, "set_robust_list"),
    any(libc::SYS_set_tid_address, "set_tid_address"),
    any(libc::SYS_rseq, "rseq"),
    any(libc::SYS_getitimer, "getitimer"),
    any(libc::SYS_setitimer, "setitimer"),
    any(libc::SYS_sigaltstack, "sigaltstack"),
    any(libc::SYS_rt_sigaction, "rt_sigaction"),
    any(libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
    any(libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
    any(libc::SYS_rt_sigqueueinfo, "rt_sigqueueinfo"),
    any(libc::SYS_rt_tgsigqueueinfo, "rt_tgsigqueueinfo"),
    with(libc::SYS_prctl, "prctl(PR_SET_MM)", (0, PR_SET_MM), false),
    with(
        libc::SYS_prctl,
        "prctl(PR_GET_TID_ADDRESS)",
        (0, PR_GET_TID_ADDRESS),
        false,
    ),
    with(libc::SYS_clone, "clone of a thread", (0, NEW_THREAD), false),
    any(libc::SYS_exit, "exit"),
    any(libc::SYS_exit_group, "exit_group"),
    any(libc::SYS_brk, "brk"),
    asked(libc::SYS_munlockall, "munlockall"),
    asked(libc::SYS_mlockall, "mlockall"),
    asked(libc::SYS_mlock2, "mlock2"),
    asked(libc::SYS_mbind, "mbind"),
    asked(libc::SYS_set_mempolicy, "set_mempolicy"),
    asked(libc::SYS_get_mempolicy, "get_mempolicy"),
    asked(libc::SYS_membarrier, "membarrier"),
    with(libc::SYS_prctl, "prctl(PR_SET_TSC)", (0, PR_SET_TSC), true),
    with(libc::SYS_prctl, "prctl(PR_GET_TSC)", (0, PR_GET_TSC), true),
    with(
        libc::SYS_prctl,
        "prctl(PR_GET_TIMERSLACK)",
        (0, PR_GET_TIMERSLACK),
        true,
    ),
    with(
        libc::SYS_prctl,
        "prctl(PR_MCE_KILL_GET)",
        (0, PR_MCE_KILL_GET),
        true,
    ),
    with(libc::SYS_prctl, "prctl(PR_SET_VMA)", (0, PR_SET_VMA), true),
];

/// The first call that we need and that these filters do not allow, by its name.
#[must_use]
pub fn refused(filters: &Filters) -> Option<&'static str> {
    let is_refused = |needed: &&Needed| {
        let number = u32::try_from(needed.number).unwrap_or(u32::MAX);
        match filters.answer(&Judged::native(number, needed.args)) {
            Answer::Allow => false,
            Answer::Errno(_) => !needed.may_fail,
            Answer::Kill | Answer::Depends => true,
        }
    };
    NEEDED.iter().find(is_refused).map(|needed| needed.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that gives one call this answer, and allows all others.
    fn one_call(number: i64, action: u64) -> Vec<u64> {
        let number = u64::try_from(number).expect("a call");
        let allow = 0x7fff_0000;
        let instruction =
            |code: u64, jt: u64, jf: u64, k: u64| code | jt << 16 | jf << 24 | k << 32;
        vec![
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, number),
            instruction(0x06, 0, 0, action),
            instruction(0x06, 0, 0, allow),
        ]
    }

    #[test]
    fn a_needed_call_that_is_not_allowed_is_named() {
        const ERRNO: u64 = 0x0005_0001;
        const KILL: u64 = 0x8000_0000;
        let found = |number, action| {
            let filters = Filters::of(&[one_call(number, action)]).expect("sound");
            refused(&filters)
        };
        assert_eq!(found(libc::SYS_getppid, KILL), None);
        assert_eq!(found(libc::SYS_mremap, ERRNO), Some("mremap"));
        assert_eq!(found(libc::SYS_munlockall, ERRNO), None);
        assert_eq!(found(libc::SYS_munlockall, KILL), Some("munlockall"));
        // What we ask every process, and what its return asks of it.
        for call in [
            libc::SYS_membarrier,
            libc::SYS_get_mempolicy,
            libc::SYS_set_mempolicy,
        ] {
            assert_eq!(found(call, ERRNO), None);
            assert!(found(call, KILL).is_some());
        }
        assert_eq!(refused(&Filters::default()), None);
    }
}
