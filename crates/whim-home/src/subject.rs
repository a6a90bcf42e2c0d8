//! The process that this supervisor was started for, and no other: not a later process with its number, nor
//! the same process once it has got rights that its owner does not have.
//!
//! The daemon has checked it before it started us, but a process can execute a setuid program at any moment
//! until its threads are stopped. After that it cannot, so what counts is what it is when all of them have
//! stopped, before anything in it is read or changed. Later phases need no further check. Until commit it
//! stands still. After that its own code runs at the host, and an `execve` there brings it home first: it
//! makes the call at home, untraced, with all that the file's mode gives it, and is then nobody's candidate.

use nix::errno::Errno;
use nix::unistd::{getresgid, getresuid};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use thiserror::Error;
use whim_image::freeze_observe::Status;
use whim_image::stay::start_time;
use whim_journey::job::HomeJob;
use whim_sys::namespace;
use whim_sys::pidfd::Pidfd;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum SubjectError {
    #[error(
        "The home supervisor cannot look at process {0}: raise whimd's limit of open files (LimitNOFILE)"
    )]
    Unseen(i32),
    #[error("Process {0} has ended")]
    Gone(i32),
    #[error(
        "Process {0} has got rights meanwhile that whoever moves it does not have; it goes on here"
    )]
    Changed(i32),
    #[error("Process {0} runs as root now, which this node does not let move (allow-root)")]
    Root(i32),
    #[error("Process {0} does not let itself be traced any more; it goes on here")]
    Untraceable(i32),
    #[error("The threads of process {0} have different {1}; it goes on here")]
    Split(i32, &'static str),
}

/// What a process is, as far as rights go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved.
    uids: Vec<u32>,
    gids: Vec<u32>,
    permitted: u64,
    /// The owner of its files in /proc, which is root if it may not be dumped.
    owner: u32,
}

impl Rights {
    fn of(pid: i32) -> Option<Self> {
        let path = format!("/proc/{pid}/status");
        let owner = fs::metadata(&path).ok()?.uid();
        // The process's name stands there too, and need not be UTF-8.
        let text = fs::read(&path).ok()?;
        Self::parse(&String::from_utf8_lossy(&text), owner)
    }

    fn parse(text: &str, owner: u32) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let three = |name: &str| -> Option<Vec<u32>> {
            let numbers = field(name)?.split_whitespace().take(3);
            let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
            (numbers.len() == 3).then_some(numbers)
        };
        Some(Self {
            uids: three("Uid:")?,
            gids: three("Gid:")?,
            permitted: u64::from_str_radix(field("CapPrm:")?.trim(), 16).ok()?,
            owner,
        })
    }
}

/// Whether a process that began at `told`, as the daemon sees it, is the one that began at `seen`, as seen
/// from a time namespace that is ahead by `ahead_ns`.
fn is_same(told: u64, seen: u64, ahead_ns: i64) -> bool {
    const TICK_NS: i128 = 10_000_000;
    let first = i128::from(told) * TICK_NS + i128::from(ahead_ns);
    let last = first + TICK_NS - 1;
    (first.div_euclid(TICK_NS)..=last.div_euclid(TICK_NS)).contains(&i128::from(seen))
}

/// The process of this supervisor's job.
#[derive(Debug)]
pub(crate) struct Subject {
    pid: i32,
    start_time: u64,
    /// How far our boot clock is ahead of the daemon's: we live in the process's time namespace.
    ahead_ns: i64,
    allow_root: bool,
    pidfd: Pidfd,
    /// Capabilities that it had when the daemon looked at it last.
    permitted: u64,
    /// Groups that it had when this supervisor began.
    gids: Vec<u32>,
}

impl Subject {
    /// Takes hold of the process that the job names.
    ///
    /// # Errors
    /// It has ended, or is another one already.
    pub(crate) fn of(job: &HomeJob) -> Result<Self, SubjectError> {
        let gone = || SubjectError::Gone(job.pid);
        let subject = Self {
            pid: job.pid,
            start_time: job.start_time,
            ahead_ns: namespace::boot_offset_ns().saturating_sub(job.boot_offset_ns),
            allow_root: job.allow_root,
            pidfd: Pidfd::open(job.pid).map_err(|errno| match errno {
                Errno::ESRCH => gone(),
                _ => SubjectError::Unseen(job.pid),
            })?,
            permitted: job.permitted,
            gids: Rights::of(job.pid).map_or_else(Vec::new, |rights| rights.gids),
        };
        subject.check()?;
        Ok(subject)
    }

