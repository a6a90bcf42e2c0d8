//! What `whim why` says of a process.

use std::sync::Arc;
use whim_control::protocol::{LeaseChoice, NodeState, RunClass, Why};
use whim_journey::job::State;
use whim_machine::process::Process;
use whim_machine::processes::{self, Caller, Stat};
use whim_machine::sensors::float;

use crate::balancing;
use crate::daemon::Daemon;
use crate::faces::listing::stands_still;
use crate::line::journal::read_journal;
use crate::line::probes::{Patience, Probes};
use crate::moves::attempt::MoveError;
use crate::moves::candidacy;
use crate::moves::candidate::{Candidate, LastMove};
use crate::moves::journeys::{About, Journeys};
use crate::moves::stay;
use crate::moves::watching;
use crate::words::counted;

/// `whim why PID`.
///
/// # Errors
/// There is no such process.
pub(crate) async fn why(daemon: &Arc<Daemon>, caller: &Caller, pid: i32) -> Result<Why, MoveError> {
    let sentences = sentences(daemon, caller, pid).await?;
    let stat = processes::stat(pid).ok();
    let (sentence, decision) = match stat.and_then(|stat| balancing::why(daemon, &stat)) {
        Some((sentence, decision)) => (Some(sentence), decision),
        None => (None, None),
    };
    Ok(Why {
        pid,
        sentences: sentences.into_iter().chain(sentence).collect(),
        decision,
    })
}

/// What the process is, and what keeps it where it is.
async fn sentences(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    pid: i32,
) -> Result<Vec<String>, MoveError> {
    watching::refresh_all(daemon.moves()).await;
    let opened = Process::open(pid).and_then(|process| Ok((process.stat()?, process)));
    let said = match opened {
        Ok((stat, process)) => {
            let came_home = came_home(daemon, &stat).await;
            // What is read by its pid is of no other process, if it still lives after that.
            process.by_pid(|_| sentences_of(daemon, caller, &stat, came_home))
        }
        Err(error) => Err(error),
    };
    match said {
        Ok(text) => Ok(text),
        Err(error) => last_end(&daemon.moves().journeys(), caller, pid)
            .map(|text| vec![text])
            .ok_or(error.into()),
    }
}

pub(super) fn sentences_of(
    daemon: &Daemon,
    caller: &Caller,
    stat: &Stat,
    came_home: Option<String>,
) -> Vec<String> {
    let pid = stat.pid;
    let journey = daemon.moves().journeys().of_process(pid).cloned();
    let candidate = daemon.moves().candidates().get(pid).cloned();
    let mut text = vec![format!(
        "Process {pid}: {}",
        command(daemon.moves().probes(), caller, pid)
    )];
    let last_move = candidate.as_ref().and_then(|one| one.last_move.as_ref());
    let known = journey.as_ref();
    // What was noted of a move is some seconds behind where a daemon was killed in between.
    let is_here = |last: &&LastMove| known.is_none_or(|known| known.location() == last.to);
    let last_move = last_move.filter(is_here).map(LastMove::sentence);
    if let Some((journey, status)) = known.and_then(|known| Some((known, known.status.as_ref()?))) {
        text.push(format!(
            "It is on {} ({:?}, epoch {}), has moved {} and sent {} home from there.",
            status.location,
            status.state,
            status.epoch,
            times(journey.moves().into()),
            counted(status.forwarded_calls, "call", "calls")
        ));
        let still = stands_still(pid).filter(|_| status.state != State::Home);
        text.extend(still.or_else(|| status.reason.clone()));
        text.extend(silent_host(daemon, &status.location));
        text.extend((status.state == State::Stopped).then(stay::stopped));
        if status.state != State::Home {
            text.extend(last_move);
            text.extend(candidate.iter().flat_map(constraints));
            text.extend(candidate.iter().flat_map(terms));
            return text;
        }
    }
    text.extend(last_move);
    text.extend(came_home);
    if daemon.moves().under_way().contains(pid) {
        // What would keep it is not looked for while our own supervisor holds it.
        text.push(stay::MOVES_NOW.into());
        return text;
    }
    let tracer = processes::credentials(pid).map_or(0, |credentials| credentials.tracer);
    let is_ours = stay::is_home_supervisor(daemon.moves(), tracer)
        || stay::lost_journey(daemon.moves(), tracer, Patience::Long).is_some();
    if tracer != 0 && !is_ours {
        text.push(format!(
            "It is traced by {tracer} ({}).",
            command(daemon.moves().probes(), caller, tracer)
        ));
    }
    text.extend(candidacy::reason(daemon.moves(), pid));
    let constraints: Vec<String> = candidate.iter().flat_map(constraints).collect();
    let is_free = constraints.is_empty();
    text.extend(constraints);
    text.extend(candidate.iter().flat_map(terms));
    let mut reasons = stay::reasons(daemon.moves(), pid);
    reasons.extend(candidate.and_then(|candidate| candidate.found_to_stay));
    if reasons.is_empty() && is_free {
        text.push(format!(
            "Nothing in it keeps it here: {} MiB would travel.",
            stat.resident_bytes.div_ceil(1 << 20)
        ));
    }
    text.extend(reasons);
    text
}

