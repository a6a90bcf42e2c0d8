//! Load, memory and class of this node.

mod pressure;
pub mod queue;
mod scope;
pub mod speed;
mod steal;

use serde::{Deserialize, Serialize};
use whim_balance::Millis;
use whim_balance::load::{Demand, Load, Recent};

use crate::cgroup;
use crate::class::Class;
pub use pressure::Pressure;
use queue::Queue;
pub use scope::Scope;
pub use speed::Speed;
pub use whim_monitor::rows::float;

/// What a node reports of itself: see `members/word.rs` of whimd.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Threads that run or wait for a CPU, as other nodes are to see it: see [`whim_balance::load`].
    pub load: f64,
    /// CPUs that its tasks may use by its limits and really get, since a hypervisor may take some of their
    /// time.
    pub cpus: f64,
    /// The average of `load` over the last seconds: see [`Recent`].
    #[serde(default)]
    pub running: f64,
    /// The sum of its programs' urgencies: see [`whim_balance::decide`].
    #[serde(default)]
    pub urgency: f64,
    /// Speed of one core; a node of an older version does not report it.
    #[serde(default)]
    pub speed: Speed,
    /// CPUs that its tasks would have used in the last second, had no limit kept them from it.
    #[serde(default)]
    pub throttled_cpus: f64,
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    /// How much of the available memory will be needed by guests that are admitted but have not come
    /// completely.
    #[serde(default)]
    pub memory_promised_bytes: u64,
    /// By how much the memory in use grows in a second; what comes with a guest does not count as growth.
    #[serde(default)]
    pub memory_growth_bytes: f64,
    /// How much memory guests may still use.
    #[serde(default)]
    pub guests_left_bytes: u64,
    #[serde(default)]
    pub pressure: Pressure,
    pub guests: u32,
    /// It takes no guests.
    #[serde(default)]
    pub blocked: bool,
    /// Its own processes may not leave.
    #[serde(default)]
    pub stays: bool,
    pub draining: bool,
    /// Among what blocks it is that it is to go down (`whim evacuate`), or that its owner sits before it.
    #[serde(default)]
    pub evacuates: bool,
    #[serde(default)]
    pub owner_here: bool,
    #[serde(default)]
    pub labels: Vec<String>,
    pub class: Class,
}

/// The sensors, and what they remember of earlier samples.
#[derive(Debug)]
pub struct Sensors {
    scope: Scope,
    queue: Queue,
    load: Load,
    recent: Recent,
    /// When the throttled time was last read, and what it was, in nanoseconds.
    throttled: Option<(Millis, u64)>,
    throttled_cpus: f64,
    memory: Growth,
    got: steal::Got,
    cpus: f64,
    pressure: Pressure,
    urgency: f64,
    growth: f64,
    speed: Speed,
    class: Class,
}

/// How fast the use of memory grows.
#[derive(Debug, Default)]
struct Growth {
    last: Option<(Millis, u64)>,
    rate: Demand,
}

impl Growth {
    fn sample(&mut self, now: Millis, (total, available): (u64, u64)) {
        let used = total.saturating_sub(available);
        if let Some((then, before)) = self.last.replace((now, used))
            && then < now
        {
            let grown = used.saturating_sub(before).saturating_mul(1000) / (now - then);
            // In units of 4 KiB, which fit into 32 bits: no use grows faster than that.
            let pages = u32::try_from(grown >> 12).unwrap_or(u32::MAX);
            self.rate.sample(f64::from(pages) * 4096.0);
        }
    }

    fn growth(&self) -> f64 {
        self.rate.value()
    }
}

impl Sensors {
    /// `class` and `speed` are those of this node.
    #[must_use]
    pub fn new(class: Class, speed: Speed) -> Self {
        // Set in every task of a Slurm job.
        let scope = Scope::find(std::env::var_os("SLURM_JOB_ID").is_some());
        Self {
            got: steal::Got::default(),
            cpus: cpus(1.0),
            pressure: Pressure::of(&scope),
            scope,
            queue: Queue::default(),
            load: Load::default(),
            recent: Recent::default(),
            throttled: None,
            throttled_cpus: 0.0,
            memory: Growth::default(),
            urgency: 0.0,
            growth: 0.0,
            speed,
            class,
        }
    }

