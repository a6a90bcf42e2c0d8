//! The types of the resolver's questions and answers.

use serde::{Deserialize, Serialize};
use whim_model::Syscall;

/// The most bytes that the buffers of one forwarded call may have together; a call with more
/// goes home. Bounds the memory that one call can make either supervisor allocate.
pub const AWAY_BYTES_MAX: u64 = 32 << 20;

/// The most regions of one forwarded call; a call with more goes home.
pub const REGIONS_MAX: usize = 4096;

/// A number that no kernel knows. A guest thread that was moved while its deputy was inside a
/// forwarded call executes it; the supervisor answers it with the result of that call.
pub const AWAIT_NUMBER: u64 = 0x5748_494d;

/// What the guest supervisor can read of its guest.
pub trait GuestMemory {
    /// Reads as much as is readable from `address` on, up to `buffer.len()`, and returns the
    /// count (0: nothing is readable).
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
    /// True if every byte of the range may be written by the guest (page permissions).
    fn writable(&self, address: u64, length: u64) -> bool;
    /// True if a byte of the range belongs to what is the mapping of a file at home, and memory here.
    fn has_file(&self, address: u64, length: u64) -> bool {
        let _ = (address, length);
        false
    }
    /// True if all of the range belongs to mappings of files.
    fn is_file(&self, address: u64, length: u64) -> bool {
        let _ = (address, length);
        false
    }
    /// True if all of the range shows one mapping of a file, and goes on in it.
    fn is_run(&self, address: u64, length: u64) -> bool {
        let _ = (address, length);
        false
    }
    /// True if all of the range belongs to one mapping of this host's kernel.
    fn is_one(&self, address: u64, length: u64) -> bool {
        let _ = (address, length);
        true
    }
    /// True if the mapping of a file there may not have one of these rights (PROT_*), or nobody here knows.
    fn forbids(&self, address: u64, length: u64, protection: u32) -> bool {
        let _ = (address, length, protection);
        false
    }
    /// True if a byte of the range is in memory that was only given to a mapping that grows downwards, as room:
    /// at home nothing is there.
    fn is_room(&self, address: u64, length: u64) -> bool {
        let _ = (address, length);
        false
    }
}

/// The `arch` of a native call in a seccomp notification (`AUDIT_ARCH_X86_64`).
pub const NATIVE: u32 = 0xc000_003e;

/// A call as a seccomp notification reports it (`data.arch`, `data.nr`, `data.args`).
///
/// A 32-bit call (`int 0x80`) has other numbers: it becomes a number without a row, and so goes home. The same
/// is true of x32 numbers, which carry bit 30.
pub fn notified(arch: u32, number: i32, args: [u64; 6]) -> Syscall {
    let native = if arch == NATIVE {
        u64::from(number.cast_unsigned())
    } else {
        u64::MAX
    };
    Syscall {
        number: native,
        args,
    }
}

/// Which way the bytes of a region go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// The kernel reads them.
    In,
    /// The kernel writes them; what they were does not matter.
    Out,
    /// The kernel reads them, or leaves some of them as they were.
    InOut,
    /// The kernel may read them, and would write them, but the guest may only read them: writing
    /// gives EFAULT.
    Protected,
}

/// How much of an `Out` or `InOut` region home sends back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Returned {
    /// Nothing.
    Nothing,
    /// All of it, if the result is not an errno.
    Whole,
    /// All of it, whatever the result is (poll, select timeouts, error structures).
    WholeAlways,
    /// Of an `InOut` region: up to the last byte that the kernel has changed, whatever the result is.
    /// For arrays of which only home knows the length.
    Changed,
    /// `min(length, max(0, rax - skip))` bytes: read and the pieces of readv, getdents, recv.
    ByResult {
        /// Bytes of the result that earlier pieces took.
        skip: u64,
    },
    /// `min(length, rax * unit)` bytes: 12 per event of `epoll_wait`. `unit == length` means the
    /// whole region, but only if the result is above 0.
    ByResultTimes {
        /// Bytes per unit of the result.
        unit: u64,
    },
}

impl Returned {
    /// How many bytes of a region of `length` bytes come back for the result `rax`.
    pub fn bytes(&self, length: u64, rax: i64) -> u64 {
        let result = u64::try_from(rax).unwrap_or(0);
        match *self {
            Self::Nothing => 0,
            Self::Whole if (-4095..0).contains(&rax) => 0,
            Self::Whole | Self::WholeAlways | Self::Changed => length,
            Self::ByResult { skip } => length.min(result.saturating_sub(skip)),
            Self::ByResultTimes { unit } => length.min(result.saturating_mul(unit)),
        }
    }
}

