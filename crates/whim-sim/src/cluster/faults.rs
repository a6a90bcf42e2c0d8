//! Nodes that die, come back, or are cut off; leases by `whim_journey`'s machines; who believes whom.

use super::program::{Fate, State};
use super::{Cluster, Event, Micros, SECOND, millis, seconds};
use std::collections::BTreeMap;
use std::time::Duration;
use whim_balance::balancer::Balancer;
use whim_journey::lease::{self, Watch};
use whim_journey::stay::{self, Stay};

/// Leases are looked at so often.
pub(super) const LOOK: Micros = SECOND / 10;
/// A node that is not heard of for so long counts as down: membership notices within ten seconds.
const NOTICED: Micros = 5 * SECOND;

/// At most so long after they reach each other again both sides know it.
const HEARTBEAT: Micros = SECOND + LOOK;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub at: Micros,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Die(usize),
    Return(usize),
    /// Two nodes do not reach each other.
    Cut(usize, usize),
    Heal(usize, usize),
}

/// A program that is away, as both sides see its lease.
struct Away {
    host: usize,
    /// None when home has given it up.
    watch: Option<Watch>,
    stay: Stay,
    /// Since when its host and its home have not reached each other; and since when they do again.
    apart: Option<Micros>,
    back: Option<Micros>,
}

impl Away {
    /// A heartbeat may take its time to show that they are together again.
    fn note(&mut self, now: Micros, together: bool) {
        if !together {
            self.back = None;
            self.apart.get_or_insert(now);
        } else if self.apart.is_some() {
            let back = *self.back.get_or_insert(now);
            if back + HEARTBEAT < now {
                (self.apart, self.back) = (None, None);
            }
        }
    }
}

/// What is wrong, and what comes of it.
pub(super) struct Troubles {
    lease: Duration,
    happened: usize,
    /// Pairs that do not reach each other, the smaller one first, and since when.
    cut: BTreeMap<(usize, usize), Micros>,
    died: BTreeMap<usize, Micros>,
    away: BTreeMap<usize, Away>,
    nodes: usize,
}

/// Which nodes one of them takes for members.
pub(super) struct Members {
    down: Vec<usize>,
}

impl Members {
    #[must_use]
    pub(super) fn are_all(&self) -> bool {
        self.down.is_empty()
    }

    #[must_use]
    pub(super) fn has(&self, node: usize) -> bool {
        !self.down.contains(&node)
    }
}

impl Troubles {
    #[must_use]
    pub(super) fn new(nodes: usize, lease: Duration) -> Self {
        Self {
            lease,
            happened: 0,
            cut: BTreeMap::new(),
            died: BTreeMap::new(),
            away: BTreeMap::new(),
            nodes,
        }
    }

    /// No guest is anywhere.
    #[must_use]
    pub(super) fn is_quiet(&self) -> bool {
        self.away.is_empty()
    }

    pub(super) fn forget(&mut self, program: usize) {
        self.away.remove(&program);
    }

    /// Whether its host lets it stand still, because home is silent.
    #[must_use]
    pub(super) fn is_held(&self, program: usize) -> bool {
        let away = self.away.get(&program);
        away.is_some_and(|away| away.stay.is_held())
    }

    fn since(&self, one: usize, other: usize) -> Option<Micros> {
        let cut = self.cut.get(&(one.min(other), one.max(other)));
        let dead = self.died.get(&other);
        cut.into_iter().chain(dead).min().copied()
    }
}

fn clock(now: Micros) -> Duration {
    Duration::from_micros(now)
}

impl Cluster {
    /// Whether both live, and nothing is between them.
    pub(super) fn reach(&self, one: usize, other: usize) -> bool {
        let alive = self.nodes[one].alive && self.nodes[other].alive;
        alive && (one == other || self.troubles.since(one, other).is_none())
    }

    /// Whether a node takes another one for up.
    pub(super) fn believes(&self, own: usize, other: usize) -> bool {
        let since = self.troubles.since(own, other);
        own == other || since.is_none_or(|since| since + NOTICED > self.now)
    }

    pub(super) fn members(&self, own: usize) -> Members {
        let troubles = &self.troubles;
        let pairs = troubles.cut.keys().copied();
        let cut = pairs.flat_map(|(one, other)| match own {
            _ if one == own => Some(other),
            _ if other == own => Some(one),
            _ => None,
        });
        let dead = troubles.died.keys().copied();
        let down = cut.chain(dead).filter(|other| !self.believes(own, *other));
        Members {
            down: down.collect(),
        }
    }

