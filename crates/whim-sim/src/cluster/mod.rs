//! A cluster whose nodes run the production policy: `whim_balance`'s balancer, gossip and load, and
//! `whim_journey`'s lease, on machines that share their CPU evenly.
//!
//! What is simplified, so that nobody takes it for measured:
//!
//! - A program is one thread. It gets an even share of its node's cores, one core at most; where memory is
//!   overcommitted all programs of the node are slower by [`Setting::paging`].
//! - A call for home costs [`program::CALL`], whatever the network does. A message of gossip needs no time
//!   and is never lost between nodes that reach each other; nobody's clock is wrong.
//! - A move stops its program for a freeze that is chosen by chance, and its bytes over a rate; transfers
//!   do not share a wire.
//! - What is known of a program that is away is as old as its host's last event: a second at most.
//!
//! The same [`Setting`] gives the same run, always.

mod agenda;
mod faults;
mod gossip;
mod moves;
pub(crate) mod node;
pub(crate) mod program;
mod report;

pub(crate) use faults::{Fault, FaultKind};
pub(crate) use report::{Outcome, SimulatedSample};

use agenda::Agenda;
use faults::Troubles;
use moves::Transfer;
use node::{Machine, Node};
use program::{Fate, Program, Spec, State};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::time::Duration;
use whim_balance::balancer::{Balancer, Habits};
use whim_balance::decide::Rules;
use whim_balance::{Millis, NodeId};

/// Time since the beginning: millionths of a second.
pub(crate) type Micros = u64;
pub(crate) const SECOND: Micros = 1_000_000;

#[must_use]
pub(crate) fn seconds(time: Micros) -> f64 {
    // A day is 2^37 of them.
    time as f64 / SECOND as f64
}

#[must_use]
pub(crate) fn micros(seconds: f64) -> Micros {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "kept within bounds, and a millionth does not matter"
    )]
    let time = (seconds.clamp(0.0, 1e9) * SECOND as f64).round() as Micros;
    time
}

pub(crate) fn millis(time: Micros) -> Millis {
    time / 1000
}

/// A node as the policy calls it.
#[must_use]
pub(crate) fn id(node: usize) -> NodeId {
    NodeId(node as u64)
}

fn number(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(usize::MAX)
}

/// All that a run depends on.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub seed: u64,
    pub machines: Vec<Machine>,
    /// By the time of their arrival.
    pub programs: Vec<Spec>,
    /// When it is over, whatever still runs.
    pub until: Micros,
    /// Whether anything moves by itself.
    pub balance: bool,
    pub rules: Rules,
    pub habits: Habits,
    /// Seconds for which a move stops a program, be it ever so small: from, to.
    pub freeze: (f64, f64),
    /// Bytes a second of a move.
    pub rate: f64,
    /// A node whose memory is overcommitted is slower by so much.
    pub paging: f64,
    /// What sensors say of CPUs is off by up to this part, up or down.
    pub noise: f64,
    pub lease: Duration,
    /// By their time.
    pub faults: Vec<Fault>,
    /// Keep what each node looks like in every second.
    pub trace: bool,
}

