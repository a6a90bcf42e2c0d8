//! Doing a job, or saying what it would take.

mod ranked;

use crate::assemble::{AssembleError, Assembled, Setting, assemble};
use crate::blocks::Grid;
use crate::command::{How, Work};
use crate::execute::{self, ExecuteError, Group, Means, Watch};
use crate::job::{Foreach, Job};
use crate::output::{self, Files, Form, Manner, Output, OutputError};
use crate::ranks::{Alone, Ranks, Team, TeamError};
use crate::together::{Collect, TogetherError};
use pipt_simd::Level;
use pipt_simd::level::NoLevel;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Threads work on no more pixels of a row at a time, if nothing is said: longer blocks gain nothing, and
/// shorter ones are shared more evenly.
const MOST: u32 = 4096;
/// A job is done for no more files.
const FILES_MAX: usize = 100_000;
/// Progress is shown so often.
const SHOWS: Duration = Duration::from_millis(200);

/// Why a job was not done.
#[derive(Debug)]
pub enum WorkError {
    Level(NoLevel),
    /// The pattern of `foreach`, and what is wrong with it.
    Pattern(String, String),
    /// Two files would be written under one name.
    Same(PathBuf),
    /// A file would be written that is read.
    Read(PathBuf),
    Assemble(AssembleError),
    Output(OutputError),
    Execute(ExecuteError),
    /// Whole files are for each rank, and the job has none.
    NoFiles,
    Team(TeamError),
    Together(TogetherError),
}

impl WorkError {
    /// Whether it is the error of another rank, which says it.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        let is = |error: &TeamError| matches!(error, TeamError::Elsewhere(..));
        match self {
            Self::Team(error)
            | Self::Together(TogetherError::Team(error))
            | Self::Assemble(AssembleError::Team(error)) => is(error),
            _ => false,
        }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(error) => write!(to, "{error}"),
            Self::Pattern(pattern, what) => write!(to, "foreach {pattern}: {what}"),
            Self::Same(path) => write!(
                to,
                "Two results would be {}: give them two names, also where files of foreach have the same name \
                 in several directories",
                path.display()
            ),
            Self::Read(path) => write!(
                to,
                "{} is read, and cannot be written too: give another name",
                path.display()
            ),
            Self::Assemble(error) => write!(to, "{error}"),
            Self::Output(error) => write!(to, "{error}"),
            Self::Execute(error) => write!(to, "{error}"),
            Self::NoFiles => write!(
                to,
                "--distribute files gives each rank whole files, and the job has no foreach: begin it with foreach, or \
                 distribute rows, tiles or dynamic"
            ),
            Self::Team(error) => write!(to, "{error}"),
            Self::Together(error) => write!(to, "{error}"),
        }
    }
}

impl std::error::Error for WorkError {}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
    pub pixels: u64,
    pub bands: usize,
    /// Since its images were begun.
    pub seconds: f64,
    pub threads: usize,
    /// That computed it.
    pub ranks: usize,
}

impl Written {
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "written": self.path,
            "bytes": self.bytes,
            "pixels": self.pixels,
            "bands": self.bands,
            "seconds": self.seconds,
            "threads": self.threads,
            "ranks": self.ranks,
        })
    }
}

/// What an image of a job would take.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub path: PathBuf,
    pub size: pipt_raster::Size,
    pub bands: usize,
    pub kind: pipt_raster::SampleType,
    pub threads: usize,
    /// Pixels of a row that a thread works on at a time, and rows.
    pub block: (u32, u32),
    /// At the most, of all threads together.
    pub memory: u64,
    /// Before they are compressed.
    pub bytes: u64,
}

impl Planned {
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "would_write": self.path,
            "width": self.size.width,
            "height": self.size.height,
            "bands": self.bands,
            "type": self.kind.name(),
            "threads": self.threads,
            "block_width": self.block.0,
            "block_height": self.block.1,
            "memory_bytes": self.memory,
            "uncompressed_bytes": self.bytes,
        })
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        write!(
            to,
            "{}: {} pixels, {} bands of {}, {} MiB before they are compressed; {} threads with {} x {} pixels \
             at a time, {} MiB of memory",
            self.path.display(),
            self.size,
            self.bands,
            self.kind,
            mebibytes(self.bytes),
            self.threads,
            self.block.0,
            self.block.1,
            mebibytes(self.memory)
        )
    }
}

/// A job for one of its files.
struct One {
    all: Assembled,
    /// Of each write of the job.
    paths: Vec<PathBuf>,
    /// Writes by their place, which are done together.
    groups: Vec<(Group, Vec<usize>)>,
    means: Vec<Means>,
}

/// Does a job; `show` is called now and then with the pixels that are done, and how many there are. All of several
/// ranks call this, and are given the same.
///
/// # Errors
///
/// Something cannot be read, computed or written, here or at another rank.
pub fn run(
    work: &Work,
    ranks: Option<&dyn Ranks>,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let alone = Alone::new();
    match ranks {
        Some(ranks) => ranked::run(work, ranks, show),
        // A file of a rank's own, and the VRT of it.
        None if work.how.collect == Collect::Parts => ranked::run(work, &alone, show),
        None => {
            let mut written = Vec::new();
            for file in files(&work.job)? {
                written.extend(whole(work, file.as_deref(), show)?);
            }
            Ok(written)
        }
    }
}

