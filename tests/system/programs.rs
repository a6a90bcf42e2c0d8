//! Real programs that move while they run.

mod languages;
mod ours;
mod shells;
mod tools;

use whim_system_tests::program::Program;
use whim_system_tests::{Case, Result};

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Program> {
    let groups: [&'static [Program]; 4] = [
        shells::PROGRAMS,
        languages::PROGRAMS,
        tools::PROGRAMS,
        ours::PROGRAMS,
    ];
    groups.into_iter().flatten()
}

pub(crate) fn cases() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for program in all() {
        cases.extend(program.cases()?);
    }
    Ok(cases)
}
