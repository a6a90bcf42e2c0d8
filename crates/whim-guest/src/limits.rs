//! The guest's memory limit: near it the guest is stopped and goes home, rather than be killed.
//!
//! A guest may fill what is left faster than anybody looks. So its group is made such that the
//! kernel lets it wait at the limit (version 1) or slows it down before it (version 2); and when
//! it is to go, it gets a little more room, because a thread that waits for memory does not stop.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Part of its limit at which a guest goes home.
const PERCENT: u64 = 90;
/// A guest fills no more than this in a millisecond.
const GROWTH_PER_MS: u64 = 4 << 20;
/// Looking more often would cost more than it tells.
const LOOK_MIN: Duration = Duration::from_millis(2);
/// Room in which the threads of a guest that is to go can stop: each may be about to get a huge page.
const SPARE_MIN: u64 = 16 << 20;
const SPARE_PER_THREAD: u64 = 2 << 20;

/// Limit and use of a guest's memory. Its files are opened while we have the right to do so.
#[derive(Debug)]
pub struct Limits {
    limit: u64,
    used: Option<File>,
    /// Where more room is given, and whether as a number (version 1) or by lifting a brake.
    room: Vec<(File, bool)>,
}

impl Limits {
    /// `groups` are the directories of the guest's groups.
    #[must_use]
    pub fn open(limit: Option<u64>, groups: &[String]) -> Self {
        let file = |name: &str, write: bool| {
            let mut options = OpenOptions::new();
            options.read(!write).write(write);
            groups
                .iter()
                .find_map(|group| options.open(Path::new(group).join(name)).ok())
        };
        let used = ["memory.usage_in_bytes", "memory.current"];
        let room = [("memory.limit_in_bytes", true), ("memory.high", false)];
        Self {
            limit: limit.unwrap_or(u64::MAX),
            used: used.iter().find_map(|name| file(name, false)),
            room: room
                .iter()
                .filter_map(|(name, number)| Some((file(name, true)?, *number)))
                .collect(),
        }
    }

    /// Bytes that count against the limit, if there is a group that counts them.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        let mut text = [0; 32];
        let length = self.used.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length])
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn threshold(&self) -> u64 {
        self.limit / 100 * PERCENT
    }

    /// Whether a guest that uses so much has to go.
    #[must_use]
    pub fn is_near(&self, used: u64) -> bool {
        used >= self.threshold()
    }

    /// When to look again.
    #[must_use]
    pub fn patience(&self, used: u64) -> Duration {
        let left = self.threshold().saturating_sub(used);
        Duration::from_millis(left / GROWTH_PER_MS).max(LOOK_MIN)
    }

    /// Lets a guest of so many threads run on as far as to its stop.
    pub fn give_room(&mut self, threads: usize) {
        let spare = (threads as u64)
            .saturating_mul(SPARE_PER_THREAD)
            .max(SPARE_MIN);
        let limit = self.limit.saturating_add(spare);
        for (file, number) in &mut self.room {
            let text = if *number {
                limit.to_string()
            } else {
                "max".into()
            };
            if let Err(error) = file.write_all(text.as_bytes()) {
                tracing::warn!(%error, "the guest gets no room to stop in");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_limit_the_sooner_the_next_look() {
        let limits = Limits::open(Some(1000 << 20), &[]);
        assert_eq!(limits.used(), None);
        assert!(!limits.is_near(899 << 20) && limits.is_near(900 << 20));
        assert_eq!(limits.patience(100 << 20), Duration::from_millis(200));
        assert_eq!(limits.patience(899 << 20), LOOK_MIN);
        assert_eq!(limits.patience(u64::MAX), LOOK_MIN);
        assert!(!Limits::open(None, &[]).is_near(1 << 50));
    }
}
