//! What plain system calls tell about another process.

use crate::kernel_file;
use libc::{c_int, c_long, pid_t};
use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Soft and hard limit of one resource (RLIMIT_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// Number of resources that have limits (RLIM_NLIMITS).
const RESOURCES: u32 = 16;

fn check(result: c_long) -> Result<c_long, Errno> {
    if result == -1 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

/// Address and length of a thread's list of robust futexes.
///
/// # Errors
/// ESRCH, EPERM.
pub fn robust_list(tid: pid_t) -> Result<(u64, u64), Errno> {
    let mut head = 0u64;
    let mut length = 0u64;
    // JUSTIFICATION: neither std nor nix offers get_robust_list.
    // SAFETY: both pointers are to live u64 values, as large as the pointer and the size_t that
    // the kernel stores.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut length,
        )
    };
    check(result).map(|_| (head, length))
}

/// All resource limits of a process.
///
/// # Errors
/// ESRCH, EPERM.
pub fn limits(pid: pid_t) -> Result<Vec<Limit>, Errno> {
    let asked: Result<_, _> = (0..RESOURCES)
        .map(|resource| limit(pid, resource))
        .collect();
    match asked {
        // To ask takes the same user and group ids; anybody may read them.
        Err(Errno::EPERM) => limits_as_text(pid).ok_or(Errno::EPERM),
        asked => asked,
    }
}

/// The limits that `/proc/PID/limits` shows: a heading, then one line each, ordered by resource, with the two limits in
/// columns of a fixed width (`proc_pid_limits` in Linux's `fs/proc/base.c`).
fn limits_as_text(pid: pid_t) -> Option<Vec<Limit>> {
    let text = kernel_file::read_text(format!("/proc/{pid}/limits")).ok()?;
    let value = |column: Option<&str>| match column?.trim() {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    let limits = (0..RESOURCES)
        .zip(text.lines().skip(1))
        .map(|(resource, line)| {
            Some(Limit {
                resource,
                soft: value(line.get(26..46))?,
                hard: value(line.get(47..67))?,
            })
        });
    let limits: Vec<Limit> = limits.collect::<Option<_>>()?;
    let last = limits.last()?.resource;
    (last + 1 == RESOURCES).then_some(limits)
}

/// One resource limit of a process.
///
/// # Errors
/// ESRCH, EPERM, EINVAL.
pub fn limit(pid: pid_t, resource: u32) -> Result<Limit, Errno> {
    let mut found = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // JUSTIFICATION: nix reads the limits of the calling process only.
    // SAFETY: the new limit is null (not set), the old one is a live rlimit64.
    let result = unsafe { libc::prlimit64(pid, resource, std::ptr::null(), &raw mut found) };
    check(c_long::from(result))?;
    Ok(Limit {
        resource,
        soft: found.rlim_cur,
        hard: found.rlim_max,
    })
}

/// Sets one resource limit of a process.
///
/// # Errors
/// ESRCH; EPERM when the hard limit would rise and we lack CAP_SYS_RESOURCE.
pub fn set_limit(pid: pid_t, limit: Limit) -> Result<(), Errno> {
    let new = libc::rlimit64 {
        rlim_cur: limit.soft,
        rlim_max: limit.hard,
    };
    // JUSTIFICATION: nix sets the limits of the calling process only.
    // SAFETY: the new limit is a live rlimit64, the old one is null (not asked for).
    let result =
        unsafe { libc::prlimit64(pid, limit.resource, &raw const new, std::ptr::null_mut()) };
    check(c_long::from(result)).map(|_| ())
}

fn pidfd(pid: pid_t) -> Result<OwnedFd, Errno> {
    // JUSTIFICATION: nix has no pidfd_open.
    // SAFETY: no pointers; a non-negative result is a descriptor that nobody else owns.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(
            c_int::try_from(fd).map_err(|_| Errno::EBADF)?,
        ))
    }
}

/// A duplicate of descriptor `fd` of process `pid` (its leader's table).
///
/// # Errors
/// ESRCH, EBADF, EPERM.
pub fn descriptor(pid: pid_t, fd: c_int) -> Result<OwnedFd, Errno> {
    let process = pidfd(pid)?;
    // JUSTIFICATION: nix has no pidfd_getfd.
    // SAFETY: no pointers; a non-negative result is a new descriptor that nobody else owns.
    unsafe {
        let got = check(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            fd,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(
            c_int::try_from(got).map_err(|_| Errno::EBADF)?,
        ))
    }
}

