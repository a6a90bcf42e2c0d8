//! The vocabulary in which the table is written.

use crate::builder::{Builder, Flow};
use crate::stopped::{Asked, AtStop, Buffer, End, Limit, Only, Stopped, Time, Transfer};
use crate::types::{Direction, Returned};
use syscalls::Sysno;
use whim_model::PAGE_SIZE;

/// The kernel never moves more than this in one read or write.
pub(crate) const MAX_RW_COUNT: u64 = 0x7fff_f000;

/// What a call is, before its arguments are examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallClass {
    /// Runs natively in the guest; not trapped, save for rare arguments.
    Local,
    /// The deputy executes it.
    Forward,
    /// Its arguments decide.
    ByArgument,
    /// The process goes home and the call runs there.
    Home,
}

/// How long a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// This many bytes.
    Bytes(u64),
    /// A 64-bit count in an argument; the kernel touches at most `most` bytes.
    Long { index: usize, unit: u64, most: u64 },
    /// A signed 32-bit count in an argument (negative: none).
    Int { index: usize, unit: u64, most: u64 },
    /// An unsigned 32-bit count in an argument.
    Unsigned { index: usize, unit: u64, most: u64 },
    /// As many bytes as a length in an argument (64 bits) has pages.
    BytePerPage { index: usize, most: u64 },
}

impl Size {
    /// The length in bytes, with these arguments.
    pub(crate) fn of(self, args: &[u64; 6]) -> u64 {
        // The kernel takes the low half of a 32-bit argument.
        let low = |index: usize| u32::try_from(args[index] & u64::from(u32::MAX)).unwrap_or(0);
        let (count, unit, most) = match self {
            Self::Bytes(bytes) => (bytes, 1, bytes),
            Self::Long { index, unit, most } => (args[index], unit, most),
            Self::Int { index, unit, most } => {
                let count = u64::try_from(low(index).cast_signed()).unwrap_or(0);
                (count, unit, most)
            }
            Self::Unsigned { index, unit, most } => (u64::from(low(index)), unit, most),
            Self::BytePerPage { index, most } => (args[index].div_ceil(PAGE_SIZE), 1, most),
        };
        count.saturating_mul(unit).min(most)
    }
}

/// One argument of a call whose pointers lead to flat buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument {
    /// No pointer.
    Value,
    /// A path: one into the process's own /proc goes home.
    Path,
    /// Another string.
    Text,
    /// A buffer.
    Buffer(Size, Direction, Returned),
}

