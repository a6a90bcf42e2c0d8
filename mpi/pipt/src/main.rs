//! `pipt`: the command.

#![forbid(unsafe_code)]

mod rank;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pipt::command::{self, Asked, Work};
use pipt::input::{File, Wanted};
use pipt::{experiment, manual, show, verify, work};
use serde_json::json;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Done; refused or failed, with a sentence on standard error; wrong use.
const FAILED: u8 = 1;
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|word| word == rank::WATCH)
    {
        rank::watch();
        return ExitCode::SUCCESS;
    }
    let matches = command::command().get_matches();
    let asked = match command::asked(&matches) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error, WRONG_USE),
    };
    let done = match asked {
        Asked::List { routine, json } => list(routine.as_deref(), json),
        Asked::Info { files, json } => info(&files, json),
        Asked::Plan(work) => plan(&work),
        Asked::Run(work) => return run(&work),
        Asked::Verify(asked) => return verified(&asked),
        Asked::Experiment(asked) => return repeated(&asked),
        Asked::Completions(shell) => Ok(manual::completions(shell)),
        Asked::Man(directory) => man(&directory),
    };
    match done {
        Ok(text) => say(&text),
        Err(error) => refuse(&error, FAILED),
    }
}

/// Prints; who does not read to the end has seen enough.
fn say(text: &str) -> ExitCode {
    let _closed = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn refuse(error: &dyn Display, code: u8) -> ExitCode {
    eprintln!("pipt: {error}");
    ExitCode::from(code)
}

fn lines(values: impl IntoIterator<Item = serde_json::Value>) -> String {
    values
        .into_iter()
        .map(|value| format!("{value}\n"))
        .collect()
}

fn list(routine: Option<&str>, json: bool) -> Result<String, String> {
    let text = show::list(routine)?;
    Ok(match json {
        true => lines(show::list_json(routine)),
        false => text,
    })
}

fn info(files: &[PathBuf], json: bool) -> Result<String, String> {
    let mut text = String::new();
    for path in files {
        let name = path.display().to_string();
        let file = File::open(&name, &Wanted::default()).map_err(|error| error.to_string())?;
        text += &match json {
            true => lines([show::info_json(&name, &file)]),
            false => show::info(&name, &file),
        };
    }
    Ok(text)
}

fn plan(work: &Work) -> Result<String, String> {
    let planned = work::plan(work).map_err(|error| error.to_string())?;
    Ok(match work.how.json {
        true => lines(planned.iter().map(work::Planned::json)),
        false => planned
            .iter()
            .map(|planned| format!("{planned}\n"))
            .collect(),
    })
}

/// Does a job, as one of several ranks where a launcher has started this.
fn run(work: &Work) -> ExitCode {
    let rank = match rank::Rank::begin() {
        Ok(rank) => rank,
        Err(error) => return refuse(&error, FAILED),
    };
    let is_silent = !rank.speaks();
    let bar = progress(work.how.quiet || work.how.json || is_silent);
    let percent = Percent::new(work.how.percent && !is_silent);
    let done = work::run(work, rank.ranks(), &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
        percent.show(done, all);
    });
    bar.finish_and_clear();
    let code = match done {
        Ok(_) if is_silent => ExitCode::SUCCESS,
        Ok(written) => say(&said(work, &written)),
        // The rank where it went wrong says it.
        Err(error) if error.is_elsewhere() => ExitCode::from(FAILED),
        Err(error) => refuse(&error, FAILED),
    };
    // It waits for the other ranks, so what is to be said is said before.
    rank.end();
    code
}

fn said(work: &Work, written: &[work::Written]) -> String {
    match work.how.json {
        true => lines(written.iter().map(work::Written::json)),
        false => written
            .iter()
            .map(|one| {
                let of_ranks = match one.ranks {
                    1 => String::new(),
                    ranks => format!(", {ranks} ranks"),
                };
                format!(
                    "{}: {} bands, {} bytes, {:.1} s{of_ranks}\n",
                    one.path.display(),
                    one.bands,
                    one.bytes,
                    one.seconds
                )
            })
            .collect(),
    }
}

/// How much is done, as lines of standard error.
struct Percent {
    is_wanted: bool,
    last: AtomicU64,
}

impl Percent {
    fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            last: AtomicU64::new(0),
        }
    }

    /// Prints a number that is larger than the last one.
    fn show(&self, done: u64, all: u64) {
        let percent = (u128::from(done) * 100).checked_div(u128::from(all));
        let percent = percent.and_then(|percent| u64::try_from(percent).ok());
        if let (true, Some(percent)) = (self.is_wanted, percent)
            && self.last.fetch_max(percent, Ordering::Relaxed) < percent
        {
            // Who does not read it has no need of it.
            let _closed = writeln!(std::io::stderr().lock(), "{percent} %");
        }
    }
}

/// Shown on a terminal alone.
fn progress(hidden: bool) -> ProgressBar {
    let target = match hidden || !std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let style = ProgressStyle::with_template("{wide_bar} {percent} %  {elapsed} of about {eta}");
    let bar = ProgressBar::with_draw_target(Some(0), target);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn man(directory: &Path) -> Result<String, String> {
    let written = manual::write(directory);
    let failed = |error| format!("{} cannot be written into: {error}", directory.display());
    written.map(|()| String::new()).map_err(failed)
}

fn verified(asked: &command::Verify) -> ExitCode {
    match verify::verify(asked) {
        Ok(found) => {
            let text = match asked.json {
                true => lines([json!(found.json())]),
                false => found.to_string(),
            };
            say(&text);
            ExitCode::from(if found.is_equal() { 0 } else { FAILED })
        }
        Err(error) => refuse(&error, FAILED),
    }
}

fn repeated(asked: &experiment::Livecd) -> ExitCode {
    let outcome = match experiment::run(asked, &|what| eprintln!("{what}")) {
        Ok(outcome) => outcome,
        Err(error) => return refuse(&error, FAILED),
    };
    say(&format!("{}\n", asked.report.join("report.md").display()));
    let failed = outcome.failed();
    for what in &failed {
        eprintln!("pipt: {what}");
    }
    ExitCode::from(if failed.is_empty() { 0 } else { FAILED })
}
