//! Whether a node gives one of its programs away, which one, and to which node; and where a new program begins.
//!
//! A node decides for its own programs, from what it knows of others. A move has to pass three tests. Each has
//! its own numbers, and they are part of the answer:
//!
//! 1. *Room.* A node whose free memory would not hold the program and the reserve is no target, whatever else
//!    speaks for it. No node is pushed into swap.
//! 2. *Opportunity cost.* What the program adds there is less than what this node is relieved of, by a
//!    margin: without one, two nodes that are nearly equal would exchange programs for ever.
//! 3. *Time.* What is gained while things are as they are is more than the move costs the program.
//!
//! # What a CPU's use costs
//!
//! Programs differ in what a second of waiting is to them. A program that has run for some time is expected to
//! run for as long again: that is what lifetimes of Unix processes look like (Harchol-Balter, Downey 1996). So
//! a second is much of the life of a young program, and little of an old one's. Each program therefore counts
//! with one over its age, its *urgency*. The use of a node's CPU is how much its programs are delayed: the sum
//! of their urgencies, times how much slower each runs than alone on a core of speed 1. Where programs are
//! equally old, this balances their number by the nodes' speed. Where they are not, old programs gather, and
//! young ones, most of which end soon, run beside few others. An interactive command finds a free node even
//! while the cluster computes.
//!
//! In this we differ from the paper that `cost` names, which counts jobs (`whim-sim study` shows both). The
//! memory term and the way in which CPU and memory are weighed are the paper's.
//!
//! # No ping-pong
//!
//! A program stays where it has come for a part of its age, [`Rules::rest`]. So its age grows by that factor
//! between two moves, and the number of its moves is at most a logarithm of its age, whatever the load does.
//! (Only a node that is out of memory does not wait for that, and needs no margin.) Limiting the moves per hour
//! is left to the caller.

use crate::NodeId;
use crate::cost::{Scale, Size, Use};
use serde::{Deserialize, Serialize};

/// A node, as it is known: our own from its sensors, others from their reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    pub node: NodeId,
    pub size: Size,
    /// How many processes can run at the same time.
    pub cores: f64,
    /// Processes that could run.
    pub running: f64,
    /// The sum of its programs' urgencies, each times the part of the time for which the program could run.
    pub urgency: f64,
    /// Bytes that are in use or promised.
    pub memory: f64,
}

/// A program that may move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The caller's name for it.
    pub process: u64,
    /// Cores that it keeps busy, as far as it gets them.
    pub cpus: f64,
    /// Bytes.
    pub memory: f64,
    /// The work that it has done so far, in seconds of a core of speed 1.
    pub done: f64,
    /// Seconds since it began.
    pub age: f64,
    /// Seconds since it came to this node.
    pub here: f64,
    /// Seconds that it loses here, for each second of its work, because it is not at home: by calls that are
    /// sent there, and by trips.
    pub loses_here: f64,
    /// The same for any other node but its home.
    pub loses_away: f64,
    /// Where it would lose nothing.
    pub home: NodeId,
}

impl Task {
    /// Seconds that it would lose on a node, for each second of its work.
    fn loses(&self, node: NodeId) -> f64 {
        if node == self.home {
            0.0
        } else {
            self.loses_away
        }
    }
}

/// Values that the administrator may change, and values that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Bytes of memory that a node keeps free.
    pub reserve: f64,
    /// What a program adds elsewhere, times this, has to be less than what its departure relieves. Above 1.
    /// From 1.5 on, programs do not go round when there is one more of them than nodes: each program that
    /// shares a node gets half, and would get no more by moving to a node where it shares again.
    pub margin: f64,
    /// Bytes a second that a move transfers; the program does not run meanwhile. Infinite: memory costs
    /// nothing.
    pub rate: f64,
    /// A move stops a program for at least this many seconds, however small it is.
    pub least_freeze: f64,
    /// The part of its age for which a program stays after it has come.
    pub rest: f64,
    /// By how much a node slows down when its memory is overcommitted.
    pub paging: f64,
    /// A program that loses more than this for each second of its work goes home without having rested first.
    pub bearable: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            reserve: 64.0 * f64::from(1 << 20),
            margin: 1.5,
            rate: 100e6,
            least_freeze: 0.05,
            rest: 0.1,
            paging: 10.0,
            bearable: 0.2,
        }
    }
}

