//! Home, its hosts and what happens between them, in an order that the input chooses.
//!
//! The machines are composed as the supervisors do it, for a program of one thread. Each effect has
//! a serial number, so an effect that comes twice, or is left out, is seen at once.

use std::time::Duration;

use super::host::FuzzedHost;
use super::say::{Line, Say, Sent, Way};
use super::thread::{Asking, ThreadImage};
use crate::commit::{Action as MoveAction, Event as MoveEvent, Limits, Move};
use crate::lease::{Action as WatchAction, Event as WatchEvent, Watch};
use crate::session::{Event as LineEvent, Side};
use crate::turn::{Request, Turn, Verdict};

pub(super) const LEASE: Duration = Duration::from_secs(2);
/// More journeys than one input needs.
const HOSTS_MAX: usize = 8;

/// A call that the deputy executes.
#[derive(Clone, Copy, Debug)]
struct Active {
    sequence: u64,
    asked_by: Option<u64>,
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    /// Frozen here, on its way out.
    Leaving,
    Away(usize),
    Ended,
}

#[derive(Debug)]
struct World {
    now: Duration,
    place: Place,
    /// Serial number of the next effect.
    due: u64,
    /// What the thread is to do next at home.
    next: u64,
    turn: Turn,
    active: Option<Active>,
    finished: Option<(u64, bool)>,
    lines: Vec<Option<Line>>,
    hosts: Vec<FuzzedHost>,
    /// Frames on their way home, by host.
    homeward: Vec<Way>,
    connections: usize,
    going: Option<(usize, Move)>,
    watch: Option<Watch>,
    asked_home: bool,
    journal: Option<usize>,
    journaling: Option<usize>,
}

/// Events in any order: nothing breaks, each effect happens once, and no two sides run at once.
pub fn sequence(data: &[u8]) {
    let mut world = World::new();
    for pair in data.chunks_exact(2) {
        world.step(pair[0], pair[1]);
        world.check();
    }
}

impl World {
    fn new() -> Self {
        Self {
            now: Duration::ZERO,
            place: Place::Home,
            due: 1,
            next: 1,
            turn: Turn::default(),
            active: None,
            finished: None,
            lines: Vec::new(),
            hosts: Vec::new(),
            homeward: Vec::new(),
            connections: 0,
            going: None,
            watch: None,
            asked_home: false,
            journal: None,
            journaling: None,
        }
    }

    fn check(&self) {
        let running = self.hosts.iter().filter(|host| host.may_forward()).count();
        assert!(running <= 1, "{running} guests may act at once");
        assert!(
            running == 0 || self.place != Place::Home,
            "the program runs at home, and a guest may act"
        );
    }

    fn effect(&mut self, serial: u64) {
        assert_eq!(serial, self.due, "effects come once and in their order");
        self.due += 1;
    }

    /// One event happens: `what` says which, and `how` says to which host or in which way.
    fn step(&mut self, what: u8, how: u8) {
        // Most events concern the newest host or the one before it.
        let whom = self.hosts.len().checked_sub(1 + usize::from(how & 1));
        match (what % 16, whom) {
            (0, _) => self.works_at_home(),
            (1, _) => self.begins(),
            (2..=4, Some(host)) => self.reach_host(host, how),
            (5..=7, Some(host)) => self.reach_home(host, how),
            (8, Some(host)) => self.breaks(host, how),
            (9, Some(host)) => self.dialed(host),
            (10, _) => self.time(u64::from(how)),
            (11, Some(host)) => {
                let now = self.now;
                self.hosts[host].work(now, how & 2 == 0, &mut self.homeward[host]);
            }
            (12, _) => self.executed(),
            (13, _) => self.journaled(how < 240),
            (14, _) => self.calls_home(),
            (15, Some(host)) => self.passes_on(host, how < 200),
            _ => {}
        }
    }

    fn works_at_home(&mut self) {
        if self.place == Place::Home {
            self.effect(self.next);
            self.next += 1;
        }
    }

