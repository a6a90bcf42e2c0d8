//! A node of the simulator: programs that share its CPU, its memory, and its sensors.

use super::program::{Place, Program};
use super::{Micros, id, micros, seconds};
use crate::fluid;
use whim_balance::NodeId;
use whim_balance::balancer::{Balancer, Known};
use whim_balance::cost::Size;
use whim_balance::decide::{self, Node as Seen};
use whim_balance::gossip::{self, View};
use whim_balance::load::Recent;

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// Programs that run at the same time; less than one where a limit says so.
    pub cores: f64,
    /// Of one core.
    pub speed: f64,
    /// Bytes.
    pub memory: f64,
}

/// What a node tells of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub running: f64,
    pub urgency: f64,
    /// In use or promised.
    pub memory: f64,
    /// Of its own programs there: what comes with a guest is no growth.
    pub growth: f64,
}

/// Words are kept for so many seconds: what is older than [`gossip::AGE_MAX_MS`] is in no view.
const KEPT: usize = 122;

pub(crate) struct Node {
    pub machine: Machine,
    /// Programs that are here, also those that are being moved away.
    pub here: Vec<usize>,
    /// Programs whose home it is.
    pub own: Vec<usize>,
    pub used: f64,
    /// Bytes of programs that are on their way here, and how many they are.
    pub promised: f64,
    pub alive: bool,
    /// Slower by this where memory is overcommitted.
    paging: f64,
    share: f64,
    updated: Micros,
    /// Changes that were planned before this number are void.
    pub generation: u64,
    could_run: f64,
    recent: Recent,
    ticks: usize,
    /// What it has told, by the number of the second: the view of others names the time alone, so that
    /// what a thousand nodes know of it is kept once.
    told: Vec<Told>,
    pub view: View<()>,
    pub balancer: Balancer,
    pub peak: f64,
}

const _: () = assert!(KEPT as u64 * 1000 > gossip::AGE_MAX_MS + 1000);

impl Node {
    #[must_use]
    pub(crate) fn new(number: usize, machine: Machine, paging: f64, balancer: Balancer) -> Self {
        Self {
            machine,
            here: Vec::new(),
            own: Vec::new(),
            used: 0.0,
            promised: 0.0,
            alive: true,
            paging,
            share: 1.0,
            updated: 0,
            generation: 0,
            could_run: 0.0,
            recent: Recent::default(),
            ticks: 0,
            told: Vec::new(),
            view: View::new(id(number)),
            balancer,
            peak: 0.0,
        }
    }

    /// It is switched off and on again: nothing is left but the machine.
    pub(crate) fn reset(&mut self, number: usize, balancer: Balancer) {
        let told = std::mem::take(&mut self.told);
        *self = Self {
            alive: self.alive,
            updated: self.updated,
            generation: self.generation + 1,
            ticks: self.ticks,
            told,
            peak: self.peak,
            ..Self::new(number, self.machine, self.paging, balancer)
        };
    }

    fn place(&self, own: usize, program: &Program) -> Place {
        Place {
            speed: self.machine.speed,
            share: self.share,
            away: program.spec.home != own,
        }
    }

    #[must_use]
    pub(crate) fn updated(&self) -> Micros {
        self.updated
    }

    /// Lets time pass until now, no more than until the next change; gives those that have ended.
    pub(crate) fn pass(&mut self, own: usize, now: Micros, programs: &mut [Program]) -> Vec<usize> {
        let elapsed = seconds(now - self.updated);
        self.updated = now;
        let mut ended = Vec::new();
        if elapsed <= 0.0 {
            return ended;
        }
        let mut used = 0.0;
        for number in &self.here {
            let program = &mut programs[*number];
            if program.is_live() {
                let place = self.place(own, program);
                let before = program.could_run;
                if program.pass(elapsed, &place) {
                    ended.push(*number);
                }
                self.could_run += program.could_run - before;
            }
            used += program.memory;
        }
        self.used = used;
        self.peak = self.peak.max(used / self.machine.memory);
        ended
    }