    pub(super) fn member_count(&self, own: usize) -> usize {
        let mut down = self.members(own).down;
        down.sort_unstable();
        down.dedup();
        self.troubles.nodes - down.len()
    }

    pub(super) fn fault(&mut self) {
        let Some(fault) = self.setting.faults.get(self.troubles.happened).copied() else {
            return;
        };
        self.troubles.happened += 1;
        if let Some(next) = self.setting.faults.get(self.troubles.happened) {
            self.plan(next.at, Event::Fault);
        }
        self.break_transfers(fault.kind);
        match fault.kind {
            FaultKind::Die(node) if self.nodes[node].alive => self.die(node),
            FaultKind::Return(node) if !self.nodes[node].alive => {
                self.nodes[node].alive = true;
                self.troubles.died.remove(&node);
            }
            FaultKind::Cut(one, other) if one != other => {
                let pair = (one.min(other), one.max(other));
                self.troubles.cut.entry(pair).or_insert(self.now);
            }
            FaultKind::Heal(one, other) => {
                self.troubles.cut.remove(&(one.min(other), one.max(other)));
            }
            _ => {}
        }
    }

    /// What is under way between nodes of which one dies, or that are cut off, does not arrive.
    fn break_transfers(&mut self, kind: FaultKind) {
        for moving in self.transfers.values_mut() {
            let home = self.programs[moving.program].spec.home;
            let among = |node: usize| [home, moving.from, moving.to].contains(&node);
            moving.broken |= match kind {
                FaultKind::Die(node) => among(node),
                FaultKind::Cut(one, other) => among(one) && among(other),
                FaultKind::Return(_) | FaultKind::Heal(..) => false,
            };
        }
    }

    fn die(&mut self, node: usize) {
        self.pass(node);
        self.troubles.died.insert(node, self.now);
        for program in std::mem::take(&mut self.nodes[node].own) {
            self.end(program, Fate::LostHome);
            if self.programs[program].at == node {
                self.programs[program].state = State::Over;
            }
        }
        // Guests are gone; their homes hear of it when the lease is over.
        for program in std::mem::take(&mut self.nodes[node].here) {
            self.programs[program].state = State::Over;
            if self.programs[program].fate.is_some() {
                self.troubles.forget(program);
            }
        }
        let balancer = Balancer::new(super::id(node), self.setting.rules, self.setting.habits);
        self.nodes[node].alive = false;
        self.nodes[node].reset(node, balancer);
        let bound = |moving: &super::Transfer| moving.to == node;
        let promised: f64 = self
            .transfers
            .values()
            .filter(|moving| bound(moving))
            .map(|moving| moving.memory)
            .sum();
        // They land nowhere, and take this back then.
        self.nodes[node].promised = promised;
    }

    /// A program has come to a node.
    pub(super) fn begin_lease(&mut self, program: usize) {
        if self.setting.faults.is_empty() {
            return;
        }
        let (home, at) = (self.programs[program].spec.home, self.programs[program].at);
        if at == home {
            self.troubles.forget(program);
            return;
        }
        let (now, lease) = (clock(self.now), Some(self.troubles.lease));
        let mut stay = Stay::new(now, lease);
        for event in [
            stay::Event::Connected(true),
            stay::Event::Commit,
            stay::Event::Acknowledged,
        ] {
            // All that it asks for has happened already: the program runs there.
            stay.handle(now, event).for_each(drop);
        }
        let away = Away {
            host: at,
            watch: Some(Watch::new(now, lease)),
            stay,
            apart: None,
            back: None,
        };
        self.troubles.away.insert(program, away);
    }

    /// Both sides of every lease take a look.
    pub(super) fn leases(&mut self) {
        self.plan(self.now + LOOK, Event::Leases);
        let programs: Vec<usize> = self.troubles.away.keys().copied().collect();
        for program in programs {
            self.look_at_lease(program);
        }
    }

