//! Read leases on files, or what stands for them: as long as one is held, nobody writes to the file
//! unseen.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::AccessFlags;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// A file of others that was written later than this before is taken for one that somebody is
/// writing.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Error)]
pub enum LeaseError {
    #[error("{path} cannot be opened: {source}")]
    Open {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "No read lease is to be had on {path} ({errno}): somebody has it open for writing, or this user may not take leases on it"
    )]
    Refused { path: String, errno: Errno },
    #[error(
        "{path}, which it maps shared and which is not this user's, was written just now: try again when nobody has written to it for a minute"
    )]
    Unsettled { path: String },
}

/// As long as it is held, this process gets SIGIO when somebody wants to write to the file, or has
/// written.
#[derive(Debug)]
pub struct ReadLease {
    file: File,
    watch: Option<Watched>,
}

/// A file of others, which this user can neither write nor lease.
#[derive(Debug)]
struct Watched {
    _notices: Inotify,
    version: Version,
}

/// What changes with the contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    modified: (i64, i64),
    changed: (i64, i64),
    length: u64,
}

impl Version {
    fn of(file: &File) -> std::io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self {
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
            length: about.len(),
        })
    }

    /// Whether nobody has written for so long that nobody seems to be at it.
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(self.modified.0)
            .is_ok_and(|last| last + SETTLED_AFTER.as_secs() < now.as_secs())
    }
}

impl ReadLease {
    /// Takes a lease (F_RDLCK): the kernel lets a writer wait until it is dropped,
    /// /proc/sys/fs/lease-break-time at most. The file is named by a path of /proc/PID/map_files, so
    /// that it is exactly the one that is mapped.
    ///
    /// A file of others on which we may have no lease, and which we cannot write ourselves, is
    /// watched instead: its writer does not wait, but we are told.
    ///
    /// # Errors
    /// The file has a writer, or we lack CAP_LEASE and are not its owner.
    pub fn take(path: &Path) -> Result<Self, LeaseError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| LeaseError::Open {
            path: name.clone(),
            source,
        })?;
        // JUSTIFICATION: no library wraps F_SETLEASE.
        // SAFETY: fcntl with an open descriptor and an integer touches no memory of ours.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
        match Errno::result(result) {
            Ok(_) => Ok(Self { file, watch: None }),
            Err(Errno::EACCES) => Self::watch(file, name),
            Err(errno) => Err(LeaseError::Refused { path: name, errno }),
        }
    }

    fn watch(file: File, path: String) -> Result<Self, LeaseError> {
        let refused = |errno| LeaseError::Refused {
            path: path.clone(),
            errno,
        };
        if may_write(&file) {
            return Err(refused(Errno::EACCES));
        }
        // By the descriptor: the name may mean another file by now.
        let exact = format!("/proc/self/fd/{}", file.as_raw_fd());
        let notices =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(refused)?;
        let what = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ATTRIB;
        notices.add_watch(exact.as_str(), what).map_err(refused)?;
        signal_us(&notices).map_err(refused)?;
        let read = |error: std::io::Error| {
            refused(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        };
        // Read after the watch was set, so that no change falls between the two.
        let version = Version::of(&file).map_err(read)?;
        if !version.is_settled(SystemTime::now()) {
            return Err(LeaseError::Unsettled { path });
        }
        let watch = Watched {
            _notices: notices,
            version,
        };
        let watch = Some(watch);
        Ok(Self { file, watch })
    }

    /// Whether the file is only watched.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether a file that is only watched has changed. Writes by a mapping give no notice, but the
    /// kernel notes their time.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let stale = |watch: &Watched| Version::of(&self.file).ok() != Some(watch.version);
        self.watch.as_ref().is_some_and(stale)
    }
}

/// Whether this user can hold a lease on this file without a privilege, or what stands for one.
#[must_use]
pub fn is_possible(file: &File) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    file.metadata().is_ok_and(|about| about.uid() == own) || !may_write(file)
}

/// Whether this user could write to the file, if not to this descriptor.
fn may_write(file: &File) -> bool {
    let exact = format!("/proc/self/fd/{}", file.as_raw_fd());
    nix::unistd::eaccess(exact.as_str(), AccessFlags::W_OK).is_ok()
}

/// Asks for SIGIO when the descriptor has something to say, as the kernel sends it for a lease.
fn signal_us(notices: &Inotify) -> Result<(), Errno> {
    let raw = notices.as_fd().as_raw_fd();
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    // JUSTIFICATION: nix has no F_SETOWN.
    // SAFETY: fcntl with an open descriptor and an integer touches no memory of ours.
    Errno::result(unsafe { libc::fcntl(raw, libc::F_SETOWN, own) })?;
    let flags = OFlag::O_ASYNC | OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(notices, FcntlArg::F_SETFL(flags)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_gives_no_lease() {
        let path = std::env::temp_dir().join(format!("whim-lease-{}", std::process::id()));
        let writer = File::create(&path).expect("a temporary file");
        assert!(matches!(
            ReadLease::take(&path),
            Err(LeaseError::Refused { .. })
        ));
        drop(writer);
        let lease = ReadLease::take(&path).expect("nobody writes now");
        assert!(!lease.is_stale());
        drop(lease);
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_file_is_settled_when_nobody_has_written_to_it_for_a_minute() {
        let now = SystemTime::now();
        let seconds = |ago: u64| {
            let then = now - Duration::from_secs(ago);
            let since = then.duration_since(UNIX_EPOCH).expect("after 1970");
            (i64::try_from(since.as_secs()).expect("small"), 0)
        };
        let version = |modified| Version {
            modified: seconds(modified),
            changed: seconds(0),
            length: 7,
        };
        assert!(version(120).is_settled(now));
        assert!(!version(10).is_settled(now));
        assert!(!version(0).is_settled(now));
    }
}
