//! The balancer at work: once a second it looks at this node's programs and at what is known of the nodes,
//! and moves what [`whim_balance::balancer`] says.

mod lives;
pub(crate) mod state;
mod watch;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use whim_balance::balancer::{Fixed, Known, Program, Relocation};
use whim_balance::cost::Size;
use whim_balance::decide::{self, Node, Task};
use whim_balance::{Millis, NodeId};
use whim_journey::job::State;

use crate::daemon::Daemon;
use crate::line::probes::Patience;
use crate::members::gossip::node_id as id;
use crate::moves::attempt::MoveError;
use crate::moves::candidacy;
use crate::moves::candidate::Candidate;
use crate::moves::journeys::{Journey, Journeys};
use crate::moves::moving;
use crate::past::events::now_ms;
use crate::settings::Settings;
use state::{Balancing, LIVES};
use watch::{Observed, Place, Reading};
use whim_balance::balancer::Verdict;
use whim_control::protocol::{Decided, NodeState, RunClass};
use whim_machine::class::Class;
use whim_machine::process::Process;
use whim_machine::processes::{self, ProcessError, Stat};
use whim_machine::sensors::{Report, float};
use whim_metrics::labels;

/// Whether a process is a candidate is asked again after this, in milliseconds.
const CHECK_EVERY: Millis = 10_000;
/// A process that a user has moved by hand stays there for this long, in milliseconds.
const PLACED: Millis = 60_000;
/// How often the model of past lives is written down, in milliseconds.
const SAVE_EVERY: Millis = 60_000;
/// A change of place within this time after a request is the request's doing, in milliseconds.
const ASKED: Millis = 3_000;
/// A program that runs less than this of a core waits for something, maybe for its user.
const IDLE: f64 = 0.1;
/// In milliseconds. If only some nodes are asked, they are asked once a second, so an older report is
/// from a node that was not asked.
const FRESH: u128 = 2_000;
/// CPU seconds that are assumed of a program of which nothing is known.
const UNKNOWN_DONE: f64 = 30.0;

/// A process by its pid and its start time, because pids are used again.
fn process(pid: i32, start_time: u64) -> u64 {
    start_time << 22 | u64::from(pid.unsigned_abs())
}

fn start_time_of(process: u64) -> u64 {
    process >> 22
}

fn pid_of(process: u64) -> i32 {
    i32::try_from(process & ((1 << 22) - 1)).unwrap_or(0)
}

/// What a round takes from the daemon before it begins.
struct View {
    now: Millis,
    own: String,
    report: Report,
    names: HashMap<NodeId, String>,
    reports: HashMap<String, Report>,
    known: Vec<Known>,
    rate: f64,
    uptime: Option<f64>,
    /// Only some nodes are known: those that were asked a moment ago, and the hosts of our own programs.
    sampled: bool,
    /// One of this node's own programs is being moved, or was a moment ago.
    moving: bool,
}

/// Looks at all programs once, and begins the moves that were decided.
pub(crate) async fn round(daemon: &Arc<Daemon>) {
    let shared = Arc::clone(daemon);
    let relocations = tokio::task::spawn_blocking(move || decide_all(&shared)).await;
    for relocation in relocations.unwrap_or_default() {
        let daemon = Arc::clone(daemon);
        tokio::spawn(async move { carry_out(&daemon, relocation).await });
    }
}

async fn carry_out(daemon: &Arc<Daemon>, (relocation, to): (Relocation, String)) {
    let result = move_by(daemon, &relocation, &to).await;
    if let Err(error) = &result {
        let pid = pid_of(relocation.process);
        tracing::debug!(pid, to, %error, "the balancer could not move a process");
    }
    let now = daemon.clock_ms();
    daemon
        .balancing()
        .balancer
        .ended(now, relocation.process, result.is_ok());
}

