//! Moves of this node's own processes: `migrate`, `bring`, `go`.

use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedSender;
use whim_journey::job::{Command, Event, MoveReport, State};
use whim_metrics::labels::{Cause, Phase};

use crate::daemon::Daemon;
use crate::faces::metrics_words as words;
use crate::line::conversation::Conversation;
use crate::line::hearsay::{Account, Heard};
use crate::line::looking::{NotSeen, Patience};
use crate::line::supervisor::SupervisorError;
use crate::members::cluster::{CallError, ClusterError};
use crate::moves::candidates::{Candidate, Declaration};
use crate::moves::departing::{admit, new_journey, release, start_home, write_about};
use crate::moves::destinations::{best, best_labelled, check, least_loaded};
use crate::moves::journeys::{About, Journey, Notes};
use crate::moves::stay;
use crate::moves::watching;
use crate::past::events::now_ms;
use crate::settings::socket_in;
use whim_control::history::{MoveRow, Outcome};
use whim_control::protocol::{Answer, NodeState, RunOptions};
use whim_machine::class::Difference;
use whim_machine::process::Process;
use whim_machine::processes::{self, Caller, Credentials, ProcessError, Stat};

/// Freezes longer than this are said beforehand, in seconds.
const LONG_FREEZE: f64 = 1.0;
#[derive(Debug, Error)]
pub enum MoveError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    NotSeen(#[from] NotSeen),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("There is no node {node} in this cluster; it has: {known}")]
    UnknownNode { node: String, known: String },
    #[error("Node {node} does not answer: it is {state}")]
    NotUp { node: String, state: NodeState },
    #[error("{0}; 'whim doctor' says how to be a member again")]
    Removed(String),
    #[error("Node {node} is being drained: it takes no guests")]
    Draining { node: String },
    #[error("Node {node} takes no guests now: it is blocked ('whim unblock' there lets them in)")]
    Blocked { node: String },
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
    #[error("No node with the label @{label} can take process {pid} now: 'whim nodes' shows them")]
    NoneLabelled { pid: i32, label: String },
    #[error("Process {pid} cannot move now. {}", .reasons.join(" "))]
    Stay { pid: i32, reasons: Vec<String> },
    #[error("{0}")]
    Forbidden(String),
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
    /// Its supervisor is there, and does not answer.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Supervisor(error) if error.is_useless())
    }

    /// The supervisor ended before it said anything.
    fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Supervisor(SupervisorError::Gone(_)) | Self::Silent
        )
    }
}

/// Where answers for the user go; that nobody listens any more is no reason to stop.
pub type Answers = UnboundedSender<Answer>;

fn tell(answers: &Answers, answer: Answer) {
    let _ = answers.send(answer);
}

/// A process that the caller may move.
#[derive(Debug)]
pub struct Target {
    pub process: Arc<Process>,
    pub stat: Stat,
    pub credentials: Credentials,
    pub candidate: Candidate,
    pub journey: Option<Journey>,
}

fn target(daemon: &Daemon, caller: &Caller, process: Arc<Process>) -> Result<Target, MoveError> {
    let credentials = process.movable_by(caller)?;
    let declaration = Declaration::by(caller, &credentials);
    found(daemon, process, credentials, declaration)
}

fn opened(daemon: &Daemon, caller: &Caller, pid: i32) -> Result<Target, MoveError> {
    target(daemon, caller, Arc::new(Process::open(pid)?))
}

