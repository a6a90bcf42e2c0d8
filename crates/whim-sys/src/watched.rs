//! Files that a process maps and others may write to. They are watched, so that a change is
//! noticed.
//!
//! A read lease would make a writer wait until the lease is given back, for as long as its holder
//! likes (45 s, /proc/sys/fs/lease-break-time), so stopping the holder would stop the writers.
//! Therefore no lease is held. On the user's own files, a lease is taken and given back at once,
//! which the owner of a file may do: the kernel refuses it as long as somebody has the file open
//! for writing.

mod asked;

use asked::Asked;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::AccessFlags;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// If a file of another user was written less than this ago, somebody is assumed to be writing it
/// still.
const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// How often files are checked in addition to the notices, because writes through a mapping give
/// none.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same where the kernel gives us no notices.
const LOOK_EVERY_WITHOUT_NOTICES: Duration = Duration::from_millis(100);

/// File systems that other machines can change without a notice here, by their magic numbers: NFS,
/// CIFS and SMB2, Ceph, AFS (both), Coda, 9P, Lustre, GPFS, OCFS2, GFS2.
const REMOTE: [u32; 12] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x0102_1997,
    0x0bd0_0bd0,
    0x4750_4653,
    0x7461_636f,
    0x0116_1970,
];

#[derive(Debug, Error)]
pub enum WatchError {
    #[error("{path} cannot be opened: {source}")]
    Open {
        path: String,
        source: std::io::Error,
    },
    #[error("Writes to {path}, which it maps shared, would not be heard of: {cause}")]
    Refused { path: String, cause: Unheard },
    #[error(
        "{path}, which it maps shared and which is not this user's, was written just now: try again when nobody has written to it for a minute"
    )]
    Unsettled { path: String },
}

impl WatchError {
    /// The same, of a file that is known by another name than the path that it was opened by.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        let (Self::Open { path, .. } | Self::Refused { path, .. } | Self::Unsettled { path }) =
            &mut self;
        name.clone_into(path);
        self
    }
}

/// Why writes to a file would not be heard of.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unheard {
    #[error("somebody has it open for writing")]
    Writer,
    #[error("it is another user's, and this user may write to it")]
    MayWrite,
    #[error("other machines may write to it")]
    Remote,
    #[error("its file system does not tell who has it open for writing ({0})")]
    NoLeases(Errno),
    #[error("it does not tell what it is ({0})")]
    Unknown(Errno),
}

impl Unheard {
    /// Why a lease was refused.
    fn of_lease(errno: Errno) -> Self {
        match errno {
            Errno::EAGAIN => Self::Writer,
            errno => Self::NoLeases(errno),
        }
    }
}

/// Which file it is: its device and inode.
pub type FileId = (u64, u64);

/// The most files that are followed. Each is a watch of the user's (`fs.inotify.max_user_watches`).
pub const FOLLOWED_MAX: usize = 4096;

/// How many inotify instances are left to other programs of the user (`fs.inotify.max_user_instances`),
/// whose editors and sessions need some.
const INSTANCES_LEFT: usize = 8;

/// A file whose changes are told of: equal for equal files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// The kernel gives notice of them.
    Noticed(WatchDescriptor),
    /// It does not, so that the file is asked for the time of its last change.
    Asked(AskedId),
}

/// Which of the files that are asked it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedId(u32);

/// Files that are watched by one descriptor. Files that are mapped shared must not change; files that
/// are mapped privately are *followed*: they may change, and it is told which of them have.
#[derive(Debug, Default)]
pub struct WatchedFiles {
    /// None where the user's limit of inotify instances (`fs.inotify.max_user_instances`) is reached.
    notices: Option<Inotify>,
    files: Vec<Watched>,
    changed: bool,
    followed: BTreeSet<Watch>,
    asked: Asked,
    /// Followed files that have changed since that was last asked.
    written: BTreeSet<Watch>,
}

#[derive(Debug)]
struct Watched {
    file: File,
    id: FileId,
    version: Version,
    own: bool,
    /// `None` if it gives no notices.
    watch: Option<WatchDescriptor>,
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

    /// Whether the last write is so long ago that nobody seems to be writing any more.
    fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(self.modified.0)
            .is_ok_and(|last| last + SETTLED_AFTER.as_secs() < now.as_secs())
    }
}

