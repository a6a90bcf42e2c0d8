//! Calls whose class depends on their arguments.

use crate::builder::{Builder, Flow, answer, answer_errno, go_home, run_here, special, to_u64};
use crate::types::{Decision, Direction, NewThread, Returned, Signal, Special, half, word};

use Direction::{In, Out};
use whim_model::{MADV_GUARD_INSTALL, USER_END};

/// Turns the forward of the builder into a special decision.
pub(crate) fn special_forward<T>(
    builder: &mut Builder<'_>,
    make: fn(crate::Forward) -> Special,
) -> Flow<T> {
    let forward = builder.finish();
    Err(Box::new(Decision::Special(make(forward))))
}

// ---- memory ----

const MAP_TYPE: i32 = 0x0f;
const MAP_SHARED_VALIDATE: i32 = 3;

pub(crate) fn mmap(builder: &mut Builder<'_>) -> Flow {
    let flags = builder.int(3);
    let anonymous = flags & libc::MAP_ANONYMOUS != 0;
    match flags & MAP_TYPE {
        libc::MAP_PRIVATE => {}
        libc::MAP_SHARED | MAP_SHARED_VALIDATE if anonymous => {
            return go_home("it asks for shared memory");
        }
        libc::MAP_SHARED | MAP_SHARED_VALIDATE => return go_home("it maps a file as shared"),
        _ => return go_home("this kind of mapping is not in the table"),
    }
    if flags & libc::MAP_HUGETLB != 0 {
        return go_home("it asks for huge pages of the hugetlb pool");
    }
    if flags & libc::MAP_GROWSDOWN != 0 {
        return go_home("it maps memory that grows downwards");
    }
    if builder.context.locks_future {
        return go_home(LOCKS_FUTURE);
    }
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    // Without MAP_FIXED the address is a wish, and the kernel chooses no range that is in use.
    let touches = builder
        .context
        .touches_reserved(builder.value(0), builder.value(1).max(1));
    // Trap: a-fixed-mapping-over-home-s-range
    if fixed && touches {
        return special(Special::ReservedMemory);
    }
    if fixed && builder.is_room(builder.value(0), builder.value(1)) {
        return go_home(ROOM);
    }
    if anonymous {
        run_here()
    } else {
        special(Special::MapFile)
    }
}

const LOCKS_FUTURE: &str = "all memory that it maps is to be locked";
const ROOM: &str = "it changes, or asks about, memory into which a mapping may still grow";

/// A memory call that the filter trapped, with these pairs of address and length.
pub(crate) fn memory_call(builder: &Builder<'_>, ranges: &[(u64, u64)]) -> Flow {
    let touches = |(address, length): &(u64, u64)| {
        builder.context.touches_reserved(*address, (*length).max(1))
    };
    if ranges.iter().any(touches) {
        return special(Special::ReservedMemory);
    }
    // Trap: room-is-not-memory
    if ranges
        .iter()
        .any(|(address, length)| builder.is_room(*address, *length))
    {
        return go_home(ROOM);
    }
    run_here()
}

/// The end of the heap. Nothing is mapped where only the present end is asked for.
pub(crate) fn brk(builder: &mut Builder<'_>) -> Flow {
    let end = builder.value(0);
    if builder.context.locks_future && end != 0 {
        return go_home(LOCKS_FUTURE);
    }
    memory_call(builder, &[(end, 1)])
}

const PROT_WRITE: u32 = 2;
/// Trapped, because here what is the mapping of a file at home may be made executable in any case.
pub(crate) const PROT_EXEC: u32 = 4;

pub(crate) fn mprotect(builder: &mut Builder<'_>) -> Flow {
    let (address, length) = (builder.value(0), builder.value(1));
    if builder.forbids(address, length, builder.unsigned(2)) {
        return go_home("it asks for a right to the mapping of a file that only home can give");
    }
    memory_call(builder, &[(address, length)])
}

/// The keys that there may be.
const KEYS: std::ops::Range<i32> = 0..16;

pub(crate) fn pkey_mprotect(builder: &mut Builder<'_>) -> Flow {
    // A key that no memory has yet is not to be seen from outside: only its process knows that it has it.
    if KEYS.contains(&builder.int(3)) {
        return go_home("it uses memory protection keys");
    }
    mprotect(builder)
}