/// A process that may be moved, whoever asks. If it is in nobody's hands, or in those of one who may not move
/// it, the declaration puts it into ours.
fn found(
    daemon: &Daemon,
    process: Arc<Process>,
    credentials: Credentials,
    declaration: Declaration,
) -> Result<Target, MoveError> {
    let stat = process.stat()?;
    let pid = stat.pid;
    if !daemon.settings.root && credentials.uids[0] != nix::unistd::geteuid().as_raw() {
        return Err(MoveError::OtherUser(pid));
    }
    let job = process.look(|pid| daemon.job_of(pid, Patience::Long))??;
    let mut candidates = daemon.candidates();
    let known = candidates
        .get(pid)
        .filter(|known| known.start_time == stat.start_time)
        .cloned();
    let mut refused = None;
    let candidate = match known {
        Some(known) if known.check(&process).is_ok() => known,
        // Whoever asks for a move by pid adopts the process by that.
        known => {
            let candidate = Candidate {
                job,
                moves: known.map_or(0, |known| known.moves),
                ..Candidate::new(&stat, RunOptions::default(), declaration)
            };
            match candidates.add(candidate.clone()) {
                Ok(()) => daemon.save_candidates(&candidates),
                Err(full) => refused = Some(full.to_string()),
            }
            candidate
        }
    };
    drop(candidates);
    let journey = daemon.journeys().of_process(pid).cloned();
    let journey = journey.filter(|journey| journey.about.start_time == stat.start_time);
    // What is away comes home, whether it is noted or not.
    if let (Some(refused), None) = (refused, &journey) {
        return Err(MoveError::Refused(refused));
    }
    Ok(Target {
        process,
        stat,
        credentials,
        candidate,
        journey,
    })
}

/// That it may still be moved, with the rights that it had when it was found: what has been asked for takes
/// its time.
fn still_may(caller: &Caller, target: &Target) -> Result<(), MoveError> {
    let now = target.process.movable_by(caller)?;
    let more = now.permitted_capabilities & !target.credentials.permitted_capabilities;
    if now.ids() != target.credentials.ids() || more != 0 {
        return Err(ProcessError::Changed(target.process.pid()).into());
    }
    Ok(target.process.lives()?)
}

/// `whim adopt PID`: it may move from now on.
///
/// # Errors
/// Wrong pid, or not the caller's.
pub fn adopt(daemon: &Daemon, caller: &Caller, pid: i32) -> Result<String, MoveError> {
    let target = opened(daemon, caller, pid)?;
    daemon.refresh_candidates();
    if let Some(journey) = target
        .journey
        .as_ref()
        .filter(|journey| !journey.is_at_home())
    {
        let at = journey.location();
        return Ok(format!("Process {pid} is known already: it is on {at}"));
    }
    let reasons = target.process.look(|pid| stay::reasons(daemon, pid))?;
    let command = target.process.look(|pid| daemon.looking.command(pid))?;
    Ok(match reasons.first() {
        Some(reason) => {
            format!("Process {pid} ({command}) is known now. At the moment it stays: {reason}")
        }
        None => format!("Process {pid} ({command}) may move now"),
    })
}

/// `whim migrate PID NODE|home|best`.
///
/// # Errors
/// Why not, as a sentence; the process is then where it was, unharmed.
pub async fn migrate(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    pid: i32,
    to: &str,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let process = Process::open(pid).map_err(MoveError::from);
    let process = process.inspect_err(|error| count_refusal(daemon, error))?;
    let process = Arc::new(process);
    migrate_for(daemon, caller, process, to, Cause::User, answers).await
}

