//! Real programs that move while they run.

mod languages;
mod ours;
mod shells;
mod tools;

use whim_system_tests::program::Program;
use whim_system_tests::{Case, Result};

pub fn cases() -> Result<Vec<Case>> {
    let groups: &[&'static [Program]] = &[
        shells::PROGRAMS,
        languages::PROGRAMS,
        tools::PROGRAMS,
        ours::PROGRAMS,
    ];
    let mut cases = Vec::new();
    for program in groups.iter().copied().flatten() {
        cases.extend(program.cases()?);
    }
    Ok(cases)
}