/// Moves a process in the name of the one who declared it, who must have the right to move it now.
async fn move_by(daemon: &Arc<Daemon>, relocation: &Relocation, to: &str) -> Result<(), MoveError> {
    let pid = pid_of(relocation.process);
    let process = Process::open_same(pid, start_time_of(relocation.process))?;
    let candidate = daemon.moves().candidates().get(pid).cloned();
    let changed = || ProcessError::Changed(pid);
    let candidate = candidate.ok_or_else(changed)?;
    let credentials = candidate.check(&process)?;
    let mut caller = candidate.declaration.ok_or_else(changed)?.caller();
    caller.pid = std::process::id().cast_signed();
    if caller.admin {
        // The process's own user may read of the move later.
        caller.uid = credentials.uids[0];
    }
    moving::migrate_for(
        daemon.moves(),
        &caller,
        Arc::new(process),
        (relocation.cause, to),
        None,
    )
    .await?;
    Ok(())
}

/// Places a program that has just begun. If it is expected to last, this looks for the cheapest node at
/// once, and does not wait for the next second's round.
pub(crate) async fn place_new(daemon: &Arc<Daemon>, pid: i32) {
    let uid = processes::credentials(pid).map_or(0, |credentials| credentials.uids[0]);
    let Ok(stat) = processes::stat(pid) else {
        return;
    };
    let class = daemon
        .moves()
        .candidates()
        .get(pid)
        .and_then(|candidate| candidate.options.class);
    let lasts = class == Some(RunClass::Batch) || daemon.balancing().lives.last(uid, &stat.name);
    if daemon.config().balance.enabled && lasts {
        round(daemon).await;
    }
}

/// Decides about all programs. Returns relocations, and the names of the nodes to which they go.
fn decide_all(daemon: &Daemon) -> Vec<(Relocation, String)> {
    let config = daemon.config();
    let mut view = view(daemon);
    let candidates = daemon.moves().candidates().sorted();
    let journeys = daemon.moves().journeys().sorted(Journey::is_live);
    let mut balancing = daemon.balancing();
    view.moving |= daemon.moves().under_way().any_ended();
    if balancing.own != view.own {
        // This node has got another name: it has joined a cluster.
        let lives = serde_json::to_vec(&balancing.lives).unwrap_or_default();
        *balancing = Balancing::new(&view.own, &lives, config.balance.fair);
    }
    balancing.balancer.habits.fair = config.balance.fair;
    balancing.balancer.rules.rate = view.rate;
    let programs = programs(daemon, &mut balancing, &view, &candidates, &journeys);
    daemon.moves().candidates().note_done(balancing.done_ms());
    let urgency = urgency(daemon, &mut balancing, &view, &programs);
    let mut sensors = daemon.sensors();
    let growth = growth(&view, &programs, sensors.memory_growth());
    sensors.set_urgency(urgency);
    sensors.set_growth(growth);
    drop(sensors);
    if !config.balance.enabled || !daemon.cluster().is_member() {
        return Vec::new();
    }
    let nodes = u32::try_from(view.names.len()).unwrap_or(u32::MAX);
    balancing.balancer.sampled = view.sampled;
    let known = known_with(&view, urgency, growth, &programs);
    let relocations = balancing
        .balancer
        .decide(view.now, nodes, &known, &programs);
    save_lives(daemon.settings(), &mut balancing, view.now);
    let records = programs
        .iter()
        .filter_map(|program| balancing.balancer.record(program.task.process));
    let verdicts = records.map(|record| label(&record.verdict));
    daemon.metrics().counters().looked(verdicts);
    drop(balancing);
    let name = |node: NodeId| view.names.get(&node).cloned().unwrap_or_default();
    for relocation in &relocations {
        let text = words::relocation(relocation, &name);
        daemon
            .events()
            .add(Some(pid_of(relocation.process)), "decided", text);
    }
    relocations
        .into_iter()
        .map(|relocation| (relocation, name(relocation.to)))
        .collect()
}

