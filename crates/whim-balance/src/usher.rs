//! Memory ushering: which program leaves a node whose memory runs out, and where it goes.
//!
//! The smallest program whose departure ends the shortage leaves, or else the largest one for which another
//! node has room: one move is better than many, and no more is transferred than necessary. It goes where most
//! room is left, and only where there is room for it, its expected growth, and the reserve. CPU does not count:
//! a slow program ends, but a killed one does not.
//!
//! Source: the purpose is Barak and Braverman's ("Memory ushering in a scalable computing cluster", 1998);
//! their thresholds are not published, and these are ours.

use crate::balancer::{Habits, Program, Relocation};
use crate::decide::{self, Node, Numbers, Rules};
use whim_journey::cause::Cause;

/// The best move for a node that will lack `short` bytes; `programs` are those there that may go.
#[must_use]
pub(crate) fn choose(
    short: f64,
    programs: &[&Program],
    others: &[Node],
    habits: &Habits,
    rules: &Rules,
) -> Option<Relocation> {
    let needs = |program: &Program| {
        let grows = program.growth.max(0.0) * habits.horizon;
        (program.task.memory, program.task.memory + grows)
    };
    let mut best: Option<(bool, f64, Relocation)> = None;
    for program in programs {
        let (memory, will_need) = needs(program);
        let allowed = others
            .iter()
            .filter(|node| !program.forbidden.contains(&node.node));
        let roomy = allowed.filter(|node| decide::room(node, rules) >= will_need);
        let Some(to) = roomy
            .max_by(|one, other| decide::room(one, rules).total_cmp(&decide::room(other, rules)))
        else {
            continue;
        };
        let cures = will_need >= short;
        // Among those that end the shortage, the smallest is best; otherwise the largest.
        let value = if cures { -memory } else { memory };
        if best
            .as_ref()
            .is_some_and(|(best_cures, best_value, _)| (*best_cures, *best_value) >= (cures, value))
        {
            continue;
        }
        let process = program.task.process;
        let numbers = Numbers {
            process,
            to: to.node,
            relieves: will_need,
            adds: short,
            gain: will_need,
            cost: rules.move_takes(memory),
        };
        let relocation = Relocation {
            process,
            from: program.at,
            to: to.node,
            cause: Cause::Memory,
            numbers,
        };
        // A small program is not worth a move, because it would not help.
        if memory >= LEAST {
            best = Some((cures, value, relocation));
        }
    }
    best.map(|(_, _, relocation)| relocation)
}

/// Programs with fewer bytes of memory are not moved for memory.
const LEAST: f64 = 16.0 * (1u32 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::cost::Size;
    use crate::decide::Task;

    const MB: f64 = 1e6;

    fn program(process: u64, memory: f64) -> Program {
        Program {
            task: Task {
                process,
                cpus: 1.0,
                memory: memory * MB,
                done: 100.0,
                age: 100.0,
                here: 100.0,
                loses_here: 0.0,
                loses_away: 0.0,
                home: NodeId(0),
            },
            at: NodeId(0),
            growth: 0.0,
            terminal: false,
            fixed: None,
            forbidden: Vec::new(),
            lasts: false,
        }
    }

    /// A node with so much room beyond the reserve.
    fn node(node: u64, room: f64) -> Node {
        let rules = Rules::default();
        Node {
            node: NodeId(node),
            size: Size {
                speed: 1.0,
                memory: 4000.0 * MB,
            },
            cores: 1.0,
            running: 0.0,
            urgency: 0.0,
            memory: 4000.0 * MB - rules.reserve - room * MB,
        }
    }

    fn chosen(short: f64, programs: &[Program], others: &[Node]) -> Option<(u64, u64)> {
        let programs: Vec<&Program> = programs.iter().collect();
        let (habits, rules) = (Habits::default(), Rules::default());
        let relocation = choose(short * MB, &programs, others, &habits, &rules)?;
        assert_eq!(
            (relocation.cause, relocation.from),
            (Cause::Memory, NodeId(0))
        );
        Some((relocation.process, relocation.to.0))
    }

    #[test]
    fn the_smallest_that_cures_it_goes_and_else_the_largest() {
        let programs = [program(1, 50.0), program(2, 150.0), program(3, 400.0)];
        let others = [node(1, 500.0)];
        assert_eq!(chosen(40.0, &programs, &others), Some((1, 1)));
        assert_eq!(chosen(50.0, &programs, &others), Some((1, 1)));
        assert_eq!(chosen(51.0, &programs, &others), Some((2, 1)));
        assert_eq!(chosen(500.0, &programs, &others), Some((3, 1)));
        // A program for which no node has room does not count.
        assert_eq!(chosen(500.0, &programs, &[node(1, 399.0)]), Some((2, 1)));
        assert_eq!(chosen(500.0, &programs, &[node(1, 400.0)]), Some((3, 1)));
        assert_eq!(chosen(40.0, &programs, &[node(1, 49.0)]), None);
        assert_eq!(chosen(40.0, &[], &others), None);
    }

    #[test]
    fn it_goes_where_most_room_is_and_it_may() {
        let others = [node(1, 200.0), node(2, 300.0), node(3, 250.0)];
        assert_eq!(chosen(40.0, &[program(1, 100.0)], &others), Some((1, 2)));
        let barred = Program {
            forbidden: vec![NodeId(2)],
            ..program(1, 100.0)
        };
        assert_eq!(chosen(40.0, &[barred], &others), Some((1, 3)));
    }

    #[test]
    fn what_it_will_have_grown_to_needs_room() {
        let grows = Program {
            growth: 20.0 * MB,
            ..program(1, 100.0)
        };
        assert_eq!(
            chosen(40.0, std::slice::from_ref(&grows), &[node(1, 199.0)]),
            None
        );
        assert_eq!(chosen(40.0, &[grows], &[node(1, 200.0)]), Some((1, 1)));
    }

    #[test]
    fn what_is_small_is_not_worth_a_move() {
        assert_eq!(chosen(5.0, &[program(1, 16.0)], &[node(1, 500.0)]), None);
        assert_eq!(
            chosen(5.0, &[program(1, 17.0)], &[node(1, 500.0)]),
            Some((1, 1))
        );
    }
}