/// Does a job for one of its files, without other ranks.
fn whole(
    work: &Work,
    file: Option<&str>,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let one = one(work, file, None)?;
    begin(work, file, &one)?;
    let mut written = Vec::new();
    for (number, (group, writes)) in one.groups.iter().enumerate() {
        written.extend(write(work, &one, (group, writes), one.means[number], show)?);
    }
    Ok(written)
}

/// Looks whether the names of files are free, and writes what is no image.
fn begin(work: &Work, file: Option<&str>, one: &One) -> Result<(), WorkError> {
    for path in &one.paths {
        output::is_free(path, work.how.overwrite).map_err(WorkError::Output)?;
    }
    for (name, text) in &one.all.texts {
        let path = named(&work.job, file, name);
        output::text(&path, text, work.how.overwrite).map_err(WorkError::Output)?;
    }
    Ok(())
}

/// Says what a job would take.
///
/// # Errors
///
/// Something cannot be read, or cannot be done.
pub fn plan(work: &Work) -> Result<Vec<Planned>, WorkError> {
    let mut planned = Vec::new();
    for file in files(&work.job)? {
        let one = one(work, file.as_deref(), None)?;
        for ((group, writes), means) in one.groups.iter().zip(&one.means) {
            let memory = execute::memory(&one.all.graph, group, means.tiles);
            for (node, write) in group.nodes.iter().zip(writes) {
                let shape = one.all.graph.shape(*node);
                let kind = output::kind(shape, &work.job.writes[*write].values);
                let across = means
                    .tiles
                    .saturating_mul(group.grid.tile)
                    .min(shape.size.width);
                planned.push(Planned {
                    path: one.paths[*write].clone(),
                    size: shape.size,
                    bands: shape.bands.len(),
                    kind,
                    threads: means.threads,
                    block: (across, group.grid.tile.min(shape.size.height)),
                    memory: memory * means.threads as u64,
                    bytes: shape.size.pixels() * (shape.bands.len() * kind.bytes()) as u64,
                });
            }
        }
    }
    Ok(planned)
}

/// The files that a job is done for; none, once, if it names its own.
fn files(job: &Job) -> Result<Vec<Option<String>>, WorkError> {
    let files = matching(job)?;
    let mut all = HashSet::new();
    for file in &files {
        let file = file.as_deref();
        let own: Vec<PathBuf> = job.writes().map(|name| named(job, file, name)).collect();
        let reads: Vec<&str> = job.reads().chain(file).collect();
        for path in own {
            if reads.iter().any(|name| is_same(Path::new(name), &path)) {
                return Err(WorkError::Read(path));
            }
            if !all.insert(path.clone()) {
                return Err(WorkError::Same(path));
            }
        }
    }
    Ok(files)
}

/// Whether two names are those of one file, also where they are written differently.
fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.dev(), about.ino()))
    };
    one == other || number(one).is_some_and(|one| number(other) == Some(one))
}

fn matching(job: &Job) -> Result<Vec<Option<String>>, WorkError> {
    let Some(Foreach { pattern, .. }) = &job.foreach else {
        return Ok(vec![None]);
    };
    let wrong = |what: String| WorkError::Pattern(pattern.clone(), what);
    let found = glob::glob(pattern).map_err(|error| wrong(error.to_string()))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| wrong(error.to_string()))?;
        let name = path
            .to_str()
            .ok_or_else(|| wrong(format!("{} is no UTF-8", path.display())))?;
        files.push(Some(name.to_owned()));
        if files.len() > FILES_MAX {
            return Err(wrong(format!("there are more than {FILES_MAX} such files")));
        }
    }
    match files.is_empty() {
        true => Err(wrong("there is no such file".to_owned())),
        false => Ok(files),
    }
}

