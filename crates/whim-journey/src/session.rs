//! What outlives a broken connection: numbered frames, kept until the other side has them.
//!
//! One side *dials*, the other *waits*, as with the first connection. Each frame that carries
//! anything has a number, one more than the last, whatever connection it travels on; each frame
//! says how many frames its sender has received. When a connection is lost, the dialing side makes
//! a new one and *asks* on it: this is my n-th attempt, and I have received so many frames. The
//! other side *answers* with how many it has received, and both send the rest again. So the layer
//! above sees every frame once and in order, or no more frames if the lease is over before.
//!
//! ```text
//! dialing side                          waiting side
//!  | frames 1..=7                      ->|  5 have come when the connection breaks
//!  |<- frames 1..=9                      |  all have come
//!  x                                     x
//!  | Ask { attempt: 1, received: 9 }   ->|  forgets 1..=9
//!  |<- Answer { received: 5 }            |
//!  | frames 6..=7                      ->|
//! ```
//!
//! Nothing here knows a socket or a clock. The code that reads and writes bytes calls
//! [`Session::handle`] and carries out the actions that it returns. That code keeps the bytes of
//! frames; the session keeps only their numbers and lengths.

use std::collections::VecDeque;
use std::time::Duration;
use thiserror::Error;

/// With this many kept bytes, the sender waits (or accepts no more work) until the other side has
/// acknowledged some.
pub const KEPT_BYTES_MAX: usize = 16 << 20;
/// The same for the number of frames. Half of what 16 bits of a number can tell apart.
pub const KEPT_FRAMES_MAX: usize = 1 << 14;
/// What a kept frame costs in addition to its bytes.
const FRAME_COST: usize = 64;
/// A side that has received this many bytes without sending anything acknowledges them.
const UNTOLD_BYTES_MAX: usize = 1 << 20;
/// The same for frames: far fewer than may be kept.
const UNTOLD_FRAMES_MAX: u64 = 1 << 12;

/// What a frame says beside its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The low bits of its number; 0 also for a frame without a number ([`Event::Frame`]).
    pub number: u16,
    /// The low bits of how many frames its sender has received.
    pub acknowledged: u32,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame of so many bytes was handed over for sending; it gets the next number.
    Send { bytes: usize },
    /// A frame came on the connection in use. A frame that only acknowledges has no number.
    Frame {
        stamp: Stamp,
        bytes: usize,
        numbered: bool,
    },
    /// The connection in use is lost.
    Broken,
    /// Dialing side: the connection that was dialed is there.
    Opened,
    /// Waiting side: a peer that has proved to be the other side asks on a new connection.
    Asked { attempt: u32, received: u64 },
    /// Dialing side: the answer.
    Answered { received: u64 },
    /// Time passes.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give up the connection in use.
    Close,
    /// Close the connection that has just come: it is not wanted.
    Reject,
    /// Forget kept frames up to this number.
    Forget { through: u64 },
    /// Dialing side: make a connection; say [`Event::Opened`] when it is there.
    Dial,
    /// Use the connection that has just come, and say this first on it.
    Ask { attempt: u32, received: u64 },
    /// The same on the waiting side.
    Answer { received: u64 },
    /// Write kept frames with these numbers to the connection in use.
    Write { first: u64, last: u64 },
    /// Write a frame that only acknowledges.
    Acknowledge,
    /// Hand the frame that came to the layer above.
    Deliver,
}

/// Actions of one event; there are never more than a few, so nothing is allocated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actions {
    list: [Option<Action>; 5],
    next: usize,
}

impl Actions {
    fn add(&mut self, action: Action) {
        if let Some(free) = self.list.iter_mut().find(|place| place.is_none()) {
            *free = Some(action);
        }
    }
}

impl Iterator for Actions {
    type Item = Action;

    fn next(&mut self) -> Option<Action> {
        let action = self.list.get(self.next).copied().flatten();
        self.next += 1;
        action
    }
}