const MREMAP_MAYMOVE: u32 = 1;
const MREMAP_FIXED: u32 = 2;
const MREMAP_DONTUNMAP: u32 = 4;
/// Trapped, as is whatever makes a mapping longer.
pub(crate) const MREMAP_TRAPPED: u32 = MREMAP_FIXED | MREMAP_DONTUNMAP;

pub(crate) fn mremap(builder: &mut Builder<'_>) -> Flow {
    if builder.context.locks_future && builder.value(2) > builder.value(1) {
        return go_home(LOCKS_FUTURE);
    }
    if is_homes_alone(builder) {
        return go_home("it moves mappings of files in a way that only home knows");
    }
    let mut ranges = vec![(builder.value(0), builder.value(1))];
    if builder.unsigned(3) & MREMAP_FIXED != 0 {
        ranges.push((builder.value(4), builder.value(2)));
    }
    if shows_more(builder)
        && !ranges
            .iter()
            .any(|(address, length)| builder.context.touches_reserved(*address, (*length).max(1)))
    {
        return special(Special::RemapFile);
    }
    memory_call(builder, &ranges)
}

/// Whether this moves mappings of files in a way that a host does not know well enough:
///
/// - several mappings at once, or memory beside them. Home's kernel decides what comes of that: Linux from 6.17 on
///   moves them if they become no shorter, older ones do not.
/// - a mapping of which the call makes a second one.
/// - a mapping that may not become writable: its new place would not be watched.
fn is_homes_alone(builder: &Builder<'_>) -> bool {
    let page = whim_model::PAGE_SIZE;
    let (address, old) = (builder.value(0), builder.value(1));
    let rounded = |length: u64| length.checked_next_multiple_of(page);
    let (before, behind) = (rounded(old), rounded(builder.value(2)));
    let moves = behind == before || behind < before && builder.unsigned(3) & MREMAP_FIXED != 0;
    let several = moves && !(builder.is_run(address, old) && builder.is_one(address, old));
    // Trap: several-mappings-at-once
    builder.has_file(address, old.max(1))
        && (old == 0 || several || builder.forbids(address, old.max(1), PROT_WRITE))
}

/// Whether the call is one of those after which more of a file is to be seen than before. What this
/// host's kernel refuses by its arguments alone is none.
fn shows_more(builder: &Builder<'_>) -> bool {
    let page = whim_model::PAGE_SIZE;
    let (address, how) = (builder.value(0), builder.unsigned(3));
    let rounded = |length: u64| length.checked_next_multiple_of(page);
    let (Some(old), Some(new)) = (rounded(builder.value(1)), rounded(builder.value(2))) else {
        return false;
    };
    let stays = how & MREMAP_DONTUNMAP != 0;
    let known = how & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
    // Both of these may only be asked for together with the first.
    let sound = how & MREMAP_MAYMOVE != 0 || how == 0;
    // Longer than an address space, it is nobody's to say.
    let more = new <= USER_END && (new > old || stays && new == old);
    address.is_multiple_of(page)
        && old > 0
        && known
        && sound
        && more
        && !(stays && new != old)
        && builder.has_file(address, old)
}

const MERGEABLE: u32 = libc::MADV_MERGEABLE.cast_unsigned();
const UNMERGEABLE: u32 = libc::MADV_UNMERGEABLE.cast_unsigned();
const WILLNEED: u32 = libc::MADV_WILLNEED.cast_unsigned();
const FREE: u32 = libc::MADV_FREE.cast_unsigned();
const REMOVE: u32 = libc::MADV_REMOVE.cast_unsigned();
const WIPEONFORK: u32 = libc::MADV_WIPEONFORK.cast_unsigned();
const POPULATE_READ: u32 = libc::MADV_POPULATE_READ.cast_unsigned();
const POPULATE_WRITE: u32 = libc::MADV_POPULATE_WRITE.cast_unsigned();
/// Advice that is not the host's kernel's alone to answer: besides merging, what it takes for memory and refuses,
/// or accepts, for the mapping of a file. Guard pages are known of as soon as there are some.
pub(crate) const ADVICE_TRAPPED: &[u32] = &[
    WILLNEED,
    FREE,
    REMOVE,
    MERGEABLE,
    UNMERGEABLE,
    WIPEONFORK,
    POPULATE_READ,
    POPULATE_WRITE,
    MADV_GUARD_INSTALL,
];

