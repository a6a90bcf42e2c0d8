//! `fair = true`: one program more than there are nodes, all from one home. Turns take two minutes each: it
//! is after some hours that all have got the same.

use super::{Figure, Found, Limit};
use crate::cluster::{self, Setting, seconds};
use crate::scenario::{self, Scenario};
use whim_balance::pace::Cause;

/// Time in which programs find their places, after the last one has begun.
const SETTLES: f64 = 30.0;

#[must_use]
pub fn one(seed: u64, hours: f64) -> Found {
    let mut setting = Setting::new(seed, scenario::equal(4), hours * 3600.0);
    setting.habits.fair = true;
    scenario::fill(&mut setting, Scenario::Crowd);
    let begun = setting.programs.last().map_or(0.0, |p| seconds(p.arrives));
    let outcome = cluster::run(setting);
    let moves = outcome.most_of_one(&[Cause::Turn, Cause::Load]);
    let figure = |what: &str, value, limit| Figure {
        what: what.into(),
        value,
        limit,
    };
    let figures = vec![
        figure(
            "least progress over most",
            outcome.fairness(),
            Limit::AtLeast(0.85),
        ),
        figure(
            "turns in any minute",
            outcome.most_within(Cause::Turn, 60.0, begun + SETTLES) as f64,
            Limit::AtMost(1.0),
        ),
        figure(
            "moves of one program in any hour",
            moves as f64,
            Limit::AtMost(6.0),
        ),
    ];
    (figures, outcome.broken)
}