/// The other side claims something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    #[error("The peer acknowledges frame {said}, and only {sent} were sent")]
    NeverSent { said: u64, sent: u64 },
    #[error("The peer wants frames from {said} on, and has acknowledged those up to {known}")]
    Forgotten { said: u64, known: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connected,
    /// No connection.
    Broken,
    /// Dialing side: asked at this time.
    Asking {
        since: Duration,
    },
}

/// Which side makes the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It also makes a new connection when it hears nothing on the old one, or no answer, for
    /// longer than `quiet`, because a connection may be dead without any sign.
    Dialing {
        quiet: Duration,
    },
    Waiting,
}

/// One side of a session that is under way.
#[derive(Debug)]
pub struct Session {
    side: Side,
    state: State,
    dialing: bool,
    /// Attempt number of the last question, ours or theirs.
    attempt: u32,
    sent: u64,
    acknowledged: u64,
    /// What each kept frame costs, in bytes; the oldest first.
    kept: VecDeque<usize>,
    kept_bytes: usize,
    received: u64,
    /// How many of the received frames were acknowledged to the other side.
    told: u64,
    untold_bytes: usize,
    heard: Duration,
}

impl Session {
    /// Begins with an open connection on which nothing was sent yet.
    #[must_use]
    pub fn new(now: Duration, side: Side) -> Self {
        Self {
            side,
            state: State::Connected,
            dialing: false,
            attempt: 0,
            sent: 0,
            acknowledged: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            received: 0,
            told: 0,
            untold_bytes: 0,
            heard: now,
        }
    }

    /// Handles an event; returns what is to be done about it.
    ///
    /// # Errors
    /// The other side breaks the protocol: the session is over.
    pub fn handle(&mut self, now: Duration, event: Event) -> Result<Actions, SessionError> {
        let mut actions = Actions::default();
        match event {
            Event::Send { bytes } => self.send(bytes, &mut actions),
            Event::Frame {
                stamp,
                bytes,
                numbered,
            } => self.frame(now, stamp, (bytes, numbered), &mut actions)?,
            Event::Broken => self.broken(&mut actions),
            Event::Opened => self.opened(now, &mut actions),
            Event::Asked { attempt, received } => {
                self.asked(now, attempt, received, &mut actions)?;
            }
            Event::Answered { received } => self.answered(now, received, &mut actions)?,
            Event::Tick => self.tick(now, &mut actions),
        }
        Ok(actions)
    }

    fn send(&mut self, bytes: usize, actions: &mut Actions) {
        self.sent += 1;
        self.kept.push_back(bytes + FRAME_COST);
        self.kept_bytes += bytes + FRAME_COST;
        if self.state == State::Connected {
            let number = self.sent;
            self.write(number, actions);
        }
    }

    /// Writes all frames from this number on. They also tell the other side how many we have
    /// received.
    fn write(&mut self, first: u64, actions: &mut Actions) {
        if first <= self.sent {
            let last = self.sent;
            actions.add(Action::Write { first, last });
            self.told = self.received;
            self.untold_bytes = 0;
        }
    }

    fn frame(
        &mut self,
        now: Duration,
        stamp: Stamp,
        (bytes, numbered): (usize, bool),
        actions: &mut Actions,
    ) -> Result<(), SessionError> {
        if self.state != State::Connected {
            // It came on a connection that is not in use any more.
            return Ok(());
        }
        self.heard = now;
        self.acknowledge(stamp.acknowledged, actions)?;
        if !numbered {
            return Ok(());
        }
        match ahead(stamp.number, self.received + 1) {
            0 => {
                self.received += 1;
                self.untold_bytes += bytes;
                actions.add(Action::Deliver);
                let untold = self.received - self.told;
                if self.untold_bytes >= UNTOLD_BYTES_MAX || untold >= UNTOLD_FRAMES_MAX {
                    actions.add(Action::Acknowledge);
                    self.told = self.received;
                    self.untold_bytes = 0;
                }
            }
            // It has come before.
            behind if behind < 0 => {}
            // A frame is missing, which a sound connection never causes. What else it brings is of
            // no use.
            _ => self.broken(actions),
        }
        Ok(())
    }

