//! Frozen control groups: the freezer of version 1 and `cgroup.freeze` of version 2, as
//! `docker pause`, `systemctl freeze` and batch systems use them.
//!
//! Whether a process stands still is asked of the groups, not of the process: version 2 shows a
//! frozen process as sleeping, and `cgroup.events` says `frozen` only when all of a group's
//! processes are, which one of them in the midst of a disk's work puts off.

use crate::cgroup::{self, Version};
use crate::kernel_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// So many files of groups stay open, for one process; of groups further up they are opened for each look.
const OPEN_MAX: usize = 16;

/// The groups whose freeze would hold one process, as it was in them when it was last looked at.
///
/// What is looked at stays open, because the looks are on the way of a move: with eight groups, opening each file
/// took a third of a millisecond.
#[derive(Debug)]
pub struct Freezers {
    pid: i32,
    /// /proc/PID/cgroup.
    source: Option<File>,
    /// What that said then, if all of it could be looked at.
    membership: Option<Vec<u8>>,
    /// Its own group and all above it, in each hierarchy that can freeze.
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    version: Version,
    directory: PathBuf,
    /// Says 1 if the group is frozen.
    freeze: Option<File>,
}

impl Group {
    fn is_frozen(&self) -> io::Result<bool> {
        let Some(freeze) = &self.freeze else {
            let path = self.directory.join(file_of(self.version));
            return Ok(cgroup::number(&path) == Some(1));
        };
        let mut digit = [0];
        freeze.read_exact_at(&mut digit, 0)?;
        Ok(digit == *b"1")
    }
}

impl Freezers {
    #[must_use]
    pub fn of(pid: i32) -> Self {
        Self {
            pid,
            source: None,
            membership: None,
            groups: Vec::new(),
        }
    }

    /// The same behind a first look, so that what the looks need is open from now on.
    #[must_use]
    pub fn looked_at(pid: i32) -> Self {
        let mut freezers = Self::of(pid);
        let _ = freezers.frozen();
        freezers
    }

    /// The directory of the group whose freeze holds the process now, in whichever group it is by
    /// now; none as well if that cannot be seen from here.
    #[must_use]
    pub fn frozen(&mut self) -> Option<PathBuf> {
        if self.source.is_none() {
            self.source = File::open(format!("/proc/{}/cgroup", self.pid)).ok();
        }
        let now = self.source.as_ref().map(kernel_file::read_again);
        let now = now.and_then(Result::ok).unwrap_or_default();
        if self.membership.as_ref() == Some(&now)
            && let Ok(frozen) = self.first_frozen()
        {
            return frozen;
        }
        // It is in other groups, or one was removed: another one may have its name by now.
        let (groups, whole) = groups_of(self.pid);
        self.groups = groups;
        self.membership = whole.then_some(now);
        self.first_frozen().unwrap_or_else(|_| {
            self.membership = None;
            None
        })
    }

    /// # Errors
    /// A group was removed.
    fn first_frozen(&self) -> io::Result<Option<PathBuf>> {
        for group in &self.groups {
            if group.is_frozen()? {
                return Ok(Some(group.directory.clone()));
            }
        }
        Ok(None)
    }
}

/// The group whose freeze holds `pid` now.
#[must_use]
pub fn frozen_group_of(pid: i32) -> Option<PathBuf> {
    Freezers::of(pid).frozen()
}

/// What to tell of a process that this group's freeze holds.
#[must_use]
pub fn sentence(group: &Path) -> String {
    let group = group.display();
    format!(
        "It stands still, because its control group {group} is frozen; thaw that and it can move"
    )
}

/// The groups, and whether all of them that are kept open could be opened.
fn groups_of(pid: i32) -> (Vec<Group>, bool) {
    let memberships = cgroup::of(&pid.to_string()).into_iter();
    let freezing = memberships.filter(|one| one.version == Version::Two || one.has("freezer"));
    let (mut groups, mut whole) = (Vec::new(), true);
    for membership in freezing {
        let version = membership.version;
        let mut at = Some(membership.directory.as_path());
        // The first group of a hierarchy cannot be frozen.
        while let Some(here) = at.filter(|here| here.join(file_of(version)).exists()) {
            let open = groups.len() < OPEN_MAX;
            let freeze = open.then(|| File::open(here.join(file_of(version))).ok());
            let freeze = freeze.flatten();
            whole &= freeze.is_some() || !open;
            groups.push(Group {
                version,
                directory: here.to_path_buf(),
                freeze,
            });
            at = here.parent();
        }
    }
    (groups, whole)
}

fn file_of(version: Version) -> &'static str {
    match version {
        Version::Two => "cgroup.freeze",
        // Its own freeze; `freezer.state` would show that of a group above it, too.
        Version::One => "freezer.self_freezing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .expect("sleep")
    }

    /// Freezes a group with a process in it, and then one above it, in each hierarchy of this machine in
    /// which that is allowed.
    #[test]
    fn a_freeze_is_seen_also_of_a_group_above() {
        let mut child = sleeper();
        let pid = i32::try_from(child.id()).expect("a pid");
        let mut freezers = Freezers::of(pid);
        assert_eq!(freezers.frozen(), None);
        for membership in cgroup::of("self") {
            let (file, on, off) = match membership.version {
                Version::Two => ("cgroup.freeze", "1", "0"),
                Version::One if membership.has("freezer") => ("freezer.state", "FROZEN", "THAWED"),
                Version::One => continue,
            };
            let above = membership
                .directory
                .join(format!("whim-freezer-{}", std::process::id()));
            let inner = above.join("inner");
            if fs::create_dir_all(&inner).is_err() {
                continue;
            }
            let moved = fs::write(inner.join("cgroup.procs"), pid.to_string());
            for group in [&inner, &above] {
                if moved.is_ok() && fs::write(group.join(file), on).is_ok() {
                    assert_eq!(freezers.frozen().as_ref(), Some(group));
                    fs::write(group.join(file), off).expect("thawed");
                    assert_eq!(freezers.frozen(), None);
                }
            }
            if moved.is_ok() {
                // Removed and made again while nobody looked: nothing but its name is as before.
                fs::write(above.join("cgroup.procs"), pid.to_string()).expect("moved out");
                fs::remove_dir(&inner).expect("removed");
                fs::create_dir(&inner).expect("made again");
                fs::write(inner.join("cgroup.procs"), pid.to_string()).expect("moved in");
                if fs::write(inner.join(file), on).is_ok() {
                    assert_eq!(freezers.frozen().as_ref(), Some(&inner));
                    fs::write(inner.join(file), off).expect("thawed");
                }
            }
            let _ = fs::write(membership.directory.join("cgroup.procs"), pid.to_string());
            let _ = fs::remove_dir(&inner);
            let _ = fs::remove_dir(&above);
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert_eq!(freezers.frozen(), None);
    }
}
