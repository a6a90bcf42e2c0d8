//! A process as data: everything that travels when a computation changes its node.
//!
//! Descriptors, credentials, cwd, children, terminal, sockets, locks and timers on real time are not
//! here: they stay at home with the deputy.
#![forbid(unsafe_code)]

pub mod overruns;

use serde::{Deserialize, Serialize};

/// Size of a page, in bytes (x86-64).
pub const PAGE_SIZE: u64 = 4096;
/// End of the address space that a program can have (4-level page tables).
pub const USER_END: u64 = 0x7fff_ffff_f000;
/// Makes guard pages: pages that nobody may touch, and that the list of mappings does not show (Linux 6.13; not in
/// the libc crate).
pub const MADV_GUARD_INSTALL: u32 = 102;

/// A system call: its number, and its arguments in the order rdi, rsi, rdx, r10, r8, r9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscall {
    pub number: u64,
    pub args: [u64; 6],
}

impl Syscall {
    /// A call with the number that `libc` has for it; arguments that are not given are 0.
    #[must_use]
    pub fn new(number: i64, args: &[u64]) -> Self {
        let mut all = [0; 6];
        for (place, value) in all.iter_mut().zip(args) {
            *place = *value;
        }
        Self {
            number: number.cast_unsigned(),
            args: all,
        }
    }

    /// The number and the arguments as bytes, in the layout that our code inside a process reads.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<> {
        let words = std::iter::once(self.number).chain(self.args);
        words.flat_map(u64::to_le_bytes)
    }
}

/// The general registers: the kernel's `struct user_regs_struct` (x86-64), as ptrace reads and
/// writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

impl Registers {
    /// The arguments of a system call, in their order.
    #[must_use]
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Puts the arguments of a system call where the kernel finds them.
    pub fn set_arguments(&mut self, args: [u64; 6]) {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9] = args;
    }
}

/// What a thread was doing when it was frozen, and how its new half continues it.
///
/// In `registers` of a thread that `AwaitsHome`, `rip` already points *at* the `syscall`
/// instruction and `rax` is [`AWAIT_NUMBER`]. So the guest executes the instruction once more, its
/// filter reports the call, and the guest supervisor asks home for the result of the call that
/// the deputy thread has in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It was computing, or its call had ended: `registers` are resumed as they are. A call that
    /// has to be executed anew in the guest is already rewound in `registers`.
    Computing,
    /// Its call is, or will be, executed by its deputy thread.
    AwaitsHome,
}

/// Number that no kernel gives to a system call; it asks for the result of the call in flight.
pub const AWAIT_NUMBER: u64 = 0x5748_494d;

/// `rseq(2)` registration of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RseqRegistration {
    pub address: u64,
    pub length: u32,
    pub signature: u32,
    pub flags: u32,
}

/// Alternate signal stack, as `sigaltstack(2)` reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlternateStack {
    pub address: u64,
    pub flags: i32,
    pub size: u64,
}

/// A queued signal: the raw 128 bytes of the kernel's `siginfo_t`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedSignal {
    /// 1..=64
    pub signal: u8,
    /// `siginfo_t`, 128 bytes.
    pub info: Vec<u8>,
}

impl QueuedSignal {
    /// The signal of this number with its `siginfo_t`; `None` if there can be none.
    #[must_use]
    pub fn new(signal: i32, info: &[u8; 128]) -> Option<Self> {
        Some(Self {
            signal: u8::try_from(signal).ok()?,
            info: info.to_vec(),
        })
    }
}

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// As the CPU clocks measure it; user and system time may have a coarser grain.
    pub total_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

impl CpuTime {
    /// The sum of this time and another one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_add(other.total_ns),
            user_ns: self.user_ns.saturating_add(other.user_ns),
            system_ns: self.system_ns.saturating_add(other.system_ns),
        }
    }

    /// What has passed since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

/// What becomes of a thread when memory that it has mapped fails (`prctl(PR_MCE_KILL)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryErrors {
    /// What the machine does (`vm.memory_failure_early_kill`).
    #[default]
    Default,
    /// It is told at once.
    Early,
    /// It is told when it touches that memory.
    Late,
}

