//! Making a process with a chosen number from a program in memory.

use crate::namespace::rights_hint;
use libc::{c_int, c_long, c_uint};
use nix::errno::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use thiserror::Error;

const MFD_EXEC: c_uint = 0x10;
const EMPTY_PATH: c_int = 0x1000;

/// The namespaces of a copied process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Those of its parent.
    Inherited,
    /// Those of its parent, but for a new pid namespace, whose first process it is.
    OfNumbers,
    /// New user, pid, mount, network, IPC and UTS namespaces.
    Own,
}

impl Namespaces {
    fn flags(self) -> c_int {
        match self {
            Self::Inherited => 0,
            Self::OfNumbers => libc::CLONE_NEWPID,
            Self::Own => {
                libc::CLONE_NEWUSER
                    | libc::CLONE_NEWPID
                    | libc::CLONE_NEWNS
                    | libc::CLONE_NEWNET
                    | libc::CLONE_NEWIPC
                    | libc::CLONE_NEWUTS
            }
        }
    }
}

#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("clone3 failed: {0}")]
    Clone(Errno),
    #[error("New namespaces cannot be made: {0}; {hint}", hint = rights_hint(*.0))]
    Namespaces(Errno),
    #[error(
        "A copy was asked for in a process with {0} threads; only one with a single thread can be copied"
    )]
    Threads(usize),
    #[error("The program in memory could not be made: {0}")]
    Program(io::Error),
    #[error("Descriptors could not be closed: {0}")]
    Close(Errno),
    #[error("no_new_privs could not be set: {0}")]
    NoNewPrivileges(Errno),
}

/// The two sides of a copied process.
#[derive(Debug)]
pub enum Cloned {
    /// In the caller: number of the child as the caller sees it, and its pidfd.
    Parent {
        pid: i32,
        pidfd: OwnedFd,
    },
    Child,
}

#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Copies this process as `fork` does, into `namespaces`, and with number
/// `number` in its own pid namespace if one is given (needs CAP_CHECKPOINT_RESTORE there).
///
/// # Errors
/// EEXIST when the number is taken, EPERM, EINVAL for a number beyond the namespace's limit; refused
/// when this process has more than one thread, because locks held by the others would stay locked
/// for ever in the copy.
pub fn clone_process(namespaces: Namespaces, number: Option<i32>) -> Result<Cloned, SpawnError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        return Err(SpawnError::Threads(threads));
    }
    clone_alone(namespaces, number)
}