pub(crate) fn madvise(builder: &mut Builder<'_>) -> Flow {
    let (address, length) = (builder.value(0), builder.value(1));
    let of_file =
        address.is_multiple_of(whim_model::PAGE_SIZE) && builder.has_file(address, length);
    let whole = of_file && builder.is_file(address, length);
    match builder.unsigned(2) {
        WILLNEED | REMOVE | FREE | WIPEONFORK if of_file && !whole => {
            go_home("it gives advice on mappings of several kinds at once")
        }
        // A host merges no pages: who shares them can be told from outside.
        MERGEABLE | UNMERGEABLE => {
            go_home("it says which of its pages may be merged with equal ones")
        }
        WILLNEED if of_file => answer(0),
        REMOVE if of_file => answer_errno(libc::EACCES),
        FREE | WIPEONFORK if of_file => answer_errno(libc::EINVAL),
        _ => memory_call(builder, &[(address, length)]),
    }
}

/// MPOL_F_MEMS_ALLOWED
pub(crate) const NODES_ALLOWED: u32 = 4;
/// The kernel refuses sets of more bytes.
const NODES_BYTES_MAX: u64 = 4096;

/// How many bytes a set of nodes has, of which the kernel is told one bit more.
fn nodes_bytes(bits: u64) -> u64 {
    let words = bits.saturating_sub(1).div_ceil(64);
    words.saturating_mul(8).min(NODES_BYTES_MAX)
}

/// Every machine has a first node. Of others a host may have more or fewer than home, by whose nodes the
/// program goes.
fn nodes(builder: &Builder<'_>, set: usize) -> Flow {
    let bits = builder.value(set + 1);
    let bytes = builder.peek(builder.value(set), nodes_bytes(bits));
    let named = |(index, byte): (usize, &u8)| byte & !u8::from(index == 0) != 0;
    if builder.value(set) != 0 && bytes.iter().enumerate().any(named) {
        return go_home("it says on which of several memory nodes its memory is to lie");
    }
    run_here()
}

const MPOL_MF_STRICT: u32 = 1;
const MPOL_MF_MOVE: u32 = 2;
/// What the kernel asks a right for, of which a guest has none.
const MPOL_MF_MOVE_ALL: u32 = 4;
const MOVES_ALL: &str = "it moves pages that others have as well";

/// Whether these flags ask for that. Flags that mean nothing are refused before.
fn moves_all(flags: u32, known: u32) -> bool {
    flags & MPOL_MF_MOVE_ALL != 0 && flags & !known == 0
}

pub(crate) fn mbind(builder: &mut Builder<'_>) -> Flow {
    let known = MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL;
    if moves_all(builder.unsigned(5), known) {
        return go_home(MOVES_ALL);
    }
    let range = (builder.value(0), builder.value(1).max(1));
    if builder.context.touches_reserved(range.0, range.1) {
        return special(Special::ReservedMemory);
    }
    nodes(builder, 3)
}

pub(crate) fn set_mempolicy(builder: &mut Builder<'_>) -> Flow {
    nodes(builder, 1)
}

pub(crate) fn get_mempolicy(builder: &mut Builder<'_>) -> Flow {
    if builder.value(4) != u64::from(NODES_ALLOWED) {
        return run_here();
    }
    let length = nodes_bytes(builder.value(2));
    builder.region(builder.value(0), 4, Out, Returned::Whole)?;
    builder.region(builder.value(1), length, Out, Returned::Whole)
}

// ---- signals ----

pub(crate) fn kill(builder: &mut Builder<'_>) -> Flow {
    let pid = builder.int(0);
    // The id of any thread names its process.
    if !builder.context.is_own(pid) {
        // Other processes, and groups: the deputy is in the process's group, and a signal that
        // reaches the deputy is carried to the guest.
        return Ok(());
    }
    own_signal(builder, Some(builder.context.pid), None, 1, None)
}

pub(crate) fn tkill(builder: &mut Builder<'_>) -> Flow {
    let tid = builder.int(0);
    if !builder.context.is_own(tid) {
        return Ok(());
    }
    own_signal(builder, None, Some(tid), 1, None)
}

