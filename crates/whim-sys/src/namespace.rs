//! Namespaces, pidfds and the few mounts that a lab node or a guest's sandbox is built from.
//!
//! Nothing here keeps global state: a namespace lives as long as the processes in it, and a
//! [`PidFd`] names one process without the danger that its number is given to another.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// What can fail here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The kernel refused to make the namespaces.
    #[error("Cannot make new {0} namespaces: {1}; {hint}", hint = rights_hint(*.1))]
    Unshare(Set, Errno),
    /// The kernel refused to enter the namespaces of a process.
    #[error("Cannot enter the {0} namespaces of process {1}: {2}; {hint}", hint = rights_hint(*.2))]
    Enter(Set, i32, Errno),
    /// The process is gone, or pidfds are not supported.
    #[error("Cannot open process {0}: {1}")]
    OpenProcess(i32, Errno),
    /// A signal could not be sent.
    #[error("Cannot send a signal to process {0}: {1}")]
    Signal(i32, Errno),
    /// Waiting for the end of a process failed.
    #[error("Cannot wait for process {0}: {1}")]
    Wait(i32, Errno),
    /// A mount failed.
    #[error("Cannot mount {what} on {target}: {errno}", target = .target.display())]
    Mount {
        what: String,
        target: PathBuf,
        errno: Errno,
    },
    /// A file of /proc that sets a namespace up could not be written.
    #[error("Cannot write {path}: {1}", path = .0.display())]
    Write(PathBuf, io::Error),
    /// `fork` was asked for in a process with several threads.
    #[error("Cannot fork: this process has threads, and a copy would keep only one of them")]
    Threads,
    /// `fork` failed.
    #[error("Cannot fork: {0}; raise the limit of processes (ulimit -u, pids cgroup)")]
    Fork(Errno),
    /// `prctl` failed.
    #[error("Cannot set {0} on this process: {1}")]
    Prctl(&'static str, Errno),
}

/// What helps where namespaces cannot be made.
#[must_use]
pub fn rights_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => {
            "run as root (CAP_SYS_ADMIN), or allow plain users to make user namespaces \
             (user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns)"
        }
        Errno::ENOSPC => {
            "the limit of namespaces is reached: raise user.max_*_namespaces in /proc/sys"
        }
        Errno::EINVAL => "this kernel lacks one of them (CONFIG_*_NS), or the caller has threads",
        _ => "see namespaces(7)",
    }
}

/// A set of namespace kinds, as flags of `unshare` and `setns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set(libc::c_int);

impl Set {
    /// No namespace at all.
    pub const NONE: Set = Set(0);
    /// User and group identities, capabilities.
    pub const USER: Set = Set(libc::CLONE_NEWUSER);
    /// Network devices, addresses, routes, sockets.
    pub const NET: Set = Set(libc::CLONE_NEWNET);
    /// Process ids; later children of the caller enter the namespace, the caller does not.
    pub const PID: Set = Set(libc::CLONE_NEWPID);
    /// Mounts.
    pub const MOUNT: Set = Set(libc::CLONE_NEWNS);
    /// Host name.
    pub const UTS: Set = Set(libc::CLONE_NEWUTS);
    /// System V IPC and POSIX message queues.
    pub const IPC: Set = Set(libc::CLONE_NEWIPC);
    /// Monotonic and boot clocks; later children of the caller enter the namespace, the caller does
    /// not.
    pub const TIME: Set = Set(0x0000_0080);
    /// The view of the cgroup tree.
    pub const CGROUP: Set = Set(libc::CLONE_NEWCGROUP);

    const NAMES: [(Set, &'static str); 8] = [
        (Set::USER, "user"),
        (Set::NET, "network"),
        (Set::PID, "pid"),
        (Set::MOUNT, "mount"),
        (Set::UTS, "uts"),
        (Set::IPC, "ipc"),
        (Set::TIME, "time"),
        (Set::CGROUP, "cgroup"),
    ];

    /// The kinds of both sets.
    #[must_use]
    pub const fn with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Whether every kind of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Set) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn flags(self) -> CloneFlags {
        // CLONE_NEWTIME shares its bit with the old exit-signal mask, so nix has no name for it.
        CloneFlags::from_bits_retain(self.0)
    }
}

