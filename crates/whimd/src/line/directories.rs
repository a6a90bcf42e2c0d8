//! Directories of supervisors' sockets. They are the daemon's own: a supervisor is handed the descriptors
//! that it needs, and its user reaches nothing there by name.
//!
//! An older daemon gave them to the users of the supervisors. Directories that such a daemon has left are
//! taken over, and may hold whatever their users have put there. So they are removed without following
//! anything, one level at a time, and so many entries a second.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, fchown, getegid, geteuid, unlinkat};

use crate::settings::{SOCKET_FILE, socket_in};

/// Entries that are removed in one step, from all directories left aside together.
pub(crate) const STEP_MAX: u32 = 10_000;
/// Extension of the name of a directory that is left aside.
const ASIDE: &str = "old";

/// Makes a directory that is ours alone, and listens there.
///
/// # Errors
/// Of the file system.
pub(crate) fn listen(directory: &Path) -> io::Result<UnixListener> {
    remove(directory)?;
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    let socket = socket_in(directory);
    let listener = UnixListener::bind(&socket)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes a directory and the socket in it. If there is anything else, it is left aside under another
/// name: see [`Aside::clear`].
///
/// # Errors
/// Of the file system; it is none if the directory is gone.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let (parent, name) = split(directory)?;
    match open_below(&parent, &name) {
        Ok(opened) => {
            // If this fails, or there is something else, the removal of the directory will show it.
            let _ = unlinkat(&opened, SOCKET_FILE, UnlinkatFlags::NoRemoveDir);
        }
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTDIR | Errno::ELOOP) => {
            unlinkat(&parent, name.as_c_str(), UnlinkatFlags::NoRemoveDir)?;
            return Ok(());
        }
        Err(errno) => return Err(errno.into()),
    }
    match unlinkat(&parent, name.as_c_str(), UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => leave_aside(&parent, &name),
        Err(errno) => Err(errno.into()),
    }
}

/// As [`remove`], for a caller that has nobody to tell of an error.
pub(crate) fn discard(directory: &Path) {
    if let Err(error) = remove(directory) {
        tracing::warn!(%error, directory = %directory.display(), "a supervisor's directory stays");
    }
}

fn split(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    Ok((open_directory(parent)?, CString::new(name.as_bytes())?))
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    nix::fcntl::open(path, DIRECTORY, Mode::empty())
}

