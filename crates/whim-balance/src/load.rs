//! How busy a node is, and a process: MOSIX's pair of measures.
//!
//! A load of 1 is one process that could run all the time. Two averages are kept of it, and they differ
//! on purpose: a node believes itself less busy than it tells others. One that becomes busy for a
//! moment neither sends its programs away at once nor attracts others, which damps oscillation.
//!
//! Source: `mosix_probe.c` of Kerrighed, whose weights are MOSIX's ("values taken from MOSIX").

use serde::{Deserialize, Serialize};

/// Samples are taken this far apart.
pub const SAMPLE_MS: u64 = 1000;

/// Load of a node, from one sample a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    mean: f64,
    upper: f64,
}

impl Load {
    /// Takes a sample: how many processes could run, in the mean of the last second.
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

/// A rate of one process (CPU time used, calls, bytes), fading: what was long ago counts little.
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

/// How much of a count is kept at the end of each decay interval, for statistics of calls and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// For programs whose phases are long.
    Slow,
    /// For those that change all the time.
    Fast,
    /// Nothing is forgotten.
    Never,
}

impl Decay {
    /// The part that is kept: openMosix's `mosctl` has these numbers.
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
    fn a_steady_load_is_what_both_say() {
        let mut load = Load::default();
        (0..100).for_each(|_| load.sample(2.5));
        assert!((load.own() - 2.5).abs() < 1e-6 && (load.told() - 2.5).abs() < 1e-6);
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
