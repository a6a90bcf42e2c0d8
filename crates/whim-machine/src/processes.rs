//! What /proc says of a process, and who may move it.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use thiserror::Error;

use whim_monitor::plain;
use whim_monitor::rows::float;

/// Ticks of /proc/PID/stat per second; the kernel's ABI fixes USER_HZ at 100.
pub const TICKS_PER_SECOND: u64 = 100;
const PAGE_BYTES: u64 = 4096;
/// The most bytes read of a command line.
const COMMAND_MAX: u64 = 4096;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProcessError {
    #[error("There is no process {0} here (or it has ended)")]
    Gone(i32),
    #[error(
        "Process {0} cannot be looked at now: the daemon has no descriptors left; raise its limit of open files"
    )]
    NoDescriptors(i32),
    #[error("{0} is no process id")]
    NoPid(i32),
    #[error(
        "Process {pid} belongs to {owner}, not to you: only its owner, root or a member of whim-admin may move it"
    )]
    NotYours { pid: i32, owner: String },
    #[error(
        "Process {0} has got other rights meanwhile (it executes a setuid program, or has changed its user)"
    )]
    Changed(i32),
    #[error("Process {pid} {why}: only root or a member of whim-admin may move it")]
    Protected { pid: i32, why: &'static str },
}

impl ProcessError {
    /// What it means that this process could not be opened or read.
    pub(crate) fn by(pid: i32, errno: Errno) -> Self {
        match errno {
            Errno::EMFILE | Errno::ENFILE => Self::NoDescriptors(pid),
            _ => Self::Gone(pid),
        }
    }

    pub(crate) fn by_io(pid: i32, error: &io::Error) -> Self {
        Self::by(pid, Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }
}

/// Fields of /proc/PID/stat that we use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub name: String,
    pub state: char,
    pub parent: i32,
    pub group: i32,
    /// Device number of its terminal; 0: it has none.
    pub terminal: i32,
    /// The foreground process group of that terminal.
    pub foreground: i32,
    /// Page faults of children that have ended and have been waited for.
    pub reaped_faults: u64,
    /// utime + stime, in ticks.
    pub cpu_ticks: u64,
    pub threads: u32,
    /// Field 22, in ticks since boot.
    pub start_time: u64,
    pub resident_bytes: u64,
    /// Where the code of its program begins and ends; equal for who may not know.
    pub code: (u64, u64),
}

impl Stat {
    /// Whether keys that are typed at its terminal are for it.
    #[must_use]
    pub fn is_foreground(&self) -> bool {
        self.terminal != 0 && self.foreground == self.group
    }

    /// Seconds since it began, on a machine that was booted so many seconds ago.
    #[must_use]
    pub fn age(&self, uptime: f64) -> f64 {
        let began = float(self.start_time) / float(TICKS_PER_SECOND);
        (uptime - began).max(0.0)
    }
}

/// Seconds since this machine was booted, if it tells.
#[must_use]
pub fn uptime() -> Option<f64> {
    let text = short("/proc/uptime")?;
    text.split_whitespace().next()?.parse().ok()
}

/// Parses the content of /proc/PID/stat; the name may hold spaces and parentheses.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let (pid, name) = before.split_once(" (")?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        name: name.to_string(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        terminal: fields.get(4)?.parse().ok()?,
        foreground: fields.get(5)?.parse().ok()?,
        reaped_faults: number(8)?,
        cpu_ticks: number(11)?.saturating_add(number(12)?),
        threads: u32::try_from(number(17)?).ok()?,
        start_time: number(19)?,
        resident_bytes: number(21)?.saturating_mul(PAGE_BYTES),
        code: (number(23)?, number(24)?),
    })
}

/// Reads /proc/PID/stat.
///
/// # Errors
/// [`ProcessError::Gone`]; a zombie is gone too.
pub fn stat(pid: i32) -> Result<Stat, ProcessError> {
    if pid <= 0 {
        return Err(ProcessError::NoPid(pid));
    }
    let text = short(format!("/proc/{pid}/stat")).ok_or(ProcessError::Gone(pid))?;
    living(&text, pid)
}

/// Whether a thread of the process waits for what no signal interrupts: a disk, as a rule.
#[must_use]
pub fn waits_for_disk(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let text = short(thread.path().join("stat"));
        let stat = text.as_deref().and_then(parse_stat);
        stat.is_some_and(|stat| stat.state == 'D')
    })
}

/// The stat of a process, unless it has ended.
pub fn living(text: &str, pid: i32) -> Result<Stat, ProcessError> {
    let stat = parse_stat(text).ok_or(ProcessError::Gone(pid))?;
    // A first thread that has ended waits like this for the others, if there are any.
    if stat.state == 'X' || stat.state == 'Z' && stat.threads <= 1 {
        Err(ProcessError::Gone(pid))
    } else {
        Ok(stat)
    }
}

