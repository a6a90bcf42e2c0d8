//! One attempt to move a process, from its reservation until its outcome is noted. There is no other way
//! to move a process. Why it moves, who hears of the move and how it ended are all kept here.

use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedSender;
use whim_control::history::{MoveRow, Outcome};
use whim_control::protocol::{Answer, NodeState};
use whim_journey::cause::Cause;
use whim_journey::job::{MoveReport, Phase};
use whim_machine::class::Difference;
use whim_machine::process::Process;
use whim_machine::processes::{self, Credentials, ProcessError, Stat};
use whim_metrics::labels::Refusal;
use whim_net::name::NameError;

use crate::host::orders::Shut;
use crate::line::conversation::SupervisorError;
use crate::line::probes::NotSeen;
use crate::members::cluster::{CallError, ClusterError};
use crate::moves::Moves;
use crate::moves::candidate::{Candidate, LastMove};
use crate::moves::census::Census;
use crate::moves::journeys::Journey;
use crate::moves::trial::Trial;
use crate::past::events::now_ms;
use whim_metrics::Metrics;

#[derive(Debug, Error)]
pub(crate) enum MoveError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    NotSeen(#[from] NotSeen),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("There is no node {node} in this cluster; it has: {known}{meant}")]
    UnknownNode {
        node: String,
        /// A question, or nothing.
        meant: String,
        known: String,
    },
    #[error("Node {node} does not answer: it is {state}")]
    NotUp { node: String, state: NodeState },
    #[error("{0}; 'whim doctor' says how to be a member again")]
    Removed(String),
    #[error("Node {node} is being drained: it takes no guests")]
    Draining { node: String },
    #[error("Node {node} takes no guests now: {why}")]
    Shut { node: String, why: Shut },
    #[error("Node {node} is of another kind than this one: {what}")]
    OtherClass { node: String, what: Difference },
    #[error("Process {pid} is on {node} already")]
    There { pid: i32, node: String },
    #[error("Process {0} is at home already")]
    AtHome(i32),
    #[error("Process {0} is being moved just now: try again when that is done")]
    Busy(i32),
    #[error(
        "No other node can take process {0} now: 'whim nodes' shows who is up, 'whim why {0}' what is asked of them"
    )]
    NoneBest(i32),
    #[error("No node with the label @{} can take process {pid} now: 'whim nodes' shows them", .label.escape_debug())]
    NoneLabelled { pid: i32, label: String },
    #[error("Process {pid} cannot move now. {}", .reasons.join(" "))]
    Stay { pid: i32, reasons: Vec<String> },
    #[error("Process {pid} may not go to {node}. {why}.")]
    Forbidden { pid: i32, node: String, why: String },
    #[error(
        "Without root this daemon can move only processes of its own user, and process {0} is not one"
    )]
    OtherUser(i32),
    #[error("Node {node} cannot be asked for room: {source}")]
    Call { node: String, source: CallError },
    #[error("{0}")]
    Refused(String),
    #[error("Node {0} gave an answer that makes no sense: upgrade the older of the two nodes")]
    Nonsense(String),
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    #[error("The home supervisor ended before it said anything")]
    Silent,
}

impl MoveError {
    /// What a supervisor has refused. A sentence about the process itself is a reason to stay, as it is at home.
    pub(crate) fn refused(pid: i32, reason: String) -> Self {
        if reason.starts_with("It ") {
            let reasons = vec![format!("{reason}.")];
            return Self::Stay { pid, reasons };
        }
        Self::Refused(reason)
    }

    /// The reason alone, for who has named the process already.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Stay { reasons, .. } => reasons.join(" "),
            other => other.to_string(),
        }
    }

    /// The supervisor of the process is there, but no usable answer is to be had from it.
    #[must_use]
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Supervisor(error) if error.is_useless())
    }

    /// How the metrics count this error, for a move that has not begun.
    fn label(&self) -> Refusal {
        match self {
            Self::Stay { .. } => Refusal::Stay,
            Self::OtherClass { .. } => Refusal::Kind,
            Self::Forbidden { .. } => Refusal::Bounds,
            Self::There { .. } | Self::AtHome(_) => Refusal::There,
            Self::Busy(_) => Refusal::Busy,
            Self::Process(_) | Self::OtherUser(_) => Refusal::Process,
            _ => Refusal::Node,
        }
    }

    /// The supervisor ended before it answered, perhaps with its process.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Supervisor(
                SupervisorError::Gone(_)
                    | SupervisorError::Unnoted
                    | SupervisorError::Broken { .. }
            ) | Self::Silent
        )
    }
}