    /// Reads the run queue, the pressure and the limits; to be called once a second.
    pub fn sample(&mut self, now: Millis) {
        let runnable = self.queue.sample(&self.scope, now);
        self.load.sample(runnable);
        self.recent.sample(runnable);
        let throttled = self.scope.throttled_ns().map(|ns| (now, ns));
        self.throttled_cpus = match (self.throttled, throttled) {
            (Some(before), Some(now)) => throttled_cpus(before, now),
            _ => 0.0,
        };
        self.throttled = throttled;
        self.memory.sample(now, memory());
        self.got.sample();
        self.cpus = cpus(self.got.part());
        self.pressure = Pressure::of(&self.scope);
    }

    /// What this node reports of itself; the caller has to fill in guests, promises, orders and labels.
    #[must_use]
    pub fn report(&self) -> Report {
        let (memory_total_bytes, memory_available_bytes) = memory();
        Report {
            load: self.load.told(),
            cpus: self.cpus,
            running: self.recent.mean(),
            urgency: self.urgency,
            speed: self.speed,
            throttled_cpus: self.throttled_cpus,
            memory_total_bytes,
            memory_available_bytes,
            memory_promised_bytes: 0,
            memory_growth_bytes: self.growth,
            guests_left_bytes: 0,
            pressure: self.pressure,
            guests: 0,
            blocked: false,
            stays: false,
            draining: false,
            evacuates: false,
            owner_here: false,
            labels: Vec::new(),
            class: self.class.clone(),
        }
    }

    /// What this node believes of its own load, per CPU: see [`whim_balance::load`].
    #[must_use]
    pub fn own_load(&self) -> f64 {
        self.load.own() / self.cpus.max(0.01)
    }

    /// By how much the memory in use grows in a second, whatever the reason.
    #[must_use]
    pub fn memory_growth(&self) -> f64 {
        self.memory.growth()
    }

    /// Sets the growth to report, which leaves out what comes with guests.
    pub fn set_growth(&mut self, growth: f64) {
        self.growth = growth;
    }

    /// Sets the sum of the urgencies of the programs that compute here.
    pub fn set_urgency(&mut self, urgency: f64) {
        self.urgency = urgency;
    }

    #[must_use]
    pub fn speed(&self) -> Speed {
        self.speed
    }

    pub fn set_speed(&mut self, speed: Speed) {
        self.speed = speed;
    }

    #[must_use]
    pub fn class(&self) -> &Class {
        &self.class
    }
}

/// CPUs' worth of waiting between two samples of (milliseconds, nanoseconds waited).
fn throttled_cpus(before: (Millis, u64), now: (Millis, u64)) -> f64 {
    match now.0.saturating_sub(before.0) {
        0 => 0.0,
        elapsed_ms => cpus_worth(now.1.saturating_sub(before.1), elapsed_ms),
    }
}

/// How many CPUs this CPU time amounts to over the elapsed time, which is not 0.
fn cpus_worth(nanoseconds: u64, elapsed_ms: Millis) -> f64 {
    float(nanoseconds) / float(elapsed_ms) / 1e6
}

/// CPUs that this node's tasks may use, if they really get the part `got` of each.
fn cpus(got: f64) -> f64 {
    let cpus = cgroup::cpus();
    let online = cpus.online * got;
    cpus.limit.map_or(online, |limit| limit.min(online))
}

/// Total and available memory of this node, in bytes, within the limits of its group.
#[must_use]
pub fn memory() -> (u64, u64) {
    let text = crate::processes::short("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    let (total, available) = (field("MemTotal:"), field("MemAvailable:"));
    match cgroup::memory_limit() {
        Some((limit, used)) if limit < total => (limit, available.min(limit.saturating_sub(used))),
        _ => (total, available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_cpus_and_a_class() {
        let mut sensors = Sensors::new(Class::here(&[]), Speed::default());
        sensors.sample(1000);
        let report = sensors.report();
        assert!(report.cpus > 0.0 && report.load >= 0.0);
        assert!(report.memory_total_bytes >= report.memory_available_bytes);
        assert!(report.memory_available_bytes > 0);
        let pressure = report.pressure.cpu_some.unwrap_or(0.0);
        assert!((0.0..=100.0).contains(&pressure));
        assert_eq!(report.class.difference(&Class::here(&[]), None), None);
    }

    #[test]
    fn waiting_for_a_limit_counts_in_cpus() {
        let second = 1_000_000_000;
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        close(throttled_cpus((1000, 0), (2000, 3 * second)), 3.0);
        close(throttled_cpus((1000, 0), (3000, second)), 0.5);
        // The counter was read twice in a millisecond, or the group was made anew.
        close(throttled_cpus((1000, 0), (1000, second)), 0.0);
        close(throttled_cpus((1000, second), (2000, 0)), 0.0);
    }
}
