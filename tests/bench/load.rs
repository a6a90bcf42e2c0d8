//! What else the machine does: runs that others disturb are thrown away and repeated.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::Value;
use whim_system_tests::{Cluster, Context, Result, case};

/// A run during which others used more than this share of all CPU time is disturbed.
const FOREIGN_MAX: f64 = 0.05;
/// A disturbed run is repeated, but no more than this often for each that is wanted.
const TRIES_EACH: usize = 3;
/// How long one measurement waits, in all, for others to finish, in seconds; `WHIM_BENCH_PATIENCE`
/// replaces it.
const PATIENCE_S: u32 = 300;
/// The time over which it is seen whether the machine is quiet.
const LOOK: Duration = Duration::from_millis(200);
/// What /proc/stat counts in, a second.
const TICKS: f64 = 100.0;

/// Samples of undisturbed runs, or of the least disturbed ones if there were too few.
#[derive(Debug)]
pub(super) struct Kept<T> {
    pub samples: Vec<T>,
    /// Mean share of all CPU time that others used meanwhile.
    pub foreign_percent: f64,
    pub discarded: u32,
    pub disturbed: bool,
}

impl<T> Kept<T> {
    /// One number of each sample.
    pub(super) fn each(&self, number: impl Fn(&T) -> f64) -> Vec<f64> {
        self.samples.iter().map(number).collect()
    }

    /// All numbers of all samples.
    pub(super) fn all<'a>(&'a self, numbers: impl Fn(&'a T) -> &'a [f64]) -> Vec<f64> {
        self.samples.iter().flat_map(numbers).copied().collect()
    }
}

/// Tells the CPU time of a lab and of the test from that of all others.
#[derive(Debug)]
pub(super) struct Watch {
    /// The control group of the lab, and the topmost one.
    lab: PathBuf,
    top: PathBuf,
    cpus: f64,
    patience: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    foreign_s: f64,
}

impl Watch {
    /// # Errors
    /// When the lab has no control groups that count CPU time.
    pub(super) fn new(cluster: &Cluster) -> Result<Self> {
        let status: Value = serde_json::from_str(&cluster.lab(&["status", "--json"])?)?;
        let groups = status["nodes"][0]["cgroups"].as_array();
        let lab = groups
            .into_iter()
            .flatten()
            .filter_map(|group| Some(Path::new(group.as_str()?).parent()?.to_owned()))
            .find(|group| usage_s(group).is_some())
            .context("The lab has no control group that counts CPU time")?;
        let top = lab
            .ancestors()
            .take_while(|group| usage_s(group).is_some())
            .last()
            .unwrap_or(&lab)
            .to_owned();
        let stat = fs::read_to_string("/proc/stat")?;
        let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count();
        let patience_s = case::number("WHIM_BENCH_PATIENCE")?.unwrap_or(PATIENCE_S);
        Ok(Self {
            lab,
            top,
            cpus: f64::from(u32::try_from(cpus.saturating_sub(1).max(1))?),
            patience: Duration::from_secs(patience_s.into()),
        })
    }

    /// Takes samples until so many were undisturbed, or patience ends.
    ///
    /// # Errors
    /// Those of taking one.
    pub(super) fn steady<T>(
        &mut self,
        wanted: usize,
        mut take: impl FnMut() -> Result<T>,
    ) -> Result<Kept<T>> {
        let mut taken: Vec<(f64, T)> = Vec::new();
        let mut good = 0;
        while good < wanted && taken.len() < wanted * TRIES_EACH {
            self.await_quiet()?;
            let before = self.now()?;
            let sample = take()?;
            let foreign = self.since(&before)?;
            good += usize::from(foreign <= FOREIGN_MAX);
            taken.push((foreign, sample));
        }
        let discarded = u32::try_from(taken.len().saturating_sub(wanted))?;
        taken.sort_by(|left, right| left.0.total_cmp(&right.0));
        taken.truncate(wanted);
        let foreign: f64 = taken.iter().map(|(foreign, _)| foreign).sum();
        let count = f64::from(u32::try_from(taken.len().max(1))?);
        Ok(Kept {
            samples: taken.into_iter().map(|(_, sample)| sample).collect(),
            foreign_percent: 100.0 * foreign / count,
            discarded,
            disturbed: good < wanted,
        })
    }

    /// Waits for a moment in which others do little, as long as there is patience left.
    fn await_quiet(&mut self) -> Result<()> {
        while !self.patience.is_zero() {
            let before = self.now()?;
            thread::sleep(LOOK);
            if self.since(&before)? <= FOREIGN_MAX {
                break;
            }
            self.patience = self.patience.saturating_sub(LOOK);
        }
        Ok(())
    }

    fn now(&self) -> Result<Moment> {
        let usage = |group: &Path| {
            usage_s(group).with_context(|| format!("{} counts no CPU time", group.display()))
        };
        // And what it has started outside the lab: `whim lab exec` brings each command there.
        let own = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN];
        let own = own
            .map(|who| getrusage(who).map(|u| seconds(u.user_time()) + seconds(u.system_time())));
        let own = own.into_iter().sum::<Result<f64, _>>()?;
        let all = usage(&self.top)? + stolen_s()?;
        Ok(Moment {
            at: Instant::now(),
            foreign_s: all - usage(&self.lab)? - own,
        })
    }

    /// The share of all CPU time since then that others used.
    fn since(&self, before: &Moment) -> Result<f64> {
        let now = self.now()?;
        let span = (now.at - before.at).as_secs_f64() * self.cpus;
        Ok(((now.foreign_s - before.foreign_s) / span.max(1e-6)).max(0.0))
    }
}

/// CPU seconds that a process has used, by its line of /proc/PID/stat.
///
/// # Errors
/// It is no such line.
pub(super) fn cpu_seconds(stat: &str) -> Result<f64> {
    let (_, rest) = stat.rsplit_once(") ").context("a line of stat")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Result<f64> { Ok(fields.next().context("a field")?.parse()?) };
    Ok((next()? + next()?) / TICKS)
}

fn seconds(time: TimeVal) -> f64 {
    // A test does not run for centuries.
    #[allow(clippy::cast_precision_loss)]
    let us = time.num_microseconds() as f64;
    us * 1e-6
}

/// CPU time of a control group of either version, if it counts that.
fn usage_s(group: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(group.join("cpuacct.usage")) {
        return Some(text.trim().parse::<f64>().ok()? * 1e-9);
    }
    let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
    let us = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(us.parse::<f64>().ok()? * 1e-6)
}

/// CPU time that the machine below this virtual one has given to others.
fn stolen_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks = stat.split_ascii_whitespace().nth(8).unwrap_or("0");
    Ok(ticks.parse::<f64>()? / TICKS)
}
