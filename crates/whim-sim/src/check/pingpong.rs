//! No ping-pong: programs that go on for ever, and nothing new, in the lab's four nodes and in four equal
//! ones.
//!
//! "At most one balancer move per minute" is read as: in any minute of the whole cluster where all programs
//! have one home, whose balancer alone decides; in the mean where each node decides for its own.

use super::{Figure, Found, Limit, settled};
use crate::cluster::{self, Outcome, Setting};
use crate::scenario::{self, Scenario};
use whim_journey::cause::Cause;

const SCENARIOS: [(Scenario, bool); 6] = [
    (Scenario::Crowd, true),
    (Scenario::Squares(1.0), true),
    (Scenario::Squares(10.0), true),
    (Scenario::Squares(60.0), true),
    (Scenario::Scattered, false),
    (Scenario::ScatteredSquares(10.0), false),
];

/// All scenarios with one seed; odd ones in the lab, even ones in equal nodes.
#[must_use]
pub(super) fn one(seed: u64, hours: f64) -> Found {
    let (mut figures, mut broken) = (Vec::new(), Vec::new());
    for (scenario, one_home) in SCENARIOS {
        let is_lab = seed % 2 == 1;
        let machines = match is_lab {
            true => scenario::lab(),
            false => scenario::equal(4),
        };
        let mut setting = Setting::new(seed, machines, hours * 3600.0);
        scenario::fill(&mut setting, scenario);
        let settled = settled(&setting);
        let outcome = cluster::run(setting);
        figures.extend(few(scenario, one_home, &outcome, settled));
        let hogs = matches!(scenario, Scenario::Crowd | Scenario::Scattered);
        if hogs && !is_lab {
            let what = format!("{scenario}: least progress over most");
            figures.push(Figure::new(what, outcome.fairness(), Limit::AtLeast(0.45)));
        }
        broken.extend(outcome.broken);
    }
    (figures, broken)
}

fn few(scenario: Scenario, one_home: bool, outcome: &Outcome, settled: f64) -> Vec<Figure> {
    let most = |what, value, limit| {
        Figure::new(format!("{scenario}: {what}"), value, Limit::AtMost(limit))
    };
    let rate = match one_home {
        true => {
            let value = outcome.most_within(Cause::Load, 60.0, settled) as f64;
            most("moves for load in any minute", value, 1.0)
        }
        false => {
            let value = outcome.per_minute(Cause::Load, settled);
            most("moves for load a minute, in the mean", value, 1.0)
        }
    };
    let of_one = outcome.most_of_one(&[Cause::Load]) as f64;
    let others = [Cause::Calls, Cause::Terminal].map(|cause| outcome.most_of_one(&[cause]));
    let others = others.into_iter().max().unwrap_or(0) as f64;
    vec![
        rate,
        most("moves for load of one program in any hour", of_one, 6.0),
        most(
            "moves for its calls of one program in any hour",
            others,
            12.0,
        ),
    ]
}
