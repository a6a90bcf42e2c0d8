//! One end of a line between home and a host: the session that is used in production, and what the
//! session leaves to its user. The fuzz target of sequences is built on it, and so are the
//! schedules of the system tests.

use std::collections::VecDeque;
use std::time::Duration;

use crate::session::{Action, Actions, Event, KEPT_FRAMES_MAX, Session, SessionError, Side, Stamp};

#[derive(Clone, Copy, Debug)]
pub enum Body<M> {
    Message(M),
    Acknowledgement,
    Ask {
        attempt: u32,
        received: u64,
    },
    Answer {
        received: u64,
    },
    /// The other side has given the line up.
    Goodbye,
}

#[derive(Clone, Copy, Debug)]
pub struct Frame<M> {
    stamp: Stamp,
    pub body: Body<M>,
}

/// One end. Its methods add frames for the wire to `out`, each with the connection that it takes.
#[derive(Debug)]
pub struct Line<M> {
    session: Session,
    kept: VecDeque<M>,
    forgotten: u64,
    /// The connection in use.
    pub connection: Option<usize>,
    /// It wants a new connection.
    pub dials: bool,
}

impl<M: Clone> Line<M> {
    #[must_use]
    pub fn new(now: Duration, side: Side, connection: usize) -> Self {
        Self {
            session: Session::new(now, side),
            kept: VecDeque::new(),
            forgotten: 0,
            connection: Some(connection),
            dials: false,
        }
    }

    #[must_use]
    pub fn heard(&self) -> Duration {
        self.session.heard()
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    pub fn send(&mut self, now: Duration, message: M, out: &mut impl Extend<(usize, Frame<M>)>) {
        self.kept.push_back(message);
        self.event(now, Event::Send { bytes: 100 }, None, out);
    }

    /// Handles a frame that has come by a connection; returns a message for the layer above, if it
    /// brought one.
    ///
    /// # Errors
    /// The other side does not keep to the protocol.
    pub fn receive(
        &mut self,
        now: Duration,
        connection: usize,
        frame: &Frame<M>,
        out: &mut impl Extend<(usize, Frame<M>)>,
    ) -> Result<Option<M>, SessionError> {
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

    /// Handles an event that the other side did not cause; `fresh` is the new connection, if the
    /// event is about one.
    ///
    /// # Panics
    /// When the session refuses the event: that would be an error of the session itself.
    pub fn event(
        &mut self,
        now: Duration,
        event: Event,
        fresh: Option<usize>,
        out: &mut impl Extend<(usize, Frame<M>)>,
    ) {
        let actions = self.session.handle(now, event);
        self.carry_out(actions.expect("nothing of a peer's"), fresh, out);
    }

    /// Carries out the actions; returns whether the frame that has come is for the layer above.
    fn carry_out(
        &mut self,
        actions: Actions,
        fresh: Option<usize>,
        out: &mut impl Extend<(usize, Frame<M>)>,
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
        assert!(self.kept.len() <= KEPT_FRAMES_MAX);
        assert_eq!(self.session.is_settled(), self.kept.is_empty());
        deliver
    }

    /// Sends a goodbye, if there is a connection for it.
    pub fn say_goodbye(&self, out: &mut impl Extend<(usize, Frame<M>)>) {
        self.write(0, Body::Goodbye, out);
    }

    fn write(&self, number: u64, body: Body<M>, out: &mut impl Extend<(usize, Frame<M>)>) {
        if let Some(connection) = self.connection {
            let stamp = self.session.stamp(number);
            out.extend([(connection, Frame { stamp, body })]);
        }
    }
}
