//! The system tests: one program, with a runner of its own.
//!
//! `cargo build --bins`, then `cargo test -p whim-system-tests` runs the quick ones;
//! words after `--` choose by name, `--exact NAME` runs any test, slow ones as well. What decides:
//!
//! - `WHIM_FULL=1` adds the slow ones, `WHIM_PART=k/n` takes every n-th;
//! - `WHIM_RUNS` and `WHIM_MOVES`: runs of each program in the full set, and moves that each has to
//!   complete;
//! - `WHIM_SEED` repeats the chances of a run: a test that fails prints the command;
//! - `WHIM_HISTORY=1` prints every move, `WHIM_KEEP=1` keeps the directories of programs;
//! - `WHIM_BIN_DIR` and `WHIM_TOOLCHAIN_DIR`: where the programs under test and fetched sources are.
#![forbid(unsafe_code)]

mod alone;
mod bad_input;
mod balancing;
mod behaviours;
#[path = "../bench/mod.rs"]
mod bench;
mod breaks;
mod browser;
mod clocks;
mod completions;
mod conformance;
mod containers;
mod costs;
mod counters;
mod crashes;
mod crowds;
mod cuts;
mod distribution;
mod documents;
mod documents_reader;
mod elevation;
mod escape;
mod exactness;
mod exhaustion;
mod faults;
mod files;
mod filters;
mod freezers;
mod handing;
mod history;
mod hostile;
mod identity;
mod jobs;
mod json;
mod kept;
mod kernels;
mod kinds;
mod labs;
mod leaks;
mod line;
mod losses;
mod ltp;
mod machines;
mod machines_users;
mod many;
mod matrix;
mod membership;
mod memory;
mod messages;
mod metrics;
mod monitors;
mod namespaces;
mod observed;
mod orders;
mod packages;
mod page;
mod places;
mod priorities;
mod programs;
mod removal;
mod rights;
mod schedules;
mod secrets;
mod selftests;
mod sensing;
mod signal_descriptors;
mod simulations;
mod slurm;
mod stay;
mod stays;
mod stops;
mod suites;
mod terminals;
mod threads;
mod unit;
mod unprivileged;
mod zdtm;

use std::process::ExitCode;

use whim_system_tests::{Case, Result, case};

fn main() -> ExitCode {
    if let Some(code) = bench::peer::entry() {
        return code;
    }
    match cases() {
        Ok(cases) => case::run(cases),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn cases() -> Result<Vec<Case>> {
    let mut cases = programs::cases()?;
    cases.extend(alone::cases());
    cases.extend(balancing::cases());
    cases.extend(behaviours::cases());
    cases.extend(clocks::cases());
    cases.extend(completions::cases());
    cases.extend(handing::cases());
    cases.extend(history::cases());
    cases.extend(metrics::cases());
    cases.extend(monitors::cases());
    cases.extend(identity::cases());
    cases.extend(jobs::cases());
    cases.extend(json::cases());
    cases.extend(labs::cases());
    cases.extend(page::cases());
    cases.extend(places::cases());
    cases.extend(browser::cases());
    cases.extend(conformance::cases()?);
    cases.extend(cuts::cases());
    cases.extend(filters::cases());
    cases.extend(stay::cases());
    cases.extend(stays::cases());
    cases.extend(stops::cases());
    cases.extend(bad_input::cases());
    cases.extend(losses::cases());
    cases.extend(ltp::cases());
    cases.extend(breaks::cases());
    cases.extend(many::cases());
    cases.extend(matrix::cases());
    cases.extend(schedules::cases());
    cases.extend(secrets::cases());
    cases.extend(selftests::cases());
    cases.extend(sensing::cases());
    cases.extend(signal_descriptors::cases());
    cases.extend(simulations::cases());
    cases.extend(membership::cases());
    cases.extend(memory::cases());
    cases.extend(messages::cases());
    cases.extend(namespaces::cases());
    cases.extend(observed::cases());
    cases.extend(orders::cases());
    cases.extend(priorities::cases());
    cases.extend(removal::cases());
    cases.extend(rights::cases());
    cases.extend(unit::cases());
    cases.extend(crashes::cases());
    cases.extend(crowds::cases());
    cases.extend(costs::cases());
    cases.extend(counters::cases());
    cases.extend(escape::cases());
    cases.extend(elevation::cases());
    cases.extend(exactness::cases()?);
    cases.extend(exhaustion::cases());
    cases.extend(faults::cases());
    cases.extend(files::cases());
    cases.extend(hostile::cases());
    cases.extend(freezers::cases());
    cases.extend(kept::cases());
    cases.extend(kernels::cases());
    cases.extend(kinds::cases());
    cases.extend(line::cases());
    cases.extend(leaks::cases());
    cases.extend(terminals::cases()?);
    cases.extend(threads::cases());
    cases.extend(unprivileged::cases()?);
    cases.extend(zdtm::cases());
    cases.extend(bench::cases());
    cases.extend(of_systems());
    Ok(cases)
}

/// Those on whole systems: containers that boot, emulated machines, and what is installed there.
fn of_systems() -> Vec<Case> {
    let mut cases = documents::cases();
    cases.extend(containers::cases());
    cases.extend(distribution::cases());
    cases.extend(machines::cases());
    cases.extend(machines_users::cases());
    cases.extend(packages::cases());
    cases.extend(slurm::cases());
    cases
}
