//! A host and its guest, as far as they decide anything.

use whim_journey::fuzz::thread::{Thread, ThreadImage};
use whim_journey::session::{Event as LineEvent, Side};
use whim_journey::stay::{Action, Event, Stay};
use whim_system_tests::{Result, bail, ensure};

use super::wire::{Frame, Line, Message};
use super::world::{LEASE, What, World};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Host {
    pub epoch: u32,
    stay: Stay,
    line: Option<Line>,
    threads: Vec<Thread>,
    over: bool,
    rebuilt: bool,
    /// Where the guest goes (none: home) as soon as nothing is settling.
    wanted: Option<Option<u32>>,
    ticked: Duration,
    /// It has ended the guest after so long a silence, although that could go on if home wants it.
    deserted: Option<Duration>,
    /// Home has said what it must not.
    refused: Option<Event>,
}

impl Host {
    pub(super) fn new(world: &World, epoch: u32) -> Self {
        let lease = Some(Duration::from_micros(LEASE));
        Self {
            epoch,
            stay: Stay::new(world.clock(epoch as usize), lease),
            line: None,
            threads: Vec::new(),
            over: false,
            rebuilt: false,
            wanted: None,
            ticked: world.clock(epoch as usize),
            deserted: None,
            refused: None,
        }
    }

    fn now(&self, world: &World) -> Duration {
        world.clock(self.epoch as usize)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.stay.is_arriving()
    }

    fn send(&mut self, world: &mut World, message: Message) {
        let now = self.now(world);
        let mut out = Vec::new();
        if let Some(line) = &mut self.line {
            line.send(now, message, &mut out);
        }
        world.write(out, false);
    }

    pub(super) fn broken(&mut self, world: &mut World, connection: usize) {
        let now = self.now(world);
        if let Some(line) = &mut self.line
            && line.connection == Some(connection)
        {
            line.event(now, LineEvent::Broken, None, &mut Vec::new());
        }
    }

    pub(super) fn frame(
        &mut self,
        world: &mut World,
        connection: usize,
        frame: &Frame,
    ) -> Result<()> {
        if self.over {
            world.hang_up(connection, false);
            return Ok(());
        }
        let now = self.now(world);
        let line = self
            .line
            .get_or_insert_with(|| Line::new(now, Side::Waiting, connection));
        let before = line.connection;
        let mut out = Vec::new();
        let message = line.receive(now, connection, frame, &mut out)?;
        let after = line.connection;
        world.write(out, false);
        if let Some(closed) = before.filter(|_| before != after) {
            world.hang_up(closed, false);
        }
        match message {
            Some(message) => self.message(world, message),
            None => Ok(()),
        }
    }

    fn message(&mut self, world: &mut World, message: Message) -> Result<()> {
        let now = self.now(world);
        match message {
            Message::Prepare => self.send(world, Message::Prepared),
            Message::Image(image) => self.image(world, image)?,
            Message::Commit => self.events(world, Event::Commit),
            Message::Acknowledged => self.events(world, Event::Acknowledged),
            Message::Resume => {
                self.wanted = None;
                self.events(world, Event::Resume);
            }
            // One that lies does not let go of its guest.
            Message::Discard | Message::Freeze | Message::Onward(_) if self.lies(world) => {}
            Message::Discard => self.dismissed(world),
            Message::Heartbeat => {}
            Message::Freeze => self.wants(world, None),
            Message::Onward(to) => self.wants(world, Some(to)),
            Message::Reply {
                thread,
                sequence,
                done,
            } => self.reply(world, thread, sequence, done),
            other => bail!("{other:?} came to a host at {now:?}"),
        }
        Ok(())
    }

    pub(super) fn image(&mut self, world: &mut World, image: Vec<ThreadImage>) -> Result<()> {
        if self.over || self.rebuilt {
            return Ok(());
        }
        self.rebuilt = true;
        let epoch = self.epoch;
        let thread = |image: ThreadImage| Thread::new(image, epoch);
        self.threads = image.into_iter().map(thread).collect();
        self.send(world, Message::Ready);
        Ok(())
    }

    fn lies(&self, world: &World) -> bool {
        world.nodes[self.epoch as usize].lies
    }

    fn wants(&mut self, world: &mut World, destination: Option<u32>) {
        self.wanted = Some(destination);
        self.leave_if_settled(world);
    }