/// One range of the guest's memory that the kernel may touch during a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Where it starts, at the guest and in the deputy's window alike.
    pub address: u64,
    /// Bytes. For `Out`: already cut to what the guest may write; home leaves the rest absent,
    /// so that the kernel itself gives EFAULT or a short count.
    pub length: u64,
    /// Which way the bytes go.
    pub direction: Direction,
    /// What comes back.
    pub returned: Returned,
    /// All but `Out`: what the guest's memory holds. Shorter than `length` when the rest
    /// cannot be read: home must leave those pages absent. Empty for `Out`.
    pub data: Vec<u8>,
}

/// How a relative timeout is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeoutFormat {
    /// The argument itself, milliseconds in its low 32 bits; negative: none.
    Milliseconds,
    /// The argument points to two i64: seconds and nanoseconds. Null: none.
    Timespec,
    /// The argument points to two i64: seconds and microseconds. Null: none.
    Timeval,
}

/// Where a call's relative timeout is, so that a reissued call can be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeoutArgument {
    /// Which argument, 0 to 5.
    pub index: usize,
    /// What stands there.
    pub format: TimeoutFormat,
}

/// A call that the deputy executes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Every range that the kernel may touch. Ranges may overlap: home places the zeros of `Out`
    /// first and the data of `In` and `InOut` over them.
    pub regions: Vec<Region>,
    /// The call may wait for something outside of it for an unbounded time.
    pub may_block: bool,
    /// Something that the kernel may touch is missing or protected in the guest, so EFAULT or a
    /// short count is a true answer. When this is false, EFAULT is a hole in the table.
    pub may_fault: bool,
    /// The argument that holds a relative timeout, if the call has one and it is finite.
    pub timeout: Option<TimeoutArgument>,
    /// The signal mask that must act in the guest while it waits (ppoll, pselect6, epoll_pwait);
    /// `args` then has a null pointer for it.
    pub wait_mask: Option<u64>,
    /// The arguments for the deputy.
    pub args: [u64; 6],
}

/// A signal that a thread of the process sends to its own process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The thread group, when the call names one (kill, tgkill, both sigqueueinfo calls).
    pub tgid: Option<i32>,
    /// The thread, when the call names one (tkill, tgkill, rt_tgsigqueueinfo). With a `tgid` of
    /// this process it need not exist: then the answer is ESRCH.
    pub tid: Option<i32>,
    /// 1 to 64.
    pub signal: i32,
    /// Where the guest's siginfo lies (128 bytes), 0 if the call has none.
    pub info: u64,
    /// The same call as a plain forward: the deputy signals itself and the signal is carried.
    pub forward: Forward,
}

/// A thread that the program makes. [`clone`](https://man7.org/linux/man-pages/man2/clone.2.html)
/// takes these arguments in registers, so what is executed is what was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewThread {
    /// CLONE_ flags of a thread, and none besides.
    pub flags: u64,
    /// Its stack pointer; 0: its maker's.
    pub stack: u64,
    /// Where its number is written before the call returns, with CLONE_PARENT_SETTID.
    pub parent_tid: u64,
    /// Where the new thread finds its number, and where it is cleared at its end.
    pub child_tid: u64,
    pub thread_local: u64,
}

impl NewThread {
    /// What makes a new task a thread of the same process.
    pub const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD;

    /// Arguments of `clone`.
    #[must_use]
    pub fn arguments(&self) -> [u64; 5] {
        [
            self.flags,
            self.stack,
            self.parent_tid,
            self.child_tid,
            self.thread_local,
        ]
    }

    /// Addresses of the 4-byte words that the kernel writes before the thread runs.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        let has = |flag: i32| self.flags & u64::from(flag.cast_unsigned()) != 0;
        let parent = has(libc::CLONE_PARENT_SETTID).then_some(self.parent_tid);
        let child = has(libc::CLONE_CHILD_SETTID).then_some(self.child_tid);
        parent.into_iter().chain(child)
    }
}