/// As [`clone_process`], for callers that cannot see a `/proc` any more and know by themselves that
/// they have one thread.
///
/// # Errors
/// As [`clone_process`].
pub fn clone_alone(namespaces: Namespaces, number: Option<i32>) -> Result<Cloned, SpawnError> {
    let mut pidfd: c_int = -1;
    let numbers = [number.unwrap_or(0)];
    let arguments = CloneArguments {
        flags: u64::from((namespaces.flags() | libc::CLONE_PIDFD).cast_unsigned()),
        pidfd: std::ptr::from_mut(&mut pidfd).expose_provenance() as u64,
        exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
        set_tid: if number.is_some() {
            numbers.as_ptr().expose_provenance() as u64
        } else {
            0
        },
        set_tid_size: u64::from(number.is_some()),
        ..CloneArguments::default()
    };
    // JUSTIFICATION: only clone3 gives a process a chosen number; libc has no wrapper.
    // SAFETY: `arguments` and what it points to live until the call returns. Without CLONE_VM the
    // child runs on a copy of this stack. This process has one thread (checked above, or promised),
    // so that no lock of the allocator is held by a thread that does not exist in the child.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            std::ptr::from_ref(&arguments),
            size_of::<CloneArguments>(),
        )
    };
    match result {
        -1 => Err(match (namespaces, Errno::last()) {
            // Any other errno means a lack of processes or memory.
            (
                Namespaces::Own | Namespaces::OfNumbers,
                errno @ (Errno::EPERM | Errno::ENOSPC | Errno::EINVAL),
            ) => SpawnError::Namespaces(errno),
            (_, errno) => SpawnError::Clone(errno),
        }),
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent {
            pid: i32::try_from(pid).unwrap_or(i32::MAX),
            // JUSTIFICATION: a descriptor that the kernel made becomes an owned one.
            // SAFETY: with CLONE_PIDFD the kernel has put a new descriptor there; nobody owns it.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// A program that exists in memory only.
#[derive(Debug)]
pub struct Program {
    file: File,
}

impl Program {
    /// # Errors
    /// ENOMEM, EMFILE, or EACCES where the machine forbids programs in memory.
    pub fn new(bytes: &[u8]) -> Result<Self, SpawnError> {
        let create = |flags: c_uint| -> Result<c_long, Errno> {
            // JUSTIFICATION: nix does not know MFD_EXEC.
            // SAFETY: the name is a static string that ends in NUL.
            let made =
                unsafe { libc::syscall(libc::SYS_memfd_create, c"whim-blank".as_ptr(), flags) };
            Errno::result(made)
        };
        // Before Linux 6.3 the flag is unknown and memory may be executed anyway.
        let made = create(MFD_EXEC | libc::MFD_CLOEXEC)
            .or_else(|_| create(libc::MFD_CLOEXEC))
            .map_err(|errno| SpawnError::Program(errno.into()))?;
        let raw = RawFd::try_from(made)
            .map_err(|_| SpawnError::Program(io::Error::from(Errno::EINVAL)))?;
        // JUSTIFICATION: a descriptor that the kernel made becomes an owned one.
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let mut file = unsafe { File::from_raw_fd(raw) };
        file.write_all(bytes).map_err(SpawnError::Program)?;
        Ok(Self { file })
    }

    /// Replaces this process by the program, without arguments and environment. Returns only if
    /// that fails, with the reason.
    #[must_use]
    pub fn execute(&self) -> Errno {
        let none: [*const libc::c_char; 1] = [std::ptr::null()];
        // JUSTIFICATION: execution by descriptor alone has no safe wrapper.
        // SAFETY: the path is a static empty string, both vectors end in NULL, the descriptor is
        // open.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                self.file.as_raw_fd(),
                c"".as_ptr(),
                none.as_ptr(),
                none.as_ptr(),
                EMPTY_PATH,
            )
        };
        Errno::last()
    }

    /// The descriptor, for [`close_all_but`].
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Puts a copy of `descriptor` at `number` (closing what is there) that survives an exec.
///
/// # Errors
/// EMFILE.
pub fn place_descriptor(descriptor: BorrowedFd<'_>, number: RawFd) -> Result<(), SpawnError> {
    // JUSTIFICATION: nix's dup2 wants an owner for the target.
    // SAFETY: two integers. Whatever was open at `number` belongs to code that this process, about to
    // exec, never runs again.
    let result = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    Errno::result(result).map(drop).map_err(SpawnError::Close)
}

/// Closes every descriptor of this process except these. To be called right before an exec: owners
/// that still exist in this program are left with closed numbers.
///
/// # Errors
/// When the kernel refuses (it has close_range since 5.9).
pub fn close_all_but(keep: &[RawFd]) -> Result<(), SpawnError> {
    let mut keep: Vec<c_uint> = keep
        .iter()
        .filter_map(|n| c_uint::try_from(*n).ok())
        .collect();
    keep.sort_unstable();
    let mut from = 0;
    for number in keep {
        if number > from {
            close_range(from, number - 1)?;
        }
        from = number + 1;
    }
    close_range(from, c_uint::MAX)
}

fn close_range(first: c_uint, last: c_uint) -> Result<(), SpawnError> {
    // JUSTIFICATION: libc's wrapper is missing in old C libraries.
    // SAFETY: three integers; see `close_all_but` for the owners.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    Errno::result(result).map(drop).map_err(SpawnError::Close)
}

/// Forbids this process and its descendants to gain privileges by an exec.
///
/// # Errors
/// When the kernel refuses.
pub fn set_no_new_privileges() -> Result<(), SpawnError> {
    nix::sys::prctl::set_no_new_privs().map_err(SpawnError::NoNewPrivileges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runner_has_threads_and_is_not_copied() {
        assert!(matches!(
            clone_process(Namespaces::Inherited, None),
            Err(SpawnError::Threads(_))
        ));
    }

    #[test]
    fn a_program_that_is_none_is_refused_by_the_kernel() {
        let program = Program::new(b"no program at all").expect("memfd");
        assert_eq!(program.execute(), Errno::ENOEXEC);
    }
}
