//! What the kernel reports about traced threads.

use super::{Status, Stop, Stopped, Tid, TraceError, Waited};
use libc::c_int;
use nix::errno::Errno;

pub(super) fn wait_raw(tid: Tid, flags: c_int) -> Result<Option<(Tid, Status)>, TraceError> {
    let mut raw: c_int = 0;
    loop {
        // JUSTIFICATION: nix's WaitStatus has no PTRACE_EVENT_STOP and refuses unknown signals.
        // SAFETY: `raw` is a live c_int.
        let found = unsafe { libc::waitpid(tid, &raw mut raw, flags) };
        return match found {
            0 => Ok(None),
            -1 => match Errno::last() {
                Errno::EINTR => continue,
                Errno::ECHILD => Err(TraceError::Died),
                errno => Err(TraceError::Os {
                    call: "waitpid",
                    tid,
                    errno,
                }),
            },
            found => Ok(Some((found, Status::from_raw(raw)))),
        };
    }
}

/// What has become of a child that nobody traces, if anything: its end, or a stop. Unlike nix's wait it knows
/// real-time signals.
///
/// # Errors
/// [`TraceError::Died`] when there is no such child.
pub fn poll_child(pid: Tid) -> Result<Option<Status>, TraceError> {
    let found = wait_raw(pid, libc::WNOHANG | libc::WUNTRACED)?;
    Ok(found.map(|(_, status)| status))
}

/// What [`peek`] found. The report stays with the kernel.
pub(super) enum Glance {
    Nothing,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// A stop of another kind, or the end.
    Other,
}

/// Returns what a wait for `tid` would report, without consuming the report.
///
/// A wait that consumes a report consumes its signal too: the kernel keeps the signal's number in
/// the very word that a wait clears (`exit_code` of the task). If the tracer then died between the
/// wait and the resumption, the thread would go on without the signal.
pub(super) fn glance(tid: Tid) -> Result<Glance, TraceError> {
    let id = libc::id_t::try_from(tid).map_err(|_| TraceError::Died)?;
    Ok(peek((libc::P_PID, id), tid, 0)?.1)
}

/// The next event of any tracee of the calling thread; `None` when there is none now. A signal that
/// is about to be delivered stays in the kernel's hands, as with
/// [`Running::poll_gently`](super::Running::poll_gently): its stop must be answered before the next
/// call.
///
/// # Errors
/// [`TraceError::Died`] when the thread has no tracees.
pub fn wait_any_gently() -> Result<Option<(Tid, Status)>, TraceError> {
    match peek((libc::P_ALL, 0), 0, libc::__WNOTHREAD)? {
        (_, Glance::Nothing) => Ok(None),
        (tid, Glance::Signal(signal)) => Ok(Some((tid, Status::Stopped(Stop::Signal(signal))))),
        (tid, Glance::Other) => wait_raw(tid, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG),
    }
}

/// Which thread has something to report, and what it is. The report stays with the kernel.
fn peek(
    (kind, id): (libc::idtype_t, libc::id_t),
    tid: Tid,
    more: c_int,
) -> Result<(Tid, Glance), TraceError> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::WNOHANG | libc::WNOWAIT;
    // JUSTIFICATION: nix's waitid refuses __WALL and statuses with PTRACE_EVENT_*.
    // SAFETY: siginfo_t is plain data, for which zeros are valid.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // JUSTIFICATION: as above.
    // SAFETY: `found` is a live siginfo_t.
    if unsafe { libc::waitid(kind, id, &raw mut found, flags | more) } == -1 {
        return match Errno::last() {
            Errno::EINTR => Ok((tid, Glance::Nothing)),
            Errno::ECHILD => Err(TraceError::Died),
            errno => Err(TraceError::Os {
                call: "waitid",
                tid,
                errno,
            }),
        };
    }
    // JUSTIFICATION: siginfo_t is a union behind accessors.
    // SAFETY: waitid fills the members of SIGCHLD, or leaves all zero.
    let (pid, status) = unsafe { (found.si_pid(), found.si_status()) };
    let glance = match (pid, found.si_code) {
        (0, _) => Glance::Nothing,
        // Stops of other kinds have more bits (PTRACE_EVENT_*, PTRACE_O_TRACESYSGOOD).
        (_, libc::CLD_TRAPPED) if (1..=libc::SIGRTMAX()).contains(&status) => {
            Glance::Signal(status)
        }
        _ => Glance::Other,
    };
    Ok((pid, glance))
}

/// The next event of any tracee or child of the calling thread; `None` when there is none now.
///
/// # Errors
/// [`TraceError::Died`] when the thread has neither tracees nor children.
pub fn wait_any_nonblocking() -> Result<Option<(Tid, Status)>, TraceError> {
    wait_raw(-1, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG)
}

/// Whether a tracee has something to report, which stays with the kernel.
///
/// # Errors
/// [`TraceError::Died`] when it is no tracee of ours.
pub fn has_report(tid: Tid) -> Result<bool, TraceError> {
    Ok(!matches!(glance(tid)?, Glance::Nothing))
}

/// As [`wait_any_nonblocking`], but waits for an event.
///
/// # Errors
/// [`TraceError::Died`] when the thread has neither tracees nor children.
pub fn wait_any() -> Result<(Tid, Status), TraceError> {
    wait_raw(-1, libc::__WALL | libc::__WNOTHREAD)?.ok_or(TraceError::Died)
}

pub(super) fn waited(tid: Tid, status: Status) -> Option<Waited> {
    match status {
        Status::Stopped(stop) => Some(Waited::Stopped(Stopped { tid, stop })),
        Status::Exited(code) => Some(Waited::Exited { tid, code }),
        Status::Signaled { signal, core } => Some(Waited::Signaled { tid, signal, core }),
        Status::Other(_) => None,
    }
}
