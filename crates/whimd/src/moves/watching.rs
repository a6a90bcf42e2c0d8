//! What home supervisors say of their journeys, and how journeys end.

use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whim_journey::job::{Command, Event, State, Status};
use whim_sys::foreign::{self, Limit};
use whim_sys::pidfd::Pidfd;

use crate::line::conversation::Conversation;
use crate::line::conversation::SupervisorError;
use crate::line::directories;
use crate::line::hearsay;
use crate::line::journal::{JournalSummary, Raised, read_journal};
use crate::moves::Moves;
use crate::moves::attempt::note_return;
use crate::moves::journeys::{About, End, Journey, Journeys};
use crate::moves::notes::{forget, write_about};
use crate::moves::room::release;
use crate::past::events::now_ms;
use crate::settings::Settings;
use crate::settings::socket_in;
use whim_machine::process::Process;
use whim_machine::processes;

/// What became of a process that came home, and is no more.
pub(crate) const ENDED_AT_HOME: &str = "It ended at home";

/// If a supervisor does not report its status within this time, its last report counts.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Who asks for all journeys waits for this time at most.
const REFRESHED_WITHIN: Duration = Duration::from_secs(2);
/// The kernel ends a deputy whose supervisor died (EXITKILL) within this time.
const DEATH_WAIT: Duration = Duration::from_secs(2);
/// Pauses between tries to tell a host that it has no such guest any more: about half an hour in all.
const RELEASE_PAUSE_MIN: Duration = Duration::from_secs(1);
const RELEASE_PAUSE_MAX: Duration = Duration::from_secs(2048);

/// Asks one supervisor for its status. If it is gone, its journey is over.
pub(crate) async fn refresh(moves: &Arc<Moves>, id: &str) {
    let about = live(&moves.journeys(), id);
    let Some(about) = about else {
        return;
    };
    // If the supervisor is dead, whoever listens at its socket is another process, and is not asked.
    if is_dead(&about) {
        return finish(moves, id).await;
    }
    let answer = ask(moves.ground().settings(), &about, &Command::Status).await;
    let now = moves.ground().clock_ms();
    if matches!(answer, Err(SupervisorError::Mute(_)))
        && let Some(journey) = moves.journeys().by_id.get_mut(id)
    {
        journey.manners.was_silent(now);
    }
    look_at_journal(moves, id, now).await;
    match answer {
        Ok((Event::Status { status }, listener)) => note_status(moves, &about, status, listener),
        Err(SupervisorError::Gone(_)) => finish(moves, id).await,
        // It is busy, or in the middle of a step: its last status stands.
        Ok(_) | Err(_) => {}
    }
}

fn live(journeys: &Journeys, id: &str) -> Option<About> {
    let journey = journeys.by_id.get(id).filter(|journey| journey.is_live());
    journey.map(|journey| journey.about.clone())
}

/// Whether the supervisor that we have noted is gone.
fn is_dead(about: &About) -> bool {
    let noted = about.notes.supervisor;
    noted.is_some_and(|(pid, started)| !processes::lives(pid, started))
}

/// Asks one question; returns the answer, and the pid of the process that listens there.
async fn ask(
    settings: &Settings,
    about: &About,
    command: &Command,
) -> Result<(Event, Option<i32>), SupervisorError> {
    let socket = socket_in(&settings.home_directory(&about.journey));
    let asked = async {
        let mut conversation = Conversation::begin(&socket, about.notes.older, command).await?;
        let listener = conversation.listener();
        Ok((conversation.next().await?, listener))
    };
    let answered = tokio::time::timeout(STATUS_TIMEOUT, asked).await;
    answered.unwrap_or_else(|_| Err(SupervisorError::Mute(socket.clone())))
}

/// Keeps what a journal tells of moves, unless it has not changed, or is too long to be read again so
/// soon. If a supervisor says nothing, this is all that is known.
async fn look_at_journal(moves: &Moves, id: &str, now: u64) {
    let path = moves.ground().settings().journal(id);
    let length = fs::metadata(&path).map_or(0, |about| about.len());
    let reads = {
        let mut journeys = moves.journeys();
        let journey = journeys.by_id.get_mut(id);
        journey.is_some_and(|journey| journey.manners.reads(length, now))
    };
    if !reads {
        return;
    }
    let read = read_journal(path).await;
    if let Some(journey) = moves.journeys().by_id.get_mut(id) {
        (journey.done, journey.last_host) = (read.done, read.last_host);
    }
}

