//! Which processes share the memory of a process.
//!
//! A process that was made with CLONE_VM and is no thread of its maker (the child of `vfork`, until
//! it executes a program; or what `clone` makes with that flag) has the same memory, and neither
//! can move without taking it from the other. By now it may be the child of any process. So the
//! kernel is asked about all processes (`kcmp`, about a microsecond for each), before the freeze.
//! Memory comes to be shared only when a task is made, so while the process is frozen only younger
//! tasks are asked about.

use crate::freeze_observe::Status;
use crate::stay::{StayReason, command_line, is_kernel_thread, start_time, thread_ids};
use nix::errno::Errno;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use whim_sys::foreign::{self, Resource};
use whim_sys::kernel_file;

/// The id that was last given to a task, in our pid namespace.
const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";
/// Ids are smaller than this.
const IDS_MAX: &str = "/proc/sys/kernel/pid_max";
/// No machine makes more tasks in a second. So it is certain that ids have not wrapped round within
/// as many seconds as there are ids per this number.
const MADE_PER_SECOND: u32 = 200_000;
/// With more young tasks than this, all processes are asked about instead.
const YOUNG_MAX: i32 = 4096;
/// A task is given its id a moment before it can be seen, so this many ids before the last one are
/// asked about again.
const BECOMING: i32 = 64;
/// Links of the directory of a process's threads, if there is one thread.
const LINKS_OF_ONE: u64 = 3;
/// The most processes of which scans are kept.
const SCANS_MAX: usize = 4096;
/// Pause between two scans while memory is shared for a moment.
const BETWEEN_SCANS: Duration = Duration::from_millis(1);

/// What is known of the memory of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Apart,
    Shares,
    /// We may not ask, or the kernel cannot tell.
    Hidden,
}

/// Records that a process had its memory to itself when it was scanned.
#[derive(Debug)]
pub struct Alone {
    pid: i32,
    /// The last id that was given before the scan, and when it was read.
    last: Option<(i32, Instant)>,
    /// Tasks that could not be asked about.
    hidden: Vec<i32>,
}

impl Alone {
    /// Asks about every process, and if its first thread has ended, about its other threads.
    ///
    /// # Errors
    /// Why it has to stay.
    pub fn scan(pid: i32) -> Result<Self, StayReason> {
        Self::asked(pid, true)
    }

    /// As [`Alone::scan`], but memory that is shared for a moment only (by a program that is being
    /// started) has this much time to stop being shared.
    ///
    /// # Errors
    /// As [`Alone::scan`].
    pub fn scan_within(pid: i32, patience: Duration) -> Result<Self, StayReason> {
        let end = Instant::now() + patience;
        loop {
            match Self::scan(pid) {
                Err(StayReason::SharesMemory(_)) if Instant::now() < end => {
                    std::thread::sleep(BETWEEN_SCANS);
                }
                found => return found,
            }
        }
    }

    fn asked(pid: i32, of_all_threads: bool) -> Result<Self, StayReason> {
        let last = last_id().zip(Some(Instant::now()));
        let mut hidden = Vec::new();
        for other in everybody().into_iter().filter(|other| *other != pid) {
            match relation(pid, other) {
                Relation::Shares => return Err(StayReason::SharesMemory(other)),
                Relation::Hidden => hidden.push(other),
                Relation::Apart => {
                    let ended = of_all_threads && may_have_ended(other);
                    let mut threads = ended.then(|| later_threads(other)).into_iter().flatten();
                    if threads.any(|tid| relation(pid, tid) == Relation::Shares) {
                        return Err(StayReason::SharesMemory(other));
                    }
                }
            }
        }
        let alone = Self { pid, last, hidden };
        alone.look_alike(&alone.hidden).map_or(Ok(alone), Err)
    }

    /// Asks again, while the process stands still, about the tasks that are younger than the first
    /// scan.
    #[must_use]
    pub fn no_longer(&self) -> Option<StayReason> {
        let Some(young) = self.young() else {
            return Self::scan(self.pid).err();
        };
        match self.hidden_with(young) {
            Ok(hidden) => self.look_alike(&hidden),
            Err(reason) => Some(reason),
        }
    }

    /// Asks again as [`Alone::no_longer`] does, and keeps what is found for the next time.
    fn scan_on(&mut self) -> Option<StayReason> {
        let last = last_id().zip(Some(Instant::now()));
        let Some(young) = self.young() else {
            return match Self::asked(self.pid, false) {
                Ok(anew) => {
                    *self = anew;
                    None
                }
                Err(reason) => Some(reason),
            };
        };
        match self.hidden_with(young) {
            Ok(hidden) => self.hidden = hidden,
            Err(reason) => return Some(reason),
        }
        self.hidden.retain(|id| is_there(*id));
        self.last = last;
        self.look_alike(&self.hidden)
    }

