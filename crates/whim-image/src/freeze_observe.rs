//! What /proc shows of threads before and after they are stopped.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use whim_sys::kernel_file;

/// The state of a thread before it was interrupted; empty if its call needs no times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// If it slept: when it went to sleep, and how often it had done so.
    asleep: Option<Asleep>,
    /// If a tracer is its clock: when its time is over, by CLOCK_MONOTONIC.
    deadline_ns: Option<u64>,
}

impl Observation {
    /// The observation of a thread for which the tracer is the clock.
    #[must_use]
    pub fn held(deadline_ns: u64) -> Self {
        Self {
            asleep: None,
            deadline_ns: Some(deadline_ns),
        }
    }

    /// When the time of a held thread is over, by CLOCK_MONOTONIC.
    #[must_use]
    pub fn held_until_ns(&self) -> Option<u64> {
        self.deadline_ns
    }
}

/// CLOCK_MONOTONIC, in nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep {
    /// By the clock of `cpu`, in nanoseconds.
    since_ns: u64,
    voluntary_switches: u64,
    cpu: usize,
}

/// Number of the system call in which a thread sleeps; `None` while it computes.
#[must_use]
pub fn sleeping_in(pid: i32, tid: i32) -> Option<u64> {
    let text = kernel_file::read_text(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Reads the state of a thread, and at once does what stops it. A thread that ran on between the
/// two could already be in its next call, and the sleep of its last call would be subtracted from
/// the time of the next one. `concerns` says whether the sleep of a call, given by its number,
/// counts. Returns that number and the observation, and the result of `stop`.
pub fn observe_and_stop<T>(
    pid: i32,
    tid: i32,
    concerns: impl Fn(u64) -> bool,
    stop: impl FnOnce() -> T,
) -> (Option<(u64, Observation)>, T) {
    let runs = RunCount::open(pid, tid);
    let count = || runs.as_ref().and_then(RunCount::read);
    for _ in 0..LOOKS_MAX {
        let first = count();
        let Some(number) = sleeping_in(pid, tid).filter(|number| concerns(*number)) else {
            break;
        };
        let seen = Observation {
            asleep: asleep(pid, tid),
            deadline_ns: None,
        };
        let again = Instant::now();
        if count() == first && again.elapsed() < LOOK_TO_STOP_MAX {
            return (Some((number, seen)), stop());
        }
    }
    (None, stop())
}

/// How often to try to read the state of a thread while it rests. A thread that rests in none of
/// these tries has slept for no time that counts.
const LOOKS_MAX: usize = 8;

/// Longest time between the last reading and the stop. A thread takes longer to wake, to return and
/// to be in its next call. A tracer that lost its CPU meanwhile reads again.
const LOOK_TO_STOP_MAX: Duration = Duration::from_micros(50);

/// How often a thread was given a CPU: a short file, read again as the last thing before a stop.
struct RunCount(File);

impl RunCount {
    fn open(pid: i32, tid: i32) -> Option<Self> {
        let file = File::open(format!("/proc/{pid}/task/{tid}/schedstat"));
        file.ok().map(Self)
    }

    /// The file's text: the time that the thread ran, the time that it waited to run, and the
    /// count. All are 0 on a kernel that does not count.
    fn read(&self) -> Option<([u8; 64], usize)> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        Some((text, length))
    }
}

fn asleep(pid: i32, tid: i32) -> Option<Asleep> {
    // 0: the kernel has moved the sleeping thread to another CPU, and no longer knows since when it
    // sleeps (Linux from 6.12, which leaves a sleeper in the queue of its CPU for a while).
    let (since_ns, voluntary_switches) = scheduling(pid, tid).filter(|(since, _)| *since != 0)?;
    let (state, cpu) = state_and_cpu(pid, tid)?;
    (state == 'S').then_some(Asleep {
        since_ns,
        voluntary_switches,
        cpu,
    })
}

/// How long a thread that is stopped now had slept in its call, in nanoseconds: 0 unless it slept
/// without a break from before `before` was taken.
#[must_use]
pub fn elapsed_ns(pid: i32, tid: i32, before: &Observation) -> u64 {
    let Some(before) = before.asleep else {
        return 0;
    };
    let Some((stopped_ns, switches)) = scheduling(pid, tid) else {
        return 0;
    };
    // The one switch is the stop itself.
    if switches != before.voluntary_switches + 1 {
        return 0;
    }
    let Some((_, cpu)) = state_and_cpu(pid, tid) else {
        return 0;
    };
    // Each CPU has a clock of its own: after a change of CPU, ask the old one what time it is.
    let now = if cpu == before.cpu {
        Some(stopped_ns)
    } else {
        clock_of(before.cpu)
    };
    now.map_or(0, |now| now.saturating_sub(before.since_ns))
}

/// The scheduler's clock of a CPU. To read it, this thread runs there for a moment.
fn clock_of(cpu: usize) -> Option<u64> {
    let me = Pid::from_raw(0);
    let usual = sched_getaffinity(me).ok()?;
    let mut only = CpuSet::new();
    only.set(cpu).ok()?;
    sched_setaffinity(me, &only).ok()?;
    // A moment's sleep lets the scheduler set the clock of this thread anew.
    std::thread::sleep(std::time::Duration::from_micros(1));
    let found = text("/proc/thread-self/sched")
        .ok()
        .and_then(|text| times(&text));
    // Without this the thread would stay bound to one CPU. It had this set before, so it may have
    // it again.
    let _restored = sched_setaffinity(me, &usual);
    found.map(|(now, _)| now)
}

/// `se.exec_start` in nanoseconds and `nr_voluntary_switches`.
fn scheduling(pid: i32, tid: i32) -> Option<(u64, u64)> {
    times(&text(&format!("/proc/{pid}/task/{tid}/sched")).ok()?)
}

pub(crate) fn times(text: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        // The last one: above all others stands the thread's name, which may hold newlines.
        let line = text.lines().rfind(|line| line.starts_with(name))?;
        line.rsplit(' ').next()
    };
    let (ms, fraction) = value("se.exec_start")?.split_once('.')?;
    let ns: u64 = fraction.get(..6)?.parse().ok()?;
    let ms: u64 = ms.parse().ok()?;
    Some((
        ms.checked_mul(1_000_000)?.checked_add(ns)?,
        value("nr_voluntary_switches")?.parse().ok()?,
    ))
}