impl Setting {
    /// Nothing happens in it yet.
    #[must_use]
    pub(crate) fn new(seed: u64, machines: Vec<Machine>, seconds: f64) -> Self {
        Self {
            seed,
            machines,
            programs: Vec::new(),
            until: micros(seconds),
            balance: true,
            rules: Rules::default(),
            habits: Habits::default(),
            freeze: (0.1, 0.3),
            rate: 100e6,
            paging: 10.0,
            noise: 0.1,
            lease: Duration::from_secs(30),
            faults: Vec::new(),
            trace: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The next programs of the workload begin.
    Arrivals,
    /// A node looks at everything.
    Tick(usize),
    /// A program of this node begins another phase; void if the node has another generation now.
    Change(usize, u64),
    /// A transfer ends.
    Landing(u64),
    /// The next fault happens.
    Fault,
    /// All leases are looked at.
    Leases,
}

pub(crate) struct Cluster {
    setting: Setting,
    chance: Pcg64Mcg,
    now: Micros,
    agenda: Agenda,
    nodes: Vec<Node>,
    programs: Vec<Program>,
    /// Of the workload, those that have begun.
    arrived: usize,
    live: usize,
    transfers: BTreeMap<u64, Transfer>,
    next_transfer: u64,
    troubles: Troubles,
    outcome: Outcome,
}

/// Runs a setting to its end.
#[must_use]
pub(crate) fn run(setting: Setting) -> Outcome {
    Cluster::new(setting).all()
}

impl Cluster {
    #[must_use]
    pub(crate) fn new(setting: Setting) -> Self {
        let balancer = |node| Balancer::new(id(node), setting.rules, setting.habits);
        let nodes = setting.machines.iter().enumerate();
        let nodes = nodes
            .map(|(number, machine)| Node::new(number, *machine, setting.paging, balancer(number)));
        let mut cluster = Self {
            chance: Pcg64Mcg::seed_from_u64(setting.seed),
            now: 0,
            agenda: Agenda::default(),
            nodes: nodes.collect(),
            programs: Vec::with_capacity(setting.programs.len()),
            arrived: 0,
            live: 0,
            transfers: BTreeMap::new(),
            next_transfer: 0,
            troubles: Troubles::new(setting.machines.len(), setting.lease),
            outcome: Outcome::new(setting.machines.len()),
            setting,
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            // Whole milliseconds: ages travel in them.
            let first = u64::from(self.chance.random_range(1..=1000u32)) * 1000;
            self.plan(first, Event::Tick(node));
        }
        if let Some(first) = self.setting.programs.first() {
            self.plan(first.arrives, Event::Arrivals);
        }
        if let Some(first) = self.setting.faults.first() {
            self.plan(first.at, Event::Fault);
            self.plan(faults::LOOK, Event::Leases);
        }
    }

    fn plan(&mut self, at: Micros, event: Event) {
        self.agenda.plan(at, event);
    }

    fn all(mut self) -> Outcome {
        while let Some((at, event)) = self.agenda.next(self.setting.until) {
            let over = self.live == 0 && self.arrived == self.setting.programs.len();
            if over && self.may_end_early() {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.close()
    }

    /// With no program in it at all, what is watched is gossip.
    fn may_end_early(&self) -> bool {
        !self.setting.programs.is_empty() && self.troubles.is_quiet() && self.transfers.is_empty()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrivals => self.arrivals(),
            Event::Tick(node) => self.tick(node),
            Event::Change(node, generation) => {
                if self.nodes[node].generation == generation {
                    self.settle(node);
                }
            }
            Event::Landing(transfer) => self.land(transfer),
            Event::Fault => self.fault(),
            Event::Leases => self.leases(),
        }
    }

    fn arrivals(&mut self) {
        while let Some(spec) = self.setting.programs.get(self.arrived) {
            if spec.arrives > self.now {
                let at = spec.arrives;
                self.plan(at, Event::Arrivals);
                return;
            }
            let (home, memory) = (spec.home, spec.memory);
            let program = Program::new(spec.clone());
            self.arrived += 1;
            self.programs.push(program);
            let new = self.programs.len() - 1;
            self.live += 1;
            if !self.nodes[home].alive {
                self.end(new, Fate::LostHome);
                continue;
            }
            self.pass(home);
            self.nodes[home].add(new, memory);
            self.nodes[home].own.push(new);
            self.settle(home);
        }
    }

    /// Lets a node's time pass until now.
    fn pass(&mut self, node: usize) {
        let ended = self.nodes[node].pass(node, self.now, &mut self.programs);
        for program in ended {
            if self.programs[program].fate.is_some() {
                // Nobody waits for it any more: its host keeps it until the lease is over.
                self.programs[program].state = State::Over;
            }
            self.end(program, Fate::Done);
        }
    }

    /// The same, and plans what comes next there.
    fn settle(&mut self, node: usize) {
        self.pass(node);
        if let Some(at) = self.nodes[node].plan(node, &self.programs) {
            let generation = self.nodes[node].generation;
            self.plan(at.max(self.now + 1), Event::Change(node, generation));
        }
    }

    /// A program is over. Its place is given up, unless it is a guest whose host does not know yet.
    fn end(&mut self, program: usize, fate: Fate) {
        let ended = &mut self.programs[program];
        if ended.fate.is_some() {
            return;
        }
        ended.fate = Some((self.now, fate));
        self.live -= 1;
        let (home, at, memory) = (ended.spec.home, ended.at, ended.memory);
        self.nodes[home].own.retain(|own| *own != program);
        let first = self.setting.programs.first();
        let first = first.map_or(0.0, |spec| seconds(spec.arrives));
        self.outcome.ended(&self.programs[program], first);
        if fate == Fate::Done {
            self.programs[program].state = State::Over;
            self.nodes[at].remove(program, memory);
            self.troubles.forget(program);
        }
    }

    fn tick(&mut self, node: usize) {
        let next = self.now + SECOND;
        self.agenda.plan_last(next, Event::Tick(node));
        if !self.nodes[node].alive {
            self.nodes[node].skip();
            return;
        }
        self.settle(node);
        let about = self.noise();
        self.nodes[node].sense(&self.programs, about);
        for place in 0..self.nodes[node].own.len() {
            let program = self.nodes[node].own[place];
            let at = self.nodes[self.programs[program].at].updated();
            if self.programs[program].is_live() {
                let about = self.noise();
                self.programs[program].sense(at, about);
            }
        }
        self.gossip(node);
        if self.setting.trace {
            self.trace(node);
        }
        if self.setting.balance {
            self.decide(node);
        }
    }

    /// Near 1.
    fn noise(&mut self) -> f64 {
        1.0 + self.setting.noise * (2.0 * self.chance.random::<f64>() - 1.0)
    }

    fn trace(&mut self, node: usize) {
        let busy = &self.nodes[node];
        let live = busy.here.iter();
        let live = live.filter(|number| self.programs[**number].is_live());
        let sample = SimulatedSample {
            at: seconds(self.now),
            node,
            programs: live.count(),
            load: busy.running(),
            memory: busy.used,
        };
        self.outcome.samples.push(sample);
    }

    fn close(mut self) -> Outcome {
        for node in 0..self.nodes.len() {
            self.pass(node);
            self.outcome.peaks[node] = self.nodes[node].peak;
        }
        for program in self.programs.iter().filter(|p| p.fate.is_none()) {
            self.outcome.left(program);
        }
        self.outcome.over_at = seconds(self.now);
        self.check_end();
        self.outcome
    }
}
