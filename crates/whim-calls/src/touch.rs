//! Memory that the kernel touches for a call which runs in the guest itself.
//!
//! A plain user's host may not be allowed to fetch a page from home for the kernel
//! (`vm.unprivileged_userfaultfd`), so the call would give `EFAULT` for memory that the program
//! has. On such a host these calls are trapped as well, and go on once all memory that they may
//! touch is there.

use crate::resolve::{row, rows};
use crate::shape::Touched;
use crate::types::GuestMemory;
use whim_model::Syscall;

/// Bytes to check behind an argument of which nothing else is known; no structure of these calls is
/// longer.
const USUAL: u64 = 128;
/// An entry of `futex_waitv`, and how many the kernel takes.
const WAITER: u64 = 24;
const WAITERS_MAX: u64 = 128;

/// The numbers of calls that run in the guest, always or for some arguments, and have pointers.
pub(crate) fn touching() -> impl Iterator<Item = u64> {
    let touching = |row: &&crate::Row| !matches!(row.touched, Touched::Nothing);
    rows().iter().filter(touching).map(crate::Row::number)
}

/// The ranges that the kernel may touch for this call if it runs in the guest; some of them may not
/// be memory at all. Empty for all other calls.
#[must_use]
pub fn touched(call: &Syscall, memory: &dyn GuestMemory) -> Vec<(u64, u64)> {
    let args = call.args;
    let touched = row(call.number).map_or(Touched::Nothing, |row| row.touched);
    // An argument that is no pointer is too small a number to be an address.
    let usual = args.iter().map(|arg| (*arg, USUAL));
    match touched {
        Touched::Nothing => Vec::new(),
        Touched::Pointers(arrays) => {
            let arrays = arrays
                .iter()
                .map(|(index, size)| (args[*index], size.of(&args)));
            usual.chain(arrays).collect()
        }
        Touched::Waiters => {
            let count = args[1].min(WAITERS_MAX);
            let entries = std::iter::once((args[0], count * WAITER));
            usual
                .chain(entries)
                .chain(waited_for(memory, args[0], count))
                .collect()
        }
    }
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
    use crate::CallClass;

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
            let gone = row.reason.contains("no kernel implements it");
            let touches = !matches!(row.touched, Touched::Nothing);
            let known = touches != WITHOUT_POINTERS.contains(&row.name());
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
