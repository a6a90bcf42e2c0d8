//! Memory: three eaters, and programs that grow by chance, in nodes of 2 GiB.

use super::{Figure, Found, Limit};
use crate::cluster::{self, Setting};
use crate::scenario::{self, Scenario};
use whim_journey::cause::Cause;

/// One case by chance, and the eaters.
#[must_use]
pub(super) fn one(seed: u64) -> Found {
    let nodes = 2 + usize::try_from(seed % 6).unwrap_or(0);
    let (mut figures, mut broken) = (Vec::new(), Vec::new());
    let cases = [
        (Scenario::Eaters, scenario::lab(), 0.95),
        (Scenario::Growers, scenario::equal(nodes), 1.0),
        // Some node may run out of it; that no move overfills one is looked at in every run.
        (Scenario::Tight, scenario::equal(nodes), f64::INFINITY),
    ];
    for (scenario, machines, limit) in cases {
        let mut setting = Setting::new(seed, machines, 600.0);
        scenario::fill(&mut setting, scenario);
        let programs = setting.programs.len().max(1) as f64;
        let outcome = cluster::run(setting);
        let mut at_most = |what: &str, value, limit| {
            let what = format!("{scenario}: {what}");
            figures.push(Figure::new(what, value, Limit::AtMost(limit)));
        };
        let peak = outcome.peaks.iter().copied().fold(0.0, f64::max);
        at_most("part of its memory that a node had in use", peak, limit);
        let ushered = outcome.moves.iter();
        let ushered = ushered.filter(|moved| moved.cause == Cause::Memory).count();
        let ushered = ushered as f64 / programs;
        at_most("moves for memory, of each program", ushered, 10.0);
        let crowded = if scenario == Scenario::Tight {
            2.0
        } else {
            0.0
        };
        let found_none = outcome.crowded as f64;
        at_most("moves that found no room any more", found_none, crowded);
        broken.extend(outcome.broken);
    }
    (figures, broken)
}
