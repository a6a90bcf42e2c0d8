//! Looks, and the moves that follow: admission with a reservation, freeze, transfer, landing.

use super::program::State;
use super::report::Moved;
use super::{Cluster, Event, Micros, id, micros, millis, number, seconds};
use rand::RngExt;
use whim_balance::balancer::{Known, Program as Own, Relocation};
use whim_balance::decide::Task;
use whim_balance::sample;
use whim_journey::cause::Cause;

/// A program on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub program: usize,
    pub from: usize,
    pub to: usize,
    pub memory: f64,
    pub cause: Cause,
    pub began: Micros,
    /// One of the nodes has died meanwhile, or was cut off.
    pub broken: bool,
}

impl Cluster {
    /// A node looks at its own programs.
    pub(super) fn decide(&mut self, own: usize) {
        let programs = self.own_programs(own);
        if programs.is_empty() && self.nodes[own].balancer.under_way() == 0 {
            // It keeps track of nodes that come and go, which is news only if there is somebody to move.
            let known = Vec::new();
            self.nodes[own]
                .balancer
                .decide(millis(self.now), 1, &known, &[]);
            return;
        }
        // Nobody is asked about nodes for the sake of programs that end in a moment.
        let worth = |program: &Own| program.task.age >= self.setting.habits.young;
        let mut known = match programs.iter().any(worth) {
            true => self.known(own),
            false => self.known_now(own),
        };
        Self::grow(own, &mut known, &programs);
        let count = u32::try_from(self.member_count(own)).unwrap_or(u32::MAX);
        let now = millis(self.now);
        let node = &mut self.nodes[own];
        node.balancer.sampled = node.view.entries().len() > sample::ALL_UP_TO;
        let relocations = node.balancer.decide(now, count, &known, &programs);
        self.outcome.looks += 1;
        for relocation in relocations {
            if !self.depart(own, &relocation) {
                self.outcome.refused += 1;
                self.nodes[own]
                    .balancer
                    .ended(now, relocation.process, false);
            }
        }
    }

    /// By how much the memory of nodes grows: by what they tell of their own programs, and what ours there
    /// grow now.
    fn grow(own: usize, known: &mut [Known], programs: &[Own]) {
        for node in known {
            let there = programs
                .iter()
                .filter(|program| program.at == node.node.node);
            let ours: f64 = there.map(|program| program.growth.max(0.0)).sum();
            let told = if node.node.node == id(own) {
                0.0
            } else {
                node.growth
            };
            node.growth = told + ours;
        }
    }

    fn own_programs(&self, own: usize) -> Vec<Own> {
        let numbers = self.nodes[own].own.iter();
        let program = |number: &usize| {
            let program = &self.programs[*number];
            let loses = program.senses.loses();
            let away = program.at != own;
            Own {
                task: Task {
                    process: *number as u64,
                    cpus: program.senses.cpus(),
                    memory: program.memory,
                    done: program.done,
                    age: program.age(self.now),
                    here: seconds(self.now - program.came),
                    loses_here: if away { loses } else { 0.0 },
                    loses_away: loses,
                    home: id(own),
                },
                at: id(program.at),
                growth: program.senses.growth(),
                terminal: false,
                fixed: None,
                forbidden: Vec::new(),
                lasts: false,
            }
        };
        numbers.map(program).collect()
    }

    /// Begins a move, if the target admits it.
    fn depart(&mut self, own: usize, relocation: &Relocation) -> bool {
        let (from, to) = (number(relocation.from), number(relocation.to));
        let moved = usize::try_from(relocation.process).unwrap_or(usize::MAX);
        let reach = self.reach(own, to) && self.reach(own, from) && self.reach(from, to);
        self.pass(from);
        self.pass(to);
        let program = &self.programs[moved];
        if !reach || !program.is_live() || program.at != from || from == to {
            return false;
        }
        let memory = program.memory;
        let room = self.nodes[to].room(self.setting.rules.reserve);
        if room < memory {
            return false;
        }
        self.nodes[to].promised += memory;
        self.programs[moved].state = State::Frozen;
        self.settle(from);
        let (least, most) = self.setting.freeze;
        let freeze = least + (most - least) * self.chance.random::<f64>();
        let lands = self.now + micros(freeze + memory / self.setting.rate);
        let transfer = self.next_transfer;
        self.next_transfer += 1;
        let cause = relocation.cause;
        let (began, program) = (self.now, moved);
        let transfer_of = Transfer {
            program,
            from,
            to,
            memory,
            cause,
            began,
            broken: false,
        };
        self.transfers.insert(transfer, transfer_of);
        self.plan(lands, Event::Landing(transfer));
        true
    }

    /// A transfer ends: the program goes on there, or, if something has failed, where it was.
    pub(super) fn land(&mut self, transfer: u64) {
        let Some(moving) = self.transfers.remove(&transfer) else {
            return;
        };
        let Transfer {
            program,
            from,
            to,
            memory,
            ..
        } = moving;
        self.pass(from);
        self.pass(to);
        let home = self.programs[program].spec.home;
        self.nodes[to].promised = (self.nodes[to].promised - memory).max(0.0);
        if self.programs[program].fate.is_some() {
            // Whoever has the guest ends it when its lease is over.
            return;
        }
        let now = millis(self.now);
        // What grew there meanwhile may have taken the room that was promised.
        let machine = self.nodes[to].machine;
        let full = self.nodes[to].used + memory > machine.memory;
        if moving.broken || full {
            self.outcome.failed += usize::from(moving.broken);
            self.outcome.crowded += usize::from(full);
            self.nodes[home].balancer.ended(now, program as u64, false);
            return self.go_on(program, from);
        }
        self.nodes[from].remove(program, memory);
        self.nodes[to].add(program, memory);
        self.programs[program].arrive(to, self.now);
        self.programs[program].state = State::Runs;
        self.nodes[home].balancer.ended(now, program as u64, true);
        self.begin_lease(program);
        self.outcome.moves.push(Moved {
            at: seconds(moving.began),
            took: seconds(self.now - moving.began),
            program,
            from,
            to,
            cause: moving.cause,
        });
        self.settle(from);
        self.settle(to);
    }

    /// The move of a program has failed: it goes on where it was, if that is still there.
    fn go_on(&mut self, program: usize, from: usize) {
        if self.programs[program].state != State::Frozen {
            return;
        }
        self.programs[program].state = match self.troubles.is_held(program) {
            true => State::Held,
            false => State::Runs,
        };
        self.settle(from);
    }
}
