//! The listener of a seccomp filter: system calls of another process, decided by us.

use libc::{c_int, c_ulong};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use thiserror::Error;

/// Operation of `seccomp(2)` that installs a filter.
pub const SET_MODE_FILTER: u64 = 1;
/// Flags for a guest's filter: the result is the listener's descriptor; once we have seen a call,
/// only a fatal signal ends its wait; all threads get the filter at once, with ESRCH if one cannot
/// follow.
pub const FILTER_FLAGS: u64 = (1 << 3) | (1 << 5) | 1 | (1 << 4);

const IOC_RECV: c_ulong = 0xc050_2100;
const IOC_SEND: c_ulong = 0xc018_2101;
const IOC_ID_VALID: c_ulong = 0x4008_2102;
const IOC_SET_FLAGS: c_ulong = 0x4008_2104;
const CONTINUE: u32 = 1;
const SYNC_WAKE_UP: u64 = 1;

const _: () = assert!(size_of::<Raw>() == 80);
const _: () = assert!(size_of::<RawResponse>() == 24);

#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
pub enum SeccompError {
    #[error("{call} on a seccomp listener failed: {errno}")]
    Os { call: &'static str, errno: Errno },
}

#[repr(C)]
#[derive(Default)]
struct Raw {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

#[repr(C)]
struct RawResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// A system call that waits for our decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Cookie of this notification.
    pub id: u64,
    /// Thread, in our pid namespace.
    pub tid: i32,
    pub number: i32,
    /// AUDIT_ARCH_*
    pub architecture: u32,
    /// Behind the `syscall` instruction.
    pub instruction_pointer: u64,
    pub args: [u64; 6],
}

/// Our decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The call's result, as the kernel returns it: negative errno (or -512 to -516) or value.
    Result(i64),
    /// The guest's kernel executes the call after all.
    Continue,
}

/// Whether a thread still waited for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Yes,
    /// It ended, or a signal took it out of the call before we had read it.
    Gone,
}

/// The descriptor on which a filter's notifications arrive.
#[derive(Debug)]
pub struct Listener {
    descriptor: OwnedFd,
}

impl Listener {
    /// Speaks for a listener that was taken from the process with the filter.
    #[must_use]
    pub fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    fn control(&self, code: c_ulong, argument: *mut libc::c_void) -> Result<c_int, Errno> {
        // JUSTIFICATION: the kernel's interface is ioctl.
        // SAFETY: `argument` points to a live object of the type that `code` demands; the callers
        // in this module pair them.
        let result = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), code, argument) };
        Errno::result(result)
    }

    /// Asks the kernel to wake the other side on this CPU (Linux 6.6); false when it cannot.
    #[must_use]
    pub fn prefer_same_cpu(&self) -> bool {
        // JUSTIFICATION: this ioctl takes its flags by value, in the place of the pointer.
        // SAFETY: nothing is dereferenced.
        let result =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), IOC_SET_FLAGS, SYNC_WAKE_UP) };
        result == 0
    }

    /// The next notification. Waits when there is none: poll first. `None` when the thread went
    /// away in between.
    ///
    /// # Errors
    /// EBADF and the like.
    pub fn receive(&self) -> Result<Option<Notification>, SeccompError> {
        // The kernel refuses a buffer that is not all zeros.
        let mut raw = Raw::default();
        match self.control(IOC_RECV, std::ptr::from_mut(&mut raw).cast()) {
            Ok(_) => Ok(Some(Notification {
                id: raw.id,
                tid: raw.pid.cast_signed(),
                number: raw.number,
                architecture: raw.architecture,
                instruction_pointer: raw.instruction_pointer,
                args: raw.args,
            })),
            Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
            Err(errno) => Err(SeccompError::Os {
                call: "SECCOMP_IOCTL_NOTIF_RECV",
                errno,
            }),
        }
    }

    /// Answers a notification.
    ///
    /// # Errors
    /// EBADF and the like; a vanished thread is not an error.
    pub fn respond(&self, id: u64, response: Response) -> Result<Delivered, SeccompError> {
        let (value, error, flags) = match response {
            Response::Continue => (0, 0, CONTINUE),
            // The kernel takes a negative errno for `error` and returns it as it is.
            Response::Result(result @ -4095..=-1) => (0, i32::try_from(result).unwrap_or(-1), 0),
            Response::Result(result) => (result, 0, 0),
        };
        let mut raw = RawResponse {
            id,
            value,
            error,
            flags,
        };
        match self.control(IOC_SEND, std::ptr::from_mut(&mut raw).cast()) {
            Ok(_) => Ok(Delivered::Yes),
            // Trap: an-answer-to-nobody
            Err(Errno::ENOENT) => Ok(Delivered::Gone),
            Err(errno) => Err(SeccompError::Os {
                call: "SECCOMP_IOCTL_NOTIF_SEND",
                errno,
            }),
        }
    }

    /// Whether the thread still waits.
    #[must_use]
    pub fn is_valid(&self, id: u64) -> bool {
        let mut id = id;
        self.control(IOC_ID_VALID, std::ptr::from_mut(&mut id).cast())
            .is_ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
