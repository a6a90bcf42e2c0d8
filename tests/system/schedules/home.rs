//! Home: the program while it is here, and its deputy while it is away.

use std::collections::BTreeMap;
use std::time::Duration;

use whim_journey::commit::{Action as MoveAction, Event as MoveEvent, Limits, Move, Step};
use whim_journey::fuzz::thread::{Asking, ThreadImage};
use whim_journey::lease::{Action as WatchAction, Event as WatchEvent, Watch};
use whim_journey::recall::{Cut, Event as RecallEvent, RECALL_GRACE, Recall};
use whim_journey::session::{Event as LineEvent, Side};
use whim_journey::turn::{Request, Turn, Verdict};
use whim_system_tests::{Result, ensure};

use super::wire::{Frame, Line, Message};
use super::world::{LEASE, TICK, What, World};

/// Home gives up a transfer that stands still for so long (a minute would be longer than a schedule).
const SILENT: Duration = Duration::from_micros(3 * LEASE);
const LEASE_TIME: Duration = Duration::from_micros(LEASE);

/// A call that the deputy executes.
#[derive(Clone, Copy, Debug)]
struct Active {
    sequence: u64,
    asked_by: Option<u64>,
    serial: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Caller {
    turn: Turn,
    active: Option<Active>,
    /// Its number, and whether it had its effect.
    finished: Option<(u64, bool)>,
}

/// Where the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    /// Frozen here, on its way out.
    Leaving,
    Away(u32),
    Ended,
}

#[derive(Debug)]
pub(super) struct Home {
    place: Place,
    /// What the threads are to do next, at home.
    threads: Vec<ThreadImage>,
    callers: Vec<Caller>,
    lines: BTreeMap<u32, Line>,
    going: Option<(u32, Move)>,
    watch: Option<Watch>,
    homeward: bool,
    /// Since when the present host is called upon to send it home.
    called: Option<Duration>,
    recall: Recall,
    /// When the host was removed, by home's clock.
    removed: Option<Duration>,
    /// Rises whenever the program begins to run here.
    turn: u32,
    epochs: u32,
    /// The last epoch that is on the disk.
    journal: u32,
    lost: bool,
    ticked: Duration,
}

impl Home {
    pub(super) fn new(world: &mut World) -> Self {
        let count = world.ledger.len();
        let mut home = Self {
            place: Place::Leaving,
            threads: vec![
                ThreadImage {
                    next: 1,
                    awaited: None
                };
                count
            ],
            callers: vec![Caller::default(); count],
            lines: BTreeMap::new(),
            going: None,
            watch: None,
            homeward: false,
            called: None,
            recall: Recall::new(Some(LEASE_TIME)),
            removed: None,
            turn: 0,
            epochs: 0,
            journal: 0,
            lost: false,
            ticked: world.clock(0),
        };
        home.runs_here(world);
        home
    }

    /// Whether the program has ended, and whether that was allowed.
    pub(super) fn fate(&self) -> (bool, bool) {
        (self.place == Place::Ended, self.lost)
    }

    pub(super) fn is_at(&self, epoch: u32) -> bool {
        self.place == Place::Away(epoch)
    }

    fn runs_here(&mut self, world: &mut World) {
        self.place = Place::Home;
        self.turn += 1;
        self.watch = None;
        self.homeward = false;
        self.called = None;
        self.recall = Recall::new(Some(LEASE_TIME));
        self.removed = None;
        for thread in 0..self.threads.len() {
            let (delay, turn) = (world.some_ms(0, 40), self.turn);
            world.after(delay, What::HomeWork { thread, turn });
        }
    }

    /// A thread's own call, while the program is here.
    pub(super) fn work(&mut self, world: &mut World, thread: usize, turn: u32) -> Result<()> {
        if self.place != Place::Home || self.turn != turn {
            return Ok(());
        }
        let image = &mut self.threads[thread];
        world.effect(thread, image.next)?;
        image.next += 1;
        let delay = world.some_ms(10, 120);
        world.after(delay, What::HomeWork { thread, turn });
        Ok(())
    }

    /// The epoch of a move that somebody wants now, or nothing if the wish is for home or refused.
    pub(super) fn wishes(&mut self, world: &mut World) -> Option<u32> {
        if world.nodes[0].dead || world.now < world.nodes[0].paused_until || world.is_cut() {
            return None;
        }
        let free = self.going.is_none() && !self.homeward;
        match self.place {
            Place::Away(epoch) if free && world.random.below(2) == 0 => {
                self.calls_home(world, epoch);
                None
            }
            Place::Away(_) if self.recall.is_removed() => None,
            Place::Home | Place::Away(_) if free => {
                self.epochs += 1;
                Some(self.epochs)
            }
            _ => None,
        }
    }

