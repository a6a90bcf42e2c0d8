//! Why a process of this node cannot move now.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whim_balance::candidate::SystemPart;
use whim_image::stay::{self, Policy, StayReason};
use whim_image::stay_sentences;
use whim_machine::processes::{self, Stat};
use whim_monitor::plain::sentence;
use whim_sys::yama::Scope;

use crate::line::probes::{NotSeen, Patience};
use crate::moves::Moves;

/// How long a program may take to start another one, which shares its memory until then.
const STARTS_WITHIN: Duration = Duration::from_millis(200);
/// Of a process that its home supervisor has stopped, to move it or to let go of it.
pub(crate) const MOVES_NOW: &str = "It is being moved just now.";
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// The first process of a machine, or of a container.
const FIRST: i32 = 1;

/// The reasons, each a sentence; empty if the process may move.
#[must_use]
pub(crate) fn reasons(moves: &Moves, pid: i32) -> Vec<String> {
    find_or_say(moves, pid).0
}

/// The first of these reasons, for a list of processes, which must not wait long for each.
///
/// # Errors
/// The process could not be looked at.
pub(crate) fn reason(moves: &Moves, pid: i32) -> Result<Option<String>, NotSeen> {
    let (reasons, _) = find(moves, pid, Patience::Brief)?;
    Ok(reasons.into_iter().next())
}

/// Of a process that job control has stopped, wherever it is.
#[must_use]
pub(crate) fn stopped() -> String {
    format!("{}.", StayReason::Stopped)
}