/// Whether a thread would run if it were given a CPU.
pub(crate) fn is_runnable(pid: i32, tid: i32) -> bool {
    state_and_cpu(pid, tid).is_some_and(|(state, _)| state == 'R')
}

/// Reads a file of a thread in /proc. The file may hold the thread's name, which may be any bytes,
/// so it need not be UTF-8.
pub(crate) fn text(path: &str) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&kernel_file::read(path)?).into_owned())
}

fn state_and_cpu(pid: i32, tid: i32) -> Option<(char, usize)> {
    state_and_cpu_of(&text(&format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

pub(crate) fn state_and_cpu_of(text: &str) -> Option<(char, usize)> {
    // The name, in parentheses, may hold anything.
    let (_, after) = text.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    let state = fields.next()?.chars().next()?;
    // Field 39; the state is field 3.
    Some((state, fields.nth(35)?.parse().ok()?))
}

/// What a thread may do beyond the rights of its user, or may acquire the right to do: one bit
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub ambient: u64,
}

/// The fields of /proc/PID/status that this crate uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub tgid: i32,
    pub tracer: i32,
    pub state: char,
    /// The id in the process's own pid namespace.
    pub own_id: i32,
    /// Number of pid namespaces from ours down to its own; 1 = ours.
    pub namespaces: usize,
    pub seccomp: u32,
    pub caught: u64,
    pub ignored: u64,
    pub blocked: u64,
    pub pending: u64,
    pub pending_shared: u64,
    pub transparent_huge_pages: bool,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Locked memory, in bytes.
    pub locked: u64,
    pub name: String,
    /// Real, effective, saved and file system user id; `gids` has the same of the group.
    pub uids: Vec<u32>,
    pub gids: Vec<u32>,
    /// Supplementary groups, in the kernel's order, which is ascending.
    pub groups: Vec<u32>,
    pub capabilities: Capabilities,
    pub features: String,
    /// Bits of an address that count; all of them unless linear address masking is on.
    pub untag_mask: u64,
}

impl Status {
    /// Reads `/proc/PID/task/TID/status`.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn read(pid: i32, tid: i32) -> std::io::Result<Self> {
        let path = format!("/proc/{pid}/task/{tid}/status");
        Ok(Self::parse(&text(&path)?))
    }

    /// The signals that are pending for the thread or for the process.
    #[must_use]
    pub fn all_pending(&self) -> u64 {
        self.pending | self.pending_shared
    }

    /// Whether bits of its addresses count for nothing (linear address masking).
    #[must_use]
    pub fn has_address_tags(&self) -> bool {
        self.untag_mask != u64::MAX
    }

    /// Names the rights in which two threads of a process differ. The kernel keeps all of these
    /// rights for each thread, and only the C library gives all threads the same ones.
    #[must_use]
    pub fn differs_in(&self, other: &Self) -> Option<&'static str> {
        if self.uids != other.uids {
            Some("user ids")
        } else if self.gids != other.gids {
            Some("group ids")
        } else if self.groups != other.groups {
            Some("supplementary groups")
        } else if self.capabilities != other.capabilities {
            Some("capabilities")
        } else {
            None
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut found = Self {
            transparent_huge_pages: true,
            untag_mask: u64::MAX,
            ..Self::default()
        };
        let number = |text: &str| text.parse().unwrap_or(0);
        let set = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let ids = |text: &str| {
            let ids = text.split_whitespace().filter_map(|id| id.parse().ok());
            ids.collect()
        };
        let bytes = |text: &str| {
            let kib: u64 = text.trim_end_matches(" kB").trim().parse().unwrap_or(0);
            kib.saturating_mul(1024)
        };
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match key {
                "Name" => found.name = value.to_owned(),
                "State" => found.state = value.chars().next().unwrap_or('?'),
                "Tgid" => found.tgid = number(value),
                "TracerPid" => found.tracer = number(value),
                "NSpid" => {
                    found.namespaces = value.split_whitespace().count();
                    found.own_id = value.split_whitespace().next_back().map_or(0, number);
                }
                "Uid" => found.uids = ids(value),
                "Gid" => found.gids = ids(value),
                "Groups" => found.groups = ids(value),
                "CapInh" => found.capabilities.inheritable = set(value),
                "CapPrm" => found.capabilities.permitted = set(value),
                "CapEff" => found.capabilities.effective = set(value),
                "CapAmb" => found.capabilities.ambient = set(value),
                "VmRSS" => found.resident = bytes(value),
                "VmLck" => found.locked = bytes(value),
                "Seccomp" => found.seccomp = value.parse().unwrap_or(0),
                "SigPnd" => found.pending = set(value),
                "ShdPnd" => found.pending_shared = set(value),
                "SigBlk" => found.blocked = set(value),
                "SigIgn" => found.ignored = set(value),
                "SigCgt" => found.caught = set(value),
                "THP_enabled" => found.transparent_huge_pages = value != "0",
                "untag_mask" => found.untag_mask = set(value.trim_start_matches("0x")),
                "x86_Thread_features" => found.features = value.to_owned(),
                _ => {}
            }
        }
        found
    }
}

