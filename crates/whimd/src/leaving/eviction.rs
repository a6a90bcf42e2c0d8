//! Brings our processes home from nodes that are no members any more, whether or not their hosts and
//! their home supervisors help.
//!
//! The home supervisor decides how long a return may take ([`whim_journey::recall`]), and executes no
//! more calls for the removed host. But it belongs to the process's owner, so we do not rely on it: a
//! supervisor that does not report progress is ended, and its process with it (EXITKILL).

use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use whim_journey::job::{Command, Event, Phase};
use whim_journey::recall::{RECALL_BYTES_MIN, RECALL_UNLEASED};

use crate::line::conversation::Conversation;
use crate::line::conversation::SupervisorError;
use crate::moves::Moves;
use crate::moves::attempt::HOME;
use crate::moves::journeys::{Journey, Journeys};
use crate::moves::room;
use crate::moves::watching;
use crate::settings::socket_in;
use whim_machine::process::Process;

/// A supervisor that makes no progress within a lease and this time is ended.
pub(crate) const EVICTION_BEYOND: Duration = Duration::from_millis(1500);
/// A supervisor that could not be asked, or has refused, is asked again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// How an attempt at a return ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The process needs nothing of that host any more.
    Over,
    /// The return is tried again.
    Again,
    /// The supervisor does not know the command: it is of an older daemon.
    Unknown,
    /// The time is over.
    Late,
}

/// How long a return may take without progress.
struct Deadline {
    limit: Duration,
    deadline: Instant,
    /// Bytes that were reported when the deadline was last extended, in any conversation.
    told: u64,
}

impl Deadline {
    fn gets_on(&mut self, bytes: u64) {
        if bytes >= self.told.saturating_add(RECALL_BYTES_MIN) {
            self.told = bytes;
            self.deadline = Instant::now() + self.limit;
        }
    }
}

/// Sees to it that our processes leave nodes that are no members.
pub(crate) fn evict(moves: &Arc<Moves>, is_stranger: impl Fn(&str) -> bool) {
    for journey in moves.journeys().live() {
        let Some(node) = host_of(&journey, &is_stranger) else {
            continue;
        };
        // One return at a time: this function is called again and again.
        let Ok(only) = Arc::clone(&journey.eviction).try_lock_owned() else {
            continue;
        };
        let moves = Arc::clone(moves);
        tokio::spawn(async move {
            bring_from(&moves, &journey, &node).await;
            drop(only);
        });
    }
}

/// The node at which a process is, or to which it is on its way, if it is no member. If the supervisor
/// has said nothing since this daemon began, its journal tells where the process was last.
fn host_of(journey: &Journey, is_stranger: impl Fn(&str) -> bool) -> Option<String> {
    let bound_for = journey.bound_for.as_ref().map(|(node, _)| node);
    let at = match &journey.status {
        Some(status) => Some(&status.location),
        None => journey.last_host.as_ref(),
    };
    let mut hosts = at.into_iter().chain(bound_for);
    // A journal names home so when its process has come back.
    let host = hosts.find(|node| *node != HOME && is_stranger(node));
    host.cloned()
}

/// The lease that holds for the returns of this journey.
fn lease(moves: &Moves, journey: &Journey) -> Duration {
    let candidate = moves.candidates().get(journey.about.pid).cloned();
    let lease = room::lease(moves, candidate.as_ref(), Some(journey));
    let lease_ms = lease.milliseconds();
    lease_ms.map_or(RECALL_UNLEASED, Duration::from_millis)
}

async fn bring_from(moves: &Arc<Moves>, journey: &Journey, node: &str) {
    let (id, pid) = (&journey.about.journey, journey.about.pid);
    let limit = lease(moves, journey) + EVICTION_BEYOND;
    let mut patience = Deadline {
        limit,
        deadline: Instant::now() + limit,
        told: 0,
    };
    let mut command = Command::Evict {
        node: node.to_owned(),
    };
    moves.ground().events().add(
        Some(pid),
        "evicting",
        format!("It comes home from {node}, which was removed"),
    );
    loop {
        match ask(moves, journey, &command, &mut patience).await {
            Outcome::Over => break,
            Outcome::Late => return end(moves, journey, node, limit).await,
            Outcome::Unknown => command = Command::Bring { hold: false },
            Outcome::Again => {}
        }
        let is_there = is_at(&moves.journeys(), id, node);
        if !is_there {
            break;
        }
        let left = patience.deadline.saturating_duration_since(Instant::now());
        sleep(AGAIN.min(left)).await;
    }
    watching::refresh(moves, id).await;
}