/// Accepts the status that a supervisor reports of its own journey, as far as it can be true.
fn note_status(moves: &Moves, about: &About, said: Status, listener: Option<i32>) {
    // A supervisor of an older daemon listens itself. Ours get their socket from us, so the kernel names
    // us as the listener.
    let older = about.notes.older.and(listener);
    let supervisor = about.notes.supervisor.map(|(pid, _)| pid).or(older);
    let before = {
        let journeys = moves.journeys();
        let journey = journeys.by_id.get(&about.journey);
        journey.and_then(|journey| {
            journey
                .supervisor_pid
                .map(|_| journey.location().to_owned())
        })
    };
    let is_place = |name: &str| {
        let was = before.as_deref() == Some(name);
        was || name == about.home || moves.ground().cluster().member(name).is_some()
    };
    let own = (about.journey.as_str(), about.pid, about.home.as_str());
    let Some(status) = hearsay::status(said, own, supervisor, is_place) else {
        tracing::debug!(journey = about.journey, "a supervisor says what cannot be");
        return;
    };
    let now = moves.ground().clock_ms();
    if let Some(journey) = moves.journeys().by_id.get_mut(&about.journey) {
        journey.note_status(status, now);
    }
}

/// Asks a home supervisor which calls it has forwarded since the process left home, by name.
pub(crate) async fn calls(moves: &Arc<Moves>, id: &str) -> Vec<(String, u64)> {
    let about = live(&moves.journeys(), id);
    let Some(about) = about else {
        return Vec::new();
    };
    match ask(moves.ground().settings(), &about, &Command::Calls).await {
        Ok((Event::Calls { calls }, _)) => calls,
        // The journey is over, or the supervisor is busy with a move: the journal has to do.
        _ => Vec::new(),
    }
}

/// Asks all home supervisors at the same time. Those that did not answer the last time are asked in the
/// background, so nobody waits for them; nor for the end of a journey, which is noted on a disk.
pub(crate) async fn refresh_all(moves: &Arc<Moves>) {
    let now = moves.ground().clock_ms();
    let mut ids: Vec<(String, bool)> = Vec::new();
    for journey in moves.journeys().by_id.values_mut() {
        let awaited = journey.manners.is_awaited(now);
        if journey.is_live() && (awaited || !journey.manners.asked) {
            journey.manners.asked = !awaited;
            ids.push((journey.about.journey.clone(), awaited));
        }
    }
    let mut tasks = tokio::task::JoinSet::new();
    let mut left = HashSet::new();
    for (id, awaited) in ids {
        let moves = Arc::clone(moves);
        if awaited {
            left.insert(id.clone());
            tasks.spawn(async move {
                refresh(&moves, &id).await;
                id
            });
        } else {
            tokio::spawn(async move {
                refresh(&moves, &id).await;
                if let Some(journey) = moves.journeys().by_id.get_mut(&id) {
                    journey.manners.asked = false;
                }
            });
        }
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.ok().map(|id| left.remove(&id));
        }
    };
    let _ = tokio::time::timeout(REFRESHED_WITHIN, all).await;
    tasks.detach_all();
    let mut journeys = moves.journeys();
    for id in left {
        if let Some(journey) = journeys.by_id.get_mut(&id) {
            journey.manners.was_silent(now);
        }
    }
}