    fn begins(&mut self) {
        let free = self.going.is_none() && !self.asked_home;
        if !free || self.hosts.len() == HOSTS_MAX || self.place == Place::Ended {
            return;
        }
        let epoch = self.hosts.len();
        let number = u32::try_from(epoch + 1).expect("small");
        self.hosts.push(FuzzedHost::new(self.now, number));
        self.homeward.push(Way::new());
        let quiet = LEASE / 3;
        self.lines
            .push(Some(Line::new(self.now, Side::Dialing { quiet }, 0)));
        self.going = Some((epoch, Move::new(self.now, Limits::of(Some(LEASE)))));
        self.send(epoch, Say::Prepare);
    }

    fn send(&mut self, epoch: usize, say: Say) {
        if let Some(line) = &mut self.lines[epoch] {
            line.send(self.now, say, &mut self.hosts[epoch].inward);
        }
    }

    /// The next frame comes to a host; or it comes twice, or another before it, or it is lost.
    fn reach_host(&mut self, epoch: usize, how: u8) {
        let host = &mut self.hosts[epoch];
        if let Some(frame) = take(&mut host.inward, how) {
            host.frame(self.now, &frame, &mut self.homeward[epoch]);
        }
    }

    fn reach_home(&mut self, epoch: usize, how: u8) {
        let Some((connection, frame)) = take(&mut self.homeward[epoch], how) else {
            return;
        };
        let Some(line) = &mut self.lines[epoch] else {
            return;
        };
        let inward = &mut self.hosts[epoch].inward;
        let said = line.receive(self.now, connection, &frame, inward);
        if let Some(say) = said.expect("a host keeps to the protocol") {
            self.hears(epoch, say);
            if matches!(say, Say::Asks(_)) && how & 2 != 0 {
                // A host may also repeat itself.
                self.hears(epoch, say);
            }
        }
    }

    fn breaks(&mut self, epoch: usize, how: u8) {
        if how & 2 != 0 {
            let inward = &mut self.hosts[epoch].inward;
            if let Some(line) = &mut self.lines[epoch] {
                line.event(self.now, LineEvent::Broken, None, inward);
            }
        }
        if how & 4 != 0 {
            let out = &mut self.homeward[epoch];
            self.hosts[epoch]
                .line
                .event(self.now, LineEvent::Broken, None, out);
        }
    }

    fn dialed(&mut self, epoch: usize) {
        let Some(line) = self.lines[epoch].as_mut().filter(|line| line.dials) else {
            return;
        };
        line.dials = false;
        self.connections += 1;
        let fresh = Some(self.connections);
        line.event(
            self.now,
            LineEvent::Opened,
            fresh,
            &mut self.hosts[epoch].inward,
        );
    }

    /// Time passes, and both sides look at their clocks.
    fn time(&mut self, how: u64) {
        self.now += Duration::from_millis(how * 4);
        for epoch in 0..self.hosts.len() {
            if let Some(line) = &mut self.lines[epoch] {
                line.event(
                    self.now,
                    LineEvent::Tick,
                    None,
                    &mut self.hosts[epoch].inward,
                );
            }
            self.hosts[epoch].tick(self.now, &mut self.homeward[epoch]);
        }
        self.watches();
        if let Some((epoch, _)) = self.going {
            if let Some(at) = self.lines[epoch].as_ref().map(Line::heard) {
                self.moves(MoveEvent::Heard { at });
            }
            self.moves(MoveEvent::Tick);
        }
    }