impl Rules {
    /// Seconds that a move stops a program of so many bytes.
    #[must_use]
    pub fn move_takes(&self, memory: f64) -> f64 {
        self.least_freeze + memory / self.rate
    }
}

/// What speaks for a move: the numbers of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    pub process: u64,
    pub to: NodeId,
    /// Opportunity cost that this node would be relieved of.
    pub relieves: f64,
    /// Opportunity cost that the target would get in addition.
    pub adds: f64,
    /// Seconds that all programs concerned gain, weighed so that they are seconds of this program.
    pub gain: f64,
    /// Seconds that the move stops it.
    pub cost: f64,
}

/// What a node does now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    Move(Numbers),
    Stay(Stay),
}

/// Why nothing moves: the test at which the move that came furthest failed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stay {
    /// There is nothing that may move.
    NoCandidate,
    /// No other node is known.
    NoNode,
    /// All programs that may move came too short a time ago.
    JustCame,
    /// No known node has room for any of the programs.
    NoRoom,
    /// The program costs no less elsewhere. The numbers are those of the best move, which did not pass.
    NotCheaper(Numbers),
    /// A move costs more than is gained. The numbers are those of the best move, which did not pass.
    NotWorth(Numbers),
}

/// What a second of waiting is to a program that has done so much work, in seconds of a core of speed 1. Within
/// its first second nothing is known yet.
#[must_use]
pub fn urgency(done: f64) -> f64 {
    1.0 / done.max(1.0)
}

/// What a node does about its programs now: at most one move. `nodes` is how many the cluster has, and `tasks`
/// are the programs that may move by all other rules.
#[must_use]
pub fn decide(nodes: u32, own: &Node, tasks: &[Task], others: &[Node], rules: &Rules) -> Decision {
    let scene = Scene::new(nodes, own, others, rules);
    let mut best = Best::default();
    for task in tasks {
        scene.consider(task, |_| true, &mut best);
    }
    match best.decision() {
        Decision::Stay(Stay::NoNode) if tasks.is_empty() => Decision::Stay(Stay::NoCandidate),
        decision => decision,
    }
}

/// A node, and what is known of the others, at the moment of a decision.
pub struct Scene<'a> {
    own: &'a Node,
    others: &'a [Node],
    rules: &'a Rules,
    weights: Weights,
}

impl<'a> Scene<'a> {
    /// `nodes` is how many the cluster has. `own` is the node of the programs that are judged.
    #[must_use]
    pub fn new(nodes: u32, own: &'a Node, others: &'a [Node], rules: &'a Rules) -> Self {
        Self {
            own,
            others,
            rules,
            weights: Weights::new(nodes, others, delay(own, rules), rules),
        }
    }

    /// What is best for one program, which may go to the nodes that `may` allows.
    #[must_use]
    pub fn judge(&self, task: &Task, may: impl Fn(NodeId) -> bool) -> Decision {
        let mut best = Best::default();
        self.consider(task, may, &mut best);
        best.decision()
    }