/// Calls that need the supervisor's own protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Special {
    /// `mmap` of a file, private: the mapping is made at home in the attic, and at the guest as
    /// memory that is filled from there. The arguments are those of the call.
    MapFile,
    /// `mremap` of such a mapping that makes it longer, or leaves a fresh one where it was: home
    /// makes one more mapping of the file first.
    RemapFile,
    /// A signal to the own process. It must first interrupt the deputy's call of the thread that it
    /// is for. Otherwise that thread's handler would not run while the call waits (docs/traps.md,
    /// `own-signals-do-not-interrupt`).
    Signal(Box<Signal>),
    /// `rt_sigaction` with a new action: home mirrors its class (default, ignored, caught, flags)
    /// before the call runs natively. [`signal_action`] reads what the guest asks for.
    SignalAction,
    /// `rt_sigprocmask` or `rt_sigsuspend` where descriptors read signals: it runs natively if the thread blocks
    /// the same ones of those signals afterwards, else at home, where they wait.
    SignalMask(MaskChange),
    /// `clone` or `clone3` of a thread: a deputy thread is made at home, and here a thread with the
    /// same number.
    NewThread(NewThread),
    /// `exit`: this thread ends at the guest and its deputy thread at home.
    ThreadExit,
    /// `exit_group`: an acknowledged call; the deputy ends with this status.
    ProcessExit,
    /// A memory call that touches the reserved range: the process goes home, where the call
    /// runs, and its next journey chooses another range.
    ReservedMemory,
    /// CPU time of the process or a thread of it: the forward gives home's share, to which the
    /// supervisor adds what the guest has used (getrusage, times, clock_gettime of CPU clocks).
    ProcessTimes(Forward),
    /// Some options of `prctl`: forwarded, because home keeps or shows what is set, and then run
    /// natively, where home's kernel has accepted it.
    Both(Forward),
    /// A question for a limit of the process that home has raised for its deputy (getrlimit,
    /// prlimit64): forwarded, and what home says is replaced by the program's own limit.
    Limit(Forward),
    /// The result of the forwarded call that was in flight when the thread was moved.
    Await,
}

/// What happens with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Run natively in the guest (the notification is answered with CONTINUE).
    Continue,
    /// Execute in the deputy.
    Forward(Forward),
    /// Return home; the call runs there. The sentence says why.
    GoHome(&'static str),
    /// Answer at once with this value or negative errno.
    Answer(i64),
    /// Needs the supervisor's own protocol.
    Special(Special),
}

/// A change of a thread's signal mask: how, as `rt_sigprocmask` has it, and by which signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskChange {
    pub how: i32,
    pub set: u64,
}

impl MaskChange {
    /// What is blocked afterwards. A change that the kernel refuses changes nothing.
    #[must_use]
    pub fn of(self, blocked: u64) -> u64 {
        match self.how {
            libc::SIG_BLOCK => blocked | self.set,
            libc::SIG_UNBLOCK => blocked & !self.set,
            libc::SIG_SETMASK => self.set,
            _ => blocked,
        }
    }
}

/// What the resolver must know of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The process id, the same at home and in the guest.
    pub pid: i32,
    /// The ids of its threads, the same at home and in the guest.
    pub threads: Vec<i32>,
    /// Start and end of the reserved range (attic, window control, stub), both multiples of
    /// 4 GiB. `(0, 0)`: none.
    pub reserved: (u64, u64),
    /// All that it maps from now on is to be locked (MCL_FUTURE), which is said at home alone.
    pub locks_future: bool,
    /// The signals that its descriptors read (signalfd). Those of them that a thread blocks wait at home.
    pub descriptor_signals: u64,
}

impl Context {
    /// True if the id names this process or one of its threads.
    pub fn is_own(&self, id: i32) -> bool {
        id == self.pid || self.threads.contains(&id)
    }

    /// True if the range has a byte in common with the reserved range.
    pub fn touches_reserved(&self, address: u64, length: u64) -> bool {
        let (start, end) = self.reserved;
        length > 0 && address < end && address.saturating_add(length) > start
    }
}

/// The class of a signal's action: all that home's kernel ever asks about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disposition {
    /// SIG_DFL.
    Default,
    /// SIG_IGN.
    Ignored,
    /// A handler.
    Caught,
}

/// A new signal action, as `rt_sigaction` asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalAction {
    /// The signal number, unchecked.
    pub signal: i32,
    /// The class of the action.
    pub disposition: Disposition,
    /// SA_ flags.
    pub flags: u64,
    /// The mask while the handler runs.
    pub mask: u64,
}

/// Reads the new action of an `rt_sigaction` call. `None`: the call sets none, or its pointer or
/// its size is wrong, and running it natively gives the right error.
pub fn signal_action(call: &Syscall, memory: &dyn GuestMemory) -> Option<SignalAction> {
    let mut bytes = [0u8; 32];
    if call.args[1] == 0 || call.args[3] != 8 {
        return None;
    }
    if memory.read(call.args[1], &mut bytes) != bytes.len() {
        return None;
    }
    let disposition = match word(&bytes, 0) {
        0 => Disposition::Default,
        1 => Disposition::Ignored,
        _ => Disposition::Caught,
    };
    Some(SignalAction {
        signal: low(call.args[0]).cast_signed(),
        disposition,
        flags: word(&bytes, 8),
        mask: word(&bytes, 24),
    })
}

/// The low half of an argument: the kernel ignores the high half of an `int`.
pub(crate) fn low(value: u64) -> u32 {
    let bytes = value.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The u64 at an offset; 0 where the bytes are missing.
pub(crate) fn word(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..offset + 8)
        .and_then(|slice| slice.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// The u32 at an offset; 0 where the bytes are missing.
pub(crate) fn half(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .and_then(|slice| slice.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}
