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
use crate::locks::lock;
use crate::members::cluster::Cluster;
use crate::members::membership::Membership;
use crate::members::peers::Peers;
use crate::moves::Moves;
use crate::past::events::Events;
use crate::settings::Settings;

/// Everything that the daemon's tasks share.
#[derive(Debug)]
pub(crate) struct Daemon {
    ground: Arc<Ground>,
    host: Arc<Host>,
    moves: Arc<Moves>,
    balancing: Mutex<Balancing>,
    /// What the monitors are told.
    watched: Watched,
}

impl Daemon {
    #[must_use]
    pub(crate) fn new(settings: Settings, cluster: Cluster) -> Arc<Self> {
        let node = cluster.node();
        let ground = Ground::new(settings, cluster);
        let settings = ground.settings();
        let lives = std::fs::read(settings.state.join(LIVES)).unwrap_or_default();
        let balancing = Balancing::new(&node, &lives, settings.configured.balance.fair);
        let host = Host::new(Arc::clone(&ground));
        let moves = Moves::new(Arc::clone(&host));
        Arc::new(Self {
            balancing: Mutex::new(balancing),
            watched: Watched::new(Arc::clone(moves.ended())),
            ground,
            host,
            moves,
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
    pub(crate) fn moves(&self) -> &Arc<Moves> {
        &self.moves
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
    pub(crate) fn report(&self) -> Report {
        self.host.report()
    }

    #[must_use]
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    pub(crate) fn balancing(&self) -> MutexGuard<'_, Balancing> {
        lock(&self.balancing)
    }
}
