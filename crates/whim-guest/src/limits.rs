//! The memory limit of a host's guests. Near the limit one of them is stopped and goes home, rather
//! than be killed.
//!
//! The limit is the host's share for all guests together. Every supervisor looks at the sum and
//! comes to the same conclusion without asking anybody, because the daemon may be gone just then.
//! When the sum comes near the limit, the guest that uses most leaves. Its supervisor holds a lock
//! until its memory is free, so that only one guest goes where one is enough. The others run on,
//! but a guest that grows meanwhile stands still until there is room again.
//!
//! Guests may fill what is left faster than any supervisor checks it. So their group is made such
//! that the kernel lets them wait at the limit (version 1) or slows them down before it (version
//! 2). When a guest is to go, they get a little more room, because a thread that waits for memory
//! does not stop.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Part of the limit at which a guest goes home.
const PERCENT: u64 = 90;
/// Most memory that one CPU fills in a millisecond, in bytes.
const GROWTH_PER_MS: u64 = 4 << 20;
/// Checking more often would cost more than it is worth.
const CHECK_MIN: Duration = Duration::from_millis(2);
const CHECK_MAX: Duration = Duration::from_secs(1);
/// Room in which the threads of a guest that is to go can stop: each may be about to get a huge page.
const SPARE_MIN: u64 = 16 << 20;
const SPARE_PER_THREAD: u64 = 2 << 20;
/// Part of the limit by which the guests that stay may grow, all together, while another one
/// leaves.
const GROWTH_PERCENT: u64 = 4;
/// A guest that has stood still for so long goes home too, because the guest that was to make room
/// makes no progress.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the memory of a guest that has ended.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// Room for the digits of the largest number of bytes, and a line's end.
const NUMBER_MAX: usize = 32;

/// What is to become of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    RunsOn,
    /// Stands still until there is room.
    Waits,
    /// Goes home.
    Leaves,
}

/// What a check of the memory has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub verdict: Verdict,
    /// Time until the next check.
    pub again: Duration,
    /// Bytes used by this guest, and by all guests of this node.
    pub own: u64,
    pub all: u64,
    pub limit: u64,
}

/// Limit and use of memory. The files are opened while we have the right to do so.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The limit to use if `share` gives none.
    limit: u64,
    /// The file in which the daemon gives the limit. The supervisor whose guest leaves locks it.
    share: Option<File>,
    own: Option<File>,
    all: Option<File>,
    /// The directory in which each guest has a group, the name of our group, and the name of the
    /// file in a group that gives its use.
    siblings: Option<(PathBuf, PathBuf, &'static str)>,
    /// Limits that are raised to give more room.
    room: Vec<Room>,
    pressure: Pressure,
    leaves: bool,
    cpus: u64,
}

/// A limit of the group of all guests that can be raised: as a number (version 1) or by lifting a
/// brake (version 2).
#[derive(Debug)]
struct Room {
    file: File,
    is_number: bool,
    /// What it was before it was raised.
    before: Option<String>,
}

/// What is remembered of a guest while memory is short.
#[derive(Debug, Default)]
struct Pressure {
    /// What the guest used when the shortage began.
    began_with: Option<u64>,
    waits_since: Option<Instant>,
}

impl Pressure {
    fn judge(&mut self, own: u64, allowance: u64, now: Instant) -> Verdict {
        let began_with = *self.began_with.get_or_insert(own);
        if own > began_with.saturating_add(allowance) {
            self.waits_since.get_or_insert(now);
        }
        match self.waits_since {
            None => Verdict::RunsOn,
            Some(since) if now.saturating_duration_since(since) > WAIT_MAX => Verdict::Leaves,
            Some(_) => Verdict::Waits,
        }
    }
}

fn number(file: &File) -> Option<u64> {
    let mut text = [0; NUMBER_MAX];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Reading {
    /// Why a guest of this node leaves, as a sentence after "it came home because".
    #[must_use]
    pub(crate) fn reason(&self, node: &str) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let (own, all, limit) = (mib(self.own), mib(self.all), mib(self.limit));
        if self.all <= self.own + self.own / 16 {
            return format!(
                "it has come near the memory limit of guests on {node} ({own} MiB used)"
            );
        }
        format!(
            "the guests on {node} have come near their memory limit ({all} of {limit} MiB used, {own} by this one)"
        )
    }
}

