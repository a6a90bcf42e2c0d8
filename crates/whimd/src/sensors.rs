//! Load, memory and class of this node.

use serde::{Deserialize, Serialize};
use std::fs;

use crate::cgroup;
use crate::class::Class;
use crate::processes;

/// What a node tells of itself in every heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub load: f64,
    pub cpus: f64,
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    pub guests: u32,
    pub draining: bool,
    pub class: Class,
}

/// Weight of a new sample: about five seconds of memory at one sample a second.
const SMOOTHING: f64 = 0.2;

/// Sensors with their memory.
#[derive(Debug)]
pub struct Sensors {
    /// In a pid namespace of our own, as in a lab: /proc/loadavg would speak of the whole machine.
    own_namespace: bool,
    load: Option<f64>,
    class: Class,
}

impl Sensors {
    /// `class`: of this node.
    #[must_use]
    pub fn new(class: Class) -> Self {
        // Inode of the first pid namespace, fixed in the kernel (PROC_PID_INIT_INO).
        let first = "pid:[4026531836]";
        let ours = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let own_namespace = ours.as_os_str() != first;
        Self {
            own_namespace,
            load: None,
            class,
        }
    }

    /// Looks at the run queue; to be called once a second.
    pub fn sample(&mut self) {
        let running = if self.own_namespace {
            running_in_namespace()
        } else {
            running_on_machine().unwrap_or(0.0)
        };
        self.load = Some(match self.load {
            Some(load) => load + SMOOTHING * (running - load),
            None => running,
        });
    }

    /// What this node tells of itself; guests and draining are for the caller to fill in.
    #[must_use]
    pub fn report(&self) -> Report {
        let (memory_total_bytes, memory_available_bytes) = memory();
        Report {
            load: self.load.unwrap_or(0.0),
            cpus: cpus(),
            memory_total_bytes,
            memory_available_bytes,
            guests: 0,
            draining: false,
            class: self.class.clone(),
        }
    }

    #[must_use]
    pub fn class(&self) -> &Class {
        &self.class
    }
}

fn running_on_machine() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let running: f64 = text
        .split_whitespace()
        .nth(3)?
        .split('/')
        .next()?
        .parse()
        .ok()?;
    // The one that reads is running too.
    Some((running - 1.0).max(0.0))
}

fn running_in_namespace() -> f64 {
    let mut running = 0u32;
    for stat in processes::all().values() {
        if stat.threads == 1 {
            running += u32::from(stat.state == 'R');
            continue;
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", stat.pid))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let state = text
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            running += u32::from(state == Some('R'));
        }
    }
    // The thread that counts is running too.
    f64::from(running.saturating_sub(1))
}

fn cpus() -> f64 {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let online = f64::from(u32::try_from(online).unwrap_or(1));
    cgroup::cpu_limit().map_or(online, |limit| limit.min(online))
}

/// Total and available memory of this node, in bytes, within the limits of its group.
#[must_use]
pub fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
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
        let mut sensors = Sensors::new(Class::here(&[]));
        sensors.sample();
        let report = sensors.report();
        assert!(report.cpus > 0.0 && report.load >= 0.0);
        assert!(report.memory_total_bytes >= report.memory_available_bytes);
        assert!(report.memory_available_bytes > 0);
        assert_eq!(report.class.difference(&Class::here(&[]), None), None);
    }
}