/// What is to be known of a host whose daemon is not reached: a guest has a connection of its own.
fn silent_host(daemon: &Daemon, host: &str) -> Option<String> {
    let is_down =
        host != daemon.cluster().node() && daemon.ground().peers().state(host) == NodeState::Down;
    is_down.then(|| format!(
        "The daemon of {host} is not reached; the program goes on there as long as its own connection to home does."
    ))
}

/// The command line of a process, or as much of it as this caller may see.
fn command(probes: &Arc<Probes>, caller: &Caller, pid: i32) -> String {
    let command = probes.command(pid);
    let user = processes::credentials(pid).map(|credentials| credentials.uids[0]);
    match user.is_ok_and(|uid| caller.may_see(uid)) {
        true => command,
        false => processes::program(&command).to_owned(),
    }
}

/// Why a process that is at home has come back, if nobody asked for it.
async fn came_home(daemon: &Daemon, stat: &Stat) -> Option<String> {
    let of_process = |about: &About| (about.pid, about.start_time) == (stat.pid, stat.start_time);
    let last = daemon.moves().journeys().newest(of_process)?;
    let read = read_journal(daemon.settings().journal(&last.journey)).await;
    let reason = read.came_home_for?;
    Some(format!("It came home by itself: {reason}"))
}

/// How often, in words.
fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{count} times"),
    }
}

/// Where its user lets it go, if not everywhere.
fn constraints(candidate: &Candidate) -> Vec<String> {
    let mut text = Vec::new();
    let options = &candidate.options;
    if candidate.held || options.pin {
        text.extend(candidate.forbids("", &[]));
    }
    if !options.only.is_empty() {
        text.push(format!("It may go only to {}.", options.only.join(", ")));
    }
    if !options.avoid.is_empty() {
        text.push(format!("It may not go to {}.", options.avoid.join(", ")));
    }
    text
}

/// What else its user has said of it.
fn terms(candidate: &Candidate) -> Vec<String> {
    let options = &candidate.options;
    let class = options.class.map(|class| match class {
        RunClass::Batch => {
            "It computes, and may go as soon as it has begun (--class batch).".into()
        }
        RunClass::Interactive => "Somebody sits before it (--class interactive).".into(),
    });
    let lease = options.lease.map(|lease| match lease {
        LeaseChoice::Infinite => {
            "It waits for the other side for as long as that is silent (--lease inf).".into()
        }
        LeaseChoice::Milliseconds(lease) => format!(
            "Away, it ends when the other side has been silent for {} s (--lease).",
            float(lease) / 1000.0
        ),
    });
    class.into_iter().chain(lease).collect()
}

fn last_end(journeys: &Journeys, caller: &Caller, pid: i32) -> Option<String> {
    let about = journeys.newest(|about| about.pid == pid)?;
    let command = match caller.may_see(about.requested_by) {
        true => about.command.as_str(),
        false => processes::program(&about.command),
    };
    let end = about.end?;
    Some(format!(
        "Process {pid} ({command}) has ended: {}",
        end.reason
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_is_said_in_words() {
        let said: Vec<String> = [0, 1, 2, 3].map(times).into();
        assert_eq!(said, ["0 times", "once", "twice", "3 times"]);
    }
}