    fn watches(&mut self) {
        let (Place::Away(epoch), Some(mut watch)) = (self.place, self.watch) else {
            return;
        };
        if let Some(at) = self.lines[epoch].as_ref().map(Line::heard) {
            let _ = watch.handle(self.now, WatchEvent::Heard { at }).count();
        }
        let actions: Vec<_> = watch.handle(self.now, WatchEvent::Tick).collect();
        self.watch = Some(watch);
        for action in actions {
            match action {
                WatchAction::Beat => {
                    let new = self.going.map(|(new, _)| new);
                    for to in [Some(epoch), new].into_iter().flatten() {
                        if self.lines[to].as_ref().is_some_and(Line::is_connected) {
                            self.send(to, Say::Heartbeat);
                        }
                    }
                }
                WatchAction::GiveUp { silent } => {
                    assert!(silent > LEASE);
                    self.place = Place::Ended;
                    self.going = None;
                    self.lines.iter_mut().for_each(|line| *line = None);
                }
            }
        }
    }

    fn hears(&mut self, epoch: usize, say: Say) {
        let is_new = self.going.is_some_and(|(new, _)| new == epoch);
        let is_here = self.place == Place::Away(epoch);
        match say {
            Say::Heartbeat => {}
            Say::Prepared => self.moves(MoveEvent::Prepared),
            Say::Ready => self.moves(MoveEvent::Ready),
            Say::Started => self.moves(MoveEvent::Started),
            Say::Image(image) if !is_new => {
                assert!(is_here && self.asked_home, "an image that nobody asked for");
                self.comes_home(epoch, image);
            }
            Say::Asks(asking) => self.asks(epoch, asking, is_here),
            _ => self.moves(MoveEvent::Failed),
        }
    }

    fn asks(&mut self, epoch: usize, asking: Asking, is_here: bool) {
        match asking {
            Asking::Call { sequence, serial } => {
                assert!(is_here, "a call of another epoch is taken");
                self.call(epoch, sequence, serial);
            }
            Asking::Other { sequence, serial } => {
                assert!(is_here, "a request of another epoch is taken");
                if self.ask(Request::Other { sequence }) == Verdict::Execute {
                    self.effect(serial);
                    self.send(
                        epoch,
                        Say::Reply {
                            sequence,
                            done: true,
                        },
                    );
                }
            }
            Asking::Await { sequence, awaited } => self.await_call(epoch, sequence, awaited),
        }
    }

    fn moves(&mut self, event: MoveEvent) {
        let Some((epoch, going)) = &mut self.going else {
            return;
        };
        let epoch = *epoch;
        match going.handle(self.now, event) {
            None => {}
            Some(MoveAction::Send) => self.leaves(epoch),
            Some(MoveAction::Journal) => self.journaling = Some(epoch),
            Some(MoveAction::Commit) => {
                assert_eq!(self.journal, Some(epoch), "the entry comes first");
                self.send(epoch, Say::Commit);
            }
            Some(MoveAction::Acknowledge) => self.arrives(epoch),
            Some(MoveAction::GiveUp) => {
                self.going = None;
                self.journaling = None;
                self.send(epoch, Say::Discard);
                self.lines[epoch] = None;
                match self.place {
                    Place::Leaving => self.place = Place::Home,
                    Place::Away(old) => self.send(old, Say::Resume),
                    _ => {}
                }
            }
        }
    }

    fn leaves(&mut self, epoch: usize) {
        if let Place::Away(old) = self.place {
            return self.send(old, Say::Onward(epoch));
        }
        self.place = Place::Leaving;
        self.turn = Turn::default();
        (self.active, self.finished) = (None, None);
        // Every other time it is in a call, which the deputy will go on with.
        let awaited = epoch.is_multiple_of(2).then_some(0);
        let next = self.next;
        self.send(epoch, Say::Image(ThreadImage { next, awaited }));
    }

    fn arrives(&mut self, epoch: usize) {
        self.going = None;
        self.send(epoch, Say::Acknowledged);
        let before = std::mem::replace(&mut self.place, Place::Away(epoch));
        self.watch = Some(Watch::new(self.now, Some(LEASE)));
        match before {
            Place::Away(old) => {
                self.send(old, Say::Discard);
                self.lines[old] = None;
            }
            _ if epoch.is_multiple_of(2) => {
                self.active = Some(Active {
                    sequence: 0,
                    asked_by: None,
                    serial: self.next,
                });
            }
            _ => {}
        }
    }