/// The reasons of a process that is to move now. A reason that may be over in a moment is waited for.
pub(crate) async fn lasting_reasons(moves: &Moves, pid: i32) -> Vec<String> {
    let end = Instant::now() + STARTS_WITHIN;
    loop {
        let (reasons, passing) = find_or_say(moves, pid);
        if !passing || Instant::now() >= end {
            return reasons;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// The same as [`find`]: that it cannot be looked at is a reason, too.
fn find_or_say(moves: &Moves, pid: i32) -> (Vec<String>, bool) {
    find(moves, pid, Patience::Long)
        .unwrap_or_else(|not_seen| (vec![format!("{not_seen}.")], false))
}

/// All reasons, and whether the only one may be over in a moment.
fn find(moves: &Moves, pid: i32, patience: Patience) -> Result<(Vec<String>, bool), NotSeen> {
    let settings = &moves.ground().settings();
    let policy = Policy {
        allow_root: moves.ground().config().allow_root,
        // To open exactly the mapped files takes a capability, which our supervisor keeps until it has
        // done so.
        watches: settings.opens_mapped_files(),
        enters_time: settings.enters_time(),
        filters: settings.reads_filters(),
        ..Policy::default()
    };
    let declared = moves.candidates().get(pid).is_some_and(|c| c.declared);
    let of_root = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == 0);
    let forbidden = untraceable(Scope::here(), (settings.root, of_root), declared);
    let probes = Arc::clone(moves.probes());
    let look = move || stay::reasons_by(pid, &policy, |pid| probes.shares(pid));
    let found = match moves.probes().probe(pid, patience, look) {
        Ok(found) => found,
        Err(NotSeen::Gone) => vec![StayReason::Gone],
        Err(error) => return Err(error),
    };
    let lost = found.iter().find_map(|reason| match reason {
        StayReason::Traced(tracer) => lost_journey(moves, *tracer, patience),
        _ => None,
    });
    if let Some(lost) = lost {
        return Ok((vec![lost], false));
    }
    let passing = matches!(found.as_slice(), [StayReason::SharesMemory(_)]);
    // The reasons contain paths, whose text is the user's.
    let held = |reason: &StayReason| match reason {
        StayReason::Traced(tracer) => is_home_supervisor(moves, *tracer),
        _ => false,
    };
    let moves_now = found.iter().any(held);
    let found: Vec<StayReason> = found.into_iter().filter(|reason| !held(reason)).collect();
    let found = stay_sentences::sentences(&found);
    let found = found.iter().map(|reason| sentence(&format!("{reason}.")));
    let moves_now = moves_now.then_some(MOVES_NOW);
    let kept = moves.host().orders().keeps();
    let part = processes::stat(pid).ok();
    let part = part.and_then(|stat| part_of_the_system(moves, &stat, patience));
    let part = part.map(of_part);
    let kept = kept
        .into_iter()
        .chain(part)
        .chain(forbidden)
        .chain(moves_now);
    let kept = kept.map(str::to_owned);
    let reasons: Vec<String> = kept.chain(found).collect();
    let passing = passing && reasons.len() == 1;
    Ok((reasons, passing))
}

/// What part of the system a process is; `None` for those of users.
#[must_use]
pub(crate) fn part_of_the_system(
    moves: &Moves,
    stat: &Stat,
    patience: Patience,
) -> Option<SystemPart> {
    if stat.pid == FIRST {
        return Some(SystemPart::First);
    }
    let ours = stat.pid == std::process::id().cast_signed()
        || is_supervisor(moves, stat)
        || moves
            .programs()
            .are_executed_by(moves.probes(), stat, patience);
    if ours {
        return Some(SystemPart::Ours);
    }
    is_guest(moves, stat).then_some(SystemPart::Guest)
}

/// A guest is no further below its supervisor, which is in more than one namespace for it.
pub(crate) const GUEST_GENERATIONS_MAX: usize = 5;

/// Whether it is another node's program here.
fn is_guest(moves: &Moves, stat: &Stat) -> bool {
    if moves.host().guests().by_key.is_empty() {
        return false;
    }
    let parent = |stat: &Stat| processes::stat(stat.parent).ok();
    std::iter::successors(parent(stat), parent)
        .take(GUEST_GENERATIONS_MAX)
        .any(|above| carries_a_guest(moves, &above))
}

/// Whether a tracer is no debugger but a supervisor of this daemon, which moves what it traces. It does so before its
/// journey has noted it: but nothing else that a daemon starts traces.
pub(crate) fn is_home_supervisor(moves: &Moves, tracer: i32) -> bool {
    supervisor(tracer).is_some_and(|stat| is_of_this_daemon(moves, &stat))
}

fn is_of_this_daemon(moves: &Moves, supervisor: &Stat) -> bool {
    let ours = std::process::id().cast_signed();
    supervisor.parent == ours || is_supervisor(moves, supervisor)
}

/// The process of a thread that traces: a supervisor has one for that.
fn supervisor(tracer: i32) -> Option<Stat> {
    processes::stat(processes::of_thread(tracer)?).ok()
}

/// What is to be said of a process whose tracer is a supervisor of ours, but of no journey that is known.
#[must_use]
pub(crate) fn lost_journey(moves: &Moves, tracer: i32, patience: Patience) -> Option<String> {
    let stat = supervisor(tracer)?;
    let ours = std::process::id().cast_signed();
    let is_lost = stat.pid != ours
        && !is_of_this_daemon(moves, &stat)
        && moves
            .programs()
            .are_executed_by(moves.probes(), &stat, patience);
    is_lost.then(|| format!(
        "Its supervisor (process {}) carries it, but the record of its journey is damaged or lost (see the daemon's log): it goes on where it is, and can neither be moved nor brought home.",
        stat.pid
    ))
}

/// Whether this daemon started it to carry a journey, or a guest.
fn is_supervisor(moves: &Moves, stat: &Stat) -> bool {
    let of_home = moves.journeys().are_carried_by(stat.pid, stat.start_time);
    of_home || carries_a_guest(moves, stat)
}

fn carries_a_guest(moves: &Moves, stat: &Stat) -> bool {
    let guests = moves.host().guests();
    let mut guests = guests.by_key.values();
    guests.any(|guest| {
        (guest.supervisor_pid, guest.supervisor_start_time) == (stat.pid, stat.start_time)
    })
}

/// Why a part of the system stays, whoever asks for it.
#[must_use]
pub(crate) fn of_part(part: SystemPart) -> &'static str {
    match part {
        SystemPart::First => {
            "It is the first process of this machine, which all others need, and which ends with no other."
        }
        SystemPart::Ours => {
            "It is a program of Whimbrel's own (a daemon, a supervisor, or 'whim' itself), which belongs to this node, and stays here."
        }
        SystemPart::Guest => {
            "It is another node's program, which is a guest here: its home alone moves it, and 'whim ps' shows by which name."
        }
    }
}

/// Why a home supervisor may not trace a process. `declared`: it is what `whim run` became; `of_root`:
/// it is root's, and so is its supervisor.
fn untraceable(
    scope: Scope,
    (root, of_root): (bool, bool),
    declared: bool,
) -> Option<&'static str> {
    match scope {
        Scope::SameUser => None,
        Scope::Descendants if root || declared => None,
        Scope::Descendants => Some(
            "This machine lets a daemon without root move only what 'whim run' itself becomes, not what that starts, nor what runs already (kernel.yama.ptrace_scope=1).",
        ),
        Scope::Privileged if root && of_root => None,
        Scope::Privileged if root => Some(
            "This machine lets only those look into programs who have CAP_SYS_PTRACE (kernel.yama.ptrace_scope=2), which a home supervisor gives up before it speaks to a host.",
        ),
        Scope::Privileged => Some(
            "This machine lets only root trace programs (kernel.yama.ptrace_scope=2), and the daemon does not run as root.",
        ),
        Scope::Nobody => {
            Some("This machine lets nobody trace programs (kernel.yama.ptrace_scope=3).")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yama_forbids_what_it_says() {
        let of_root = false;
        let stays = |scope, root, declared| untraceable(scope, (root, of_root), declared).is_some();
        for (root, declared) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(!stays(Scope::SameUser, root, declared));
            assert_eq!(
                stays(Scope::Descendants, root, declared),
                !root && !declared
            );
            assert!(stays(Scope::Privileged, root, declared));
            let roots = untraceable(Scope::Privileged, (root, true), declared);
            assert_eq!(roots.is_some(), !root);
            assert!(stays(Scope::Nobody, root, declared));
        }
    }
}
