//! A process that nobody has put into our hands, and that somebody asks us to move.

use std::sync::Arc;

use crate::moves::Moves;
use crate::moves::candidate::Candidate;

/// A process is a candidate for the time of one request. When this is dropped it is what it was before, unless the
/// request has kept it: nothing that was refused changes what the balancer may do.
#[derive(Debug)]
pub(crate) struct Trial {
    moves: Arc<Moves>,
    pid: i32,
    start_time: u64,
    was: Option<Candidate>,
    is_kept: bool,
}

impl Trial {
    /// Begins with the request that has made it a candidate.
    #[must_use]
    pub(crate) fn begin(moves: &Arc<Moves>, candidate: &Candidate, was: Option<Candidate>) -> Self {
        Self {
            moves: Arc::clone(moves),
            pid: candidate.pid,
            start_time: candidate.start_time,
            was,
            is_kept: false,
        }
    }

    /// Ends it; it stays a candidate.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let moves = &self.moves;
        // Another request may have moved it meanwhile.
        let journey = moves.journeys().of_process(self.pid).cloned();
        let away = journey.is_some_and(|journey| !journey.is_at_home());
        let kept = self.is_kept || away || moves.under_way().contains(self.pid);
        let mut candidates = moves.candidates();
        candidates.end_try((self.pid, self.start_time), kept, self.was.take());
        moves.census().save(&candidates);
    }
}