    fn acknowledge(&mut self, low: u32, actions: &mut Actions) -> Result<(), SessionError> {
        #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let known = self.acknowledged as u32;
        let more = low.wrapping_sub(known).cast_signed();
        // Less than is known: it was sent before a frame that overtook it.
        let Ok(more) = u64::try_from(more) else {
            return Ok(());
        };
        self.forget(self.acknowledged + more, actions)
    }

    fn forget(&mut self, through: u64, actions: &mut Actions) -> Result<(), SessionError> {
        if through > self.sent {
            return Err(SessionError::NeverSent {
                said: through,
                sent: self.sent,
            });
        }
        if through > self.acknowledged {
            for _ in self.acknowledged..through {
                self.kept_bytes -= self.kept.pop_front().unwrap_or(0);
            }
            self.acknowledged = through;
            actions.add(Action::Forget { through });
        }
        Ok(())
    }

    fn broken(&mut self, actions: &mut Actions) {
        if self.state != State::Broken {
            self.state = State::Broken;
            actions.add(Action::Close);
        }
        self.dial(actions);
    }

    fn dial(&mut self, actions: &mut Actions) {
        if matches!(self.side, Side::Dialing { .. }) && !self.dialing {
            self.dialing = true;
            actions.add(Action::Dial);
        }
    }

    fn opened(&mut self, now: Duration, actions: &mut Actions) {
        self.dialing = false;
        if self.state == State::Connected && !self.is_quiet(now) {
            // The old connection has come to life again.
            actions.add(Action::Reject);
            return;
        }
        if self.state != State::Broken {
            actions.add(Action::Close);
        }
        self.state = State::Asking { since: now };
        self.attempt += 1;
        actions.add(Action::Ask {
            attempt: self.attempt,
            received: self.received,
        });
        self.told = self.received;
        self.untold_bytes = 0;
    }

    fn asked(
        &mut self,
        now: Duration,
        attempt: u32,
        received: u64,
        actions: &mut Actions,
    ) -> Result<(), SessionError> {
        if self.side != Side::Waiting || attempt <= self.attempt {
            // A question of an earlier connection, that came late.
            actions.add(Action::Reject);
            return Ok(());
        }
        if received < self.acknowledged {
            return Err(SessionError::Forgotten {
                said: received,
                known: self.acknowledged,
            });
        }
        self.attempt = attempt;
        self.heard = now;
        if self.state != State::Broken {
            actions.add(Action::Close);
        }
        self.state = State::Connected;
        self.forget(received, actions)?;
        actions.add(Action::Answer {
            received: self.received,
        });
        self.told = self.received;
        self.untold_bytes = 0;
        self.write(received + 1, actions);
        Ok(())
    }

    fn answered(
        &mut self,
        now: Duration,
        received: u64,
        actions: &mut Actions,
    ) -> Result<(), SessionError> {
        if !matches!(self.state, State::Asking { .. }) {
            return Ok(());
        }
        if received < self.acknowledged {
            return Err(SessionError::Forgotten {
                said: received,
                known: self.acknowledged,
            });
        }
        self.state = State::Connected;
        self.heard = now;
        self.forget(received, actions)?;
        self.write(received + 1, actions);
        Ok(())
    }

    fn tick(&mut self, now: Duration, actions: &mut Actions) {
        let Side::Dialing { quiet } = self.side else {
            return;
        };
        match self.state {
            State::Broken => self.dial(actions),
            State::Connected if self.is_quiet(now) => self.dial(actions),
            State::Asking { since } if now.saturating_sub(since) > quiet => self.broken(actions),
            State::Connected | State::Asking { .. } => {}
        }
    }

