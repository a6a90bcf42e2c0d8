//! What a mere stop (a freeze, without any signal) does to a waiting call, and how it is hidden.
//!
//! A stopped and resumed call either restarts by itself, or returns EINTR, or returns a short
//! count. These facts let a supervisor hide the last two.

use syscalls::Sysno;

use crate::types::{TimeoutArgument, TimeoutFormat};

/// Where the time limit of an interrupted call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopTimeout {
    /// The call has none.
    None,
    /// An argument.
    Argument(TimeoutArgument),
    /// The socket's SO_RCVTIMEO; only a socket with one returns EINTR.
    ReceiveOption,
    /// The socket's SO_SNDTIMEO; only a socket with one returns EINTR.
    SendOption,
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

fn find<T: Copy>(facts: &[(Sysno, T)], number: u64) -> Option<T> {
    let found = facts.iter().find(|(known, _)| *known as u64 == number);
    found.map(|(_, fact)| *fact)
}

/// True if the call can return EINTR on a mere stop. For those on sockets: only if the socket
/// has a time limit. All others restart by themselves, with the exact rest of their time.
pub fn interrupted_by_stop(number: u64) -> bool {
    find(INTERRUPTED, number).is_some()
}

/// Calls that a guest's own kernel executes, and that return -ERESTARTSYS when a signal ends them.
const RESTARTS_HERE: [Sysno; 3] = [Sysno::futex, Sysno::futex_wait, Sysno::futex_waitv];

/// True if a signal may end the call with -ERESTARTSYS although it runs in the guest: of any other call
/// that has not been forwarded this number says that it has not begun.
pub fn restarts_here(number: u64) -> bool {
    RESTARTS_HERE.iter().any(|call| *call as u64 == number)
}
