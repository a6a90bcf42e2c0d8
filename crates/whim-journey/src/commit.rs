//! Home's half of a move, out or onward: from the first step to the new guest's start.
//!
//! Until home's journal has the entry, any failure leaves the process where it was. From then until
//! the new guest is known to run, the move is *in doubt*: the side that was left stands still, and
//! the new guest changes nothing. If its start does not become known in time, the old side goes on,
//! and the new guest ends, because it was never acknowledged.

use crate::recall::RECALL_BYTES_MIN;
use std::time::Duration;

/// How long a step may take if there is no lease, and how long a transfer may stand still.
const STEP_MAX: Duration = Duration::from_secs(60);

/// How long the steps of a move may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the preparations of the new host. The process keeps running meanwhile.
    pub preparing: Duration,
    /// How long the new host may be silent during the transfer and the rebuilding. They may take
    /// any length of time while heartbeats arrive.
    pub silent: Duration,
    /// How long the transfer may make no progress by the reports of the new host. Set where the
    /// host being left sends instead of us, because it may not want to.
    pub still: Option<Duration>,
    /// For any other step.
    pub step: Duration,
}

impl Limits {
    #[must_use]
    pub fn of(lease: Option<Duration>) -> Self {
        let step = lease.unwrap_or(STEP_MAX);
        Self {
            preparing: step,
            silent: STEP_MAX,
            still: None,
            step,
        }
    }

    /// The limits of a move from one host to another.
    #[must_use]
    pub fn onward(lease: Option<Duration>) -> Self {
        Self {
            still: Some(STEP_MAX),
            ..Self::of(lease)
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The new host has made what it needs.
    Prepared,
    /// The new host was last heard of at this time.
    Heard {
        at: Duration,
    },
    /// So many bytes have arrived there in all.
    Came {
        bytes: u64,
    },
    /// The process is rebuilt there.
    Ready,
    /// The entry is on the disk, or could not be written.
    Journaled {
        written: bool,
    },
    /// The threads run there.
    Started,
    /// The new host refuses, the host being left cannot send the guest, or a connection is lost for
    /// good.
    Failed,
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Freeze the process and send it.
    Send,
    /// Write the journal's entry.
    Journal,
    /// Tell the new host that its guest may run.
    Commit,
    /// Tell the new host that its calls are executed from now on. The old side is no longer needed.
    Acknowledge,
    /// Let the old side go on.
    GiveUp,
}

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Preparing,
    Transferring,
    Journaling,
    Committing,
    Over,
}

/// A move.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    step: Step,
    stepped: Duration,
    heard: Duration,
    /// How many bytes had arrived when the transfer last made progress, and when that was.
    came: u64,
    grown: Duration,
    limits: Limits,
}

impl Move {
    #[must_use]
    pub fn new(now: Duration, limits: Limits) -> Self {
        Self {
            step: Step::Preparing,
            stepped: now,
            heard: now,
            came: 0,
            grown: now,
            limits,
        }
    }

    /// Handles an event; an event that is out of turn ends the move.
    pub fn handle(&mut self, now: Duration, event: Event) -> Option<Action> {
        let (step, action) = match (self.step, event) {
            (Step::Over, _) => return None,
            (_, Event::Heard { at }) => {
                self.heard = self.heard.max(at);
                return None;
            }
            (_, Event::Came { bytes }) => {
                if bytes >= self.came.saturating_add(RECALL_BYTES_MIN) {
                    (self.came, self.grown) = (bytes, now);
                }
                return None;
            }
            (_, Event::Tick) if !self.is_late(now) => return None,
            (Step::Preparing, Event::Prepared) => (Step::Transferring, Action::Send),
            // Trap: commit-before-its-entry
            (Step::Transferring, Event::Ready) => (Step::Journaling, Action::Journal),
            (Step::Journaling, Event::Journaled { written: true }) => {
                (Step::Committing, Action::Commit)
            }
            (Step::Committing, Event::Started) => (Step::Over, Action::Acknowledge),
            _ => (Step::Over, Action::GiveUp),
        };
        self.step = step;
        self.stepped = now;
        Some(action)
    }