impl WatchedFiles {
    /// Watches one more file. A path of /proc/PID/map_files names exactly the file that is mapped.
    ///
    /// # Errors
    /// It has a writer, or was written just now, or cannot be watched where it is.
    pub fn add(&mut self, path: &Path) -> Result<FileId, WatchError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| WatchError::Open {
            path: name.clone(),
            source,
        })?;
        let refused = |cause| WatchError::Refused {
            path: name.clone(),
            cause,
        };
        let leased = |errno| refused(Unheard::of_lease(errno));
        let unknown = |errno| refused(Unheard::Unknown(errno));
        let failed = |error: std::io::Error| {
            unknown(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
        };
        let about = file.metadata().map_err(failed)?;
        let id = (about.dev(), about.ino());
        if self.files.iter().any(|known| known.id == id) {
            return Ok(id);
        }
        let own = about.uid() == nix::unistd::geteuid().as_raw();
        if own {
            // Asked before the watch is set as well, because notices of a watch count even if its
            // file is refused afterwards.
            ask_for_writers(&file).map_err(leased)?;
        } else if may_write(&file) {
            // Then the program itself may be writing to it through a mapping, without any notice.
            return Err(refused(Unheard::MayWrite));
        } else if is_remote(&file).map_err(unknown)? {
            return Err(refused(Unheard::Remote));
        }
        let watch = self.watch(&file, own);
        if own {
            ask_for_writers(&file).map_err(leased)?;
        }
        // Read after the watch was set, so that no change falls between the two.
        let version = Version::of(&file).map_err(failed)?;
        if !own && !version.is_settled(SystemTime::now()) {
            return Err(WatchError::Unsettled { path: name });
        }
        self.files.push(Watched {
            file,
            id,
            version,
            own,
            watch,
        });
        Ok(id)
    }

    /// One inotify descriptor serves all files, because a user may have only 128 of them.
    fn watch(&mut self, file: &File, own: bool) -> Option<WatchDescriptor> {
        if self.files.is_empty() {
            self.open_notices(0);
        }
        let mut what = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ATTRIB;
        if own {
            what |= AddWatchFlags::IN_OPEN;
        }
        // By the descriptor: the name may mean another file by now.
        let exact = format!("/proc/self/fd/{}", file.as_raw_fd());
        let notices = self.notices.as_ref()?;
        notices.add_watch(exact.as_str(), what).ok()
    }

    /// Opens the descriptor, if that leaves the user so many more.
    fn open_notices(&mut self, spare: usize) {
        if self.notices.is_some() {
            return;
        }
        let open = || Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let others: Option<Vec<Inotify>> = (0..spare).map(|_| open()).collect();
        if others.is_some() {
            self.notices = open();
        }
    }

    /// Makes ready to follow files. Without it none are followed.
    pub fn begin_following(&mut self) {
        self.open_notices(INSTANCES_LEFT);
    }

    /// Follows the file that a path leads to. None if it cannot be: this user may not read it, or a
    /// limit is reached (of the user's watches and instances, or [`FOLLOWED_MAX`]).
    pub fn follow(&mut self, path: &Path) -> Option<Watch> {
        if asked::takes(path) {
            return self.asked.add(path).map(Watch::Asked);
        }
        // The same file may be watched already, for more than this.
        let what = AddWatchFlags::IN_MODIFY | AddWatchFlags::from_bits_retain(libc::IN_MASK_ADD);
        let descriptor = self.notices.as_ref()?.add_watch(path, what).ok()?;
        let watch = Watch::Noticed(descriptor);
        if self.followed.len() >= FOLLOWED_MAX && !self.followed.contains(&watch) {
            self.forget(descriptor);
            return None;
        }
        self.followed.insert(watch);
        Some(watch)
    }

    /// Follows a file no longer.
    pub fn unfollow(&mut self, watch: Watch) {
        self.written.remove(&watch);
        match watch {
            Watch::Asked(id) => self.asked.remove(id),
            Watch::Noticed(descriptor) => {
                if self.followed.remove(&watch) {
                    self.forget(descriptor);
                }
            }
        }
    }

    fn forget(&self, watch: WatchDescriptor) {
        let is_watched = self.files.iter().any(|file| file.watch == Some(watch));
        if let (Some(notices), false) = (&self.notices, is_watched) {
            // The kernel itself forgets the watch of a file that is gone.
            let _ = notices.rm_watch(watch);
        }
    }

    /// Asks the followed files of which the kernel gives no notice. To be called before what follows a write is
    /// told.
    pub fn ask_followed(&mut self) {
        let changed = self.asked.ask(SystemTime::now());
        self.written.extend(changed.map(Watch::Asked));
    }

    /// The followed files that have changed since the last time, as far as the kernel has reported.
    pub fn take_written(&mut self) -> BTreeSet<Watch> {
        std::mem::take(&mut self.written)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether this file is among them.
    #[must_use]
    pub fn has(&self, id: FileId) -> bool {
        self.files.iter().any(|file| file.id == id)
    }

    /// As [`has`](Self::has), where the device is not known.
    #[must_use]
    pub fn has_inode(&self, inode: u64) -> bool {
        self.files.iter().any(|file| file.id.1 == inode)
    }

    /// Whether a file has changed, or may change from now on, as far as the kernel has reported. A
    /// write by a system call is reported before the call ends.
    pub fn is_told_of_change(&mut self) -> bool {
        while let Some(events) = self.new_notices() {
            for event in events {
                self.notice(&event);
            }
        }
        self.changed
    }

    fn notice(&mut self, event: &InotifyEvent) {
        let opened = event.mask == AddWatchFlags::IN_OPEN;
        let watch = Watch::Noticed(event.wd);
        let is_followed = self.followed.contains(&watch);
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.written.extend(&self.followed);
        } else if is_followed && event.mask.contains(AddWatchFlags::IN_MODIFY) {
            self.written.insert(watch);
        }
        let file = self.files.iter().find(|file| file.watch == Some(event.wd));
        self.changed |= match file {
            // A change is known already: no need to ask again.
            Some(_) if opened && self.changed => true,
            Some(file) if opened => file.own && ask_for_writers(&file.file).is_err(),
            Some(_) => true,
            None if is_followed || event.mask.contains(AddWatchFlags::IN_IGNORED) => false,
            // The queue was full, or the file was refused after its watch was set.
            None => !self.files.is_empty(),
        };
    }

    fn new_notices(&self) -> Option<Vec<InotifyEvent>> {
        self.notices.as_ref()?.read_events().ok()
    }

    /// Whether a file has changed, by a check of the files themselves: writes through a mapping
    /// give no notice, but the kernel notes their time.
    pub fn is_changed(&mut self) -> bool {
        let stale = |file: &Watched| Version::of(&file.file).ok() != Some(file.version);
        self.changed = self.is_told_of_change() || self.files.iter().any(stale);
        self.changed
    }

    /// How often the files are to be checked.
    #[must_use]
    pub fn look_every(&self) -> Duration {
        if self.files.is_empty() {
            Duration::MAX
        } else if self.files.iter().all(|file| file.watch.is_some()) {
            LOOK_EVERY
        } else {
            LOOK_EVERY_WITHOUT_NOTICES
        }
    }

    /// Readable when there are notices.
    #[must_use]
    pub fn notices(&self) -> Option<BorrowedFd<'_>> {
        self.notices.as_ref().map(AsFd::as_fd)
    }
}

