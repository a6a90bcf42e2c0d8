//! The tracer dies at every point at which it can; the program goes on, unharmed.
//!
//! The tracer is this test binary, started once more with [`TRACED`] set.
#![forbid(unsafe_code)]

mod guests;

use guests::{Random, compile, seed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use whim_image::capture::{CaptureError, CaptureOptions};
use whim_image::freeze::{FreezeError, FreezeLimits, freeze};
use whim_image::reserve;
use whim_sys::ptrace::{Options, Polled, Running, Stop, Waited};
use whim_sys::{crash, stub};

/// Environment variable with the pid that the tracer freezes.
const TRACED: &str = "WHIM_TRACED";
/// Environment variable with the pid whose next SIGTRAP a tracer looks at.
const LOOKED_AT: &str = "WHIM_LOOKED_AT";
/// Environment variable with the patience of the stub, in milliseconds.
const PATIENCE: &str = "WHIM_PATIENCE";
/// Patience of the stub: long enough for a tracer on a loaded machine, short for the test.
const PATIENCE_MS: u64 = 100;
const RANDOM_KILLS: u32 = 60;
/// Points that are tried unless WHIM_FULL is set, which tries all (some minutes).
const POINTS_TRIED: u32 = 100;
/// Tries of something that a busy machine may refuse.
const ATTEMPTS: u32 = 10;

/// Not a test of its own: what the started tracer does.
#[test]
fn tracer() {
    let Some(pid) = std::env::var(TRACED)
        .ok()
        .and_then(|text| text.parse().ok())
    else {
        return;
    };
    let patience = std::env::var(PATIENCE)
        .ok()
        .and_then(|text| text.parse().ok());
    stub::set_patience_ms(patience.unwrap_or(PATIENCE_MS));
    crash::arm_from_environment();
    // However loaded the machine is.
    let limits = FreezeLimits {
        wait: Duration::from_secs(30),
        ..FreezeLimits::default()
    };
    let mut frozen = match freeze(pid, &limits) {
        Ok(frozen) => frozen,
        Err(error) => panic!("{error}"),
    };
    let entries = frozen.entries().expect("the mappings");
    let reserved = reserve::choose(entries).unwrap_or_default();
    let begins_in_guest = |number: u64| matches!(number, 34 | 35 | 128 | 130 | 202 | 230);
    let options = CaptureOptions {
        reserved,
        begins_in_guest: &begins_in_guest,
    };
    let captured = match frozen.capture(&options) {
        Ok(captured) => captured,
        // The machine did not let us run for longer than the short patience of this test.
        Err(CaptureError::Freeze(FreezeError::Escaped(_))) => return println!("escaped"),
        Err(error) => panic!("{error}"),
    };
    assert!(captured.image.threads.len() > 10);
    let held = frozen.release().expect("a release");
    assert!(held.is_empty());
    println!("passed {}", crash::passed());
}

/// Not a test of its own: looks at the program's next SIGTRAP, and ends.
#[test]
fn looker() {
    let Ok(pid) = std::env::var(LOOKED_AT) else {
        return;
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let mut threads: Vec<Running> = threads
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|tid| Running::seize(tid, Options::NONE).ok())
        .collect();
    loop {
        let mut still = Vec::with_capacity(threads.len());
        for thread in threads {
            match thread.poll_gently().expect("a look") {
                Polled::Still(thread) => still.push(thread),
                Polled::Event(Waited::Stopped(stopped)) => match stopped.stop() {
                    // The only one that the program counts.
                    Stop::Signal(libc::SIGTRAP) => return println!("seen"),
                    Stop::Signal(other) => still.push(stopped.resume(other).expect("resumed")),
                    _ => still.push(stopped.resume(0).expect("resumed")),
                },
                Polled::Event(_) => {}
            }
        }
        assert!(!still.is_empty(), "the program has ended");
        threads = still;
    }
}

fn start_tracer(pid: i32, crash_at: u32) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tracer", "--nocapture", "--test-threads=1"])
        .env(TRACED, pid.to_string())
        .env(crash::VARIABLE, crash_at.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a tracer")
}

struct Survivor {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Survivor {
    fn start() -> Self {
        let program = compile("survivor");
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that starts");
        let input = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut survivor = Self {
            child,
            input,
            lines,
        };
        assert_eq!(survivor.line(), "ready");
        survivor
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Whether every thread goes on, and no check has failed.
    fn check(&mut self) -> Result<(), String> {
        // It may have ended: then its last line says why.
        let _ended = self.input.write_all(b"?\n");
        match self.line() {
            line if line == "alive" => Ok(()),
            line => Err(line),
        }
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Points that one undisturbed run passes. A freeze may find the machine too busy and ask to be
/// tried again, which is no fault of the program's.
fn count_points(survivor: &mut Survivor) -> u32 {
    let mut said = String::new();
    for _ in 0..ATTEMPTS {
        let tracer = start_tracer(survivor.pid(), crash::COUNT_ONLY);
        let output = tracer.wait_with_output().expect("its end");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        survivor.check().expect("an undisturbed program");
        let number = text
            .split("passed ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        if let Some(count) = number.and_then(|number| number.parse().ok()) {
            return count;
        }
        said = text + &String::from_utf8_lossy(&output.stderr);
        assert!(is_busy(&said), "no count in {said}");
    }
    panic!("the machine was too busy each time: {said}");
}

/// Whether a tracer gave up because the machine was overloaded, and let the program go on.
fn is_busy(said: &str) -> bool {
    ["Busy", "escaped", "Escaped", "overloaded"]
        .iter()
        .any(|word| said.contains(word))
}

#[test]
fn the_program_survives_a_tracer_that_dies_at_any_point() {
    if std::env::var(TRACED).is_ok() {
        return;
    }
    let mut survivor = Survivor::start();
    // The threads stand elsewhere in each run, more so on a busy machine: as many points as each of some runs has.
    let counts: Vec<u32> = (0..3).map(|_| count_points(&mut survivor)).collect();
    println!("{counts:?} points");
    let points = counts.into_iter().min().expect("counted");
    assert!(points > 300, "{points}");
    let mut numbers: Vec<u32> = (1..=points).collect();
    let seed = seed();
    if std::env::var("WHIM_FULL").is_err() {
        let mut random = Random::new(seed);
        let tried = (0..POINTS_TRIED).map(|_| random.below(points.into()) + 1);
        numbers = tried
            .filter_map(|number| u32::try_from(number).ok())
            .collect();
    }
    let (mut deaths, mut busy) = (0, 0);
    for number in &numbers {
        let number = *number;
        let output = start_tracer(survivor.pid(), number)
            .wait_with_output()
            .expect("its end");
        let status = output.status;
        deaths += u32::from(status.signal() == Some(nix::libc::SIGKILL));
        if !status.success() && status.signal().is_none() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            if is_busy(&said) {
                survivor.check().expect("a program that was let go");
                busy += 1;
                continue;
            }
            panic!("seed {seed}, crash point {number}: the tracer was refused: {said}");
        }
        if let Err(line) = survivor.check() {
            panic!("seed {seed}, crash point {number} of {points}: {line}");
        }
    }
    println!("{deaths} deaths at {points} points");
    let tried = u32::try_from(numbers.len()).expect("a small number") - busy;
    assert!(deaths > tried * 9 / 10, "{deaths} of {tried}");
}

/// The kernel gives up a signal whose report is taken and whose thread nobody resumes.
#[test]
fn a_signal_outlives_the_tracer_that_saw_it() {
    if std::env::var(LOOKED_AT).is_ok() {
        return;
    }
    let mut survivor = Survivor::start();
    for round in 0..20 {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "looker", "--nocapture", "--test-threads=1"])
            .env(LOOKED_AT, survivor.pid().to_string())
            .output()
            .expect("a tracer");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("seen"), "{said}");
        if let Err(line) = survivor.check() {
            panic!("round {round}: {line}");
        }
    }
}

/// A tracer that is late finds threads that have gone on by themselves.
#[test]
fn threads_that_did_not_wait_are_left_alone() {
    if std::env::var(TRACED).is_ok() {
        return;
    }
    let mut survivor = Survivor::start();
    let mut escaped = 0;
    for round in 0..40 {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "tracer", "--nocapture", "--test-threads=1"])
            .env(TRACED, survivor.pid().to_string())
            .env(PATIENCE, (round % 2).to_string())
            .output()
            .expect("a tracer");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        escaped += u32::from(String::from_utf8_lossy(&output.stdout).contains("escaped"));
        if let Err(line) = survivor.check() {
            panic!("round {round}: {line}");
        }
    }
    assert!(escaped > 10, "{escaped}");
}

#[test]
fn the_program_survives_tracers_killed_at_random() {
    if std::env::var(TRACED).is_ok() {
        return;
    }
    let mut survivor = Survivor::start();
    let seed = seed();
    let mut random = Random::new(seed);
    let mut deaths = 0;
    for round in 0..RANDOM_KILLS {
        let mut tracer = start_tracer(survivor.pid(), 0);
        let pid = Pid::from_raw(survivor.pid());
        let end = Instant::now() + Duration::from_micros(2000 + random.below(40_000));
        while Instant::now() < end {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
            if round % 2 == 1 {
                // Job control, which nothing can block, joins in.
                kill(pid, Signal::SIGSTOP).expect("a signal");
                std::thread::sleep(Duration::from_micros(random.below(500)));
                kill(pid, Signal::SIGCONT).expect("a signal");
            }
        }
        tracer.kill().expect("a kill");
        deaths += u32::from(!tracer.wait().expect("its end").success());
        if let Err(line) = survivor.check() {
            panic!("seed {seed}, round {round}: {line}");
        }
    }
    println!("{deaths} of {RANDOM_KILLS} killed");
}