/// A verdict, as the metrics count it.
fn label(verdict: &Verdict) -> labels::Verdict {
    match verdict {
        Verdict::Move(_) => labels::Verdict::Move,
        Verdict::Moving => labels::Verdict::Moving,
        Verdict::Fixed(Fixed::Told) => labels::Verdict::Told,
        Verdict::Fixed(Fixed::Interactive) => labels::Verdict::Interactive,
        Verdict::Fixed(Fixed::Placed) => labels::Verdict::Placed,
        Verdict::Young { .. } => labels::Verdict::Young,
        Verdict::Light { .. } => labels::Verdict::Light,
        Verdict::Terminal => labels::Verdict::Terminal,
        Verdict::Spent { .. } => labels::Verdict::Spent,
        Verdict::Paced(_) => labels::Verdict::Paced,
        Verdict::Failed { .. } => labels::Verdict::Failed,
        Verdict::Stay(decide::Stay::NoCandidate) => labels::Verdict::NoCandidate,
        Verdict::Stay(decide::Stay::NoNode) => labels::Verdict::NoNode,
        Verdict::Stay(decide::Stay::JustCame) => labels::Verdict::JustCame,
        Verdict::Stay(decide::Stay::NoRoom) => labels::Verdict::NoRoom,
        Verdict::Stay(decide::Stay::NotCheaper(_)) => labels::Verdict::NotCheaper,
        Verdict::Stay(decide::Stay::NotWorth(_)) => labels::Verdict::NotWorth,
    }
}

/// By how much the use of this node's memory grows: `all`, unless some of it comes with a program that
/// moves. If that counted as growth, the program would be sent on as soon as it has come.
fn growth(view: &View, programs: &[Program], all: f64) -> f64 {
    let quiet = view.report.guests == 0 && !view.moving;
    let ours = growth_on(id(&view.own), programs);
    if quiet { ours.max(all) } else { ours }
}

/// By how much our own programs that are on `node` grow.
fn growth_on(node: NodeId, programs: &[Program]) -> f64 {
    let there = programs.iter().filter(|program| program.at == node);
    there.map(|program| program.growth.max(0.0)).sum()
}

/// What is known of the nodes, with what our own programs add. The growth that other nodes report is
/// that of their own programs alone, so the growth of ours there comes on top.
fn known_with(view: &View, urgency: f64, growth: f64, programs: &[Program]) -> Vec<Known> {
    let own = id(&view.own);
    let with = |known: &Known| {
        let mut known = *known;
        if known.node.node == own {
            known.node.urgency = urgency;
            known.growth = growth;
        } else {
            known.growth += growth_on(known.node.node, programs);
        }
        known
    };
    view.known.iter().map(with).collect()
}

fn save_lives(settings: &Settings, balancing: &mut Balancing, now: Millis) {
    let (at, saved) = balancing.saved;
    if now < at + SAVE_EVERY || saved == balancing.lives.count() {
        return;
    }
    if let Ok(bytes) = serde_json::to_vec(&balancing.lives) {
        settings.save(LIVES, &bytes);
    }
    balancing.saved = (now, balancing.lives.count());
}

fn view(daemon: &Daemon) -> View {
    let now = daemon.clock_ms();
    let own = daemon.cluster().node();
    let report = daemon.report();
    let takes = !report.draining;
    let used = report
        .memory_total_bytes
        .saturating_sub(report.memory_available_bytes);
    let mut known = vec![known(&own, &report, used, now, takes)];
    let mut names = HashMap::from([(id(&own), own.clone())]);
    let mut reports = HashMap::new();
    let members = daemon.cluster().members();
    // This node is not counted, as in `pulse`.
    let sampled = members.len() > daemon.config().balance.ask_above + 1;
    let hosts = if sampled {
        hosts(&daemon.moves().journeys())
    } else {
        HashSet::new()
    };
    let peers = daemon.peers();
    let instant = Instant::now();
    for member in members {
        let Some(health) = peers.get(&member.name).filter(|_| member.name != own) else {
            continue;
        };
        let told = &health.report;
        reports.insert(member.name.clone(), told.clone());
        names.insert(id(&member.name), member.name.clone());
        let age = instant.saturating_duration_since(health.heard).as_millis();
        if sampled && age > FRESH && !hosts.contains(&member.name) {
            continue;
        }
        let at = now.saturating_sub(u64::try_from(age).unwrap_or(u64::MAX));
        let free = told.memory_available_bytes.min(told.guests_left_bytes);
        let used = told.memory_total_bytes.saturating_sub(free);
        let up = peers.state(&member.name) == NodeState::Up;
        known.push(self::known(
            &member.name,
            told,
            used,
            at,
            up && !told.blocked,
        ));
    }
    let rate = peers.rate();
    drop(peers);
    View {
        now,
        own,
        report,
        names,
        reports,
        known,
        rate,
        uptime: processes::uptime(),
        sampled,
        moving: !daemon.moves().under_way().is_empty(),
    }
}

