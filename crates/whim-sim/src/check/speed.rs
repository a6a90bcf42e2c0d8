//! How long it takes to simulate large clusters for ten minutes, at seven tenths of their CPU: in CPU time,
//! which is what it would take on a machine that does nothing else.

use super::{Figure, Found, Limit};
use crate::cluster::{self, Setting};
use crate::scenario::{self, Scenario};
use std::fs;

const SIZES: [(usize, f64); 2] = [(1_000, 30.0), (10_000, 300.0)];

#[must_use]
pub(super) fn one(seed: u64, most: usize) -> Found {
    let (mut figures, mut broken) = (Vec::new(), Vec::new());
    for (nodes, limit) in SIZES.into_iter().filter(|(nodes, _)| *nodes <= most) {
        let mut setting = Setting::new(seed, scenario::equal(nodes), 600.0);
        scenario::fill(&mut setting, Scenario::Lifetimes(0.7));
        let begun = used();
        let outcome = cluster::run(setting);
        let what = format!("{nodes} nodes for 600 s: seconds of CPU time");
        figures.push(Figure::new(what, used() - begun, Limit::AtMost(limit)));
        broken.extend(outcome.broken);
    }
    (figures, broken)
}

/// CPU time that this thread has had, in seconds.
fn used() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}
