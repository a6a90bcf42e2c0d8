//! Hosts that reach for other processes of their guest's user by calls that home makes for them.
//! The supervisor is the program itself (that of `WHIM_BIN_DIR`, if it names one); the host is this test.
#![forbid(unsafe_code)]

#[path = "support/host.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod host;

use host::{BUFFER, Program, World, away};
use std::time::Duration;
use whim_attempts::{Attempt, Party};

const LEASE: Duration = Duration::from_secs(30);

fn tries(what: &str) -> Attempt {
    Attempt::new(
        Party::LyingHost,
        format!("at a process beside its guest: {what}"),
    )
}

/// Whether home has sent a result that is of use to the host.
fn gained(result: Option<i64>) -> bool {
    result.is_some_and(|result| result >= 0)
}

#[test]
fn the_memory_of_another_process_is_not_opened_for_a_host() {
    let other = Program::start();
    let attempt = tries("open its memory for writing");
    let (_program, _home, mut host) = away(&World::new(Some(LEASE)));
    let name = format!("/proc/{}/mem\0", other.pid());
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let writing = u64::from(libc::O_RDWR.cast_unsigned());
    let args = [here, BUFFER, writing, 0, 0, 0];
    let result = host.ask(libc::SYS_openat, args, name.as_bytes());
    assert!(!gained(result), "The host has it open: {result:?}");
    attempt.failed("home tells no result, and calls the guest home");
}

#[test]
fn a_descriptor_of_another_process_is_not_taken_for_a_host() {
    let other = Program::start();
    let attempt = tries("take a descriptor of it");
    let (_program, _home, mut host) = away(&World::new(Some(LEASE)));
    let pid = u64::from(other.pid().cast_unsigned());
    let opened = host.ask(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0], &[]);
    let pidfd = opened.filter(|pidfd| *pidfd >= 0);
    let taken = pidfd.and_then(|pidfd| {
        let args = [pidfd.cast_unsigned(), 1, 0, 0, 0, 0];
        host.ask(libc::SYS_pidfd_getfd, args, &[])
    });
    assert!(!gained(taken), "The host has its output: {taken:?}");
    attempt.failed("home does not make that call");
}