    fn look_at_lease(&mut self, program: usize) {
        let now = clock(self.now);
        let home = self.programs[program].spec.home;
        let Some(host) = self.troubles.away.get(&program).map(|away| away.host) else {
            return;
        };
        let (reach, hosted) = (
            self.reach(home, host),
            self.nodes[host].here.contains(&program),
        );
        let Some(away) = self.troubles.away.get_mut(&program) else {
            return;
        };
        // A host that came back knows nothing of the guest.
        away.note(self.now, reach && hosted);
        let mut given_up = false;
        if let Some(watch) = &mut away.watch {
            for action in watch.handle(now, lease::Event::Tick) {
                match action {
                    lease::Action::Beat if reach && hosted => {
                        let heard = stay::Event::Heard { at: now };
                        away.stay.handle(now, heard).for_each(drop);
                    }
                    lease::Action::Beat => {}
                    lease::Action::GiveUp { .. } => given_up = true,
                }
            }
        }
        let actions: Vec<stay::Action> = match hosted {
            true => away.stay.handle(now, stay::Event::Tick).collect(),
            false => Vec::new(),
        };
        if actions.contains(&stay::Action::Beat)
            && reach
            && let Some(watch) = &mut away.watch
        {
            let heard = lease::Event::Heard { at: now };
            watch.handle(now, heard).for_each(drop);
        }
        if given_up {
            self.home_gives_up(program, host);
        }
        for action in actions {
            self.host_does(program, host, action);
        }
    }

    fn home_gives_up(&mut self, program: usize, host: usize) {
        let apart = self.troubles.away.get_mut(&program).and_then(|away| {
            away.watch = None;
            away.apart
        });
        let time = seconds(self.now);
        let lease = u64::try_from(self.troubles.lease.as_micros()).unwrap_or(u64::MAX);
        // By the heartbeats that were on their way when it began, and by the grain of the looks.
        let spare = 2 * SECOND;
        if apart.is_none_or(|since| self.now - since + spare < lease) {
            self.outcome.breaks(format!(
                "At {time:.1} s the home of program {program} gave it up, though its host was there"
            ));
        }
        if self.programs[program].is_live() && self.nodes[host].here.contains(&program) {
            self.outcome.breaks(format!(
                "At {time:.1} s the home of program {program} gave it up while it computed on node {host}"
            ));
        }
        let now = millis(self.now);
        let home = self.programs[program].spec.home;
        self.nodes[home].balancer.ended(now, program as u64, false);
        self.end(program, Fate::LostHost);
        if !self.nodes[host].here.contains(&program) {
            self.troubles.forget(program);
        }
    }

    fn host_does(&mut self, program: usize, host: usize, action: stay::Action) {
        let state = self.programs[program].state;
        match action {
            stay::Action::Hold if state == State::Runs => {
                self.pass(host);
                if self.programs[program].state == State::Runs {
                    self.programs[program].state = State::Held;
                }
                self.settle(host);
            }
            stay::Action::Release if state == State::Held => {
                self.programs[program].state = State::Runs;
                self.settle(host);
            }
            stay::Action::Desert { .. } | stay::Action::End => {
                self.pass(host);
                let memory = self.programs[program].memory;
                self.nodes[host].remove(program, memory);
                self.programs[program].state = State::Over;
                self.troubles.forget(program);
                self.end(program, Fate::LostHost);
                self.settle(host);
            }
            _ => {}
        }
    }

    /// What has to hold when a run is over.
    pub(super) fn check_end(&mut self) {
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let used: f64 = node.here.iter().map(|p| self.programs[*p].memory).sum();
            let promised = self.transfers.values().filter(|moving| moving.to == number);
            let promised: f64 = promised.map(|moving| moving.memory).sum();
            let from_here = |moving: &&super::Transfer| {
                let home = self.programs[moving.program].spec.home;
                home == number && self.programs[moving.program].fate.is_none()
            };
            let under_way = self.transfers.values().filter(from_here).count();
            let counted = node.balancer.under_way();
            let (in_use, held) = (node.used, node.promised);
            if (used - in_use).abs() > 1.0 || (promised - held).abs() > 1.0 {
                self.outcome.breaks(format!(
                    "Node {number} counts {in_use:.0} bytes in use and {held:.0} promised; they are {used:.0} and {promised:.0}"
                ));
            }
            if counted > under_way && self.nodes[number].alive {
                self.outcome.breaks(format!(
                    "The balancer of node {number} waits for {counted} moves, and {under_way} go on"
                ));
            }
        }
    }
}