/// Whether this process lives, and its pid does not belong to another one by now.
#[must_use]
pub fn lives(pid: i32, start_time: u64) -> bool {
    stat(pid).is_ok_and(|stat| stat.start_time == start_time)
}

/// The text of a kernel file that is shorter than a page. The standard library would ask such a file for its
/// size, which is 0, and then four times for more; these files are read hundreds of times a second.
#[must_use]
pub fn short(path: impl AsRef<Path>) -> Option<String> {
    let mut file = fs::File::open(path).ok()?;
    let mut bytes = [0; 4096];
    let count = file.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..count)?).into_owned())
}

/// The threads of a process; none, if it is gone.
#[must_use]
pub fn threads(pid: i32) -> Vec<i32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// The process of a thread, which its `stat` does not name.
#[must_use]
pub fn of_thread(tid: i32) -> Option<i32> {
    let status = short(format!("/proc/{tid}/status"))?;
    let mut lines = status.lines();
    let number = lines.find_map(|line| line.strip_prefix("Tgid:"))?;
    number.trim().parse().ok()
}

/// The names in a directory of /proc that are numbers.
fn numbers_in<C: FromIterator<i32>>(directory: &str) -> C {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The numbers of all processes, including zombies.
#[must_use]
pub fn pids() -> HashSet<i32> {
    numbers_in("/proc")
}

/// All processes, by pid (threads and zombies are left out).
#[must_use]
pub fn all() -> HashMap<i32, Stat> {
    let pids = pids().into_iter();
    pids.filter_map(|pid| Some((pid, stat(pid).ok()?)))
        .collect()
}

/// Waits for the holder of the lock of its address space: see `line/probes.rs` of whimd.
///
/// Command line with blanks between the words, at most 4,096 bytes; the name in brackets for a
/// process without one.
#[must_use]
pub fn command(pid: i32) -> String {
    let mut bytes = Vec::new();
    // The process decides where its command line ends, which may be anywhere, so no more is read than is shown.
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/cmdline")) {
        let _ = file.take(COMMAND_MAX).read_to_end(&mut bytes);
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return bracketed(pid);
    }
    plain::text(&String::from_utf8_lossy(&bytes))
}

/// An environment is read up to this many bytes. The kernel lets no program begin with a longer one, whatever its limit of
/// the stack (three quarters of `_STK_LIM`, fs/exec.c).
pub const ENVIRONMENT_MAX: u64 = 6 << 20;

/// The environment of a process, from its beginning on: words that end with a zero byte. As [`command`] it waits for a
/// lock; `None` if it cannot be read.
#[must_use]
pub fn environment(pid: i32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The name of a process without a command line, in brackets; nothing if it is gone.
#[must_use]
pub fn bracketed(pid: i32) -> String {
    let bracketed = |stat: Stat| format!("[{}]", plain::text(&stat.name));
    stat(pid).map_or_else(|_| String::new(), bracketed)
}

/// The program's name from a command line.
#[must_use]
pub fn program(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default()
}

/// Credentials of a process, as /proc/PID/status has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved.
    pub uids: [u32; 3],
    pub gids: [u32; 3],
    pub groups: Vec<u32>,
    pub permitted_capabilities: u64,
    pub tracer: i32,
    pub dumpable: bool,
}

/// Reads the credentials.
///
/// # Errors
/// [`ProcessError::Gone`].
pub fn credentials(pid: i32) -> Result<Credentials, ProcessError> {
    let path = format!("/proc/{pid}/status");
    // The file also holds the process's name, which need not be UTF-8.
    let unread = |error| ProcessError::by_io(pid, &error);
    let text = fs::read(&path).map_err(unread)?;
    let owner = fs::metadata(&path).map_err(unread)?.uid();
    parse_status(&String::from_utf8_lossy(&text), owner).ok_or(ProcessError::Gone(pid))
}

impl Credentials {
    #[must_use]
    pub fn ids(&self) -> Ids {
        Ids {
            uids: self.uids,
            gids: self.gids,
        }
    }
}

/// Real, effective and saved ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    pub uids: [u32; 3],
    pub gids: [u32; 3],
}