/// Asks the supervisor once, and listens for as long as it makes progress.
async fn ask(
    moves: &Arc<Moves>,
    journey: &Journey,
    command: &Command,
    patience: &mut Deadline,
) -> Outcome {
    let (id, older) = (&journey.about.journey, journey.about.notes.older);
    let socket = socket_in(&moves.ground().settings().home_directory(id));
    let begun = timeout_at(
        patience.deadline,
        Conversation::begin(&socket, older, command),
    )
    .await;
    let mut conversation = match begun {
        Err(_) => return Outcome::Late,
        Ok(Err(SupervisorError::Gone(_))) => {
            watching::finish(moves, id).await;
            return Outcome::Over;
        }
        Ok(Err(_)) => return Outcome::Again,
        Ok(Ok(conversation)) => conversation,
    };
    let mut heard = false;
    loop {
        match timeout_at(patience.deadline, conversation.next()).await {
            Err(_) => return Outcome::Late,
            Ok(Ok(Event::Done { .. })) => return Outcome::Over,
            // The whole image is here.
            Ok(Ok(Event::Phase {
                phase: Phase::Rebuild,
                ..
            })) => return Outcome::Over,
            Ok(Ok(Event::Refused { .. })) => {
                watching::refresh(moves, id).await;
                return Outcome::Again;
            }
            Ok(Ok(Event::Progress { bytes, .. })) => patience.gets_on(bytes),
            Ok(Ok(_)) => {}
            Ok(Err(_)) if !heard => return Outcome::Unknown,
            Ok(Err(_)) => return Outcome::Again,
        }
        heard = true;
    }
}

/// Whether a process still has to do with this node, as far as its supervisor has said.
fn is_at(journeys: &Journeys, id: &str, node: &str) -> bool {
    let journey = journeys.by_id.get(id).filter(|journey| journey.is_live());
    journey.is_some_and(|journey| host_of(journey, |host| host == node).is_some())
}

/// Ends the supervisor, and with it the process that it traces.
async fn end(moves: &Arc<Moves>, journey: &Journey, node: &str, limit: Duration) {
    let (id, pid) = (&journey.about.journey, journey.about.pid);
    let reason = format!(
        "Its host {node} was removed from the cluster, and its home supervisor did not bring it home within {limit:.1?}"
    );
    tracing::warn!(pid, reason, "a home supervisor is ended");
    if let Some(journey) = moves.journeys().by_id.get_mut(id) {
        journey.cut = Some(reason);
    }
    if let Err(error) = end_supervisor(journey) {
        tracing::error!(pid, %error, "a home supervisor could not be ended");
    }
    watching::finish(moves, id).await;
}

/// Ends the supervisor that we have noted or, if none is noted (an older daemon began the journey), the
/// tracer of the process.
fn end_supervisor(journey: &Journey) -> Result<(), String> {
    let Some((supervisor, started)) = journey.about.notes.supervisor else {
        return end_tracer(journey);
    };
    let noted = Process::open_same(supervisor, started).map_err(|error| error.to_string())?;
    noted
        .signal(Signal::SIGKILL)
        .map_err(|error| error.to_string())
}

/// Ends the tracer of the process, which the kernel names: what a supervisor says of itself is its
/// user's word.
fn end_tracer(journey: &Journey) -> Result<(), String> {
    let about = &journey.about;
    let process = Process::open_same(about.pid, about.start_time);
    let process = process.map_err(|error| error.to_string())?;
    let holder = || -> Result<(i32, u32), String> {
        let holds = process.credentials().map_err(|error| error.to_string())?;
        match holds.tracer {
            0 => Err(format!("nobody holds process {}", about.pid)),
            tracer => Ok((tracer, holds.uids[0])),
        }
    };
    let (tracer, uid) = holder()?;
    let held = Process::open(tracer).map_err(|error| error.to_string())?;
    let own = held.credentials().map_err(|error| error.to_string())?;
    let program = std::fs::read_link(format!("/proc/{tracer}/exe")).unwrap_or_default();
    let name = program.file_name().and_then(|name| name.to_str());
    let is_ours = name.is_some_and(|name| name.starts_with("whim-home")) && own.uids[0] == uid;
    // The tracer is asked for again, so that its pid is that of the process which we have opened.
    if !is_ours || holder()?.0 != tracer {
        return Err(format!("process {tracer} is no home supervisor"));
    }
    held.signal(Signal::SIGKILL)
        .map_err(|error| error.to_string())
}
