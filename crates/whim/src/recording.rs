//! `whim lab record`: what a lab's programs do, a line for each and second, as `whim-sim` reads it.
//!
//! `docs/simulation.md` has the names of the fields.

use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_control::client::Client;
use whim_control::protocol::{Answer, ProcessRow, RUN_DIRECTORY, Request, SOCKET_NAME};
use whim_lab::{Lab, LabError, NodeState};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Error)]
pub(crate) enum RecordingError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("{0} is no name for a record: whim-sim knows them by .jsonl at the end")]
    Name(PathBuf),
    #[error("The record {file} cannot be written: {source}")]
    File { file: PathBuf, source: io::Error },
}

/// One line.
#[derive(Debug, PartialEq, Serialize)]
struct Line<'a> {
    at: f64,
    node: &'a str,
    home: &'a str,
    program: i32,
    cpus: f64,
    ran: f64,
    memory: u64,
    calls: f64,
}

/// What has been written down.
#[derive(Debug, Default)]
pub(crate) struct Told {
    file: PathBuf,
    seconds: u64,
    lines: u64,
    programs: HashSet<(String, i32)>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lines, programs, seconds) = (self.lines, self.programs.len(), self.seconds);
        let file = self.file.display();
        write!(
            f,
            "{programs} programs in {seconds} seconds, {lines} lines: whim-sim run --workload {file}"
        )
    }
}

/// Writes the record until the lab ends, or the time is over. Each second is on the disk when the next one
/// begins: whoever ends this command has what was until then.
///
/// # Errors
/// There is no such lab; the file is there already or cannot be written.
pub(crate) fn record(
    name: &str,
    file: &Path,
    seconds: Option<u64>,
) -> Result<Told, RecordingError> {
    if file.extension().is_none_or(|ending| ending != "jsonl") {
        return Err(RecordingError::Name(file.to_owned()));
    }
    let mut sockets = sockets(name)?;
    let broken = |source| RecordingError::File {
        file: file.to_owned(),
        source,
    };
    let mut out = BufWriter::new(File::create_new(file).map_err(broken)?);
    let begun = Instant::now();
    let mut told = Told {
        file: file.to_owned(),
        ..Told::default()
    };
    while !sockets.is_empty() && seconds.is_none_or(|seconds| told.seconds < seconds) {
        let at = begun.elapsed().as_secs_f64();
        for socket in &sockets {
            for row in rows(socket) {
                if write_row(&mut out, at, &row).map_err(broken)? {
                    told.lines += 1;
                    told.programs.insert((row.home, row.pid));
                }
            }
        }
        out.flush().map_err(broken)?;
        told.seconds += 1;
        let next = begun + EVERY * u32::try_from(told.seconds).unwrap_or(u32::MAX);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        // Nodes come and go.
        sockets = self::sockets(name).unwrap_or_default();
    }
    Ok(told)
}

/// The control sockets of a lab's nodes that are on, seen from here.
fn sockets(name: &str) -> Result<Vec<PathBuf>, LabError> {
    let on = Lab::open(name)?.status()?.nodes.into_iter();
    let on = on.filter(|node| node.state == NodeState::Up);
    Ok(on.filter_map(|node| Some(socket(node.pid?))).collect())
}

fn socket(pid: i32) -> PathBuf {
    let run = RUN_DIRECTORY.trim_start_matches('/');
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    root.join(run).join(SOCKET_NAME)
}

/// Programs whose home a node is; none, if it does not answer.
fn rows(socket: &Path) -> Vec<ProcessRow> {
    let mut rows = Vec::new();
    let take = |answer| {
        if let Answer::Process(row) = answer {
            rows.push(row);
        }
    };
    // One that does not answer has nothing in this second's lines.
    let _unanswered =
        Client::connect(socket).and_then(|mut c| c.ask(&Request::Processes { all: false }, take));
    rows
}

/// Whether there was something to write: what has just come was looked at once only.
fn write_row(out: &mut impl Write, at: f64, row: &ProcessRow) -> io::Result<bool> {
    let (Some(cpus), Some(ran), Some(calls)) = (row.cpus_wanted, row.cpus_got, row.home_calls)
    else {
        return Ok(false);
    };
    let line = Line {
        at: milli(at),
        node: &row.r#where,
        home: &row.home,
        program: row.pid,
        cpus: milli(cpus.max(ran)),
        ran: milli(ran),
        memory: row.memory_bytes,
        calls: milli(calls),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")?;
    Ok(true)
}

/// To three places: more would be noise.
fn milli(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