/// Settings of a thread that the kernel keeps and that act where it computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSettings {
    /// By how much its timers may be late, in nanoseconds (`prctl(PR_SET_TIMERSLACK)`); 0 if it is not
    /// known.
    pub timer_slack_ns: u64,
    pub memory_errors: MemoryErrors,
    /// RDTSC is a fault in it (`prctl(PR_SET_TSC)`).
    pub denies_time_stamps: bool,
    /// Where memory lies that it is the first to touch (`set_mempolicy(2)`).
    pub policy: MemoryPolicy,
}

/// Where memory is to lie on a machine that has several memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicy {
    /// MPOL_*, with its flags; 0: wherever memory lies otherwise.
    pub mode: u32,
    /// The nodes that were named, one bit each.
    pub nodes: u64,
}

/// What was said of a range of memory that its mapping does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    pub range: Range,
    /// `mbind(2)`
    pub policy: MemoryPolicy,
    /// `prctl(PR_SET_VMA_ANON_NAME)`, at most [`Remark::NAME_MAX`] bytes; empty without one.
    pub name: Vec<u8>,
}

impl Remark {
    /// The kernel's limit: ANON_VMA_NAME_MAX_LEN, less the NUL.
    pub const NAME_MAX: usize = 79;
    /// The most remarks of one image: about as many as it may have mappings.
    pub const COUNT_MAX: usize = 1 << 18;
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadImage {
    /// Thread id in the process's own pid namespace.
    pub tid: i32,
    pub registers: Registers,
    pub activity: Activity,
    /// For a thread that awaits home: the sequence number of its call, or 0 for the call that was
    /// in flight when the thread left home. By this number home tells a call that it never got from
    /// the call before.
    pub awaited: u64,
    /// NT_X86_XSTATE as PTRACE_GETREGSET gives it.
    pub xstate: Vec<u8>,
    /// Blocked signals, bit n-1 for signal n.
    pub signal_mask: u64,
    pub alternate_stack: AlternateStack,
    pub rseq: Option<RseqRegistration>,
    /// Address and length, as `get_robust_list(2)` gives them.
    pub robust_list: (u64, u64),
    /// `clear_child_tid`, as PR_GET_TID_ADDRESS gives it.
    pub tid_address: u64,
    /// Signals pending for this thread alone. Empty on the way out from home (they stay pending in
    /// the deputy and are carried as they are delivered); filled on the way home and onward.
    pub pending: Vec<QueuedSignal>,
    /// At most 15 bytes, of any value but 0.
    pub name: Vec<u8>,
    pub settings: ThreadSettings,
    /// For a thread that repeats a call with a relative timeout: when that timeout ends, by the
    /// process's CLOCK_MONOTONIC.
    pub deadline_ns: Option<u64>,
    /// CPU time that it has used since it left home; home's kernel knows the rest.
    pub cpu_away: CpuTime,
}

/// Disposition of one signal, as `rt_sigaction(2)` gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAction {
    /// 0 = default, 1 = ignore, else the handler's address.
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Number of a private file mapping in this process, given by home and valid for the whole stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MappingId(pub u32);

/// Where the bytes of a mapping that was never written come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Zeros.
    Anonymous,
    /// A private mapping of a file, kept in home's attic: byte `offset` of mapping `id`.
    /// `offset` is relative to the beginning of that mapping in the attic, not of the file.
    File { id: MappingId, offset: u64 },
    /// vDSO, vvar and their kin: the host's own mappings, moved to these addresses, or what
    /// `whim_image::vdso` makes of home's.
    Kernel { name: String },
}

/// Protection bits of a mapping (PROT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection(pub u8);

impl Protection {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const EXEC: u8 = 4;

    #[must_use]
    pub fn readable(self) -> bool {
        self.0 & Self::READ != 0
    }