    /// Whether it is still that process, and whether we may have it. The answer counts only when all of its
    /// threads have stopped: before, it is about a moment that is over.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub(crate) fn check(&self) -> Result<(), SubjectError> {
        let pid = self.pid;
        let (began, now) = (start_time(pid), Rights::of(pid));
        // What was read under its number is about this process only if it has not ended.
        let lives = self.pidfd.has_ended() == Ok(false);
        // If a living process cannot be read, we lack what reading takes (descriptors).
        if lives && (began.is_none() || now.is_none()) {
            return Err(SubjectError::Unseen(pid));
        }
        let same = |began| is_same(self.start_time, began, self.ahead_ns);
        let lives = lives && began.is_some_and(same);
        let now = now.filter(|_| lives).ok_or(SubjectError::Gone(pid))?;
        self.judge(&now, ours().map_err(|_| SubjectError::Changed(pid))?)?;
        compare_threads(pid)
    }

    /// Whether its first thread still has the rights that we may have, which is all that executing a program
    /// changes. Takes a few microseconds, however many threads there are.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(crate) fn check_rights(&self) -> Result<(), SubjectError> {
        let now = Rights::of(self.pid).ok_or(SubjectError::Gone(self.pid))?;
        self.judge(&now, ours().map_err(|_| SubjectError::Changed(self.pid))?)
    }

    /// `ours`: all uids and gids of this supervisor, which are those that the process had when it was started.
    fn judge(&self, now: &Rights, ours: ([u32; 3], [u32; 3])) -> Result<(), SubjectError> {
        let pid = self.pid;
        let (uids, gids) = ours;
        if uids == [0; 3] {
            // Root's supervisor keeps the daemon's groups.
            let root = now.uids == uids && now.gids == self.gids;
            return match root {
                true if self.allow_root => Ok(()),
                true => Err(SubjectError::Root(pid)),
                false => Err(SubjectError::Changed(pid)),
            };
        }
        let more = now.permitted & !self.permitted;
        if now.uids != uids || now.gids != gids || more != 0 {
            return Err(SubjectError::Changed(pid));
        }
        if now.owner != uids[1] {
            return Err(SubjectError::Untraceable(pid));
        }
        Ok(())
    }

    /// Ends the process by SIGKILL, and never another process.
    pub(crate) fn end(&self) {
        let _ = self.pidfd.signal(libc::SIGKILL);
    }
}

/// Checks that all threads of a process have the rights of the first one, whose rights were judged: whatever
/// has the process's memory can have any of them do anything.
fn compare_threads(pid: i32) -> Result<(), SubjectError> {
    let unseen = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => SubjectError::Gone(pid),
        // If a living process cannot be read, we lack what reading takes (descriptors).
        _ => SubjectError::Unseen(pid),
    };
    let first = Status::read(pid, pid).map_err(unseen)?;
    for entry in fs::read_dir(format!("/proc/{pid}/task")).map_err(unseen)? {
        let name = entry.map_err(unseen)?.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let other = match Status::read(pid, tid).map_err(unseen) {
            Ok(other) => other,
            // Only this thread has ended, so nothing is to be feared of it any more.
            Err(SubjectError::Gone(_)) => continue,
            Err(error) => return Err(error),
        };
        // Trap: rights-of-one-thread
        if let Some(what) = first.differs_in(&other) {
            return Err(SubjectError::Split(pid, what));
        }
    }
    Ok(())
}