/// Fails if somebody has our own file open for writing, because the kernel then refuses a lease. A
/// lease that is granted is given back at once.
fn ask_for_writers(file: &File) -> Result<(), Errno> {
    let ask = |kind: i32| {
        // JUSTIFICATION: no library wraps F_SETLEASE.
        // SAFETY: fcntl with an open descriptor and an integer touches no memory of ours.
        Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })
    };
    // Trap: a-shared-file-is-written
    ask(libc::F_RDLCK)?;
    // Trap: a-lease-makes-others-wait
    ask(libc::F_UNLCK).map(drop)
}

/// Whether this user's programs may map this file shared while they are away: it must belong to the
/// user, or the user must be unable to write to it.
#[must_use]
pub fn is_possible(file: &File) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    file.metadata().is_ok_and(|about| about.uid() == own) || !may_write(file)
}

/// Whether this user could write to the file, even if not through this descriptor.
fn may_write(file: &File) -> bool {
    let exact = format!("/proc/self/fd/{}", file.as_raw_fd());
    nix::unistd::eaccess(exact.as_str(), AccessFlags::W_OK).is_ok()
}

fn is_remote(file: &File) -> Result<bool, Errno> {
    let FsType(number) = fstatfs(file)?.filesystem_type();
    Ok(u32::try_from(number).is_ok_and(|number| REMOTE.contains(&number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("whim-watched-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_file_that_is_open_for_writing_is_not_taken() {
        let path = path("open");
        let writer = File::create(&path).expect("a temporary file");
        let mut files = WatchedFiles::default();
        let error = files.add(&path).expect_err("it has a writer");
        let sentence = "Writes to /srv/file, which it maps shared, would not be heard of: \
                        somebody has it open for writing";
        assert_eq!(error.named("/srv/file").to_string(), sentence);
        drop(writer);
        let id = files.add(&path).expect("nobody writes now");
        assert!(files.has(id) && !files.is_changed());
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_write_and_an_open_for_writing_are_told_and_reading_is_not() {
        for (name, writes) in [("write", true), ("map", false)] {
            let path = path(name);
            std::fs::write(&path, "before").expect("a temporary file");
            let mut files = WatchedFiles::default();
            files.add(&path).expect("ours");
            assert_eq!(std::fs::read(&path).expect("ours"), b"before");
            assert!(!files.is_told_of_change(), "it was only read");
            let opened = std::fs::OpenOptions::new().write(true).open(&path);
            let mut opened = opened.expect("nobody waits for us");
            if writes {
                opened.write_all(b"after").expect("ours");
                drop(opened);
            }
            assert!(files.is_told_of_change(), "{name}");
            std::fs::remove_file(&path).expect("ours");
        }
    }

    #[test]
    fn followed_files_may_change_and_it_is_told_which() {
        let (first, second) = (path("first"), path("second"));
        for path in [&first, &second] {
            std::fs::write(path, "before").expect("a temporary file");
        }
        let mut files = WatchedFiles::default();
        assert_eq!(files.follow(&first), None, "it has not begun");
        files.begin_following();
        let one = files.follow(&first).expect("it may be read");
        let other = files.follow(&second).expect("it may be read");
        assert_eq!(files.follow(&first), Some(one), "the same file");
        assert!(!files.is_told_of_change() && files.take_written().is_empty());
        std::fs::write(&second, "after").expect("ours");
        assert!(!files.is_told_of_change(), "it may change");
        assert_eq!(files.take_written(), BTreeSet::from([other]));
        assert!(files.take_written().is_empty());
        files.unfollow(other);
        std::fs::write(&second, "again").expect("ours");
        std::fs::OpenOptions::new()
            .append(true)
            .open(&first)
            .and_then(|mut file| file.write_all(b"more"))
            .expect("ours");
        assert!(!files.is_told_of_change());
        assert_eq!(files.take_written(), BTreeSet::from([one]));
        std::fs::remove_file(&first).expect("ours");
        std::fs::remove_file(&second).expect("ours");
    }

    #[test]
    fn a_file_may_be_watched_and_followed() {
        let path = path("both");
        std::fs::write(&path, "before").expect("a temporary file");
        let mut files = WatchedFiles::default();
        files.add(&path).expect("ours");
        let watch = files.follow(&path).expect("it may be read");
        std::fs::write(&path, "after").expect("ours");
        assert!(files.is_told_of_change(), "it must not change");
        assert_eq!(files.take_written(), BTreeSet::from([watch]));
        files.unfollow(watch);
        files.changed = false;
        std::fs::write(&path, "again").expect("ours");
        assert!(files.is_told_of_change(), "it is watched as before");
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn so_many_files_are_followed_and_no_more() {
        let path = path("limit");
        std::fs::write(&path, "before").expect("a temporary file");
        let mut files = WatchedFiles::default();
        files.begin_following();
        let watch = files.follow(&path).expect("it may be read");
        files.unfollow(watch);
        let directory = std::env::temp_dir().join(format!("whim-followed-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let name = |number: usize| directory.join(number.to_string());
        let mut followed = 0;
        for number in 0..=FOLLOWED_MAX {
            std::fs::write(name(number), "").expect("a temporary file");
            followed += usize::from(files.follow(&name(number)).is_some());
        }
        // The user's own limit may be lower.
        assert!(followed > 0 && followed <= FOLLOWED_MAX);
        assert_eq!(files.follow(&name(FOLLOWED_MAX)), None);
        let again = files.follow(&name(0)).expect("it is followed already");
        files.unfollow(again);
        assert!(files.follow(&name(FOLLOWED_MAX)).is_some(), "there is room");
        std::fs::remove_dir_all(&directory).expect("ours");
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn without_notices_files_are_looked_at_more_often() {
        let path = path("look");
        std::fs::write(&path, "before").expect("a temporary file");
        let mut files = WatchedFiles::default();
        assert_eq!(files.look_every(), Duration::MAX);
        files.add(&path).expect("ours");
        assert_eq!(files.look_every(), LOOK_EVERY);
        files.notices = None;
        files.files[0].watch = None;
        assert_eq!(files.look_every(), LOOK_EVERY_WITHOUT_NOTICES);
        std::fs::write(&path, "longer than before").expect("ours");
        assert!(!files.is_told_of_change() && files.is_changed());
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
