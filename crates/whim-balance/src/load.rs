//! How busy a node and a process are: MOSIX's pair of measures.
//!
//! A load of 1 is one process that could run all the time. Two averages of it are kept, which differ on
//! purpose: a node believes itself less busy than it tells others. So a node that becomes busy for a moment
//! neither sends its programs away at once nor attracts others, which damps oscillation.
//!
//! Source: `mosix_probe.c` of Kerrighed, whose weights are MOSIX's ("values taken from MOSIX").

use serde::{Deserialize, Serialize};

/// Load of a node, from one sample a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    mean: f64,
    upper: f64,
}

impl Load {
    /// Takes a sample: how many processes could run on average over the last second.
    pub fn sample(&mut self, runnable: f64) {
        let runnable = runnable.max(0.0);
        self.mean = if runnable > self.mean {
            (5.0 * self.mean + 3.0 * runnable) / 8.0
        } else {
            runnable
        };
        self.upper = if runnable >= self.upper {
            runnable
        } else {
            (7.0 * self.upper + runnable) / 8.0
        };
    }

    /// What the node believes of itself: it rises slowly and falls at once.
    #[must_use]
    pub fn own(&self) -> f64 {
        self.mean
    }

    /// What it tells others: it rises at once and falls slowly.
    #[must_use]
    pub fn told(&self) -> f64 {
        self.upper
    }
}

/// How many processes could run lately: the plain average of the last samples. Decisions use this one, because
/// they add what a node does not show yet themselves, and so have to know when the node will show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    samples: [f64; Recent::SAMPLES],
    taken: usize,
}

impl Recent {
    /// Samples that count, one a second.
    pub const SAMPLES: usize = 3;

    pub fn sample(&mut self, runnable: f64) {
        self.samples.rotate_left(1);
        self.samples[Self::SAMPLES - 1] = runnable.max(0.0);
        self.taken = (self.taken + 1).min(Self::SAMPLES);
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        let taken = u32::try_from(self.taken.max(1)).unwrap_or(1);
        self.samples.iter().sum::<f64>() / f64::from(taken)
    }
}

/// A fading rate of one process (CPU time used, calls, bytes): what was long ago counts little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand(f64);

impl Demand {
    /// Takes what was used in the last second, per second.
    pub fn sample(&mut self, used: f64) {
        self.0 = (5.0 * self.0 + 3.0 * used.max(0.0)) / 8.0;
    }

    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }
}

/// A rate that fades in the same way, but is right from its first sample on. An average that begins at 0 says
/// for seconds that a young program wants few CPUs: two programs were sent where there was room for one, and
/// then one of them was sent on. It also says that the program grows little: a node that young programs filled
/// was noticed too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptDemand {
    sum: Demand,
    /// What the sum would be, had each sample been 1.
    weight: Demand,
}

impl PromptDemand {
    /// Takes what was used in the last second, per second.
    pub fn sample(&mut self, used: f64) {
        self.sum.sample(used);
        self.weight.sample(1.0);
    }

    #[must_use]
    pub fn value(self) -> f64 {
        match self.weight.value() > 0.0 {
            true => self.sum.value() / self.weight.value(),
            false => 0.0,
        }
    }
}

/// How much of a count is kept at the end of each decay interval, for statistics of calls and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// For programs whose phases are long.
    Slow,
    /// For programs that change all the time.
    Fast,
    /// Nothing is forgotten.
    Never,
}

impl Decay {
    /// The part that is kept. The numbers are those of openMosix's `mosctl`.
    #[must_use]
    pub fn kept(self) -> f64 {
        match self {
            Self::Slow => 0.975,
            Self::Fast => 0.926,
            Self::Never => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_slow_to_feel_busy_and_slow_to_look_free() {
        let mut load = Load::default();
        load.sample(8.0);
        assert!((load.own() - 3.0).abs() < 1e-9 && (load.told() - 8.0).abs() < 1e-9);
        load.sample(0.0);
        assert!(load.own().abs() < 1e-9 && (load.told() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn lately_is_the_last_three_seconds() {
        let mut recent = Recent::default();
        recent.sample(4.0);
        assert!((recent.mean() - 4.0).abs() < 1e-9);
        for runnable in [1.0, 0.0, 2.0] {
            recent.sample(runnable);
        }
        assert!((recent.mean() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_steady_load_is_what_both_say() {
        let mut load = Load::default();
        (0..100).for_each(|_| load.sample(2.5));
        assert!((load.own() - 2.5).abs() < 1e-6 && (load.told() - 2.5).abs() < 1e-6);
    }

    #[test]
    fn what_is_wanted_is_known_from_the_first_sample_on() {
        let mut wanted = PromptDemand::default();
        assert!(wanted.value().abs() < 1e-9);
        for _ in 0..5 {
            wanted.sample(0.9);
            assert!((wanted.value() - 0.9).abs() < 1e-9);
        }
        (0..10).for_each(|_| wanted.sample(0.0));
        assert!(wanted.value() < 0.01);
    }

    #[test]
    fn what_was_long_ago_counts_little() {
        let mut demand = Demand::default();
        (0..20).for_each(|_| demand.sample(1.0));
        assert!(demand.value() > 0.99);
        (0..10).for_each(|_| demand.sample(0.0));
        assert!(demand.value() < 0.01);
    }
}