/// Nodes on which programs of this node compute.
fn hosts(journeys: &Journeys) -> HashSet<String> {
    let live = journeys.by_id.values().filter(|journey| journey.is_live());
    live.map(|journey| journey.location().to_string()).collect()
}

fn known(name: &str, report: &Report, used: u64, at: Millis, takes: bool) -> Known {
    let size = Size {
        speed: report.cpus * report.speed.value,
        memory: float(report.memory_total_bytes),
    };
    Known {
        node: Node {
            node: id(name),
            size,
            cores: report.cpus,
            running: report.running,
            urgency: report.urgency,
            memory: float(used.saturating_add(report.memory_promised_bytes)),
        },
        at,
        takes,
        growth: report.memory_growth_bytes,
    }
}

fn programs(
    daemon: &Daemon,
    balancing: &mut Balancing,
    view: &View,
    candidates: &[Candidate],
    journeys: &[Journey],
) -> Vec<Program> {
    let mut programs = Vec::new();
    for candidate in candidates {
        let Some(stat) = candidate.stat() else {
            continue;
        };
        let journey = journeys.iter().find(|journey| journey.is_of(&stat));
        watch_one(daemon, balancing, view, &stat, journey);
        programs.extend(program(daemon, balancing, view, candidate, &stat));
    }
    let alive: HashSet<i32> = candidates.iter().map(|c| c.pid).collect();
    let ended: Vec<i32> = balancing
        .watched
        .keys()
        .copied()
        .filter(|pid| !alive.contains(pid))
        .collect();
    for pid in ended {
        if let Some((watched, uid, name)) = balancing.watched.remove(&pid) {
            balancing.lives.ended(uid, &name, watched.done);
        }
    }
    balancing.verdicts.retain(|pid, _| alive.contains(pid));
    balancing
        .placed
        .retain(|pid, at| alive.contains(pid) && *at + PLACED > view.now);
    daemon
        .moves()
        .under_way()
        .forget_ends(view.now.saturating_sub(ASKED));
    programs
}

/// Looks at one program, wherever it is.
fn watch_one(
    daemon: &Daemon,
    balancing: &mut Balancing,
    view: &View,
    stat: &Stat,
    journey: Option<&Journey>,
) {
    let away = journey.and_then(|journey| journey.status.as_ref());
    let away = away.filter(|status| status.state != State::Home && status.location != view.own);
    let node = away.map_or(&view.own, |status| &status.location);
    let report = if *node == view.own {
        Some(&view.report)
    } else {
        view.reports.get(node)
    };
    let place = Place {
        node: node.clone(),
        is_home: away.is_none(),
        cores: report.map_or(1.0, |report| report.cpus),
        running: report.map_or(1.0, |report| report.running),
        speed: report.map_or(1.0, |report| report.speed.value),
    };
    let told = daemon.moves().under_way().moves_or_moved(stat.pid);
    let known = balancing.watched.get(&stat.pid);
    if known.is_none_or(|(watched, _, _)| watched.start_time != stat.start_time) {
        let ticks = float(stat.cpu_ticks);
        let watched = Observed::new(stat.start_time, &view.own, ticks / 100.0);
        let uid = processes::credentials(stat.pid).map_or(0, |credentials| credentials.uids[0]);
        balancing
            .watched
            .insert(stat.pid, (watched, uid, stat.name.clone()));
    }
    let Some((watched, _, name)) = balancing.watched.get_mut(&stat.pid) else {
        return;
    };
    let seen = match away {
        None => watch::at_home(stat.pid, stat),
        Some(status) => Reading {
            ran_ns: status.cpu_ns,
            busy_ns: status.busy_ns,
            counted: (status.busy_ns > 0).then_some(status.counted_ms),
            memory: status.resident_bytes,
            calls: status.forwarded_calls,
            bytes: 0,
            reaped: 0,
        },
    };
    // The process may have executed another program, and its life is noted by its name.
    if *name != stat.name {
        name.clone_from(&stat.name);
    }
    watched.threads = stat.threads;
    // In the middle of a move neither side shows what the program does.
    if !daemon.moves().under_way().contains(stat.pid) {
        watched.sample(view.now, &place, seen, told);
    }
}

