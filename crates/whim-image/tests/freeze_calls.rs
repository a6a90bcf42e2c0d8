//! No call notices that its process was stopped: each kind of call is made in a loop by a real
//! program, which checks every answer, while it is frozen and let go at random moments.
#![forbid(unsafe_code)]

mod guests;

use guests::{Guest, Random};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use whim_image::capture::CaptureOptions;
use whim_image::freeze::{FreezeError, FreezeLimits, Frozen, freeze_again};
use whim_image::freeze_release::{Held, Progress};
use whim_image::reserve;
use whim_model::Syscall;
use whim_sys::freezer::Freezers;

/// Seconds for which each case runs.
const SECONDS: &str = "1.5";
/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(40);
/// Cases at the same time; more would only make each other late.
const WORKERS: usize = 3;

/// Lets held threads go on for `span`, being their clock.
fn tend(held: Vec<Held>, span: Duration) -> Vec<Held> {
    let end = Instant::now() + span;
    let mut held = held;
    loop {
        let mut still = Vec::new();
        for one in held {
            if let Progress::Held(one) = one.poll().expect("an event of a held thread") {
                still.push(one);
            }
        }
        held = still;
        let now = Instant::now();
        if now >= end {
            return held;
        }
        let nap = if held.is_empty() {
            end - now
        } else {
            Duration::from_micros(200)
        };
        std::thread::sleep(nap);
    }
}

fn disturb(frozen: &mut Frozen, random: &mut Random) {
    match random.below(4) {
        0 => {
            let tid = frozen.threads()[0].tid();
            let results = frozen
                .run(tid, &[Syscall::new(libc::SYS_getppid, &[])])
                .expect("an injected call");
            assert!(results[0] > 0);
        }
        1 => {
            let entries = frozen.entries().expect("the mappings");
            let reserved = reserve::choose(entries).unwrap_or_default();
            let begins_in_guest = |number: u64| matches!(number, 34 | 35 | 128 | 130 | 202 | 230);
            let options = CaptureOptions {
                reserved,
                begins_in_guest: &begins_in_guest,
            };
            frozen.capture(&options).expect("a capture");
        }
        _ => {}
    }
    std::thread::sleep(Duration::from_micros(random.below(1500)));
}

/// Freezes the guest at random moments until it ends; gives the number of freezes.
fn freeze_until_end(guest: &Guest, random: &mut Random) -> u32 {
    // However loaded the machine is: it must not be busy, because this thread stays its tracer.
    let limits = FreezeLimits {
        wait: Duration::from_secs(30),
        ..FreezeLimits::default()
    };
    let mut held = Vec::new();
    let mut freezes = 0;
    loop {
        held = tend(held, Duration::from_micros(random.below(9000)));
        let mut frozen = match freeze_again(guest.pid(), &limits, held, Freezers::of(guest.pid())) {
            Ok(frozen) => frozen,
            Err(FreezeError::Gone(_)) => return freezes,
            Err(error) => panic!("{error}"),
        };
        freezes += 1;
        disturb(&mut frozen, random);
        held = frozen.release().expect("a release");
    }
}

/// What the threads of a process do.
fn describe(pid: i32) -> String {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let mut text = String::new();
    for task in tasks.filter_map(Result::ok) {
        let path = task.path().display().to_string();
        let status = read(format!("{path}/status"));
        let wanted = ["State", "TracerPid", "SigPnd", "ShdPnd", "SigBlk", "SigCgt"];
        let lines = status
            .lines()
            .filter(|line| wanted.iter().any(|key| line.starts_with(key)));
        let lines: Vec<&str> = lines.collect();
        let (call, place) = (
            read(format!("{path}/syscall")),
            read(format!("{path}/wchan")),
        );
        text += &format!(
            "{path}: {} call {} in {place}\n",
            lines.join(" "),
            call.trim()
        );
    }
    text
}

/// Ends a guest that hangs, after saying where it and its tracers stand.
fn watch(case: &str, pid: i32, ended: &std::sync::mpsc::Receiver<()>) {
    use nix::sys::signal::{Signal, kill};
    if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let own = i32::try_from(std::process::id()).expect("a pid");
        println!(
            "{case} hangs:\n{}tracers:\n{}",
            describe(pid),
            describe(own)
        );
        // It may be ending at this moment.
        let _ended = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
    }
}

fn run_case(program: &std::path::Path, case: &str, seed: u64) -> Result<u32, String> {
    let mut guest = Guest::start(program, &[case, SECONDS]);
    if guest.line().as_deref() != Some("ready") {
        return Err(format!("{case} did not begin"));
    }
    let (ended, end) = std::sync::mpsc::channel();
    let pid = guest.pid();
    let freezes = std::thread::scope(|scope| {
        scope.spawn(move || watch(case, pid, &end));
        let freezes = freeze_until_end(&guest, &mut Random::new(seed));
        drop(ended);
        freezes
    });
    let mut report = Vec::new();
    while let Some(line) = guest.line() {
        report.push(line);
    }
    let status = guest.wait();
    match report
        .last()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .as_deref()
    {
        Some(["done", good, "0"])
            if status.is_none_or(|status| status.success()) && *good != "0" =>
        {
            Ok(freezes)
        }
        _ => Err(format!(
            "{case} ({freezes} freezes, {status:?}): {}",
            report.join("; ")
        )),
    }
}

#[test]
fn no_call_notices_a_stop() {
    let program = guests::compile("calls");
    let only = std::env::var("WHIM_CASES").ok();
    let list = guests::output(&program, &["list"]);
    let mut cases: Vec<&str> = list.lines().collect();
    cases.retain(|case| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|one| one == *case))
    });
    assert!(!cases.is_empty());
    let seed = guests::seed();
    let queue = Mutex::new(cases);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().expect("a queue").pop() else {
                        break;
                    };
                    // A thread of its own: it is the tracer, and ends with the case.
                    let outcome = std::thread::scope(|inner| {
                        inner.spawn(|| run_case(&program, case, seed)).join()
                    });
                    match outcome {
                        Ok(Ok(freezes)) => println!("{case}: {freezes} freezes"),
                        Ok(Err(failure)) => failures.lock().expect("a list").push(failure),
                        Err(_) => {
                            failures
                                .lock()
                                .expect("a list")
                                .push(format!("{case} panicked"));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("a list");
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n"));
}
