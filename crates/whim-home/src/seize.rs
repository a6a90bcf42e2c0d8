//! Taking hold of the process, with the rights that this takes, and giving these rights up for good.
//!
//! The order is the promise: *capabilities end before the first byte of a host is read.* What needs a
//! capability comes first: all threads are traced (they run on), and what is needed of /proc/PID is opened,
//! and so are the files that the process maps. Then all of our threads give up their capabilities. Only then
//! is a host spoken to, by another thread. The tracer's thread meanwhile answers what the kernel reports, so
//! that a program does not notice if its move is only tried. A program with seccomp filters is stopped instead:
//! they are read and suspended by a right that goes with the others.

use crate::connections::{ConnectionError, Connections};
use crate::holding::Holding;
use crate::ours::Ours;
use crate::outward::OutwardError;
use crate::room::{Reserve, RoomError};
use crate::subject::Subject;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_image::freeze::{FreezeError, FreezeLimits, freeze_again};
use whim_image::freeze_attend::Attended;
use whim_image::freeze_filters::are_filtered;
use whim_image::stay::SharedFile;
use whim_image::stay_filters::FilterReason;
use whim_journey::message::ToHome;
use whim_sys::crash;
use whim_sys::credentials::{self, Capability, CredentialError};
use whim_sys::freezer::Freezers;
use whim_sys::opened;
use whim_sys::watched::{FileId, WatchError, WatchedFiles};

/// Longest sleep while a connection is made and nothing is reported of the threads, in milliseconds.
const LOOK_MS: u16 = 50;
/// How long the threads may take to stop so that they can be let go; the end of our thread does it then.
const LET_GO_WITHIN: Duration = Duration::from_millis(100);
/// How long a process with filters stands still while a connection is made.
const STANDS_STILL_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Error)]
pub(crate) enum SeizeError {
    #[error("The process {pid} cannot be opened: {source}")]
    Open { pid: i32, source: std::io::Error },
    #[error("{0}")]
    Watch(#[from] WatchError),
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(
        "The home supervisor's own descriptors failed ({0}): raise whimd's limit (LimitNOFILE)"
    )]
    Own(Errno),
    #[error(
        "The host was not ready within {0:?}, for which a program with a seccomp filter has to stand still: try again"
    )]
    NoAnswer(Duration),
    #[error("The connection to the host could not be made")]
    NoConnection,
}

/// How the threads are held until they are stopped.
#[derive(Debug)]
pub(crate) enum Threads {
    /// They run on, traced.
    Attended(Attended),
    /// They are seized only when they are stopped, because that needs no right which is gone by then. Some
    /// may be held since an earlier stop.
    Held,
    /// They are stopped already, because their filters could be read and suspended with a right that is gone by
    /// then.
    Stopped(Box<Ours>),
}

impl Threads {
    /// Lets a stopped process go on, so that it does not notice.
    pub(crate) fn let_go(self, holding: &mut Holding) {
        let Self::Stopped(ours) = self else {
            return;
        };
        if let Err(error) = ours.let_go(holding) {
            tracing::warn!(%error, "the process was let go, and may notice");
        }
    }
}

/// The process, and what could be had only with the right to trace it.
#[derive(Debug)]
pub(crate) struct Seized {
    pub threads: Threads,
    pub files: WatchedFiles,
    /// Its control groups are found out while it runs.
    pub freezers: Freezers,
    pub reserve: Reserve,
}

/// Takes hold of a process that runs on. On return this thread has no capability any more.
///
/// # Errors
/// It may not be traced, is not the subject any more, or maps a file that cannot be watched.
pub(crate) fn seize(
    pid: i32,
    subject: &Subject,
    holding: &mut Holding,
) -> Result<Seized, OutwardError> {
    let again = !holding.is_empty();
    opened::keep(pid).map_err(|source| closed(pid, source))?;
    crash::point("files-opened");
    let files = watch_files(pid)?;
    // A supervisor that has no such right to lose seizes as late as it can. A tracer without that right keeps
    // a setuid program that is executed meanwhile from getting its rights.
    let threads = if are_filtered(pid) {
        Threads::Stopped(Box::new(stop_filtered(pid, subject, holding)?))
    } else if again || !may_trace_all() {
        Threads::Held
    } else {
        Threads::Attended(attend(pid, subject)?)
    };
    match settle(pid, again) {
        Ok((freezers, reserve)) => Ok(Seized {
            threads,
            files,
            freezers,
            reserve,
        }),
        Err(error) => {
            threads.let_go(holding);
            Err(error)
        }
    }
}

