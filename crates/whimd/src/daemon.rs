//! What the daemon's tasks share. It knows of none of them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use whim_control::config::Config;
use whim_machine::batch::Job;
use whim_machine::cgroup;
use whim_machine::class::Class;
use whim_machine::processes;
use whim_machine::sensors::speed::{self, Speed};
use whim_machine::sensors::{Report, Sensors};
use whim_metrics::Metrics;

use crate::balancing::state::{Balancing, LIVES};
use crate::faces::watched::Watched;
use crate::host::guests::Guests;
use crate::host::orders::{self, Orders};
use crate::line::looking::{Looking, NotSeen, Patience};
use crate::locks::lock;
use crate::members::cluster::Cluster;
use crate::members::membership::Membership;
use crate::members::peers::Peers;
use crate::moves::candidate::Candidate;
use crate::moves::candidates::Candidates;
use crate::moves::journeys::Journeys;
use crate::moves::under_way::UnderWay;
use crate::past::events::Events;
use crate::past::history::History;
use crate::settings::Settings;

/// All processes are looked at again after this, in milliseconds.
const SCAN_ALL_EVERY: u64 = 30_000;

/// Processes that were looked at, and need not be again.
#[derive(Debug, Default)]
struct SeenProcesses {
    /// When all of them were.
    at: u64,
    others: HashSet<i32>,
    candidates: HashSet<i32>,
}

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
    candidates: Mutex<Candidates>,
    journeys: Mutex<Journeys>,
    guests: Mutex<Guests>,
    under_way: Mutex<UnderWay>,
    orders: Mutex<Orders>,
    looking: Arc<Looking>,
    balancing: Mutex<Balancing>,
    /// What the last look at all processes found.
    seen: Mutex<SeenProcesses>,
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
        let candidates = Candidates::load(&settings.state.join("candidates.json"));
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
            candidates: Mutex::new(candidates),
            journeys: Mutex::new(journeys),
            guests: Mutex::new(guests),
            under_way: Mutex::default(),
            orders: Mutex::new(orders),
            looking: Arc::default(),
            balancing: Mutex::new(balancing),
            seen: Mutex::default(),
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
    pub(crate) fn looking(&self) -> &Arc<Looking> {
        &self.looking
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

    pub(crate) fn candidates(&self) -> MutexGuard<'_, Candidates> {
        lock(&self.candidates)
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
                self.save(orders::FILE, &bytes);
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

    /// What all guests may use of this node's memory together.
    #[must_use]
    pub(crate) fn guests_share(&self) -> u64 {
        let (total, _) = whim_machine::sensors::memory();
        self.config().guests.share(total)
    }

    /// Says so to the supervisors of guests and to the kernel, as far as that is not done: an earlier
    /// daemon may have had another configuration, and this node's memory may change.
    pub(crate) fn hold_guests_share(&self) {
        use std::os::unix::fs::{FileExt, OpenOptionsExt};
        let share = self.guests_share();
        // In place, and of the same length always: supervisors have the file open, and may read it
        // at any time.
        let text = format!("{share:020}\n");
        let path = self.settings.guests_share();
        if !std::fs::read_to_string(&path).is_ok_and(|now| now == text) {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let written = options
                .open(&path)
                .and_then(|file| file.write_all_at(text.as_bytes(), 0));
            if let Err(error) = written {
                tracing::warn!(%error, path = %path.display(), "guests are not told of their limit");
            }
        }
        cgroup::hold_share(&self.settings.group_prefix(), share);
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

    /// The batch job to whose nodes a process is bound.
    ///
    /// # Errors
    /// [`NotSeen`]: it may be in one.
    pub(crate) fn job_of(&self, pid: i32, patience: Patience) -> Result<Option<Arc<Job>>, NotSeen> {
        if self.config().balance.beyond_job {
            return Ok(None);
        }
        let look = move || Job::of(pid).map(Arc::new);
        self.looking.look(pid, patience, look)
    }

    fn in_its_job(&self, candidate: Candidate) -> Option<Candidate> {
        let job = self.job_of(candidate.pid, Patience::Brief).ok()?;
        Some(Candidate { job, ..candidate })
    }

    /// What is to be known of processes now: of the candidates, and of those that are new. Whoever is no
    /// candidate at the first look becomes none by descent, unless there are other candidates than before;
    /// but numbers come again.
    fn scan(&self) -> HashMap<i32, processes::Stat> {
        let now = self.clock_ms();
        let candidates = self.candidates().pids();
        let mut seen = lock(&self.seen);
        if now >= seen.at + SCAN_ALL_EVERY || !candidates.is_subset(&seen.candidates) {
            seen.others.clear();
            seen.at = now;
        }
        let pids = processes::pids();
        seen.others.retain(|pid| pids.contains(pid));
        let asked = |pid: &i32| !seen.others.contains(pid) || candidates.contains(pid);
        let stats = pids.iter().filter(|pid| asked(pid)).filter_map(|pid| {
            let stat = processes::stat(*pid).ok()?;
            Some((*pid, stat))
        });
        let found: HashMap<i32, processes::Stat> = stats.collect();
        seen.others.extend(found.keys());
        seen.candidates = candidates;
        found
    }

    /// Looks at all processes: the dead are forgotten, descendants found, CPU use measured.
    pub(crate) fn refresh_candidates(&self) {
        let config = self.config();
        let sessions = &config.balance.sessions;
        if self.candidates().is_empty() && sessions.is_empty() {
            return;
        }
        let all = self.scan();
        let members = cgroup::members(sessions);
        // Looked at before the candidates are locked: that may take its time.
        let new = self.candidates().new_members(&all, &members);
        let looked = new
            .into_iter()
            .filter_map(|candidate| self.in_its_job(candidate));
        let new: Vec<Candidate> = looked.collect();
        let mut candidates = self.candidates();
        let found = candidates.add_members(new);
        if candidates.refresh(&all, self.clock_ms()) || found {
            self.save_candidates(&candidates);
        }
    }

    /// Writes the candidates down, for a daemon that comes after us.
    pub(crate) fn save_candidates(&self, candidates: &Candidates) {
        self.save("candidates.json", &candidates.to_json());
    }

    /// Replaces a file of the state directory; a failure is logged: what is kept there is only
    /// needed by the next daemon.
    pub(crate) fn save(&self, name: &str, bytes: &[u8]) {
        let path = self.settings.state.join(name);
        if let Err(error) = whim_secret::files::write_atomically(&path, bytes) {
            tracing::warn!(%error, "state was not saved");
        }
    }
}