impl std::ops::BitOr for Set {
    type Output = Set;
    fn bitor(self, other: Set) -> Set {
        self.with(other)
    }
}

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = true;
        for (kind, name) in Set::NAMES {
            if self.contains(kind) {
                if !first {
                    f.write_str("+")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

/// Moves the caller into new namespaces of these kinds (PID and TIME: its future children).
pub fn unshare(set: Set) -> Result<(), NamespaceError> {
    nix::sched::unshare(set.flags()).map_err(|errno| NamespaceError::Unshare(set, errno))
}

/// Maps one user and one group of the parent user namespace to `inside_uid` and `inside_gid`.
///
/// To be called once, right after `unshare(Set::USER)`, by the process that did it. A plain user
/// may map himself alone without any helper program; `setgroups` has to be given up for that.
pub fn map_single_user(
    inside_uid: u32,
    outside_uid: u32,
    inside_gid: u32,
    outside_gid: u32,
) -> Result<(), NamespaceError> {
    write_proc("/proc/self/setgroups", "deny")?;
    write_proc(
        "/proc/self/uid_map",
        &format!("{inside_uid} {outside_uid} 1"),
    )?;
    write_proc(
        "/proc/self/gid_map",
        &format!("{inside_gid} {outside_gid} 1"),
    )
}

/// Sets how far the clocks of the new time namespace are ahead of the machine's, in milliseconds
/// (negative: behind). To be called after `unshare(Set::TIME)` and before the first child.
///
/// The kernel refuses (ERANGE) offsets that would make a clock negative.
pub fn set_clock_offsets(monotonic_ms: i64, boottime_ms: i64) -> Result<(), NamespaceError> {
    let line = |name: &str, ms: i64| {
        // Nanoseconds count forward even if the offset is negative.
        let (seconds, rest) = (ms.div_euclid(1000), ms.rem_euclid(1000));
        format!("{name} {seconds} {}\n", rest * 1_000_000)
    };
    let text = line("monotonic", monotonic_ms) + &line("boottime", boottime_ms);
    write_proc("/proc/self/timens_offsets", &text)
}

fn write_proc(path: &str, text: &str) -> Result<(), NamespaceError> {
    std::fs::write(path, text).map_err(|e| NamespaceError::Write(PathBuf::from(path), e))
}

/// The two sides of a `fork`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// In the caller; the child's id as the caller sees it.
    Parent(Pid),
    /// In the new process.
    Child,
}

/// Copies this process. Refused when it has more than one thread, because locks held by the
/// others would stay locked for ever in the copy.
pub fn fork() -> Result<Fork, NamespaceError> {
    // Asking to leave a thread group that has other members is refused, and in a process with one
    // thread it does nothing. Unlike /proc/self this works in any mount and PID namespace.
    let alone = CloneFlags::CLONE_THREAD | CloneFlags::CLONE_SIGHAND | CloneFlags::CLONE_VM;
    nix::sched::unshare(alone).map_err(|_| NamespaceError::Threads)?;
    // JUSTIFICATION: the standard library can only fork and exec, but the first process of a new
    // PID or time namespace has to be a copy of the one that made it.
    // SAFETY: `fork` asks that the child of a process with threads calls only
    // async-signal-safe functions; it was checked above that there are no other threads.
    match unsafe { nix::unistd::fork() }.map_err(NamespaceError::Fork)? {
        nix::unistd::ForkResult::Parent { child } => Ok(Fork::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(Fork::Child),
    }
}

/// Asks the kernel for `signal` when the thread that started this process ends (`None`: never).
pub fn set_parent_death_signal(signal: Option<Signal>) -> Result<(), NamespaceError> {
    nix::sys::prctl::set_pdeathsig(signal)
        .map_err(|errno| NamespaceError::Prctl("the parent death signal", errno))
}

/// Makes this process the one that inherits orphans among its descendants, or stops that.
pub fn set_child_subreaper(on: bool) -> Result<(), NamespaceError> {
    nix::sys::prctl::set_child_subreaper(on)
        .map_err(|errno| NamespaceError::Prctl("the subreaper", errno))
}

/// How far the boot clock of our time namespace is ahead of the machine's own, in nanoseconds. The
/// kernel shows start times of processes by our namespace's clock.
#[must_use]
pub fn boot_offset_ns() -> i64 {
    let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    parse_boot_offset(&text).unwrap_or(0)
}

fn parse_boot_offset(text: &str) -> Option<i64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, rest) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// A reference to one process that can never come to mean another.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: i32,
}

impl PidFd {
    /// Opens the process with this id, as seen from the caller's PID namespace.
    pub fn open(pid: i32) -> Result<PidFd, NamespaceError> {
        // JUSTIFICATION: neither the standard library nor nix wraps pidfd_open.
        // SAFETY: the call takes two integers and touches no memory of ours.
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let raw = Errno::result(raw).map_err(|errno| NamespaceError::OpenProcess(pid, errno))?;
        let raw = i32::try_from(raw).map_err(|_| NamespaceError::OpenProcess(pid, Errno::EBADF))?;
        // JUSTIFICATION: the descriptor has to get an owner that closes it.
        // SAFETY: the kernel has just returned this descriptor and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(PidFd { fd, pid })
    }

    /// The id with which the process was opened.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to the process (never to a later one of the same id).
    pub fn signal(&self, signal: Signal) -> Result<(), NamespaceError> {
        let raw = self.fd.as_raw_fd();
        let none = std::ptr::null::<libc::siginfo_t>();
        // JUSTIFICATION: neither the standard library nor nix wraps pidfd_send_signal.
        // SAFETY: `raw` is open as long as `self` lives; a null siginfo is allowed and means
        // what kill(2) would fill in; no memory of ours is touched.
        let done =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, raw, signal as i32, none, 0) };
        Errno::result(done)
            .map(drop)
            .map_err(|errno| NamespaceError::Signal(self.pid, errno))
    }

    /// Waits until the process has ended; false when `limit` passed before.
    pub fn wait_end(&self, limit: Duration) -> Result<bool, NamespaceError> {
        let deadline = std::time::Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) if left > 0 => {}
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => return Ok(false),
                Err(errno) => return Err(NamespaceError::Wait(self.pid, errno)),
            }
        }
    }

    /// Moves the caller into the namespaces of these kinds that the process is in. PID takes effect
    /// for the caller's future children; TIME, USER and MOUNT need a caller without threads.
    pub fn enter(&self, set: Set) -> Result<(), NamespaceError> {
        nix::sched::setns(&self.fd, set.flags())
            .map_err(|errno| NamespaceError::Enter(set, self.pid, errno))
    }
}