pub(crate) fn tgkill(builder: &mut Builder<'_>) -> Flow {
    let (tgid, tid) = (builder.int(0), builder.int(1));
    if tgid != builder.context.pid || tid <= 0 {
        return Ok(());
    }
    own_signal(builder, Some(tgid), Some(tid), 2, None)
}

const SIGINFO: u64 = 128;
/// The bytes of a siginfo that the kernel always reads.
const SIGINFO_READ: u64 = 48;

pub(crate) fn rt_sigqueueinfo(builder: &mut Builder<'_>) -> Flow {
    builder.region(builder.value(2), SIGINFO, In, Returned::Nothing)?;
    let pid = builder.int(0);
    if !builder.context.is_own(pid) {
        return Ok(());
    }
    own_signal(builder, Some(builder.context.pid), None, 1, Some(2))
}

pub(crate) fn rt_tgsigqueueinfo(builder: &mut Builder<'_>) -> Flow {
    builder.region(builder.value(3), SIGINFO, In, Returned::Nothing)?;
    let (tgid, tid) = (builder.int(0), builder.int(1));
    if tgid != builder.context.pid || tid <= 0 {
        return Ok(());
    }
    own_signal(builder, Some(tgid), Some(tid), 2, Some(3))
}

/// PIDFD_SIGNAL_THREAD_GROUP and PIDFD_SIGNAL_PROCESS_GROUP
const PIDFD_GROUPS: u32 = 2 | 4;

/// A descriptor may be that of a thread. A signal says for which thread it is only if the kernel has made its siginfo.
pub(crate) fn pidfd_send_signal(builder: &mut Builder<'_>) -> Flow {
    let info = builder.value(2);
    if builder.int(1) != 0 && info != 0 && builder.unsigned(3) & PIDFD_GROUPS == 0 {
        return go_home("it sends a signal of its own making to what may be a thread");
    }
    builder.region(info, SIGINFO, In, Returned::Nothing)
}

fn own_signal(
    builder: &mut Builder<'_>,
    tgid: Option<i32>,
    tid: Option<i32>,
    signal: usize,
    info: Option<usize>,
) -> Flow {
    let number = builder.int(signal);
    if !(0..=64).contains(&number) {
        return Ok(());
    }
    if number == 0 {
        // No signal is sent: the call only asks whether the target exists.
        return match tid {
            Some(tid) if !builder.context.is_own(tid) => answer_errno(libc::ESRCH),
            _ if info.is_some() => Ok(()),
            _ => answer(0),
        };
    }
    let unreadable =
        |index| to_u64(builder.peek(builder.value(index), SIGINFO_READ).len()) < SIGINFO_READ;
    if info.is_some_and(unreadable) {
        // EFAULT comes before ESRCH, and the kernel itself answers with it.
        return Ok(());
    }
    let info = info.map_or(0, |index| builder.value(index));
    let forward = builder.finish();
    special(Special::Signal(Box::new(Signal {
        tgid,
        tid,
        signal: number,
        info,
        forward,
    })))
}

pub(crate) fn rt_sigaction(builder: &mut Builder<'_>) -> Flow {
    if builder.value(1) == 0 {
        return run_here();
    }
    special(Special::SignalAction)
}

const CHILD: &str = "it starts a process";
/// Flags that may be added to those of a thread. CLONE_DETACHED has had no meaning since Linux 2.6;
/// musl sets it.
const THREAD_OPTIONS: i32 = libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_DETACHED;

fn new_thread(thread: NewThread) -> Flow {
    let wide = |flags: i32| u64::from(flags.cast_unsigned());
    let is_thread = thread.flags & wide(NewThread::FLAGS) == wide(NewThread::FLAGS);
    // Trap: a-child-away
    if !is_thread || thread.flags & !wide(NewThread::FLAGS | THREAD_OPTIONS) != 0 {
        return go_home(CHILD);
    }
    special(Special::NewThread(thread))
}

/// The low byte of the flags would be the signal that is sent when the child ends: a thread has
/// none.
pub(crate) fn clone(builder: &mut Builder<'_>) -> Flow {
    new_thread(NewThread {
        flags: builder.value(0),
        stack: builder.value(1),
        parent_tid: builder.value(2),
        child_tid: builder.value(3),
        thread_local: builder.value(4),
    })
}

/// Sizes of `struct clone_args`, from Linux 5.3 to today.
const CLONE_ARGS: std::ops::RangeInclusive<u64> = 64..=88;
/// All addresses of a program are below this one.
const ADDRESS_MAX: u64 = 1 << 47;