fn program(
    daemon: &Daemon,
    balancing: &mut Balancing,
    view: &View,
    candidate: &Candidate,
    stat: &Stat,
) -> Option<Program> {
    let fixed = fixed(daemon, balancing, view, candidate, stat);
    let home = id(&view.own);
    let (watched, uid, name) = balancing.watched.get(&stat.pid)?;
    let (memory, age) = (
        float(watched.memory),
        view.uptime.map_or(0.0, |uptime| stat.age(uptime)),
    );
    let trip = balancing.balancer.rules.move_takes(memory);
    let loses = watched.loses(trip);
    let at = id(watched.node());
    let is_batch = candidate.options.class == Some(RunClass::Batch);
    let idle = watched.ran < IDLE && watched.was_seen_twice();
    let lasts = is_batch || balancing.lives.last(*uid, name);
    // A program that has just begun has shown nothing yet; if it is expected to last, it is assumed to
    // compute.
    let expected = if lasts && !watched.was_seen_twice() {
        1.0
    } else {
        0.0
    };
    Some(Program {
        task: Task {
            process: process(stat.pid, stat.start_time),
            cpus: watched.cpus().max(expected),
            memory,
            done: watched.done,
            age,
            here: watched.here(view.now, age),
            loses_here: if at == home { 0.0 } else { loses },
            loses_away: loses,
            home,
        },
        at,
        growth: watched.growth(),
        terminal: stat.is_foreground() && idle && !is_batch,
        fixed,
        forbidden: forbidden(daemon.sensors().class(), view, candidate),
        lasts,
    })
}

fn fixed(
    daemon: &Daemon,
    balancing: &mut Balancing,
    view: &View,
    candidate: &Candidate,
    stat: &Stat,
) -> Option<Fixed> {
    let pid = stat.pid;
    if balancing
        .placed
        .get(&pid)
        .is_some_and(|at| at + PLACED > view.now)
    {
        return Some(Fixed::Placed);
    }
    if candidate.options.class == Some(RunClass::Interactive) {
        return Some(Fixed::Interactive);
    }
    // Not kept as the verdicts below: 'whim run' becomes another program at any moment.
    let (probes, programs) = (daemon.moves().probes(), daemon.moves().programs());
    if programs.are_executed_by(probes, stat, Patience::Brief) {
        return Some(Fixed::Told);
    }
    let stopped = matches!(stat.state, 'T' | 't');
    let is_told = candidate.held || candidate.options.pin || view.report.stays || stopped;
    let known = balancing.verdicts.get(&pid).copied();
    let fresh = known.filter(|(start_time, at, _)| {
        *start_time == stat.start_time && at + CHECK_EVERY > view.now
    });
    let may = fresh.map_or_else(
        || candidacy::check(daemon.moves(), pid).is_ok(),
        |(_, _, may)| may,
    );
    if fresh.is_none() {
        balancing
            .verdicts
            .insert(pid, (stat.start_time, view.now, may));
    }
    (is_told || !may).then_some(Fixed::Told)
}