/// The same, whoever wants it, of a process that is held already.
///
/// # Errors
/// As [`migrate`].
pub async fn migrate_for(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    process: Arc<Process>,
    to: &str,
    cause: Cause,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let pid = process.pid();
    let refused = |error: &MoveError| count_refusal(daemon, error);
    let found = target(daemon, caller, Arc::clone(&process)).inspect_err(refused)?;
    let home = daemon.cluster.node();
    if to == "home" || (to == home && daemon.cluster.member(to).is_none_or(|m| m.name == home)) {
        return bring_for(daemon, found, false, cause, answers)
            .await?
            .ok_or(MoveError::AtHome(pid))
            .inspect_err(refused);
    }
    let node = match to.strip_prefix('@') {
        Some(label) => best_labelled(daemon, &found, label),
        None if to == "best" => best(daemon, &found),
        None => Ok(to.to_string()),
    };
    let node = node.inspect_err(refused)?;
    check(daemon, &found, &node).inspect_err(refused)?;
    let moving = daemon.begin_move(pid, cause).ok_or(MoveError::Busy(pid));
    let _moving = moving.inspect_err(refused)?;
    if let Some(candidate) = daemon.candidates().get_mut(pid) {
        candidate.found = None;
    }
    let began = Instant::now();
    let result = match &found.journey {
        Some(journey) => match onward(daemon, &found, journey, &node, answers).await {
            // Its supervisor ended while we asked. If the process has come home, a new journey
            // begins; if it has ended, that is what there is to say.
            Err(error) if error.is_silence() => {
                watching::settle(daemon, &journey.about.journey).await;
                let found = target(daemon, caller, process)?;
                if found.journey.is_some() {
                    return Err(error);
                }
                leave(daemon, caller, &found, &node, answers).await
            }
            result => result,
        },
        None => leave(daemon, caller, &found, &node, answers).await,
    };
    note(daemon, pid, &node, &result, began.elapsed());
    result
}

fn count_refusal(daemon: &Daemon, error: &MoveError) {
    daemon
        .metrics
        .counters()
        .move_refused(words::refusal(error));
}

/// Counts a request that has ended, and takes the move into the history, if one had begun.
fn count(
    daemon: &Daemon,
    pid: i32,
    node: &str,
    result: &Result<MoveReport, MoveError>,
    elapsed: Duration,
) {
    let counters = daemon.metrics.counters();
    let Some(under_way) = daemon.under_way(pid) else {
        return;
    };
    let cause = under_way.cause;
    let journey = daemon.journeys().of_process(pid).cloned();
    let row = MoveRow {
        cause: cause.word().to_owned(),
        total_ms: elapsed.as_secs_f64() * 1000.0,
        ..row(daemon, pid, journey.as_ref())
    };
    let row = match (result, under_way.phase) {
        (Ok(report), _) => {
            let freeze_seconds = report.freeze_ms / 1000.0;
            counters.move_done(cause, report.bytes, freeze_seconds, elapsed.as_secs_f64());
            MoveRow {
                from: report.from.clone(),
                to: report.to.clone(),
                bytes: report.bytes,
                freeze_ms: report.freeze_ms,
                ..row
            }
        }
        (Err(error), Some(phase)) => {
            counters.move_failed(cause, phase);
            MoveRow {
                to: match node {
                    "home" => daemon.cluster.node(),
                    node => node.to_owned(),
                },
                outcome: Outcome::Failed,
                phase: Some(phase.word().to_owned()),
                reason: Some(error.to_string()),
                ..row
            }
        }
        (Err(error), None) => return count_refusal(daemon, error),
    };
    daemon.history.note(row);
}

/// A process and where it is, for the history.
pub fn row(daemon: &Daemon, pid: i32, journey: Option<&Journey>) -> MoveRow {
    let own = daemon.cluster.node();
    let command = journey.map_or_else(|| daemon.looking.command(pid), |j| j.about.command.clone());
    // Whose it is cannot be told any more when it is gone: who has moved it is its user, or root.
    let asked = journey.map_or(0, |journey| journey.about.requested_by);
    let uid = processes::credentials(pid).map_or(asked, |credentials| credentials.uids[0]);
    MoveRow {
        time_ms: now_ms(),
        pid,
        program: processes::program(&command).to_owned(),
        uid,
        from: journey.map_or(own.as_str(), Journey::location).to_owned(),
        to: own,
        cause: String::new(),
        outcome: Outcome::Done,
        phase: None,
        reason: None,
        bytes: 0,
        freeze_ms: 0.0,
        total_ms: 0.0,
    }
}

