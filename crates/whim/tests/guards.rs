//! What tests of this directory start ends with them.
#![forbid(unsafe_code)]

mod support;

use std::process::{Command, Stdio};
use support::{Owned, PATIENCE, alone, place, until};

/// Names what a test is to do that is run by another one: to fail, or to be killed.
const END: &str = "WHIM_TEST_END";

/// Run by the next test alone: it ends badly, while a daemon and a program run.
#[test]
fn a_test_that_ends_badly() {
    let Ok(end) = std::env::var(END) else {
        return;
    };
    let place = place();
    let daemon = alone(&place);
    let mut command = daemon.whim(&["run", "--pin", "sh", "-c", "sleep 1000 & wait"]);
    let program = Owned::quiet(&mut command);
    until("both processes", || {
        (daemon.rows(&["ps", "--json"]).len() == 2).then_some(())
    });
    let group = program.0.id();
    println!("started {} {group}", daemon.process_id());
    if end == "killed" {
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).expect("raised");
    }
    panic!("as it was told");
}

/// The daemon of a test that failed, or a program of it, went on, and held the outputs open for those who read them.
#[test]
fn what_a_test_started_ends_with_it_however_that_ends() {
    // The directory of a test that is killed remains, below this one.
    let place = place();
    for end in ["failed", "killed"] {
        let own = std::env::current_exe().expect("this test");
        let test = ["--exact", "a_test_that_ends_badly", "--nocapture"];
        let mut command = Command::new(own);
        let child = command.args(test).env(END, end).env("TMPDIR", place.path());
        let child = child.stdin(Stdio::null());
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().expect("it runs");
        // Its outputs are ours alone when all that had them have ended.
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let output = ended.recv_timeout(2 * PATIENCE);
        let output = output.expect("nobody holds its outputs").expect("read");
        assert!(!output.status.success(), "{end}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, started) = said.split_once("started ").expect("what it started");
        for group in started.split_whitespace().take(2) {
            until("the end of its group", || (!lives(group)).then_some(()));
        }
    }
}

/// Whether a process of this group goes on; one that has ended, and nobody has waited for, does not.
fn lives(group: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let mut fields = stats.filter_map(|stat| {
        let (_, rest) = stat.rsplit_once(") ")?;
        let words: Vec<String> = rest.split(' ').take(3).map(str::to_owned).collect();
        Some(words)
    });
    fields.any(|words| words[2] == group && words[0] != "Z" && words[0] != "X")
}
