//! What the balancer keeps from one round to the next.

use std::collections::HashMap;
use std::time::Duration;
use whim_balance::Millis;
use whim_balance::balancer::{Balancer, Habits};
use whim_balance::decide::Rules;
use whim_machine::processes::Stat;

use super::lives::Lives;
use super::watch::Observed;
use crate::host::guests::StayId;
use crate::members::gossip::node_id as id;

/// File of the model of past lives, in the directory of the daemon's state.
pub(crate) const LIVES: &str = Lives::FILE;

/// What the balancer keeps from one round to the next.
#[derive(Debug)]
pub(crate) struct Balancing {
    pub(super) own: String,
    pub(super) balancer: Balancer,
    pub(super) watched: HashMap<i32, (Observed, u32, String)>,
    pub(super) lives: Lives,
    /// When the model was written down last, and how many lives it held then.
    pub(super) saved: (Millis, u64),
    /// Whether a process was a candidate, and when that was asked.
    pub(super) verdicts: HashMap<i32, (u64, Millis, bool)>,
    /// When a user last moved each process by hand.
    pub(super) placed: HashMap<i32, Millis>,
    /// When each guest was first seen.
    pub(super) guests: HashMap<StayId, Millis>,
}

impl Balancing {
    /// `own`: name of this node; `lives`: what an earlier daemon wrote down; `fair`: programs take turns at
    /// sharing CPUs.
    #[must_use]
    pub(crate) fn new(own: &str, lives: &[u8], fair: bool) -> Self {
        let lives = Lives::parse(lives);
        let habits = Habits {
            fair,
            ..Habits::default()
        };
        Self {
            own: own.to_owned(),
            balancer: Balancer::new(id(own), Rules::default(), habits),
            watched: HashMap::new(),
            saved: (0, lives.count()),
            lives,
            verdicts: HashMap::new(),
            placed: HashMap::new(),
            guests: HashMap::new(),
        }
    }

    /// A user has moved a process by hand: it stays there for a while.
    pub(crate) fn placed(&mut self, now: Millis, pid: i32) {
        self.placed.insert(pid, now);
    }

    /// CPU time that each process has used so far, as far as it was watched, in milliseconds.
    pub(super) fn done_ms(&self) -> impl Iterator<Item = (i32, u64)> {
        self.watched.iter().map(|(pid, (watched, _, _))| {
            let done = Duration::from_secs_f64(watched.done.clamp(0.0, 1e9));
            (*pid, u64::try_from(done.as_millis()).unwrap_or(u64::MAX))
        })
    }

    /// What this program does, if there are two samples of it where it is.
    #[must_use]
    pub(crate) fn does(&self, stat: &Stat) -> Option<Does> {
        let (watched, _, _) = self.watched.get(&stat.pid)?;
        let same = watched.start_time == stat.start_time && watched.was_seen_twice();
        same.then(|| Does {
            wanted: watched.cpus(),
            got: watched.ran,
            calls: watched.calls(),
        })
    }
}

/// What a program does, by its last samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Does {
    /// Cores that it would keep busy, and those that it got.
    pub wanted: f64,
    pub got: f64,
    /// Calls for its home in a second.
    pub calls: f64,
}