fn note(
    daemon: &Daemon,
    pid: i32,
    node: &str,
    result: &Result<MoveReport, MoveError>,
    elapsed: Duration,
) {
    count(daemon, pid, node, result, elapsed);
    daemon.settings.faults.point("before-move-logged");
    match result {
        Ok(report) => {
            daemon.peers().moved(node, report.bytes, report.freeze_ms);
            let text = format!(
                "{} to {}: {} bytes, frozen {:.1} ms, {:.0} ms in all",
                report.from,
                report.to,
                report.bytes,
                report.freeze_ms,
                elapsed.as_secs_f64() * 1000.0
            );
            daemon.events.add(Some(pid), "moved", text);
        }
        Err(error) => daemon
            .events
            .add(Some(pid), "refused", format!("To {node}: {error}")),
    }
}

/// Says beforehand what takes long.
fn announce(daemon: &Daemon, node: &str, bytes: u64, answers: &Answers) {
    let seconds = daemon.peers().expected_freeze(node, bytes);
    if seconds > LONG_FREEZE {
        let text = format!(
            "{} MiB have to travel: the process will stand still for about {seconds:.0} s",
            bytes >> 20
        );
        tell(answers, Answer::Notice { text });
    }
}

/// From home: a new journey.
async fn leave(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    target: &Target,
    node: &str,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let pid = target.stat.pid;
    let reasons = stay::lasting_reasons(daemon, pid).await;
    target.process.lives()?;
    if !reasons.is_empty() {
        return Err(MoveError::Stay { pid, reasons });
    }
    let about = About {
        journey: new_journey(pid)?,
        pid,
        start_time: target.stat.start_time,
        command: target.process.look(|pid| daemon.looking.command(pid))?,
        home: daemon.cluster.node(),
        requested_by: caller.uid,
        begun_ms: now_ms(),
        run: target.candidate.options.run.clone(),
        moves_before: target.candidate.moves,
        guest_supervisor_pid: None,
        notes: Notes::default(),
        end: None,
    };
    announce(daemon, node, target.stat.resident_bytes, answers);
    daemon.came_to(pid, Phase::Admit);
    let (slot, guest_pid) = admit(daemon, target, &about.journey, node, 1).await?;
    let started = match still_may(caller, target) {
        Ok(()) => start_home(daemon, target, &about).await,
        refused => refused,
    };
    if let Err(error) = started {
        release(daemon, node, &about.journey, 1).await;
        return Err(error);
    }
    travel(
        daemon,
        &about.journey,
        Command::Move { slot },
        Some(guest_pid),
        answers,
    )
    .await
}

/// From one host to another: the journey goes on.
async fn onward(
    daemon: &Arc<Daemon>,
    target: &Target,
    journey: &Journey,
    node: &str,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let id = &journey.about.journey;
    let epoch = {
        let mut journeys = daemon.journeys();
        let journey = journeys.by_id.get_mut(id);
        let journey = journey.ok_or(ProcessError::Gone(target.stat.pid))?;
        journey.epoch = journey.epoch.saturating_add(1);
        journey.epoch
    };
    let bytes = journey
        .status
        .as_ref()
        .map_or(0, |status| status.resident_bytes);
    announce(daemon, node, bytes, answers);
    daemon.came_to(target.stat.pid, Phase::Admit);
    let (slot, guest_pid) = admit(daemon, target, id, node, epoch).await?;
    let travelled = travel(daemon, id, Command::Move { slot }, Some(guest_pid), answers).await;
    if travelled.is_err() {
        release(daemon, node, id, epoch).await;
    }
    travelled
}

