//! This node's own processes: which may move, the journeys that they are on, and every way to move one.

pub(crate) mod attempt;
pub(crate) mod beginning;
pub(crate) mod candidacy;
pub(crate) mod candidate;
pub(crate) mod candidates;
pub(crate) mod census;
pub(crate) mod departing;
pub(crate) mod destinations;
pub(crate) mod journeys;
pub(crate) mod moving;
pub(crate) mod notes;
pub(crate) mod parts;
pub(crate) mod room;
pub(crate) mod seen;
pub(crate) mod stay;
pub(crate) mod tally;
pub(crate) mod trial;
pub(crate) mod under_way;
pub(crate) mod watching;

use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::ground::Ground;
use crate::host::Host;
use crate::line::probes::Probes;
use crate::locks::lock;
use candidates::Candidates;
use census::Census;
use journeys::Journeys;
use parts::OwnPrograms;
use seen::Seen;
use under_way::UnderWay;

/// This node's own processes, and what is done with them.
#[derive(Debug)]
pub(crate) struct Moves {
    ground: Arc<Ground>,
    host: Arc<Host>,
    probes: Arc<Probes>,
    programs: OwnPrograms,
    census: Census,
    journeys: Mutex<Journeys>,
    under_way: Mutex<UnderWay>,
    seen: Mutex<Seen>,
    ended: Arc<Notify>,
}

impl Moves {
    #[must_use]
    pub(crate) fn new(host: Arc<Host>) -> Arc<Self> {
        let ground = Arc::clone(host.ground());
        let probes = Arc::<Probes>::default();
        Arc::new(Self {
            census: Census::load(Arc::clone(&ground), Arc::clone(&probes)),
            journeys: Mutex::new(Journeys::load(&ground.settings().journeys())),
            under_way: Mutex::default(),
            seen: Mutex::default(),
            ended: Arc::default(),
            programs: OwnPrograms::here(ground.settings()),
            probes,
            ground,
            host,
        })
    }

    #[must_use]
    pub(crate) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    #[must_use]
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    #[must_use]
    pub(crate) fn probes(&self) -> &Arc<Probes> {
        &self.probes
    }

    /// Our own, none of which moves.
    #[must_use]
    pub(crate) fn programs(&self) -> &OwnPrograms {
        &self.programs
    }

    #[must_use]
    pub(crate) fn census(&self) -> &Census {
        &self.census
    }

    pub(crate) fn candidates(&self) -> MutexGuard<'_, Candidates> {
        self.census.candidates()
    }

    pub(crate) fn journeys(&self) -> MutexGuard<'_, Journeys> {
        lock(&self.journeys)
    }

    /// Processes that are being moved just now.
    pub(crate) fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        lock(&self.under_way)
    }

    /// What the last looks at processes have found, for lists of them.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Rung when a move has ended, well or not.
    #[must_use]
    pub(crate) fn ended(&self) -> &Arc<Notify> {
        &self.ended
    }
}