    fn calls_home(&mut self, world: &mut World, epoch: u32) {
        self.homeward = true;
        self.called.get_or_insert(world.clock(0));
        let _ = self.recall.handle(world.clock(0), RecallEvent::Called);
        self.send(world, epoch, Message::Freeze);
    }

    /// The host at which the program is was removed from the cluster.
    pub(super) fn removes(&mut self, world: &mut World) -> Result<()> {
        let Place::Away(epoch) = self.place else {
            return Ok(());
        };
        let now = world.clock(0);
        self.removed = Some(now);
        let _ = self.recall.handle(now, RecallEvent::Removed);
        let early = |going: &Move| matches!(going.step(), Step::Preparing | Step::Transferring);
        if self.going.as_ref().is_some_and(|(_, going)| early(going)) {
            self.moves(world, MoveEvent::Failed)?;
        } else if self.going.is_none() && !self.homeward {
            self.calls_home(world, epoch);
        }
        Ok(())
    }

    /// What a host that was removed has done ends within a lease and the grace, for as long as home looks.
    fn is_in_time(&self, world: &World) -> Result<()> {
        let Some(removed) = self.removed else {
            return Ok(());
        };
        let since = world.clock(0).saturating_sub(removed);
        let grace = u64::try_from(RECALL_GRACE.as_micros())?;
        ensure!(
            !world.has_listened(0, since, LEASE + grace + 2 * TICK),
            "A host that was removed has an effect after {since:?}"
        );
        Ok(())
    }

    pub(super) fn begin(&mut self, world: &mut World, epoch: u32) -> Result<()> {
        let Some(connection) = world.connect(epoch) else {
            return Ok(());
        };
        let (now, quiet) = (world.clock(0), LEASE_TIME / 3);
        let line = Line::new(now, Side::Dialing { quiet }, connection);
        self.lines.insert(epoch, line);
        let limits = Limits {
            silent: SILENT,
            still: Some(SILENT),
            ..Limits::of(Some(LEASE_TIME))
        };
        self.going = Some((epoch, Move::new(now, limits)));
        self.send(world, epoch, Message::Prepare);
        Ok(())
    }

    fn send(&mut self, world: &mut World, epoch: u32, message: Message) {
        let now = world.clock(0);
        let mut out = Vec::new();
        if let Some(line) = self.lines.get_mut(&epoch) {
            line.send(now, message, &mut out);
        }
        world.write(out, true);
    }

    /// What the session of a line wants of the world.
    fn see_to(&mut self, world: &mut World, epoch: u32, before: Option<usize>) {
        let Some(line) = self.lines.get_mut(&epoch) else {
            return;
        };
        if let Some(closed) = before.filter(|_| line.connection != before) {
            world.hang_up(closed, true);
        }
        if std::mem::take(&mut line.dials) {
            let delay = world.some_ms(1, 10);
            world.after(delay, What::Dial(epoch));
        }
    }

    /// The line is given up; the host is told, if there is a way.
    fn drop_line(&mut self, world: &mut World, epoch: u32) {
        let Some(line) = self.lines.remove(&epoch) else {
            return;
        };
        let mut out = Vec::new();
        line.say_goodbye(&mut out);
        world.write(out, true);
    }

    pub(super) fn dial(&mut self, world: &mut World, epoch: u32) -> Result<()> {
        if !self.lines.contains_key(&epoch) {
            return Ok(());
        }
        let Some(connection) = world.connect(epoch) else {
            let delay = world.some_ms(20, 250);
            world.after(delay, What::Dial(epoch));
            return Ok(());
        };
        let now = world.clock(0);
        let mut out = Vec::new();
        let mut before = None;
        if let Some(line) = self.lines.get_mut(&epoch) {
            before = line.connection;
            line.event(now, LineEvent::Opened, Some(connection), &mut out);
            if line.connection != Some(connection) {
                world.hang_up(connection, true);
            }
        }
        world.write(out, true);
        self.see_to(world, epoch, before);
        Ok(())
    }

    pub(super) fn broken(&mut self, world: &mut World, epoch: u32, connection: usize) {
        let now = world.clock(0);
        if let Some(line) = self.lines.get_mut(&epoch)
            && line.connection == Some(connection)
        {
            line.event(now, LineEvent::Broken, None, &mut Vec::new());
            self.see_to(world, epoch, Some(connection));
        }
    }