    #[must_use]
    pub fn writable(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    #[must_use]
    pub fn bits(self) -> i32 {
        i32::from(self.0)
    }
}

/// Properties of a mapping that `mmap` and `madvise` set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingFlags {
    /// MAP_GROWSDOWN (stacks of the main thread).
    pub grows_down: bool,
    /// MADV_HUGEPAGE
    pub huge: bool,
    /// MADV_NOHUGEPAGE
    pub no_huge: bool,
    /// MADV_DONTFORK
    pub dont_fork: bool,
    /// MADV_DONTDUMP
    pub dont_dump: bool,
    /// MADV_WIPEONFORK
    pub wipe_on_fork: bool,
    /// MADV_RANDOM
    pub random: bool,
    /// MADV_SEQUENTIAL
    pub sequential: bool,
    /// MAP_NORESERVE
    pub no_reserve: bool,
    /// mlock
    pub locked: bool,
    /// MLOCK_ONFAULT: pages are locked as they are touched.
    pub locked_on_fault: bool,
    /// MADV_MERGEABLE. Not set at a host, which would tell others what is equal.
    pub mergeable: bool,
    /// MAP_DROPPABLE
    pub droppable: bool,
    /// `mprotect` may not make it writable (a file that was opened to be read, and is mapped as shared).
    pub never_write: bool,
    /// `mprotect` may not make it executable (a file system without programs).
    pub never_execute: bool,
    /// It is executed and not read: PROT_EXEC alone, for which the kernel uses a protection key.
    pub never_read: bool,
}

/// One mapping of the address space. `start < end`, both page aligned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub protection: Protection,
    pub flags: MappingFlags,
    pub backing: Backing,
}

