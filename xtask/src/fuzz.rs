//! The fuzz targets of `fuzz/`, built with the compiler that builds everything else.
//!
//! cargo-fuzz wants another compiler for its sanitizer. What is looked for here are panics and broken
//! promises of safe code, which need coverage alone: the compiler's own pass for that is in every
//! release of it, and libFuzzer comes as source with `libfuzzer-sys`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, Ending};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// How long a target runs, unless something else is asked for, in seconds.
pub(crate) const SECONDS: u64 = 600;
/// Beyond its time a target may need so long to begin and to end, on a busy machine.
const SPARE: Duration = Duration::from_secs(300);
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Assertions and checks of arithmetic are set in `fuzz/Cargo.toml`, where packages can be left out.
const FLAGS: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Inputs that are kept are no longer, in bytes, and no more per run: the corpus is read, and replayed
/// by every `make test`.
const KEPT_LENGTH_MAX: u64 = 1024;
const KEPT_MAX: usize = 16;

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Empty: all.
    pub targets: Vec<String>,
    pub seconds: u64,
    /// Whether small inputs that reach something new join the corpus.
    pub keep: bool,
}

impl Wish {
    /// # Errors
    /// An option that is not known.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut wish = Self {
            targets: Vec::new(),
            seconds: SECONDS,
            keep: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--keep" => wish.keep = true,
                "--seconds" => {
                    let number = words.next().context("--seconds needs a number")?;
                    wish.seconds = number
                        .parse()
                        .with_context(|| format!("'{number}' is not a number of seconds"))?;
                }
                option if option.starts_with('-') => bail!("There is no option {option}"),
                target => wish.targets.push(target.to_owned()),
            }
        }
        Ok(wish)
    }
}

/// Builds and runs what is wished for; false when a target failed.
///
/// # Errors
/// A target that is not there, or they do not build.
pub(crate) fn run(workspace: &Workspace, wish: &Wish) -> Result<bool> {
    let all = targets(workspace)?;
    if let Some(unknown) = wish.targets.iter().find(|name| !all.contains(name)) {
        bail!("There is no target {unknown}: there are {}", all.join(", "));
    }
    build(workspace)?;
    let mut tally = Tally::default();
    for target in all {
        if wish.targets.is_empty() || wish.targets.contains(&target) {
            one(workspace, &target, wish.seconds, &mut tally)?;
            if wish.keep {
                keep(workspace, &target)?;
            }
        }
    }
    tally.close(workspace)
}