/// Whether a caught signal is pending that this thread does not block.
#[must_use]
pub fn handler_is_due(pid: i32, tid: i32) -> bool {
    Status::read(pid, tid)
        .is_ok_and(|status| status.all_pending() & !status.blocked & status.caught != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_thread_is_described() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let status = Status::read(pid, nix::unistd::gettid().as_raw()).unwrap();
        assert_eq!((status.tgid, status.tracer, status.seccomp), (pid, 0, 0));
        assert_eq!(status.own_id, nix::unistd::gettid().as_raw());
        assert!(status.resident > 0 && status.uids.len() == 4 && status.gids.len() == 4);
        assert!(!handler_is_due(pid, pid));
        let (state, _) = state_and_cpu(pid, nix::unistd::gettid().as_raw()).unwrap();
        assert_eq!(state, 'R');
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_thread() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let named = std::thread::spawn(move || {
            nix::sys::prctl::set_name(c"\xff) S 1\xfe").unwrap();
            let tid = nix::unistd::gettid().as_raw();
            let state = state_and_cpu(pid, tid).map(|(state, _)| state);
            (Status::read(pid, tid).map(|status| status.tgid).ok(), state)
        });
        assert_eq!(named.join().unwrap(), (Some(pid), Some('R')));
    }

    #[test]
    fn only_one_that_sleeps_in_the_call_is_observed() {
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (told, tid) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            told.send(nix::unistd::gettid().as_raw()).unwrap();
            ends.recv().unwrap_err()
        });
        let pid = i32::try_from(std::process::id()).unwrap();
        let tid = tid.recv().unwrap();
        let look = |number| observe_and_stop(pid, tid, |called| called == number, || 7);
        let futex = 202;
        let (seen, _) = std::iter::repeat_with(|| look(futex))
            .find(|(seen, stopped)| {
                *stopped == 7 && seen.is_some_and(|(_, one)| one.asleep.is_some())
            })
            .unwrap();
        assert_eq!(seen.map(|(number, _)| number), Some(futex));
        assert_eq!(
            look(futex + 1),
            (None, 7),
            "another call does not concern us"
        );
        let own = nix::unistd::gettid().as_raw();
        let (seen, _) = observe_and_stop(pid, own, |_| true, || 7);
        assert!(seen.is_none_or(|(_, one)| one.asleep.is_none()));
        drop(end);
        sleeper.join().unwrap();
    }

    #[test]
    fn tags_in_addresses_are_seen() {
        let tags = |line: &str| Status::parse(line).has_address_tags();
        assert!(!tags("Tgid:\t1\n"), "a kernel that has no tags");
        assert!(!tags("untag_mask:\t0xffffffffffffffff\n"));
        assert!(tags("untag_mask:\t0x81ffffffffffffff\n"));
    }

    #[test]
    fn what_one_thread_may_do_alone_is_named() {
        let text = "Uid:\t8\t8\t8\t8\nGid:\t9\t9\t9\t9\nGroups:\t4 24 \n\
            CapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t000001ffffffffff\nCapAmb:\t0\n";
        let first = Status::parse(text);
        assert_eq!(first.differs_in(&first), None);
        for (was, is, expected) in [
            ("Uid:\t8\t8\t8", "Uid:\t8\t8\t0", "user ids"),
            ("Gid:\t9\t9\t9\t9", "Gid:\t9\t9\t9\t0", "group ids"),
            ("Gid:\t9", "Gid:\t0", "group ids"),
            ("4 24 ", "4 ", "supplementary groups"),
            ("4 24 ", "4 24 27 ", "supplementary groups"),
            ("CapInh:\t0", "CapInh:\t400", "capabilities"),
            ("CapPrm:\t0", "CapPrm:\t000001ffffffffff", "capabilities"),
            ("CapEff:\t0", "CapEff:\t8000000000", "capabilities"),
            ("CapAmb:\t0", "CapAmb:\t1", "capabilities"),
        ] {
            let other = Status::parse(&text.replace(was, is));
            let named = [first.differs_in(&other), other.differs_in(&first)];
            assert_eq!(named, [Some(expected); 2], "{is}");
        }
    }

    #[test]
    fn scheduling_times_are_read() {
        let text = "x (1, #threads: 1)\n---\n\
            se.exec_start                    :     12345678.123456\n\
            nr_voluntary_switches            :                   43\n";
        assert_eq!(times(text), Some((12_345_678_123_456, 43)));
        assert_eq!(times("se.exec_start : x"), None);
    }
}
