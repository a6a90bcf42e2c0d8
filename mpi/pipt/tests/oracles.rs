//! Routines beside those of other programs, of Python's package index: `PIPT_PYTHON=python cargo test -p pipt --features
//! oracles`, with a Python that has what `tests/oracles/requirements.txt` names.

#![forbid(unsafe_code)]

use std::process::Command;

#[test]
fn routines_are_those_of_other_programs() {
    let python = std::env::var("PIPT_PYTHON").expect("PIPT_PYTHON names a Python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/run.py");
    let compared = Command::new(python)
        .args([script, env!("CARGO_BIN_EXE_pipt")])
        .status();
    assert!(compared.expect("it runs").success(), "see above");
}