    fn journaled(&mut self, written: bool) {
        let Some(epoch) = self.journaling.take() else {
            return;
        };
        if written {
            self.journal = Some(epoch);
        }
        self.moves(MoveEvent::Journaled { written });
    }

    fn ask(&mut self, request: Request) -> Verdict {
        let active = self.active.map(|active| active.sequence);
        let finished = self.finished.map(|(sequence, _)| sequence);
        self.turn.handle(request, active, finished)
    }

    fn call(&mut self, epoch: usize, sequence: u64, serial: u64) {
        match self.ask(Request::Call { sequence }) {
            Verdict::Execute => {
                let asked_by = Some(sequence);
                self.active = Some(Active {
                    sequence,
                    asked_by,
                    serial,
                });
            }
            Verdict::Repeat => self.repeat(epoch, sequence),
            verdict => assert_eq!(verdict, Verdict::Stale, "call {sequence}"),
        }
    }

    fn await_call(&mut self, epoch: usize, sequence: u64, awaited: u64) {
        match self.ask(Request::Await { sequence, awaited }) {
            Verdict::Attend => {
                if let Some(active) = &mut self.active {
                    active.asked_by = Some(sequence);
                }
            }
            Verdict::Repeat => self.repeat(epoch, sequence),
            Verdict::Unknown => self.send(
                epoch,
                Say::Reply {
                    sequence,
                    done: false,
                },
            ),
            _ => {}
        }
    }

    fn repeat(&mut self, epoch: usize, sequence: u64) {
        if let Some((_, done)) = self.finished {
            self.send(epoch, Say::Reply { sequence, done });
        }
    }

    /// The deputy's call ends, with its effect.
    fn executed(&mut self) {
        let Place::Away(epoch) = self.place else {
            return;
        };
        let Some(active) = self.active.take() else {
            return;
        };
        self.finished = Some((active.sequence, true));
        self.effect(active.serial);
        if let Some(sequence) = active.asked_by {
            self.send(
                epoch,
                Say::Reply {
                    sequence,
                    done: true,
                },
            );
        }
    }

    fn calls_home(&mut self) {
        if let Place::Away(epoch) = self.place
            && self.going.is_none()
            && !self.asked_home
        {
            self.asked_home = true;
            self.send(epoch, Say::Freeze);
        }
    }

    fn comes_home(&mut self, epoch: usize, image: ThreadImage) {
        if let Some(active) = self.active.take() {
            // It is interrupted: before its effect or after it.
            let done = active.sequence.is_multiple_of(2);
            if done {
                self.effect(active.serial);
            }
            self.finished = Some((active.sequence, done));
        }
        let result = self
            .finished
            .filter(|(sequence, _)| image.awaited == Some(*sequence));
        self.next = image.next + u64::from(result.is_some_and(|(_, done)| done));
        self.send(epoch, Say::Discard);
        self.lines[epoch] = None;
        self.place = Place::Home;
        self.watch = None;
        self.asked_home = false;
    }

    /// The image of a guest comes to the next host, or cannot.
    fn passes_on(&mut self, from: usize, reached: bool) {
        let (now, Some((to, image))) = (self.now, self.hosts[from].onward.take()) else {
            return;
        };
        if reached {
            self.hosts[to].image(now, image, &mut self.homeward[to]);
        } else {
            self.hosts[from].cannot_send(now, &mut self.homeward[from]);
        }
    }
}

/// The next frame, mostly.
fn take(queue: &mut Way, how: u8) -> Option<Sent> {
    match how {
        0..=199 => queue.pop_front(),
        // It is delivered now and once more later.
        200..=219 => queue.front().copied(),
        // It is overtaken.
        220..=239 => queue.remove(1),
        _ => {
            queue.pop_front();
            None
        }
    }
}
