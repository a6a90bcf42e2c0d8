//! What the daemon's tasks share. It knows of none of them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use whim_control::config::Config;
use whim_machine::cgroup;
use whim_machine::class::Class;
use whim_machine::sensors::speed::{self, Speed};
use whim_machine::sensors::{Report, Sensors};
use whim_metrics::Metrics;

use crate::balancing::state::{Balancing, LIVES};
use crate::faces::watched::Watched;
use crate::host::guests::Guests;
use crate::host::orders::{self, Orders};
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
    settings: Settings,
    /// What holds of the configuration: `whim tune` changes it.
    config: Mutex<Arc<Config>>,
    membership: Arc<Membership>,
    events: Events,
    supervisor_groups: Vec<PathBuf>,
    started: Instant,
    sensors: Mutex<Sensors>,
    census: Census,
    journeys: Mutex<Journeys>,
    guests: Mutex<Guests>,
    under_way: Mutex<UnderWay>,
    orders: Mutex<Orders>,
    probes: Arc<Probes>,
    balancing: Mutex<Balancing>,
    /// What the monitors are told.
    watched: Watched,
    /// What Prometheus is told.
    metrics: Metrics,
    history: History,
    /// Held while guests are sent away.
    expelling: tokio::sync::Mutex<()>,
}

impl Daemon {
    #[must_use]
    pub(crate) fn new(settings: Settings, cluster: Cluster) -> Arc<Self> {
        let class = Class::here(&settings.configured.cpu.hide);
        let events = Events::open(settings.log("events").with_extension("jsonl"));
        let journeys = Journeys::load(&settings.journeys());
        let probes = Arc::<Probes>::default();
        let census = Census::load(&settings.state, Arc::clone(&probes));
        let mut guests = Guests::default();
        let ids = std::fs::read(settings.state.join("uids.json")).unwrap_or_default();
        guests.ids = serde_json::from_slice(&ids).unwrap_or_default();
        let fixed = settings.configured.cpu.speed.map(|value| Speed {
            value,
            estimated: false,
        });
        let noted = || speed::noted(&settings.state.join(speed::FILE), &speed::cpu());
        let speed = fixed.or_else(noted).unwrap_or_default();
        let lives = std::fs::read(settings.state.join(LIVES)).unwrap_or_default();
        let balancing = Balancing::new(&cluster.node(), &lives, settings.configured.balance.fair);
        let orders = Orders::load(&settings.state.join(orders::FILE));
        let history = History::new(&settings.state, settings.configured.history.keep);
        Arc::new(Self {
            config: Mutex::new(Arc::new(settings.configured.clone())),
            settings,
            membership: Membership::new(cluster),
            events,
            supervisor_groups: cgroup::supervisors(),
            started: Instant::now(),
            sensors: Mutex::new(Sensors::new(class, speed)),
            census,
            journeys: Mutex::new(journeys),
            guests: Mutex::new(guests),
            under_way: Mutex::default(),
            orders: Mutex::new(orders),
            probes,
            balancing: Mutex::new(balancing),
            watched: Watched::default(),
            metrics: Metrics::new(env!("CARGO_PKG_VERSION")),
            history,
            expelling: tokio::sync::Mutex::default(),
        })
    }

    /// What this daemon was started with.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    #[must_use]
    pub(crate) fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    #[must_use]
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.membership.cluster()
    }

    #[must_use]
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Files by which supervisors enter their control groups.
    #[must_use]
    pub(crate) fn supervisor_groups(&self) -> &[PathBuf] {
        &self.supervisor_groups
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
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
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

    pub(crate) fn guests(&self) -> MutexGuard<'_, Guests> {
        lock(&self.guests)
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        self.membership.peers()
    }

    pub(crate) fn sensors(&self) -> MutexGuard<'_, Sensors> {
        lock(&self.sensors)
    }

    pub(crate) fn balancing(&self) -> MutexGuard<'_, Balancing> {
        lock(&self.balancing)
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
    pub(crate) fn orders(&self) -> Orders {
        *lock(&self.orders)
    }

    /// Takes and notes what this node is told; gives what holds now.
    pub(crate) fn change_orders(&self, change: impl FnOnce(&mut Orders)) -> Orders {
        let mut orders = lock(&self.orders);
        let before = *orders;
        change(&mut orders);
        if *orders != before {
            if let Ok(bytes) = serde_json::to_vec(&*orders) {
                self.settings.save(orders::FILE, &bytes);
            }
            self.events.add(None, "told", orders.sentence());
        }
        *orders
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

    /// What this node tells of itself.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        let orders = self.orders();
        let some = {
            let guests = self.guests();
            guests.count() > 0 || guests.expects_some()
        };
        // Without guests there are no groups to look for.
        let used = if some {
            cgroup::guests_use(&self.settings.group_prefix())
        } else {
            None
        };
        let mut report = Report {
            blocked: orders.refuses(),
            stays: orders.keeps().is_some(),
            draining: orders.drain,
            labels: self.config().labels.clone(),
            ..self.sensors().report()
        };
        let guests = self.guests();
        let taken = guests.taken();
        report.guests = guests.count();
        // Where no group counts what they use, all of them count as here: better than twice.
        report.memory_promised_bytes = used.map_or(0, |used| taken.saturating_sub(used));
        report.guests_left_bytes =
            guests.left(&report, used.unwrap_or(taken), &self.config().guests);
        report
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
