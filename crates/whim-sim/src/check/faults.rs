//! Nodes die, come back, and are cut off from each other, at moments by chance, while programs run, grow
//! and move. What has to hold is looked at where it happens, in `cluster`.

use super::{Figure, Found, Limit};
use crate::cluster::{self, Fault, FaultKind, Setting, micros};
use crate::scenario::{self, Scenario};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;

/// Of simulated time; the last fault is over before that.
const SECONDS: f64 = 400.0;
const TROUBLE: f64 = 300.0;

#[must_use]
pub(super) fn one(seed: u64) -> Found {
    let mut chance = Pcg64Mcg::seed_from_u64(seed ^ 0xfa17);
    let nodes = chance.random_range(3..=8);
    let mut setting = Setting::new(seed, scenario::equal(nodes), SECONDS);
    setting.lease = Duration::from_secs(chance.random_range(2..=30));
    let scenario = match chance.random_range(0..3u32) {
        0 => Scenario::Lifetimes(0.3 + 0.8 * chance.random::<f64>()),
        1 => Scenario::Growers,
        _ => Scenario::ScatteredSquares(10.0),
    };
    scenario::fill(&mut setting, scenario);
    setting.faults = faults(&mut chance, nodes);
    for fault in &mut setting.faults {
        fault.at += scenario::UP;
    }
    let programs = setting.programs.len();
    let outcome = cluster::run(setting);
    let mut broken = outcome.broken.clone();
    let counted = outcome.done + outcome.lost_host + outcome.lost_home + outcome.left;
    if counted != programs {
        broken.push(format!(
            "Of {programs} programs {counted} are accounted for"
        ));
    }
    let lost = (outcome.lost_host + outcome.lost_home) as f64 / programs.max(1) as f64;
    let figures = vec![
        Figure::new(
            "part of the programs that was lost",
            lost,
            Limit::AtMost(1.0),
        ),
        Figure::new("moves", outcome.moves.len() as f64, Limit::AtLeast(0.0)),
        Figure::new(
            "moves that failed on their way",
            outcome.failed as f64,
            Limit::AtLeast(0.0),
        ),
    ];
    (figures, broken)
}

fn faults(chance: &mut Pcg64Mcg, nodes: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    for _ in 0..chance.random_range(1..=12u32) {
        let at = TROUBLE * chance.random::<f64>();
        let lasts = (60.0 * chance.random::<f64>().powi(2)).min(TROUBLE - at);
        let (one, other) = (chance.random_range(0..nodes), chance.random_range(0..nodes));
        let mut both = |begins, ends| {
            faults.push(Fault {
                at: micros(at),
                kind: begins,
            });
            faults.push(Fault {
                at: micros(at + lasts),
                kind: ends,
            });
        };
        match chance.random_range(0..3u32) {
            0 => both(FaultKind::Die(one), FaultKind::Return(one)),
            1 => both(FaultKind::Cut(one, other), FaultKind::Heal(one, other)),
            _ => {
                for other in (0..nodes).filter(|other| *other != one) {
                    both(FaultKind::Cut(one, other), FaultKind::Heal(one, other));
                }
            }
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}
