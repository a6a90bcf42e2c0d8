//! Descriptors of another process, by its pidfd.

use libc::c_int;
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug)]
pub struct Pidfd {
    descriptor: OwnedFd,
}

fn owned(result: libc::c_long) -> Result<OwnedFd, Errno> {
    let raw = c_int::try_from(result).map_err(|_| Errno::EINVAL)?;
    if raw < 0 {
        return Err(Errno::last());
    }
    // JUSTIFICATION: raw system calls give raw descriptors.
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

impl Pidfd {
    /// # Errors
    /// ESRCH.
    pub fn open(pid: i32) -> Result<Self, Errno> {
        // JUSTIFICATION: libc has no wrapper.
        // SAFETY: two integers.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        Ok(Self {
            descriptor: owned(result)?,
        })
    }

    /// Takes over a pidfd that somebody else opened.
    #[must_use]
    pub fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// A copy of descriptor `number` of the process, shared with it. Needs the right to trace it.
    ///
    /// # Errors
    /// EPERM, EBADF, ESRCH.
    pub fn take(&self, number: RawFd) -> Result<OwnedFd, Errno> {
        // JUSTIFICATION: libc has no wrapper.
        // SAFETY: three integers.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_getfd,
                self.descriptor.as_raw_fd(),
                number,
                0,
            )
        };
        owned(result)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// EPERM, ESRCH.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        // JUSTIFICATION: libc has no wrapper.
        // SAFETY: integers, and a null pointer that stands for an ordinary siginfo.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.descriptor.as_raw_fd(),
                signal,
                0usize,
                0,
            )
        };
        Errno::result(result).map(drop)
    }

    /// Whether the process has ended, even if its parent does not know that yet. As long as it has
    /// not, no other process has its number. So all that was read by this number before this answer
    /// was read from this process.
    ///
    /// # Errors
    /// The kernel has no memory for the poll.
    pub fn has_ended(&self) -> Result<bool, Errno> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut events = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut events, PollTimeout::ZERO) {
                Err(Errno::EINTR) => {}
                ready => return ready.map(|count| count > 0),
            }
        }
    }

    /// Its number in our own pid namespace.
    ///
    /// # Errors
    /// When it has ended or lies outside of our namespace.
    pub fn pid(&self) -> io::Result<i32> {
        let path = format!("/proc/self/fdinfo/{}", self.descriptor.as_raw_fd());
        let text = std::fs::read_to_string(path)?;
        text.lines()
            .find_map(|line| line.strip_prefix("Pid:"))
            .and_then(|number| number.trim().parse().ok())
            .filter(|pid| *pid > 0)
            .ok_or_else(|| io::Error::from(Errno::ESRCH))
    }
}

/// A copy of descriptor `number` of process `pid`. Needs the right to trace it.
///
/// # Errors
/// EPERM, EBADF, ESRCH.
pub fn take_descriptor(pid: i32, number: RawFd) -> Result<OwnedFd, Errno> {
    Pidfd::open(pid)?.take(number)
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Queues a signal with this `siginfo_t` for a thread of `process`, or for the process itself. From
/// another process the kernel accepts only negative codes other than SI_TKILL.
///
/// # Errors
/// EPERM, ESRCH, EAGAIN when too many are queued.
pub fn queue_signal(
    process: i32,
    thread: Option<i32>,
    signal: i32,
    info: &[u8; 128],
) -> Result<(), Errno> {
    // The kernel demands that si_signo agrees, and reads 128 bytes.
    let pointer = info.as_ptr();
    // JUSTIFICATION: libc has no wrappers.
    // SAFETY: `info` is 128 live bytes, which is what the kernel reads.
    let result = unsafe {
        match thread {
            Some(thread) => libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process,
                thread,
                signal,
                pointer,
            ),
            None => libc::syscall(libc::SYS_rt_sigqueueinfo, process, signal, pointer),
        }
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_descriptor_is_taken_and_shared() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        let pid = std::process::id().cast_signed();
        let process = Pidfd::open(pid).expect("pidfd");
        assert_eq!(process.pid().expect("pid"), pid);
        assert_eq!(process.has_ended(), Ok(false));
        let taken = process.take(theirs.as_raw_fd()).expect("pidfd_getfd");
        drop(theirs);
        let mut taken = std::os::unix::net::UnixStream::from(taken);
        ours.write_all(b"x").expect("write");
        let mut byte = [0];
        taken.read_exact(&mut byte).expect("read");
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn an_end_is_seen_before_the_number_is_given_away() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let process = Pidfd::open(child.id().cast_signed()).expect("pidfd");
        assert_eq!(process.has_ended(), Ok(false));
        child.wait().expect("its input has ended");
        assert_eq!(process.has_ended(), Ok(true));
        assert_eq!(process.signal(0), Err(Errno::ESRCH));
        process.pid().expect_err("it has no number any more");
    }
}
