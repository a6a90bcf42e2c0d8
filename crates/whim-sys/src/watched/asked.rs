//! Files of which the kernel gives no notice, although they may be watched: files of memory alone (`memfd_create`).
//! Whoever wants to know asks each of them for its time and its length.

use super::{AskedId, Version};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most files that are asked: each costs a call with each result, and a descriptor.
const ASKED_MAX: usize = 16;
/// The kernel's times go on in steps. A change so short a time ago may be followed by one at the same time.
const STEP: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct AskedFile {
    file: File,
    id: (u64, u64),
    version: Version,
    /// When it was asked, its last change was so near that there may be another one of the same time.
    may_change: bool,
}

/// All that are asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    files: BTreeMap<AskedId, AskedFile>,
    next: u32,
}

/// Whether a path of /proc leads to a file of memory alone.
pub(super) fn takes(path: &Path) -> bool {
    let name = fs::read_link(path);
    name.is_ok_and(|name| name.as_os_str().as_bytes().starts_with(b"/memfd:"))
        && statfs(path).is_ok_and(|about| about.filesystem_type() == TMPFS_MAGIC)
}

/// Whether there may be another change of the time of the last one.
fn may_change(version: &Version, now: SystemTime) -> bool {
    let (Ok(seconds), Ok(rest)) = (
        u64::try_from(version.changed.0),
        u64::try_from(version.changed.1),
    ) else {
        return false;
    };
    let last = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(rest));
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    last.saturating_add(STEP) >= now
}

impl Asked {
    /// Asks one more file from now on. None if it cannot be opened, or if there are too many.
    pub(super) fn add(&mut self, path: &Path) -> Option<AskedId> {
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path);
        let file = open.ok()?;
        let about = file.metadata().ok()?;
        let id = (about.dev(), about.ino());
        let known = self.files.iter().find(|(_, known)| known.id == id);
        if let Some((known, _)) = known {
            return Some(*known);
        }
        if self.files.len() >= ASKED_MAX {
            return None;
        }
        let number = AskedId(self.next);
        self.next = self.next.checked_add(1)?;
        let version = Version::of(&file).ok()?;
        let asked = AskedFile {
            file,
            id,
            version,
            may_change: true,
        };
        self.files.insert(number, asked);
        Some(number)
    }

    pub(super) fn remove(&mut self, id: AskedId) {
        self.files.remove(&id);
    }

    /// Those that have changed since they were asked last, or may have.
    pub(super) fn ask(&mut self, now: SystemTime) -> impl Iterator<Item = AskedId> {
        let changed = move |(id, asked): (&AskedId, &mut AskedFile)| {
            let version = Version::of(&asked.file).ok()?;
            let may_have = std::mem::replace(&mut asked.may_change, may_change(&version, now));
            let has = std::mem::replace(&mut asked.version, version) != version;
            (has || may_have).then_some(*id)
        };
        self.files.iter_mut().filter_map(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    fn memory() -> (File, PathBuf) {
        let file = memfd_create("asked", MFdFlags::empty()).expect("a file of memory");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (File::from(file), path.into())
    }

    fn found(asked: &mut Asked, now: SystemTime) -> Vec<AskedId> {
        asked.ask(now).collect()
    }

    #[test]
    fn what_has_changed_is_found_until_no_other_change_can_be_of_its_time() {
        let (file, path) = memory();
        assert!(takes(&path) && !takes(Path::new("/proc/self/exe")));
        let mut asked = Asked::default();
        let id = asked.add(&path).expect("it is open");
        assert_eq!(asked.add(&path), Some(id), "the same file");
        let later = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(found(&mut asked, later), [id], "it was just made");
        assert_eq!(found(&mut asked, later), []);
        file.set_len(8192).expect("ours");
        let now = SystemTime::now();
        assert_eq!(found(&mut asked, now), [id], "another length");
        file.write_all_at(b"other", 0).expect("ours");
        assert_eq!(found(&mut asked, later), [id], "perhaps of the same time");
        assert_eq!(found(&mut asked, later), []);
        asked.remove(id);
        file.set_len(0).expect("ours");
        assert_eq!(found(&mut asked, later), []);
    }

    #[test]
    fn so_many_files_are_asked_and_no_more() {
        let files: Vec<(File, PathBuf)> = (0..=ASKED_MAX).map(|_| memory()).collect();
        let mut asked = Asked::default();
        let ids: Vec<_> = files.iter().map(|(_, path)| asked.add(path)).collect();
        assert!(ids[..ASKED_MAX].iter().all(Option::is_some));
        assert_eq!(ids[ASKED_MAX], None);
        asked.remove(ids[0].expect("it is asked"));
        assert!(asked.add(&files[ASKED_MAX].1).is_some(), "there is room");
    }
}
