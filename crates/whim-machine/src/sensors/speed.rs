//! How fast a core of this node is, compared with those of other nodes.
//!
//! It is measured once, for two seconds of CPU time, when the node has been idle for a minute, and again when
//! the node has another CPU. Until then the node is assumed to be as fast as an ordinary core, and the speed is
//! marked as an estimate. What an administrator has configured (`cpu.speed`) wins.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::Duration;
use whim_sys::priority::{self, Priority};

/// Name of the file in the state directory.
pub const FILE: &str = "speed.json";
/// For how many samples, a second apart, the node has to be idle before a measurement.
pub const IDLE_LOOKS: u32 = 60;
/// Load per CPU up to which a node counts as idle.
pub const IDLE_LOAD: f64 = 0.2;
/// CPU time that a measurement takes.
const TAKES: Duration = Duration::from_secs(2);
/// Rounds of the benchmark that a core of speed 1 makes in a second, measured with the optimised build on a
/// Xeon in a virtual machine of 2026. Only the ratio between two nodes matters.
const ROUNDS_PER_SECOND: f64 = 150e6;
/// Words of the table: 256 KiB, more than a first-level cache holds, and less than a second-level cache.
const WORDS: usize = 32_768;
/// Rounds between two readings of the clock.
const BATCH: u32 = 1 << 20;

/// Speed of one core; 1 is an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    pub value: f64,
    /// It has not been measured yet.
    pub estimated: bool,
}

impl Default for Speed {
    fn default() -> Self {
        Self {
            value: 1.0,
            estimated: true,
        }
    }
}

/// A measured speed, and the CPU that was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    cpu: String,
    speed: f64,
}

/// The CPU's model name, which often contains the clock rate that it is sold with, and its stepping, as
/// /proc/cpuinfo has them.
#[must_use]
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map_or("", |(_, value)| value.trim())
    };
    format!("{} {}", field("model name"), field("stepping"))
}

/// The speed that an earlier daemon has measured, if this is the same CPU.
#[must_use]
pub fn noted(path: &Path, cpu: &str) -> Option<Speed> {
    let noted: Noted = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let usable = noted.cpu == cpu && noted.speed.is_finite() && noted.speed > 0.0;
    usable.then_some(Speed {
        value: noted.speed,
        estimated: false,
    })
}

/// The content of the file for the next daemon.
#[must_use]
pub fn note(cpu: &str, speed: f64) -> Vec<u8> {
    let noted = Noted {
        cpu: cpu.to_owned(),
        speed,
    };
    serde_json::to_vec(&noted).unwrap_or_default()
}

/// Measures the speed of a core by the CPU time of the calling thread, which lowers its own priority for that.
#[must_use]
pub fn measure() -> f64 {
    let polite = Priority {
        policy: 0,
        nice: 19,
    };
    // If this fails, the measurement is still right, only less polite.
    let _ = priority::set(nix::unistd::gettid().as_raw(), polite);
    let mut table: Vec<u64> = (0..WORDS as u64).collect();
    let (mut state, mut sum) = (0x9e37_79b9_7f4a_7c15, 0.0);
    let (begun, mut rounds) = (cpu_time(), 0.0);
    loop {
        for _ in 0..BATCH {
            round(&mut table, &mut state, &mut sum);
        }
        rounds += f64::from(BATCH);
        let took = cpu_time().saturating_sub(begun);
        if took >= TAKES {
            std::hint::black_box((table, state, sum));
            return rounds / took.as_secs_f64() / ROUNDS_PER_SECOND;
        }
    }
}

/// Does a little of everything: a multiplication, a load and a store somewhere in the table, a branch that
/// cannot be predicted, and floating point. Each round needs the result of the one before it.
fn round(table: &mut [u64], state: &mut u64, sum: &mut f64) {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    let place = usize::try_from(*state >> 49).unwrap_or(0) % WORDS;
    let word = &mut table[place];
    *word = word.wrapping_add(*state);
    if *word & 1 == 0 {
        *state ^= *word;
    }
    // Not mul_add: on a CPU without such an instruction it is a function of many instructions.
    *sum = *sum * 0.5 + f64::from((*word >> 40) as u32);
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Counts how long the node has been idle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle(u32);

impl Idle {
    /// To be called once a second; true once the node has been idle for a minute.
    pub fn sample(&mut self, load_per_cpu: f64) -> bool {
        self.0 = if load_per_cpu <= IDLE_LOAD {
            self.0 + 1
        } else {
            0
        };
        self.0 >= IDLE_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_counts_for_the_same_cpu_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        assert_eq!(noted(&path, "a"), None);
        fs::write(&path, note("a", 1.5)).expect("written");
        let speed = noted(&path, "a").expect("noted");
        assert!((speed.value - 1.5).abs() < 1e-12 && !speed.estimated);
        assert_eq!(noted(&path, "b"), None);
        fs::write(&path, note("a", 0.0)).expect("written");
        assert_eq!(noted(&path, "a"), None);
        fs::write(&path, "{}").expect("written");
        assert_eq!(noted(&path, "a"), None);
        assert!(!cpu().trim().is_empty());
    }

    #[test]
    fn a_minute_without_a_pause_is_idle() {
        let mut idle = Idle::default();
        assert!((0..IDLE_LOOKS - 1).all(|_| !idle.sample(0.0)));
        assert!(!idle.sample(0.5), "busy for a moment");
        assert!((0..IDLE_LOOKS - 1).all(|_| !idle.sample(0.1)));
        assert!(idle.sample(0.0));
    }

    #[test]
    fn two_measurements_agree() {
        let (one, other) = (measure(), measure());
        assert!(
            one > 0.0 && (one / other - 1.0).abs() < 0.5,
            "{one}, {other}"
        );
    }
}
