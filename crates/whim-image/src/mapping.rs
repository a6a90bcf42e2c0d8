//! The system calls that make a mapping. They are the same for a guest and for a process that has
//! come home.

use whim_model::{Mapping, Syscall};

/// Bits of a flag word as an argument of a system call.
#[must_use]
pub fn flag(bits: i32) -> u64 {
    u64::from(bits.cast_unsigned())
}

/// The `mmap` call for memory like this mapping, from its beginning to `end`. The memory is empty;
/// what backs the mapping comes later.
#[must_use]
pub fn map(mapping: &Mapping, end: u64) -> Syscall {
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    if mapping.flags.grows_down {
        flags |= libc::MAP_GROWSDOWN;
    }
    if mapping.flags.no_reserve {
        flags |= libc::MAP_NORESERVE;
    }
    let (length, protection) = (end - mapping.start, flag(mapping.rights()));
    let args = [mapping.start, length, protection, flag(flags), u64::MAX, 0];
    Syscall::new(libc::SYS_mmap, &args)
}

/// Linux 6.11
const MAP_DROPPABLE: i32 = 8;

/// The calls for the advice of this mapping, from its beginning to `end`. The kernel has taken each for this
/// mapping before; where one is refused now, a kernel without huge pages for instance, the program goes on
/// without it.
pub fn advise(mapping: &Mapping, end: u64) -> impl Iterator<Item = Syscall> + use<> {
    let flags = mapping.flags;
    let (start, length) = (mapping.start, end - mapping.start);
    let wanted = [
        (flags.huge, libc::MADV_HUGEPAGE),
        (flags.no_huge, libc::MADV_NOHUGEPAGE),
        (flags.dont_fork, libc::MADV_DONTFORK),
        (flags.dont_dump, libc::MADV_DONTDUMP),
        (flags.wipe_on_fork, libc::MADV_WIPEONFORK),
        (flags.random, libc::MADV_RANDOM),
        (flags.sequential, libc::MADV_SEQUENTIAL),
    ];
    let wanted = wanted.into_iter().filter(|(set, _)| *set);
    let wanted = wanted
        .map(move |(_, advice)| Syscall::new(libc::SYS_madvise, &[start, length, flag(advice)]));
    // Memory that the kernel may drop is of a type of its own. Where there is none, the memory that it takes
    // the place of does as well: it is never dropped.
    let droppable = flags.droppable.then(|| {
        let how = flag(MAP_DROPPABLE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        let protection = flag(mapping.rights());
        let args = [start, length, protection, how, u64::MAX, 0];
        Syscall::new(libc::SYS_mmap, &args)
    });
    droppable.into_iter().chain(wanted)
}
