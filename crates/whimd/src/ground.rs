//! What the rooms of the daemon stand on, from `host` up, and the tasks of `members` and `past`, whose states it has.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use whim_control::config::Config;
use whim_metrics::Metrics;

use crate::locks::lock;
use crate::members::cluster::Cluster;
use crate::members::membership::Membership;
use crate::members::peers::Peers;
use crate::past::events::Events;
use crate::past::history::History;
use crate::settings::Settings;

/// Settings, configuration, members, log, history, metrics and clock of this daemon.
#[derive(Debug)]
pub(crate) struct Ground {
    settings: Settings,
    /// What holds of the configuration: `whim tune` changes it.
    config: Mutex<Arc<Config>>,
    membership: Arc<Membership>,
    events: Events,
    history: History,
    /// What Prometheus is told.
    metrics: Metrics,
    started: Instant,
}

impl Ground {
    #[must_use]
    pub(crate) fn new(settings: Settings, cluster: Cluster) -> Arc<Self> {
        let events = Events::open(settings.log("events").with_extension("jsonl"));
        let history = History::new(&settings.state, settings.configured.history.keep);
        Arc::new(Self {
            config: Mutex::new(Arc::new(settings.configured.clone())),
            settings,
            membership: Membership::new(cluster),
            events,
            history,
            metrics: Metrics::new(env!("CARGO_PKG_VERSION")),
            started: Instant::now(),
        })
    }

    /// What this daemon was started with.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What holds now of the configuration.
    #[must_use]
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    /// Changes what holds of it until this daemon ends; gives what held before, and what holds now.
    ///
    /// # Errors
    /// Those of `change`; then all is as before.
    pub(crate) fn change_config<E>(
        &self,
        change: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<(Arc<Config>, Arc<Config>), E> {
        let mut config = lock(&self.config);
        let after = Arc::new(change(&config)?);
        let before = std::mem::replace(&mut *config, Arc::clone(&after));
        Ok((before, after))
    }

    #[must_use]
    pub(crate) fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    #[must_use]
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.membership.cluster()
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.membership.peers()
    }

    #[must_use]
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    #[must_use]
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    #[must_use]
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The time since this daemon began.
    #[must_use]
    pub(crate) fn clock(&self) -> Duration {
        self.started.elapsed()
    }

    /// Milliseconds since this daemon began.
    #[must_use]
    pub(crate) fn clock_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