impl Limits {
    /// `groups` are the directories of the guest's groups, each in the group of all guests; `share`
    /// is the file in which the daemon says what all guests may use together.
    #[must_use]
    pub(crate) fn open(limit: Option<u64>, groups: &[String], share: Option<&str>) -> Self {
        let uses = ["memory.usage_in_bytes", "memory.current"];
        let found = groups.iter().map(Path::new).find_map(|group| {
            let name = uses.iter().find(|name| group.join(name).exists())?;
            Some((group, *name))
        });
        let (above, name) = found.map_or((None, ""), |(group, name)| (group.parent(), name));
        let share = share.and_then(|path| File::open(path).ok());
        let room = [("memory.limit_in_bytes", true), ("memory.high", false)];
        let room = room.into_iter().filter_map(|(name, is_number)| {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .open(above?.join(name))
                .ok()?;
            Some(Room {
                file,
                is_number,
                before: None,
            })
        });
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            limit: limit.unwrap_or(u64::MAX),
            share,
            own: found.and_then(|(group, name)| File::open(group.join(name)).ok()),
            all: above.and_then(|above| File::open(above.join(name)).ok()),
            siblings: found.zip(above).and_then(|((group, name), above)| {
                Some((above.to_owned(), PathBuf::from(group.file_name()?), name))
            }),
            room: room.collect(),
            pressure: Pressure::default(),
            leaves: false,
            cpus: cpus as u64,
        }
    }

    fn limit(&self) -> u64 {
        self.share.as_ref().and_then(number).unwrap_or(self.limit)
    }

    /// Checks how much memory is used. `resident` gives the guest's own use if no group counts it.
    pub(crate) fn read(&mut self, resident: impl FnOnce() -> u64, now: Instant) -> Reading {
        let own = self.own.as_ref().and_then(number);
        let own = own.unwrap_or_else(resident);
        let all = self.all.as_ref().and_then(number).unwrap_or(own);
        let limit = self.limit();
        let threshold = limit / 100 * PERCENT;
        let (verdict, again) = if all < threshold {
            self.pressure = Pressure::default();
            (Verdict::RunsOn, self.patience(threshold - all))
        } else {
            self.near(own, limit, now)
        };
        Reading {
            verdict,
            again,
            own,
            all,
            limit,
        }
    }

    fn patience(&self, left: u64) -> Duration {
        Duration::from_millis(left / GROWTH_PER_MS / self.cpus).clamp(CHECK_MIN, CHECK_MAX)
    }

    fn near(&mut self, own: u64, limit: u64, now: Instant) -> (Verdict, Duration) {
        let others = self.others();
        let leads = others.iter().all(|other| *other <= own);
        let count = others.len() as u64 + 1;
        if leads && self.lock() {
            return (Verdict::Leaves, CHECK_MIN);
        }
        let allowance = limit / 100 * GROWTH_PERCENT / count;
        let verdict = self.pressure.judge(own, allowance, now);
        // Each check reads the use of all guests, so with more guests it is made less often.
        let again = CHECK_MIN.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        (verdict, again.min(CHECK_MAX))
    }

    /// What each of the other guests uses.
    fn others(&self) -> Vec<u64> {
        let Some((above, ours, name)) = &self.siblings else {
            return Vec::new();
        };
        let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name() != ours.as_os_str())
            .filter_map(|entry| number(&File::open(entry.path().join(name)).ok()?))
            .collect()
    }

    /// Whether our guest is the one that leaves. The lock ends with this process, however it ends.
    fn lock(&mut self) -> bool {
        self.leaves = match &self.share {
            Some(share) => self.leaves || share.try_lock().is_ok(),
            None => true,
        };
        self.leaves
    }

    /// Gives a guest of so many threads, which is to go, room until it has stopped. To be called
    /// again after the time that it returns, because other guests take some of that room.
    pub(crate) fn let_stop(&mut self, threads: usize, is_stopping: bool) -> Duration {
        if is_stopping {
            self.give_room(threads);
            CHECK_MIN
        } else {
            self.take_room_back();
            CHECK_MAX
        }
    }

    fn give_room(&mut self, threads: usize) {
        let spare = (threads as u64)
            .saturating_mul(SPARE_PER_THREAD)
            .max(SPARE_MIN);
        let all = self.all.as_ref().and_then(number).unwrap_or(0);
        let wanted = self.limit().max(all).saturating_add(spare);
        for room in &mut self.room {
            if let Err(error) = room.raise(wanted, spare / 2) {
                tracing::warn!(%error, "the guest gets no room to stop in");
            }
        }
    }

    /// Where the kernel refuses the old limit, because more is used, the daemon sets it later.
    fn take_room_back(&mut self) {
        for room in &mut self.room {
            if let Some(before) = room.before.take()
                && let Err(error) = room.file.write_all(before.as_bytes())
            {
                tracing::debug!(%error, "the guests' limit stays raised for now");
            }
        }
    }

    /// Waits, after the end of a guest that has left, until its memory is free. Otherwise the next
    /// guest would leave for memory that this one still holds.
    pub(crate) fn await_release(&self) {
        let Some(own) = self.own.as_ref().filter(|_| self.leaves) else {
            return;
        };
        let (begun, first) = (Instant::now(), number(own).unwrap_or(0));
        while begun.elapsed() < RELEASE_MAX && number(own).is_some_and(|used| used > first / 8) {
            std::thread::sleep(CHECK_MIN);
        }
    }
}

