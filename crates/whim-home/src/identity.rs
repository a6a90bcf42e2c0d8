//! What a supervisor is about: its job, and the process that it carries.

use crate::subject::Subject;
use std::time::Duration;
use whim_journey::job::{HomeJob, Phase, State, Status};
use whim_net::Credentials;

/// The job of a supervisor, with some of its fields decoded.
#[derive(Debug)]
pub(crate) struct Identity {
    pub job: HomeJob,
    pub credentials: Credentials,
    pub lease: Option<Duration>,
    pub subject: Subject,
}

impl Identity {
    #[must_use]
    pub(crate) fn at_home(&self, phase: Phase) -> Status {
        Status {
            journey: self.job.journey.clone(),
            pid: self.job.pid,
            home: self.job.node.clone(),
            location: self.job.node.clone(),
            state: State::Home,
            phase,
            epoch: 0,
            moves: 0,
            supervisor_pid: i32::try_from(std::process::id()).unwrap_or(0),
            cpu_ns: 0,
            busy_ns: 0,
            counted_ms: 0,
            resident_bytes: 0,
            forwarded_calls: 0,
            held_threads: 0,
            reason: None,
        }
    }
}

/// Turns the moments at which phases began into how long each took.
#[must_use]
pub(crate) fn durations(moments: &[(Phase, f64)], end: f64) -> Vec<(Phase, f64)> {
    moments
        .iter()
        .enumerate()
        .map(|(index, (phase, at))| {
            let next = moments.get(index + 1).map_or(end, |(_, next)| *next);
            (*phase, next - at)
        })
        .collect()
}
