//! The system tests: one program.
#![forbid(unsafe_code)]

mod bad_input;
mod behaviours;
#[path = "../bench/mod.rs"]
mod bench;
mod costs;
mod escape;
mod losses;
mod programs;
mod stay;
mod terminals;

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
    cases.extend(behaviours::cases());
    cases.extend(stay::cases());
    cases.extend(bad_input::cases());
    cases.extend(losses::cases());
    cases.extend(costs::cases());
    cases.extend(escape::cases());
    cases.extend(terminals::cases()?);
    cases.extend(bench::cases());
    Ok(cases)
}
