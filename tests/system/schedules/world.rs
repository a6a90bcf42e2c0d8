//! One schedule: a home, its hosts, what is between them, and what goes wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use whim_journey::fuzz::thread::ThreadImage;
use whim_system_tests::random::Random;
use whim_system_tests::{Result, bail, ensure};

use super::home::Home;
use super::host::Host;
use super::trouble::Troubles;
use super::wire::{Body, Frame};

/// All times are in microseconds of the world's own clock.
pub(super) const MS: u64 = 1000;
pub(super) const LEASE: u64 = 1000 * MS;
/// How often a supervisor looks at its clocks.
pub(super) const TICK: u64 = LEASE / 10;
/// Faults begin before this time,
const FAULTS_UNTIL: u64 = 3 * LEASE;
/// none lasts longer than this,
const FAULT_MAX: u64 = 3 * LEASE;
/// and then everything has so long to settle.
const SETTLE: u64 = 6 * LEASE;
/// In gentle schedules a fault is shorter than this, and the next one comes a lease later; no frames are
/// lost beside, so that no two faults meet (seed 177745: a connection is forgotten, and twice in a row
/// the question on a new one is lost).
const GENTLE: u64 = LEASE / 4;
/// A schedule that does not come to its end is a fault of the simulator.
const EVENTS_MAX: u32 = 200_000;

/// What happens, at a time.
#[derive(Debug)]
pub(super) enum What {
    Frame {
        connection: usize,
        to_home: bool,
        frame: Frame,
    },
    Broken {
        connection: usize,
        at_home: bool,
    },
    /// Home tries to connect to the host of this epoch.
    Dial(u32),
    /// A move onward on its way between hosts.
    Source {
        to: u32,
        image: Vec<ThreadImage>,
    },
    HomeTick,
    HostTick(u32),
    /// A thread goes on at home; only if nothing has moved meanwhile (`turn`).
    HomeWork {
        thread: usize,
        turn: u32,
    },
    HostWork {
        epoch: u32,
        thread: usize,
    },
    /// The deputy's call of a thread ends.
    Executed {
        thread: usize,
        sequence: u64,
    },
    /// The journal's entry is on the disk, or not.
    Journaled {
        epoch: u32,
        written: bool,
    },
    /// Somebody wants the program elsewhere.
    Wish,
    Fault(Fault),
    /// The host where the program is does from now on as it likes.
    Lie,
    /// It is removed from the cluster.
    Removal,
}

/// What goes wrong. Node 0 is home, the others are hosts by their epoch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// One connection breaks: seen by both, or by one.
    Break,
    /// Nothing gets through between home and the newest host for so long.
    Cut(u64),
    /// A node stands still.
    Pause { home: bool, until: u64 },
    /// It dies: with its connections closed by its kernel, or without a word.
    Crash { home: bool, silently: bool },
}

struct Connection {
    epoch: u32,
    /// Home's end, the host's.
    open: [bool; 2],
    last: [u64; 2],
    /// Nothing gets through any more, and nobody is told.
    lost: bool,
}

/// A node's clock and fate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    offset: u64,
    /// Parts per million too fast.
    drift: u64,
    pub paused_until: u64,
    pub dead: bool,
    /// A host without a guest any more.
    pub empty: bool,
    /// It does not let go of its guest.
    pub lies: bool,
}