fn ours() -> Result<([u32; 3], [u32; 3]), Errno> {
    let (uids, gids) = (getresuid()?, getresgid()?);
    Ok((
        [uids.real, uids.effective, uids.saved].map(nix::unistd::Uid::as_raw),
        [gids.real, gids.effective, gids.saved].map(nix::unistd::Gid::as_raw),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    fn job(pid: i32) -> HomeJob {
        HomeJob {
            journey: "j".into(),
            node: "n1".into(),
            pid,
            start_time: start_time(pid).expect("it lives"),
            listener: 3,
            journal: 4,
            credentials: whim_journey::job::CredentialsJson(serde_json::Value::Null),
            lease_ms: None,
            allow_root: true,
            requested_by: 1000,
            permitted: u64::MAX,
            boot_offset_ns: namespace::boot_offset_ns(),
            crash_at: None,
        }
    }

    #[test]
    fn a_process_is_known_by_its_beginning_and_its_end() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        let pid = child.id().cast_signed();
        let named = job(pid);
        let subject = Subject::of(&named).expect("it lives");
        let later = HomeJob {
            start_time: named.start_time + 1,
            ..named.clone()
        };
        let gone = SubjectError::Gone(pid);
        assert_eq!(Subject::of(&later).expect_err("another"), gone);
        child.wait().expect("its input has ended");
        assert_eq!(subject.check(), Err(gone));
        subject.end();
    }

    #[test]
    fn a_beginning_is_the_same_in_a_time_namespace() {
        assert!(is_same(7, 7, 0));
        assert!(!is_same(7, 8, 0) && !is_same(7, 6, 0));
        let day = 86_400 * 1_000_000_000;
        assert!(is_same(7, 8_640_007, day));
        assert!(!is_same(7, 8_640_008, day));
        assert!(is_same(8_640_007, 7, -day));
        // Half a tick: it began in the former or the latter half of one.
        assert!(is_same(7, 7, 5_000_000) && is_same(7, 8, 5_000_000));
        assert!(!is_same(7, 9, 5_000_000));
    }

    /// A second thread gets other rights than the first one, by calls of its own: the C library would have the
    /// first one do the same.
    const DROPPING: &str = r#"
import ctypes, os, sys, threading
call = ctypes.CDLL(None).syscall
lines = iter(sys.stdin.readline, "")
groups = os.getgroups()
def set_groups(ids):
    return call(116, len(ids), (ctypes.c_uint * len(ids))(*ids))
def keep_setuid():
    return call(126, (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)(128, 128))
def drop():
    for act in [
        lambda: 0,
        lambda: call(119, 65534, 65534, 65534),
        lambda: call(119, 0, 0, 0) or set_groups(groups + [4711]),
        lambda: set_groups(groups) or keep_setuid(),
        lambda: call(117, 65534, 65534, 65534),
    ]:
        print(act(), flush=True)
        next(lines)
other = threading.Thread(target=drop)
other.start()
other.join()
print("alone", flush=True)
next(lines)
"#;

    #[test]
    fn a_thread_with_rights_of_its_own_is_seen() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let mut child = Command::new("python3")
            .args(["-c", DROPPING])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let pid = child.id().cast_signed();
        let mut ends = child.stdin.take().zip(child.stdout.take()).expect("pipes");
        let said = &mut BufReader::new(&mut ends.1).lines();
        for (answer, expected) in [
            ("0", None),
            ("0", Some("group ids")),
            ("0", Some("supplementary groups")),
            ("0", Some("capabilities")),
            ("0", Some("user ids")),
            ("alone", None),
        ] {
            assert_eq!(said.next().expect("a line").expect("a line"), answer);
            let seen = Subject::of(&job(pid)).map(|_| ());
            let split = expected.map(|what| SubjectError::Split(pid, what));
            assert_eq!(seen.err(), split, "{expected:?}");
            ends.0.write_all(b"\n").expect("it lives");
        }
        child.wait().expect("it ended");
    }

    #[test]
    fn other_rights_are_seen() {
        let own = std::process::id().cast_signed();
        let mut subject = Subject::of(&job(own)).expect("ourselves");
        let user = ([1000; 3], [1000; 3]);
        let began = Rights {
            uids: vec![1000; 3],
            gids: vec![1000; 3],
            permitted: 0,
            owner: 1000,
        };
        (subject.permitted, subject.gids) = (0, began.gids.clone());
        let judge = |subject: &Subject, change: &dyn Fn(&mut Rights)| {
            let mut now = began.clone();
            change(&mut now);
            subject.judge(&now, user)
        };
        assert_eq!(judge(&subject, &|_| {}), Ok(()));
        let changed = Err(SubjectError::Changed(own));
        let untraceable = Err(SubjectError::Untraceable(own));
        assert_eq!(judge(&subject, &|now| now.uids = vec![1000, 0, 0]), changed);
        assert_eq!(judge(&subject, &|now| now.uids = vec![0; 3]), changed);
        assert_eq!(judge(&subject, &|now| now.gids[1] = 5), changed);
        assert_eq!(judge(&subject, &|now| now.permitted = 1 << 21), changed);
        assert_eq!(judge(&subject, &|now| now.owner = 0), untraceable);
        let root = |subject: &Subject, uids: [u32; 3]| {
            let now = Rights {
                uids: uids.to_vec(),
                ..began.clone()
            };
            subject.judge(&now, ([0; 3], [0; 3]))
        };
        assert_eq!(root(&subject, [0; 3]), Ok(()));
        assert_eq!(root(&subject, [0, 1000, 0]), changed);
        subject.allow_root = false;
        assert_eq!(root(&subject, [0; 3]), Err(SubjectError::Root(own)));
    }
}