    fn is_quiet(&self, now: Duration) -> bool {
        match self.side {
            Side::Dialing { quiet } => now.saturating_sub(self.heard) > quiet,
            Side::Waiting => false,
        }
    }

    /// The stamp of kept frame `number`, or of one without a number (0).
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    pub fn stamp(&self, number: u64) -> Stamp {
        Stamp {
            number: number as u16,
            acknowledged: self.received as u32,
        }
    }

    /// Whether the layer above should send no more for now. This is back pressure; nothing is lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept_bytes >= KEPT_BYTES_MAX || self.kept.len() >= KEPT_FRAMES_MAX
    }

    /// What is kept, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether frames can travel.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// When the other side was last heard of.
    #[must_use]
    pub fn heard(&self) -> Duration {
        self.heard
    }

    /// Whether the other side has all that was sent.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.acknowledged == self.sent
    }
}

/// How far a number is ahead of the number that is due.
fn ahead(number: u16, due: u64) -> i16 {
    #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    let due = due as u16;
    number.wrapping_sub(due).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(1);
    const SEND: Event = Event::Send { bytes: 100 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn dialing() -> Session {
        Session::new(Duration::ZERO, Side::Dialing { quiet: QUIET })
    }

    fn waiting() -> Session {
        Session::new(Duration::ZERO, Side::Waiting)
    }

    fn all(session: &mut Session, now: Duration, event: Event) -> Vec<Action> {
        session.handle(now, event).expect("no fault").collect()
    }

    fn frame(number: u64, acknowledged: u64) -> Event {
        let low = Session {
            received: acknowledged,
            ..dialing()
        };
        Event::Frame {
            stamp: low.stamp(number),
            bytes: 100,
            numbered: number > 0,
        }
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again() {
        let mut home = dialing();
        for number in 1..=7 {
            let written = Action::Write {
                first: number,
                last: number,
            };
            assert_eq!(all(&mut home, at(1), SEND), [written]);
        }
        let forget = Action::Forget { through: 3 };
        assert_eq!(
            all(&mut home, at(2), frame(1, 3)),
            [forget, Action::Deliver]
        );
        let broken = all(&mut home, at(3), Event::Broken);
        assert_eq!(broken, [Action::Close, Action::Dial]);
        assert_eq!(all(&mut home, at(3), SEND), [], "it is kept for later");
        let ask = Action::Ask {
            attempt: 1,
            received: 1,
        };
        assert_eq!(all(&mut home, at(4), Event::Opened), [ask]);
        let answered = all(&mut home, at(5), Event::Answered { received: 5 });
        let rest = Action::Write { first: 6, last: 8 };
        assert_eq!(answered, [Action::Forget { through: 5 }, rest]);
        assert!(home.is_connected() && !home.is_settled());
        all(&mut home, at(6), frame(0, 8));
        assert!(home.is_settled());
    }

    #[test]
    fn the_waiting_side_answers_newer_questions_only() {
        let mut guest = waiting();
        all(&mut guest, at(1), SEND);
        all(&mut guest, at(1), frame(1, 0));
        let ask = |attempt, received| Event::Asked { attempt, received };
        // Home knows of the break first; the old connection is given up for the new one.
        let answered = all(&mut guest, at(2), ask(2, 0));
        let answer = Action::Answer { received: 1 };
        let again = Action::Write { first: 1, last: 1 };
        assert_eq!(answered, [Action::Close, answer, again]);
        assert_eq!(all(&mut guest, at(3), ask(1, 0)), [Action::Reject]);
        assert_eq!(all(&mut guest, at(3), ask(2, 0)), [Action::Reject]);
        assert_eq!(
            guest.handle(at(4), ask(3, 9)).expect_err("never sent"),
            SessionError::NeverSent { said: 9, sent: 1 }
        );
    }

    #[test]
    fn frames_that_come_twice_are_dropped_and_gaps_break_the_connection() {
        let mut guest = waiting();
        assert_eq!(all(&mut guest, at(1), frame(1, 0)), [Action::Deliver]);
        assert_eq!(all(&mut guest, at(1), frame(1, 0)), []);
        assert_eq!(all(&mut guest, at(1), frame(3, 0)), [Action::Close]);
        assert_eq!(
            all(&mut guest, at(1), frame(2, 0)),
            [],
            "of a lost connection"
        );
    }

    #[test]
    fn silence_and_an_unanswered_question_lead_to_another_connection() {
        let mut home = dialing();
        assert_eq!(all(&mut home, at(900), Event::Tick), []);
        assert_eq!(all(&mut home, at(1100), Event::Tick), [Action::Dial]);
        assert_eq!(all(&mut home, at(1200), Event::Tick), []);
        all(&mut home, at(1300), frame(1, 0));
        assert_eq!(all(&mut home, at(1400), Event::Opened), [Action::Reject]);
        assert_eq!(all(&mut home, at(2400), Event::Tick), [Action::Dial]);
        let ask = Action::Ask {
            attempt: 1,
            received: 1,
        };
        let opened = all(&mut home, at(2500), Event::Opened);
        assert_eq!(opened, [Action::Close, ask]);
        assert_eq!(all(&mut home, at(3400), Event::Tick), []);
        let late = all(&mut home, at(3600), Event::Tick);
        assert_eq!(late, [Action::Close, Action::Dial]);
    }

    #[test]
    fn a_long_one_sided_flow_is_acknowledged_and_bounded() {
        let (mut home, mut guest) = (dialing(), waiting());
        let bytes = 128 << 10;
        let mut unacknowledged = 0;
        for _ in 0..1000 {
            all(&mut home, at(1), Event::Send { bytes });
            assert!(!home.is_full());
            let event = Event::Frame {
                stamp: home.stamp(home.sent),
                bytes,
                numbered: true,
            };
            unacknowledged += bytes;
            if all(&mut guest, at(1), event).contains(&Action::Acknowledge) {
                assert!(unacknowledged <= UNTOLD_BYTES_MAX);
                unacknowledged = 0;
                let event = Event::Frame {
                    stamp: guest.stamp(0),
                    bytes: 0,
                    numbered: false,
                };
                all(&mut home, at(1), event);
            }
        }
        let mut count = 0;
        while !home.is_full() {
            all(&mut home, at(1), Event::Send { bytes });
            count += 1;
        }
        assert!(count * bytes <= KEPT_BYTES_MAX);
    }

    #[test]
    fn frames_that_are_kept_are_bounded() {
        let mut home = dialing();
        for _ in 1..KEPT_FRAMES_MAX {
            all(&mut home, at(1), Event::Send { bytes: 0 });
        }
        assert!(!home.is_full(), "one more may be kept");
        all(&mut home, at(1), Event::Send { bytes: 0 });
        assert!(home.is_full() && home.kept_bytes() < KEPT_BYTES_MAX);
        all(&mut home, at(2), frame(0, 1));
        assert!(!home.is_full(), "the other side has one of them");
    }

    #[test]
    fn numbers_go_on_behind_the_end_of_their_bits() {
        let (mut home, mut guest) = (dialing(), waiting());
        for session in [&mut home, &mut guest] {
            let many = u64::from(u32::MAX) - 2;
            (session.sent, session.acknowledged) = (many, many);
            (session.received, session.told) = (many, many);
        }
        for _ in 0..70_000u32 {
            all(&mut home, at(1), SEND);
            let event = Event::Frame {
                stamp: home.stamp(home.sent),
                bytes: 100,
                numbered: true,
            };
            assert!(all(&mut guest, at(1), event).contains(&Action::Deliver));
            all(
                &mut home,
                at(1),
                Event::Frame {
                    stamp: guest.stamp(0),
                    bytes: 0,
                    numbered: false,
                },
            );
            assert!(home.is_settled());
        }
    }
}