/// The names of all targets.
///
/// # Errors
/// Their directory cannot be read.
pub(crate) fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let directory = workspace.root.join("fuzz/fuzz_targets");
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory)
        .with_context(|| format!("Could not read {}", directory.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(stem) = path.file_stem()
        {
            found.push(stem.to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

fn directory(workspace: &Workspace) -> PathBuf {
    workspace.target.join("fuzz")
}

/// Builds all targets.
///
/// # Errors
/// They do not build.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    // The versions of the workspace, as far as it has them.
    let lock = workspace.root.join("fuzz/Cargo.lock");
    if !lock.exists() {
        fs::copy(workspace.root.join("Cargo.lock"), &lock).context("Could not copy Cargo.lock")?;
    }
    let status = workspace
        .cargo(&["build", "--release", "--target", TRIPLE, "--target-dir"])
        .arg(directory(workspace))
        .current_dir(workspace.root.join("fuzz"))
        .env("RUSTFLAGS", FLAGS.join(" "))
        .status()
        .context("Could not run cargo")?;
    if !status.success() {
        bail!("The fuzz targets do not build: see the output above");
    }
    Ok(())
}

fn command(workspace: &Workspace, target: &str) -> Command {
    let mut command = Command::new(
        directory(workspace)
            .join(TRIPLE)
            .join("release")
            .join(target),
    );
    command.current_dir(&workspace.root);
    command
}

/// Runs one target that is built; true when it found nothing.
///
/// # Errors
/// It cannot be started, or its directories cannot be made.
pub(crate) fn one(
    workspace: &Workspace,
    target: &str,
    seconds: u64,
    tally: &mut Tally,
) -> Result<bool> {
    let grown = directory(workspace).join("corpus").join(target);
    let artifacts = directory(workspace).join("artifacts").join(target);
    for made in [&grown, &artifacts] {
        fs::create_dir_all(made).with_context(|| format!("Could not make {}", made.display()))?;
    }
    let log_path = workspace.output(&format!("logs/fuzz.{target}.log"))?;
    let log = File::create(&log_path)
        .with_context(|| format!("Could not write {}", log_path.display()))?;
    let mut fuzzer = command(workspace, target);
    fuzzer
        .arg(&grown)
        .arg(workspace.root.join("fuzz/corpus").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([
            "-rss_limit_mb=1024",
            "-timeout=10",
            "-print_final_stats=1",
            "-verbosity=1",
        ]);
    let ending = process::with_limit(fuzzer, &log, Duration::from_secs(seconds) + SPARE)?;
    let text = fs::read(&log_path).unwrap_or_default();
    let found = Figures::of(&String::from_utf8_lossy(&text));
    let fault = match (ending, found.coverage) {
        (Ending::Succeeded, 1..) => {
            println!("fuzz {target} ... ok ({found})");
            tally.pass(1);
            return Ok(true);
        }
        (Ending::Succeeded, 0) => "its coverage is not seen: it is not instrumented".to_owned(),
        (Ending::TimedOut, _) => "it did not end in its time".to_owned(),
        (Ending::Failed, _) => repeat(workspace, target, found.artifact.as_deref()),
    };
    println!("fuzz {target} ... FAILED ({found})\n  {fault}");
    tally.fail(format!("fuzz {target}: {fault}; {}", log_path.display()));
    Ok(false)
}

fn repeat(workspace: &Workspace, target: &str, artifact: Option<&str>) -> String {
    let program = command(workspace, target);
    let program = Path::new(program.get_program()).display().to_string();
    match artifact {
        Some(input) => format!("repeat it with: {program} {input}"),
        None => "it failed without an input, see its log".to_owned(),
    }
}

/// Takes small inputs that reach what the committed corpus does not into it.
fn keep(workspace: &Workspace, target: &str) -> Result<()> {
    let corpus = workspace.root.join("fuzz/corpus").join(target);
    let merged = directory(workspace).join("merged").join(target);
    if merged.exists() {
        fs::remove_dir_all(&merged)?;
    }
    fs::create_dir_all(&merged)?;
    for entry in fs::read_dir(&corpus)? {
        let path = entry?.path();
        fs::copy(&path, merged.join(path.file_name().unwrap_or_default()))?;
    }
    let log = File::create(workspace.output(&format!("logs/fuzz.{target}.merge.log"))?)?;
    let mut merge = command(workspace, target);
    merge
        .args(["-merge=1", "-rss_limit_mb=1024"])
        .arg(&merged)
        .arg(directory(workspace).join("corpus").join(target));
    process::with_limit(merge, &log, SPARE)?;
    let mut new = Vec::new();
    for entry in fs::read_dir(&merged)? {
        let entry = entry?;
        let length = entry.metadata()?.len();
        if length <= KEPT_LENGTH_MAX && !corpus.join(entry.file_name()).exists() {
            new.push((length, entry.path()));
        }
    }
    new.sort();
    for (length, path) in new.iter().take(KEPT_MAX) {
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, corpus.join(name))?;
        println!("kept {} ({length} bytes)", name.to_string_lossy());
    }
    Ok(())
}

/// What a fuzzer says of its run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Figures {
    executions: u64,
    per_second: u64,
    /// Edges of the program that were taken.
    coverage: u64,
    inputs: u64,
    artifact: Option<String>,
}

impl Figures {
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let after = |word: &str| {
                let at = words.iter().position(|known| *known == word)?;
                words.get(at + 1)?.split('/').next()?.parse::<u64>().ok()
            };
            if let Some(coverage) = after("cov:") {
                found.coverage = coverage;
                found.inputs = after("corp:").unwrap_or(found.inputs);
            }
            if let Some(count) = after("stat::number_of_executed_units:") {
                found.executions = count;
            }
            if let Some(count) = after("stat::average_exec_per_sec:") {
                found.per_second = count;
            }
            if let Some((_, path)) = line.split_once("Test unit written to ") {
                found.artifact = Some(path.trim().to_owned());
            }
        }
        found
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} executions, {} a second, coverage {}, {} inputs",
            self.executions, self.per_second, self.coverage, self.inputs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let wish = Wish::parse(&["frame", "--seconds", "5", "--keep"]).unwrap();
        assert_eq!(
            wish,
            Wish {
                targets: vec!["frame".into()],
                seconds: 5,
                keep: true
            }
        );
        assert_eq!(Wish::parse(&[]).unwrap().seconds, SECONDS);
        for bad in [&["--seconds"][..], &["--seconds", "x"], &["--fast"]] {
            assert!(Wish::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_figures_count() {
        let text = "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
            #9\tNEW    cov: 44 ft: 50 corp: 7/19b lim: 4 exec/s: 0 rss: 40Mb L: 3/3\n\
            stat::number_of_executed_units: 900\nstat::average_exec_per_sec:     90\n\
            artifact_prefix='./'; Test unit written to /x/crash-1\n";
        let figures = Figures::of(text);
        assert_eq!(
            figures.to_string(),
            "900 executions, 90 a second, coverage 44, 7 inputs"
        );
        assert_eq!(figures.artifact.as_deref(), Some("/x/crash-1"));
        assert_eq!(Figures::of("no fuzzer").coverage, 0);
    }
}
