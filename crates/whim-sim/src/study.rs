//! The study of the opportunity cost approach (Amir, Awerbuch, Barak, Borgstrom, Keren, "An Opportunity
//! Cost Approach for Job Assignment in a Scalable Computing Cluster", IEEE TPDS 11(7), 2000, section 5),
//! done again: six machines, four policies, and the mean slowdown of jobs under each; and ours beside
//! them, by the code that the daemon runs.
//!
//! What the paper leaves open is decided in [`Assumptions`], [`workload`], [`mosix`], and with
//! these further ones:
//!
//! - Machines share their CPU evenly, and one whose memory is overcommitted is ten times slower, for all
//!   its processes: section 2 of the paper.
//! - PVM and MOSIX get jobs by turns, process by process. The paper says so of PVM. Of MOSIX it says
//!   nothing; its jobs begin where users are.
//! - E-PVM and E-MOSIX count processes, whatever a machine's speed, as figures 1 and 2 have it. (With
//!   loads by speed E-PVM is worse than MOSIX by far more than published, and E-MOSIX is worse than
//!   MOSIX.) L never falls.
//! - E-MOSIX "has the same limits on its knowledge and migrations": it sees as many machines, and moves
//!   as few processes at a look.

use crate::fluid::{Busy, Machine, Process, ProcessId};
use crate::mosix::{self, Rule};
use crate::workload::{self, Job, Jobs};
use clap::{Args, ValueEnum};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use whim_balance::NodeId;
use whim_balance::cost::{Need, Scale, Size, Use};
use whim_balance::decide::{self, Decision, Node, Rules, Task};

/// MHz and MB.
const MACHINES: [(f64, f64); 6] = [
    (200.0, 64.0),
    (200.0, 64.0),
    (200.0, 64.0),
    (133.0, 32.0),
    (133.0, 32.0),
    (90.0, 24.0),
];
/// A machine whose memory is overcommitted is slower by this.
const THRASHING: f64 = 10.0;

/// What the paper leaves open.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Assumptions {
    #[command(flatten)]
    pub jobs: Jobs,
    /// Seconds between two looks of a policy that moves
    ///
    /// "At regular intervals (e.g. every second)". With 5 seconds MOSIX, whose jobs begin by turns, comes
    /// too late for most of them and is worse than E-PVM.
    #[arg(long, default_value_t = 1.0)]
    pub look_every: f64,
    /// Machines that one machine knows of at a look, chosen by chance
    ///
    /// "A limited selection of other machines", "a small randomly picked set". What it knows of them is
    /// not old, and it moves one process at most: "the waiting period between migrations".
    #[arg(long, default_value_t = 3)]
    pub contacts: usize,
    /// Seconds after which a run is over, and what has not ended does not count; without it all is waited
    /// for
    ///
    /// "Each representing at least 10,000 simulated seconds": whether they waited is not said. What never
    /// ends under a policy is then no harm to its mean.
    #[arg(long)]
    pub until: Option<f64>,
    /// What counts once in a mean
    #[arg(long, value_enum, default_value_t = Counted::Jobs)]
    pub counted: Counted,
    /// Bytes a second of a move, during which the process does not run; without it moves are free
    ///
    /// "The cost of migration was ignored". It falls upon every policy that moves.
    #[arg(long)]
    pub cost_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counted {
    /// A job, when its last process has ended.
    Jobs,
    /// Each process: the paper's model knows nothing else.
    Processes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    /// By turns, and never moved.
    Pvm,
    /// Where the opportunity cost is least, and never moved.
    EPvm,
    /// By turns; moved by differences of load, and out of memory, with the parameters of Kerrighed.
    MosixShipped,
    /// By turns; moved by any difference of load, and out of memory.
    Mosix,
    /// Placed and moved by opportunity cost.
    EMosix,
    /// What Whimbrel does.
    Ours,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Of all its jobs' slowdowns.
    pub sum: f64,
    pub jobs: f64,
    pub moves: u64,
    /// Of one process.
    pub most_moves: u32,
}

struct Run<'a> {
    policy: Policy,
    assumed: &'a Assumptions,
    rules: Rules,
    machines: Vec<Busy>,
    states: Vec<mosix::State>,
    jobs: Vec<Job>,
    /// Of each job, processes that have not ended.
    running: Vec<u32>,
    scale: Scale,
    chance: Pcg64Mcg,
    now: f64,
    next_id: ProcessId,
    turn: usize,
    outcome: Outcome,
}