pub(crate) fn clone3(builder: &mut Builder<'_>) -> Flow {
    let size = builder.value(1);
    if !CLONE_ARGS.contains(&size) {
        return go_home(CHILD);
    }
    let bytes = builder.peek(builder.value(0), size);
    if to_u64(bytes.len()) < size {
        return go_home(CHILD);
    }
    let [
        flags,
        _,
        child_tid,
        parent_tid,
        signal,
        stack,
        length,
        thread_local,
    ] = std::array::from_fn(|index| word(&bytes, index * 8));
    // The last fields ask for ids of the program's own choice, or for a cgroup; unsound values are
    // refused by the kernel.
    let more = bytes.get(64..).unwrap_or_default();
    let sound = (stack == 0) == (length == 0) && stack < ADDRESS_MAX && length < ADDRESS_MAX;
    if signal != 0 || !sound || more.iter().any(|byte| *byte != 0) {
        return go_home(CHILD);
    }
    new_thread(NewThread {
        flags,
        stack: stack + length,
        parent_tid,
        child_tid,
        thread_local,
    })
}

pub(crate) fn exit(_: &mut Builder<'_>) -> Flow {
    special(Special::ThreadExit)
}

pub(crate) fn exit_group(_: &mut Builder<'_>) -> Flow {
    // Trap: the-end-is-lost
    special(Special::ProcessExit)
}

// ---- time ----

const TIMESPEC: u64 = 16;

/// What a clock id means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// A clock that both nodes share.
    Shared,
    /// CPU time of this process or of a thread of it.
    OwnCpu,
    /// CPU time of another process, or a clock behind a descriptor.
    AtHome,
}

fn clock(builder: &Builder<'_>, id: i32) -> Clock {
    const DESCRIPTOR: i32 = 3;
    const THREAD_BIT: i32 = 4;
    if id == libc::CLOCK_PROCESS_CPUTIME_ID || id == libc::CLOCK_THREAD_CPUTIME_ID {
        return Clock::OwnCpu;
    }
    if id >= 0 {
        return Clock::Shared;
    }
    if id & 3 == DESCRIPTOR {
        return Clock::AtHome;
    }
    let target = !(id >> 3);
    let own = if id & THREAD_BIT == 0 {
        target == 0 || target == builder.context.pid
    } else {
        target == 0 || builder.context.is_own(target)
    };
    if own { Clock::OwnCpu } else { Clock::AtHome }
}

pub(crate) fn clock_gettime(builder: &mut Builder<'_>) -> Flow {
    let kind = clock(builder, builder.int(0));
    if kind == Clock::Shared {
        return run_here();
    }
    builder.region(builder.value(1), TIMESPEC, Out, Returned::Whole)?;
    match kind {
        Clock::OwnCpu => special_forward(builder, Special::ProcessTimes),
        _ => Ok(()),
    }
}

pub(crate) fn clock_getres(builder: &mut Builder<'_>) -> Flow {
    if clock(builder, builder.int(0)) != Clock::AtHome {
        return run_here();
    }
    builder.region(builder.value(1), TIMESPEC, Out, Returned::Whole)
}

pub(crate) fn clock_nanosleep(builder: &mut Builder<'_>) -> Flow {
    let id = builder.int(0);
    let alarm = id == libc::CLOCK_REALTIME_ALARM || id == libc::CLOCK_BOOTTIME_ALARM;
    if alarm || clock(builder, id) != Clock::Shared {
        return go_home("it sleeps on a clock that only home has");
    }
    run_here()
}

pub(crate) fn clock_adjtime(builder: &mut Builder<'_>) -> Flow {
    adjust(builder, 1)
}

pub(crate) fn adjtimex(builder: &mut Builder<'_>) -> Flow {
    adjust(builder, 0)
}

/// Reading the clock is forwarded. Setting home's clock is not for a guest, so the process goes
/// home.
fn adjust(builder: &mut Builder<'_>, index: usize) -> Flow {
    const TIMEX: u64 = 208;
    let address = builder.value(index);
    let bytes = builder.region_with_bytes(address, TIMEX, Direction::InOut, Returned::Whole)?;
    if half(&bytes, 0) != 0 {
        return go_home("it sets the clock");
    }
    Ok(())
}