    pub(super) fn frame(
        &mut self,
        world: &mut World,
        epoch: u32,
        connection: usize,
        frame: &Frame,
    ) -> Result<()> {
        let now = world.clock(0);
        let Some(line) = self.lines.get_mut(&epoch) else {
            return Ok(());
        };
        let before = line.connection;
        let mut out = Vec::new();
        let message = line.receive(now, connection, frame, &mut out)?;
        world.write(out, true);
        self.see_to(world, epoch, before);
        let Some(message) = message else {
            return Ok(());
        };
        // A host may also repeat itself.
        let request = matches!(message, Message::Asks { .. });
        if request && world.random.below(50) == 0 {
            self.message(world, epoch, message.clone())?;
        }
        self.message(world, epoch, message)
    }

    fn message(&mut self, world: &mut World, epoch: u32, message: Message) -> Result<()> {
        let is_new = self.going.is_some_and(|(new, _)| new == epoch);
        match message {
            Message::Heartbeat => Ok(()),
            Message::Prepared => self.moves(world, MoveEvent::Prepared),
            Message::Ready => self.moves(world, MoveEvent::Ready),
            Message::Started => self.moves(world, MoveEvent::Started),
            Message::Failed => self.moves(world, MoveEvent::Failed),
            Message::Image(image) if !is_new => {
                let total = 1;
                let _ = self
                    .recall
                    .handle(world.clock(0), RecallEvent::Came { total });
                self.comes_home(world, epoch, &image)
            }
            Message::Asks { thread, asking } => self.asks(world, epoch, thread, asking),
            _ => self.moves(world, MoveEvent::Failed),
        }
    }

    fn asks(&mut self, world: &mut World, epoch: u32, thread: usize, asking: Asking) -> Result<()> {
        match asking {
            // It is made at home.
            Asking::Call { .. } if !self.recall.may_execute() => Ok(()),
            Asking::Call { sequence, serial } => {
                ensure!(self.is_at(epoch), "A call of epoch {epoch} is taken");
                self.call(world, thread, sequence, serial)
            }
            Asking::Other { sequence, serial } => {
                ensure!(self.is_at(epoch), "A request of epoch {epoch} is taken");
                self.other(world, thread, sequence, serial)
            }
            Asking::Await { sequence, awaited } => {
                self.await_call(world, thread, sequence, awaited);
                Ok(())
            }
        }
    }

