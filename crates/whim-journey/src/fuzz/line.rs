//! One end of a line between home and a host: a session, and what it leaves to its user.

use std::collections::VecDeque;
use std::time::Duration;

use crate::session::{Action, Event, KEPT_FRAMES_MAX, Session, Side, Stamp};

/// What home and a host say to each other, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Say {
    Prepare,
    Prepared,
    Image(Image),
    Ready,
    Commit,
    Started,
    Acknowledged,
    Call { sequence: u64, serial: u64 },
    Await { sequence: u64, awaited: u64 },
    Other { sequence: u64, serial: u64 },
    Reply { sequence: u64, done: bool },
    Freeze,
    Onward(usize),
    Failed,
    Resume,
    Discard,
    Heartbeat,
}

/// Of a thread: the serial number of its next effect, and the call that it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Image {
    pub(super) next: u64,
    pub(super) awaited: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    Say(Say),
    Acknowledgement,
    Ask { attempt: u32, received: u64 },
    Answer { received: u64 },
}

/// A frame on its way by a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    connection: u32,
    stamp: Stamp,
    body: Body,
}

#[derive(Debug)]
pub(super) struct Line {
    session: Session,
    kept: VecDeque<Say>,
    forgotten: u64,
    connection: Option<u32>,
    /// It wants a new connection.
    pub(super) dials: bool,
}

impl Line {
    pub(super) fn new(now: Duration, side: Side) -> Self {
        Self {
            session: Session::new(now, side),
            kept: VecDeque::new(),
            forgotten: 0,
            connection: Some(0),
            dials: false,
        }
    }

    pub(super) fn heard(&self) -> Duration {
        self.session.heard()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    pub(super) fn send(&mut self, now: Duration, say: Say, out: &mut VecDeque<Frame>) {
        self.kept.push_back(say);
        self.event(now, Event::Send { bytes: 100 }, None, out);
    }

    /// Takes what has come by a connection; what those above are told comes back.
    pub(super) fn receive(
        &mut self,
        now: Duration,
        frame: &Frame,
        out: &mut VecDeque<Frame>,
    ) -> Option<Say> {
        let event = match frame.body {
            Body::Ask { attempt, received } => Event::Asked { attempt, received },
            _ if self.connection != Some(frame.connection) => return None,
            Body::Answer { received } => Event::Answered { received },
            _ => Event::Frame {
                stamp: frame.stamp,
                bytes: 100,
                numbered: matches!(frame.body, Body::Say(_)),
            },
        };
        let deliver = self.event(now, event, Some(frame.connection), out);
        match frame.body {
            Body::Say(say) if deliver => Some(say),
            _ => None,
        }
    }

    /// Whether what has come is for those above.
    pub(super) fn event(
        &mut self,
        now: Duration,
        event: Event,
        fresh: Option<u32>,
        out: &mut VecDeque<Frame>,
    ) -> bool {
        let actions = self.session.handle(now, event);
        let mut deliver = false;
        for action in actions.expect("both sides keep to the protocol") {
            match action {
                Action::Close => self.connection = None,
                Action::Reject => {}
                Action::Forget { through } => {
                    while self.forgotten < through {
                        self.kept.pop_front().expect("it is kept");
                        self.forgotten += 1;
                    }
                }
                Action::Dial => self.dials = true,
                Action::Ask { attempt, received } => {
                    self.connection = fresh;
                    self.write(0, Body::Ask { attempt, received }, out);
                }
                Action::Answer { received } => {
                    self.connection = fresh;
                    self.write(0, Body::Answer { received }, out);
                }
                Action::Write { first, last } => {
                    for number in first..=last {
                        let place = usize::try_from(number - self.forgotten - 1).expect("small");
                        self.write(number, Body::Say(self.kept[place]), out);
                    }
                }
                Action::Acknowledge => self.write(0, Body::Acknowledgement, out),
                Action::Deliver => deliver = true,
            }
        }
        assert!(self.kept.len() <= KEPT_FRAMES_MAX);
        assert_eq!(self.session.is_settled(), self.kept.is_empty());
        deliver
    }

    fn write(&self, number: u64, body: Body, out: &mut VecDeque<Frame>) {
        if let Some(connection) = self.connection {
            let stamp = self.session.stamp(number);
            out.push_back(Frame {
                connection,
                stamp,
                body,
            });
        }
    }
}