const RUSAGE: u64 = 144;

pub(crate) fn getrusage(builder: &mut Builder<'_>) -> Flow {
    builder.region(builder.value(1), RUSAGE, Out, Returned::Whole)?;
    match builder.int(0) {
        libc::RUSAGE_SELF | libc::RUSAGE_THREAD => special_forward(builder, Special::ProcessTimes),
        _ => Ok(()),
    }
}

pub(crate) fn times(builder: &mut Builder<'_>) -> Flow {
    builder.region(builder.value(0), 32, Out, Returned::Whole)?;
    special_forward(builder, Special::ProcessTimes)
}

const ITIMERVAL: u64 = 32;

pub(crate) fn getitimer(builder: &mut Builder<'_>) -> Flow {
    if builder.int(0) != libc::ITIMER_REAL {
        return run_here();
    }
    builder.region(builder.value(1), ITIMERVAL, Out, Returned::Whole)
}

pub(crate) fn setitimer(builder: &mut Builder<'_>) -> Flow {
    if builder.int(0) != libc::ITIMER_REAL {
        return run_here();
    }
    builder.region(builder.value(1), ITIMERVAL, In, Returned::Nothing)?;
    builder.region(builder.value(2), ITIMERVAL, Out, Returned::Whole)
}

pub(crate) fn timer_create(builder: &mut Builder<'_>) -> Flow {
    if clock(builder, builder.int(0)) != Clock::Shared {
        return go_home("it makes a timer on CPU time");
    }
    builder.region(builder.value(1), 64, In, Returned::Nothing)?;
    // Who restores timers says which number it wants (PR_TIMER_CREATE_RESTORE_IDS, Linux 6.15).
    builder.region(builder.value(2), 4, Direction::InOut, Returned::Whole)
}

// ---- attributes of the process ----

pub(crate) fn move_pages(builder: &mut Builder<'_>) -> Flow {
    if moves_all(builder.unsigned(5), MPOL_MF_MOVE | MPOL_MF_MOVE_ALL) {
        return go_home(MOVES_ALL);
    }
    own_here_else_home(builder)
}

/// Runs here for the own process; for other processes, goes home.
pub(crate) fn own_here_else_home(builder: &mut Builder<'_>) -> Flow {
    let pid = builder.int(0);
    if pid == 0 || builder.context.is_own(pid) {
        return run_here();
    }
    go_home("it moves the memory of another process")
}

pub(crate) fn get_robust_list(builder: &mut Builder<'_>) -> Flow {
    let tid = builder.int(0);
    // Trap: numbers-of-other-processes
    if tid == 0 || builder.context.is_own(tid) {
        return run_here();
    }
    builder.region(builder.value(1), 8, Out, Returned::Whole)?;
    builder.region(builder.value(2), 8, Out, Returned::Whole)
}

const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_TRYLOCK_PI: u32 = 8;
const FUTEX_CMP_REQUEUE_PI: u32 = 12;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_LOCK_PI2: u32 = 13;
const FUTEX_PRIVATE: u32 = 128;
const FUTEX_CLOCK_REALTIME: u32 = 256;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
/// Trapped, because the kernel looks for the thread whose number stands in the lock.
pub(crate) const FUTEX_TRAPPED: &[u32] = &[
    FUTEX_LOCK_PI,
    FUTEX_LOCK_PI | FUTEX_PRIVATE,
    FUTEX_TRYLOCK_PI,
    FUTEX_TRYLOCK_PI | FUTEX_PRIVATE,
    FUTEX_CMP_REQUEUE_PI,
    FUTEX_CMP_REQUEUE_PI | FUTEX_PRIVATE,
    FUTEX_LOCK_PI2,
    FUTEX_LOCK_PI2 | FUTEX_PRIVATE,
    FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME,
    FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME | FUTEX_PRIVATE,
];

/// Whether `futex` with these arguments waits until another thread changes a word; a wait for bits is for some of them.
#[must_use]
pub fn waits_for_futex(args: &[u64; 6]) -> bool {
    let command =
        u32::try_from(args[1]).map(|whole| whole & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME));
    match command {
        Ok(FUTEX_WAIT) => true,
        Ok(FUTEX_WAIT_BITSET) => args[5] & u64::from(u32::MAX) != 0,
        _ => false,
    }
}

