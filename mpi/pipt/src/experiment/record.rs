//! What was measured, as it stands in the report's JSON, and how it is read from what programs print.

use super::Livecd;
use super::error::ExperimentError;
use serde::{Deserialize, Serialize};

/// Everything.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Outcome {
    pub setting: Setting,
    pub images: Vec<Picture>,
    /// By one process with one thread, outside of the lab.
    pub plain: Vec<Run>,
    /// With manager and workers over MPI, a rank in each node.
    pub ranks: Vec<Run>,
    pub spread: Spread,
    pub checks: Vec<Check>,
}

impl Outcome {
    /// The checks that did not pass, as sentences.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        let failed = self.checks.iter().filter(|check| !check.passed);
        failed
            .map(|check| format!("Not so: {}; {}", check.what, check.found))
            .collect()
    }

    /// Seconds of the half over MPI: its jobs, one after the other.
    #[must_use]
    pub fn ranks_seconds(&self) -> f64 {
        self.ranks.iter().map(|run| run.seconds).sum()
    }

    /// Seconds of the half that migrates: its groups, one after the other.
    #[must_use]
    pub fn spread_seconds(&self) -> f64 {
        self.spread.groups.iter().map(|group| group.seconds).sum()
    }
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Setting {
    pub version: &'static str,
    pub nodes: usize,
    pub cpus_of_node: f64,
    pub cpus_of_machine: usize,
    pub small: bool,
    pub window: u32,
    pub levels: u32,
    pub instructions: String,
    pub moves_max: u64,
    pub all_routines: bool,
}

impl Setting {
    #[must_use]
    pub fn of(asked: &Livecd, cpu: f64) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            nodes: asked.nodes,
            cpus_of_node: cpu,
            cpus_of_machine: std::thread::available_parallelism().map_or(1, usize::from),
            small: asked.small,
            window: asked.window,
            levels: asked.levels,
            instructions: asked.instructions.clone(),
            moves_max: asked.moves_max,
            all_routines: asked.all_routines,
        }
    }
}

/// An image as it is worked on.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Picture {
    pub image: String,
    pub width: u32,
    pub height: u32,
    pub bands: u32,
    pub kind: String,
    pub bytes: u64,
}

/// A routine over all images.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Run {
    pub routine: String,
    /// From the start of its program to its end, with all that belongs to starting it.
    pub seconds: f64,
    pub images: Vec<Timed>,
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Timed {
    pub image: String,
    pub seconds: f64,
    /// Of the file that was written.
    pub sha256: String,
}

/// The half that migrates.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub struct Spread {
    pub runs: Vec<Run>,
    pub groups: Vec<Started>,
    pub processes: Vec<Process>,
    /// In their order.
    pub moves: Vec<Move>,
    pub looks: Vec<Look>,
}

/// Routines that were started at the same time.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Started {
    pub routines: Vec<String>,
    /// Milliseconds since 1970.
    pub begin_ms: u64,
    /// Until the last of them had ended.
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Process {
    pub routine: String,
    pub pid: i64,
    /// As its home counts them.
    pub moves: u64,
    pub begin_ms: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Move {
    pub routine: String,
    pub pid: i64,
    /// Its end.
    pub time_ms: u64,
    pub from: String,
    pub to: String,
    pub cause: String,
    pub bytes: u64,
    pub freeze_ms: f64,
    pub total_ms: f64,
}

/// Who ran where at a moment.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Look {
    pub time_ms: u64,
    /// Which group, from 0.
    pub group: usize,
    /// Routines and nodes.
    pub places: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Check {
    pub what: String,
    pub passed: bool,
    pub found: String,
}

/// A line of `pipt run --json`.
#[derive(Debug, Deserialize)]
pub struct Written {
    pub written: std::path::PathBuf,
    pub seconds: f64,
    pub ranks: usize,
}

/// A line of `whim ps --json`, as far as it is wanted.
#[derive(Debug, Deserialize)]
pub struct Seen {
    pub pid: i64,
    #[serde(rename = "where")]
    pub place: String,
    pub state: String,
    pub moves: u64,
    pub command: String,
}

/// A line of `whim history --json`: a minute, or a move.
#[derive(Debug, Deserialize)]
#[serde(tag = "history", rename_all = "lowercase")]
pub enum Kept {
    Sample {},
    Move(Moved),
}

#[derive(Debug, Deserialize)]
pub struct Moved {
    pub time_ms: u64,
    pub pid: i64,
    pub from: String,
    pub to: String,
    pub cause: String,
    pub outcome: String,
    pub bytes: u64,
    pub freeze_ms: f64,
    pub total_ms: f64,
}

/// The objects among what a program printed, one a line; other lines are passed over.
///
/// # Errors
///
/// An object is another one than expected.
pub fn objects<T: for<'a> Deserialize<'a>>(
    what: &'static str,
    said: &str,
) -> Result<Vec<T>, ExperimentError> {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let object = |line: &str| {
        serde_json::from_str(line).map_err(|_| ExperimentError::Output(what, line.to_owned()))
    };
    lines.map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `whim` of this version prints them.
    const HISTORY: &str = "{\"history\":\"sample\",\"time_ms\":1,\"span_ms\":60000}\n\
        {\"history\":\"move\",\"time_ms\":1795564648552,\"pid\":69,\"program\":\"pipt\",\"uid\":0,\"from\":\"n1\",\
        \"to\":\"n3\",\"cause\":\"load\",\"outcome\":\"done\",\"phase\":null,\"reason\":null,\"bytes\":23400448,\
        \"freeze_ms\":165.348578,\"total_ms\":399.743429}\n";

    #[test]
    fn moves_are_read_and_minutes_are_passed_over() {
        let kept: Vec<Kept> = objects("whim history", HISTORY).expect("both are known");
        let [Kept::Sample {}, Kept::Move(moved)] = kept.as_slice() else {
            panic!("{kept:?}");
        };
        assert_eq!(
            (moved.pid, moved.from.as_str(), moved.to.as_str()),
            (69, "n1", "n3")
        );
        assert_eq!(moved.outcome, "done");
    }

    #[test]
    fn what_ranks_print_besides_is_passed_over_and_what_is_odd_is_refused() {
        let said = "what another program says\n{\"written\":\"a.tif\",\"seconds\":0.5,\"ranks\":3,\"bytes\":1}\n";
        let written: Vec<Written> = objects("pipt run", said).expect("one");
        assert_eq!((written.len(), written[0].ranks), (1, 3));
        let error = objects::<Written>("pipt run", "{\"other\":1}").expect_err("no file");
        assert!(error.to_string().contains("pipt run"), "{error}");
    }
}
