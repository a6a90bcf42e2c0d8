//! Which processes are being moved just now, and how far each has come.

use std::collections::HashMap;
use whim_journey::job::Phase;

/// Moves by the pid of their process.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// `None`: the move has not begun, and may be refused.
    phases: HashMap<i32, Option<Phase>>,
    /// When each attempt that is over ended, in milliseconds of the daemon's clock.
    ended: HashMap<i32, u64>,
}

impl UnderWay {
    #[must_use]
    pub(crate) fn contains(&self, pid: i32) -> bool {
        self.phases.contains_key(&pid)
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    /// How far it has come.
    #[must_use]
    pub(crate) fn phase(&self, pid: i32) -> Option<Phase> {
        self.phases.get(&pid).copied().flatten()
    }

    /// Reserves a process for one move; false if it is being moved already.
    pub(super) fn begin(&mut self, pid: i32) -> bool {
        let free = !self.contains(pid);
        if free {
            self.phases.insert(pid, None);
        }
        free
    }

    /// Begins anew, with the same process and another node.
    pub(super) fn begin_again(&mut self, pid: i32) {
        self.phases.insert(pid, None);
    }

    /// Notes the phase that was reached; true if it is the first of this move.
    pub(super) fn came_to(&mut self, pid: i32, phase: Phase) -> bool {
        let reached = self.phases.get_mut(&pid);
        reached.is_some_and(|reached| reached.replace(phase).is_none())
    }

    pub(super) fn end(&mut self, pid: i32, now: u64) {
        self.phases.remove(&pid);
        self.ended.insert(pid, now);
    }

    /// Whether a process is being moved, or was a moment ago: its last change of place was asked for.
    #[must_use]
    pub(crate) fn moves_or_moved(&self, pid: i32) -> bool {
        self.contains(pid) || self.ended.contains_key(&pid)
    }

    #[must_use]
    pub(crate) fn any_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Forgets what ended at this time or before.
    pub(crate) fn forget_ends(&mut self, until: u64) {
        self.ended.retain(|_, at| *at > until);
    }
}