/// After a supervisor has hung up on us: waits until it is gone, if it is about to end.
pub(crate) async fn settle(moves: &Arc<Moves>, id: &str) {
    let deadline = tokio::time::Instant::now() + STATUS_TIMEOUT;
    loop {
        refresh_until(moves, id, deadline).await;
        let gone = live(&moves.journeys(), id).is_none();
        if gone || tokio::time::Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As [`refresh`], for who does not wait longer than this: it goes on all the same, because a journey may end by it, and
/// that is not to be broken off.
pub(crate) async fn refresh_until(moves: &Arc<Moves>, id: &str, deadline: tokio::time::Instant) {
    let (moves, id) = (Arc::clone(moves), id.to_owned());
    let refreshed = tokio::spawn(async move { refresh(&moves, &id).await });
    let _ = tokio::time::timeout_at(deadline, refreshed).await;
}

/// Waits for the end of a supervisor that listens to nobody any more. If it does not end by itself, it
/// is no supervisor of ours any longer, whatever it is, so it is killed. Only if it waits for a disk, to note
/// how its journey ended, it is left alone: false then.
async fn see_off(about: &About) -> bool {
    let Some((pid, started)) = about.notes.supervisor else {
        return true;
    };
    let begun = Instant::now();
    let mut killed: Option<Instant> = None;
    while let Ok(supervisor) = Process::open_same(pid, started) {
        let late = begun.elapsed() >= DEATH_WAIT && killed.is_none();
        if late && processes::waits_for_disk(pid) {
            return false;
        }
        if late {
            tracing::warn!(pid, "a home supervisor listens to nobody: it is ended");
            // It may have ended meanwhile.
            let _ = supervisor.signal(Signal::SIGKILL);
            killed = Some(Instant::now());
        }
        if killed.is_some_and(|at| at.elapsed() >= DEATH_WAIT) {
            tracing::error!(pid, "a home supervisor does not end");
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Ends the journey of a supervisor that is gone, and notes how it ended.
pub(crate) async fn finish(moves: &Arc<Moves>, id: &str) {
    let settings = moves.ground().settings();
    let live = moves
        .journeys()
        .by_id
        .get(id)
        .filter(|journey| journey.is_live())
        .cloned();
    let Some(journey) = live else { return };
    if !see_off(&journey.about).await {
        // Whoever asks for the journey next comes here again.
        return;
    }
    settings.faults.point("before-journey-ends");
    let summary = read_journal(settings.journal(id)).await;
    release_guests(moves, &journey, &summary);
    let at_home = is_at_home(&journey, &summary).await;
    if at_home {
        put_limits_back(&journey.about, &summary);
    }
    // It may have come home and ended there since.
    let came_home = at_home || !is_gone_out(&journey, &summary);
    let reason = reason(moves, &journey, &summary, at_home);
    let end = End {
        at_ms: now_ms(),
        at_home,
        reason: reason.clone(),
        moves: summary.done,
        location: (!came_home).then(|| journey.location().to_string()),
        cpu_away: summary.cpu_away,
    };
    let about = {
        let mut journeys = moves.journeys();
        // Another task may have come to the same end meanwhile.
        let Some(journey) = journeys.by_id.get_mut(id).filter(|j| j.is_live()) else {
            return;
        };
        journey.take_end(end);
        journey.about.clone()
    };
    if let Some(reason) = summary.came_home_for.as_ref().filter(|_| came_home) {
        if let Some(report) = &summary.last_move {
            note_return(moves, &journey, report);
        }
        let text = format!("Home by itself: {reason}");
        moves.ground().events().add(Some(about.pid), "moved", text);
    }
    if at_home {
        let mut candidates = moves.candidates();
        if let Some(candidate) = candidates.get_mut(about.pid) {
            candidate.moves = about.moves_before.saturating_add(summary.done);
        }
        moves.census().save(&candidates);
    } else {
        settings.faults.point("before-end-logged");
        let program = processes::program(&about.command);
        let events = moves.ground().events();
        events.add_of(Some(about.pid), Some(program), "ended", reason);
    }
    if at_home && summary.done == 0 && summary.commits == 0 {
        // It never left, so there is nothing to tell of later.
        moves.journeys().by_id.remove(id);
        forget(settings, id);
    } else if let Err(error) = write_about(settings, &about) {
        tracing::warn!(%error, journey = id, "the end of a journey was not noted");
    }
    let old = moves.journeys().forget_oldest();
    old.iter().for_each(|id| forget(settings, id));
    settings.faults.point("journey-end-noted");
    directories::discard(&settings.home_directory(id));
    settings.faults.point("home-directory-removed");
}

/// If the supervisor was killed, tells the hosts where the process was, or to which it was on its way.
/// They need not wait for the end of the lease then.
fn release_guests(moves: &Arc<Moves>, journey: &Journey, summary: &JournalSummary) {
    if summary.ended.is_some() {
        return;
    }
    let mut hosts: Vec<(String, u32)> = journey.bound_for.iter().cloned().collect();
    hosts.extend(
        summary
            .last_host
            .iter()
            .map(|host| (host.clone(), summary.epoch)),
    );
    hosts.extend(journey.status.iter().map(|s| (s.location.clone(), s.epoch)));
    // Only members are asked: the user may have written any names into the journal.
    let is_member = |host: &str| moves.ground().cluster().member(host).is_some();
    hosts.retain(|(host, _)| *host != journey.about.home && is_member(host));
    hosts.sort_unstable();
    hosts.dedup();
    for (host, epoch) in hosts {
        let (moves, id) = (Arc::clone(moves), journey.about.journey.clone());
        tokio::spawn(async move {
            let mut pause = RELEASE_PAUSE_MIN;
            while !release(&moves, &host, &id, epoch).await && pause < RELEASE_PAUSE_MAX {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        });
    }
}

/// Puts back the limits of a process that were still raised when its supervisor was killed. If a limit
/// is not as the supervisor left it, the process has set it itself, or it is back already.
///
/// The user may have written the journal, so it says only that a limit is to be put back, not to which
/// value. We have noted that value ourselves, and nothing here raises a limit.
fn put_limits_back(about: &About, summary: &JournalSummary) {
    let Ok(process) = Pidfd::open(about.pid) else {
        return;
    };
    let is_it = || processes::lives(about.pid, about.start_time) && process.signal(0).is_ok();
    for Raised { raised, .. } in &summary.raised {
        let noted = about.notes.limits.iter();
        let Some((_, soft, hard)) = noted.copied().find(|(r, _, _)| *r == raised.resource) else {
            continue;
        };
        let now = foreign::limit(about.pid, raised.resource);
        let lowered = Limit {
            resource: raised.resource,
            soft: soft.min(raised.soft),
            hard: hard.min(raised.hard),
        };
        // As long as the descriptor says that the process lives, its pid is its own.
        if now.is_ok_and(|now| now == *raised)
            && is_it()
            && let Err(errno) = foreign::set_limit(about.pid, lowered)
        {
            tracing::warn!(pid = about.pid, %errno, ?lowered, "a limit of a process stays raised");
        }
    }
}

/// Takes over the directories that an older daemon gave to supervisors, and notes whose they were. To be
/// called before any of these supervisors is spoken to.
pub(crate) fn take_over(moves: &Moves) {
    for (name, owner) in directories::take_over(&moves.ground().settings().supervisors()) {
        let Some(id) = name.strip_suffix(".home") else {
            continue;
        };
        let about = {
            let mut journeys = moves.journeys();
            let journey = journeys.by_id.get_mut(id).filter(|j| j.is_live());
            journey.map(|journey| {
                journey.about.notes.older = Some(owner);
                journey.about.clone()
            })
        };
        let Some(about) = about else { continue };
        if let Err(error) = write_about(moves.ground().settings(), &about) {
            tracing::warn!(%error, journey = id, "an older supervisor was not noted");
        }
    }
}

/// Removes the directories of home supervisors whose journeys an earlier daemon has noted as ended, or
/// has forgotten, when that daemon ended before it could remove them. To be called before a move can
/// begin.
pub(crate) fn remove_leftovers(moves: &Moves) {
    let entries = fs::read_dir(moves.ground().settings().supervisors());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".home")) else {
            continue;
        };
        let journeys = moves.journeys();
        let live = journeys.by_id.get(id).is_some_and(Journey::is_live);
        if !live {
            directories::discard(&entry.path());
        }
    }
}

/// Whether the process lives on at home. If its supervisor died while it was away, the kernel ends
/// it in a moment.
async fn is_at_home(journey: &Journey, summary: &JournalSummary) -> bool {
    let about = &journey.about;
    let lives = || processes::lives(about.pid, about.start_time);
    let away = is_gone_out(journey, summary);
    let deadline = Instant::now() + DEATH_WAIT;
    while away && lives() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    lives()
}

/// Whether the process was away when its supervisor ended, as far as is known. The journal knows of
/// commits and of returns, also of those that nobody asked for, and is newer than the supervisor's last
/// status.
fn is_gone_out(journey: &Journey, summary: &JournalSummary) -> bool {
    match &summary.last_host {
        Some(host) => *host != journey.about.home || summary.ended.is_some(),
        None => {
            let status = journey.status.as_ref();
            summary.ended.is_some() || status.is_some_and(|status| status.state != State::Home)
        }
    }
}

fn reason(moves: &Moves, journey: &Journey, summary: &JournalSummary, at_home: bool) -> String {
    let away = is_gone_out(journey, summary);
    match &summary.ended {
        // Its host let go of it because this node was removed, without telling us.
        Some((reason, _)) if !at_home && moves.ground().cluster().removed().is_some() => {
            format!("{reason} (this node was removed from the cluster)")
        }
        Some((reason, _)) if !at_home => reason.clone(),
        _ if at_home => "It is at home again".to_string(),
        _ if away && journey.cut.is_some() => journey.cut.clone().unwrap_or_default(),
        _ if away => {
            let log = moves
                .ground()
                .settings()
                .log(&format!("{}.home", journey.about.journey));
            format!(
                "Its home supervisor ended without a word while it was away; see {}",
                log.display()
            )
        }
        _ => ENDED_AT_HOME.to_string(),
    }
}
