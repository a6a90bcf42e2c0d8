//! `fair = true`: one program more than there are nodes, all from one home. Turns take two minutes each: it
//! is after some hours that all have got the same.

use super::{Figure, Found, Limit, settled};
use crate::cluster::{self, Setting};
use crate::scenario::{self, Scenario};
use whim_journey::cause::Cause;

#[must_use]
pub(super) fn one(seed: u64, hours: f64) -> Found {
    let mut setting = Setting::new(seed, scenario::equal(4), hours * 3600.0);
    setting.habits.fair = true;
    scenario::fill(&mut setting, Scenario::Crowd);
    let settled = settled(&setting);
    let outcome = cluster::run(setting);
    let moves = outcome.most_of_one(&[Cause::Turn, Cause::Load]);
    let figures = vec![
        Figure::new(
            "least progress over most",
            outcome.fairness(),
            Limit::AtLeast(0.85),
        ),
        Figure::new(
            "turns in any minute",
            outcome.most_within(Cause::Turn, 60.0, settled) as f64,
            Limit::AtMost(1.0),
        ),
        Figure::new(
            "moves of one program in any hour",
            moves as f64,
            Limit::AtMost(6.0),
        ),
    ];
    (figures, outcome.broken)
}
