//! Moves of this node's own processes: `migrate`, `bring`, `go`.

use std::sync::Arc;
use std::time::{Duration, Instant};
use whim_control::protocol::Answer;
use whim_journey::cause::Cause;
use whim_journey::job::{Command, Event, MoveReport, Phase, State};
use whim_machine::process::Process;
use whim_machine::processes::{self, Caller, Credentials, ProcessError, Stat};
use whim_monitor::plain;
use whim_sys::freezer;

use crate::line::conversation::{Conversation, SupervisorError};
use crate::line::hearsay::{Account, Heard};
use crate::line::probes::Patience;
use crate::members::membership::Membership;
use crate::moves::Moves;
use crate::moves::attempt::{Answers, Attempt, HOME, MoveError, Target, count_refusal};
use crate::moves::beginning;
use crate::moves::candidate::{Candidate, Declaration};
use crate::moves::census::Census;
use crate::moves::departing::{new_journey, start_home};
use crate::moves::destinations::{best, best_labelled, check_anew, least_loaded};
use crate::moves::journeys::{About, Journey, Notes};
use crate::moves::notes::write_about;
use crate::moves::room::{admit, release};
use crate::moves::stay;
use crate::moves::trial::Trial;
use crate::moves::watching;
use crate::past::events::now_ms;
use crate::settings::socket_in;

/// Freezes longer than this are announced, in seconds.
const LONG_FREEZE: f64 = 1.0;
/// A home supervisor that listens no more ends within this time, and how often that is looked at.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const ENDS_LOOK: Duration = Duration::from_millis(5);

fn target(moves: &Arc<Moves>, caller: &Caller, process: Arc<Process>) -> Result<Target, MoveError> {
    let credentials = process.movable_by(caller)?;
    let declaration = Declaration::by(caller, &credentials);
    found(moves, process, credentials, declaration)
}

/// The same, for a process that may have begun a moment ago: it may still have been a copy of its shell when it was
/// looked up, and have become `whim` since.
async fn target_begun(
    moves: &Arc<Moves>,
    caller: &Caller,
    process: Arc<Process>,
) -> Result<Target, MoveError> {
    loop {
        // It may have become its program between one look and the next.
        let began = beginning::is_beginning(moves, process.pid());
        match target(moves, caller, Arc::clone(&process)) {
            Err(MoveError::Stay { pid, .. }) if began || beginning::is_beginning(moves, pid) => {
                beginning::begun(moves, caller, pid).await;
            }
            result => return result,
        }
    }
}

fn opened(moves: &Arc<Moves>, caller: &Caller, pid: i32) -> Result<Target, MoveError> {
    target(moves, caller, Arc::new(Process::open(pid)?))
}

/// A process that may be moved, whoever asks. If nobody has declared it, or its declaration does not
/// hold any more, it becomes a candidate by this one, until its [`Trial`] ends.
fn found(
    moves: &Arc<Moves>,
    process: Arc<Process>,
    credentials: Credentials,
    declaration: Declaration,
) -> Result<Target, MoveError> {
    let stat = process.stat()?;
    let pid = stat.pid;
    if !moves.ground().settings().root && credentials.uids[0] != nix::unistd::geteuid().as_raw() {
        return Err(MoveError::OtherUser(pid));
    }
    let part = process.by_pid(|_| stay::part_of_the_system(moves, &stat, Patience::Long))?;
    if let Some(part) = part {
        let reasons = vec![stay::of_part(part).to_owned()];
        return Err(MoveError::Stay { pid, reasons });
    }
    let lost = Some(credentials.tracer).filter(|tracer| *tracer != 0);
    if let Some(lost) = lost.and_then(|tracer| stay::lost_journey(moves, tracer, Patience::Long)) {
        let reasons = vec![lost];
        return Err(MoveError::Stay { pid, reasons });
    }
    let origin = process.by_pid(|pid| moves.census().origin_of(pid, Patience::Long));
    let (job, rules) = origin??;
    let mut candidates = moves.candidates();
    let known = candidates
        .get(pid)
        .filter(|known| known.start_time == stat.start_time)
        .cloned();
    let (mut refused, mut trial) = (None, None);
    let candidate = match known {
        Some(known) if known.check(&process).is_ok() => known,
        // A request to move a process by its pid adopts the process, if it is moved.
        known => {
            let candidate = Candidate {
                job,
                moves: known.as_ref().map_or(0, |known| known.moves),
                tried: true,
                ..Candidate::new(&stat, rules, declaration)
            };
            match candidates.add(candidate.clone()) {
                Ok(()) => trial = Some(Trial::begin(moves, &candidate, known)),
                Err(full) => refused = Some(full.to_string()),
            }
            candidate
        }
    };
    drop(candidates);
    let journey = moves.journeys().of_process(pid).cloned();
    let journey = journey.filter(|journey| journey.about.start_time == stat.start_time);
    // A process that is away may come home even if there is no room to note it.
    if let (Some(refused), None) = (refused, &journey) {
        return Err(MoveError::Refused(refused));
    }
    Ok(Target {
        process,
        stat,
        credentials,
        candidate,
        trial,
        journey,
    })
}

