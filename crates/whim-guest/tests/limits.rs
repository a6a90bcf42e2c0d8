//! What a guest supervisor needs of its daemon.
#![forbid(unsafe_code)]

use std::process::{Command, Stdio};

/// What a supervisor says that is given no job, under these limits of open files.
fn started_with(soft: u32, hard: u32) -> String {
    let limits = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\"");
    let ended = Command::new("sh")
        .args(["-c", &limits, env!("CARGO_BIN_EXE_whim-guest")])
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    assert!(!ended.status.success());
    String::from_utf8(ended.stdout).expect("text")
}

#[test]
fn too_few_files_are_refused_by_a_sentence() {
    let asks_for_its_job = "failed: The job is not understood";
    for soft in [128, 127] {
        let said = started_with(soft, 128);
        assert!(said.starts_with(asks_for_its_job), "{soft}: {said}");
    }
    let said = started_with(127, 127);
    assert_eq!(
        said.trim_end(),
        "failed: A guest's supervisor may open no more than 127 files there, and needs 128: raise \
         the limit of whimd (LimitNOFILE, or ulimit -n)"
    );
}