fn forbidden(own: &Class, view: &View, candidate: &Candidate) -> Vec<NodeId> {
    let needed = candidate.features.as_ref();
    let no = |(name, report): &(&String, &Report)| {
        candidate.forbids(name, &report.labels).is_some()
            || own.difference(&report.class, needed).is_some()
    };
    view.reports
        .iter()
        .filter(no)
        .map(|(name, _)| id(name))
        .collect()
}

/// The sum of the urgencies of what computes on this node: its own programs, guests, and all others.
fn urgency(daemon: &Daemon, balancing: &mut Balancing, view: &View, programs: &[Program]) -> f64 {
    let home = id(&view.own);
    let here = programs.iter().filter(|program| program.at == home);
    let (mut busy, mut sum) = (0.0, 0.0);
    for program in here {
        let task = &program.task;
        busy += task.cpus;
        sum += task.cpus.min(1.0) * decide::urgency(task.done);
    }
    let share = (view.report.cpus / view.report.running.max(view.report.cpus).max(0.01)).min(1.0);
    let guests = daemon.guests();
    balancing
        .guests
        .retain(|key, _| guests.by_key.contains_key(key));
    for (key, guest) in &guests.by_key {
        let since = *balancing.guests.entry(key.clone()).or_insert(view.now);
        let milliseconds = u32::try_from(view.now.saturating_sub(since)).unwrap_or(u32::MAX);
        let came_with = u32::try_from(guest.request.done_ms / 1000).unwrap_or(u32::MAX);
        let done = f64::from(came_with) + f64::from(milliseconds) / 1000.0 * share;
        busy += 1.0;
        sum += decide::urgency(done);
    }
    let others = (view.report.running - busy).max(0.0);
    sum + others * decide::urgency(UNKNOWN_DONE)
}

/// What the balancer decided about a process last, as a sentence and as its record.
#[must_use]
pub(crate) fn why(daemon: &Daemon, stat: &Stat) -> Option<(String, Option<Decided>)> {
    if !daemon.config().balance.enabled {
        let sentence = "This node moves nothing by itself: [balance] enabled, or --no-balance.";
        return Some((sentence.into(), None));
    }
    let own = daemon.cluster().node();
    let members = daemon.cluster().members();
    let name = |node: NodeId| {
        let mut names = members.iter().map(|member| &member.name).chain([&own]);
        names
            .find(|name| id(name) == node)
            .cloned()
            .unwrap_or_default()
    };
    let balancing = daemon.balancing();
    let record = balancing
        .balancer
        .record(process(stat.pid, stat.start_time))?;
    let (watched, _, _) = balancing.watched.get(&stat.pid)?;
    let candidate = daemon.moves().candidates().get(stat.pid).cloned();
    let moved = candidate.as_ref().and_then(|one| one.last_move.as_ref());
    let decided_ms = now_ms().saturating_sub(daemon.clock_ms().saturating_sub(record.at));
    let is_old = moved.is_some_and(|moved| moved.at_ms > decided_ms);
    let failure = candidate.and_then(|candidate| candidate.last_failure);
    let from = (watched.node(), failure.as_deref());
    if is_old && !matches!(record.verdict, Verdict::Move(_)) {
        return Some((words::NOT_SINCE.into(), None));
    }
    let is_unknown = !watched.was_seen_twice();
    let mut text = match record.verdict {
        Verdict::Light { .. } if is_unknown => words::UNMEASURED.into(),
        _ => words::record(record, daemon.clock_ms(), from, &name),
    };
    if !is_unknown {
        let trip = balancing.balancer.rules.move_takes(float(watched.memory));
        text.push_str(&words::measured(watched, trip));
    }
    let names = members.iter().map(|member| &member.name).chain([&own]);
    let nodes = names.map(|name| (name.clone(), id(name).0)).collect();
    let record = *record;
    Some((text, Some(Decided { record, nodes })))
}
