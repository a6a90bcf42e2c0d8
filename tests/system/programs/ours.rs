//! Guests written for the tests, which check themselves all the time.

use whim_system_tests::program::{Launch, Program, Setup};
use whim_system_tests::{Result, guest};

pub(super) const PROGRAMS: &[Program] = &[
    Program::new("twenty_threads", 200, |s| compiled(s, "holders"))
        .moves(3, 100)
        .not_in_gate(),
    Program::new("thread_makers", 400, |s| compiled(s, "makers")).not_in_gate(),
    Program::new("forks", 1500, |s| compiled(s, "forks")),
    Program::new("serial_numbers", 4000, |s| compiled(s, "serial")).moves(15, 200),
    Program::new("clocks", 1200, |s| compiled(s, "clocks")).between_kernels(),
    Program::new("identity", 500, |s| compiled(s, "identity")),
];

fn compiled(setup: &Setup<'_>, name: &str) -> Result<Launch> {
    let program = guest::c(name)?.display().to_string();
    Ok(Launch::new([program, setup.size.to_string()]))
}