impl Mapping {
    /// Its protection as `mmap` and `mprotect` take it. PROT_EXEC alone makes memory that cannot be read, where the
    /// CPU has protection keys; with PROT_SEM, which means nothing else on this architecture, it can be.
    #[must_use]
    pub fn rights(&self) -> i32 {
        const PROT_SEM: i32 = 8;
        let reads = self.protection.0 == Protection::EXEC && !self.flags.never_read;
        self.protection.bits() | if reads { PROT_SEM } else { 0 }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A half-open address range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    #[must_use]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    #[must_use]
    pub fn contains(self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    #[must_use]
    pub fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Memory layout fields of `prctl(PR_SET_MM, PR_SET_MM_MAP)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLayout {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
    /// Raw bytes of /proc/PID/auxv.
    pub auxv: Vec<u8>,
}

/// Soft and hard limit of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// Clocks as the process saw them at one instant, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    pub monotonic_ns: u64,
    pub boottime_ns: u64,
    pub realtime_ns: u64,
}

/// A whole process, without the contents of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessImage {
    /// Process id (of the thread group leader) in the process's own pid namespace.
    pub pid: i32,
    /// The leader first.
    pub threads: Vec<ThreadImage>,
    /// Signals 1..=64 at index 0..=63.
    pub actions: Vec<SignalAction>,
    /// Signals pending for the process. Empty on the way out (see [`ThreadImage::pending`]).
    pub pending: Vec<QueuedSignal>,
    /// Ascending, disjoint.
    pub mappings: Vec<Mapping>,
    /// Pages that MADV_GUARD_INSTALL made inaccessible. Ascending, each within one mapping.
    pub guards: Vec<Range>,
    pub layout: MemoryLayout,
    pub limits: Vec<ResourceLimit>,
    pub personality: u64,
    pub no_transparent_huge_pages: bool,
    /// For which memory barriers it is registered (membarrier(2)): the commands that register, one bit
    /// each.
    pub barriers: u32,
    /// What its memory may never be, once said (`prctl(PR_SET_MDWE)`, PR_MDWE_*).
    pub denies_memory: u32,
    /// Its seccomp filters, the oldest first, each instruction as the kernel has it, in one little-endian number.
    pub filters: Vec<Vec<u64>>,
    /// Memory that it maps from now on is to be locked (MCL_FUTURE).
    pub locks_future: bool,
    /// The signals that its descriptors read (signalfd), bit n-1 for signal n. Those of them that a thread blocks
    /// wait at home, where the descriptors are.
    pub descriptor_signals: u64,
    /// Ascending, disjoint.
    pub remarks: Vec<Remark>,
    /// Address range in which home keeps attic, seats and code of the deputy. The guest has no
    /// mapping in it. Both ends are multiples of 4 GiB.
    pub reserved: Range,
    /// Contents of home's mapping `[vdso]`, for a host whose kernel has a different one.
    pub vdso: Vec<u8>,
    /// Clocks at the moment of the freeze.
    pub clocks: Clocks,
    /// CPU time that all threads, including those that have ended, have used since the process left
    /// home.
    pub cpu_away: CpuTime,
    /// `ITIMER_VIRTUAL` and `ITIMER_PROF`: they run where CPU time is used.
    pub cpu_timers: [CpuTimer; 2],
}

/// A timer on CPU time (`setitimer`), in microseconds. All fields are 0 if it does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimer {
    pub interval: u64,
    pub left: u64,
}

impl CpuTimer {
    /// Length of the kernel's form, `struct itimerval`.
    pub const LENGTH: usize = 32;
    const SECOND: u64 = 1_000_000;

    /// Reads the timer from the bytes that `getitimer` has written.
    #[must_use]
    pub fn from_kernel(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..index * 8 + 8);
            bytes
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_ne_bytes)
        };
        let time = |index| {
            word(index)
                .saturating_mul(Self::SECOND)
                .saturating_add(word(index + 1))
        };
        Self {
            interval: time(0),
            left: time(2),
        }
    }

    /// The timer as bytes for `setitimer`.
    #[must_use]
    pub fn to_kernel(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let words = [self.interval, self.left]
            .into_iter()
            .flat_map(|time| [time / Self::SECOND, time % Self::SECOND]);
        for (index, word) in words.enumerate() {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// The timers of [`ProcessImage::cpu_timers`], as the kernel numbers them.
pub const CPU_TIMERS: [u64; 2] = [1, 2];

impl ProcessImage {
    /// How much there is to be done for it: mappings, guard pages, threads, and signals that wait.
    #[must_use]
    pub fn pieces(&self) -> usize {
        let signals = self.threads.iter().map(|thread| thread.pending.len());
        let signals = self.pending.len() + signals.sum::<usize>();
        self.mappings.len() + self.guards.len() + self.threads.len() + signals
    }

    /// Whether every remark is of memory that a program can have outside of `reserved`, and none is
    /// longer than the kernel lets it be.
    #[must_use]
    pub fn has_sound_remarks(&self, reserved: Range) -> bool {
        let mut at = 0;
        let mut sound = |remark: &Remark| {
            let Range { start, end } = remark.range;
            let aligned = (start | end).is_multiple_of(PAGE_SIZE);
            let ordered = at <= start && start < end && end <= 1 << 47;
            at = end;
            let name = remark.name.as_slice();
            let sound_name = name.len() <= Remark::NAME_MAX && !name.contains(&0);
            aligned && ordered && sound_name && !remark.range.overlaps(reserved)
        };
        self.remarks.len() <= Remark::COUNT_MAX && self.remarks.iter().all(&mut sound)
    }

    /// Whether every guard lies in a mapping that can have one.
    #[must_use]
    pub fn has_sound_guards(&self) -> bool {
        let mut at = 0;
        self.guards.iter().all(|guard| {
            let index = self
                .mappings
                .partition_point(|mapping| mapping.end <= guard.start);
            let inside = self.mappings.get(index).is_some_and(|mapping| {
                mapping.start <= guard.start
                    && guard.end <= mapping.end
                    && !matches!(mapping.backing, Backing::Kernel { .. })
            });
            let aligned = (guard.start | guard.end).is_multiple_of(PAGE_SIZE);
            let ordered = at <= guard.start && !guard.is_empty();
            at = guard.end;
            inside && aligned && ordered
        })
    }
}