    /// The move that is under way goes on, or is given up.
    fn moves(&mut self, world: &mut World, event: MoveEvent) -> Result<()> {
        let now = world.clock(0);
        let Some((epoch, going)) = &mut self.going else {
            return Ok(());
        };
        let epoch = *epoch;
        match going.handle(now, event) {
            None => {}
            Some(MoveAction::Send) => self.leave(world, epoch),
            Some(MoveAction::Journal) => {
                let written = world.random.below(40) > 0;
                let delay = world.some_ms(0, 30);
                world.after(delay, What::Journaled { epoch, written });
            }
            Some(MoveAction::Commit) => {
                ensure!(self.journal == epoch, "Epoch {epoch} is not in the journal");
                self.send(world, epoch, Message::Commit);
            }
            Some(MoveAction::Acknowledge) => self.arrives(world, epoch),
            Some(MoveAction::GiveUp) => {
                self.going = None;
                self.send(world, epoch, Message::Discard);
                self.drop_line(world, epoch);
                match self.place {
                    Place::Leaving => self.runs_here(world),
                    Place::Away(old) => {
                        self.send(world, old, Message::Resume);
                        if self.recall.is_removed() {
                            self.calls_home(world, old);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn leave(&mut self, world: &mut World, epoch: u32) {
        if let Place::Away(old) = self.place {
            return self.send(world, old, Message::Onward(epoch));
        }
        self.place = Place::Leaving;
        for (thread, caller) in self.threads.iter_mut().zip(&mut self.callers) {
            *caller = Caller::default();
            // Some threads are in a call, which the deputy will go on with.
            thread.awaited = (world.random.below(3) == 0).then_some(0);
        }
        let image = self.threads.clone();
        self.send(world, epoch, Message::Image(image));
    }

    /// The guest runs at its new place, and its calls are executed from now on.
    fn arrives(&mut self, world: &mut World, epoch: u32) {
        self.going = None;
        world.moves += 1;
        self.send(world, epoch, Message::Acknowledged);
        let before = self.place;
        self.place = Place::Away(epoch);
        self.watch = Some(Watch::new(world.clock(0), Some(LEASE_TIME)));
        let _ = self.recall.handle(world.clock(0), RecallEvent::Left);
        self.removed = None;
        match before {
            Place::Away(old) => {
                self.send(world, old, Message::Discard);
                self.drop_line(world, old);
            }
            _ => {
                for thread in 0..self.threads.len() {
                    let image = self.threads[thread];
                    if image.awaited.is_some() {
                        self.execute(
                            world,
                            thread,
                            Active {
                                sequence: 0,
                                asked_by: None,
                                serial: image.next,
                            },
                        );
                    }
                }
            }
        }
    }

    pub(super) fn journaled(&mut self, world: &mut World, epoch: u32, written: bool) -> Result<()> {
        if written {
            self.journal = epoch;
        }
        if self.going.is_some_and(|(new, _)| new == epoch) {
            return self.moves(world, MoveEvent::Journaled { written });
        }
        Ok(())
    }

    fn execute(&mut self, world: &mut World, thread: usize, active: Active) {
        self.callers[thread].active = Some(active);
        let delay = match world.random.below(10) {
            0 => world.some_ms(50, 700),
            _ => world.some_ms(0, 5),
        };
        let sequence = active.sequence;
        world.after(delay, What::Executed { thread, sequence });
    }

    fn ask(&mut self, thread: usize, request: Request) -> Verdict {
        let caller = &mut self.callers[thread];
        let active = caller.active.map(|active| active.sequence);
        let finished = caller.finished.map(|(sequence, _)| sequence);
        caller.turn.handle(request, active, finished)
    }

    fn call(&mut self, world: &mut World, thread: usize, sequence: u64, serial: u64) -> Result<()> {
        match self.ask(thread, Request::Call { sequence }) {
            Verdict::Execute => {
                let asked_by = Some(sequence);
                self.execute(
                    world,
                    thread,
                    Active {
                        sequence,
                        asked_by,
                        serial,
                    },
                );
            }
            Verdict::Repeat => self.repeat(world, thread, sequence),
            verdict => ensure!(
                verdict == Verdict::Stale,
                "Call {sequence} of thread {thread}: {verdict:?}"
            ),
        }
        Ok(())
    }

    fn other(
        &mut self,
        world: &mut World,
        thread: usize,
        sequence: u64,
        serial: u64,
    ) -> Result<()> {
        match self.ask(thread, Request::Other { sequence }) {
            Verdict::Execute => {
                self.is_in_time(world)?;
                world.effect(thread, serial)?;
                self.reply(world, thread, sequence, true);
            }
            verdict => ensure!(
                verdict == Verdict::Stale,
                "Request {sequence} of thread {thread}: {verdict:?}"
            ),
        }
        Ok(())
    }

    fn await_call(&mut self, world: &mut World, thread: usize, sequence: u64, awaited: u64) {
        let verdict = self.ask(thread, Request::Await { sequence, awaited });
        match verdict {
            Verdict::Attend => {
                if let Some(active) = &mut self.callers[thread].active {
                    active.asked_by = Some(sequence);
                }
            }
            Verdict::Repeat => self.repeat(world, thread, sequence),
            Verdict::Unknown => self.reply(world, thread, sequence, false),
            _ => {}
        }
    }

    fn repeat(&mut self, world: &mut World, thread: usize, sequence: u64) {
        if let Some((_, done)) = self.callers[thread].finished {
            self.reply(world, thread, sequence, done);
        }
    }

    fn reply(&mut self, world: &mut World, thread: usize, sequence: u64, done: bool) {
        if let Place::Away(epoch) = self.place {
            self.send(
                world,
                epoch,
                Message::Reply {
                    thread,
                    sequence,
                    done,
                },
            );
        }
    }

    /// The deputy's call ends, with its effect.
    pub(super) fn executed(
        &mut self,
        world: &mut World,
        thread: usize,
        sequence: u64,
    ) -> Result<()> {
        let caller = &mut self.callers[thread];
        let Some(active) = caller
            .active
            .take_if(|active| active.sequence == sequence)
            .filter(|_| matches!(self.place, Place::Away(_)))
        else {
            return Ok(());
        };
        caller.finished = Some((sequence, true));
        self.is_in_time(world)?;
        world.effect(thread, active.serial)?;
        if let Some(sequence) = active.asked_by {
            self.reply(world, thread, sequence, true);
        }
        Ok(())
    }

    /// The image is here whole: calls in flight are interrupted, and the program goes on.
    fn comes_home(&mut self, world: &mut World, epoch: u32, image: &[ThreadImage]) -> Result<()> {
        ensure!(
            self.is_at(epoch) && self.homeward,
            "An image of epoch {epoch} that nobody asked for"
        );
        for (thread, image) in image.iter().enumerate() {
            let caller = &mut self.callers[thread];
            if let Some(active) = caller.active.take() {
                let done = world.random.below(2) == 0;
                if done {
                    world.effect(thread, active.serial)?;
                }
                caller.finished = Some((active.sequence, done));
            }
            let result = caller
                .finished
                .filter(|(sequence, _)| image.awaited == Some(*sequence));
            self.threads[thread] = ThreadImage {
                next: image.next + u64::from(result.is_some_and(|(_, done)| done)),
                awaited: None,
            };
        }
        world.moves += 1;
        self.send(world, epoch, Message::Discard);
        self.drop_line(world, epoch);
        self.runs_here(world);
        Ok(())
    }

    pub(super) fn tick(&mut self, world: &mut World) -> Result<()> {
        let now = world.clock(0);
        let stall = world.stall(std::mem::replace(&mut self.ticked, now), now);
        let epochs: Vec<u32> = self.lines.keys().copied().collect();
        for epoch in epochs {
            let mut before = None;
            if let Some(line) = self.lines.get_mut(&epoch) {
                before = line.connection;
                line.event(now, LineEvent::Tick, None, &mut Vec::new());
            }
            self.see_to(world, epoch, before);
        }
        self.watches(world, stall)?;
        self.recalls(world, stall)?;
        if let Some((epoch, _)) = self.going {
            if let Some(at) = self.lines.get(&epoch).map(Line::heard) {
                self.moves(world, MoveEvent::Heard { at })?;
            }
            self.moves(world, MoveEvent::Tick)?;
        }
        Ok(())
    }

    fn watches(&mut self, world: &mut World, duration: Duration) -> Result<()> {
        let (Place::Away(epoch), Some(mut watch)) = (self.place, self.watch) else {
            return Ok(());
        };
        let now = world.clock(0);
        let heard = self.lines.get(&epoch).map(Line::heard);
        if let Some(at) = heard {
            let _ = watch.handle(now, WatchEvent::Heard { at }).count();
        }
        let _ = watch.handle(now, WatchEvent::Stalled { duration }).count();
        let actions: Vec<_> = watch.handle(now, WatchEvent::Tick).collect();
        self.watch = Some(watch);
        for action in actions {
            match action {
                WatchAction::Beat => {
                    let new = self.going.map(|(new, _)| new);
                    for to in [Some(epoch), new].into_iter().flatten() {
                        if self.lines.get(&to).is_some_and(Line::is_connected) {
                            self.send(world, to, Message::Heartbeat);
                        }
                    }
                }
                WatchAction::GiveUp { silent } => {
                    let silent = heard.map_or(silent, |heard| now.saturating_sub(heard));
                    ensure!(
                        !world.could_go_on(epoch as usize, silent),
                        "Home gives the host up after {silent:?}, although the program could go on"
                    );
                    ensure!(
                        world.has_listened(0, silent, LEASE),
                        "Home gives the host up after {silent:?}, in which it mostly stood still"
                    );
                    self.ends(world);
                }
            }
        }
        Ok(())
    }

    /// Looks whether a return gets on.
    fn recalls(&mut self, world: &mut World, duration: Duration) -> Result<()> {
        let Place::Away(epoch) = self.place else {
            return Ok(());
        };
        let now = world.clock(0);
        let _ = self.recall.handle(now, RecallEvent::Stalled { duration });
        let Some(Cut { idle }) = self.recall.handle(now, RecallEvent::Tick) else {
            return Ok(());
        };
        let host = epoch as usize;
        // A host that was removed is not called upon before a move onward from it, which is in doubt, has ended; that
        // does not excuse it. (A first attempt without this accused home in seed 1795954726272412, in which the next
        // host crashed right before the removal, and home stood still when the doubt was over.)
        let called = self
            .called
            .map_or(Duration::ZERO, |called| now.saturating_sub(called));
        ensure!(
            world.nodes[host].lies || !world.could_go_on(host, idle.min(called)),
            "Home cuts a return after {idle:?}, although the program could come home"
        );
        world.cuts += 1;
        self.ends(world);
        Ok(())
    }

    fn ends(&mut self, world: &mut World) {
        self.place = Place::Ended;
        self.lost = true;
        let epochs: Vec<u32> = self.lines.keys().copied().collect();
        for epoch in epochs {
            self.send(world, epoch, Message::Discard);
            self.drop_line(world, epoch);
        }
        self.going = None;
    }

    /// Home's supervisor dies, and a deputy with it. An original that is no deputy yet goes on; nobody
    /// counts its effects any more.
    pub(super) fn dies(&mut self) {
        self.place = Place::Ended;
        self.lost = true;
    }
}
