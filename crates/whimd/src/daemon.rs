//! The daemon's parts, and what it does each second.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::candidates::Candidates;
use crate::class::Class;
use crate::cluster::Cluster;
use crate::events::Events;
use crate::guests::Guests;
use crate::journeys::Journeys;
use crate::peers::Peers;
use crate::processes;
use crate::sensors::{Report, Sensors};
use crate::settings::Settings;
use crate::{cgroup, hosting, watching};

/// Everything that the daemon's tasks share.
#[derive(Debug)]
pub struct Daemon {
    pub settings: Settings,
    pub cluster: Arc<Cluster>,
    pub events: Events,
    /// Files by which supervisors enter their control groups.
    pub supervisor_groups: Vec<PathBuf>,
    started: Instant,
    sensors: Mutex<Sensors>,
    candidates: Mutex<Candidates>,
    journeys: Mutex<Journeys>,
    guests: Mutex<Guests>,
    peers: Mutex<Peers>,
    /// Processes that a request of the user moves just now.
    moving: Mutex<std::collections::HashSet<i32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder leaves half a change behind: what a panic interrupted is still a whole value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that is being moved; dropped when that is over.
#[derive(Debug)]
pub struct MovingGuard {
    daemon: Arc<Daemon>,
    pid: i32,
}

impl Drop for MovingGuard {
    fn drop(&mut self) {
        lock(&self.daemon.moving).remove(&self.pid);
    }
}

impl Daemon {
    #[must_use]
    pub fn new(settings: Settings, cluster: Cluster) -> Arc<Self> {
        let class = Class::here(&settings.config.cpu.hide);
        let events = Events::open(settings.log("events").with_extension("jsonl"));
        let journeys = Journeys::load(&settings.journeys());
        let candidates = Candidates::load(&settings.state.join("candidates.json"));
        let mut guests = Guests::default();
        let ids = std::fs::read(settings.state.join("uids.json")).unwrap_or_default();
        guests.ids = serde_json::from_slice(&ids).unwrap_or_default();
        Arc::new(Self {
            settings,
            cluster: Arc::new(cluster),
            events,
            supervisor_groups: cgroup::supervisors(),
            started: Instant::now(),
            sensors: Mutex::new(Sensors::new(class)),
            candidates: Mutex::new(candidates),
            journeys: Mutex::new(journeys),
            guests: Mutex::new(guests),
            peers: Mutex::default(),
            moving: Mutex::default(),
        })
    }

    pub fn candidates(&self) -> MutexGuard<'_, Candidates> {
        lock(&self.candidates)
    }

    pub fn journeys(&self) -> MutexGuard<'_, Journeys> {
        lock(&self.journeys)
    }

    pub fn guests(&self) -> MutexGuard<'_, Guests> {
        lock(&self.guests)
    }

    pub fn peers(&self) -> MutexGuard<'_, Peers> {
        lock(&self.peers)
    }

    pub fn sensors(&self) -> MutexGuard<'_, Sensors> {
        lock(&self.sensors)
    }

    /// Milliseconds since this daemon began.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What this node tells of itself.
    #[must_use]
    pub fn report(&self) -> Report {
        let guests = self.guests().count();
        Report {
            guests,
            ..self.sensors().report()
        }
    }

    /// What all guests may use of this node's memory together.
    #[must_use]
    pub fn guests_share(&self) -> u64 {
        let (total, _) = crate::sensors::memory();
        self.settings.config.guests.share(total)
    }

    /// Says so to the supervisors of guests and to the kernel, as far as that is not done: an earlier
    /// daemon may have had another configuration, and this node's memory may change.
    pub fn hold_guests_share(&self) {
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

    /// Reserves a process for one move; `None`: it is being moved already.
    #[must_use]
    pub fn begin_move(self: &Arc<Self>, pid: i32) -> Option<MovingGuard> {
        let fresh = lock(&self.moving).insert(pid);
        fresh.then(|| MovingGuard {
            daemon: Arc::clone(self),
            pid,
        })
    }

    /// Whether a request of the user moves this process just now.
    #[must_use]
    pub fn is_moving(&self, pid: i32) -> bool {
        lock(&self.moving).contains(&pid)
    }

    /// Looks at all processes: the dead are forgotten, descendants found, CPU use measured.
    pub fn refresh_candidates(&self) {
        if self.candidates().is_empty() {
            return;
        }
        let all = processes::all();
        let mut candidates = self.candidates();
        if candidates.refresh(&all, self.clock_ms()) {
            self.save_candidates(&candidates);
        }
    }

    /// Writes the candidates down, for a daemon that comes after us.
    pub fn save_candidates(&self, candidates: &Candidates) {
        self.save("candidates.json", &candidates.to_json());
    }

    /// Replaces a file of the state directory; a failure is logged: what is kept there is only
    /// needed by the next daemon.
    pub fn save(&self, name: &str, bytes: &[u8]) {
        let path = self.settings.state.join(name);
        if let Err(error) = whim_net::files::write_atomically(&path, bytes) {
            tracing::warn!(%error, "state was not saved");
        }
    }

    /// Runs for ever: sensors, processes, supervisors, each second.
    pub async fn tick(self: Arc<Self>) {
        let mut interval = tokio::time::interval(Duration::from_secs(1));
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let daemon = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                daemon.sensors().sample();
                daemon.hold_guests_share();
                daemon.refresh_candidates();
            });
            if let Err(error) = looked.await {
                tracing::error!(%error, "looking at the processes failed");
            }
            watching::refresh_all(&self).await;
            hosting::sweep(&self).await;
        }
    }
}