    fn consider(&self, task: &Task, may: impl Fn(NodeId) -> bool, best: &mut Best) {
        let (own, rules) = (self.own, self.rules);
        // While a node is out of memory, all its programs suffer until one has gone; and the one that goes
        // fills no other node.
        let short = own.memory > own.size.memory;
        let rested = short || task.here >= rules.rest * task.age;
        let others = self.others.iter();
        for other in others.filter(|other| other.node != own.node && may(other.node)) {
            let flees = other.node == task.home && task.loses_here > rules.bearable;
            let margin = if short || flees { 1.0 } else { rules.margin };
            if !rested && !flees {
                best.stay(Stay::JustCame, 0.0);
            } else if room(other, rules) < task.memory {
                best.stay(Stay::NoRoom, 0.0);
            } else {
                best.weigh(weigh(&self.weights, own, task, other, rules), margin);
            }
        }
    }
}

/// Where a new program costs least: among the nodes with room, or among all if none has room.
#[must_use]
pub fn place(nodes: u32, program: &Task, known: &[Node], rules: &Rules) -> Option<NodeId> {
    let weights = Weights::new(nodes, known, urgency(program.done), rules);
    let fits = |node: &&Node| room(node, rules) >= program.memory;
    let adds = |node: &Node| {
        let with = changed(node, program, 1.0);
        weights.cost(&with, 0.0, rules) - weights.cost(node, 0.0, rules)
    };
    let cheapest = |one: &&Node, other: &&Node| adds(one).total_cmp(&adds(other));
    let chosen = known.iter().filter(fits).min_by(cheapest);
    chosen
        .or_else(|| known.iter().min_by(cheapest))
        .map(|node| node.node)
}

/// How nodes are weighed in one decision.
struct Weights {
    scale: Scale,
    /// Twice the largest delay, so that a further program's delay is within it. The largest one of now and not
    /// of all time: after a storm, differences in quiet weather would look like nothing. And where all programs
    /// are old, all delays are small.
    most: f64,
}

impl Weights {
    fn new(nodes: u32, known: &[Node], more: f64, rules: &Rules) -> Self {
        let delays = known.iter().map(|node| delay(node, rules));
        Self {
            scale: Scale::new(nodes),
            most: 2.0 * delays.fold(more, f64::max).max(1e-12),
        }
    }

    /// The cost of a node. Memory beyond what there is costs no more, because its effect on the node's programs
    /// is part of their delay. (An exponent beyond 1 would outweigh all else. It would send what fits nowhere
    /// to one good node after the other, instead of to the one that is lost already.) `more` is a delay that is
    /// not caused by the node.
    fn cost(&self, node: &Node, more: f64, rules: &Rules) -> f64 {
        let used = Use {
            load: (delay(node, rules) + more) / self.most,
            memory: node.memory.min(node.size.memory),
        };
        self.scale.cost(used, node.size)
    }
}

/// Bytes of memory that a node can still promise.
#[must_use]
pub fn room(node: &Node, rules: &Rules) -> f64 {
    node.size.memory - node.memory - rules.reserve
}

/// How much a node's programs are delayed: the sum of their urgencies, times the seconds that each of them
/// takes for the work of a second on a core of speed 1.
fn delay(node: &Node, rules: &Rules) -> f64 {
    let shared = node.running.max(node.cores) / node.size.speed.max(1e-9);
    let paging = if node.memory > node.size.memory {
        rules.paging
    } else {
        1.0
    };
    node.urgency * shared * paging
}

/// The node with one program more (`sign` 1) or less (-1). A program that runs for half of the time is delayed
/// in half of it, so only that part of its urgency counts. Nodes report their urgency in the same way.
#[must_use]
pub fn changed(node: &Node, program: &Task, sign: f64) -> Node {
    let delayed = program.cpus.min(1.0) * urgency(program.done);
    Node {
        running: (node.running + sign * program.cpus).max(0.0),
        urgency: (node.urgency + sign * delayed).max(0.0),
        memory: (node.memory + sign * program.memory).max(0.0),
        ..*node
    }
}

