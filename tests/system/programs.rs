//! Real programs that move while they run.

mod shells;

use whim_system_tests::program::Program;
use whim_system_tests::{Case, Result};

pub fn cases() -> Result<Vec<Case>> {
    let groups: &[&'static [Program]] = &[shells::PROGRAMS];
    let mut cases = Vec::new();
    for program in groups.iter().copied().flatten() {
        cases.extend(program.cases()?);
    }
    Ok(cases)
}
