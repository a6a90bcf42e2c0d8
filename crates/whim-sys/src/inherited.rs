//! Descriptors that a program was started with, by the numbers that it was given, and how to retire
//! a listening socket that others may reach by its path.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{Shutdown, shutdown};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum InheritedError {
    #[error("Descriptor {0}, which was to be handed over at the start, is not open ({1})")]
    NotOpen(RawFd, Errno),
    #[error("Descriptor {0} was not handed over at the start: it is one of our own")]
    Own(RawFd),
    #[error("Descriptor {0} is no listening unix socket ({1})")]
    NoListener(RawFd, io::Error),
}

/// Takes the descriptor that was handed over under this number. All descriptors that a program
/// opens itself are close-on-exec, and those that were handed over are not until they are taken. So
/// no descriptor is taken twice, and none that already has an owner.
///
/// # Errors
/// [`InheritedError::NotOpen`], [`InheritedError::Own`]
pub fn take(number: RawFd) -> Result<OwnedFd, InheritedError> {
    if number <= libc::STDERR_FILENO {
        return Err(InheritedError::Own(number));
    }
    // JUSTIFICATION: whether a number stands for an open descriptor is not known before it is asked.
    // SAFETY: it is borrowed for two calls of fcntl, which answer EBADF if nothing is open there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let not_open = |errno| InheritedError::NotOpen(number, errno);
    let flags = fcntl(borrowed, FcntlArg::F_GETFD).map_err(not_open)?;
    if FdFlag::from_bits_retain(flags).contains(FdFlag::FD_CLOEXEC) {
        return Err(InheritedError::Own(number));
    }
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(not_open)?;
    // JUSTIFICATION: a descriptor that was inherited has no owner in this program yet.
    // SAFETY: it is open and was not closed by the exec, so no code of this program has opened it; from
    // here on the flag says that it is taken.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes the descriptors that were handed over and not taken, except the standard streams.
pub fn close_all() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = entries.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    for number in numbers {
        // Descriptors that cannot be taken have owners.
        let _ = take(number);
    }
}

/// A file that was handed over.
///
/// # Errors
/// As [`take`].
pub fn file(number: RawFd) -> Result<File, InheritedError> {
    take(number).map(File::from)
}

/// A listening unix socket that was handed over.
///
/// # Errors
/// As [`take`], and [`InheritedError::NoListener`].
pub fn listener(number: RawFd) -> Result<UnixListener, InheritedError> {
    let listener = UnixListener::from(take(number)?);
    let listens = nix::sys::socket::getsockopt(&listener, nix::sys::socket::sockopt::AcceptConn);
    let no_listener = |error| InheritedError::NoListener(number, error);
    match listens {
        Ok(true) => Ok(listener),
        Ok(false) => Err(no_listener(Errno::EINVAL.into())),
        Err(errno) => Err(no_listener(errno.into())),
    }
}

/// Lets a descriptor survive an exec; to be called between fork and exec.
///
/// # Errors
/// It is not open.
pub(crate) fn hand_over(number: RawFd) -> io::Result<()> {
    // JUSTIFICATION: the child of a fork has the number, and nothing that owns it.
    // SAFETY: borrowed for one call of fcntl, which answers EBADF if nothing is open there.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Stops listening. From now on connections are refused, as if there were no listener, although the
/// socket's path is still there. Connections that wait to be accepted are hung up on.
pub fn retire(listener: &UnixListener) {
    // It may be shut down already.
    let _ = shutdown(listener.as_fd().as_raw_fd(), Shutdown::Both);
    if listener.set_nonblocking(true).is_ok() {
        while listener.accept().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_our_own_is_not_taken() {
        let file = File::open("/dev/null").expect("opened");
        let number = file.as_raw_fd();
        assert!(matches!(take(number), Err(InheritedError::Own(_))));
        assert!(matches!(take(2), Err(InheritedError::Own(2))));
        let unused = 1_000_000;
        assert!(matches!(take(unused), Err(InheritedError::NotOpen(..))));
    }

    #[test]
    fn what_was_handed_over_is_taken_once() {
        let room = std::env::temp_dir().join(format!("whim-inherited-{}", std::process::id()));
        let listener = UnixListener::bind(&room).expect("bound");
        let number = nix::unistd::dup(&listener).expect("a copy");
        let number = std::os::fd::IntoRawFd::into_raw_fd(number);
        // A plain copy survives an exec, as what was handed over does.
        let taken = super::listener(number).expect("taken");
        assert!(matches!(take(number), Err(InheritedError::Own(_))));
        drop(taken);
        let file = File::open("/dev/null").expect("opened");
        let number = std::os::fd::IntoRawFd::into_raw_fd(nix::unistd::dup(&file).expect("a copy"));
        let error = super::listener(number).expect_err("no socket");
        assert!(matches!(error, InheritedError::NoListener(..)), "{error}");
        std::fs::remove_file(room).expect("removed");
    }

    #[test]
    fn a_listener_that_has_retired_is_as_good_as_gone() {
        let path = std::env::temp_dir().join(format!("whim-retired-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("bound");
        let copy = listener.try_clone().expect("a copy");
        let mut waiting = UnixStream::connect(&path).expect("in the backlog");
        retire(&listener);
        let heard = waiting.read(&mut [0; 1]);
        assert!(matches!(heard, Ok(0) | Err(_)), "hung up on: {heard:?}");
        let error = UnixStream::connect(&path).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(copy.accept().is_err(), "nor does a copy");
        drop((listener, copy));
        let error = UnixStream::connect(&path).expect_err("as when it is gone");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(path).expect("removed");
    }
}
