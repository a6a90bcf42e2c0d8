//! Whether other users of this machine can make a path mean something else: by a directory above it that they
//! may write to, a link of theirs on the way, or a file of theirs at its end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use thiserror::Error;

/// As many links as the kernel follows.
const LINKS_MAX: u32 = 40;
const GROUP_MAY_WRITE: u32 = 0o020;
const OTHERS_MAY_WRITE: u32 = 0o002;
/// In a sticky directory, only owners can remove and rename what is theirs.
const STICKY: u32 = 0o1000;

#[derive(Debug, Error)]
pub enum OwnedError {
    #[error(
        "{path} belongs to another user (uid {uid}), who could put something else in its place"
    )]
    Foreign { path: PathBuf, uid: u32 },
    #[error(
        "{path} can be changed by other users (mode {mode:o}): take that right from them with chmod go-w"
    )]
    Writable { path: PathBuf, mode: u32 },
    #[error("{path} leads through more than {LINKS_MAX} symbolic links")]
    Links { path: PathBuf },
    #[error("{path} cannot be looked at ({source})")]
    Unseen {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The user on whose behalf a path is checked.
#[derive(Clone, Debug)]
struct Asker {
    uid: u32,
    /// Stands for root's uid where root has none.
    unmapped: Option<u32>,
    /// Groups that have no other members.
    groups: Vec<u32>,
}

impl Asker {
    /// This process.
    fn here() -> Self {
        let uid = nix::unistd::geteuid();
        let mut groups = vec![0];
        let gid = nix::unistd::getegid();
        // A group of this user alone, as adduser makes them.
        let user = nix::unistd::User::from_uid(uid).ok().flatten();
        let group = nix::unistd::Group::from_gid(gid).ok().flatten();
        if let (Some(user), Some(group)) = (user, group)
            && user.name == group.name
            && group.mem.iter().all(|member| *member == user.name)
        {
            groups.push(gid.as_raw());
        }
        Self {
            uid: uid.as_raw(),
            unmapped: unmapped(),
            groups,
        }
    }

    fn trusts(&self, about: &Metadata) -> bool {
        let uid = about.uid();
        uid == 0 || uid == self.uid || Some(uid) == self.unmapped
    }

    fn is_closed(&self, about: &Metadata) -> bool {
        let mode = about.mode();
        let kept_apart = about.is_dir() && mode & STICKY != 0;
        let by_group = mode & GROUP_MAY_WRITE != 0 && !self.groups.contains(&about.gid());
        kept_apart || mode & OTHERS_MAY_WRITE == 0 && !by_group
    }

    fn check(&self, path: &Path, about: &Metadata) -> Result<(), OwnedError> {
        let path = path.to_path_buf();
        if !self.trusts(about) {
            let uid = about.uid();
            return Err(OwnedError::Foreign { path, uid });
        }
        // The mode of a link means nothing.
        if !about.is_symlink() && !self.is_closed(about) {
            let mode = about.mode() & 0o7777;
            return Err(OwnedError::Writable { path, mode });
        }
        Ok(())
    }

    /// Follows the path as the kernel does. Each step is looked up in a directory where nobody else can change
    /// names, so no step can have become another thing meanwhile. What does not exist yet will be made by us.
    fn walk(&self, path: &Path) -> Result<(), OwnedError> {
        let mut left: VecDeque<OsString> = names(path);
        let mut here = PathBuf::from("/");
        let mut links = 0;
        self.examine(&here)?;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            let next = here.join(name);
            match self.examine(&next)? {
                None => return Ok(()),
                Some(about) if about.is_symlink() => {
                    links += 1;
                    if links > LINKS_MAX {
                        let path = path.to_path_buf();
                        return Err(OwnedError::Links { path });
                    }
                    let target = fs::read_link(&next).map_err(|source| unseen(&next, source))?;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    for name in names(&target).into_iter().rev() {
                        left.push_front(name);
                    }
                }
                Some(_) => here = next,
            }
        }
        Ok(())
    }

    /// What is at `path`, if anything. Fails if another user may change it.
    fn examine(&self, path: &Path) -> Result<Option<Metadata>, OwnedError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(unseen(path, source)),
            Ok(about) => self.check(path, &about).map(|()| Some(about)),
        }
    }
}