/// One run of the study; the same seed gives the same jobs to every policy.
#[must_use]
pub(crate) fn run(policy: Policy, seed: u64, assumed: &Assumptions) -> Outcome {
    let machines = MACHINES.map(|(mhz, memory)| {
        Busy::new(Machine {
            speed: mhz / MACHINES[0].0,
            memory,
        })
    });
    let jobs = workload::jobs(seed, &assumed.jobs, MACHINES[0].1);
    let mut run = Run {
        policy,
        assumed,
        rules: Rules {
            // The machines are of another time: their whole memory is for jobs, as in the paper.
            reserve: 0.0,
            rate: assumed.cost_rate.map_or(f64::INFINITY, |rate| rate / 1e6),
            least_freeze: 0.0,
            ..Rules::default()
        },
        machines: machines.into(),
        states: vec![mosix::State::default(); MACHINES.len()],
        running: jobs.iter().map(|job| job.processes).collect(),
        jobs,
        scale: Scale::new(count(MACHINES.len())),
        chance: Pcg64Mcg::seed_from_u64(seed ^ 0x5eed),
        now: 0.0,
        next_id: 0,
        turn: 0,
        outcome: Outcome::default(),
    };
    run.all();
    run.outcome
}

fn count(machines: usize) -> u32 {
    u32::try_from(machines).unwrap_or(u32::MAX)
}