pub(super) struct World {
    pub random: Random,
    pub now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// What the queue's numbers stand for.
    events: Vec<Option<What>>,
    made: u64,
    connections: Vec<Connection>,
    pub nodes: Vec<Node>,
    /// Of each thread: the serial number of its last effect.
    pub ledger: Vec<u64>,
    gentle: bool,
    /// Frames are also lost, doubled and reordered one by one.
    unruly: bool,
    cut_until: u64,
    pub troubles: Troubles,
    pub moves: u32,
    pub breaks: u32,
    pub cuts: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let threads = usize::try_from(1 + random.below(3)).unwrap_or(1);
        let (gentle, unruly) = (random.below(3) == 0, random.below(2) == 0);
        Self {
            gentle,
            unruly: unruly && !gentle,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            made: 0,
            connections: Vec::new(),
            nodes: Vec::new(),
            ledger: vec![0; threads],
            cut_until: 0,
            troubles: Troubles::default(),
            moves: 0,
            breaks: 0,
            cuts: 0,
        }
    }

    pub(super) fn after(&mut self, delay: u64, what: What) {
        self.at(self.now + delay, what);
    }

    fn at(&mut self, time: u64, what: What) {
        let place = self.events.len();
        self.events.push(Some(what));
        self.made += 1;
        self.queue.push(Reverse((time, self.made, place)));
    }

    /// A number of milliseconds, as microseconds.
    pub(super) fn some_ms(&mut self, from: u64, to: u64) -> u64 {
        (from + self.random.below(to - from + 1)) * MS
    }

    pub(super) fn add_node(&mut self) {
        let (offset, drift) = (self.random.below(1000 * LEASE), self.random.below(2000));
        self.nodes.push(Node {
            offset,
            drift,
            ..Node::default()
        });
    }

    /// What a node's clock shows.
    pub(super) fn clock(&self, node: usize) -> Duration {
        let Node { offset, drift, .. } = self.nodes[node];
        Duration::from_micros(self.now + offset + self.now * drift / 1_000_000)
    }

    /// How long a supervisor did not listen, that looks at its clock after its usual sleep.
    pub(super) fn stall(&self, before: Duration, now: Duration) -> Duration {
        let usual = Duration::from_micros(TICK + 10 * MS);
        now.saturating_sub(before).saturating_sub(usual)
    }

    /// A thread has an effect: each number once, and none left out.
    pub(super) fn effect(&mut self, thread: usize, serial: u64) -> Result<()> {
        let last = self.ledger[thread];
        ensure!(
            serial == last + 1,
            "At {} µs thread {thread} has effect {serial} after {last}",
            self.now
        );
        self.ledger[thread] = serial;
        Ok(())
    }

    pub(super) fn is_cut(&self) -> bool {
        self.now < self.cut_until
    }

    /// Home connects to a host, if it can.
    pub(super) fn connect(&mut self, epoch: u32) -> Option<usize> {
        let node = self.nodes[epoch as usize];
        if self.is_cut() || node.dead {
            return None;
        }
        self.connections.push(Connection {
            epoch,
            open: [true; 2],
            last: [self.now; 2],
            lost: false,
        });
        Some(self.connections.len() - 1)
    }

    /// Puts frames on their ways.
    pub(super) fn write(&mut self, frames: Vec<(usize, Frame)>, by_home: bool) {
        for (connection, frame) in frames {
            if self.connections[connection].lost {
                continue;
            }
            let to = usize::from(by_home);
            let delay = self.some_ms(0, 3) + self.random.below(MS);
            let heal = self.cut_until.max(self.now);
            let mut time = (heal + delay).max(self.connections[connection].last[to]);
            let mut copies = 1;
            if self.unruly && self.now < FAULTS_UNTIL {
                match self.random.below(100) {
                    0 => {
                        // A stream does not lose its last bytes and live on.
                        copies = 0;
                        let late = self.some_ms(0, 300);
                        self.strikes_connection(connection, time);
                        self.at(
                            heal + late,
                            What::Broken {
                                connection,
                                at_home: !by_home,
                            },
                        );
                    }
                    1 => copies = 2,
                    2 => {
                        time += 7 * MS;
                        self.strikes_connection(connection, time);
                    }
                    _ => {}
                }
            }
            let way = &mut self.connections[connection];
            if copies == 1 && time < self.now + 7 * MS {
                way.last[to] = time;
            }
            for copy in 0..copies {
                let frame = frame.clone();
                let what = What::Frame {
                    connection,
                    to_home: !by_home,
                    frame,
                };
                self.at(time + copy * 5 * MS, what);
            }
        }
    }

    /// One side gives up its end; the other learns it, if anything gets through.
    pub(super) fn hang_up(&mut self, connection: usize, by_home: bool) {
        self.connections[connection].open[usize::from(!by_home)] = false;
        if self.connections[connection].lost {
            return;
        }
        let delay = self.cut_until.saturating_sub(self.now) + self.some_ms(0, 3);
        let at_home = !by_home;
        self.after(
            delay,
            What::Broken {
                connection,
                at_home,
            },
        );
    }

    /// Something is wrong with one connection from now until then.
    fn strikes_connection(&mut self, connection: usize, until: u64) {
        let host = self.connections[connection].epoch as usize;
        self.troubles.add(self.now, until, Some(host));
    }

    /// Whether a host may have missed home's last word.
    fn is_unheard(&self, epoch: u32) -> bool {
        let mut all = self.connections.iter();
        self.nodes[0].dead || all.any(|one| one.lost && one.epoch == epoch)
    }

    /// Whether a node has listened for so long, of a time in which it has heard nothing.
    pub(super) fn has_listened(&self, node: usize, silent: Duration, due: u64) -> bool {
        let silent = u64::try_from(silent.as_micros()).unwrap_or(u64::MAX);
        let since = self.now.saturating_sub(silent);
        // Clocks differ.
        self.troubles.listened(node, since, self.now) >= due - due / 50
    }

    /// Whether home and a host could go on with a program, although one of them has not heard of the
    /// other for so long.
    pub(super) fn could_go_on(&self, host: usize, silent: Duration) -> bool {
        let silent = u64::try_from(silent.as_micros()).unwrap_or(u64::MAX);
        let node = self.nodes[host];
        // A guest that has ended cannot be saved; whether it may have ended was looked at then.
        let alive = !self.nodes[0].dead && !node.dead && !node.empty;
        alive
            && self
                .troubles
                .left_time(self.now.saturating_sub(silent), self.now, host)
    }
}

