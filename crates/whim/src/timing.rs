//! `whim run --time`: what a program took, at home and away.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant, UNIX_EPOCH};
use whim_control::client::{Client, ControlError};
use whim_control::protocol::{Answer, Request};
use whim_model::CpuTime;

use crate::output;
use crate::run::FAILED;

/// Runs the program as a child, as time(1) does, and says on standard error what it has used.
pub(crate) fn run(connect: &dyn Fn() -> Result<Client, ControlError>) -> ExitCode {
    let seconds = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let name = format!("{}-{seconds}", std::process::id());
    let begun = Instant::now();
    let status = match child(&name) {
        Ok(status) => status,
        Err(error) => {
            output::aside(&format!("whim run: The program cannot be started: {error}"));
            return ExitCode::from(FAILED);
        }
    };
    let took = begun.elapsed();
    let mut away = (CpuTime::default(), 0);
    let asked = connect().and_then(|mut client| {
        client.ask(&Request::CpuAway { run: name }, |answer| {
            if let Answer::CpuAway { time, moves } = answer {
                away = (time, moves);
            }
        })
    });
    if let Err(error) = asked {
        output::aside(&format!(
            "whim run: What it has used away is not known: {error}"
        ));
    }
    say(took, away);
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(FAILED),
    )
}

/// The same command without `--time`.
fn child(name: &str) -> std::io::Result<ExitStatus> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The first one is ours: options come before the program.
    if let Some(option) = words.iter().position(|word| word == "--time") {
        words[option] = format!("--run-name={name}").into();
    }
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(words).spawn()?;
    // Keys that end the program are for the program; it has these signals as they were.
    whim_sys::startup::ignore_keys();
    child.wait()
}

fn say(took: Duration, (away, moves): (CpuTime, u32)) {
    let home = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let at_home = |time: Option<TimeVal>| {
        let micros = time.map_or(0, |time| time.tv_sec() * 1_000_000 + time.tv_usec());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    let line = |name: &str, home: Duration, away_ns: u64| {
        let away = Duration::from_nanos(away_ns);
        let (sum, away) = ((home + away).as_secs_f64(), away.as_secs_f64());
        output::aside(&format!("{name} {sum:.2} s, of it {away:.2} s away"));
    };
    output::aside(&format!("real {:.2} s", took.as_secs_f64()));
    line(
        "user",
        at_home(home.map(|usage| usage.user_time())),
        away.user_ns,
    );
    line(
        "sys",
        at_home(home.map(|usage| usage.system_time())),
        away.system_ns,
    );
    output::aside(&format!("moves {moves}"));
}