/// A process that the caller may move.
#[derive(Debug)]
pub(crate) struct Target {
    pub process: Arc<Process>,
    pub stat: Stat,
    pub credentials: Credentials,
    pub candidate: Candidate,
    /// If it has become a candidate by this request.
    pub trial: Option<Trial>,
    pub journey: Option<Journey>,
}

/// Where answers for the user go. A move does not stop when nobody listens any more.
pub(crate) type Answers = UnboundedSender<Answer>;

/// One try to move a process, which is reserved for it; dropped when the move is over.
#[derive(Debug)]
pub(crate) struct Attempt {
    moves: Arc<Moves>,
    pid: i32,
    cause: Cause,
    /// The node to which it is to go.
    to: String,
    since: Instant,
    /// Who is told how the move goes; `None` if nobody waits for it.
    heard_by: Option<Answers>,
}

impl Attempt {
    /// Reserves a process for one move: to a node, or to [`HOME`].
    ///
    /// # Errors
    /// [`MoveError::Busy`]
    pub(crate) fn begin(
        moves: &Arc<Moves>,
        pid: i32,
        (cause, to): (Cause, &str),
        heard_by: Option<&Answers>,
    ) -> Result<Self, MoveError> {
        if !moves.under_way().begin(pid) {
            return Err(MoveError::Busy(pid));
        }
        Ok(Self {
            moves: Arc::clone(moves),
            pid,
            cause,
            to: to.to_owned(),
            since: Instant::now(),
            heard_by: heard_by.cloned(),
        })
    }

    /// Sends the same process to another node instead. The caller has noted the outcome of the first move.
    #[must_use]
    pub(crate) fn turned_to(mut self, node: &str) -> Self {
        self.moves.under_way().begin_again(self.pid);
        node.clone_into(&mut self.to);
        self.since = Instant::now();
        self
    }

    #[must_use]
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    #[must_use]
    pub(crate) fn node(&self) -> &str {
        &self.to
    }

    /// The move has come to this phase. Before its first phase it may still be refused.
    pub(crate) fn came_to(&self, phase: Phase) {
        if self.moves.under_way().came_to(self.pid, phase) {
            self.moves
                .ground()
                .metrics()
                .counters()
                .move_begun(self.cause);
        }
    }

    pub(crate) fn tell(&self, answer: Answer) {
        if let Some(answers) = &self.heard_by {
            let _ = answers.send(answer);
        }
    }

    /// Counts the move, and notes its outcome in the log, in the history and at the candidate.
    pub(crate) fn note(&self, result: &Result<MoveReport, MoveError>) {
        let (moves, elapsed) = (&self.moves, self.since.elapsed());
        self.count(result, elapsed);
        moves.ground().settings().faults.point("before-move-logged");
        match result {
            Ok(report) => {
                let other = match self.to.as_str() {
                    HOME => &report.from,
                    node => node,
                };
                let mut peers = moves.ground().peers();
                peers.moved(other, report.bytes, report.freeze_ms);
                drop(peers);
                let text = format!(
                    "{} to {}: {} bytes, frozen {:.1} ms, {:.0} ms in all; cause: {}",
                    report.from,
                    report.to,
                    report.bytes,
                    report.freeze_ms,
                    report.total_ms,
                    self.cause.name()
                );
                moves.ground().events().add(Some(self.pid), "moved", text);
                remember(moves.census(), self.pid, report, self.cause);
            }
            Err(error) => {
                let cause = self.cause.name();
                let text = format!("To {}: {error}", self.to);
                moves.census().candidates().note_failure(self.pid, &text);
                let text = format!("{text} (cause: {cause})");
                moves.ground().events().add(Some(self.pid), "refused", text);
            }
        }
    }