    /// Shares the CPU anew; gives when the next program changes what it does.
    pub(crate) fn plan(&mut self, own: usize, programs: &[Program]) -> Option<Micros> {
        self.generation += 1;
        self.share = 1.0;
        let wants = |number: &usize| {
            let program = &programs[*number];
            if !program.is_live() {
                return 0.0;
            }
            let (runs, waits) = program.now_in().takes(&self.place(own, program));
            runs / (runs + waits)
        };
        let wanted: f64 = self.here.iter().map(wants).sum();
        self.share = 1.0 / fluid::crowding(self.machine.cores, wanted);
        if self.used > self.machine.memory {
            self.share /= self.paging;
        }
        let live = self.here.iter().map(|number| &programs[*number]);
        let next = live
            .filter(|program| program.is_live())
            .map(|program| program.until_change(&self.place(own, program)))
            .fold(f64::INFINITY, f64::min);
        next.is_finite().then(|| self.updated + micros(next) + 1)
    }

    pub(crate) fn add(&mut self, number: usize, memory: f64) {
        self.here.push(number);
        self.used += memory;
        self.peak = self.peak.max(self.used / self.machine.memory);
    }

    pub(crate) fn remove(&mut self, number: usize, memory: f64) {
        self.here.retain(|other| *other != number);
        self.used = if self.here.is_empty() {
            0.0
        } else {
            self.used - memory
        };
    }

    /// Bytes that it could still promise.
    #[must_use]
    pub(crate) fn room(&self, reserve: f64) -> f64 {
        self.machine.memory - self.used - self.promised - reserve
    }

    /// Its sensors take a look, a second after the last one; what they say of CPUs is off by a factor.
    pub(crate) fn sense(&mut self, programs: &[Program], about: f64) {
        self.recent.sample(self.could_run * about);
        self.could_run = 0.0;
        // By what its own sensors and its guests' homes say of them.
        let urgency = |number: &usize| {
            let program = &programs[*number];
            match program.is_live() {
                true => program.senses.cpus().min(1.0) * decide::urgency(program.done),
                false => 0.0,
            }
        };
        let growth = |number: &usize| {
            let program = &programs[*number];
            let grows = self.here.contains(number);
            if grows {
                program.senses.growth().max(0.0)
            } else {
                0.0
            }
        };
        let told = Told {
            running: self.recent.mean(),
            urgency: self.here.iter().map(urgency).sum(),
            memory: self.used + self.promised,
            growth: self.own.iter().map(growth).sum(),
        };
        self.ticks += 1;
        let place = self.ticks % KEPT;
        if self.told.len() <= place {
            self.told.resize(place + 1, Told::default());
        }
        self.told[place] = told;
    }

    /// A second in which it was off.
    pub(crate) fn skip(&mut self) {
        self.ticks += 1;
    }

    /// What it told so many seconds ago, at most [`KEPT`].
    #[must_use]
    pub(crate) fn told(&self, seconds_ago: usize) -> Told {
        let place = self.ticks.saturating_sub(seconds_ago) % KEPT;
        self.told.get(place).copied().unwrap_or_default()
    }

    /// The newest number that is known of its load.
    #[must_use]
    pub(crate) fn running(&self) -> f64 {
        self.recent.mean()
    }

    /// As policy takes what was told of it.
    #[must_use]
    pub(crate) fn known(&self, node: NodeId, told: &Told, at: u64, takes: bool) -> Known {
        Known {
            node: Seen {
                node,
                size: Size {
                    speed: self.machine.speed * self.machine.cores,
                    memory: self.machine.memory,
                },
                cores: self.machine.cores,
                running: told.running,
                urgency: told.urgency,
                memory: told.memory,
            },
            at,
            takes,
            growth: told.growth,
        }
    }
}
