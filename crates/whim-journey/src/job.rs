//! How the daemon starts a supervisor and talks to it.
//!
//! A supervisor reads one job, as a line of JSON, from its standard input, listens on the socket
//! whose descriptor it was started with, and then writes the line `ready` to its standard output
//! (or `failed: REASON`). It lives outside the daemon's cgroup, so the daemon may end and come
//! back: it then finds its supervisors by the sockets in the run directory. The sockets belong to
//! the daemon, and so does the journal, which a home supervisor gets as an open descriptor. A
//! supervisor can reach neither by name (ARCHITECTURE.md, "The line").
//!
//! On the socket each request is one line of JSON ([`Command`]), answered by lines of JSON
//! ([`Event`]), the last of which is `Done`, `Refused` or `Status`. `Command::Channel` is followed
//! by one descriptor (SCM_RIGHTS): a raw TCP connection whose TLS handshake has not begun. A
//! supervisor's answers deserve no more trust than the user that owns it, so the daemon checks and
//! bounds them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};
use thiserror::Error;
use whim_model::CpuTime;

/// A certificate of one journey: what `whim-net` calls `Credentials`, as JSON. It holds a private
/// key, so `Debug` shows nothing of it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialsJson(pub serde_json::Value);

impl std::fmt::Debug for CredentialsJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Why a supervisor has no job.
#[derive(Debug, Error)]
pub enum JobError {
    #[error("The job cannot be read")]
    Read(#[from] io::Error),
    #[error("The job is not understood")]
    NotUnderstood(#[from] serde_json::Error),
}

/// Reads a supervisor's job: a line of at most `limit` bytes. The end of a longer line is left
/// unread.
///
/// # Errors
/// The line cannot be read, or is no such job.
pub fn read<T: DeserializeOwned>(input: impl BufRead, limit: u64) -> Result<T, JobError> {
    let mut line = Vec::new();
    input.take(limit).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Job of the home supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeJob {
    pub journey: String,
    pub node: String,
    pub pid: i32,
    /// Field 22 of /proc/PID/stat. It shows whether the pid was reused since the daemon looked.
    pub start_time: u64,
    /// Descriptor of the listening unix socket.
    pub listener: i32,
    /// Descriptor of this journey's journal: lines of JSON, appended and synced.
    pub journal: i32,
    pub credentials: CredentialsJson,
    /// Time after which home gives up a host that does not answer (T2); null = never.
    pub lease_ms: Option<u64>,
    pub allow_root: bool,
    /// The uid that asked, for the log.
    pub requested_by: u32,
    /// Capabilities that the process had when the daemon last looked at it, bit n for capability n.
    /// If it has more by now, it stays.
    #[serde(default)]
    pub permitted: u64,
    /// How far the daemon's boot clock, by which it read the start time, is ahead of the machine's own.
    #[serde(default)]
    pub boot_offset_ns: i64,
    /// Where the supervisor ends or stops in a fault test (`whim_sys::crash`); null otherwise.
    #[serde(default)]
    pub crash_at: Option<String>,
}

/// Job of the guest supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestJob {
    pub journey: String,
    pub epoch: u32,
    /// This node, the host.
    pub node: String,
    pub home: String,
    /// The host from which the guest comes; null: from home.
    #[serde(default)]
    pub source: Option<String>,
    /// Descriptor of the listening unix socket.
    pub listener: i32,
    pub credentials: CredentialsJson,
    pub lease_ms: Option<u64>,
    /// uid and gid of the private range under which supervisor and guest run; null: keep ours
    /// (unprivileged mode).
    pub private_id: Option<u32>,
    /// Directory of the cgroups (v2, or one per v1 controller) made for this guest.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// What all guests of this node may use together, in bytes; null = no limit.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// File that holds the same limit as a number; its latest contents count. The supervisor whose
    /// guest leaves to make room locks it.
    #[serde(default)]
    pub memory_share: Option<String>,
    /// Whether the guest uses this host's vDSO where it is the same as home's.
    #[serde(default = "yes")]
    pub own_vdso: bool,
    #[serde(default)]
    pub crash_at: Option<String>,
}

fn yes() -> bool {
    true
}

/// Where a host expects a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub node: String,
    /// `HOST:PORT`, tried in order.
    pub addresses: Vec<String>,
    /// TLS server name that routes the connection to the waiting supervisor.
    pub server_name: String,
    pub epoch: u32,
}

/// What the daemon asks of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Move the computation to a host (from home, or onward).
    Move {
        slot: Slot,
    },
    /// Bring it home; `hold` keeps the supervisor so that the process stays where it is.
    Bring {
        hold: bool,
    },
    /// This node was removed from the cluster: if the process is there, it comes home. Nothing more
    /// is executed for that host, and the return is cut if it makes no progress.
    Evict {
        node: String,
    },
    Status,
    /// Which calls the process has forwarded since it left home.
    Calls,
    /// One descriptor follows.
    Channel,
}