fn open_below(parent: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

fn is_kind(found: &FileStat, kind: SFlag) -> bool {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == kind
}

fn leave_aside(parent: &OwnedFd, name: &CStr) -> io::Result<()> {
    let shown = name.to_string_lossy().into_owned();
    let mut aside = name.to_bytes().to_vec();
    aside.push(b'.');
    aside.extend_from_slice(ASIDE.as_bytes());
    let aside = CString::new(aside)?;
    renameat(parent, name, parent, aside.as_c_str())?;
    tracing::warn!(
        directory = shown,
        "the directory of a supervisor holds what is not ours: it is removed bit by bit"
    );
    Ok(())
}

/// Takes over what belongs to others below this directory, which is ours: the directories that an older
/// daemon gave to supervisors. Returns the name of each, and the uid of its owner.
#[must_use]
pub(crate) fn take_over(supervisors: &Path) -> Vec<(String, u32)> {
    let Ok(parent) = open_directory(supervisors) else {
        return Vec::new();
    };
    let mut taken = Vec::new();
    for name in names(&parent).unwrap_or_default() {
        let shown = name.to_string_lossy().into_owned();
        match take_over_one(&parent, &name) {
            Ok(Some(owner)) => taken.push((shown, owner)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, directory = shown, "it was not taken over"),
        }
    }
    taken
}

fn take_over_one(parent: &OwnedFd, name: &CStr) -> io::Result<Option<u32>> {
    let opened = match open_below(parent, name) {
        Ok(opened) => opened,
        Err(Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let owner = fstat(&opened)?.st_uid;
    if owner == geteuid().as_raw() {
        return Ok(None);
    }
    own(&opened)?;
    // What is called like the socket may be anything, such as a link to that of a program that obeys root.
    let socket = fstatat(&opened, SOCKET_FILE, AtFlags::AT_SYMLINK_NOFOLLOW);
    if socket.is_ok_and(|found| !is_kind(&found, SFlag::S_IFSOCK)) {
        let _ = unlinkat(&opened, SOCKET_FILE, UnlinkatFlags::NoRemoveDir);
    }
    Ok(Some(owner))
}

/// Makes the directory ours: nobody else changes what is in it from now on.
fn own(directory: &OwnedFd) -> Result<(), Errno> {
    fchown(directory, Some(geteuid()), Some(getegid()))?;
    fchmod(directory, Mode::S_IRWXU)
}

/// Names of the entries of a directory, at most as many as are removed in one step.
fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut listed = Dir::from_fd(directory.try_clone()?)?;
    let most = usize::try_from(STEP_MAX).unwrap_or(usize::MAX);
    let entries = listed
        .iter()
        .flatten()
        .map(|entry| entry.file_name().to_owned());
    let real = entries.filter(|name| !matches!(name.to_bytes(), b"." | b".."));
    Ok(real.take(most).collect())
}

/// Directories that are left aside.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Those that cannot be removed: each is logged once.
    given_up: Mutex<BTreeSet<OsString>>,
}

impl Aside {
    /// Removes at most `step` entries of what was left aside below this directory.
    pub(crate) fn clear(&self, supervisors: &Path, step: u32) {
        let mut left = step;
        let entries = std::fs::read_dir(supervisors)
            .into_iter()
            .flatten()
            .flatten();
        for name in entries.map(|entry| entry.file_name()) {
            let path = Path::new(&name);
            if path.extension() != Some(OsStr::new(ASIDE)) || self.given_up().contains(&name) {
                continue;
            }
            if let Err(error) = clear_one(&supervisors.join(path), &mut left) {
                tracing::warn!(%error, directory = %path.display(), "it is left as it is");
                self.given_up().insert(name.clone());
            }
            if left == 0 {
                return;
            }
        }
    }

    fn given_up(&self) -> MutexGuard<'_, BTreeSet<OsString>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clear_one(directory: &Path, left: &mut u32) -> io::Result<()> {
    let (parent, name) = split(directory)?;
    let top = open_below(&parent, &name)?;
    own(&top)?;
    loop {
        let inside = names(&top)?;
        if inside.is_empty() {
            return Ok(unlinkat(
                &parent,
                name.as_c_str(),
                UnlinkatFlags::RemoveDir,
            )?);
        }
        for entry in inside {
            if *left == 0 {
                return Ok(());
            }
            remove_entry(&top, &entry, left)?;
        }
    }
}

/// Removes an entry of `top`. If it is a directory in which there are others, these become entries of
/// `top`. So, however deep a tree is, no more than two of its directories are open, and nothing here calls
/// itself.
fn remove_entry(top: &OwnedFd, name: &CStr, left: &mut u32) -> io::Result<()> {
    if remove_file(top, name, left)? {
        return Ok(());
    }
    match unlinkat(top, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let fresh = || CString::new(format!("raised-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let opened = open_below(top, name)?;
    // We do not go into what is mounted there.
    if fstat(&opened)?.st_dev != fstat(top)?.st_dev {
        return Err(Errno::EXDEV.into());
    }
    own(&opened)?;
    for inside in names(&opened)? {
        if *left == 0 {
            break;
        }
        if !remove_file(&opened, &inside, left)? {
            renameat(&opened, inside.as_c_str(), top, fresh()?.as_c_str())?;
        }
    }
    Ok(())
}

/// Removes an entry that is no directory; false if it is one.
fn remove_file(directory: &OwnedFd, name: &CStr, left: &mut u32) -> io::Result<bool> {
    *left = left.saturating_sub(1);
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::EISDIR | Errno::EPERM) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_directory_is_made_with_its_socket_and_removed() {
        let room = tempfile::tempdir().expect("directory");
        let own = room.path().join("j.home");
        let listener = listen(&own).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&own), mode(&socket_in(&own))), (0o700, 0o600));
        UnixStream::connect(socket_in(&own)).expect("it listens");
        drop(listener);
        let again = listen(&own).expect("what is left of another one is no hindrance");
        remove(&own).expect("removed");
        assert!(!own.exists());
        remove(&own).expect("and that is no error");
        drop(again);
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        let room = tempfile::tempdir().expect("directory");
        let other = room.path().join("other");
        fs::create_dir(&other).expect("made");
        fs::write(other.join(SOCKET_FILE), "kept").expect("written");
        let link = room.path().join("j.home");
        std::os::unix::fs::symlink(&other, &link).expect("link");
        remove(&link).expect("the link is removed");
        assert!(!link.exists() && other.join(SOCKET_FILE).exists());
    }

    /// Enough levels to crash a daemon that calls itself for each.
    const LEVELS: u32 = 20_000;

    #[test]
    fn a_deep_tree_is_removed_bit_by_bit() {
        // In memory, as /run is: on a disk it takes its time.
        let room = tempfile::tempdir_in("/dev/shm").expect("directory");
        let own = room.path().join("j.home");
        fs::create_dir(&own).expect("made");
        let kept = room.path().join("kept");
        fs::write(&kept, "").expect("written");
        let mut at = open_directory(&own).expect("opened");
        std::os::unix::fs::symlink(room.path(), own.join("link")).expect("link");
        for _ in 0..LEVELS {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).expect("made");
            nix::unistd::symlinkat("/", &at, "up").expect("link");
            at = open_below(&at, c"d").expect("opened");
        }
        drop(at);
        remove(&own).expect("left aside");
        assert!(!own.exists(), "its place is free");
        let aside = Aside::default();
        let mut steps = 0;
        let old = room.path().join("j.home.old");
        while old.exists() {
            aside.clear(room.path(), 1000);
            steps += 1;
            assert!(steps < 1000, "it comes to an end");
        }
        assert!(steps > 10, "not in one go: {steps}");
        assert!(kept.exists(), "nothing else is touched");
    }

    #[test]
    fn what_belongs_to_others_is_taken_over() {
        if !geteuid().is_root() {
            return;
        }
        let room = tempfile::tempdir().expect("directory");
        let theirs = room.path().join("j.home");
        fs::create_dir(&theirs).expect("made");
        std::os::unix::fs::symlink("/run/other", theirs.join(SOCKET_FILE)).expect("link");
        std::os::unix::fs::chown(&theirs, Some(4711), Some(4711)).expect("chown");
        assert_eq!(take_over(room.path()), [("j.home".to_owned(), 4711)]);
        assert_eq!(take_over(room.path()), [], "once");
        assert!(!theirs.join(SOCKET_FILE).is_symlink());
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&theirs).expect("there"));
        assert_eq!(owner, 0);
    }
}