/// Lets the supervisor move the process and passes on what it says.
async fn travel(
    daemon: &Arc<Daemon>,
    id: &str,
    command: Command,
    guest_pid: Option<i32>,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let socket = socket_in(&daemon.settings.home_directory(id));
    // A journey that never began is forgotten as soon as its supervisor has ended.
    let bound_for = |bound_for: Option<(String, u32)>| {
        let mut journeys = daemon.journeys();
        journeys.by_id.get_mut(id).map_or(0, |journey| {
            journey.bound_for = bound_for;
            journey.about.pid
        })
    };
    let pid = bound_for(match &command {
        Command::Move { slot } => Some((slot.node.clone(), slot.epoch)),
        _ => None,
    });
    if matches!(command, Command::Bring { .. }) {
        daemon.came_to(pid, Phase::Home);
    }
    daemon.settings.faults.point("before-command");
    let older = daemon
        .journeys()
        .by_id
        .get(id)
        .and_then(|j| j.about.notes.older);
    let conversation = match Conversation::begin(&socket, older, &command).await {
        // It has hung up on us in the moment in which it ended.
        Err(SupervisorError::Broken { .. }) => Err(MoveError::Silent),
        begun => Ok(begun?),
    };
    daemon.settings.faults.point("after-command");
    let result = match conversation {
        Ok(conversation) => hear_out(daemon, pid, conversation, answers).await,
        Err(error) => Err(error),
    };
    // A supervisor that did not say how it went may be dead: whoever notes its end needs to know.
    if !matches!(result, Err(MoveError::Silent | MoveError::Supervisor(_))) {
        bound_for(None);
    }
    daemon.settings.faults.point("before-move-noted");
    if result.is_ok()
        && let Some(journey) = daemon.journeys().by_id.get_mut(id)
    {
        journey.about.guest_supervisor_pid = guest_pid;
        if let Err(error) = write_about(daemon, &journey.about) {
            tracing::warn!(%error, journey = id, "a move was not noted");
        }
    }
    daemon.settings.faults.point("after-move-noted");
    watching::refresh(daemon, id).await;
    result
}

/// Passes on what a supervisor says of a move, within limits, until it says how the move went.
async fn hear_out(
    daemon: &Daemon,
    pid: i32,
    mut conversation: Conversation,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let mut account = Account::default();
    let mut heard = false;
    loop {
        let event = match conversation.next().await {
            Ok(event) => event,
            Err(SupervisorError::Broken { .. }) if !heard => return Err(MoveError::Silent),
            Err(error) => return Err(error.into()),
        };
        heard = true;
        match account.hear(event, Instant::now()) {
            Heard::Done(report) => return Ok(report),
            Heard::Refused {
                reason,
                stays: true,
            } => return Err(found_stay(daemon, pid, &reason)),
            Heard::Refused { reason, .. } => return Err(MoveError::Refused(reason)),
            Heard::Nothing => {}
            Heard::Nonsense => return Err(conversation.nonsense().into()),
            Heard::Tell(event) => {
                if let Event::Phase { phase, .. } = event {
                    daemon.came_to(pid, words::phase(phase));
                }
                daemon.settings.faults.point("phase-heard");
                tell(answers, Answer::Journey { event });
            }
        }
    }
}

/// A reason to stay that only the stopped process showed; `ps` and `why` tell it until the next try.
fn found_stay(daemon: &Daemon, pid: i32, reason: &str) -> MoveError {
    let sentence = format!("{reason}.");
    if let Some(candidate) = daemon.candidates().get_mut(pid) {
        candidate.found = Some(sentence.clone());
    }
    MoveError::Stay {
        pid,
        reasons: vec![sentence],
    }
}

/// `whim bring [--hold] PID`; `None`: it was at home.
///
/// # Errors
/// Why not, as a sentence.
pub async fn bring(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    pid: i32,
    hold: bool,
    answers: &Answers,
) -> Result<Option<MoveReport>, MoveError> {
    let found = opened(daemon, caller, pid).inspect_err(|error| count_refusal(daemon, error))?;
    bring_for(daemon, found, hold, Cause::User, answers).await
}

