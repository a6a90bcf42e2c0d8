//! The state of a node at the moment of a scrape.

use crate::labels::{Place, State};

/// The state of a node. A value that is not known is `None`, and has no series then.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Threads that run or wait for a CPU, for each CPU that the node may use.
    pub load_ratio: f64,
    pub cpus: f64,
    /// CPUs that its tasks would have used in the last second, had a limit not kept them from it.
    pub throttled_cpus: f64,
    /// Speed of one core; 1 is an ordinary one.
    pub speed_ratio: f64,
    pub memory_total_bytes: f64,
    pub memory_available_bytes: f64,
    /// How much of that will be needed by guests that have not come completely.
    pub memory_promised_bytes: f64,
    /// Parts of the last ten seconds, from 0 to 1.
    pub cpu_pressure_ratio: Option<f64>,
    pub memory_pressure_ratio: Option<f64>,
    pub blocked: bool,
    pub stays: bool,
    pub draining: bool,
    pub guests: Guests,
    pub processes: Processes,
    pub members: Members,
    /// `None`: this node is in no cluster. Below 0: the certificate has expired.
    pub certificate_remaining_seconds: Option<f64>,
    /// Whether the balancer looks at this node's programs.
    pub balances: bool,
    pub daemon_cpu_seconds: f64,
    pub daemon_resident_bytes: f64,
    /// When the daemon began, in seconds since 1970.
    pub daemon_start_seconds: f64,
}

/// Guests of a node, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guests {
    pub starting: u32,
    pub started: u32,
}

/// A node's own processes that may move, by state and place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    counts: Vec<(State, Place, u32)>,
}

impl Processes {
    /// Counts one more process.
    pub fn add(&mut self, state: State, place: Place) {
        let known = self
            .counts
            .iter_mut()
            .find(|(of, at, _)| (*of, *at) == (state, place));
        match known {
            Some((_, _, count)) => *count += 1,
            None => self.counts.push((state, place, 1)),
        }
    }

    /// How many processes there are of this kind.
    #[must_use]
    pub fn count(&self, state: State, place: Place) -> u32 {
        let counts = self.counts.iter();
        let of = counts.filter(|(of, at, _)| (*of, *at) == (state, place));
        of.map(|(_, _, count)| count).sum()
    }
}

/// Members of the cluster, including this node, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub up: u32,
    pub suspect: u32,
    pub down: u32,
    pub draining: u32,
}
