//! Limits how many handshakes this node begins in a second, since each costs it signatures before it
//! knows who connects.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Handshakes that begin in a second, those of strangers and of members, of daemons and of supervisors
/// together.
pub const HANDSHAKES_PER_SECOND: u32 = 200;
/// Handshakes that may begin at once after a rest: enough for all programs of a crowd that move together,
/// or that come back together after the network was cut.
pub const HANDSHAKES_BURST: u32 = 256;

/// A bucket of turns. It fills steadily, up to the burst. A caller that finds it empty gets the next turn
/// and is told how long to wait for it, so that turns are taken in the order in which they were asked
/// for. It has no clock: times count from any moment, and do not go back.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Time between two turns of a long row.
    interval: Duration,
    /// How far before its time a turn may be taken.
    early: Duration,
    /// The time of the next turn, if all were taken in time.
    next: Duration,
}

impl Turns {
    #[must_use]
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self {
            interval,
            early: interval * burst.saturating_sub(1),
            next: Duration::ZERO,
        }
    }

    /// Takes a turn, and returns how long to wait for it.
    pub(crate) fn take(&mut self, now: Duration) -> Duration {
        let due = self.next.max(now);
        self.next = due + self.interval;
        due.saturating_sub(now + self.early)
    }
}

/// The turns of this node's port.
#[derive(Debug)]
pub(crate) struct Handshakes {
    turns: Mutex<Turns>,
    begun: Instant,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self {
            turns: Mutex::new(Turns::new(HANDSHAKES_PER_SECOND, HANDSHAKES_BURST)),
            begun: Instant::now(),
        }
    }
}

impl Handshakes {
    /// Waits until a handshake may begin.
    pub(crate) async fn turn(&self) {
        let wait = self.take();
        if !wait.is_zero() {
            tracing::debug!(?wait, "a handshake waits its turn");
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a turn, and returns how long to wait for it.
    pub(crate) fn take(&self) -> Duration {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.take(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(5);

    fn empty_at(now: Duration) -> Turns {
        let mut turns = Turns::new(HANDSHAKES_PER_SECOND, HANDSHAKES_BURST);
        for _ in 0..HANDSHAKES_BURST {
            assert_eq!(turns.take(now), Duration::ZERO);
        }
        turns
    }

    #[test]
    fn turns_beyond_the_burst_are_waited_for_in_order() {
        let now = Duration::from_secs(100);
        let mut turns = empty_at(now);
        for later in 1..=HANDSHAKES_PER_SECOND {
            assert_eq!(turns.take(now), INTERVAL * later);
        }
        // A second later those turns have been taken, and none was saved.
        assert_eq!(turns.take(now + Duration::from_secs(1)), INTERVAL);
    }

    #[test]
    fn an_empty_bucket_fills_at_its_rate_and_up_to_its_burst() {
        let now = Duration::from_secs(100);
        let mut turns = empty_at(now);
        let later = now + INTERVAL;
        assert_eq!(
            turns.take(later - Duration::from_nanos(1)),
            Duration::from_nanos(1)
        );
        let mut turns = empty_at(now);
        assert_eq!(turns.take(later), Duration::ZERO);
        assert_eq!(turns.take(later), INTERVAL);
        let mut turns = empty_at(now);
        let second = now + Duration::from_secs(1);
        for _ in 0..HANDSHAKES_PER_SECOND {
            assert_eq!(turns.take(second), Duration::ZERO);
        }
        assert_eq!(turns.take(second), INTERVAL);
        // However long it rests, no more than the burst is saved.
        let mut rested = empty_at(now + Duration::from_secs(1_000_000));
        let again = rested.take(now + Duration::from_secs(1_000_000));
        assert_eq!(again, INTERVAL);
    }
}
