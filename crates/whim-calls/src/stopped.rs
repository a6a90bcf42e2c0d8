//! What a mere stop (a freeze, without any signal) does to a call that waits, and how the rest of it is found.
//!
//! The kernel restarts most calls by itself, unseen, with what is left of their time. It does not
//! do so for three kinds: calls that answer every interruption with EINTR, calls that would wait
//! for all of their time again, and transfers that answer with a short count. A row of the table
//! says which kind its call is, so that a supervisor can hide the stop.

/// What becomes of a call that a stop interrupts while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtStop {
    /// It goes on by itself.
    GoesOn,
    /// It goes on by itself, but is made anew on another node, so the rest of its time has to be
    /// known.
    GoesOnHere,
    /// It is made again, and would wait for all of its time again.
    WaitsAnew,
    /// EINTR.
    Ends,
    /// EINTR, if it waits for a socket with a time limit.
    EndsOnSocket(Limit),
}

/// Which time limit of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// SO_RCVTIMEO
    Receive,
    /// SO_SNDTIMEO
    Send,
}

/// The condition that the bits of an argument under a mask have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Only {
    pub index: usize,
    pub mask: u64,
    pub value: u64,
}

impl Only {
    pub(crate) fn holds(&self, args: &[u64; 6]) -> bool {
        args[self.index] & self.mask == self.value
    }
}

/// Where a call has a relative timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// The argument itself, milliseconds in its low 32 bits; negative: none.
    Milliseconds(usize),
    /// The argument points to a `struct timespec`. Null: none.
    Timespec(usize),
}

/// The source or the target of a transfer that a stop may leave short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A pipe, a socket or a terminal.
    Stream,
    /// A socket. (To a pipe `sendfile` is short by nature: it stops when the pipe is full.)
    Socket,
    /// The kernel's random numbers.
    Random,
    /// The same, as a device.
    RandomDevice,
}

/// Where the buffer of a transfer is: indices of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    Flat {
        address: usize,
        length: usize,
    },
    /// An array of `struct iovec`.
    Vector {
        address: usize,
        count: usize,
    },
    /// A `struct msghdr`.
    Message {
        address: usize,
    },
    /// No buffer, only a count of bytes: the kernel has moved the offset itself.
    Count(usize),
}

/// A transfer that a stop may leave short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub end: End,
    pub buffer: Buffer,
    /// The flags with which it waits until all is transferred; `None` if it always does.
    pub waits: Option<Only>,
    /// The call that transfers one piece of the rest.
    pub rest: u64,
}

/// By which call a wait is asked for what is ready, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `poll` without time.
    Poll,
    /// The same call without mask, and without time.
    Select,
    /// `epoll_wait` without time. The time is in milliseconds.
    Epoll,
    /// The same. The time stands at an address.
    EpollByTimespec,
}

/// All that a row says of stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped {
    pub(crate) at_stop: AtStop,
    pub(crate) time: Option<(Time, Option<Only>)>,
    /// What it answers when its time is over.
    pub(crate) expired: i64,
    pub(crate) transfer: Option<Transfer>,
    /// The argument that points to where the kernel writes what is left of its time when it is interrupted.
    pub(crate) rest: Option<usize>,
    /// It waits until the process that it has made lets it go.
    pub(crate) waits_for_child: bool,
    /// It runs in a guest, and a signal may end it with -ERESTARTSYS.
    pub(crate) restarts_here: bool,
    /// The argument that points to the signal mask under which it waits.
    pub(crate) own_mask: Option<usize>,
    /// How it is asked for what is ready, if it waits for more than signals and time.
    pub(crate) asked: Option<Asked>,
    /// It waits for nothing but signals: `rt_sigsuspend` for a handler, `rt_sigtimedwait` to take one.
    pub(crate) waits_for_signals: bool,
    /// It may end for no reason, with 0: its callers look whether what they waited for has come.
    pub(crate) ends_for_nothing: bool,
}

impl Stopped {
    pub(crate) const NOT: Self = Self {
        at_stop: AtStop::GoesOn,
        time: None,
        // EAGAIN
        expired: -11,
        transfer: None,
        rest: None,
        waits_for_child: false,
        restarts_here: false,
        own_mask: None,
        asked: None,
        waits_for_signals: false,
        ends_for_nothing: false,
    };
}