/// Checks that the process may still be moved, and has no other rights than when it was found: room for
/// it was asked for meanwhile, which takes time.
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
pub(crate) fn adopt(moves: &Arc<Moves>, caller: &Caller, pid: i32) -> Result<String, MoveError> {
    let mut target = opened(moves, caller, pid)?;
    if let Some(trial) = target.trial.take() {
        trial.keep();
    }
    moves.census().refresh();
    if let Some(journey) = target
        .journey
        .as_ref()
        .filter(|journey| !journey.is_at_home())
    {
        let at = journey.location();
        return Ok(format!("Process {pid} is known already: it is on {at}"));
    }
    let reasons = target.process.by_pid(|pid| stay::reasons(moves, pid))?;
    let command = target.process.by_pid(|pid| moves.probes().command(pid))?;
    let rule = target.candidate.forbids("", &[]);
    let rule = rule.filter(|_| target.candidate.options.pin);
    Ok(match reasons.first().or(rule.as_ref()) {
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
pub(crate) async fn migrate(
    moves: &Arc<Moves>,
    caller: &Caller,
    pid: i32,
    to: &str,
    answers: &Answers,
) -> Result<MoveReport, MoveError> {
    let process = Process::open(pid).map_err(MoveError::from);
    let process = process.inspect_err(|error| count_refusal(moves.ground().metrics(), error))?;
    migrate_for(
        moves,
        caller,
        Arc::new(process),
        (Cause::User, to),
        Some(answers),
    )
    .await
}

/// The same for any cause, with a process that is open already.
///
/// # Errors
/// As [`migrate`].
pub(crate) async fn migrate_for(
    moves: &Arc<Moves>,
    caller: &Caller,
    process: Arc<Process>,
    (cause, to): (Cause, &str),
    heard_by: Option<&Answers>,
) -> Result<MoveReport, MoveError> {
    let refused = |error: &MoveError| count_refusal(moves.ground().metrics(), error);
    let found = target_begun(moves, caller, process).await;
    let mut found = found.inspect_err(refused)?;
    let trial = found.trial.take();
    let result = send(moves, caller, found, (cause, to), heard_by).await;
    if let Some(trial) = trial.filter(|_| result.is_ok()) {
        trial.keep();
    }
    result
}

/// Sends a process to a node, or home.
async fn send(
    moves: &Arc<Moves>,
    caller: &Caller,
    found: Target,
    (cause, to): (Cause, &str),
    heard_by: Option<&Answers>,
) -> Result<MoveReport, MoveError> {
    let pid = found.stat.pid;
    let refused = |error: &MoveError| count_refusal(moves.ground().metrics(), error);
    let cluster = moves.ground().cluster();
    let home = cluster.node();
    let node = match to.strip_prefix('@') {
        Some(label) => best_labelled(moves, &found, label),
        None if to == "best" => best(moves, &found),
        None => Ok(to.to_string()),
    };
    let node = node.inspect_err(refused)?;
    let is_own = |node: &str| {
        cluster
            .member(node)
            .is_none_or(|member| member.name == home)
    };
    if node == HOME || (node == home && is_own(&node)) {
        return bring_for(moves, found, false, (cause, heard_by))
            .await?
            .ok_or(MoveError::AtHome(pid))
            .inspect_err(refused);
    }
    let checked = check_anew(moves, &found, &node).await;
    checked.inspect_err(refused)?;
    let attempt = Attempt::begin(moves, pid, (cause, &node), heard_by).inspect_err(refused)?;
    if let Some(candidate) = moves.candidates().get_mut(pid) {
        candidate.found_to_stay = None;
    }
    let result = match &found.journey {
        Some(journey) => match onward(moves, &found, journey, &attempt).await {
            // Its supervisor ended while we asked. If the process has come home, a new journey begins.
            // If it has ended, `target` says so.
            Err(error) if error.is_silence() => {
                watching::settle(moves, &journey.about.journey).await;
                let process = Arc::clone(&found.process);
                let found = target(moves, caller, process);
                let found = found.map_err(|error| ended(moves, journey).unwrap_or(error))?;
                if found.journey.is_some() {
                    return Err(error);
                }
                leave(moves, caller, &found, &attempt).await
            }
            result => result,
        },
        None => leave(moves, caller, &found, &attempt).await,
    };
    attempt.note(&result);
    result
}

/// How a journey has ended that was the last of its process.
fn ended(moves: &Moves, journey: &Journey) -> Option<MoveError> {
    let about = &journey.about;
    let journeys = moves.journeys();
    let end = journeys.by_id.get(&about.journey)?.about.end.as_ref();
    let reason = &end.filter(|end| !end.at_home)?.reason;
    let pid = about.pid;
    Some(MoveError::Refused(format!(
        "Process {pid} has ended: {reason}"
    )))
}

/// Announces a move that takes long.
fn announce(membership: &Membership, attempt: &Attempt, bytes: u64) {
    let seconds = membership.peers().expected_freeze(attempt.node(), bytes);
    if seconds > LONG_FREEZE {
        let text = format!(
            "{} MiB have to travel: the process will stand still for about {seconds:.0} s",
            bytes >> 20
        );
        attempt.tell(Answer::Notice { text });
    }
}

/// Moves a process away from home, which begins a new journey.
async fn leave(
    moves: &Arc<Moves>,
    caller: &Caller,
    target: &Target,
    attempt: &Attempt,
) -> Result<MoveReport, MoveError> {
    let pid = target.stat.pid;
    let reasons = stay::lasting_reasons(moves, pid).await;
    target.process.lives()?;
    if !reasons.is_empty() {
        return Err(MoveError::Stay { pid, reasons });
    }
    let about = About {
        journey: new_journey(pid)?,
        pid,
        start_time: target.stat.start_time,
        command: target.process.by_pid(|pid| moves.probes().command(pid))?,
        home: moves.ground().cluster().node(),
        requested_by: caller.uid,
        begun_ms: now_ms(),
        run: target.candidate.options.run.clone(),
        moves_before: target.candidate.moves,
        guest_supervisor_pid: None,
        notes: Notes::default(),
        end: None,
    };
    announce(
        moves.ground().membership(),
        attempt,
        target.stat.resident_bytes,
    );
    attempt.came_to(Phase::Admit);
    let node = attempt.node();
    let (slot, guest_supervisor_pid) = admit(moves, target, &about.journey, node, 1).await?;
    let started = match still_may(caller, target) {
        Ok(()) => start_home(moves, target, &about).await,
        refused => refused,
    };
    if let Err(error) = started {
        release(moves, node, &about.journey, 1).await;
        return Err(error);
    }
    let command = Command::Move { slot };
    travel(
        moves,
        &about.journey,
        command,
        Some(guest_supervisor_pid),
        attempt,
    )
    .await
}

/// Why a process that is away cannot be moved: its deputy is in a frozen control group. Its supervisor would
/// say the same, but it may be waiting for that deputy.
fn stands_still(journey: &Journey) -> Option<String> {
    let about = &journey.about;
    let group = freezer::frozen_group_of(about.pid)?;
    let same = processes::lives(about.pid, about.start_time);
    same.then(|| plain::sentence(&freezer::sentence(&group)))
}

/// Moves a process that is on a journey: the journey goes on at another host.
async fn onward(
    moves: &Arc<Moves>,
    target: &Target,
    journey: &Journey,
    attempt: &Attempt,
) -> Result<MoveReport, MoveError> {
    if let Some(reason) = stands_still(journey) {
        return Err(MoveError::refused(target.stat.pid, reason));
    }
    let (id, node) = (&journey.about.journey, attempt.node());
    let epoch = {
        let mut journeys = moves.journeys();
        let journey = journeys.by_id.get_mut(id);
        let journey = journey.ok_or(ProcessError::Gone(target.stat.pid))?;
        journey.epoch = journey.epoch.saturating_add(1);
        journey.epoch
    };
    let bytes = journey
        .status
        .as_ref()
        .map_or(0, |status| status.resident_bytes);
    announce(moves.ground().membership(), attempt, bytes);
    attempt.came_to(Phase::Admit);
    let (slot, guest_supervisor_pid) = admit(moves, target, id, node, epoch).await?;
    let command = Command::Move { slot };
    let travelled = travel(moves, id, command, Some(guest_supervisor_pid), attempt).await;
    if travelled.is_err() {
        release(moves, node, id, epoch).await;
    }
    travelled
}

/// Gives a supervisor a command.
async fn address(moves: &Moves, id: &str, command: &Command) -> Result<Conversation, MoveError> {
    let notes = moves
        .journeys()
        .by_id
        .get(id)
        .map(|journey| journey.about.notes.clone())
        .unwrap_or_default();
    let socket = socket_in(&moves.ground().settings().home_directory(id));
    match Conversation::begin(&socket, notes.older, command).await {
        // It hung up on us because it was about to end.
        Err(SupervisorError::Broken { .. }) => Err(MoveError::Silent),
        Err(SupervisorError::Gone(_)) if ends_on_disk(notes.supervisor).await => {
            Err(SupervisorError::Unnoted.into())
        }
        begun => Ok(begun?),
    }
}

/// Whether a supervisor that has closed its socket does not end, because it waits for a disk. Each does for a moment.
async fn ends_on_disk(supervisor: Option<(i32, u64)>) -> bool {
    const LOOKS: u32 = 20;
    const BETWEEN_LOOKS: Duration = Duration::from_millis(25);
    let Some((pid, started)) = supervisor else {
        return false;
    };
    for _ in 0..LOOKS {
        if !processes::waits_for_disk(pid) || !processes::lives(pid, started) {
            return false;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    true
}

/// Lets the supervisor move the process and passes on what it says.
async fn travel(
    moves: &Arc<Moves>,
    id: &str,
    command: Command,
    guest_supervisor_pid: Option<i32>,
    attempt: &Attempt,
) -> Result<MoveReport, MoveError> {
    let settings = moves.ground().settings();
    let faults = &settings.faults;
    // Noted, so that `watching::finish` can give the room back at the host for which the process was bound.
    let bound_for = |bound_for: Option<(String, u32)>| {
        if let Some(journey) = moves.journeys().by_id.get_mut(id) {
            journey.bound_for = bound_for;
        }
    };
    let next = match &command {
        Command::Move { slot } => Some((slot.node.clone(), slot.epoch)),
        _ => None,
    };
    bound_for(next.clone());
    if matches!(command, Command::Bring { .. }) {
        attempt.came_to(Phase::Home);
    }
    faults.point("before-command");
    let conversation = match address(moves, id, &command).await {
        Err(MoveError::Silent) => None,
        addressed => Some(addressed?),
    };
    faults.point("after-command");
    let result = match conversation {
        Some(conversation) => hear_out(moves, conversation, attempt).await,
        None => Err(MoveError::Silent),
    };
    // A supervisor that did not say how it went may be dead. `watching::finish` then needs to know where
    // the process was bound for.
    if !matches!(result, Err(MoveError::Silent | MoveError::Supervisor(_))) {
        bound_for(None);
    }
    faults.point("before-move-noted");
    let arrived = result.is_ok().then(|| {
        let mut journeys = moves.journeys();
        let journey = journeys.by_id.get_mut(id)?;
        journey.about.guest_supervisor_pid = guest_supervisor_pid;
        if let Some((node, epoch)) = &next {
            // Trap: the-last-host-is-not-known-yet
            journey.note_arrival(node, *epoch);
        }
        Some(journey.about.clone())
    });
    if let Some(about) = arrived.flatten()
        && let Err(error) = write_about(settings, &about)
    {
        tracing::warn!(%error, journey = id, "a move was not noted");
    }
    faults.point("after-move-noted");
    watching::refresh(moves, id).await;
    result
}

/// Passes on what a supervisor says of a move, within limits, until it says how the move went.
async fn hear_out(
    moves: &Moves,
    mut conversation: Conversation,
    attempt: &Attempt,
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
            } => return Err(found_stay(moves.census(), attempt.pid(), &reason)),
            Heard::Refused { reason, .. } => {
                return Err(MoveError::refused(attempt.pid(), reason));
            }
            Heard::Nothing => {}
            Heard::Nonsense => return Err(conversation.nonsense().into()),
            Heard::Tell(event) => {
                if let Event::Phase { phase, .. } = event {
                    attempt.came_to(phase);
                }
                moves.ground().settings().faults.point("phase-heard");
                attempt.tell(Answer::Journey { event });
            }
        }
    }
}

/// A reason to stay that only the stopped process showed; `ps` and `why` tell it until the next try.
fn found_stay(census: &Census, pid: i32, reason: &str) -> MoveError {
    let sentence = format!("{reason}.");
    if let Some(candidate) = census.candidates().get_mut(pid) {
        candidate.found_to_stay = Some(sentence.clone());
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
pub(crate) async fn bring(
    moves: &Arc<Moves>,
    caller: &Caller,
    pid: i32,
    hold: bool,
    answers: &Answers,
) -> Result<Option<MoveReport>, MoveError> {
    let mut found = opened(moves, caller, pid)
        .inspect_err(|error| count_refusal(moves.ground().metrics(), error))?;
    let trial = found.trial.take();
    let result = bring_for(moves, found, hold, (Cause::User, Some(answers))).await;
    // What is kept at home is known for that.
    if let Some(trial) = trial.filter(|_| hold && result.is_ok()) {
        trial.keep();
    }
    result
}

async fn bring_for(
    moves: &Arc<Moves>,
    found: Target,
    hold: bool,
    (cause, heard_by): (Cause, Option<&Answers>),
) -> Result<Option<MoveReport>, MoveError> {
    let held = |held: bool| {
        if hold {
            hold_at_home(moves.census(), &found.stat, held);
        }
    };
    let away = found.journey.as_ref();
    let Some(journey) = away.filter(|journey| journey.state() != State::Home) else {
        held(true);
        return Ok(None);
    };
    let attempt = Attempt::begin(moves, found.stat.pid, (cause, HOME), heard_by);
    let attempt = attempt.inspect_err(|error| count_refusal(moves.ground().metrics(), error))?;
    held(true);
    let result = home(moves, journey, hold, &attempt).await;
    if let Err(error) = &result
        && error.is_silence()
        && is_home_after_all(moves, journey).await
    {
        // It had come by itself, and its supervisor was about to end.
        return Ok(None);
    }
    if result.is_err() {
        held(found.candidate.held);
    }
    result.map(Some)
}

/// Whether the process of a supervisor that is ending turns out to be at home. How a journey ended is known
/// once its supervisor is gone altogether.
async fn is_home_after_all(moves: &Moves, journey: &Journey) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < ENDS_WITHIN {
        let end = {
            let journeys = moves.journeys();
            let now = journeys.by_id.get(&journey.about.journey);
            now.map(|journey| journey.about.end.clone())
        };
        match end {
            Some(None) => tokio::time::sleep(ENDS_LOOK).await,
            Some(Some(end)) => return end.at_home,
            None => return false,
        }
    }
    false
}

/// Brings a process home although its user has not asked for it.
///
/// # Errors
/// It is being moved, or does not come.
pub(crate) async fn bring_back(
    moves: &Arc<Moves>,
    journey: &Journey,
) -> Result<MoveReport, MoveError> {
    let pid = journey.about.pid;
    let attempt = Attempt::begin(moves, pid, (Cause::Order, HOME), None)?;
    home(moves, journey, false, &attempt).await
}

async fn home(
    moves: &Arc<Moves>,
    journey: &Journey,
    hold: bool,
    attempt: &Attempt,
) -> Result<MoveReport, MoveError> {
    let command = Command::Bring { hold };
    let result = match stands_still(journey) {
        Some(reason) => Err(MoveError::refused(attempt.pid(), reason)),
        None => travel(moves, &journey.about.journey, command, None, attempt).await,
    };
    attempt.note(&result);
    result
}

/// Takes a process away from its host: to a node that is less busy than home, or home.
///
/// # Errors
/// It is being moved, or neither node takes it; it is where it was.
pub(crate) async fn take_away(
    moves: &Arc<Moves>,
    journey: &Journey,
) -> Result<MoveReport, MoveError> {
    let pid = journey.about.pid;
    let begin = |node: &str| Attempt::begin(moves, pid, (Cause::Host, node), None);
    let attempt = match elsewhere(moves, journey) {
        None => begin(HOME)?,
        Some((found, node)) => {
            let attempt = begin(&node)?;
            let result = onward(moves, &found, journey, &attempt).await;
            attempt.note(&result);
            if result.is_ok() {
                return result;
            }
            attempt.turned_to(HOME)
        }
    };
    home(moves, journey, false, &attempt).await
}

/// Where a process of ours may go that its host wants to be rid of. The one who declared the process has
/// to be allowed to send it there, and the load per CPU there has to be less than at home.
fn elsewhere(moves: &Arc<Moves>, journey: &Journey) -> Option<(Target, String)> {
    let process = Process::open_same(journey.about.pid, journey.about.start_time).ok()?;
    let candidate = moves.candidates().get(process.pid()).cloned()?;
    let credentials = candidate.check(&process).ok()?;
    let found = found(
        moves,
        Arc::new(process),
        credentials,
        candidate.declaration?,
    );
    let found = found.ok()?;
    let report = moves.host().report();
    let at_home = report.load / report.cpus.max(0.01);
    if report.stays || found.candidate.held || found.candidate.options.pin {
        return None;
    }
    let (load, node) = least_loaded(moves, &found, |_| true)?;
    (load < at_home).then_some((found, node))
}

fn hold_at_home(census: &Census, process: &Stat, held: bool) {
    let mut candidates = census.candidates();
    let known = candidates.get_mut(process.pid);
    if let Some(candidate) = known.filter(|known| known.start_time == process.start_time) {
        candidate.held = held;
    }
    census.save(&candidates);
}

/// `whim go PID`: free to move again.
///
/// # Errors
/// Wrong pid, or not the caller's.
pub(crate) fn go(moves: &Arc<Moves>, caller: &Caller, pid: i32) -> Result<String, MoveError> {
    let found = opened(moves, caller, pid)?;
    hold_at_home(moves.census(), &found.stat, false);
    Ok(if found.candidate.held {
        format!("Process {pid} may move again")
    } else {
        format!("Process {pid} was not kept at home")
    })
}