    /// The tasks that could not be asked about, and the young tasks that cannot be asked about
    /// either.
    fn hidden_with(&self, young: impl Iterator<Item = i32>) -> Result<Vec<i32>, StayReason> {
        let mut hidden = self.hidden.clone();
        for id in young {
            match relation(self.pid, id) {
                Relation::Shares => return Err(StayReason::SharesMemory(id)),
                Relation::Hidden if !hidden.contains(&id) => hidden.push(id),
                Relation::Hidden | Relation::Apart => {}
            }
        }
        Ok(hidden)
    }

    /// The ids of tasks that may have been made since the scan; `None` if that cannot be
    /// determined.
    fn young(&self) -> Option<std::ops::RangeInclusive<i32>> {
        let (before, when) = self.last?;
        let ids_max: u32 = number(IDS_MAX)?.try_into().ok()?;
        let now = last_id()?;
        let certain = when.elapsed() < Duration::from_secs(1) * ids_max / MADE_PER_SECOND;
        let made = now.checked_sub(before).filter(|made| *made >= 0)?;
        (certain && made <= YOUNG_MAX).then(|| (before - BECOMING).max(1)..=now)
    }

    /// Finds a task about which the kernel does not answer, and which looks as if it had the same
    /// memory. To have it, that task must have changed its ids, and have let itself be read after
    /// that.
    fn look_alike(&self, hidden: &[i32]) -> Option<StayReason> {
        if hidden.is_empty() {
            return None;
        }
        let line = command_line(self.pid).ok()?;
        let before = Extent::of(self.pid)?;
        let alike = |other: &&i32| {
            let found = Extent::of(**other).filter(|found| found.is_like(&before));
            let now = found.and_then(|_| Extent::of(self.pid));
            found.zip(now).is_some_and(|(found, now)| {
                found.is_between(&before, &now)
                    && command_line(**other).ok().as_ref() == Some(&line)
                    && !is_thread_of(**other, self.pid)
            })
        };
        let found = hidden.iter().find(alike);
        found.map(|other| StayReason::MayShareMemory(*other))
    }
}

/// A process that shares the memory of `pid`, or may do so, as a reason to stay. Processes of which
/// only later threads are left are not recognised: that is left to [`Alone`].
#[must_use]
pub fn reason(pid: i32) -> Option<StayReason> {
    Alone::asked(pid, false).err()
}

/// Scans of many processes, again and again. For each process all others are asked about once, and
/// from then on only the tasks that have been made since.
#[derive(Debug, Default)]
pub struct Scans {
    /// With the start time of each, which tells it from a later process of the same number.
    by_pid: HashMap<i32, (u64, Alone)>,
}

impl Scans {
    /// As [`reason`].
    pub fn reason(&mut self, pid: i32) -> Option<StayReason> {
        let began = start_time(pid)?;
        if let Some((then, alone)) = self.by_pid.get_mut(&pid)
            && *then == began
        {
            let found = alone.scan_on();
            if found.is_some() {
                self.by_pid.remove(&pid);
            }
            return found;
        }
        match Alone::asked(pid, false) {
            Ok(alone) => {
                if self.by_pid.len() >= SCANS_MAX {
                    self.by_pid.clear();
                }
                self.by_pid.insert(pid, (began, alone));
                None
            }
            Err(reason) => Some(reason),
        }
    }
}

/// How much memory a process has, which any user may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    size: u64,
    resident: u64,
    text: u64,
    data: u64,
}

impl Extent {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&kernel_file::read_text(format!("/proc/{pid}/statm")).ok()?)
    }

    /// Counts in pages: all, resident, shared, program text, 0, data and stack, 0.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text
            .split_whitespace()
            .map(|field| field.parse::<u64>().ok());
        let mut next = || fields.next().flatten();
        let (size, resident, _, text) = (next()?, next()?, next()?, next()?);
        let _libraries = next()?;
        let data = next()?;
        Some(Self {
            size,
            resident,
            text,
            data,
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        let same = |one: &Self| (one.size, one.text, one.data);
        self.size > 0 && same(self) == same(other)
    }

    /// Whether it can have been read from the same memory between `before` and `after`.
    fn is_between(&self, before: &Self, after: &Self) -> bool {
        let resident = [before.resident, after.resident];
        let least = resident.iter().min().copied().unwrap_or(0);
        let most = resident.iter().max().copied().unwrap_or(0);
        (least..=most).contains(&self.resident)
    }
}

fn number(path: &str) -> Option<i32> {
    kernel_file::read_text(path).ok()?.trim().parse().ok()
}

fn last_id() -> Option<i32> {
    number(LAST_ID)
}