async fn bring_for(
    daemon: &Arc<Daemon>,
    found: Target,
    hold: bool,
    cause: Cause,
    answers: &Answers,
) -> Result<Option<MoveReport>, MoveError> {
    let pid = found.stat.pid;
    let refused = |error: &MoveError| count_refusal(daemon, error);
    if hold {
        hold_at_home(daemon, &found.stat, true);
    }
    let Some(journey) = found.journey.filter(|j| j.state() != State::Home) else {
        return Ok(None);
    };
    let moving = daemon.begin_move(pid, cause).ok_or(MoveError::Busy(pid));
    let _moving = moving.inspect_err(refused)?;
    let began = Instant::now();
    let id = &journey.about.journey;
    let result = travel(daemon, id, Command::Bring { hold }, None, answers).await;
    note(daemon, pid, "home", &result, began.elapsed());
    if result.is_err() && hold {
        hold_at_home(daemon, &found.stat, false);
    }
    result.map(Some)
}

/// Brings a process home although its user has not asked for it.
///
/// # Errors
/// It is being moved, or does not come.
pub async fn bring_back(daemon: &Arc<Daemon>, journey: &Journey) -> Result<MoveReport, MoveError> {
    let pid = journey.about.pid;
    let moving = daemon.begin_move(pid, Cause::Order);
    let _moving = moving.ok_or(MoveError::Busy(pid))?;
    let (answers, _unheard) = tokio::sync::mpsc::unbounded_channel();
    home(daemon, journey, &answers).await
}

async fn home(
    daemon: &Arc<Daemon>,
    journey: &Journey,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let began = Instant::now();
    let command = Command::Bring { hold: false };
    let result = travel(daemon, &journey.about.journey, command, None, answers).await;
    note(daemon, journey.about.pid, "home", &result, began.elapsed());
    result
}

/// Takes a process away from its host: to a node that is less busy than home, or home.
///
/// # Errors
/// It is being moved, or neither node takes it; it is where it was.
pub async fn take_away(daemon: &Arc<Daemon>, journey: &Journey) -> Result<MoveReport, MoveError> {
    let pid = journey.about.pid;
    let moving = daemon.begin_move(pid, Cause::Host);
    let _moving = moving.ok_or(MoveError::Busy(pid))?;
    let (answers, _unheard) = tokio::sync::mpsc::unbounded_channel();
    if let Some((found, node)) = elsewhere(daemon, journey) {
        let began = Instant::now();
        let result = onward(daemon, &found, journey, &node, &answers).await;
        note(daemon, pid, &node, &result, began.elapsed());
        if result.is_ok() {
            return result;
        }
    }
    home(daemon, journey, &answers).await
}

/// Where a process of ours that its host wants to be rid of may go, if whoever has put it into our hands may
/// send it there, and it has less to wait for there than at home.
fn elsewhere(daemon: &Daemon, journey: &Journey) -> Option<(Target, String)> {
    let process = Process::open_same(journey.about.pid, journey.about.start_time).ok()?;
    let candidate = daemon.candidates().get(process.pid()).cloned()?;
    let credentials = candidate.check(&process).ok()?;
    let found = found(
        daemon,
        Arc::new(process),
        credentials,
        candidate.declaration?,
    );
    let found = found.ok()?;
    let report = daemon.report();
    let at_home = report.load / report.cpus.max(0.01);
    if report.stays || found.candidate.held || found.candidate.options.pin {
        return None;
    }
    let (load, node) = least_loaded(daemon, &found, |_| true)?;
    (load < at_home).then_some((found, node))
}

fn hold_at_home(daemon: &Daemon, process: &Stat, held: bool) {
    let mut candidates = daemon.candidates();
    let known = candidates.get_mut(process.pid);
    if let Some(candidate) = known.filter(|known| known.start_time == process.start_time) {
        candidate.held = held;
    }
    daemon.save_candidates(&candidates);
}

/// `whim go PID`: free to move again.
///
/// # Errors
/// Wrong pid, or not the caller's.
pub fn go(daemon: &Daemon, caller: &Caller, pid: i32) -> Result<String, MoveError> {
    let found = opened(daemon, caller, pid)?;
    hold_at_home(daemon, &found.stat, false);
    Ok(if found.candidate.held {
        format!("Process {pid} may move again")
    } else {
        format!("Process {pid} was not kept at home")
    })
}
