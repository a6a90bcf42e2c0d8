//! Memory that the kernel touches for a call which runs in the guest itself.
//!
//! A plain user's host may not be allowed to fetch a page from home for the kernel
//! (`vm.unprivileged_userfaultfd`), so the call would give `EFAULT` for memory that the program
//! has. On such a host these calls are trapped as well, and go on once all memory that they may
//! touch is there.

use crate::types::GuestMemory;
use whim_model::Syscall;

/// Bytes to check behind an argument of which nothing else is known; no structure of these calls is
/// longer.
const USUAL: u64 = 128;
/// An entry of `futex_waitv`, and how many the kernel takes.
const WAITER: u64 = 24;
const WAITERS_MAX: u64 = 128;
/// More bits than any machine has nodes.
const NODES_MAX: u64 = 4096;
const PAGES_MAX: u64 = 1 << 20;

/// Calls that run in the guest, always or for some arguments, and have pointers.
const TOUCHING: &[i64] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_mincore,
    libc::SYS_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_gettimeofday,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_prctl,
    libc::SYS_arch_prctl,
    libc::SYS_time,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_get_mempolicy,
    libc::SYS_migrate_pages,
    libc::SYS_get_robust_list,
    libc::SYS_move_pages,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_rseq,
    libc::SYS_futex_waitv,
    SYS_FUTEX_WAKE,
    SYS_FUTEX_WAIT,
    SYS_FUTEX_REQUEUE,
];
// The C library's headers do not know them yet.
const SYS_FUTEX_WAKE: i64 = 454;
const SYS_FUTEX_WAIT: i64 = 455;
const SYS_FUTEX_REQUEUE: i64 = 456;

/// The numbers of these calls.
pub(crate) fn touching() -> impl Iterator<Item = u64> {
    TOUCHING.iter().map(|number| number.cast_unsigned())
}

/// The ranges that the kernel may touch for this call if it runs in the guest; some of them may not
/// be memory at all. Empty for all other calls.
#[must_use]
pub fn touched(call: &Syscall, memory: &dyn GuestMemory) -> Vec<(u64, u64)> {
    let Ok(number) = i64::try_from(call.number) else {
        return Vec::new();
    };
    if !TOUCHING.contains(&number) {
        return Vec::new();
    }
    let args = call.args;
    // An argument that is no pointer is too small a number to be an address.
    let mut ranges: Vec<(u64, u64)> = args.iter().map(|arg| (*arg, USUAL)).collect();
    let mut array = |index: usize, count: u64, size: u64| {
        ranges.push((args[index], count.min(PAGES_MAX) * size));
    };
    match number {
        libc::SYS_getrandom => array(0, args[1], 1),
        libc::SYS_mincore => array(2, args[1].div_ceil(4096), 1),
        libc::SYS_move_pages => [2, 3, 4].iter().for_each(|index| array(*index, args[1], 8)),
        libc::SYS_mbind => array(3, args[4].min(NODES_MAX), 1),
        libc::SYS_migrate_pages => [2, 3]
            .iter()
            .for_each(|index| array(*index, args[1].min(NODES_MAX), 1)),
        libc::SYS_futex_waitv => {
            let count = args[1].min(WAITERS_MAX);
            array(0, count, WAITER);
            ranges.extend(waited_for(memory, args[0], count));
        }
        _ => {}
    }
    ranges
}

/// The words on which a `futex_waitv` waits.
fn waited_for(memory: &dyn GuestMemory, entries: u64, count: u64) -> Vec<(u64, u64)> {
    let mut bytes = vec![0; usize::try_from(count * WAITER).unwrap_or(0)];
    let read = memory.read(entries, &mut bytes);
    let whole = bytes[..read].chunks_exact(24);
    let address = whole.filter_map(|entry| entry[8..16].try_into().ok());
    address.map(|word| (u64::from_ne_bytes(word), 8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallClass, rows};

    /// Calls that are local for some arguments at least and have no pointer that the kernel
    /// follows: it only keeps the pointer, or the argument is a range of the address space.
    const WITHOUT_POINTERS: &[&str] = &[
        "mmap",
        "mprotect",
        "munmap",
        "brk",
        "mremap",
        "madvise",
        "msync",
        "rt_sigreturn",
        "sched_yield",
        "pause",
        "getpid",
        "gettid",
        "set_tid_address",
        "set_robust_list",
        "restart_syscall",
        "sched_get_priority_max",
        "sched_get_priority_min",
        "membarrier",
        "set_mempolicy_home_node",
        "pkey_mprotect",
    ];

    struct Words(Vec<u8>);

    impl GuestMemory for Words {
        fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
            let length = buffer.len().min(self.0.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            length
        }

        fn writable(&self, _: u64, _: u64) -> bool {
            true
        }
    }

    #[test]
    fn every_call_that_is_local_is_known_to_touch_memory_or_not() {
        for row in rows().iter().filter(|row| row.class() == CallClass::Local) {
            let number = i64::try_from(row.number()).expect("small");
            let gone = row.reason.contains("no kernel implements it");
            let known = TOUCHING.contains(&number) || WITHOUT_POINTERS.contains(&row.name());
            assert!(known || gone, "{}", row.name());
        }
    }

    #[test]
    fn arrays_are_as_long_as_the_call_says() {
        let mut entries = vec![0; 48];
        entries[8..16].copy_from_slice(&0x7000_u64.to_ne_bytes());
        entries[32..40].copy_from_slice(&0x9000_u64.to_ne_bytes());
        let call = Syscall {
            number: libc::SYS_futex_waitv.cast_unsigned(),
            args: [0x5000, 2, 0, 0x6000, 0, 0],
        };
        let ranges = touched(&call, &Words(entries));
        for expected in [(0x5000, 48), (0x6000, USUAL), (0x7000, 8), (0x9000, 8)] {
            assert!(ranges.contains(&expected), "{expected:?}: {ranges:?}");
        }
        let write = Syscall {
            number: libc::SYS_write.cast_unsigned(),
            args: [1, 0x5000, 8, 0, 0, 0],
        };
        assert_eq!(touched(&write, &Words(Vec::new())), []);
    }
}