/// Traces a process that runs on, if it has no rights but those that we may have.
///
/// With the right to trace all, the kernel lets us trace whatever the process has become by now; without it, a
/// setuid program that it executes later would not get its rights. So the look comes right before, and a second
/// one tells whether it has executed such a program in between. That one is let go before it has been loaded, so
/// that it finds no tracer.
fn attend(pid: i32, subject: &Subject) -> Result<Attended, OutwardError> {
    subject.check_rights()?;
    let attended = Attended::seize(pid, FreezeLimits::default().threads_max)?;
    if let Err(error) = subject.check_rights() {
        attended.let_go(LET_GO_WITHIN);
        return Err(error.into());
    }
    Ok(attended)
}

/// Gives up all rights, and finds out what takes none.
fn settle(pid: i32, again: bool) -> Result<(Freezers, Reserve), OutwardError> {
    give_up_rights()?;
    if !again {
        // Without rights, a tracer may look into a program only as long as the program has none either.
        // Better to know it now than in the midst of the move.
        let look = std::fs::read(format!("/proc/{pid}/personality"));
        look.map_err(|source| closed(pid, source))?;
    }
    let count = std::fs::read_dir(format!("/proc/{pid}/task"));
    let reserve = Reserve::take(count.map_or(1, Iterator::count))?;
    Ok((Freezers::looked_at(pid), reserve))
}

/// Stops a process with seccomp filters, reads and judges them, and suspends them while nothing of it runs. It
/// stands still from here on, because only CAP_SYS_ADMIN allows that, which goes before a host is heard.
fn stop_filtered(pid: i32, subject: &Subject, holding: &mut Holding) -> Result<Ours, OutwardError> {
    if credentials::effective_capabilities() & (1 << Capability::SYS_ADMIN.0) == 0 {
        return Err(match holding.is_empty() {
            true => OutwardError::Stay(FilterReason::OfRoot.into()),
            // Its supervisor has given up that right at an earlier move.
            false => FreezeError::NotPermitted(pid).into(),
        });
    }
    let limits = FreezeLimits {
        filters: true,
        ..FreezeLimits::default()
    };
    let frozen = freeze_again(pid, &limits, holding.take(), Freezers::of(pid))?;
    let mut ours = Ours::known(frozen, subject)?;
    let reason = match ours.take_filters() {
        Ok(Ok(())) => return Ok(ours),
        Ok(Err(reason)) => reason,
        // Nothing is made in a program whose filters still judge: it is dropped as it is.
        Err(error) => return Err(error.into()),
    };
    ours.let_go(holding)?;
    Err(OutwardError::Stay(reason.into()))
}

/// Whether we have the right to trace processes that our user could not trace.
fn may_trace_all() -> bool {
    credentials::effective_capabilities() & (1 << Capability::SYS_PTRACE.0) != 0
}

/// The error for a process that cannot be opened.
fn closed(pid: i32, source: std::io::Error) -> OutwardError {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => FreezeError::NotPermitted(pid).into(),
        Some(Errno::ENOENT | Errno::ESRCH) => FreezeError::Gone(pid).into(),
        Some(Errno::EMFILE | Errno::ENFILE) => RoomError::Ours(source).into(),
        _ => SeizeError::Open { pid, source }.into(),
    }
}

/// Gives up all that the calling thread may do beyond its user's rights.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn give_up_rights() -> Result<(), SeizeError> {
    // The supervisor of a process of root's stays root, with all rights, because that process has them too.
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    credentials::drop_all_capabilities()?;
    Ok(credentials::gain_nothing_by_exec()?)
}