fn unseen(path: &Path, source: std::io::Error) -> OwnedError {
    let path = path.to_path_buf();
    OwnedError::Unseen { path, source }
}

fn names(path: &Path) -> VecDeque<OsString> {
    let kept = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(kept).collect()
}

/// The uid that the kernel shows for files of unknown owners, in a user namespace that does not map all uids.
/// The owner of such files cannot be told there, and the system's directories are among them.
fn unmapped() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let known: u64 = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    if known >= u64::from(u32::MAX) {
        return None;
    }
    let shown = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    shown.trim().parse().ok()
}

/// Checks that nobody but root and this user decides what `path` means. This covers its end, if it exists, and
/// all on the way to it.
///
/// # Errors
/// Says which file or directory belongs to another user, or can be changed by others.
pub(crate) fn check(path: &Path) -> Result<(), OwnedError> {
    Asker::here().walk(path)
}

/// As [`check`], without the end of the path.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_above(path: &Path) -> Result<(), OwnedError> {
    path.parent().map_or(Ok(()), check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const MALLORY: u32 = 61_009;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    #[test]
    fn what_only_we_change_is_taken() {
        let room = tempfile::tempdir().expect("directory");
        let own = room.path().join("a/b");
        fs::create_dir_all(&own).expect("made");
        symlink("a/b", room.path().join("link")).expect("link");
        symlink("../a/../link", own.join("back")).expect("link");
        check(&own).expect("ours");
        check(&room.path().join("link/back/not/there/yet")).expect("ours by links");
    }

    #[test]
    fn what_others_may_write_is_not_taken() {
        let room = tempfile::tempdir().expect("directory");
        let open = room.path().join("open");
        let below = open.join("below");
        fs::create_dir_all(&below).expect("made");
        set_mode(&open, 0o777);
        let refused = check(&below);
        assert!(
            matches!(&refused, Err(OwnedError::Writable { path, mode: 0o777 }) if *path == open),
            "{refused:?}"
        );
        // As /tmp is.
        set_mode(&open, 0o1777);
        check(&below).expect("others cannot rename it");
        let file = room.path().join("file");
        fs::write(&file, "").expect("written");
        set_mode(&file, 0o1666);
        let refused = check(&file);
        assert!(
            matches!(refused, Err(OwnedError::Writable { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn links_are_followed_up_to_their_limit() {
        let room = tempfile::tempdir().expect("directory");
        let link = |number: u32| room.path().join(number.to_string());
        fs::create_dir(link(0)).expect("made");
        for number in 1..=LINKS_MAX + 1 {
            symlink(link(number - 1), link(number)).expect("link");
        }
        check(&link(LINKS_MAX)).expect("as many as the kernel follows");
        assert!(fs::metadata(link(LINKS_MAX)).is_ok());
        let refused = check(&link(LINKS_MAX + 1));
        assert!(
            matches!(refused, Err(OwnedError::Links { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn who_may_write_is_told_by_owner_and_group() {
        let asker = |uid, groups: &[u32]| Asker {
            uid,
            unmapped: None,
            groups: groups.to_vec(),
        };
        let room = tempfile::tempdir().expect("directory");
        set_mode(room.path(), 0o775);
        let about = fs::metadata(room.path()).expect("there");
        let (uid, gid) = (about.uid(), about.gid());
        assert!(asker(uid, &[gid]).check(room.path(), &about).is_ok());
        let refused = asker(uid, &[]).check(room.path(), &about);
        assert!(matches!(refused, Err(OwnedError::Writable { .. })));
        if uid == 0 {
            std::os::unix::fs::chown(room.path(), Some(MALLORY), None).expect("given away");
            let about = fs::metadata(room.path()).expect("there");
            let refused = asker(0, &[gid]).check(room.path(), &about);
            assert!(matches!(
                refused,
                Err(OwnedError::Foreign { uid: MALLORY, .. })
            ));
            assert!(asker(MALLORY, &[gid]).check(room.path(), &about).is_ok());
        }
    }
}