impl Run<'_> {
    fn all(&mut self) {
        let moves = !matches!(self.policy, Policy::Pvm | Policy::EPvm);
        let mut arriving = 0;
        let mut look = self.assumed.look_every;
        loop {
            let next_job = self.jobs.get(arriving);
            let arrival = next_job.map_or(f64::INFINITY, |job| job.arrives);
            let changes = self.machines.iter();
            let changes = changes.map(|busy| busy.until_change(THRASHING));
            let change = self.now + changes.fold(f64::INFINITY, f64::min);
            let busy = moves && change.is_finite();
            let next = arrival.min(change);
            let next = if busy { next.min(look) } else { next };
            if !next.is_finite() || self.assumed.until.is_some_and(|until| next > until) {
                return;
            }
            self.pass(next);
            if next >= arrival {
                self.arrive(arriving);
                arriving += 1;
            } else if busy && next >= look {
                self.balance();
            }
            if !busy || self.now >= look {
                look = self.now + self.assumed.look_every;
            }
        }
    }

    fn pass(&mut self, until: f64) {
        let seconds = until - self.now;
        self.now = until;
        for busy in &mut self.machines {
            for process in busy.pass(seconds, THRASHING) {
                let job = &self.jobs[process.job];
                let running = &mut self.running[process.job];
                *running -= 1;
                if *running == 0 || self.assumed.counted == Counted::Processes {
                    self.outcome.sum += (until - job.arrives) / job.work;
                    self.outcome.jobs += 1.0;
                }
            }
        }
    }

    fn arrive(&mut self, number: usize) {
        let job = self.jobs[number];
        for _ in 0..job.processes {
            let machine = self.place(job.memory);
            let process = Process {
                id: self.next_id,
                job: number,
                left: job.work,
                memory: job.memory,
                came: self.now,
                moves: 0,
                frozen: 0.0,
            };
            self.next_id += 1;
            self.add(machine, process);
        }
    }

    fn place(&mut self, memory: f64) -> usize {
        let all = self.machines.len();
        match self.policy {
            Policy::Pvm | Policy::MosixShipped | Policy::Mosix => {
                self.turn += 1;
                self.turn % all
            }
            Policy::EPvm | Policy::EMosix => self.cheapest(memory, 0..all).0,
            Policy::Ours => {
                let nodes: Vec<Node> = (0..all).map(|machine| self.node(machine)).collect();
                let program = Task {
                    process: self.next_id,
                    cpus: 1.0,
                    memory,
                    done: 0.0,
                    age: 0.0,
                    here: 0.0,
                    loses_here: 0.0,
                    loses_away: 0.0,
                    home: NodeId(u64::MAX),
                };
                let to = decide::place(count(all), &program, &nodes, &self.rules);
                to.map_or(0, machine_of)
            }
        }
    }

    fn add(&mut self, machine: usize, process: Process) {
        self.machines[machine].add(process);
        self.scale.see(self.machines[machine].load());
    }

    /// Of what is to be added or taken away, for the published algorithm.
    fn need(memory: f64) -> Need {
        Need { cpus: 1.0, memory }
    }

    /// A machine as the published algorithm sees it.
    fn seen(&self, machine: usize) -> (Use, Size) {
        let busy = &self.machines[machine];
        let used = Use {
            load: busy.load(),
            memory: busy.used(),
        };
        let size = Size {
            speed: 1.0,
            memory: busy.machine.memory,
        };
        (used, size)
    }

    fn cheapest(&self, memory: f64, among: impl Iterator<Item = usize>) -> (usize, f64) {
        let cost = |machine: usize| {
            let (used, size) = self.seen(machine);
            (machine, self.scale.adds(used, size, Self::need(memory)))
        };
        among
            .map(cost)
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap_or((0, f64::INFINITY))
    }

    fn some_others(&mut self, machine: usize) -> Vec<usize> {
        let count = self.machines.len();
        let mut others: Vec<usize> = (0..count).filter(|other| *other != machine).collect();
        while others.len() > self.assumed.contacts {
            let place = self.chance.random_range(0..others.len());
            others.remove(place);
        }
        others
    }

    fn balance(&mut self) {
        for (busy, state) in self.machines.iter().zip(&mut self.states) {
            state.load.sample(busy.load());
        }
        for machine in 0..self.machines.len() {
            let others = self.some_others(machine);
            let seen = mosix::Seen {
                machines: &self.machines,
                states: &self.states,
                now: self.now,
            };
            let chosen = match self.policy {
                Policy::Pvm | Policy::EPvm => None,
                Policy::Mosix => Rule::Keen.decide(&seen, machine, &others),
                Policy::MosixShipped => Rule::Shipped.decide(&seen, machine, &others),
                Policy::EMosix => self.by_cost(machine, &others),
                Policy::Ours => self.ours(machine, &others),
            };
            if let Some((id, to)) = chosen {
                self.change(id, machine, to);
            }
        }
    }

    /// The first process that costs less elsewhere.
    fn by_cost(&self, machine: usize, others: &[usize]) -> Option<(ProcessId, usize)> {
        let (used, size) = self.seen(machine);
        self.machines[machine].processes.iter().find_map(|process| {
            let (to, adds) = self.cheapest(process.memory, others.iter().copied());
            let relieves = self.scale.relieves(used, size, Self::need(process.memory));
            (adds < relieves).then_some((process.id, to))
        })
    }

    /// A machine as our policy sees it.
    fn node(&self, machine: usize) -> Node {
        let busy = &self.machines[machine];
        let urgency = |process: &Process| decide::urgency(self.done(process));
        Node {
            node: NodeId(machine as u64),
            size: Size {
                speed: busy.machine.speed,
                memory: busy.machine.memory,
            },
            cores: 1.0,
            running: busy.load(),
            urgency: busy.processes.iter().map(urgency).sum(),
            memory: busy.used(),
        }
    }

    fn done(&self, process: &Process) -> f64 {
        self.jobs[process.job].work - process.left
    }

    fn ours(&self, machine: usize, others: &[usize]) -> Option<(ProcessId, usize)> {
        let nodes: Vec<Node> = others.iter().map(|other| self.node(*other)).collect();
        let task = |process: &Process| Task {
            process: process.id,
            cpus: 1.0,
            memory: process.memory,
            done: self.done(process),
            age: self.now - self.jobs[process.job].arrives,
            here: self.now - process.came,
            // Nothing is said of what a process loses away from where it began.
            loses_here: 0.0,
            loses_away: 0.0,
            home: NodeId(u64::MAX),
        };
        let processes = self.machines[machine].processes.iter();
        let tasks: Vec<Task> = processes
            .filter(|process| process.frozen <= 0.0)
            .map(task)
            .collect();
        let (all, own) = (count(self.machines.len()), self.node(machine));
        match decide::decide(all, &own, &tasks, &nodes, &self.rules) {
            Decision::Move(numbers) => Some((numbers.process, machine_of(numbers.to))),
            Decision::Stay(_) => None,
        }
    }

    /// Moves a process. Its memory counts at the target from now on, and no longer at the source.
    fn change(&mut self, id: ProcessId, from: usize, to: usize) {
        let Some(process) = self.machines[from].remove(id) else {
            return;
        };
        let room = self.machines[to].free() >= process.memory;
        assert!(
            room || self.policy != Policy::Ours,
            "Moved {process:?} to machine {to}, which has no room for it"
        );
        let freeze = |rate: f64| process.memory * 1e6 / rate;
        let moved = Process {
            came: self.now,
            moves: process.moves + 1,
            frozen: self.assumed.cost_rate.map_or(0.0, freeze),
            ..process
        };
        self.add(to, moved);
        self.states[from].sent = self.now;
        self.outcome.moves += 1;
        self.outcome.most_moves = self.outcome.most_moves.max(moved.moves);
    }
}

fn machine_of(node: NodeId) -> usize {
    usize::try_from(node.0).unwrap_or(0)
}