/// Opens and watches the files that `pid` maps shared, read-only.
fn watch_files(pid: i32) -> Result<WatchedFiles, OutwardError> {
    let mut watched = WatchedFiles::default();
    for file in whim_image::stay::shared_read_only(pid).map_err(FreezeError::from)? {
        let range = file.range;
        let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end);
        let added = watched.add(Path::new(&exact));
        added
            .or_else(|error| {
                // That path needs a right which a plain user's cluster lacks; the name will do, if it
                // still names the same file.
                if file.is_named_so() {
                    watched.add(Path::new(&file.name))
                } else {
                    Err(error)
                }
            })
            .map_err(|error| SeizeError::from(error.named(&file.name)))?;
    }
    Ok(watched)
}

/// Whether a file that is mapped now is among those that are watched.
#[must_use]
pub(crate) fn is_watched(files: &WatchedFiles, file: &SharedFile) -> bool {
    let (major, minor) = file.device;
    let id: FileId = (libc::makedev(major, minor), file.inode);
    // Some file systems show another device in mappings, as btrfs does for its subvolumes.
    files.has(id) || (major == 0 && files.has_inode(file.inode))
}

/// What the thread that made the connection has heard.
pub(crate) type Heard = Result<(Connections, Result<ToHome, ConnectionError>), ConnectionError>;

impl Seized {
    /// Runs `connect` on a thread of its own, while the calling thread answers what the kernel reports of the
    /// process's threads.
    ///
    /// # Errors
    /// The process ended or began another program. Then `connect` goes on by itself, and its result is not
    /// used.
    pub(crate) fn while_attended(
        &mut self,
        holding: &mut Holding,
        connect: impl FnOnce() -> Heard + Send + 'static,
    ) -> Result<Heard, OutwardError> {
        let own = |errno| OutwardError::from(SeizeError::Own(errno));
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        set.thread_block().map_err(own)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let stops = SignalFd::with_flags(&set, flags).map_err(own)?;
        let (done, over) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(own)?;
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            // Nobody waits any more if the process has ended.
            let _ = sender.send(connect());
            drop(over);
        });
        self.attend(holding, &stops, (&done, &heard))
    }

    fn attend(
        &mut self,
        holding: &mut Holding,
        stops: &SignalFd,
        (done, heard): (&OwnedFd, &Receiver<Heard>),
    ) -> Result<Heard, OutwardError> {
        let begun = Instant::now();
        loop {
            match &mut self.threads {
                Threads::Attended(attended) => attended.poll()?,
                Threads::Held => holding.attend()?,
                Threads::Stopped(_) if begun.elapsed() > STANDS_STILL_MAX => {
                    return Err(SeizeError::NoAnswer(STANDS_STILL_MAX).into());
                }
                Threads::Stopped(_) => {}
            }
            match heard.try_recv() {
                Ok(heard) => return Ok(heard),
                Err(TryRecvError::Disconnected) => return Err(SeizeError::NoConnection.into()),
                Err(TryRecvError::Empty) => {}
            }
            let mut events = [
                PollFd::new(stops.as_fd(), PollFlags::POLLIN),
                PollFd::new(done.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut events, PollTimeout::from(LOOK_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(SeizeError::Own(errno).into()),
            }
            // SIGCHLD says no more than that something happened.
            while let Ok(Some(_)) = stops.read_signal() {}
        }
    }

    /// Stops all threads.
    ///
    /// # Errors
    /// [`FreezeError`]; or it is not the subject any more.
    pub(crate) fn freeze(
        threads: Threads,
        (pid, freezers): (i32, Freezers),
        (subject, holding): (&Subject, &mut Holding),
    ) -> Result<Ours, OutwardError> {
        let limits = FreezeLimits::default();
        let frozen = match threads {
            Threads::Stopped(ours) => return Ok(*ours),
            Threads::Attended(attended) => attended.freeze(&limits, freezers)?,
            Threads::Held => freeze_again(pid, &limits, holding.take(), freezers)?,
        };
        Ours::known(frozen, subject)
    }
}