fn weigh(weights: &Weights, own: &Node, program: &Task, other: &Node, rules: &Rules) -> Numbers {
    let (without, with) = (changed(own, program, -1.0), changed(other, program, 1.0));
    let urgency = urgency(program.done);
    // What the program loses by being away from home, here and there.
    let (here, there) = (
        urgency * program.loses_here,
        urgency * program.loses(other.node),
    );
    let saved = delay(own, rules) + here - delay(&without, rules) - delay(&with, rules) - there
        + delay(other, rules);
    // The gain lasts until the most urgent program has ended, as far as can be told: its age is no less than
    // this.
    let lasts = 1.0 / own.urgency.max(with.urgency).max(1e-9);
    Numbers {
        process: program.process,
        to: other.node,
        relieves: weights.cost(own, here, rules) - weights.cost(&without, 0.0, rules),
        adds: weights.cost(&with, there, rules) - weights.cost(other, 0.0, rules),
        gain: saved * lasts / urgency,
        cost: rules.move_takes(program.memory),
    }
}

/// The best move so far; while there is none, the reason of the move that came furthest.
#[derive(Default)]
struct Best {
    found: Option<(f64, Numbers)>,
    stay: Option<(f64, Stay)>,
}

impl Best {
    fn decision(self) -> Decision {
        match self.found {
            Some((_, numbers)) => Decision::Move(numbers),
            None => Decision::Stay(self.stay.map_or(Stay::NoNode, |(_, why)| why)),
        }
    }

    fn weigh(&mut self, numbers: Numbers, margin: f64) {
        let saves = numbers.relieves - numbers.adds;
        if numbers.adds * margin >= numbers.relieves {
            return self.stay(Stay::NotCheaper(numbers), saves);
        }
        if numbers.gain <= numbers.cost {
            return self.stay(Stay::NotWorth(numbers), numbers.gain - numbers.cost);
        }
        if self.found.is_none_or(|(most, _)| saves > most) {
            self.found = Some((saves, numbers));
        }
    }