fn threads(how: &How, team: Option<&Team<'_>>) -> usize {
    let own = || match team {
        Some(team) => team.threads(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    how.threads.unwrap_or_else(own)
}

/// Bytes of tiles that a rank may keep until they have their places.
fn kept(how: &How) -> u64 {
    how.memory / 8
}

fn one(work: &Work, file: Option<&str>, team: Option<&Team<'_>>) -> Result<One, WorkError> {
    let how = &work.how;
    let level = match &how.instructions {
        Some(name) => name.parse().map_err(WorkError::Level)?,
        None => Level::best(),
    };
    let threads = threads(how, team);
    let setting = Setting {
        file,
        part: how.part,
        threads,
        memory: how.memory,
        level,
        team,
        stop: &how.stop,
    };
    let all = assemble(&work.job, &setting).map_err(WorkError::Assemble)?;
    let writes = work.job.writes.iter();
    let paths = writes.map(|write| match how.collect {
        Collect::Parts => named(&work.job, file, &write.path).with_extension("vrt"),
        _ => named(&work.job, file, &write.path),
    });
    let paths = paths.collect();
    let groups = groups(&work.job, &all);
    let (of_cache, most) = (how.memory / 8, how.tile.unwrap_or(MOST));
    let means = groups.iter().map(|(group, _)| {
        let bytes = how.memory - of_cache - team.map_or(0, |_| kept(how));
        let (threads, tiles) = execute::means(
            &all.graph,
            std::slice::from_ref(group),
            bytes,
            threads,
            most,
        )
        .map_err(|error| of_all(error, how.memory))?;
        Ok(Means {
            threads,
            tiles,
            level,
        })
    });
    let means = means
        .collect::<Result<_, _>>()
        .map_err(WorkError::Execute)?;
    Ok(One {
        all,
        paths,
        groups,
        means,
    })
}

/// What is said of memory is said of all of it: caches and tiles that wait have their parts.
fn of_all(error: ExecuteError, memory: u64) -> ExecuteError {
    match error {
        ExecuteError::Memory { least, given } => ExecuteError::Memory {
            least: (least.saturating_mul(memory)).div_ceil(given.max(1)),
            given: memory,
        },
        error => error,
    }
}

/// The name of a file that is written, where the job has what stands for the file of `foreach`.
fn named(job: &Job, file: Option<&str>, name: &str) -> PathBuf {
    let stem = file.and_then(|file| Path::new(file).file_stem()?.to_str());
    match (&job.foreach, stem) {
        (Some(each), Some(stem)) => PathBuf::from(name.replace(&each.in_names(), stem)),
        _ => PathBuf::from(name),
    }
}

/// Images of one size and of tiles of one size are computed together: what they have in common is computed
/// once.
fn groups(job: &Job, all: &Assembled) -> Vec<(Group, Vec<usize>)> {
    let mut groups: Vec<(Group, Vec<usize>)> = Vec::new();
    for (number, write) in job.writes.iter().enumerate() {
        let node = all.images[write.image].node;
        let grid = Grid {
            size: all.graph.shape(node).size,
            tile: output::tile(&write.values),
        };
        match groups.iter_mut().find(|(group, _)| group.grid == grid) {
            Some((group, writes)) => {
                group.nodes.push(node);
                writes.push(number);
            }
            None => {
                let nodes = vec![node];
                groups.push((Group { grid, nodes }, vec![number]));
            }
        }
    }
    groups
}

/// Of what is done, to which part; not how.
fn identity(work: &Work) -> u64 {
    xxh3_64(format!("{:?} {:?}", work.job.images, work.how.part).as_bytes())
}

/// What the file of a write of the job will be.
fn form(
    work: &Work,
    one: &One,
    number: usize,
    path: &Path,
    manner: Manner,
) -> Result<Form, OutputError> {
    let write = &work.job.writes[number];
    let image = &one.all.images[write.image];
    let shape = one.all.graph.shape(image.node);
    Form::new(path, shape, image, &write.values, manner)
}

fn write(
    work: &Work,
    one: &One,
    (group, writes): (&Group, &[usize]),
    means: Means,
    show: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Written>, WorkError> {
    let begun = Instant::now();
    let manner = Manner {
        overwrite: work.how.overwrite,
        resume: work.how.resume,
        threads: means.threads,
        identity: identity(work),
        sparse: false,
    };
    let forms = writes
        .iter()
        .map(|number| form(work, one, *number, &one.paths[*number], manner));
    let begin = |form: Result<Form, OutputError>| Output::begin(form?, manner);
    let outputs: Result<Vec<Output>, _> = forms.map(begin).collect();
    let files = Files {
        outputs: outputs.map_err(WorkError::Output)?,
        grid: group.grid,
    };
    let missing = files.outputs.iter().map(Output::first_missing);
    let skip = missing.min().unwrap_or(0);
    let (watch, all) = (Watch::default(), group.grid.size.pixels());
    let graph = &one.all.graph;
    let (going, ended) = mpsc::channel::<()>();
    let (to, seen) = (&files, &watch);
    let done = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            // It goes with the worker, whose end is so noticed at once.
            let _going = going;
            execute::execute(graph, group, to, means, skip, seen)
        });
        while ended.recv_timeout(SHOWS) == Err(RecvTimeoutError::Timeout) {
            show(watch.pixels.load(Ordering::Relaxed), all);
        }
        worker
            .join()
            .unwrap_or_else(|fault| std::panic::resume_unwind(fault))
    });
    done.map_err(WorkError::Execute)?;
    let finish = |(output, node): (Output, &usize)| {
        let shape = graph.shape(*node);
        let finished = output.finish().map_err(WorkError::Output)?;
        Ok(Written {
            path: finished.path,
            bytes: finished.bytes,
            pixels: shape.size.pixels(),
            bands: shape.bands.len(),
            seconds: begun.elapsed().as_secs_f64(),
            threads: means.threads,
            ranks: 1,
        })
    };
    files
        .outputs
        .into_iter()
        .zip(&group.nodes)
        .map(finish)
        .collect()
}