/// Where a journey stands, printed as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Admit,
    Freeze,
    Capture,
    Transfer,
    Rebuild,
    Commit,
    Convert,
    Away,
    Onward,
    Home,
}

impl Phase {
    pub const ALL: [Self; 10] = [
        Self::Admit,
        Self::Freeze,
        Self::Capture,
        Self::Transfer,
        Self::Rebuild,
        Self::Commit,
        Self::Convert,
        Self::Away,
        Self::Onward,
        Self::Home,
    ];

    /// Its name; stable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Freeze => "freeze",
            Self::Capture => "capture",
            Self::Transfer => "transfer",
            Self::Rebuild => "rebuild",
            Self::Commit => "commit",
            Self::Convert => "convert",
            Self::Away => "away",
            Self::Onward => "onward",
            Self::Home => "home",
        }
    }
}

/// Writes and reads a phase as a text, in formats that would otherwise hold its number.
pub mod phase_name {
    use super::Phase;
    use serde::{Deserialize, Deserializer, Serializer};

    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(phase.name())
    }

    /// # Errors
    /// The text is not the name of a phase.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
        let word = String::deserialize(deserializer)?;
        let found = Phase::ALL.into_iter().find(|phase| phase.name() == word);
        found.ok_or_else(|| serde::de::Error::custom("no phase of a move has this name"))
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// State of a process, as `whim ps` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Home,
    Away,
    Moving,
    Stopped,
    InDoubt,
    Ended,
}

/// What a supervisor reports about its journey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub journey: String,
    pub pid: i32,
    pub home: String,
    /// Name of the node where the computation is now.
    pub location: String,
    pub state: State,
    pub phase: Phase,
    pub epoch: u32,
    pub moves: u32,
    pub supervisor_pid: i32,
    /// As last reported by the guest supervisor.
    pub cpu_ns: u64,
    /// Nanoseconds for which the threads of now have run or waited for a CPU of this host, and when that was counted,
    /// in milliseconds of that host's clock. Zeros of a supervisor that does not tell.
    #[serde(default)]
    pub busy_ns: u64,
    #[serde(default)]
    pub counted_ms: u64,
    pub resident_bytes: u64,
    pub forwarded_calls: u64,
    /// Threads that a tracer still holds until their call ends (see the user guide).
    pub held_threads: u32,
    pub reason: Option<String>,
}

/// Report of one move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    pub from: String,
    pub to: String,
    /// Name and duration of each phase, in milliseconds.
    pub phases: Vec<(Phase, f64)>,
    pub bytes: u64,
    pub pages: u64,
    /// From the first thread stopped to the last thread running again.
    pub freeze_ms: f64,
    pub total_ms: f64,
    /// Why the process was moved, if nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A line of a supervisor's answer, or of its journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Phase {
        phase: Phase,
        at_ms: f64,
    },
    Progress {
        bytes: u64,
        of: u64,
    },
    /// A sentence for whoever has asked for the move.
    Notice {
        text: String,
    },
    /// The work goes on, but there is no news. Sent because silence would mean that it does not go
    /// on.
    Working,
    Done {
        report: MoveReport,
    },
    Refused {
        reason: String,
        /// Whether the reason lies in the process itself: `reason` is then its stay reason, a
        /// sentence to be shown as such.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stays: bool,
    },
    Status {
        status: Status,
    },
    /// Forwarded calls since the process left home: name and how often. Also in the journal, at
    /// the end of each stay away.
    Calls {
        calls: Vec<(String, u64)>,
    },
    /// Journal only: the process was called home.
    Homeward {
        reason: String,
    },
    /// Journal only: a resource limit of the process is raised until the process has left. Both
    /// values are a soft and a hard limit. If the daemon finds the process at home without its
    /// supervisor, it puts the old limit back.
    Raised {
        resource: u32,
        before: (u64, u64),
        raised: (u64, u64),
    },
    /// Journal only: the point of no return of epoch `epoch`.
    Commit {
        epoch: u32,
        to: String,
    },
    /// Journal only: the guest has started, the original was converted.
    Acknowledged {
        epoch: u32,
    },
    /// Journal only: CPU time that the process has used away, at the end of a stay.
    CpuAway {
        time: CpuTime,
    },
    /// Journal only: how the journey ended.
    Ended {
        reason: String,
        status: Option<i32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_a_job_shows_no_key() {
        let text = r#"{"key_pem":"the key"}"#;
        let credentials: CredentialsJson = serde_json::from_str(text).expect("json");
        assert_eq!(serde_json::to_string(&credentials).expect("json"), text);
        assert!(!format!("{credentials:?}").contains("the key"));
    }
}
