//! The nodes as one look sees them: as they report themselves, corrected by what is known better here.

use super::{Known, Pending};
use crate::cost::Size;
use crate::decide::{self, Node, Rules, Task};
use crate::{Millis, NodeId};
use std::collections::BTreeMap;

/// The nodes, as one look sees them.
pub(super) struct Surroundings {
    pub(super) now: Millis,
    pub(super) nodes: u32,
    pub(super) by_node: BTreeMap<NodeId, Known>,
    /// Bytes of programs that are about to leave, and in how many seconds the last of them will have left. They
    /// are no longer lacking, but give no room to others yet.
    pub(super) leaving: BTreeMap<NodeId, (f64, f64)>,
    pub(super) rules: Rules,
    pub(super) own: NodeId,
    /// What this node's own programs together use on each node.
    pub(super) held: BTreeMap<NodeId, Node>,
}

impl Surroundings {
    /// Adds the program of a move to a node (`sign` 1) or removes it (-1). `with_memory` says that its memory
    /// does not show in the node's report yet.
    pub(super) fn change(&mut self, node: NodeId, pending: &Pending, sign: f64, with_memory: bool) {
        let mut task = pending.task;
        let leaves = with_memory && sign < 0.0;
        if leaves {
            let (bytes, seconds) = self.leaving.entry(node).or_default();
            *bytes += task.memory;
            *seconds = seconds.max(pending.remaining(self.now));
        }
        if leaves || !with_memory {
            task.memory = 0.0;
        }
        if let Some(known) = self.by_node.get_mut(&node) {
            known.node = decide::changed(&known.node, &task, sign);
            // The caller counts a program's growth where the program is. When the move has ended, that is no
            // longer where it was.
            if pending.ended.is_none() {
                known.growth = (known.growth + sign * pending.growth).max(0.0);
            }
        }
    }

    /// Counts one of our own programs on the node where it is or will be.
    pub(super) fn hold(&mut self, node: NodeId, program: &Task) {
        let nothing = Node {
            node,
            size: Size {
                speed: 1.0,
                memory: 0.0,
            },
            cores: 1.0,
            running: 0.0,
            urgency: 0.0,
            memory: 0.0,
        };
        let held = self.held.entry(node).or_insert(nothing);
        *held = decide::changed(held, program, 1.0);
    }

    /// Whether programs that are not ours run on a node.
    pub(super) fn is_shared(&self, node: NodeId) -> bool {
        let ours = self.held.get(&node).map_or(0.0, |held| held.running);
        let known = self.by_node.get(&node);
        known.is_some_and(|known| known.node.running > ours + 0.5)
    }

    /// Raises what each node reports to at least what our own programs use there. The report is an average that
    /// rises slowly, and it is old. When the moves begun since then were subtracted from it, a node looked
    /// empty while half of the programs were still there, and the first of those that had left came back.
    pub(super) fn raise(&mut self) {
        for (node, held) in &self.held {
            if let Some(known) = self.by_node.get_mut(node) {
                let said = &mut known.node;
                said.running = said.running.max(held.running);
                said.urgency = said.urgency.max(held.urgency);
                said.memory = said.memory.max(held.memory);
            }
        }
    }

    /// The nodes other than `but` that take guests, and our own, which takes back its own programs. Their
    /// memory is what will be in use so many seconds from now, when a move has arrived.
    pub(super) fn targets(&self, but: NodeId, seconds: f64) -> Vec<Node> {
        let others = self
            .by_node
            .values()
            .filter(|known| (known.takes || known.node.node == self.own) && known.node.node != but);
        let ahead = |known: &Known| Node {
            memory: known.node.memory + self.grows(known, seconds),
            ..known.node
        };
        others.map(ahead).collect()
    }

    /// Bytes by which the use of a node's memory will have grown so many seconds from now.
    pub(super) fn grows(&self, known: &Known, seconds: f64) -> f64 {
        let lag = f64::from(u32::try_from(self.now.saturating_sub(known.at)).unwrap_or(u32::MAX));
        known.growth.max(0.0) * (seconds + lag / 1000.0)
    }

    /// Bytes that a node will lack so many seconds from now.
    pub(super) fn short(&self, node: NodeId, seconds: f64) -> Option<f64> {
        let known = self.by_node.get(&node)?;
        let room = decide::room(&known.node, &self.rules);
        let (leaving, left_in) = self.leaving.get(&node).copied().unwrap_or_default();
        let then = self.grows(known, seconds) - leaving - room;
        // Programs that leave help only when they have left; the room may be used up by others before.
        let before = self.grows(known, left_in.min(seconds)) - room;
        let lacks = if leaving > 0.0 && left_in > 1.0 {
            then.max(before)
        } else {
            then
        };
        (lacks > 0.0).then_some(lacks)
    }
}