/// What a schedule came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub effects: u64,
    pub moves: u32,
    pub breaks: u32,
    pub cuts: u32,
    pub ended: bool,
    pub gentle: bool,
}

pub(super) struct Schedule {
    world: World,
    home: Home,
    hosts: Vec<Host>,
}

/// Runs the schedule of a seed.
///
/// # Errors
/// What was promised and is not kept.
pub(super) fn run(seed: u64, is_told: bool) -> Result<Outcome> {
    let mut world = World::new(seed);
    world.add_node();
    let home = Home::new(&mut world);
    let mut schedule = Schedule {
        world,
        home,
        hosts: Vec::new(),
    };
    schedule.plan();
    let quiet = FAULTS_UNTIL + FAULT_MAX + SETTLE;
    let mut before = None;
    for _ in 0..EVENTS_MAX {
        let Some(Reverse((time, _, place))) = schedule.world.queue.pop() else {
            // Nobody is left.
            return schedule.judge(&[]);
        };
        if time > quiet && before.is_none() {
            before = Some(schedule.world.ledger.clone());
        }
        if time > quiet + LEASE {
            return schedule.judge(&before.unwrap_or_default());
        }
        schedule.world.now = time;
        if let Some(what) = schedule.world.events[place].take() {
            if is_told {
                println!("{time:>9} {what:?}");
            }
            schedule.happens(what)?;
        }
    }
    bail!("It does not come to its end")
}

impl Schedule {
    fn plan(&mut self) {
        let world = &mut self.world;
        world.after(0, What::HomeTick);
        let mut time = 0;
        while time < FAULTS_UNTIL {
            time += world.some_ms(20, 900);
            world.at(time, What::Wish);
        }
        let mut time = world.some_ms(0, 600);
        while time < FAULTS_UNTIL {
            let fault = self.fault(time);
            let world = &mut self.world;
            world.at(time, What::Fault(fault));
            time += if world.gentle {
                GENTLE + LEASE + world.some_ms(0, 500)
            } else {
                world.some_ms(0, 1200)
            };
        }
        // Of some: a host that lies, one that is removed, or both.
        let (kind, time) = (self.world.random.below(8), self.world.some_ms(0, 3000));
        if matches!(kind, 0 | 1) && !self.world.gentle {
            self.world.at(time, What::Lie);
        }
        if matches!(kind, 1 | 2) {
            self.world.at(time, What::Removal);
        }
    }

