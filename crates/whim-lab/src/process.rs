//! Processes that belong to a lab: naming them safely, finding them, ending them.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use whim_sys::namespace::PidFd;

use crate::error::LabError;

/// The word that marks a helper's command line; the lab's directory follows two places after.
pub(crate) const MARK: &str = "lab-node";

/// How long a killed process may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(10);
/// SIGKILL in a set of pending signals of /proc/PID/status.
const KILL_PENDING: u64 = 1 << (Signal::SIGKILL as u64 - 1);
/// PF_EXITING among the flags of /proc/PID/stat.
const EXITING: u64 = 0x4;
/// Gap between two looks at a process that is ending and is no child of ours.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A process by number and by the time it started (clock ticks since boot), so that a number
/// given away again does not deceive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> Option<ProcessId> {
        ProcessId::of_in(Path::new("/proc"), pid)
    }

    /// The same, by another /proc than the caller's own.
    pub(crate) fn of_in(proc_directory: &Path, pid: i32) -> Option<ProcessId> {
        let stat = read_stat(proc_directory, pid)?;
        Some(ProcessId {
            pid,
            start_time: stat.start_time,
        })
    }

    /// Whether the process exists and is not a mere zombie.
    pub(crate) fn is_alive(self) -> bool {
        self.is_alive_in(Path::new("/proc"))
    }

    /// The same, by another /proc than the caller's own.
    pub(crate) fn is_alive_in(self, proc_directory: &Path) -> bool {
        read_stat(proc_directory, self.pid)
            .is_some_and(|s| s.start_time == self.start_time && !s.ended)
    }

    /// Whether the process is ending: it has been sent SIGKILL, or exits already, and is not gone.
    pub(crate) fn is_ending_in(self, proc_directory: &Path) -> bool {
        let directory = proc_directory.join(self.pid.to_string());
        let status = std::fs::read_to_string(directory.join("status")).unwrap_or_default();
        let killed = status.lines().any(|line| {
            let pending = line
                .strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"));
            pending.is_some_and(|set| {
                u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & KILL_PENDING != 0)
            })
        });
        let Some(stat) = read_stat(proc_directory, self.pid) else {
            return false;
        };
        // A zombie whose other threads are not yet gone still has its files open, and locks on them.
        let threads = std::fs::read_dir(directory.join("task")).map_or(0, Iterator::count);
        let ending = if stat.ended {
            threads > 1
        } else {
            killed || stat.exits
        };
        stat.start_time == self.start_time && ending
    }

    /// A handle on the process, if it is still there.
    pub(crate) fn open(self) -> Option<PidFd> {
        let handle = PidFd::open(self.pid).ok()?;
        // Checked after opening: from now on the handle cannot mean another process.
        self.is_alive().then_some(handle)
    }

    /// Whether the process lives and goes on. One that is ending is waited for: whoever has just
    /// killed it must not be told that it runs.
    pub(crate) fn outlives_its_signals_in(self, proc_directory: &Path) -> bool {
        let begun = Instant::now();
        while self.is_ending_in(proc_directory) && begun.elapsed() < END_LIMIT {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.is_alive_in(proc_directory)
    }

    /// SIGKILL, without waiting.
    pub(crate) fn kill(self) -> Option<PidFd> {
        let handle = self.open()?;
        let _ = handle.signal(Signal::SIGKILL);
        Some(handle)
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill_and_wait(self, what: &str) -> Result<(), LabError> {
        match self.kill() {
            Some(handle) => wait_gone(&handle, what),
            None => Ok(()),
        }
    }
}

/// Waits for the end of a process that has been sent SIGKILL.
pub(crate) fn wait_gone(handle: &PidFd, what: &str) -> Result<(), LabError> {
    if handle.wait_end(END_LIMIT)? {
        return Ok(());
    }
    Err(LabError::Survivor {
        pid: handle.pid(),
        what: what.to_owned(),
        seconds: END_LIMIT.as_secs(),
    })
}

struct Stat {
    start_time: u64,
    ended: bool,
    exits: bool,
}

fn read_stat(proc_directory: &Path, pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(proc_directory.join(pid.to_string()).join("stat")).ok()?;
    // The command's name may hold spaces and parentheses; the last ')' ends it.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    // Fields 9 and 22 of proc(5); `state` was field 3.
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let start_time = fields.nth(12)?.parse().ok()?;
    Some(Stat {
        start_time,
        exits: flags & EXITING != 0,
        ended: matches!(state, "Z" | "X" | "x"),
    })
}

/// A helper process of a lab, as its command line tells.
#[derive(Debug, Clone)]
pub(crate) struct Helper {
    pub(crate) id: ProcessId,
    pub(crate) role: String,
    pub(crate) subject: String,
}

/// All helper processes of the lab in this directory: `PROGRAM lab-node ROLE DIRECTORY SUBJECT`.
/// Finds also those that were started by a command killed before it could note them.
pub(crate) fn find_helpers(directory: &Path) -> Vec<Helper> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter_map(|pid| helper_of(pid, directory))
        .collect()
}

fn helper_of(pid: i32, directory: &Path) -> Option<Helper> {
    // Of one process all of it: known by the same start time before and after.
    let id = ProcessId::of(pid)?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|b| *b == 0).skip(1);
    if words.next()? != MARK.as_bytes() {
        return None;
    }
    let role = String::from_utf8(words.next()?.to_vec()).ok()?;
    if words.next()? != directory.as_os_str().as_encoded_bytes() {
        return None;
    }
    let subject = String::from_utf8(words.next()?.to_vec()).ok()?;
    id.is_alive().then_some(Helper { id, role, subject })
}

/// Ends all processes that `find` returns, again and again until it returns none: a process may
/// start another while it is being ended.
pub(crate) fn end_all(
    mut find: impl FnMut() -> Vec<ProcessId>,
    what: &str,
) -> Result<(), LabError> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let found = find();
        let Some(first) = found.first() else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(LabError::Survivor {
                pid: first.pid,
                what: what.to_owned(),
                seconds: END_LIMIT.as_secs(),
            });
        }
        let handles: Vec<PidFd> = found.iter().filter_map(|id| id.kill()).collect();
        for handle in &handles {
            handle.wait_end(Duration::from_secs(1))?;
        }
    }
}

/// Sends a signal to every process in the PID namespace of `init`, until a pass finds no new one.
pub(crate) fn signal_namespace(init: ProcessId, signal: Signal) -> Result<(), LabError> {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let wanted = namespace(init.pid);
    let mut done: Vec<i32> = Vec::new();
    loop {
        let entries = std::fs::read_dir("/proc").map_err(LabError::file("read", "/proc"))?;
        let new: Vec<i32> = entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter(|pid| !done.contains(pid) && wanted.is_some() && namespace(*pid) == wanted)
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            // Looked at again once it is held: the number may have become another process's.
            if let Ok(handle) = PidFd::open(pid)
                && namespace(pid) == wanted
            {
                // It may have ended meanwhile.
                let _ = handle.signal(signal);
            }
            done.push(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_start_time_too() {
        let own = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        let other = ProcessId {
            start_time: own.start_time + 1,
            ..own
        };
        assert!(!other.is_alive());
        assert!(other.open().is_none());
    }

    #[test]
    fn a_zombie_counts_as_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        id.kill_and_wait("a child").unwrap();
        assert!(!id.is_alive(), "still unreaped, but ended");
        child.wait().unwrap();
    }
}
