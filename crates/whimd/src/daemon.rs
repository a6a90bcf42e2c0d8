//! What the daemon's tasks share. It knows of none of them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use whim_control::config::Config;
use whim_machine::sensors::{Report, Sensors};
use whim_metrics::Metrics;

use crate::balancing::state::{Balancing, LIVES};
use crate::faces::watched::Watched;
use crate::ground::Ground;
use crate::host::Host;
use crate::host::guests::Guests;
use crate::host::orders::Orders;
use crate::line::probes::Probes;
use crate::locks::lock;
use crate::members::cluster::Cluster;
use crate::members::membership::Membership;
use crate::members::peers::Peers;
use crate::moves::candidates::Candidates;
use crate::moves::census::Census;
use crate::moves::journeys::Journeys;
use crate::moves::under_way::UnderWay;
use crate::past::events::Events;
use crate::past::history::History;
use crate::settings::Settings;

/// Everything that the daemon's tasks share.
#[derive(Debug)]
pub(crate) struct Daemon {
    ground: Arc<Ground>,
    host: Arc<Host>,
    census: Census,
    journeys: Mutex<Journeys>,
    under_way: Mutex<UnderWay>,
    probes: Arc<Probes>,
    balancing: Mutex<Balancing>,
    /// What the monitors are told.
    watched: Watched,
    history: History,
    /// Held while guests are sent away.
    expelling: tokio::sync::Mutex<()>,
}

impl Daemon {
    #[must_use]
    pub(crate) fn new(settings: Settings, cluster: Cluster) -> Arc<Self> {
        let node = cluster.node();
        let ground = Ground::new(settings, cluster);
        let settings = ground.settings();
        let journeys = Journeys::load(&settings.journeys());
        let probes = Arc::<Probes>::default();
        let census = Census::load(&settings.state, Arc::clone(&probes));
        let lives = std::fs::read(settings.state.join(LIVES)).unwrap_or_default();
        let balancing = Balancing::new(&node, &lives, settings.configured.balance.fair);
        let history = History::new(&settings.state, settings.configured.history.keep);
        Arc::new(Self {
            host: Host::new(Arc::clone(&ground)),
            census,
            journeys: Mutex::new(journeys),
            under_way: Mutex::default(),
            probes,
            balancing: Mutex::new(balancing),
            watched: Watched::default(),
            history,
            expelling: tokio::sync::Mutex::default(),
            ground,
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
    pub(crate) fn settings(&self) -> &Settings {
        self.ground.settings()
    }

    #[must_use]
    pub(crate) fn config(&self) -> Arc<Config> {
        self.ground.config()
    }

    #[must_use]
    pub(crate) fn membership(&self) -> &Arc<Membership> {
        self.ground.membership()
    }

    #[must_use]
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.ground.cluster()
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.ground.peers()
    }

    #[must_use]
    pub(crate) fn events(&self) -> &Events {
        self.ground.events()
    }

    #[must_use]
    pub(crate) fn metrics(&self) -> &Metrics {
        self.ground.metrics()
    }

    #[must_use]
    pub(crate) fn clock(&self) -> Duration {
        self.ground.clock()
    }

    #[must_use]
    pub(crate) fn clock_ms(&self) -> u64 {
        self.ground.clock_ms()
    }

    pub(crate) fn guests(&self) -> MutexGuard<'_, Guests> {
        self.host.guests()
    }

    pub(crate) fn sensors(&self) -> MutexGuard<'_, Sensors> {
        self.host.sensors()
    }

    #[must_use]
    pub(crate) fn orders(&self) -> Orders {
        self.host.orders()
    }

    #[must_use]
    pub(crate) fn report(&self) -> Report {
        self.host.report()
    }

    #[must_use]
    pub(crate) fn probes(&self) -> &Arc<Probes> {
        &self.probes
    }

    #[must_use]
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    #[must_use]
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Held while guests are sent away.
    pub(crate) fn expelling(&self) -> &tokio::sync::Mutex<()> {
        &self.expelling
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

    pub(crate) fn balancing(&self) -> MutexGuard<'_, Balancing> {
        lock(&self.balancing)
    }

    /// Processes that are being moved just now.
    pub(crate) fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        lock(&self.under_way)
    }

    /// Whether a process is being moved just now.
    #[must_use]
    pub(crate) fn is_moving(&self, pid: i32) -> bool {
        self.under_way().contains(pid)
    }
}