    fn is_late(&self, now: Duration) -> bool {
        let since = match self.step {
            Step::Transferring => self.stepped.max(self.heard),
            _ => self.stepped,
        };
        let still = now.saturating_sub(self.stepped.max(self.grown));
        let stands_still = self.limits.still.is_some_and(|limit| still > limit);
        now.saturating_sub(since) > self.limit()
            || (self.step == Step::Transferring && stands_still)
    }

    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// How long the present step may take; for the transfer, how long the new host may be silent.
    #[must_use]
    pub fn limit(&self) -> Duration {
        match self.step {
            Step::Preparing => self.limits.preparing,
            Step::Transferring => self.limits.silent,
            Step::Journaling | Step::Committing | Step::Over => self.limits.step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_entry_comes_before_the_word_to_the_host() {
        let mut going = Move::new(at(0), Limits::of(Some(at(2000))));
        let mut next = |event| going.handle(at(1), event);
        assert_eq!(next(Event::Prepared), Some(Action::Send));
        assert_eq!(next(Event::Ready), Some(Action::Journal));
        let written = Event::Journaled { written: true };
        assert_eq!(next(written), Some(Action::Commit));
        assert_eq!(next(Event::Started), Some(Action::Acknowledge));
        assert_eq!(next(Event::Failed), None);
    }

    #[test]
    fn whatever_fails_or_is_late_or_out_of_turn_leaves_the_old_one() {
        let new = || Move::new(at(0), Limits::of(Some(at(2000))));
        assert_eq!(new().handle(at(1), Event::Started), Some(Action::GiveUp));
        assert_eq!(new().handle(at(1), Event::Failed), Some(Action::GiveUp));
        assert_eq!(new().handle(at(2000), Event::Tick), None);
        assert_eq!(new().handle(at(2001), Event::Tick), Some(Action::GiveUp));
        let mut sending = new();
        sending.handle(at(1), Event::Prepared);
        sending.handle(at(890_000), Event::Heard { at: at(890_000) });
        assert_eq!(sending.handle(at(900_000), Event::Tick), None);
        sending.handle(at(900_000), Event::Ready);
        let unwritten = Event::Journaled { written: false };
        assert_eq!(sending.handle(at(900_001), unwritten), Some(Action::GiveUp));
        assert_eq!(sending.handle(at(900_002), Event::Started), None);
    }
    #[test]
    fn a_transfer_may_take_its_time_but_not_stand_still() {
        let mut sending = Move::new(at(0), Limits::of(Some(at(2000))));
        sending.handle(at(10), Event::Prepared);
        for minute in 0..60 {
            let now = at(minute * 60_000);
            sending.handle(now, Event::Heard { at: now });
            assert_eq!(sending.handle(now + at(59_999), Event::Tick), None);
        }
        let end = sending.handle(at(60 * 60_000 + 1), Event::Tick);
        assert_eq!(end, Some(Action::GiveUp));
    }

    #[test]
    fn a_host_that_is_left_has_to_send() {
        let mut sending = Move::new(at(0), Limits::onward(Some(at(2000))));
        sending.handle(at(0), Event::Prepared);
        let mut bytes = 0;
        for second in 1..=100 {
            let now = at(second * 1000);
            bytes += RECALL_BYTES_MIN / 50;
            sending.handle(now, Event::Heard { at: now });
            sending.handle(now, Event::Came { bytes });
            assert_eq!(sending.handle(now, Event::Tick), None, "at {now:?}");
        }
        // The next host is heard, but nothing more arrives there.
        let mut now = at(100_000);
        let end = loop {
            now += at(1000);
            sending.handle(now, Event::Heard { at: now });
            sending.handle(now, Event::Came { bytes: bytes + 1 });
            if let Some(end) = sending.handle(now, Event::Tick) {
                break end;
            }
        };
        assert_eq!(end, Action::GiveUp);
        assert!(now < at(170_000), "{now:?}");
    }
}
