//! What the last look at each process at home has found to keep it there. A list shows this where there is no time
//! to look at a process again, or where it does not answer at once: on a node with much to do, most do not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::line::probes::NotSeen;

/// For how long a process that cannot be looked at is shown as it was. After that it is said that it cannot be looked at,
/// which may be what keeps it here.
const REMEMBERED: Duration = Duration::from_secs(30);
const NOT_YET: &str = "It has not been looked at yet: 'whim why' looks at one.";

/// A process: its pid, and its start time.
type Key = (i32, u64);

#[derive(Debug)]
struct Found {
    at: Instant,
    stay: Option<String>,
}

/// By process.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<Key, Found>);

impl Seen {
    /// When a process was last looked at; in an order by this, processes that were never looked at come first.
    #[must_use]
    pub(crate) fn last_look(&self, process: Key) -> Option<Instant> {
        self.0.get(&process).map(|found| found.at)
    }

    /// Forgets all others.
    pub(crate) fn keep(&mut self, is_listed: impl Fn(Key) -> bool) {
        self.0.retain(|process, _| is_listed(*process));
    }

    /// What to show of a process that was looked at now.
    pub(crate) fn looked_at(
        &mut self,
        process: Key,
        now: Instant,
        look: Result<Option<String>, NotSeen>,
    ) -> Option<String> {
        match look {
            Ok(stay) => {
                let found = Found {
                    at: now,
                    stay: stay.clone(),
                };
                self.0.insert(process, found);
                stay
            }
            Err(not_seen) => match self.0.get(&process) {
                Some(found) if now.duration_since(found.at) < REMEMBERED => found.stay.clone(),
                _ => Some(format!("{not_seen}.")),
            },
        }
    }

    /// What to show of a process for which no time was left.
    #[must_use]
    pub(crate) fn left_out(&self, process: Key) -> Option<String> {
        match self.0.get(&process) {
            Some(found) => found.stay.clone(),
            None => Some(NOT_YET.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "It has a device open.";

    fn stays() -> Result<Option<String>, NotSeen> {
        Ok(Some(OPEN.into()))
    }

    #[test]
    fn what_was_found_is_shown_where_nothing_can_be_found_now() {
        let mut seen = Seen::default();
        let (stays_here, free, now) = ((1, 7), (2, 7), Instant::now());
        assert_eq!(
            seen.looked_at(stays_here, now, stays()).as_deref(),
            Some(OPEN)
        );
        assert_eq!(seen.looked_at(free, now, Ok(None)), None);
        for error in [NotSeen::Late, NotSeen::Busy] {
            let later = now + REMEMBERED / 2;
            let shown = seen.looked_at(stays_here, later, Err(error));
            assert_eq!(shown.as_deref(), Some(OPEN));
            assert_eq!(seen.looked_at(free, later, Err(error)), None);
            let much_later = now + REMEMBERED;
            let shown = seen.looked_at(free, much_later, Err(error));
            assert_eq!(shown, Some(format!("{error}.")));
        }
        assert_eq!(seen.left_out(stays_here).as_deref(), Some(OPEN));
        assert_eq!(seen.left_out(free), None);
    }

    #[test]
    fn another_process_of_that_number_is_not_known() {
        let mut seen = Seen::default();
        let (before, after, now) = ((1, 7), (1, 8), Instant::now());
        seen.looked_at(before, now, stays());
        assert_eq!(seen.left_out(after).as_deref(), Some(NOT_YET));
        let shown = seen.looked_at(after, now, Err(NotSeen::Busy));
        assert_eq!(shown, Some(format!("{}.", NotSeen::Busy)));
        seen.keep(|process| process == after);
        assert_eq!(seen.last_look(before), None);
    }

    #[test]
    fn who_waits_longest_is_looked_at_first() {
        let mut seen = Seen::default();
        let now = Instant::now();
        seen.looked_at((1, 0), now + Duration::from_secs(2), Ok(None));
        seen.looked_at((2, 0), now, Ok(None));
        let mut all = [(1, 0), (2, 0), (3, 0)];
        all.sort_by_key(|process| seen.last_look(*process));
        assert_eq!(all, [(3, 0), (2, 0), (1, 0)]);
    }
}