impl Room {
    fn raise(&mut self, wanted: u64, enough: u64) -> std::io::Result<()> {
        let mut text = [0; NUMBER_MAX];
        let length = self.file.read_at(&mut text, 0)?;
        let current = String::from_utf8_lossy(&text[..length]).trim().to_owned();
        let has_room = match current.parse::<u64>() {
            Ok(number) => self.is_number && number > wanted.saturating_sub(enough),
            Err(_) => true,
        };
        if has_room {
            return Ok(());
        }
        let text = if self.is_number {
            wanted.to_string()
        } else {
            "max".into()
        };
        self.before.get_or_insert(current);
        self.file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A group of guests as files. `uses`: the bytes that each guest uses.
    fn group(uses: &[u64]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (number, used) in uses.iter().enumerate() {
            let guest = directory.path().join(format!("g{number}"));
            std::fs::create_dir(&guest).expect("made");
            std::fs::write(guest.join("memory.current"), format!("{used}\n")).expect("written");
        }
        let all: u64 = uses.iter().sum();
        std::fs::write(directory.path().join("memory.current"), all.to_string()).expect("written");
        std::fs::write(directory.path().join("share"), (1000 * MB).to_string()).expect("written");
        directory
    }

    fn limits(directory: &Path, guest: usize) -> Limits {
        let own = directory.join(format!("g{guest}")).display().to_string();
        let share = directory.join("share").display().to_string();
        Limits::open(Some(5), &[own], Some(&share))
    }

    fn verdict(limits: &mut Limits, now: Instant) -> Verdict {
        limits.read(|| 0, now).verdict
    }

    fn uses(directory: &Path, guest: usize, used: u64) {
        let file = directory.join(format!("g{guest}")).join("memory.current");
        std::fs::write(file, used.to_string()).expect("written");
    }

    #[test]
    fn the_nearer_the_limit_the_sooner_the_next_look() {
        let mut limits = Limits::open(Some(1000 * MB), &[], None);
        limits.cpus = 1;
        let now = Instant::now();
        let far = limits.read(|| 100 * MB, now);
        assert_eq!(
            (far.verdict, far.again),
            (Verdict::RunsOn, Duration::from_millis(200))
        );
        let close = limits.read(|| 899 * MB, now);
        assert_eq!((close.verdict, close.again), (Verdict::RunsOn, CHECK_MIN));
        assert_eq!(limits.read(|| 900 * MB, now).verdict, Verdict::Leaves);
        let mut unlimited = Limits::open(None, &[], None);
        assert_eq!(unlimited.read(|| 1 << 50, now).verdict, Verdict::RunsOn);
    }

    #[test]
    fn of_all_guests_the_one_that_uses_most_leaves_and_only_that_one() {
        let directory = group(&[200 * MB, 500 * MB, 210 * MB]);
        let place = directory.path();
        let now = Instant::now();
        let mut guests: Vec<Limits> = (0..3).map(|guest| limits(place, guest)).collect();
        assert_eq!(verdict(&mut guests[0], now), Verdict::RunsOn);
        assert_eq!(verdict(&mut guests[1], now), Verdict::Leaves);
        // Now another guest is the largest, but one is leaving already.
        uses(place, 2, 600 * MB);
        let mut late = limits(place, 2);
        assert_eq!(verdict(&mut late, now), Verdict::RunsOn);
        drop(guests);
        assert_eq!(verdict(&mut late, now), Verdict::Leaves);
    }

    #[test]
    fn who_grows_while_another_one_leaves_waits_and_then_runs_on_or_leaves_too() {
        let directory = group(&[300 * MB, 620 * MB]);
        let place = directory.path();
        let (mut small, mut large) = (limits(place, 0), limits(place, 1));
        let begun = Instant::now();
        assert_eq!(verdict(&mut large, begun), Verdict::Leaves);
        assert_eq!(verdict(&mut small, begun), Verdict::RunsOn);
        uses(place, 0, 319 * MB);
        assert_eq!(verdict(&mut small, begun), Verdict::RunsOn);
        uses(place, 0, 321 * MB);
        assert_eq!(verdict(&mut small, begun), Verdict::Waits);
        let later = begun + WAIT_MAX + Duration::from_millis(1);
        assert_eq!(verdict(&mut small, later), Verdict::Leaves);
        std::fs::write(place.join("memory.current"), (321 * MB).to_string()).expect("written");
        assert_eq!(verdict(&mut small, later), Verdict::RunsOn);
    }

    #[test]
    fn the_daemons_word_on_the_limit_counts_at_once() {
        let directory = group(&[300 * MB, 200 * MB]);
        let mut guest = limits(directory.path(), 0);
        let now = Instant::now();
        assert_eq!(verdict(&mut guest, now), Verdict::RunsOn);
        std::fs::write(directory.path().join("share"), (550 * MB).to_string()).expect("written");
        assert_eq!(verdict(&mut guest, now), Verdict::Leaves);
    }
}
