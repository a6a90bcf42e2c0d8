//! 16 programs of 10 CPU seconds on the lab's first node: how long they take, against all of its nodes
//! doing as much as they can from the first moment on.

use super::{Figure, Found, Limit};
use crate::cluster::{self, Setting};
use crate::scenario::{self, Scenario};

#[must_use]
pub(super) fn one(seed: u64) -> Found {
    let (mut figures, mut broken) = (Vec::new(), Vec::new());
    for (scenario, limit) in [(Scenario::Hogs, 1.15), (Scenario::HeavyHogs, 1.3)] {
        let machines = scenario::lab();
        let rates: f64 = machines.iter().map(|machine| machine.cores).sum();
        let mut setting = Setting::new(seed, machines, 3600.0);
        scenario::fill(&mut setting, scenario);
        let ideal = setting.programs.len() as f64 * 10.0 / rates;
        let outcome = cluster::run(setting);
        let done = outcome.left == 0;
        let part = if done {
            outcome.makespan / ideal
        } else {
            f64::MAX
        };
        let what = format!("{scenario}: makespan over the ideal");
        figures.push(Figure::new(what, part, Limit::AtMost(limit)));
        let (what, moves) = (
            format!("{scenario}: moves of one program"),
            outcome.most_moves(),
        );
        figures.push(Figure::new(what, moves as f64, Limit::AtMost(18.0)));
        broken.extend(outcome.broken);
    }
    (figures, broken)
}