    fn fault(&mut self, time: u64) -> Fault {
        let world = &mut self.world;
        let length = if world.gentle {
            world.random.below(GENTLE)
        } else {
            match world.random.below(3) {
                0 => world.random.below(FAULT_MAX),
                _ => world.random.below(LEASE),
            }
        };
        let home = world.random.below(2) == 0;
        let until = time + length;
        match world.random.below(if world.gentle { 8 } else { 10 }) {
            0..=3 => Fault::Break,
            4 | 5 => Fault::Cut(until),
            6 | 7 => Fault::Pause { home, until },
            _ => Fault::Crash {
                home: home && world.random.below(3) == 0,
                silently: world.random.below(2) == 0,
            },
        }
    }

    /// Which node an event concerns; none: the world.
    fn node_of(&self, what: &What) -> Option<usize> {
        let host = |connection: usize| self.world.connections[connection].epoch as usize;
        Some(match what {
            What::Frame {
                connection,
                to_home,
                ..
            } if !to_home => host(*connection),
            What::Broken {
                connection,
                at_home,
            } if !at_home => host(*connection),
            What::Source { to: epoch, .. } | What::HostTick(epoch) => *epoch as usize,
            What::HostWork { epoch, .. } => *epoch as usize,
            What::Fault(_) | What::Lie => return None,
            _ => 0,
        })
    }

    fn happens(&mut self, what: What) -> Result<()> {
        if let Some(node) = self.node_of(&what) {
            let Node {
                paused_until, dead, ..
            } = self.world.nodes[node];
            if dead {
                return Ok(());
            }
            if self.world.now < paused_until {
                self.world.at(paused_until, what);
                return Ok(());
            }
        }
        let (world, home) = (&mut self.world, &mut self.home);
        match what {
            What::Frame {
                connection,
                to_home,
                frame,
            } => self.frame(connection, to_home, &frame),
            What::Broken {
                connection,
                at_home,
            } => {
                let way = &mut world.connections[connection];
                way.open[usize::from(!at_home)] = false;
                let epoch = way.epoch;
                if at_home {
                    home.broken(world, epoch, connection);
                } else {
                    self.hosts[epoch as usize - 1].broken(world, connection);
                }
                Ok(())
            }
            What::Dial(epoch) => home.dial(world, epoch),
            What::Source { to, image } => self.hosts[to as usize - 1].image(world, image),
            What::HomeTick => {
                world.after(TICK, What::HomeTick);
                home.tick(world)
            }
            What::HostTick(epoch) => {
                let host = &mut self.hosts[epoch as usize - 1];
                if host.tick(world) {
                    world.after(TICK, What::HostTick(epoch));
                }
                host.judge(home.is_at(epoch))
            }
            What::HomeWork { thread, turn } => home.work(world, thread, turn),
            What::HostWork { epoch, thread } => {
                self.hosts[epoch as usize - 1].work(world, thread);
                Ok(())
            }
            What::Executed { thread, sequence } => home.executed(world, thread, sequence),
            What::Journaled { epoch, written } => home.journaled(world, epoch, written),
            What::Wish => self.wish(),
            What::Fault(fault) => {
                self.strikes(fault);
                Ok(())
            }
            What::Lie => {
                let is_there = |host: &&Host| home.is_at(host.epoch);
                if let Some(host) = self.hosts.iter().find(is_there) {
                    world.nodes[host.epoch as usize].lies = true;
                }
                Ok(())
            }
            What::Removal => home.removes(world),
        }
    }

    fn wish(&mut self) -> Result<()> {
        let Some(epoch) = self.home.wishes(&mut self.world) else {
            return Ok(());
        };
        self.world.add_node();
        self.hosts.push(Host::new(&self.world, epoch));
        self.world.after(TICK, What::HostTick(epoch));
        self.home.begin(&mut self.world, epoch)
    }

