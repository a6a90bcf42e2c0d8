//! What a mere stop (a freeze, without any signal) does to a waiting call, and how it is hidden.
//!
//! A stopped and resumed call either restarts by itself, or returns EINTR, or returns a short
//! count. These facts let a supervisor hide the last two.

use syscalls::Sysno;

use crate::types::{TimeoutArgument, TimeoutFormat};

/// Where the time limit of an interrupted call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopTimeout {
    /// The call has none.
    None,
    /// An argument.
    Argument(TimeoutArgument),
    /// The socket's SO_RCVTIMEO; only a socket with one returns EINTR.
    ReceiveOption,
    /// The socket's SO_SNDTIMEO; only a socket with one returns EINTR.
    SendOption,
}

/// How the rest of an interrupted blocking transfer is asked for after `n` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortCount {
    /// `rsi += n, rdx -= n`.
    Buffer,
    /// `rdi += n, rsi -= n` (getrandom).
    FirstBuffer,
    /// `r10 -= n`; the kernel has moved the offset itself (sendfile).
    Count,
    /// A plain transfer for each piece that is left.
    Vector,
    /// Messages are counted; not hidden (recvmmsg).
    Messages,
}

const SECONDS: TimeoutFormat = TimeoutFormat::Timespec;

const fn argument(index: usize, format: TimeoutFormat) -> StopTimeout {
    StopTimeout::Argument(TimeoutArgument { index, format })
}

/// Calls that return EINTR after a stop, and the limit that a restart would wait for anew.
const INTERRUPTED: &[(Sysno, StopTimeout)] = &[
    (Sysno::epoll_wait, argument(3, TimeoutFormat::Milliseconds)),
    (Sysno::epoll_pwait, argument(3, TimeoutFormat::Milliseconds)),
    (Sysno::epoll_pwait2, argument(3, SECONDS)),
    (Sysno::rt_sigtimedwait, argument(2, SECONDS)),
    (Sysno::semop, StopTimeout::None),
    (Sysno::semtimedop, argument(3, SECONDS)),
    (Sysno::io_getevents, argument(4, SECONDS)),
    (Sysno::io_pgetevents, argument(4, SECONDS)),
    (Sysno::read, StopTimeout::ReceiveOption),
    (Sysno::readv, StopTimeout::ReceiveOption),
    (Sysno::recvfrom, StopTimeout::ReceiveOption),
    (Sysno::recvmsg, StopTimeout::ReceiveOption),
    (Sysno::accept, StopTimeout::ReceiveOption),
    (Sysno::accept4, StopTimeout::ReceiveOption),
    (Sysno::connect, StopTimeout::SendOption),
    (Sysno::write, StopTimeout::SendOption),
    (Sysno::writev, StopTimeout::SendOption),
    (Sysno::sendto, StopTimeout::SendOption),
    (Sysno::sendmsg, StopTimeout::SendOption),
];

/// Calls that may return a short count after a stop.
const SHORT: &[(Sysno, ShortCount)] = &[
    (Sysno::read, ShortCount::Buffer),
    (Sysno::write, ShortCount::Buffer),
    (Sysno::sendto, ShortCount::Buffer),
    (Sysno::recvfrom, ShortCount::Buffer),
    (Sysno::getrandom, ShortCount::FirstBuffer),
    (Sysno::sendfile, ShortCount::Count),
    (Sysno::readv, ShortCount::Vector),
    (Sysno::writev, ShortCount::Vector),
    (Sysno::sendmsg, ShortCount::Vector),
    (Sysno::recvmsg, ShortCount::Vector),
    (Sysno::recvmmsg, ShortCount::Messages),
];

fn find<T: Copy>(facts: &[(Sysno, T)], number: u64) -> Option<T> {
    let found = facts.iter().find(|(known, _)| *known as u64 == number);
    found.map(|(_, fact)| *fact)
}

/// True if the call can return EINTR on a mere stop. For those on sockets: only if the socket
/// has a time limit. All others restart by themselves, with the exact rest of their time.
pub fn interrupted_by_stop(number: u64) -> bool {
    find(INTERRUPTED, number).is_some()
}

/// Where the limit of such a call is; [`StopTimeout::None`] for all others.
pub fn stop_timeout(number: u64) -> StopTimeout {
    find(INTERRUPTED, number).unwrap_or(StopTimeout::None)
}

/// How a short count of a blocking transfer (pipe or socket, not MSG_DONTWAIT; receiving only
/// with MSG_WAITALL) is continued. `None`: the count is what it is.
pub fn short_count(number: u64) -> Option<ShortCount> {
    find(SHORT, number)
}

/// Calls that a guest's own kernel executes, and that return -ERESTARTSYS when a signal ends them.
const RESTARTS_HERE: [Sysno; 3] = [Sysno::futex, Sysno::futex_wait, Sysno::futex_waitv];

/// True if a signal may end the call with -ERESTARTSYS although it runs in the guest: of any other call
/// that has not been forwarded this number says that it has not begun.
pub fn restarts_here(number: u64) -> bool {
    RESTARTS_HERE.iter().any(|call| *call as u64 == number)
}