    fn count(&self, result: &Result<MoveReport, MoveError>, elapsed: Duration) {
        let (moves, pid) = (&self.moves, self.pid);
        let counters = moves.ground().metrics().counters();
        let phase = moves.under_way().phase(pid);
        let journey = moves.journeys().of_process(pid).cloned();
        let row = MoveRow {
            total_ms: elapsed.as_secs_f64() * 1000.0,
            ..row(moves, (pid, self.cause), journey.as_ref())
        };
        let row = match (result, phase) {
            (Ok(report), _) => {
                let freeze_seconds = report.freeze_ms / 1000.0;
                let seconds = elapsed.as_secs_f64();
                counters.move_done(self.cause, report.bytes, freeze_seconds, seconds);
                MoveRow {
                    from: report.from.clone(),
                    to: report.to.clone(),
                    bytes: report.bytes,
                    freeze_ms: report.freeze_ms,
                    // As the log and the command count it: the supervisor's own time.
                    total_ms: report.total_ms,
                    ..row
                }
            }
            (Err(error), Some(phase)) => {
                counters.move_failed(self.cause, phase);
                MoveRow {
                    to: match self.to.as_str() {
                        HOME => moves.ground().cluster().node(),
                        node => node.to_owned(),
                    },
                    outcome: Outcome::Failed,
                    phase: Some(phase.name().to_owned()),
                    reason: Some(error.to_string()),
                    ..row
                }
            }
            (Err(error), None) => return count_refusal(moves.ground().metrics(), error),
        };
        moves.ground().history().note(row);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let now = self.moves.ground().clock_ms();
        self.moves.under_way().end(self.pid, now);
        self.moves.ended().notify_one();
    }
}

/// Stands for the home node, whatever its name is.
pub(crate) const HOME: &str = "home";

/// A move was asked for and refused before it began.
pub(crate) fn count_refusal(metrics: &Metrics, error: &MoveError) {
    metrics.counters().move_refused(error.label());
}

/// Counts and remembers a return that nobody asked for. This is done at the end of the journey, with
/// what its journal tells.
pub(crate) fn note_return(moves: &Moves, journey: &Journey, report: &MoveReport) {
    // From a host that was removed it comes home on the word of its home's daemon.
    let host = moves.ground().cluster().member(&report.from);
    let cause = host.map_or(Cause::Order, |_| Cause::Itself);
    let counters = moves.ground().metrics().counters();
    counters.move_begun(cause);
    let (frozen, took) = (report.freeze_ms / 1000.0, report.total_ms / 1000.0);
    counters.move_done(cause, report.bytes, frozen, took);
    let pid = journey.about.pid;
    moves.ground().history().note(MoveRow {
        from: report.from.clone(),
        reason: report.reason.clone(),
        bytes: report.bytes,
        freeze_ms: report.freeze_ms,
        total_ms: report.total_ms,
        ..row(moves, (pid, cause), Some(journey))
    });
    remember(moves.census(), pid, report, cause);
}

/// Notes the last move of a process, which is known for as long as the process lives.
fn remember(census: &Census, pid: i32, report: &MoveReport, cause: Cause) {
    let last_move = LastMove {
        at_ms: now_ms(),
        from: report.from.clone(),
        to: report.to.clone(),
        cause,
    };
    census.candidates().note_move(pid, last_move);
}

/// Stands for the name of a program that ended before anybody asked for it.
const GONE: &str = "(ended)";

/// A process and where it is, for the history.
fn row(moves: &Moves, (pid, cause): (i32, Cause), journey: Option<&Journey>) -> MoveRow {
    let own = moves.ground().cluster().node();
    let command = journey.map_or_else(|| moves.probes().command(pid), |j| j.about.command.clone());
    // The owner of a process that is gone cannot be found any more. The process was moved by its user,
    // or by an administrator.
    let asked = journey.map_or(0, |journey| journey.about.requested_by);
    let uid = processes::credentials(pid).map_or(asked, |credentials| credentials.uids[0]);
    let program = match processes::program(&command) {
        "" => GONE,
        name => name,
    };
    MoveRow {
        time_ms: now_ms(),
        pid,
        program: program.to_owned(),
        uid,
        from: journey.map_or(own.as_str(), Journey::location).to_owned(),
        to: own,
        cause,
        outcome: Outcome::Done,
        phase: None,
        reason: None,
        bytes: 0,
        freeze_ms: 0.0,
        total_ms: 0.0,
    }
}
