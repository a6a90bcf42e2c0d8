//! Connections that lose, double, delay and reorder frames, and sessions over them.

use std::collections::VecDeque;
use std::time::Duration;

use whim_journey::session::{Action, Actions, Event, Session, SessionError, Side, Stamp};

/// Of a thread: the serial number of its next effect, and the call it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadImage {
    pub next: u64,
    pub awaited: Option<u64>,
}

/// What home and a host say to each other, as far as it matters here.
#[derive(Clone, Debug)]
pub enum Message {
    Prepare,
    Prepared,
    Image(Vec<ThreadImage>),
    Ready,
    Commit,
    Started,
    Acknowledged,
    Call {
        thread: usize,
        sequence: u64,
        serial: u64,
    },
    Await {
        thread: usize,
        sequence: u64,
        awaited: u64,
    },
    /// Anything else that has an effect: it is done and answered at once.
    Other {
        thread: usize,
        sequence: u64,
        serial: u64,
    },
    /// `done`: it had its effect; otherwise it is to be made again.
    Reply {
        thread: usize,
        sequence: u64,
        done: bool,
    },
    Freeze,
    Onward(u32),
    Failed,
    Resume,
    Discard,
    Heartbeat,
}

#[derive(Clone, Debug)]
pub enum Body {
    Message(Message),
    Acknowledgement,
    Ask { attempt: u32, received: u64 },
    Answer { received: u64 },
    Goodbye,
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub stamp: Stamp,
    pub body: Body,
}

/// One end of a line: the production's session, and what it leaves to its user.
#[derive(Debug)]
pub struct Line {
    session: Session,
    kept: VecDeque<Message>,
    forgotten: u64,
    /// The connection in use.
    pub connection: Option<usize>,
    pub dials: bool,
}

impl Line {
    pub fn new(now: Duration, side: Side, connection: usize) -> Self {
        Self {
            session: Session::new(now, side),
            kept: VecDeque::new(),
            forgotten: 0,
            connection: Some(connection),
            dials: false,
        }
    }

    pub fn heard(&self) -> Duration {
        self.session.heard()
    }

    pub fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    /// Sends a message; frames for the wire are added to `out`.
    pub fn send(&mut self, now: Duration, message: Message, out: &mut Vec<(usize, Frame)>) {
        self.kept.push_back(message);
        let event = Event::Send { bytes: 100 };
        let actions = self.session.handle(now, event).expect("our own sending");
        self.carry_out(actions, None, out);
    }

    /// Takes what came by a connection; a message for those above comes back.
    pub fn receive(
        &mut self,
        now: Duration,
        connection: usize,
        frame: &Frame,
        out: &mut Vec<(usize, Frame)>,
    ) -> Result<Option<Message>, SessionError> {
        let event = match frame.body {
            Body::Ask { attempt, received } => Event::Asked { attempt, received },
            _ if self.connection != Some(connection) => return Ok(None),
            Body::Answer { received } => Event::Answered { received },
            _ => Event::Frame {
                stamp: frame.stamp,
                bytes: 100,
                numbered: matches!(frame.body, Body::Message(_)),
            },
        };
        let actions = self.session.handle(now, event)?;
        let deliver = self.carry_out(actions, Some(connection), out);
        Ok(match &frame.body {
            Body::Message(message) if deliver => Some(message.clone()),
            _ => None,
        })
    }

    pub fn event(
        &mut self,
        now: Duration,
        event: Event,
        fresh: Option<usize>,
        out: &mut Vec<(usize, Frame)>,
    ) {
        let actions = self
            .session
            .handle(now, event)
            .expect("nothing of a peer's");
        self.carry_out(actions, fresh, out);
    }

    fn carry_out(
        &mut self,
        actions: Actions,
        fresh: Option<usize>,
        out: &mut Vec<(usize, Frame)>,
    ) -> bool {
        let mut deliver = false;
        for action in actions {
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
                        let message = self.kept[place].clone();
                        self.write(number, Body::Message(message), out);
                    }
                }
                Action::Acknowledge => self.write(0, Body::Acknowledgement, out),
                Action::Deliver => deliver = true,
            }
        }
        deliver
    }

    pub fn write(&self, number: u64, body: Body, out: &mut Vec<(usize, Frame)>) {
        if let Some(connection) = self.connection {
            let stamp = self.session.stamp(number);
            out.push((connection, Frame { stamp, body }));
        }
    }
}