fn everybody() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let names = entries.filter_map(Result::ok);
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn is_there(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

fn relation(pid: i32, other: i32) -> Relation {
    match foreign::shares(pid, other, Resource::Memory) {
        // Trap: memory-of-several-processes
        Ok(true) if counts(pid, other) => Relation::Shares,
        Ok(_) | Err(Errno::ESRCH) => Relation::Apart,
        Err(_) => Relation::Hidden,
    }
}

/// Whether a task with the same memory is another process: neither one of its own threads, nor a
/// thread of the kernel that works in its memory for it, nor one that has ended meanwhile.
fn counts(pid: i32, other: i32) -> bool {
    let status = Status::read(other, other);
    status.is_ok_and(|status| status.tgid != pid) && !is_kernel_thread(other)
}

/// Whether a task is a thread of this process. Young tasks include the process's own threads, and a thread
/// whose rights differ from those of the first thread cannot be asked about.
fn is_thread_of(tid: i32, pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// Whether the first thread of a process may have ended, and with that have given up its share of the
/// memory. Reading its state would take ten times as long.
fn may_have_ended(pid: i32) -> bool {
    foreign::has_descriptor(pid, 0) == Ok(false)
}

/// The threads of a process beside its first one.
fn later_threads(pid: i32) -> impl Iterator<Item = i32> {
    let links = fs::metadata(format!("/proc/{pid}/task")).map_or(0, |about| about.nlink());
    let threads = if links > LINKS_OF_ONE {
        thread_ids(pid)
    } else {
        Vec::new()
    };
    threads.into_iter().filter(move |tid| *tid != pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_is_alone_and_a_later_look_asks_about_few() {
        let mut sleep = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process");
        let pid = sleep.id().cast_signed();
        let alone = Alone::scan(pid).expect("nobody shares its memory");
        assert_eq!(alone.no_longer(), None);
        assert_eq!(reason(pid), None);
        if alone.last.is_some() {
            let young = alone.young().expect("just looked");
            assert!(young.count() < 4096);
        }
        let long_ago = Alone {
            last: Some((
                1,
                Instant::now()
                    .checked_sub(Duration::from_secs(3600))
                    .unwrap_or_else(Instant::now),
            )),
            ..alone
        };
        assert_eq!(long_ago.young(), None);
        sleep.kill().expect("it lives");
        sleep.wait().expect("it ended");
    }

    #[test]
    fn later_looks_know_of_earlier_ones_and_see_who_came_since() {
        let mut sleep = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process");
        let pid = sleep.id().cast_signed();
        let mut looks = Scans::default();
        assert_eq!(looks.reason(pid), None);
        let first = looks.by_pid[&pid].1.last;
        let mut later = std::process::Command::new("true").spawn().expect("another");
        later.wait().expect("it ended");
        assert_eq!(looks.reason(pid), None);
        if let (Some((before, _)), Some((after, _))) = (first, looks.by_pid[&pid].1.last) {
            assert!(after != before, "{before}, {after}");
        }
        looks.by_pid.get_mut(&pid).expect("known").0 += 1;
        assert_eq!(
            looks.reason(pid),
            None,
            "of a process of before nothing is known"
        );
        sleep.kill().expect("it lives");
        sleep.wait().expect("it ended");
        assert_eq!(looks.reason(pid), None);
    }

    #[test]
    fn threads_of_the_same_process_do_not_count() {
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (told, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            told.send(nix::unistd::gettid().as_raw()).unwrap();
            ends.recv().unwrap_err()
        });
        let (pid, tid) = (std::process::id().cast_signed(), tid.recv().unwrap());
        assert_eq!(foreign::shares(pid, tid, Resource::Memory), Ok(true));
        assert_eq!(relation(pid, tid), Relation::Apart);
        // Nor does a thread that may not be asked about: it looks like its process, because it
        // belongs to it.
        let alone = Alone {
            pid,
            last: None,
            hidden: vec![tid],
        };
        let alike = || Extent::of(tid).is_some_and(|of_it| Extent::of(pid) == Some(of_it));
        assert!((0..1000).any(|_| alike()), "it does not look like it");
        assert!((0..1000).all(|_| alone.look_alike(&alone.hidden).is_none()));
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn an_ended_process_is_noticed() {
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("a process");
        let pid = child.id().cast_signed();
        let id = nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(pid));
        let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
        nix::sys::wait::waitid(id, flags).expect("it ends");
        assert!(may_have_ended(pid));
        assert_eq!(later_threads(pid).count(), 0);
        child.wait().expect("it ended");
        let mut sleep = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process");
        assert!(!may_have_ended(sleep.id().cast_signed()));
        sleep.kill().expect("it lives");
        sleep.wait().expect("it ended");
    }

    #[test]
    fn what_cannot_be_compared_is_known_by_its_extent() {
        let extent = |text: &str| Extent::parse(text).expect("seven numbers");
        let ours = extent("700 200 150 5 0 90 0");
        let grown = extent("700 230 150 5 0 90 0");
        assert!(extent("700 210 150 5 0 90 0").is_like(&ours));
        assert!(extent("700 210 150 5 0 90 0").is_between(&ours, &grown));
        assert!(!extent("700 199 150 5 0 90 0").is_between(&ours, &grown));
        assert!(!extent("701 210 150 5 0 90 0").is_like(&ours));
        assert!(!extent("0 0 0 0 0 0 0").is_like(&extent("0 0 0 0 0 0 0")));
        assert_eq!(Extent::parse("700 200"), None);
        let pid = std::process::id().cast_signed();
        let seen = |hidden: i32| {
            let alone = Alone {
                pid,
                last: None,
                hidden: vec![hidden],
            };
            alone.look_alike(&alone.hidden)
        };
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert_eq!(seen(parent), None);
    }
}