/// How the buffers of a call are found.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Nothing to find.
    None,
    /// Argument by argument.
    Flat(&'static [Argument]),
    /// By a function, which may also decide not to forward.
    Code(fn(&mut Builder<'_>) -> Flow, &'static str),
}

/// What the guest's seccomp filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Not trapped.
    Allow,
    /// Trapped.
    Trap,
    /// Trapped if an address may touch the reserved range, or a length is 1 TiB or more.
    Memory {
        addresses: &'static [usize],
        lengths: &'static [usize],
    },
    /// brk: as `Memory`; our own question where it ends is never trapped.
    Break,
    /// mprotect: as `Memory`, and trapped if memory is to become executable.
    Protect,
    /// madvise: as `Memory`, and trapped for these kinds of advice.
    Advice { trapped: &'static [u32] },
    /// mmap: as `Memory`, and trapped unless anonymous, private and of ordinary pages.
    Map,
    /// mremap: as `Memory`, and trapped if it makes a mapping longer, leaves one where it was or is told where it
    /// is to go.
    Remap,
    /// Not trapped if the low half of an argument is one of these.
    AllowIf {
        index: usize,
        values: &'static [u32],
    },
    /// Trapped if the low half of an argument is one of these, or is negative and `negative` is
    /// set.
    TrapIf {
        index: usize,
        values: &'static [u32],
        negative: bool,
    },
    /// Not trapped if an argument is null.
    AllowNull { index: usize },
}

/// What the kernel touches of a guest's memory for a call that runs there.
#[derive(Clone, Copy)]
pub(crate) enum Touched {
    /// Nothing: it has no pointer that the kernel follows.
    Nothing,
    /// What its arguments point to. That is short, except for these arrays; of each: which argument points to it, and
    /// how long it is.
    Pointers(&'static [(usize, Size)]),
    /// The first argument points to an array of `struct futex_waitv`, and the second says how many entries it has; each
    /// entry points to a word, which is touched as well.
    Waiters,
}

/// What a call that has succeeded changes of its process, as far as a supervisor has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing of that kind.
    Other,
    /// It gives a descriptor of a file that its arguments name.
    Opens,
    /// It changes the share of the CPU of a thread.
    Priority,
    /// It advises on memory (`madvise`); its third argument says what.
    Advises,
    /// It gives memory a policy for its nodes (`mbind`); its third argument says which.
    Binds,
    /// It may send a signal to the process that makes it.
    Signals,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Row {
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    pub(crate) class: CallClass,
    pub(crate) shape: Shape,
    pub(crate) gate: Gate,
    pub(crate) may_block: bool,
    pub(crate) forwards: bool,
    pub(crate) reason: &'static str,
    pub(crate) stopped: Stopped,
    pub(crate) touched: Touched,
    pub(crate) effect: Effect,
}

impl Row {
    /// The number of the call.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The kernel's name of the call.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its class.
    pub fn class(&self) -> CallClass {
        self.class
    }

    /// True if it may wait for something outside of it for an unbounded time.
    pub fn may_block(&self) -> bool {
        self.may_block
    }

    /// Why it goes home, or a remark on it; may be empty.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// What it changes when it succeeds.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// May wait for something outside of it.
    pub(crate) const fn waits(mut self) -> Self {
        self.may_block = true;
        self
    }

    /// What a stop does to it.
    pub(crate) const fn at_stop(mut self, at_stop: AtStop) -> Self {
        self.stopped.at_stop = at_stop;
        self
    }

    /// It has a relative timeout, and answers this when that is over.
    pub(crate) const fn time(mut self, time: Time, expired: i64) -> Self {
        self.stopped.time = Some((time, None));
        self.stopped.expired = expired;
        self
    }

    /// When it is interrupted, the kernel writes what is left of its time to where this argument points.
    pub(crate) const fn rest(mut self, index: usize) -> Self {
        self.stopped.rest = Some(index);
        self
    }

    /// Its timeout is relative only under this condition.
    pub(crate) const fn relative_if(mut self, only: Only) -> Self {
        if let Some((time, _)) = self.stopped.time {
            self.stopped.time = Some((time, Some(only)));
        }
        self
    }

    /// What it answers when the time limit of its socket is over, if that is not EAGAIN.
    pub(crate) const fn expires(mut self, expired: i64) -> Self {
        self.stopped.expired = expired;
        self
    }

    /// A stop may leave it short; the rest is transferred by `rest`.
    pub(crate) const fn short(mut self, end: End, buffer: Buffer, rest: Sysno) -> Self {
        self.stopped.transfer = Some(Transfer {
            end,
            buffer,
            waits: None,
            rest: rest as u64,
        });
        self
    }

    /// It waits for the whole transfer only under this condition.
    pub(crate) const fn waits_if(mut self, only: Only) -> Self {
        if let Some(mut transfer) = self.stopped.transfer {
            transfer.waits = Some(only);
            self.stopped.transfer = Some(transfer);
        }
        self
    }

    /// It waits for the process that it makes.
    pub(crate) const fn waits_for_child(mut self) -> Self {
        self.stopped.waits_for_child = true;
        self
    }

    /// A signal may end it with -ERESTARTSYS in a guest.
    pub(crate) const fn restarts_here(mut self) -> Self {
        self.stopped.restarts_here = true;
        self
    }

    /// It waits under a signal mask of its own, to which this argument points unless it is null.
    pub(crate) const fn own_mask(mut self, index: usize) -> Self {
        self.stopped.own_mask = Some(index);
        self
    }

    /// What is ready for it is asked so.
    pub(crate) const fn asked(mut self, asked: Asked) -> Self {
        self.stopped.asked = Some(asked);
        self
    }

    /// It may end for no reason, with 0.
    pub(crate) const fn ends_for_nothing(mut self) -> Self {
        self.stopped.ends_for_nothing = true;
        self
    }

    /// It waits for signals themselves.
    pub(crate) const fn waits_for_signals(mut self) -> Self {
        self.stopped.waits_for_signals = true;
        self
    }

    /// It runs in the guest, always or for some arguments, and has pointers. Some of them may point to these arrays.
    pub(crate) const fn points(mut self, arrays: &'static [(usize, Size)]) -> Self {
        self.touched = Touched::Pointers(arrays);
        self
    }

    /// The same; its first argument points to an array of `struct futex_waitv`.
    pub(crate) const fn points_to_waiters(mut self) -> Self {
        self.touched = Touched::Waiters;
        self
    }

    /// It gives a descriptor of a file that its arguments name.
    pub(crate) const fn opens(mut self) -> Self {
        self.effect = Effect::Opens;
        self
    }

    /// It advises on memory.
    pub(crate) const fn advises(mut self) -> Self {
        self.effect = Effect::Advises;
        self
    }

    /// It gives memory a policy.
    pub(crate) const fn binds(mut self) -> Self {
        self.effect = Effect::Binds;
        self
    }

    /// It may send a signal to its own process.
    pub(crate) const fn signals(mut self) -> Self {
        self.effect = Effect::Signals;
        self
    }

    /// It changes the share of the CPU of a thread.
    pub(crate) const fn changes_priority(mut self) -> Self {
        self.effect = Effect::Priority;
        self
    }

    /// What the filter does with it.
    pub(crate) const fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// A remark for the documentation.
    pub(crate) const fn note(mut self, reason: &'static str) -> Self {
        self.reason = reason;
        self
    }
}

/// A stop ends it.
pub(crate) const ENDS: AtStop = AtStop::Ends;
/// A stop ends it on a socket with a time limit.
pub(crate) const ON_RECEIVE: AtStop = AtStop::EndsOnSocket(Limit::Receive);
pub(crate) const ON_SEND: AtStop = AtStop::EndsOnSocket(Limit::Send);

/// A buffer of one piece.
pub(crate) const fn flat(address: usize, length: usize) -> Buffer {
    Buffer::Flat { address, length }
}

/// The condition that a message is sent with waiting: this argument lacks MSG_DONTWAIT.
pub(crate) const fn sends(index: usize) -> Only {
    Only {
        index,
        mask: DONT_WAIT,
        value: 0,
    }
}

/// The condition that the whole message is waited for: this argument has MSG_WAITALL and lacks
/// MSG_DONTWAIT.
pub(crate) const fn receives_all(index: usize) -> Only {
    Only {
        index,
        mask: WAIT_ALL | DONT_WAIT,
        value: WAIT_ALL,
    }
}

const DONT_WAIT: u64 = 0x40;
const WAIT_ALL: u64 = 0x100;

const EMPTY: Row = Row {
    number: 0,
    name: "",
    class: CallClass::Home,
    shape: Shape::None,
    gate: Gate::Trap,
    may_block: false,
    forwards: false,
    reason: "",
    stopped: Stopped::NOT,
    touched: Touched::Nothing,
    effect: Effect::Other,
};

/// Runs natively, always.
pub(crate) const fn local() -> Row {
    Row {
        class: CallClass::Local,
        gate: Gate::Allow,
        ..EMPTY
    }
}

/// Runs natively unless it touches the reserved range.
pub(crate) const fn memory(addresses: &'static [usize], lengths: &'static [usize]) -> Row {
    Row {
        class: CallClass::Local,
        gate: Gate::Memory { addresses, lengths },
        ..EMPTY
    }
}

/// Goes home.
pub(crate) const fn home(reason: &'static str) -> Row {
    Row { reason, ..EMPTY }
}

/// Forwarded, with flat buffers.
pub(crate) const fn forward(arguments: &'static [Argument]) -> Row {
    Row {
        class: CallClass::Forward,
        shape: Shape::Flat(arguments),
        forwards: true,
        ..EMPTY
    }
}

/// Forwarded, with buffers that a function finds.
pub(crate) const fn nested(code: fn(&mut Builder<'_>) -> Flow, says: &'static str) -> Row {
    Row {
        class: CallClass::Forward,
        shape: Shape::Code(code, says),
        forwards: true,
        ..EMPTY
    }
}

/// The arguments decide, and one outcome is a forward.
pub(crate) const fn decided(code: fn(&mut Builder<'_>) -> Flow, says: &'static str) -> Row {
    Row {
        class: CallClass::ByArgument,
        ..nested(code, says)
    }
}

/// The arguments decide; never forwarded.
pub(crate) const fn here(code: fn(&mut Builder<'_>) -> Flow, says: &'static str) -> Row {
    Row {
        forwards: false,
        ..decided(code, says)
    }
}

/// Runs natively but for rare arguments, which a function finds.
pub(crate) const fn local_but(code: fn(&mut Builder<'_>) -> Flow, says: &'static str) -> Row {
    Row {
        class: CallClass::Local,
        reason: says,
        ..here(code, says)
    }
}

/// No pointer.
pub(crate) const V: Argument = Argument::Value;
/// A path.
pub(crate) const PATH: Argument = Argument::Path;
/// Another string.
pub(crate) const TEXT: Argument = Argument::Text;

/// A structure that the kernel reads.
pub(crate) const fn get(bytes: u64) -> Argument {
    Argument::Buffer(Size::Bytes(bytes), Direction::In, Returned::Nothing)
}

/// A structure that the kernel fills completely when the call succeeds.
pub(crate) const fn put(bytes: u64) -> Argument {
    Argument::Buffer(Size::Bytes(bytes), Direction::Out, Returned::Whole)
}

/// A buffer that the kernel reads.
pub(crate) const fn get_sized(size: Size) -> Argument {
    Argument::Buffer(size, Direction::In, Returned::Nothing)
}

/// A buffer of which the result says how many bytes were filled.
pub(crate) const fn put_sized(size: Size) -> Argument {
    Argument::Buffer(size, Direction::Out, Returned::ByResult { skip: 0 })
}

/// A buffer of which the result says how many elements were filled.
pub(crate) const fn put_elements(size: Size, unit: u64) -> Argument {
    Argument::Buffer(size, Direction::Out, Returned::ByResultTimes { unit })
}

/// A buffer that the kernel may fill partly.
pub(crate) const fn change_sized(size: Size) -> Argument {
    Argument::Buffer(size, Direction::InOut, Returned::Whole)
}

/// A byte count of 64 bits.
pub(crate) const fn long(index: usize) -> Size {
    long_most(index, MAX_RW_COUNT)
}

/// A byte count of 64 bits with a bound.
pub(crate) const fn long_most(index: usize, most: u64) -> Size {
    let unit = 1;
    Size::Long { index, unit, most }
}

/// A count of elements in a signed 32-bit argument with a bound in bytes.
pub(crate) const fn int(index: usize, unit: u64, most: u64) -> Size {
    Size::Int { index, unit, most }
}

/// A count of elements in an unsigned 32-bit argument with a bound in bytes.
pub(crate) const fn unsigned(index: usize, unit: u64, most: u64) -> Size {
    Size::Unsigned { index, unit, most }
}