    fn leave_if_settled(&mut self, world: &mut World) {
        if self.threads.iter().any(Thread::is_settling) {
            return;
        }
        let Some(destination) = self.wanted.take() else {
            return;
        };
        let image = self.freeze(world);
        let Some(to) = destination else {
            return self.send(world, Message::Image(image));
        };
        // A connection of its own, without a session.
        if world.random.below(8) == 0 || world.nodes[to as usize].dead {
            self.send(world, Message::Failed);
        } else {
            let delay = world.some_ms(1, 60);
            world.after(delay, What::Source { to, image });
        }
    }

    fn freeze(&mut self, world: &mut World) -> Vec<ThreadImage> {
        self.events(world, Event::Leave);
        self.threads.iter_mut().map(Thread::leave).collect()
    }

    fn events(&mut self, world: &mut World, event: Event) {
        let now = self.now(world);
        let actions: Vec<Action> = self.stay.handle(now, event).collect();
        for action in actions {
            match action {
                Action::Start => {
                    self.send(world, Message::Started);
                    self.go_on(world);
                }
                Action::Flow | Action::Release | Action::Thaw => self.go_on(world),
                Action::Beat => {
                    if self.line.as_ref().is_some_and(Line::is_connected) {
                        self.send(world, Message::Heartbeat);
                    }
                }
                Action::End => self.end(world),
                Action::Desert { silent } => {
                    let heard = self.line.as_ref().map(Line::heard);
                    let silent = heard.map_or(silent, |at| now.saturating_sub(at));
                    let node = self.epoch as usize;
                    let early = !world.has_listened(node, silent, 2 * LEASE);
                    self.deserted = (early || world.could_go_on(node, silent)).then_some(silent);
                    self.end(world);
                }
                Action::Refuse => self.refused = Some(event),
                Action::Hold => {}
            }
        }
    }

    fn go_on(&mut self, world: &mut World) {
        for thread in 0..self.threads.len() {
            let delay = world.some_ms(0, 20);
            let epoch = self.epoch;
            world.after(delay, What::HostWork { epoch, thread });
        }
    }

    fn end(&mut self, world: &mut World) {
        self.over = true;
        world.nodes[self.epoch as usize].empty = true;
        if let Some(connection) = self.line.take().and_then(|line| line.connection) {
            world.hang_up(connection, false);
        }
    }

    pub(super) fn dismissed(&mut self, world: &mut World) {
        let now = self.now(world);
        let _ = self.stay.handle(now, Event::Dismissed).count();
        self.over = true;
        world.nodes[self.epoch as usize].empty = true;
        self.line = None;
    }

    /// Looks at its clocks; false when it has ended.
    pub(super) fn tick(&mut self, world: &mut World) -> bool {
        let now = self.now(world);
        let duration = world.stall(std::mem::replace(&mut self.ticked, now), now);
        if let Some(at) = self.line.as_ref().map(Line::heard) {
            self.events(world, Event::Heard { at });
        }
        let connected = self.line.as_ref().is_some_and(Line::is_connected);
        self.events(world, Event::Connected(connected));
        self.events(world, Event::Stalled { duration });
        self.events(world, Event::Tick);
        !self.over
    }

    /// Says what home and this host may not have done so far.
    pub(super) fn judge(&mut self, is_wanted: bool) -> Result<()> {
        if let Some(event) = self.refused.take() {
            bail!("Home says {event:?} to a host that has to refuse it: {self:?}");
        }
        if let Some(silent) = self.deserted.take() {
            ensure!(
                !is_wanted,
                "A host ends its guest after {silent:?}, although the program could go on"
            );
        }
        Ok(())
    }

    pub(super) fn work(&mut self, world: &mut World, index: usize) {
        if self.over || !self.stay.may_forward() || self.wanted.is_some() {
            return;
        }
        let is_call = world.random.below(6) > 0;
        if let Some(asking) = self.threads[index].work(is_call) {
            let thread = index;
            self.send(world, Message::Asks { thread, asking });
        }
    }

    fn reply(&mut self, world: &mut World, index: usize, sequence: u64, done: bool) {
        if !self.threads[index].answered(sequence, done) {
            return;
        }
        let (delay, epoch) = (world.some_ms(5, 90), self.epoch);
        world.after(
            delay,
            What::HostWork {
                epoch,
                thread: index,
            },
        );
        self.leave_if_settled(world);
    }
}
