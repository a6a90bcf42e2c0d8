//! Turns: if there are more programs than CPUs, it is other programs that share a CPU every few minutes.
//!
//! A cluster at rest is not fair: of five equal programs on four nodes, two get half of what the others get,
//! for as long as they live. Nothing moves, because no move would be a gain for all together. With
//! [`Habits::fair`](super::Habits::fair), a program that has shared its CPU for a while goes to a CPU that a
//! luckier program has for itself, and the program that it leaves behind is the lucky one next. For all limits,
//! turns count as moves for load.

use super::{Balancer, Program, Relocation, Surroundings, Verdict};
use crate::decide::{self, Node, Numbers};
use crate::{Millis, NodeId};
use std::collections::BTreeMap;
use whim_journey::cause::Cause;

/// Seconds for which the same programs share a CPU, at least. So five programs on four nodes make 30 turns an
/// hour, and each of them may move six times.
const LASTS: f64 = 120.0;
/// A place is crowded if a program there gets less than this part of what one gets elsewhere.
const CROWDED: f64 = 0.8;
/// After its move, a program must get at least this part of what it got before: it will share a CPU there as
/// well.
const NO_WORSE: f64 = 0.9;
/// The seconds that are evened out have to be this many times the cost of the move.
const WORTH: f64 = 4.0;

/// What our own programs get on a node.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    programs: f64,
    /// The sum of what each has got of a core on average over its life.
    progress: f64,
    /// What each gets of a core of speed 1 now.
    gets: f64,
    /// One of them has come a moment ago.
    is_new: bool,
}

impl Place {
    fn mean(&self) -> f64 {
        self.progress / self.programs.max(1.0)
    }
}

/// The part of a core of speed 1 that each of so many programs gets.
fn share(node: &Node, running: f64) -> f64 {
    let speed = node.size.speed / node.cores.max(0.01);
    speed * (node.cores / running.max(0.01)).min(1.0)
}

fn progress(program: &Program) -> f64 {
    program.task.done / program.task.age.max(1.0)
}

impl Balancer {
    /// Moves a program that has shared its CPU for long enough, if nothing else is to be done.
    pub(super) fn take_turns(
        &mut self,
        now: Millis,
        programs: &[Program],
        scene: &mut Surroundings,
        relocations: &mut Vec<Relocation>,
    ) {
        let rests = self.under_way() == 0 && !self.pace.has_news(now);
        if !self.habits.fair || !rests || !self.pace.allows(now) {
            return;
        }
        // Programs that may move, but would not be moved for load.
        let stays = |program: &&Program| {
            let record = self.records.get(&program.task.process);
            record.is_some_and(|record| matches!(record.verdict, Verdict::Stay(_)))
        };
        let programs: Vec<&Program> = programs.iter().filter(stays).collect();
        let places = places(&programs, scene);
        let turns = programs.iter().filter_map(|program| {
            let numbers = self.turn(now, program, &places, scene)?;
            Some((numbers, *program))
        });
        let most = turns.max_by(|one, other| one.0.gain.total_cmp(&other.0.gain));
        if let Some((numbers, program)) = most {
            let relocation = Relocation {
                process: numbers.process,
                from: program.at,
                to: numbers.to,
                cause: Cause::Turn,
                numbers,
            };
            self.begin(now, relocation, program, scene, relocations);
        }
    }

    /// Where a program should go to share a CPU, and how many seconds of a core that would even out.
    fn turn(
        &self,
        now: Millis,
        program: &Program,
        places: &BTreeMap<NodeId, Place>,
        scene: &Surroundings,
    ) -> Option<Numbers> {
        let task = &program.task;
        let here = places.get(&program.at)?;
        let shares = here.programs > 1.0 && !here.is_new;
        if !shares || self.pace.is_spent(now, task.process, Cause::Turn) {
            return None;
        }
        // What the programs left behind have got on average. If the luckiest of those that share a CPU goes,
        // this is lowest and the gain greatest, so it is the one that goes on sharing.
        let left = (here.progress - progress(program)) / (here.programs - 1.0);
        let cost = self.rules.move_takes(task.memory);
        let targets = scene.targets(program.at, self.habits.horizon + cost);
        let evened = |node: &Node| {
            let there = places.get(&node.node)?;
            let bears = node.node == task.home || task.loses_away <= self.rules.bearable;
            let open = bears && !program.forbidden.contains(&node.node);
            let crowded = here.gets < CROWDED * there.gets;
            let no_worse = share(node, node.running + task.cpus) >= NO_WORSE * here.gets;
            let fits = decide::room(node, &self.rules) >= task.memory;
            let gain = (there.mean() - left) * task.age;
            let good = open && crowded && no_worse && fits && gain > WORTH * cost;
            good.then_some((gain, node.node))
        };
        let best = targets.iter().filter_map(evened);
        let (gain, to) = best.max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some(Numbers {
            process: task.process,
            to,
            relieves: 0.0,
            adds: 0.0,
            gain,
            cost,
        })
    }
}

/// Our own programs by the node on which they are.
fn places(programs: &[&Program], scene: &Surroundings) -> BTreeMap<NodeId, Place> {
    let mut places: BTreeMap<NodeId, Place> = BTreeMap::new();
    for program in programs {
        let Some(known) = scene.by_node.get(&program.at) else {
            continue;
        };
        let place = places.entry(program.at).or_default();
        place.programs += 1.0;
        place.progress += progress(program);
        let task = &program.task;
        place.is_new |= task.here < LASTS.min(task.age);
        place.gets = share(&known.node, known.node.running);
    }
    places
}