    fn frame(&mut self, connection: usize, to_home: bool, frame: &Frame) -> Result<()> {
        let way = &self.world.connections[connection];
        let epoch = way.epoch;
        if !way.open[usize::from(!to_home)] {
            // Who writes to a closed end is told so.
            let at_home = !to_home;
            if way.open[usize::from(!at_home)] && !way.lost {
                self.world.after(
                    MS,
                    What::Broken {
                        connection,
                        at_home,
                    },
                );
            }
            return Ok(());
        }
        if to_home {
            return self.home.frame(&mut self.world, epoch, connection, frame);
        }
        let host = &mut self.hosts[epoch as usize - 1];
        if matches!(frame.body, Body::Goodbye) {
            host.dismissed(&mut self.world);
            return Ok(());
        }
        host.frame(&mut self.world, connection, frame)
    }

    fn strikes(&mut self, fault: Fault) {
        let newest = self.world.nodes.len() - 1;
        let world = &mut self.world;
        match fault {
            Fault::Break => self.breaks(),
            Fault::Cut(until) => {
                world.cut_until = world.cut_until.max(until);
                world.troubles.add(world.now, until, None);
            }
            Fault::Pause { home, until } => {
                let node = if home { 0 } else { newest };
                let paused = &mut world.nodes[node].paused_until;
                *paused = until.max(*paused);
                world.troubles.pause(node, world.now, until);
                let host = (node > 0).then_some(node);
                world.troubles.add(world.now, until, host);
            }
            Fault::Crash { home, silently } => {
                let node = if home { 0 } else { newest };
                if node == 0 && !home {
                    return;
                }
                world.nodes[node].dead = true;
                if home {
                    self.home.dies();
                }
                if !silently {
                    self.close_all(node);
                }
            }
        }
    }

    fn breaks(&mut self) {
        let world = &mut self.world;
        let open: Vec<usize> = (0..world.connections.len())
            .filter(|index| world.connections[*index].open == [true; 2])
            .collect();
        let Some(connection) = world.random.pick(&open).copied() else {
            return;
        };
        world.breaks += 1;
        let now = world.now;
        world.strikes_connection(connection, now);
        let seen_by = world.random.below(4);
        if seen_by == 3 {
            // Something on the way has forgotten it.
            world.connections[connection].lost = true;
            return;
        }
        for at_home in [true, false] {
            // One side may have to find out for itself.
            if seen_by != u64::from(at_home) {
                let delay = world.some_ms(0, 20);
                world.after(
                    delay,
                    What::Broken {
                        connection,
                        at_home,
                    },
                );
            }
        }
    }

    fn close_all(&mut self, node: usize) {
        for connection in 0..self.world.connections.len() {
            let way = &self.world.connections[connection];
            if node == 0 || way.epoch as usize == node {
                self.world.hang_up(connection, node == 0);
            }
        }
    }

    fn judge(self, before: &[u64]) -> Result<Outcome> {
        let Self { world, home, hosts } = self;
        let (ended, lost) = home.fate();
        ensure!(
            !ended || lost,
            "The program ended, although nothing like it had happened"
        );
        ensure!(
            !(ended && world.gentle),
            "The program ended, although all faults were short"
        );
        let goes_on = world
            .ledger
            .iter()
            .zip(before)
            .all(|(now, then)| now > then);
        ensure!(
            ended || goes_on,
            "The program does not go on: {:?} after {before:?}; {home:?}",
            world.ledger
        );
        for host in &hosts {
            let node = world.nodes[host.epoch as usize];
            ensure!(
                node.dead
                    || node.lies
                    || host.is_over()
                    || (!ended && home.is_at(host.epoch))
                    // It waits two minutes for a home that has gone without a word.
                    || (host.is_arriving() && world.is_unheard(host.epoch)),
                "The host of epoch {} keeps a guest that nobody wants",
                host.epoch
            );
        }
        Ok(Outcome {
            effects: world.ledger.iter().sum(),
            moves: world.moves,
            breaks: world.breaks,
            cuts: world.cuts,
            ended,
            gentle: world.gentle,
        })
    }
}
