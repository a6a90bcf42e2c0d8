//! The runner: which tests there are, which are wanted, and how they went.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};

use crate::Cluster;

/// What a test may know of the run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Everything random comes from it.
    pub seed: u64,
    /// The test's own name.
    pub name: String,
}

impl Setting {
    /// The command that repeats this test with the same chances.
    #[must_use]
    pub fn repeat(&self) -> String {
        let Self { seed, name } = self;
        format!("WHIM_SEED={seed} cargo test -p whim-system-tests --test system -- --exact {name}")
    }
}

type Body = Box<dyn Fn(&Setting) -> Result<()>>;

/// One test. A segment `full` in its name marks it as slow, `bench` as a measurement; those run
/// when `WHIM_FULL=1` is set, or when they are asked for by their whole name.
pub struct Case {
    name: String,
    body: Body,
}

impl Case {
    pub fn new(name: impl Into<String>, body: impl Fn(&Setting) -> Result<()> + 'static) -> Self {
        Self {
            name: name.into(),
            body: Box::new(body),
        }
    }

    /// One that has a lab of so many nodes to itself; what the lab has to say is shown if it fails.
    pub fn in_lab(
        name: impl Into<String>,
        nodes: usize,
        body: impl Fn(&Cluster) -> Result<()> + 'static,
    ) -> Self {
        Self::new(name, move |_| {
            let cluster = Cluster::up(nodes)?;
            cluster.explaining(|| body(&cluster))
        })
    }

    fn is_slow(&self) -> bool {
        self.name
            .split("::")
            .any(|segment| matches!(segment, "full" | "bench"))
    }
}

/// What the command line asks for. The options are those of the standard test harness, as far as
/// they mean something here.
#[derive(Debug, Default)]
struct Wish {
    list: bool,
    exact: bool,
    filters: Vec<String>,
}

impl Wish {
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut wish = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wish.list = true,
                "--exact" => wish.exact = true,
                "--format" | "--test-threads" | "--color" => drop(arguments.next()),
                option if option.starts_with('-') => {}
                _ => wish.filters.push(argument),
            }
        }
        wish
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self.filters.iter().any(|filter| {
                if self.exact {
                    name == filter
                } else {
                    name.contains(filter.as_str())
                }
            })
    }
}

/// `WHIM_PART=k/n`: every n-th test, beginning with the k-th.
fn part() -> Result<(usize, usize)> {
    let Ok(text) = std::env::var("WHIM_PART") else {
        return Ok((1, 1));
    };
    let parsed = text
        .split_once('/')
        .and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match parsed {
        Some((k, n)) if 1 <= k && k <= n => Ok((k, n)),
        _ => bail!("WHIM_PART is '{text}': write k/n with 1 <= k <= n"),
    }
}

fn seed() -> Result<u64> {
    match std::env::var("WHIM_SEED") {
        Ok(text) => text
            .parse()
            .map_err(|_| anyhow!("WHIM_SEED is '{text}', not a number")),
        Err(_) => {
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            Ok(since.as_micros().try_into().unwrap_or(0))
        }
    }
}

/// The number in an environment variable, if it is set.
///
/// # Errors
/// When it is something else.
pub fn number(variable: &str) -> Result<Option<u32>> {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|_| anyhow!("{variable} is '{text}', not a number")),
        Err(_) => Ok(None),
    }
}

/// Does what the command line asks for with these tests.
pub fn run(cases: Vec<Case>) -> ExitCode {
    match try_run(cases) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn try_run(mut cases: Vec<Case>) -> Result<bool> {
    let wish = Wish::parse(std::env::args().skip(1));
    let full = std::env::var_os("WHIM_FULL").is_some_and(|value| value == "1");
    cases.sort_by(|left, right| left.name.cmp(&right.name));
    let mut neighbours = cases.windows(2);
    if let Some(twice) = neighbours.find(|pair| pair[0].name == pair[1].name) {
        bail!("{} is registered twice", twice[0].name);
    }
    cases.retain(|case| wish.wants(&case.name));
    if wish.list {
        for case in &cases {
            println!("{}: test", case.name);
        }
        return Ok(true);
    }
    if !full && !wish.exact {
        cases.retain(|case| !case.is_slow());
    }
    let (k, n) = part()?;
    let seed = seed()?;
    let mut failed = Vec::new();
    let mut passed = 0;
    for (_, case) in cases
        .iter()
        .enumerate()
        .filter(|(position, _)| position % n == k - 1)
    {
        if run_one(case, seed) {
            passed += 1;
        } else {
            failed.push(case.name.as_str());
        }
    }
    println!("\ntest result: {passed} passed; {} failed", failed.len());
    for name in &failed {
        println!("    failed: {name}");
    }
    Ok(failed.is_empty())
}

fn run_one(case: &Case, seed: u64) -> bool {
    let setting = Setting {
        seed,
        name: case.name.clone(),
    };
    println!("--- {}", case.name);
    whim_attempts::begin_test(&case.name);
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.body)(&setting)))
        .unwrap_or_else(|_| Err(anyhow!("the test panicked, see above")));
    let seconds = started.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("test {} ... ok ({seconds:.1} s)", case.name);
            true
        }
        Err(error) => {
            println!("test {} ... FAILED ({seconds:.1} s)", case.name);
            println!("    {}", format!("{error:#}").replace('\n', "\n    "));
            println!("    again: {}", setting.repeat());
            false
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn wish(line: &str) -> Wish {
        Wish::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_command_line_chooses() {
        assert!(wish("").wants("a::b"));
        assert!(wish("--nocapture b").wants("a::b"));
        assert!(!wish("--exact b").wants("a::b"));
        assert!(wish("--list --format terse").list);
        assert!(wish("--format terse").filters.is_empty());
    }

    #[test]
    fn the_name_tells_the_slow_ones() {
        let case = |name: &str| Case::new(name, |_| Ok(()));
        assert!(case("programs::full::bash::run_1").is_slow());
        assert!(case("bench::freeze").is_slow());
        assert!(!case("programs::fully").is_slow());
    }
}