    fn stay(&mut self, why: Stay, value: f64) {
        let stage = |why: &Stay| match why {
            Stay::NoCandidate | Stay::NoNode => 0,
            Stay::JustCame => 1,
            Stay::NoRoom => 2,
            Stay::NotCheaper(_) => 3,
            Stay::NotWorth(_) => 4,
        };
        let further = |(most, reason): &(f64, Stay)| {
            stage(&why) > stage(reason) || stage(&why) == stage(reason) && value > *most
        };
        if self.stay.as_ref().is_none_or(further) {
            self.stay = Some((value, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: f64 = (1u64 << 30) as f64;

    fn node(number: u64) -> Node {
        Node {
            node: NodeId(number),
            size: Size {
                speed: 1.0,
                memory: 4.0 * GIB,
            },
            cores: 1.0,
            running: 0.0,
            urgency: 0.0,
            memory: GIB,
        }
    }

    fn program(process: u64, done: f64) -> Task {
        Task {
            process,
            cpus: 1.0,
            memory: 0.1 * GIB,
            done,
            age: done,
            here: 1e6,
            loses_here: 0.0,
            loses_away: 0.0,
            home: NodeId(0),
        }
    }

    fn with(node: Node, programs: &[Task]) -> Node {
        let add = |node: Node, program: &Task| changed(&node, program, 1.0);
        programs.iter().fold(node, add)
    }

    fn moved(decision: Decision) -> Numbers {
        match decision {
            Decision::Move(numbers) => numbers,
            Decision::Stay(why) => panic!("Nothing moves: {why:?}"),
        }
    }

    #[test]
    fn one_of_two_goes_to_a_free_node() {
        let programs = [program(1, 100.0), program(2, 100.0)];
        let own = with(node(1), &programs);
        let rules = Rules::default();
        let numbers = moved(decide(3, &own, &programs, &[node(2)], &rules));
        assert_eq!(numbers.to, NodeId(2));
        // Both it and its neighbour run alone then; each had half until now, for another 50 seconds.
        assert!((numbers.gain - 100.0).abs() < 1e-9, "{numbers:?}");
        assert!((numbers.cost - 0.05 - 0.1 * GIB / 100e6).abs() < 1e-9);
        assert!(numbers.relieves > numbers.adds);
    }

    #[test]
    fn equal_nodes_exchange_nothing() {
        let programs = [program(1, 100.0), program(2, 100.0)];
        let own = with(node(1), &programs);
        let other = with(node(2), &programs[..1]);
        let decision = decide(2, &own, &programs, &[other], &Rules::default());
        assert!(
            matches!(decision, Decision::Stay(Stay::NotCheaper(_))),
            "{decision:?}"
        );
    }

    #[test]
    fn an_old_program_gives_way_to_a_young_one() {
        let programs = [program(1, 1000.0), program(2, 1.0)];
        let own = with(node(1), &programs);
        let other = with(node(2), &[program(3, 1000.0)]);
        let rules = Rules {
            rate: f64::INFINITY,
            ..Rules::default()
        };
        let numbers = moved(decide(2, &own, &programs, &[other], &rules));
        assert_eq!((numbers.process, numbers.to), (1, NodeId(2)));
    }

    #[test]
    fn what_costs_more_than_it_gains_stays() {
        let programs = [program(1, 2.0), program(2, 2.0)];
        let own = with(node(1), &programs);
        let slow = Rules {
            rate: 10e6,
            ..Rules::default()
        };
        let decision = decide(2, &own, &programs, &[node(2)], &slow);
        let Decision::Stay(Stay::NotWorth(numbers)) = decision else {
            panic!("{decision:?}");
        };
        assert!(numbers.gain < numbers.cost && numbers.gain > 0.0);
    }

    #[test]
    fn each_reason_to_stay_is_said() {
        let programs = [program(1, 100.0), program(2, 100.0)];
        let own = with(node(1), &programs);
        let rules = Rules::default();
        let stays = |tasks: &[Task], others: &[Node]| match decide(2, &own, tasks, others, &rules) {
            Decision::Stay(why) => why,
            Decision::Move(numbers) => panic!("{numbers:?}"),
        };
        assert_eq!(stays(&[], &[node(2)]), Stay::NoCandidate);
        assert_eq!(stays(&programs, &[]), Stay::NoNode);
        assert_eq!(stays(&programs, &[own]), Stay::NoNode);
        let full = Node {
            memory: 3.9 * GIB,
            ..node(2)
        };
        assert_eq!(stays(&programs, &[full]), Stay::NoRoom);
        let came = programs.map(|program| Task {
            here: 9.9,
            ..program
        });
        assert_eq!(stays(&came, &[node(2)]), Stay::JustCame);
    }

    #[test]
    fn a_node_without_memory_gives_programs_away_although_others_are_busier() {
        let big = Task {
            memory: 2.0 * GIB,
            ..program(1, 100.0)
        };
        let programs = [big, Task { process: 2, ..big }];
        let own = with(node(1), &programs);
        let busy = with(node(2), &[program(3, 100.0), program(4, 100.0)]);
        let numbers = moved(decide(2, &own, &programs, &[busy], &Rules::default()));
        assert_eq!(numbers.to, NodeId(2));
    }

    #[test]
    fn nobody_rests_where_memory_is_out() {
        let big = Task {
            memory: 2.0 * GIB,
            here: 1.0,
            ..program(1, 100.0)
        };
        let programs = [big, Task { process: 2, ..big }];
        let short = with(node(1), &programs);
        let rules = Rules::default();
        let numbers = moved(decide(2, &short, &programs, &[node(2)], &rules));
        assert_eq!(numbers.to, NodeId(2));
    }

    #[test]
    fn what_fits_nowhere_does_not_spoil_a_good_node_as_well() {
        let young = [1, 2, 3, 4, 5].map(|process| Task {
            memory: GIB,
            ..program(process, 1.0)
        });
        let lost = with(node(1), &young);
        let empty = Node {
            memory: 0.0,
            ..node(2)
        };
        let giant = Task {
            memory: 8.0 * GIB,
            ..program(6, 0.0)
        };
        let to = place(3, &giant, &[lost, empty], &Rules::default());
        assert_eq!(to, Some(NodeId(1)));
    }

    #[test]
    fn a_node_of_twice_the_speed_gets_twice_the_programs() {
        let mut nodes = [node(1), node(2)];
        nodes[0].size.speed = 2.0;
        let mut counts = [0, 0];
        for process in 0..12 {
            let new = Task {
                memory: 0.0,
                ..program(process, 0.0)
            };
            let to = place(2, &new, &nodes, &Rules::default()).expect("two nodes");
            let place = usize::from(to == NodeId(2));
            nodes[place] = changed(&nodes[place], &new, 1.0);
            counts[place] += 1;
        }
        assert_eq!(counts, [8, 4]);
    }

    #[test]
    fn a_program_begins_where_there_is_room() {
        let full = Node {
            memory: 3.95 * GIB,
            ..node(1)
        };
        let busy = with(node(2), &[program(1, 1.0), program(2, 1.0)]);
        let new = program(3, 0.0);
        let rules = Rules::default();
        assert_eq!(place(2, &new, &[full, busy], &rules), Some(NodeId(2)));
        assert_eq!(place(2, &new, &[full], &rules), Some(NodeId(1)));
        assert_eq!(place(2, &new, &[], &rules), None);
    }

    /// All nodes decide once a second about programs that compute all the time. Returns the seconds at which
    /// one moved, and what each has done.
    fn hogs(nodes: usize, hogs: usize, seconds: u32) -> (Vec<u32>, Vec<f64>) {
        let rules = Rules::default();
        let mut at: Vec<usize> = (0..hogs).map(|hog| hog % nodes).collect();
        let mut done = vec![0.0; hogs];
        let mut came = vec![0u32; hogs];
        let mut moves = Vec::new();
        for now in 1..=seconds {
            let share = |hog: usize| at.iter().filter(|there| **there == at[hog]).count() as f64;
            let shares: Vec<f64> = (0..hogs).map(|hog| 1.0 / share(hog)).collect();
            done.iter_mut()
                .zip(&shares)
                .for_each(|(done, share)| *done += share);
            for own in 0..nodes {
                let program = |hog: usize| Task {
                    age: f64::from(now),
                    here: f64::from(now - came[hog]),
                    ..program(hog as u64, done[hog])
                };
                let on = |place: usize| {
                    (0..hogs)
                        .filter(|hog| at[*hog] == place)
                        .collect::<Vec<_>>()
                };
                let programs =
                    |place: usize| on(place).into_iter().map(program).collect::<Vec<_>>();
                let known: Vec<Node> = (0..nodes)
                    .map(|place| with(node(place as u64), &programs(place)))
                    .collect();
                let count = u32::try_from(nodes).expect("few");
                let decision = decide(count, &known[own], &programs(own), &known, &rules);
                if let Decision::Move(numbers) = decision {
                    let hog = usize::try_from(numbers.process).expect("small");
                    at[hog] = usize::try_from(numbers.to.0).expect("small");
                    came[hog] = now;
                    moves.push(now);
                }
            }
        }
        (moves, done)
    }

    #[test]
    fn one_program_too_many_finds_its_place_and_stays() {
        let (moves, done) = hogs(4, 5, 4 * 3600);
        let late: Vec<&u32> = moves.iter().filter(|at| **at > 30).collect();
        assert!(late.is_empty(), "{late:?}");
        let least = done.iter().copied().fold(f64::INFINITY, f64::min);
        let most = done.iter().copied().fold(0.0, f64::max);
        assert!(least / most >= 0.45, "{least} of {most}");
    }

    #[test]
    fn as_many_programs_as_nodes_never_move() {
        assert_eq!(hogs(4, 4, 600).0, [0; 0]);
        assert_eq!(hogs(4, 8, 600).0, [0; 0]);
    }

    /// Nodes with their programs; the sums of the nodes match the programs.
    fn clusters() -> impl Strategy<Value = Vec<(Node, Vec<Task>)>> {
        let program = (1e-3..1e5f64, 1e-3..3.0f64, 0.0..1e4f64);
        let node = (
            0.1..8.0f64,
            0.5..8.0f64,
            proptest::collection::vec(program, 0..8),
        );
        proptest::collection::vec(node, 2..7).prop_map(|nodes| {
            let mut process = 0;
            let mut number = 0;
            let mut one = |(speed, memory, programs): (f64, f64, Vec<(f64, f64, f64)>)| {
                number += 1;
                let mut program = |(done, memory, here)| {
                    process += 1;
                    Task {
                        memory: memory * GIB,
                        here,
                        ..super::tests::program(process, done)
                    }
                };
                let programs: Vec<Task> = programs.into_iter().map(&mut program).collect();
                let size = Size {
                    speed,
                    memory: memory * GIB,
                };
                let empty = Node {
                    size,
                    memory: 0.0,
                    ..super::tests::node(number)
                };
                (with(empty, &programs), programs)
            };
            nodes.into_iter().map(&mut one).collect()
        })
    }

    fn others(cluster: &[(Node, Vec<Task>)]) -> Vec<Node> {
        cluster.iter().map(|(node, _)| *node).collect()
    }

    proptest! {
        #[test]
        fn nothing_moves_without_room_or_for_less_than_it_costs(
            cluster in clusters(), rate in 1e6..1e10f64, margin in 1.0..2.0f64,
        ) {
            let rules = Rules { rate, margin, ..Rules::default() };
            let all = others(&cluster);
            for (own, programs) in &cluster {
                let count = u32::try_from(all.len()).expect("few");
                let Decision::Move(numbers) = decide(count, own, programs, &all, &rules) else {
                    continue;
                };
                let to = all.iter().find(|node| node.node == numbers.to).expect("known");
                let moved = programs.iter().find(|p| p.process == numbers.process).expect("ours");
                prop_assert!(to.node != own.node);
                prop_assert!(to.memory + moved.memory + rules.reserve <= to.size.memory);
                prop_assert!(numbers.gain > numbers.cost);
                let short = own.memory > own.size.memory;
                let margin = if short { 1.0 } else { margin };
                prop_assert!(numbers.adds * margin < numbers.relieves);
                prop_assert!(short || moved.here >= rules.rest * moved.age);
            }
        }

        /// While nothing new happens, moves come to an end, because each saves something.
        #[test]
        fn moves_come_to_an_end(cluster in clusters()) {
            let mut cluster = cluster;
            let rules = Rules { rest: 0.0, rate: f64::INFINITY, ..Rules::default() };
            let programs: usize = cluster.iter().map(|(_, programs)| programs.len()).sum();
            let mut moves = 0;
            loop {
                let before = moves;
                for own in 0..cluster.len() {
                    let all = others(&cluster);
                    let count = u32::try_from(all.len()).expect("few");
                    let (node, tasks) = &cluster[own];
                    let Decision::Move(numbers) = decide(count, node, tasks, &all, &rules) else {
                        continue;
                    };
                    moves += 1;
                    let place = tasks.iter().position(|p| p.process == numbers.process);
                    let program = cluster[own].1.remove(place.expect("ours"));
                    cluster[own].0 = changed(&cluster[own].0, &program, -1.0);
                    let to = cluster.iter_mut().find(|(node, _)| node.node == numbers.to);
                    let to = to.expect("known");
                    to.0 = changed(&to.0, &program, 1.0);
                    to.1.push(program);
                }
                if moves == before {
                    break;
                }
                prop_assert!(moves <= 3 * programs, "{moves} moves of {programs} programs");
            }
        }
    }
}