pub fn parse_status(text: &str, owner: u32) -> Option<Credentials> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let three = |name: &str| -> Option<[u32; 3]> {
        let mut numbers = field(name)?.split_whitespace().map(str::parse::<u32>);
        Some([
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        ])
    };
    let uids = three("Uid:")?;
    Some(Credentials {
        uids,
        gids: three("Gid:")?,
        groups: field("Groups:")?
            .split_whitespace()
            .filter_map(|g| g.parse().ok())
            .collect(),
        permitted_capabilities: u64::from_str_radix(field("CapPrm:")?.trim(), 16).ok()?,
        tracer: field("TracerPid:")?.trim().parse().ok()?,
        // The files of a process that is not dumpable belong to root. If the effective user of a process is
        // root, this tells nothing; but it need not, since only root may move it.
        dumpable: owner == uids[1],
    })
}

/// The user who asks, and the process by which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
    /// root, or a member of whim-admin.
    pub admin: bool,
}

impl Caller {
    /// Whether the caller may see the arguments of a process of this user: they may hold secrets.
    #[must_use]
    pub fn may_see(&self, uid: u32) -> bool {
        self.admin || self.uid == uid
    }

    /// The rule of PTRACE_MODE_ATTACH_REALCREDS, which we apply ourselves since the daemon has more rights than
    /// the caller: all three uids and gids are equal, the process is dumpable, and it has no capabilities that
    /// the caller lacks.
    ///
    /// # Errors
    /// [`ProcessError::NotYours`], [`ProcessError::Protected`].
    pub fn may_move(&self, pid: i32, target: &Credentials) -> Result<(), ProcessError> {
        if self.admin {
            return Ok(());
        }
        if target.uids != [self.uid; 3] {
            let owner = target.uids.iter().find(|uid| **uid != self.uid).copied();
            let owner = user_name(owner.unwrap_or(target.uids[0]));
            return Err(ProcessError::NotYours { pid, owner });
        }
        if target.gids != [self.gid; 3] {
            return Err(ProcessError::Protected {
                pid,
                why: "runs with another group than yours",
            });
        }
        if target.permitted_capabilities != 0 {
            return Err(ProcessError::Protected {
                pid,
                why: "holds capabilities",
            });
        }
        if !target.dumpable {
            return Err(ProcessError::Protected {
                pid,
                why: "has forbidden others to look at it",
            });
        }
        Ok(())
    }
}

/// Name of a user, or `uid N`.
#[must_use]
pub fn user_name(uid: u32) -> String {
    match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let mut fields = vec!["S", "7"];
        fields.extend(["0"; 9]);
        fields.extend([
            "30", "12", "0", "0", "20", "0", "3", "0", "999", "1000", "25", "0", "4096", "8192",
        ]);
        let text = format!("42 (a ) (b) {}", fields.join(" "));
        let text = text.replacen("(b) ", "(b)) ", 1);
        let stat = parse_stat(&text).expect("parsed");
        assert_eq!(
            (stat.pid, stat.parent, stat.name.as_str()),
            (42, 7, "a ) (b)")
        );
        assert_eq!(
            (stat.cpu_ticks, stat.threads, stat.start_time),
            (42, 3, 999)
        );
        assert_eq!((stat.resident_bytes, stat.code), (25 * 4096, (4096, 8192)));
    }

    #[test]
    fn this_process_is_described() {
        let pid = i32::try_from(std::process::id()).expect("pid");
        let stat = stat(pid).expect("there");
        assert!(stat.start_time > 0 && stat.threads >= 1);
        let credentials = credentials(pid).expect("there");
        assert_eq!(credentials.uids[0], nix::unistd::getuid().as_raw());
        assert!(all().contains_key(&pid));
        assert!(!command(pid).is_empty());
    }

    fn target() -> Credentials {
        Credentials {
            uids: [1000; 3],
            gids: [1000; 3],
            groups: Vec::new(),
            permitted_capabilities: 0,
            tracer: 0,
            dumpable: true,
        }
    }

    #[test]
    fn only_the_owner_or_an_admin_may_move() {
        let owner = Caller {
            pid: 1,
            uid: 1000,
            gid: 1000,
            admin: false,
        };
        assert_eq!(owner.may_move(9, &target()), Ok(()));
        let other = Caller {
            uid: 1001,
            gid: 1001,
            ..owner.clone()
        };
        assert!(matches!(
            other.may_move(9, &target()),
            Err(ProcessError::NotYours { .. })
        ));
        let admin = Caller {
            uid: 1001,
            admin: true,
            ..owner.clone()
        };
        assert_eq!(admin.may_move(9, &target()), Ok(()));
        for protected in [
            Credentials {
                uids: [1000, 0, 0],
                ..target()
            },
            Credentials {
                gids: [1000, 5, 5],
                ..target()
            },
            Credentials {
                permitted_capabilities: 1,
                ..target()
            },
            Credentials {
                dumpable: false,
                ..target()
            },
        ] {
            assert!(owner.may_move(9, &protected).is_err(), "{protected:?}");
        }
    }
}
