//! MOSIX's rule, for comparison. The paper: "a process becomes a candidate for migration when the
//! difference between the relative loads of a source machine and a target machine is above a certain
//! threshold. Priority to migrate is given to older processes ... also endeavors to keep some memory free
//! on all machines." How large the threshold is it does not say.

use crate::fluid::{Busy, Process, ProcessId};
use whim_balance::load::Load;

/// Which threshold, and which loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Loads are those of the moment, and a process moves where fewer share a CPU, itself counted: the
    /// smallest threshold that exchanges nothing for nothing, so the strongest opponent.
    Keen,
    /// Kerrighed's `mosix_load_balancer` with the parameters that it ships, and MOSIX's pair of averages.
    Shipped,
}

/// As shipped: a machine gives nothing away below this many processes of the fastest machine that could
/// run.
const THRESHOLD: f64 = 1.5;
/// As shipped: what a process is taken to add to a target.
const STABILITY: f64 = 1.3;
/// As shipped: seconds that must have passed since a machine sent a process away.
const PAUSE: f64 = 2.0;

/// What a machine keeps for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub load: Load,
    pub sent: f64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            load: Load::default(),
            sent: f64::NEG_INFINITY,
        }
    }
}

/// All that the rule looks at.
pub(crate) struct Seen<'a> {
    pub machines: &'a [Busy],
    pub states: &'a [State],
    pub now: f64,
}

impl Rule {
    /// Which process leaves a machine now, and for which of those that it knows of.
    pub(crate) fn decide(
        self,
        seen: &Seen,
        own: usize,
        known: &[usize],
    ) -> Option<(ProcessId, usize)> {
        let busy = &seen.machines[own];
        let (load, least) = match self {
            Self::Keen => (busy.load(), 0.0),
            Self::Shipped if seen.now - seen.states[own].sent < PAUSE => return None,
            Self::Shipped => (seen.states[own].load.own(), THRESHOLD),
        };
        let told = |to: usize| match self {
            Self::Keen => (seen.machines[to].load() + 1.0) / seen.machines[to].machine.speed,
            Self::Shipped => {
                (seen.states[to].load.told() + STABILITY) / seen.machines[to].machine.speed
            }
        };
        let best = |process: &Process| {
            let fits = known.iter().copied();
            let fits = fits.filter(|to| seen.machines[*to].free() >= process.memory);
            fits.min_by(|one, other| told(*one).total_cmp(&told(*other)))
        };
        if busy.free() < 0.0 {
            return usher(busy, best);
        }
        let load = load / busy.machine.speed;
        if load < least {
            return None;
        }
        let mut processes: Vec<&Process> = busy.processes.iter().collect();
        processes.sort_by_key(|process| process.id);
        let lighter = |process: &&Process| {
            let to = best(process).filter(|to| told(*to) < load)?;
            Some((process.id, to))
        };
        processes.iter().find_map(lighter)
    }
}

/// The smallest process whose departure leaves enough memory; if none does, the largest that fits.
fn usher(busy: &Busy, best: impl Fn(&Process) -> Option<usize>) -> Option<(ProcessId, usize)> {
    let mut processes: Vec<&Process> = busy.processes.iter().collect();
    processes.sort_by(|one, other| one.memory.total_cmp(&other.memory));
    let enough = processes.iter().filter(|p| p.memory >= -busy.free());
    let mut ordered = enough.chain(processes.iter().rev());
    ordered.find_map(|process| Some((process.id, best(process)?)))
}