/// A lock with inheritance of priority. A child has those that its parent held, and here is no thread of the parent's:
/// the kernel would say that its holder is no more.
pub(crate) fn futex(builder: &mut Builder<'_>) -> Flow {
    let command = builder.unsigned(1) & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME);
    let lock = match command {
        FUTEX_LOCK_PI | FUTEX_TRYLOCK_PI | FUTEX_LOCK_PI2 => builder.value(0),
        FUTEX_CMP_REQUEUE_PI => builder.value(4),
        // Where all calls are trapped that touch memory, the others come here as well: their words hold no number.
        _ => return run_here(),
    };
    let bytes = builder.peek(lock, 4);
    // What cannot be read is for the kernel to refuse.
    let Some(word) = bytes.try_into().ok().map(u32::from_ne_bytes) else {
        return run_here();
    };
    let holder = (word & FUTEX_TID_MASK).cast_signed();
    // Trap: a-lock-of-another-process
    if holder == 0 || builder.context.is_own(holder) {
        return run_here();
    }
    go_home("another process holds the lock for which it asks")
}

const REAL_TIME: &str = "it asks for a real-time policy";

/// FIFO, RR and DEADLINE cannot be kept across machines.
fn is_real_time(policy: u32) -> bool {
    const RESET_ON_FORK: u32 = 0x4000_0000;
    matches!(policy & !RESET_ON_FORK, 1 | 2 | 6)
}

pub(crate) fn sched_setscheduler(builder: &mut Builder<'_>) -> Flow {
    if is_real_time(builder.unsigned(1)) {
        return go_home(REAL_TIME);
    }
    builder.region(builder.value(2), 4, In, Returned::Nothing)
}

pub(crate) fn sched_setattr(builder: &mut Builder<'_>) -> Flow {
    if is_real_time(half(&builder.peek(builder.value(1), 8), 4)) {
        return go_home(REAL_TIME);
    }
    crate::nested::sized_structure(builder, 1)
}

/// Limits that act where the memory is, or where the CPU is used.
fn acts_in_guest(resource: u32) -> bool {
    // CPU, DATA, STACK, RSS, MEMLOCK, AS, RTPRIO, RTTIME
    matches!(resource, 0 | 2 | 3 | 5 | 8 | 9 | 14 | 15)
}

/// Limits on address space and data, which a deputy must not have.
fn is_raised(resource: u32) -> bool {
    matches!(resource, 2 | 9)
}

pub(crate) fn getrlimit(builder: &mut Builder<'_>) -> Flow {
    builder.region(builder.value(1), RLIMIT, Out, Returned::Whole)?;
    if is_raised(builder.unsigned(0)) {
        return special_forward(builder, Special::Limit);
    }
    Ok(())
}

const LIMITS: &str = "it changes a limit on its memory or CPU time";
const RLIMIT: u64 = 16;

pub(crate) fn setrlimit(builder: &mut Builder<'_>) -> Flow {
    if acts_in_guest(builder.unsigned(0)) {
        return go_home(LIMITS);
    }
    builder.region(builder.value(1), RLIMIT, In, Returned::Nothing)
}

pub(crate) fn prlimit64(builder: &mut Builder<'_>) -> Flow {
    let pid = builder.int(0);
    let own = pid == 0 || builder.context.is_own(pid);
    if own && builder.value(2) != 0 && acts_in_guest(builder.unsigned(1)) {
        return go_home(LIMITS);
    }
    builder.region(builder.value(2), RLIMIT, In, Returned::Nothing)?;
    builder.region(builder.value(3), RLIMIT, Out, Returned::Whole)?;
    if own && is_raised(builder.unsigned(1)) {
        return special_forward(builder, Special::Limit);
    }
    Ok(())
}

pub(crate) fn personality(builder: &mut Builder<'_>) -> Flow {
    if builder.unsigned(0) == u32::MAX {
        return Ok(());
    }
    go_home("it changes its execution domain")
}

pub(crate) const CLOSE_RANGE_UNSHARE: u32 = 2;

pub(crate) fn close_range(builder: &mut Builder<'_>) -> Flow {
    if builder.unsigned(2) & CLOSE_RANGE_UNSHARE != 0 {
        return go_home("it gives a thread descriptors of its own");
    }
    Ok(())
}
