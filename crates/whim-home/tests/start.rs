//! How a home supervisor says that it cannot begin.
#![forbid(unsafe_code)]

use std::process::{Command, Stdio};

#[test]
fn a_job_that_is_none_is_told_without_a_stack() {
    let output = Command::new(env!("CARGO_BIN_EXE_whim-home"))
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.starts_with("failed: The job is not understood"),
        "{told}"
    );
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("The job is not understood"), "{log}");
    assert!(!log.to_lowercase().contains("backtrace"), "{log}");
}
