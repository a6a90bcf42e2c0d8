//! The two numbers of a thread.
//!
//! Whoever lives in a pid namespace of its own has one number in it, and another one in each namespace
//! around it. The program, its image and all messages mean the innermost one, as `gettid` returns it. Our
//! kernel calls (tracing, waiting, files of `/proc`) mean the one in this supervisor's namespace, which is
//! [`Tid`](whim_sys::ptrace::Tid). The two are equal for programs without a namespace of their own, so a
//! mix-up would go unnoticed until one comes along.

use std::{fs, io};
use whim_image::freeze_observe::Status;
use whim_model::{ProcessImage, ThreadImage};

/// The number of a thread as its program sees it: in its own, innermost pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnTid(i32);

impl OwnTid {
    /// The number in a message or a call, which always is the program's own.
    #[must_use]
    pub fn named(number: i32) -> Self {
        Self(number)
    }

    #[must_use]
    pub fn of(thread: &ThreadImage) -> Self {
        Self(thread.tid)
    }

    /// The process's first thread.
    #[must_use]
    pub fn of_leader(image: &ProcessImage) -> Self {
        Self(image.pid)
    }

    /// For a message, or a call that the process makes itself.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// As an argument of a call that the process makes itself.
    #[must_use]
    pub fn argument(self) -> u64 {
        i64::from(self.0).cast_unsigned()
    }
}

/// Under which numbers a process is known, here and to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    /// In our own pid namespace.
    pub pid: i32,
    pub own_pid: OwnTid,
    /// Its real user id, as it sees it itself.
    pub uid: u32,
}

impl Ids {
    /// # Errors
    /// The process is gone.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let status = Status::read(pid, pid)?;
        let uid = status.uids.first().copied().unwrap_or_default();
        Ok(Self {
            pid,
            own_pid: OwnTid::named(status.own_id),
            uid: own_uid(pid, uid),
        })
    }
}

/// What the process takes for its user id if we see this one.
fn own_uid(pid: i32, uid: u32) -> u32 {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let pid = pid.to_string();
    match (namespace("self"), namespace(&pid)) {
        (Some(ours), Some(its)) if ours != its => {
            let map = fs::read_to_string(format!("/proc/{pid}/uid_map"));
            map.map_or(uid, |map| mapped(&map, uid))
        }
        _ => uid,
    }
}

/// The id inside of a user namespace with this map for an id in ours.
fn mapped(map: &str, uid: u32) -> u32 {
    /// What the kernel says of ids that a namespace does not know.
    const UNKNOWN: u32 = 65_534;
    let inside = |line: &str| {
        let mut words = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || words.next()?.ok();
        let (inside, outside, count) = (next()?, next()?, next()?);
        let at = uid.checked_sub(outside)?;
        (at < count).then(|| inside.checked_add(at))?
    };
    map.lines().find_map(inside).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_id_is_that_of_the_process_s_own_namespace() {
        let map = "         0       1000          1\n        10     100000      65536\n";
        for (uid, own) in [(1000, 0), (1001, 65_534), (100_003, 13), (0, 65_534)] {
            assert_eq!(mapped(map, uid), own, "{uid}");
        }
        let all = "0 0 4294967295\n";
        assert_eq!(mapped(all, 1000), 1000);
        let own = nix::unistd::getuid().as_raw();
        let pid = std::process::id().cast_signed();
        let ids = Ids::of(pid).expect("we live");
        assert_eq!((ids.pid, ids.own_pid.number(), ids.uid), (pid, pid, own));
    }
}
