//! A host and its guest of one thread.

use std::time::Duration;

use super::say::{Line, Say, Sent, Way};
use super::sequence::LEASE;
use super::thread::{Thread, ThreadImage};
use crate::session::{self, Side};
use crate::stay::{Action, Event, Stay};

#[derive(Debug)]
pub(super) struct FuzzedHost {
    stay: Stay,
    pub(super) line: Line,
    /// Frames on their way to it.
    pub(super) inward: Way,
    epoch: u32,
    thread: Thread,
    rebuilt: bool,
    pub(super) over: bool,
    /// Where the guest is to go (none: home) as soon as nothing is settling.
    wanted: Option<Option<usize>>,
    /// An image on its way to another host.
    pub(super) onward: Option<(usize, ThreadImage)>,
}

impl FuzzedHost {
    pub(super) fn new(now: Duration, epoch: u32) -> Self {
        Self {
            stay: Stay::new(now, Some(LEASE)),
            line: Line::new(now, Side::Waiting, 0),
            inward: Way::new(),
            epoch,
            thread: Thread::new(ThreadImage::default(), epoch),
            rebuilt: false,
            over: false,
            wanted: None,
            onward: None,
        }
    }

    pub(super) fn may_forward(&self) -> bool {
        !self.over && self.stay.may_forward()
    }

    fn send(&mut self, now: Duration, say: Say, out: &mut Way) {
        self.line.send(now, say, out);
    }

    pub(super) fn frame(&mut self, now: Duration, (connection, frame): &Sent, out: &mut Way) {
        if self.over {
            return;
        }
        let said = self.line.receive(now, *connection, frame, out);
        match said.expect("home keeps to the protocol") {
            None | Some(Say::Heartbeat) => {}
            Some(Say::Prepare) => self.send(now, Say::Prepared, out),
            Some(Say::Image(image)) => self.image(now, image, out),
            Some(Say::Commit) => self.event(now, Event::Commit, out),
            Some(Say::Acknowledged) => self.event(now, Event::Acknowledged, out),
            Some(Say::Resume) => {
                self.wanted = None;
                self.event(now, Event::Resume, out);
            }
            Some(Say::Discard) => self.event(now, Event::Dismissed, out),
            Some(Say::Freeze) => self.wants(now, None, out),
            Some(Say::Onward(to)) => self.wants(now, Some(to), out),
            Some(Say::Reply { sequence, done }) => self.reply(now, sequence, done, out),
            Some(other) => panic!("{other:?} came to a host"),
        }
    }

    pub(super) fn image(&mut self, now: Duration, image: ThreadImage, out: &mut Way) {
        if self.over || self.rebuilt {
            return;
        }
        self.rebuilt = true;
        self.thread = Thread::new(image, self.epoch);
        self.send(now, Say::Ready, out);
    }

    fn wants(&mut self, now: Duration, to: Option<usize>, out: &mut Way) {
        self.wanted = Some(to);
        self.leave_if_settled(now, out);
    }

    fn leave_if_settled(&mut self, now: Duration, out: &mut Way) {
        if self.thread.is_settling() {
            return;
        }
        let Some(to) = self.wanted.take() else {
            return;
        };
        self.event(now, Event::Leave, out);
        let image = self.thread.leave();
        match to {
            None => self.send(now, Say::Image(image), out),
            Some(to) => self.onward = Some((to, image)),
        }
    }

    /// The way to the next host is broken.
    pub(super) fn cannot_send(&mut self, now: Duration, out: &mut Way) {
        self.send(now, Say::Failed, out);
    }

    pub(super) fn event(&mut self, now: Duration, event: Event, out: &mut Way) {
        let actions: Vec<Action> = self.stay.handle(now, event).collect();
        for action in actions {
            match action {
                Action::Start => self.send(now, Say::Started, out),
                Action::Beat if self.line.is_connected() => self.send(now, Say::Heartbeat, out),
                Action::End | Action::Desert { .. } => self.over = true,
                Action::Refuse => panic!("home says {event:?} to a host that has to refuse it"),
                _ => {}
            }
        }
    }

    pub(super) fn tick(&mut self, now: Duration, out: &mut Way) {
        if self.over {
            return;
        }
        let at = self.line.heard();
        self.event(now, Event::Heard { at }, out);
        self.event(now, Event::Connected(self.line.is_connected()), out);
        self.event(now, Event::Tick, out);
        self.line.event(now, session::Event::Tick, None, out);
    }

    /// The guest goes on by a step.
    pub(super) fn work(&mut self, now: Duration, is_call: bool, out: &mut Way) {
        if !self.may_forward() || self.wanted.is_some() {
            return;
        }
        if let Some(asking) = self.thread.work(is_call) {
            self.send(now, Say::Asks(asking), out);
        }
    }

    fn reply(&mut self, now: Duration, answered: u64, done: bool, out: &mut Way) {
        if self.thread.answered(answered, done) {
            self.leave_if_settled(now, out);
        }
    }
}
