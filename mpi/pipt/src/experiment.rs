//! The experiment of "Live cd cluster performance" (H. Estevez, Columbia University, 10 May 2004) again, by one
//! command: routines over a set of images, once with manager and workers over MPI, once as independent processes
//! that were started on one node and that the cluster's balancer spreads. Both in a lab of several nodes on this
//! machine, which the command starts and takes down; the core's programs are called, none of its crates.

pub mod error;
pub mod figures;
pub mod half;
pub mod jobs;
pub mod lab;
pub mod launcher;
pub mod programs;
pub mod record;
pub mod report;
pub mod spread;
pub mod watch;

use error::ExperimentError;
use half::Setup;
use lab::Lab;
use programs::Programs;
use record::{Check, Outcome, Run, Setting};
use std::path::PathBuf;
use watch::Watch;

/// The paper's seven cheap routines, in the order of its figure 1, and its eight of texture.
pub const CHEAP: [&str; 7] = [
    "AddUniform",
    "CrossMedian",
    "AddGaussian",
    "ATrimmedCrMean",
    "AddBitError",
    "SquareMedian",
    "ATrimmedSqMean",
];
pub const TEXTURES: [&str; 8] = [
    "CoOccurMax",
    "CoOccurEnergy",
    "CoOccurContrast",
    "CoOccurInverseMoment",
    "CoOccurHomogeneity",
    "CoOccurCorrelation",
    "CoOccurEntropy",
    "CoOccurCluster",
];
/// Routines that are started at the same time: the paper's first five, then the other three.
pub const TOGETHER: usize = 5;
/// Images that are taken of a directory, and the paper's number of them.
pub const IMAGES_MAX: usize = 1000;
/// The small form: pixels to a side that are kept of an image, and nodes.
pub const SMALL_SIDE: u32 = 1024;
pub const SMALL_NODES: usize = 3;
/// The paper's machines.
pub const NODES: usize = 5;
/// Nodes that a lab of the experiment may have.
pub const NODES_MAX: usize = 16;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Livecd {
    /// The directory of the images.
    pub images: PathBuf,
    pub nodes: usize,
    /// All fifteen routines, or the eight of texture.
    pub all_routines: bool,
    /// Images are cut to [`SMALL_SIDE`].
    pub small: bool,
    /// CPUs of each node; none: all of the machine's, shared equally.
    pub cpu: Option<f64>,
    /// The new directory of the report.
    pub report: PathBuf,
    /// Pixels to a side of the window of texture, medians and means; and grey levels.
    pub window: u32,
    pub levels: u32,
    /// What the inner loops are compiled for.
    pub instructions: String,
    /// A process that moves more often fails the experiment.
    pub moves_max: u64,
}

impl Livecd {
    /// The routines of both halves.
    #[must_use]
    pub fn routines(&self) -> Vec<&'static str> {
        let cheap: &[&str] = if self.all_routines { &CHEAP } else { &[] };
        cheap.iter().chain(&TEXTURES).copied().collect()
    }
}

/// Repeats the experiment and writes its report; what goes on is said now and then.
///
/// # Errors
///
/// Something is missing, an image cannot be read, or a job failed. The lab is down then. The checks of a report that
/// was written are in the outcome: see [`Outcome::failed`].
pub fn run(asked: &Livecd, say: &dyn Fn(&str)) -> Result<Outcome, ExperimentError> {
    // Before anything else, for threads and programs that come later are to be interrupted by us alone.
    let watch = Watch::begin()?;
    let programs = Programs::find()?;
    report::is_free(&asked.report)?;
    let work = work_directory()?;
    let images = jobs::prepare(asked, work.path(), &programs, &watch)?;
    say(&format!("{} images are prepared", images.len()));
    let setup = Setup {
        asked,
        programs: &programs,
        work: work.path(),
        watch: &watch,
    };
    // Figure 1 shows all routines, also where the halves have those of texture alone.
    let all: Vec<&str> = CHEAP.iter().chain(&TEXTURES).copied().collect();
    let plain = setup.plain(&all)?;
    say("One process has done each routine by itself");
    let cpu = asked.cpu.unwrap_or_else(|| share(asked.nodes));
    let lab = Lab::up(&programs, asked.nodes, cpu, work.path(), &watch)?;
    say(&format!("A lab of {} nodes is up", asked.nodes));
    let ranks = setup.ranks(&lab, say)?;
    let spread = setup.spread(&lab, say)?;
    lab.down()?;
    let outcome = Outcome {
        setting: Setting::of(asked, cpu),
        images,
        plain,
        ranks,
        checks: Vec::new(),
        spread,
    };
    let outcome = checked(outcome, asked.moves_max);
    report::write(&asked.report, &outcome)?;
    Ok(outcome)
}

/// CPUs of each node, when all that the machine has are shared.
#[allow(
    clippy::cast_precision_loss,
    reason = "machines have fewer than 2^52 CPUs, and labs fewer nodes"
)]
fn share(nodes: usize) -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // A tenth is left for what watches.
    ((cpus as f64 * 90.0 / nodes as f64).floor() / 100.0).max(0.05)
}

/// A directory that goes away with the experiment.
fn work_directory() -> Result<tempfile::TempDir, ExperimentError> {
    let made = tempfile::Builder::new().prefix("pipt-livecd-").tempdir();
    made.map_err(|error| ExperimentError::file("made", &std::env::temp_dir(), error))
}

/// The same outcome with what was found about it.
fn checked(mut outcome: Outcome, moves_max: u64) -> Outcome {
    let same = |runs: &[Run]| {
        let wrong = runs.iter().flat_map(|run| {
            let plain = outcome.plain.iter().find(|one| one.routine == run.routine);
            run.images.iter().filter_map(move |image| {
                let plain = plain?.images.iter().find(|one| one.image == image.image)?;
                (plain.sha256 != image.sha256)
                    .then(|| format!("{} of {}", run.routine, image.image))
            })
        });
        wrong.collect::<Vec<String>>()
    };
    let wrong: Vec<String> = [same(&outcome.ranks), same(&outcome.spread.runs)].concat();
    let files = outcome.ranks.iter().chain(&outcome.spread.runs);
    let files: usize = files.map(|run| run.images.len()).sum();
    outcome.checks.push(Check {
        what: format!(
            "{files} files of both halves have the SHA-256 of those of one plain process"
        ),
        passed: wrong.is_empty(),
        found: match wrong.is_empty() {
            true => "all equal".to_owned(),
            false => format!("different: {}", wrong.join(", ")),
        },
    });
    let most = outcome.spread.processes.iter().max_by_key(|one| one.moves);
    let (routine, moves) = most.map_or(("none", 0), |one| (one.routine.as_str(), one.moves));
    outcome.checks.push(Check {
        what: format!("no process moved more than {moves_max} times"),
        passed: moves <= moves_max,
        found: format!("{routine} moved most: {moves} times"),
    });
    let moved = outcome.spread.moves.len();
    let counted: u64 = outcome.spread.processes.iter().map(|one| one.moves).sum();
    outcome.checks.push(Check {
        what: "the history of the home has every move that the processes count".to_owned(),
        passed: u64::try_from(moved) == Ok(counted),
        found: format!("{moved} in the history, {counted} counted"),
    });
    outcome
}

#[cfg(test)]
mod tests;