/// The thread that gets the signals of a descriptor (`F_SETOWN_EX`, `F_OWNER_TID`), by its number in our own pid
/// namespace; `None` if they are for a process or a group, or nobody's.
///
/// # Errors
/// ESRCH, EBADF, EPERM.
pub fn signalled_thread(pid: pid_t, fd: c_int) -> Result<Option<pid_t>, Errno> {
    const F_GETOWN_EX: c_int = 16;
    const F_OWNER_TID: c_int = 0;
    #[repr(C)]
    struct Owner {
        kind: c_int,
        id: pid_t,
    }
    let copy = descriptor(pid, fd)?;
    let mut owner = Owner { kind: -1, id: 0 };
    // JUSTIFICATION: nix does not know this command.
    // SAFETY: `owner` is live, and as the kernel's structure f_owner_ex.
    let result = unsafe { libc::fcntl(copy.as_raw_fd(), F_GETOWN_EX, &raw mut owner) };
    check(c_long::from(result))?;
    Ok((owner.kind == F_OWNER_TID && owner.id > 0).then_some(owner.id))
}

/// SO_RCVTIMEO and SO_SNDTIMEO of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketTimeouts {
    pub receive: Option<Duration>,
    pub send: Option<Duration>,
}

fn timeout_option(socket: &OwnedFd, option: c_int) -> Result<Option<Duration>, Errno> {
    let mut value = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let mut length = libc::socklen_t::try_from(size_of::<libc::timeval>()).unwrap_or(16);
    // JUSTIFICATION: nix's socket options want a descriptor type that would close it twice here.
    // SAFETY: `value` is live and `length` is its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    check(c_long::from(result))?;
    let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
    let micros = u64::try_from(value.tv_usec).unwrap_or(0);
    let duration = Duration::from_secs(seconds) + Duration::from_micros(micros);
    Ok((!duration.is_zero()).then_some(duration))
}

/// The timeouts of socket `fd` of process `pid`.
///
/// # Errors
/// ENOTSOCK when it is not a socket; EBADF, ESRCH, EPERM.
pub fn socket_timeouts(pid: pid_t, fd: c_int) -> Result<SocketTimeouts, Errno> {
    let socket = descriptor(pid, fd)?;
    Ok(SocketTimeouts {
        receive: timeout_option(&socket, libc::SO_RCVTIMEO)?,
        send: timeout_option(&socket, libc::SO_SNDTIMEO)?,
    })
}

/// Whether a file (followed if it is a link) has an extended attribute.
#[must_use]
pub fn has_attribute(path: &str, name: &CStr) -> bool {
    let Ok(path) = CString::new(path) else {
        return false;
    };
    // JUSTIFICATION: neither std nor nix reads extended attributes.
    // SAFETY: both strings end with NUL; a null buffer of size 0 asks for the length only.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    length >= 0
}

/// Kernel resources that two threads may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Memory,
    Descriptors,
    Directory,
    SignalHandlers,
}

/// Whether two threads use one and the same resource (`kcmp(2)`).
///
/// # Errors
/// ESRCH, EPERM; ENOSYS on kernels without kcmp.
pub fn shares(one: pid_t, other: pid_t, resource: Resource) -> Result<bool, Errno> {
    let kind = match resource {
        Resource::Memory => 1,
        Resource::Descriptors => 2,
        Resource::Directory => 3,
        Resource::SignalHandlers => 4,
    };
    // JUSTIFICATION: neither std nor nix offers kcmp.
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, 0, 0) };
    check(result).map(|order| order == 0)
}

/// Whether a thread has a descriptor of this number. A thread that has ended has none, and neither
/// has a kernel thread.
///
/// # Errors
/// ESRCH, EPERM; ENOSYS on kernels without kcmp.
pub fn has_descriptor(tid: pid_t, fd: c_int) -> Result<bool, Errno> {
    const FILE: c_int = 0;
    // JUSTIFICATION: neither std nor nix offers kcmp.
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, tid, tid, FILE, fd, fd) };
    match check(result) {
        Ok(_) => Ok(true),
        Err(Errno::EBADF) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_tells_the_same_limits_as_the_call() {
        let own = std::process::id().cast_signed();
        let asked = limits(own).expect("asked");
        assert_eq!(limits_as_text(own), Some(asked));
    }
}
