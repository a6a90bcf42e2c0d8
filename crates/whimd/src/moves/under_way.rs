//! Which processes are being moved just now, and how far each has come.

use std::collections::HashMap;
use whim_journey::job::Phase;

/// By pid; `None`: the move has not begun, and may be refused.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(HashMap<i32, Option<Phase>>);

impl UnderWay {
    #[must_use]
    pub(crate) fn contains(&self, pid: i32) -> bool {
        self.0.contains_key(&pid)
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How far it has come.
    #[must_use]
    pub(crate) fn phase(&self, pid: i32) -> Option<Phase> {
        self.0.get(&pid).copied().flatten()
    }

    /// Reserves a process for one move; false if it is being moved already.
    pub(super) fn begin(&mut self, pid: i32) -> bool {
        let free = !self.contains(pid);
        if free {
            self.0.insert(pid, None);
        }
        free
    }

    /// Begins anew, with the same process and another node.
    pub(super) fn begin_again(&mut self, pid: i32) {
        self.0.insert(pid, None);
    }

    /// Notes the phase that was reached; true if it is the first of this move.
    pub(super) fn came_to(&mut self, pid: i32, phase: Phase) -> bool {
        let reached = self.0.get_mut(&pid);
        reached.is_some_and(|reached| reached.replace(phase).is_none())
    }

    pub(super) fn end(&mut self, pid: i32) {
        self.0.remove(&pid);
    }
}
