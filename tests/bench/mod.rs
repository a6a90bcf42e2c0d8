//! Measurements: each writes rows of `docs/benchmarks.md`, and fails when a goal is missed on a
//! machine that had nothing else to do.

mod balance;
mod calls;
mod figures;
mod freeze;
mod home;
mod idle;
mod load;
mod monitors;
mod overhead;
pub(crate) mod peer;
mod reactions;
mod speed;
mod start;
mod worker;

use whim_system_tests::Case;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("bench::balance", |_| balance::measure()),
        Case::new("bench::calls::one_cpu", |_| calls::one_cpu()),
        Case::new("bench::calls::two_cpus", |_| calls::two_cpus()),
        Case::new("bench::freeze", |_| freeze::measure()),
        Case::new("bench::home", |_| home::measure()),
        Case::new("bench::idle", |_| idle::measure()),
        Case::new("bench::monitors::page", |_| monitors::page()),
        Case::new("bench::monitors::top", |_| monitors::top()),
        Case::new("bench::overhead", |_| overhead::measure()),
        Case::new("bench::reactions", |_| reactions::measure()),
        Case::new("bench::speed", |_| speed::measure()),
        Case::new("bench::start", |_| start::measure()),
    ]
}