/// As [`PidFd::enter`], for callers that cannot see a `/proc` any more.
///
/// # Errors
/// The process has ended, or the kernel refuses.
pub fn enter_of(process: &OwnedFd, set: Set) -> Result<(), NamespaceError> {
    nix::sched::setns(process, set.flags()).map_err(|errno| NamespaceError::Enter(set, 0, errno))
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Cuts the caller's mount namespace off from the one it was copied from: no mount made here
/// shows there, and none made there shows here.
pub fn make_mounts_private() -> Result<(), NamespaceError> {
    mount(
        None,
        Path::new("/"),
        None,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None,
    )
}

/// Makes `source` (with the mounts below it) visible at `target` as well.
pub fn bind(source: &Path, target: &Path) -> Result<(), NamespaceError> {
    mount(
        Some(source),
        target,
        None,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None,
    )
}

/// Moves the mount at `source` to `target`.
pub fn move_mount(source: &Path, target: &Path) -> Result<(), NamespaceError> {
    mount(Some(source), target, None, MsFlags::MS_MOVE, None)
}

/// Mounts a new file system of type `kind` with `options` as of mount(8)'s `-o`.
pub fn mount_new(
    kind: &str,
    target: &Path,
    flags: MsFlags,
    options: &str,
) -> Result<(), NamespaceError> {
    mount(
        Some(Path::new(kind)),
        target,
        Some(kind),
        flags,
        Some(options),
    )
}

fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), NamespaceError> {
    nix::mount::mount(source, target, kind, flags, options).map_err(|errno| NamespaceError::Mount {
        what: source.map_or_else(|| "private".to_owned(), |s| s.display().to_string()),
        target: target.to_owned(),
        errno,
    })
}

/// Gives a signal its default effect in this process, undoing what was inherited.
pub fn restore_default_action(signal: Signal) -> Result<(), NamespaceError> {
    // JUSTIFICATION: the standard library does not change signal actions.
    // SAFETY: no handler is installed, so there is no code that would have to be
    // async-signal-safe; the default action is valid for every signal.
    unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) }
        .map(drop)
        .map_err(|errno| NamespaceError::Prctl("the default action of a signal", errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_kinds() {
        assert_eq!((Set::NET | Set::TIME).to_string(), "network+time");
        assert!((Set::NET | Set::PID).contains(Set::PID));
        assert!(!Set::NET.contains(Set::PID));
    }

    #[test]
    fn a_process_with_threads_is_not_forked() {
        let (tell, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        assert!(matches!(fork(), Err(NamespaceError::Threads)));
        drop(tell);
        assert!(other.join().unwrap().is_err());
    }

    #[test]
    fn offsets_of_clocks_are_read() {
        let text = "monotonic     500000         0\nboottime         -20 250000000\n";
        assert_eq!(parse_boot_offset(text), Some(-19_750_000_000));
        assert_eq!(parse_boot_offset(""), None);
    }

    #[test]
    fn a_pidfd_sees_the_end_of_a_process() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let handle = PidFd::open(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!handle.wait_end(Duration::from_millis(1)).unwrap());
        handle.signal(Signal::SIGKILL).unwrap();
        assert!(handle.wait_end(Duration::from_secs(10)).unwrap());
        child.wait().unwrap();
        assert!(matches!(
            handle.signal(Signal::SIGKILL),
            Err(NamespaceError::Signal(_, _))
        ));
    }
}
