//! Development tasks, run as `cargo xtask TASK`.
#![forbid(unsafe_code)]

mod attempts;
mod bench;
mod checks;
mod conformance;
mod demo;
mod dist;
mod durations;
mod full;
mod fuzz;
mod lanes;
mod pictures;
mod process;
mod soundness;
mod stays;
mod suites;
mod system;
mod tally;
mod tidy;
mod traps;
mod units;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::full::Part;
use crate::suites::{Suite, Wish};
use crate::system::Selection;
use crate::tally::Tally;
use crate::workspace::Workspace;

const USAGE: &str = "\
Usage: cargo xtask TASK

  ci                 formatting, lints, unit and integration tests, dependencies, docs, tidy
  test               ci, then the quick system tests
  test-full [k/n]    all system tests, miri, memcheck, and each fuzz target for ten minutes; or
                     part k of n; what has passed is not run again
  parts N [--write]  how long each of N parts takes; --write first takes over into
                     tests/durations.txt what tests have taken here
  system [FILTER]    the system tests whose name contains FILTER
  conformance [--check]
                     writes docs/syscalls.md and docs/settings.md; with --check, only looks whether
                     they are as the tables and the tests say, and whether each forwarded call has
                     a test
  attempts [--count] [--write]
                     makes the attempts at breaking in or out that the tests declare, and lists how
                     each ended; --count counts them, --write writes docs/attempts.md
  traps [--write] [NAME...]
                     takes cures out of a copy of the sources, and looks whether the tests of
                     tests/traps.toml fail without; --write writes docs/traps.md
  ltp DIR [FILTER | --write]
                     the Linux Test Project's tests of system calls, built in DIR, at home and away;
                     --write writes docs/ltp.md
  zdtm DIR [FILTER | --write]
                     CRIU's static tests, built in DIR/test/zdtm/static, unmoved, away and back;
                     --write writes docs/zdtm.md
  selftests [FILTER | --write]
                     the kernel's own tests of the distribution's package of its source, unmoved,
                     away and moving; --write writes docs/selftests.md
  stays [--install] [--anew] [--write] [NAME...]
                     moves the programs of tests/stays.txt while they work, one after the other, and says
                     who moved, who stayed and why; what is known is kept in target/stays.jsonl, and only
                     what is not runs, unless it is named; --anew forgets all, --install gets packages by
                     apt, --write writes docs/what-stays.md
  pictures [--check] writes docs/pictures, from the policy's code and the simulator; with --check, only
                     looks whether they are as they would be written
  screenshots        runs the page's test in a real browser, and takes its screenshots into docs/pictures
  fuzz [TARGET...] [--seconds N] [--keep]
                     builds the fuzz targets and runs each for N seconds (600); --keep takes small
                     inputs that reach something new into fuzz/corpus
  miri               the tests that reach no kernel, below Miri
  memcheck           the tests of the crates that hold `unsafe`, with AddressSanitizer
  tidy               the checks of the sources alone
  demo               a program moves through a lab of three nodes and comes home
  bench [FILTER]     the measurements, and the tables of docs/benchmarks.md
  dist DIR           man pages and shell completions, into DIR
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one task; false means that it ran and that something failed.
fn run(words: &[&str]) -> Result<bool> {
    let workspace = Workspace::find()?;
    match words {
        ["ci"] => {
            let mut tally = Tally::default();
            checks::run_all(&workspace, &mut tally);
            tally.close(&workspace)
        }
        ["test"] => {
            let mut tally = Tally::default();
            checks::run_all(&workspace, &mut tally);
            system::run(&workspace, &Selection::Quick, &mut tally);
            tally.close(&workspace)
        }
        ["test-full"] => full::run(&workspace, Part::WHOLE),
        ["test-full", part] => full::run(&workspace, part.parse()?),
        ["parts", count] => full::plan(&workspace, parts(count)?, false),
        ["parts", count, "--write"] => full::plan(&workspace, parts(count)?, true),
        ["system"] => some(&workspace, String::new()),
        ["system", filter] => some(&workspace, (*filter).to_owned()),
        ["tidy"] => {
            let mut tally = Tally::default();
            checks::tidy(&workspace, &mut tally);
            tally.close(&workspace)
        }
        ["conformance"] => conformance::run(&workspace, false),
        ["conformance", "--check"] => conformance::run(&workspace, true),
        ["attempts", options @ ..] => attempts::run(&workspace, attempts_wish(options)?),
        ["traps", words @ ..] => traps::run(&workspace, words),
        ["ltp", directory, words @ ..] => suite(&workspace, &suites::LTP, directory, words),
        ["zdtm", directory, words @ ..] => suite(&workspace, &suites::ZDTM, directory, words),
        ["selftests", words @ ..] => suites::run_selftests(&workspace, Wish::parse(words)?),
        ["stays", words @ ..] => stays::run(&workspace, &stays::Wish::parse(words)?),
        ["pictures"] => pictures::run(&workspace, false),
        ["pictures", "--check"] => pictures::run(&workspace, true),
        ["screenshots"] => {
            let seen = some(&workspace, pictures::SCREENSHOTS_OF.to_owned())?;
            pictures::take_screenshots(&workspace)?;
            Ok(seen)
        }
        ["fuzz", options @ ..] => fuzz::run(&workspace, &fuzz::Wish::parse(options)?),
        ["miri"] => one(&workspace, soundness::miri),
        ["memcheck"] => one(&workspace, soundness::memcheck),
        ["demo"] => demo::run(&workspace).map(|()| true),
        ["bench"] => bench::run(&workspace, ""),
        ["bench", filter] => bench::run(&workspace, filter),
        ["dist", directory] => dist::run(&workspace, directory.as_ref()).map(|()| true),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(true)
        }
        _ => bail!("{USAGE}"),
    }
}

fn suite(workspace: &Workspace, suite: &Suite, directory: &str, words: &[&str]) -> Result<bool> {
    suites::run(workspace, suite, directory.as_ref(), Wish::parse(words)?)
}

fn attempts_wish(options: &[&str]) -> Result<attempts::Wish> {
    let mut wish = attempts::Wish::default();
    for option in options {
        match *option {
            "--count" => wish.count = true,
            "--write" => wish.write = true,
            _ => bail!("{USAGE}"),
        }
    }
    Ok(wish)
}

fn parts(count: &str) -> Result<usize> {
    match count.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("'{count}' is not a number of parts"),
    }
}

fn one(workspace: &Workspace, task: fn(&Workspace, &mut Tally) -> Result<bool>) -> Result<bool> {
    let mut tally = Tally::default();
    let passed = task(workspace, &mut tally)?;
    // Where the tool is missing nothing ran, and that is told.
    Ok(tally.close(workspace)? || passed)
}

fn some(workspace: &Workspace, filter: String) -> Result<bool> {
    let mut tally = Tally::default();
    system::run(workspace, &Selection::Named(filter), &mut tally);
    tally.close(workspace)
}
