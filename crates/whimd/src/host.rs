//! This node as a host: what it has, what it was told, and the programs of other nodes that compute here.

pub(crate) mod guests;
pub(crate) mod hosting;
pub(crate) mod orders;
pub(crate) mod share;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use whim_control::config::Guests as Limits;
use whim_control::history::Sample;
use whim_machine::cgroup;
use whim_machine::class::Class;
use whim_machine::sensors::speed::{self, Speed};
use whim_machine::sensors::{Report, Sensors, float};

use crate::blocking::blocking;
use crate::ground::Ground;
use crate::locks::lock;
use guests::{Guests, PrivateIds, StayId};
use orders::{NotNoted, Orders};

/// File of the uids of guests.
const PRIVATE_IDS: &str = "uids.json";

/// This node as a host.
#[derive(Debug)]
pub(crate) struct Host {
    ground: Arc<Ground>,
    guests: Mutex<Guests>,
    private_ids: Mutex<PrivateIds>,
    orders: Mutex<Orders>,
    /// Held while orders are noted and taken: who asks what holds does not wait for the disk.
    ordering: Mutex<()>,
    sensors: Mutex<Sensors>,
    supervisor_groups: Vec<PathBuf>,
    /// Held while guests are sent away.
    expelling: tokio::sync::Mutex<()>,
    kept_back: Mutex<HashMap<StayId, String>>,
}

impl Host {
    #[must_use]
    pub(crate) fn new(ground: Arc<Ground>) -> Arc<Self> {
        let settings = ground.settings();
        let class = Class::here(&settings.configured.cpu.hide);
        let ids = std::fs::read(settings.state.join(PRIVATE_IDS)).unwrap_or_default();
        let ids: PrivateIds = serde_json::from_slice(&ids).unwrap_or_default();
        let fixed = settings.configured.cpu.speed.map(|value| Speed {
            value,
            estimated: false,
        });
        let noted = || speed::noted(&settings.state.join(speed::FILE), &speed::cpu());
        let speed = fixed.or_else(noted).unwrap_or_default();
        let orders = Orders::load(&settings.state.join(orders::FILE));
        Arc::new(Self {
            ground,
            guests: Mutex::default(),
            private_ids: Mutex::new(ids),
            orders: Mutex::new(orders),
            ordering: Mutex::default(),
            sensors: Mutex::new(Sensors::new(class, speed)),
            supervisor_groups: cgroup::supervisors(),
            expelling: tokio::sync::Mutex::default(),
            kept_back: Mutex::default(),
        })
    }

    #[must_use]
    pub(crate) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    pub(crate) fn guests(&self) -> MutexGuard<'_, Guests> {
        lock(&self.guests)
    }

    /// The uid under which guests of this user of a node run here. A new one is noted before it is used.
    pub(crate) fn private_id(&self, home: &str, uid: u32, limits: &Limits) -> Option<u32> {
        let mut ids = lock(&self.private_ids);
        if let Some(id) = ids.given(home, uid, limits) {
            return Some(id);
        }
        let id = ids.give(home, uid, limits)?;
        if let Ok(bytes) = serde_json::to_vec(&*ids) {
            self.ground.settings().save(PRIVATE_IDS, &bytes);
        }
        Some(id)
    }

    pub(crate) fn sensors(&self) -> MutexGuard<'_, Sensors> {
        lock(&self.sensors)
    }

    /// Files by which supervisors enter their control groups.
    #[must_use]
    pub(crate) fn supervisor_groups(&self) -> &[PathBuf] {
        &self.supervisor_groups
    }

    /// Held while guests are sent away.
    pub(crate) fn expelling(&self) -> &tokio::sync::Mutex<()> {
        &self.expelling
    }

    /// Guests that were asked to leave and could not, each with the sentence that says why.
    pub(crate) fn kept_back(&self) -> MutexGuard<'_, HashMap<StayId, String>> {
        lock(&self.kept_back)
    }

    #[must_use]
    pub(crate) fn orders(&self) -> Orders {
        *lock(&self.orders)
    }

    /// Notes and takes what this node is told; gives what holds now.
    ///
    /// # Errors
    /// It cannot be noted, so that a restart would forget it. What is not kept over restarts (`owner`, `evacuate`)
    /// is taken always.
    pub(crate) fn change_orders(
        &self,
        change: impl FnOnce(&mut Orders),
    ) -> Result<Orders, NotNoted> {
        let _ordering = lock(&self.ordering);
        let before = self.orders();
        let mut told = before;
        change(&mut told);
        if told == before {
            return Ok(told);
        }
        let noted = told.noted();
        if noted != before.noted() {
            blocking(|| self.ground.settings().write(orders::FILE, &noted))?;
        }
        *lock(&self.orders) = told;
        self.ground.events().add(None, "told", told.sentence());
        Ok(told)
    }

    /// What the history notes of this node now.
    #[must_use]
    pub(crate) fn sample(&self) -> Sample {
        let report = self.sensors().report();
        let used = report
            .memory_total_bytes
            .saturating_sub(report.memory_available_bytes);
        Sample {
            load: report.load,
            cpus: report.cpus,
            memory_used_bytes: float(used),
            memory_total_bytes: report.memory_total_bytes,
            guests: self.guests().count().into(),
        }
    }

    /// What this node tells of itself.
    #[must_use]
    pub(crate) fn report(&self) -> Report {
        let orders = self.orders();
        let config = self.ground.config();
        let some = {
            let guests = self.guests();
            guests.count() > 0 || guests.expects_some()
        };
        // Without guests there are no groups to look for.
        let used = if some {
            cgroup::guests_use(&self.ground.settings().group_prefix())
        } else {
            None
        };
        let mut report = Report {
            blocked: orders.refuses(),
            stays: orders.keeps().is_some(),
            draining: orders.drain,
            evacuates: orders.evacuate,
            owner_here: orders.owner,
            labels: config.labels.clone(),
            ..self.sensors().report()
        };
        let guests = self.guests();
        let taken = guests.taken();
        report.guests = guests.count();
        // If no group counts what guests use, all that was promised counts as used already; otherwise it would
        // count twice.
        report.memory_promised_bytes = used.map_or(0, |used| taken.saturating_sub(used));
        report.guests_left_bytes = guests.left(&report, used.unwrap_or(taken), &config.guests);
        report
    }
}
