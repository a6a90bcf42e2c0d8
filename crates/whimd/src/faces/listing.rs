//! What `whim ps`, `log` and `nodes` show.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use whim_journey::job::State;
use whim_model::CpuTime;

use crate::daemon::Daemon;
use crate::faces::guests;
use crate::host::Host;
use crate::line::journal::{JournalSummary, read_journal};
use crate::line::probes::{NotSeen, Patience};
use crate::members::membership;
use crate::members::peers::Health;
use crate::moves::candidacy;
use crate::moves::candidate::Candidate;
use crate::moves::journeys::Journey;
use crate::moves::stay;
use crate::moves::watching;
use crate::words::counted;
use whim_control::protocol::{Admission, Answer, LogRow, NodeRow, NodeState, ProcessRow};
use whim_machine::processes::{self, Caller, Stat};
use whim_machine::sensors::{Report, float};
use whim_monitor::plain;
use whim_sys::freezer;

/// Rows of `whim ps`: this node's own processes, and its guests; `all` adds ended ones.
pub(crate) async fn processes(daemon: &Arc<Daemon>, all: bool) -> Vec<ProcessRow> {
    watching::refresh_all(daemon.moves()).await;
    if all {
        await_ends(daemon, |_| true, ENDED_WITHIN).await;
    }
    let blocking = Arc::clone(daemon);
    let looked_at = tokio::task::spawn_blocking(move || {
        let mut rows = own_rows(&blocking, all);
        name_users(&mut rows);
        rows
    });
    looked_at.await.unwrap_or_default()
}

/// Its guests, for who asks this node itself: others hear of them by their homes.
pub(crate) async fn guests(daemon: &Arc<Daemon>) -> Vec<ProcessRow> {
    let stopped = guests::stopped(daemon.host()).await;
    let blocking = Arc::clone(daemon);
    let looked_at = tokio::task::spawn_blocking(move || guests::rows(blocking.host(), &stopped));
    looked_at.await.unwrap_or_default()
}

/// Fills in the names of users. Each name is asked for once, not for each process.
fn name_users(rows: &mut [ProcessRow]) {
    let mut names: HashMap<u32, String> = HashMap::new();
    for row in rows {
        let Some(uid) = row.uid else { continue };
        let name = names
            .entry(uid)
            .or_insert_with(|| processes::user_name(uid));
        row.user = Some(name.clone());
    }
}

/// Hides what this caller may not see: of other users' processes of this node, only the program's name
/// is shown. Other nodes tell no more of theirs.
pub(crate) fn hide(node: &str, rows: &mut [ProcessRow], caller: &Caller) {
    let may_see = |row: &ProcessRow| row.uid.is_some_and(|uid| caller.may_see(uid));
    let others = |row: &&mut ProcessRow| row.home == node && !may_see(row);
    for row in rows.iter_mut().filter(others) {
        row.command = processes::program(&row.command).to_owned();
    }
}

/// How long the processes of a list are looked at for their command lines, and again for what keeps them
/// here: there may be thousands.
const LOOKING_MAX: Duration = Duration::from_secs(2);

fn own_rows(daemon: &Daemon, all: bool) -> Vec<ProcessRow> {
    daemon.moves().census().refresh();
    let candidates = daemon.moves().candidates().sorted();
    let journeys = daemon.moves().journeys().sorted(|j| all || j.is_live());
    let cpu_before = daemon.moves().journeys().cpu_before();
    let enough = Instant::now() + LOOKING_MAX;
    let mut at_home = Vec::new();
    let mut rows: Vec<ProcessRow> = Vec::new();
    if all {
        rows.extend(ended_rows(daemon, &journeys));
    }
    for candidate in candidates {
        let Some(stat) = candidate.stat() else {
            continue;
        };
        let journey = journeys.iter().find(|journey| journey.is_of(&stat));
        let (probes, programs) = (daemon.moves().probes(), daemon.moves().programs());
        if journey.is_none() && programs.are_executed_by(probes, &stat, Patience::Brief) {
            // 'whim ps' in a shell of 'whim shell' is no program of its user's.
            continue;
        }
        let mut row = match journey {
            Some(journey) => journey_row(daemon, journey, Some(&stat)),
            None => home_row(daemon, &candidate, &stat, enough),
        };
        row.cpu_seconds = Some(cpu_seconds(&stat, journey, &cpu_before));
        row.parent = Some(stat.parent);
        if let Ok(credentials) = processes::credentials(stat.pid) {
            row.uid = Some(credentials.uids[0]);
        }
        if candidate.stat().is_none() {
            // What was read by its pid may be another process's.
            continue;
        }
        if let Some(does) = daemon.balancing().does(&stat) {
            row.cpus_wanted = Some(does.wanted);
            row.cpus_got = Some(does.got);
            row.home_calls = Some(does.calls);
        }
        if journey.is_none_or(Journey::is_at_home) {
            at_home.push((rows.len(), candidate));
        }
        rows.push(row);
    }
    say_what_keeps(daemon, &mut rows, at_home);
    rows
}

/// CPU time of a process: what its kernel at home counts, what it uses on the journey that it is on, and what it used
/// on those before. The journeys that are forgotten are not counted.
fn cpu_seconds(
    stat: &Stat,
    journey: Option<&Journey>,
    before: &HashMap<(i32, u64), CpuTime>,
) -> f64 {
    const NANOSECONDS_OF_TICK: u64 = 1_000_000_000 / processes::TICKS_PER_SECOND;
    let status = journey.and_then(|journey| journey.status.as_ref());
    let now = status.map_or(0, |status| status.cpu_ns);
    let before = before.get(&(stat.pid, stat.start_time));
    let before = before.map_or(0, |time| time.user_ns.saturating_add(time.system_ns));
    let home = stat.cpu_ticks.saturating_mul(NANOSECONDS_OF_TICK);
    float(home.saturating_add(now).saturating_add(before) / 1_000_000) / 1000.0
}

/// Says of these rows what keeps their processes here. Those come first that have not been looked at for longest, so
/// that each has its turn in one of the next lists.
fn say_what_keeps(daemon: &Daemon, rows: &mut [ProcessRow], mut at_home: Vec<(usize, Candidate)>) {
    let key = |candidate: &Candidate| (candidate.pid, candidate.start_time);
    let listed: HashSet<_> = at_home.iter().map(|(_, one)| key(one)).collect();
    let mut seen = daemon.moves().seen();
    seen.keep(|process| listed.contains(&process));
    at_home.sort_by_key(|(_, one)| seen.last_look(key(one)));
    drop(seen);
    let enough = Instant::now() + LOOKING_MAX;
    for (index, candidate) in &at_home {
        let Some(row) = rows.get_mut(*index) else {
            continue;
        };
        row.stay = match Instant::now() < enough {
            true => {
                let look = stay_of(daemon, candidate);
                let mut seen = daemon.moves().seen();
                seen.looked_at(key(candidate), Instant::now(), look)
            }
            false => daemon.moves().seen().left_out(key(candidate)),
        };
        let moves_now = row.stay.as_deref() == Some(stay::MOVES_NOW)
            // Its move may have ended since the row was made, and its tracer be no supervisor that is known any more.
            || row.state == State::Moving;
        if moves_now || daemon.moves().under_way().contains(candidate.pid) {
            // Meanwhile our own supervisor traces it.
            row.stay = None;
            row.state = State::Moving;
        }
        if candidate.stat().is_none() {
            // The reason may be another process's.
            row.stay = None;
        }
    }
}

/// After `enough`, its command line is not looked at any more.
fn home_row(daemon: &Daemon, candidate: &Candidate, stat: &Stat, enough: Instant) -> ProcessRow {
    let stopped = matches!(stat.state, 'T' | 't');
    let node = daemon.cluster().node();
    ProcessRow {
        pid: stat.pid,
        home: node.clone(),
        r#where: node,
        state: if stopped { State::Stopped } else { State::Home },
        reason: None,
        moves: candidate.moves,
        cpu_seconds: None,
        cpus_wanted: None,
        cpus_got: None,
        home_calls: None,
        cpu_percent: candidate.cpu_percent,
        memory_bytes: stat.resident_bytes,
        stay: None,
        not_candidate: candidacy::reason(daemon.moves(), stat.pid),
        uid: None,
        user: None,
        parent: None,
        home_supervisor_pid: None,
        guest_supervisor_pid: None,
        command: match Instant::now() < enough {
            true => daemon.moves().probes().command(stat.pid),
            false => processes::bracketed(stat.pid),
        },
    }
}

fn stay_of(daemon: &Daemon, candidate: &Candidate) -> Result<Option<String>, NotSeen> {
    let everywhere = candidate.held || candidate.options.pin;
    let own = if everywhere {
        candidate.forbids("", &[])
    } else {
        None
    };
    if own.is_some() {
        return Ok(own);
    }
    let reason = stay::reason(daemon.moves(), candidate.pid)?;
    Ok(reason.or_else(|| candidate.found_to_stay.clone()))
}

/// Processes that have moved and ended, each with its last journey.
fn ended_rows(daemon: &Daemon, journeys: &[Journey]) -> Vec<ProcessRow> {
    let mut last = HashMap::new();
    for journey in journeys {
        last.insert((journey.about.pid, journey.about.start_time), journey);
    }
    let mut last: Vec<&Journey> = last.into_values().collect();
    last.sort_by_key(|journey| journey.about.begun_ms);
    let mut rows = Vec::new();
    for journey in last {
        let about = &journey.about;
        let Some(end) = &about.end else {
            if is_ending(journey) {
                let mut row = journey_row(daemon, journey, None);
                row.state = State::Ended;
                row.reason = Some("How it ended has not been noted yet".to_owned());
                rows.push(row);
            }
            continue;
        };
        if end.at_home && processes::lives(about.pid, about.start_time) {
            continue;
        }
        let mut row = journey_row(daemon, journey, None);
        if end.at_home {
            row.state = State::Ended;
            row.reason = Some(watching::ENDED_AT_HOME.to_owned());
        }
        rows.push(row);
    }
    rows
}

fn journey_row(daemon: &Daemon, journey: &Journey, stat: Option<&Stat>) -> ProcessRow {
    let about = &journey.about;
    let status = journey.status.as_ref();
    let home = journey.is_at_home();
    let location = match &about.end {
        Some(end) => end.location.clone().unwrap_or_else(|| about.home.clone()),
        None => journey.location().to_string(),
    };
    let resident = status.filter(|_| !home).map(|status| status.resident_bytes);
    let held = status
        .filter(|status| status.held_threads > 0)
        .map(|status| {
            format!(
                "{} threads are traced by the home supervisor (pid {}) until their calls end",
                status.held_threads, status.supervisor_pid
            )
        });
    ProcessRow {
        pid: about.pid,
        home: about.home.clone(),
        r#where: location,
        state: if stat.is_some() && daemon.moves().under_way().contains(about.pid) {
            State::Moving
        } else {
            journey.state()
        },
        reason: about
            .end
            .as_ref()
            .map(|end| end.reason.clone())
            .or_else(|| stat.and_then(|stat| stands_still(stat.pid)))
            .or_else(|| status.and_then(|status| status.reason.clone()))
            .or(held),
        moves: journey.moves(),
        cpu_seconds: None,
        cpus_wanted: None,
        cpus_got: None,
        home_calls: None,
        cpu_percent: journey.cpu_percent,
        memory_bytes: resident
            .or_else(|| stat.map(|stat| stat.resident_bytes))
            .unwrap_or(0),
        stay: (journey.state() == State::Stopped).then(stay::stopped),
        not_candidate: stat.and_then(|stat| candidacy::reason(daemon.moves(), stat.pid)),
        uid: Some(about.requested_by),
        user: None,
        parent: None,
        home_supervisor_pid: journey.supervisor_pid.filter(|_| journey.is_live()),
        guest_supervisor_pid: about
            .guest_supervisor_pid
            .filter(|_| journey.is_live() && !home),
        command: about.command.clone(),
    }
}

/// A supervisor that waits for its frozen deputy may not answer, so the daemon looks itself.
pub(super) fn stands_still(pid: i32) -> Option<String> {
    freezer::frozen_group_of(pid).map(|group| plain::sentence(&freezer::sentence(&group)))
}

/// Lines of `whim log`; with a pid, which calls each of its journeys sent home, the most frequent
/// first, and what called it home.
pub(crate) async fn log(daemon: &Arc<Daemon>, calls: Option<i32>) -> Vec<LogRow> {
    let Some(pid) = calls else {
        return daemon.events().last();
    };
    watching::refresh_all(daemon.moves()).await;
    let journeys = daemon.moves().journeys().sorted(|j| j.about.pid == pid);
    let mut rows = Vec::new();
    for journey in journeys {
        let id = &journey.about.journey;
        let mut summary = read_journal(daemon.settings().journal(id)).await;
        if journey.is_live() {
            summary.add_calls(watching::calls(daemon.moves(), id).await);
        }
        let texts = call_lines(&summary, journey.moves());
        rows.extend(texts.into_iter().map(|text| LogRow {
            time_ms: journey.about.begun_ms,
            pid: Some(pid),
            program: Some(processes::program(&journey.about.command).to_owned()),
            what: "calls".into(),
            text,
        }));
    }
    rows
}

/// A supervisor notes how its journey has ended within this time.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// A list of ended processes waits no longer than this for those that end just now.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// CPU time that the programs of a run have used away, and how often they have moved. Waits for journeys
/// whose processes are gone, but not for programs that live on.
pub(crate) async fn cpu_away(daemon: &Arc<Daemon>, run: &str) -> (CpuTime, u32) {
    let of_run = |journey: &Journey| journey.about.run.as_deref() == Some(run);
    await_ends(daemon, of_run, ENDING_MAX).await;
    let (journeys, mut sum) = {
        let all = daemon.moves().journeys();
        (all.sorted(of_run), all.forgotten_of(run))
    };
    for journey in journeys {
        let read = read_journal(daemon.settings().journal(&journey.about.journey)).await;
        sum.0 = sum.0.plus(read.cpu_away);
        sum.1 = sum.1.saturating_add(read.done);
    }
    sum
}

/// Whether its process is gone, and how the journey ended is being noted.
fn is_ending(journey: &Journey) -> bool {
    let about = &journey.about;
    journey.is_live() && !processes::lives(about.pid, about.start_time)
}

/// Waits for the ends of such journeys that end just now; not for long, because a disk that stands still keeps them
/// from being noted.
async fn await_ends(daemon: &Arc<Daemon>, of: impl Fn(&Journey) -> bool, within: Duration) {
    let end = tokio::time::Instant::now() + within;
    loop {
        let live = |journey: &Journey| journey.is_live() && of(journey);
        let mut ending = daemon.moves().journeys().sorted(live);
        ending.retain(is_ending);
        if ending.is_empty() || tokio::time::Instant::now() >= end {
            return;
        }
        for journey in ending {
            watching::refresh_until(daemon.moves(), &journey.about.journey, end).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn call_lines(summary: &JournalSummary, moves: u32) -> Vec<String> {
    let counts = summary.calls.values();
    let total = counts.fold(0u64, |sum, count| sum.saturating_add(*count));
    let mut lines = vec![format!(
        "{} sent home in {}",
        counted(total, "call", "calls"),
        counted(moves.into(), "move", "moves")
    )];
    let mut calls: Vec<(&String, &u64)> = summary.calls.iter().collect();
    calls.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    lines.extend(
        calls
            .iter()
            .map(|(name, count)| format!("{count} x {name}")),
    );
    for (reason, times) in &summary.homeward {
        lines.push(format!("came home {times} x: {reason}"));
    }
    lines
}

/// Rows of `whim nodes`: this node first, the others by name.
#[must_use]
pub(crate) fn nodes(host: &Host) -> Vec<NodeRow> {
    let own = host.ground().cluster().node();
    let report = host.report();
    let state = if report.draining {
        NodeState::Draining
    } else {
        NodeState::Up
    };
    let mut rows = vec![node_row(own.clone(), state, Some(&report))];
    let peers = host.ground().peers();
    let mut members = host.ground().cluster().members();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    for member in members.into_iter().filter(|member| member.name != own) {
        let report = peers.get(&member.name).map(|Health { report, .. }| report);
        let state = peers.state(&member.name);
        let row = peer_row(member.name.clone(), state, report);
        let refuses = membership::refusal(&member.name, peers.refused_since);
        rows.push(NodeRow { refuses, ..row });
    }
    for admitted in host.ground().cluster().admitted() {
        // The earliest admission comes first, so a node that was removed and came back is shown with its
        // newest token.
        let row = rows
            .iter_mut()
            .find(|row| row.name == admitted.node.as_str());
        if let Some(row) = row {
            row.admitted = Some(Admission {
                token: admitted.token,
                time_ms: admitted.at.saturating_mul(1000),
                from: admitted.from,
            });
        }
    }
    rows
}

/// What a node that is down does is nothing; what it last said of that would look like news.
fn peer_row(name: String, state: NodeState, report: Option<&Report>) -> NodeRow {
    let row = node_row(name, state, report);
    if state != NodeState::Down {
        return row;
    }
    NodeRow {
        load: None,
        throttled_cpus: None,
        cpu_pressure_percent: None,
        memory_pressure_percent: None,
        ..row
    }
}

fn node_row(name: String, state: NodeState, report: Option<&Report>) -> NodeRow {
    NodeRow {
        name,
        state,
        load: report.map(|report| report.load),
        speed: report.map(|report| report.speed.value),
        speed_estimated: report.map(|report| report.speed.estimated),
        cpus: report.map(|report| report.cpus),
        throttled_cpus: report.map(|report| report.throttled_cpus),
        cpu_pressure_percent: report.and_then(|report| report.pressure.cpu_some),
        memory_pressure_percent: report.and_then(|report| report.pressure.memory_full),
        memory_total_bytes: report.map(|report| report.memory_total_bytes),
        memory_available_bytes: report.map(|report| report.memory_available_bytes),
        memory_promised_bytes: report.map(|report| report.memory_promised_bytes),
        guests: report.map(|report| report.guests),
        blocked: report.map(|report| report.blocked),
        stays: report.map(|report| report.stays),
        evacuates: report.map(|report| report.evacuates),
        owner_here: report.map(|report| report.owner_here),
        labels: report.map(|report| report.labels.clone()),
        admitted: None,
        refuses: None,
        class: report.map(|report| report.class.to_string()),
    }
}

/// Rows as answers.
pub(crate) fn answers<T>(rows: Vec<T>, make: impl Fn(T) -> Answer) -> Vec<Answer> {
    rows.into_iter().map(make).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::faces::reasons::sentences_of;
    use crate::faces::waiting::Waiting;
    use crate::faults::Faults;
    use crate::members::cluster::Cluster;
    use crate::moves::candidate::Declaration;
    use crate::moves::journeys::About;
    use crate::moves::journeys::Notes;
    use crate::settings::Settings;
    use whim_control::config::Config;
    use whim_control::protocol::RunOptions;
    use whim_sys::ptrace::{Options, Running};

    fn row(home: &str, uid: u32, command: &str) -> ProcessRow {
        let line = format!(
            r#"{{"pid":1,"home":"{home}","where":"n1","state":"home","reason":null,"moves":0,"uid":{uid},
               "cpu_percent":1.0,"memory_bytes":1,"stay":null,"home_supervisor_pid":null,
               "guest_supervisor_pid":null,"command":"{command}"}}"#
        );
        serde_json::from_str(&line).expect("a row")
    }

    fn seen_by(uid: u32, admin: bool) -> Vec<String> {
        let caller = Caller {
            pid: 1,
            uid,
            gid: uid,
            admin,
        };
        let mut rows = [
            row("n1", 1000, "/bin/program secret"),
            row("n1", 1001, "/usr/bin/other secret"),
            row("n2", 65_000, "[guest of uid 65000]"),
        ];
        hide("n1", &mut rows, &caller);
        rows.into_iter().map(|row| row.command).collect()
    }

    #[test]
    fn arguments_are_for_their_user_and_administrators() {
        let guest = "[guest of uid 65000]";
        assert_eq!(
            seen_by(1000, false),
            ["/bin/program secret", "other", guest]
        );
        assert_eq!(seen_by(7, false), ["program", "other", guest]);
        let all = ["/bin/program secret", "/usr/bin/other secret", guest];
        assert_eq!(seen_by(7, true), all);
    }

    #[test]
    fn a_node_that_is_down_shows_no_load() {
        let mut report = Report {
            load: 2.5,
            cpus: 4.0,
            throttled_cpus: 0.5,
            ..Report::default()
        };
        report.pressure.cpu_some = Some(12.5);
        report.pressure.memory_full = Some(1.0);
        let doing = |state| {
            let row = peer_row("n2".into(), state, Some(&report));
            // What it is stays known.
            assert_eq!((row.state, row.cpus), (state, Some(4.0)));
            [
                row.load,
                row.throttled_cpus,
                row.cpu_pressure_percent,
                row.memory_pressure_percent,
            ]
        };
        assert_eq!(doing(NodeState::Down), [None; 4]);
        for state in [NodeState::Up, NodeState::Suspect, NodeState::Draining] {
            let said = [Some(2.5), Some(0.5), Some(12.5), Some(1.0)];
            assert_eq!(doing(state), said, "{state:?}");
        }
    }

    fn daemon(directory: &Path) -> Arc<Daemon> {
        let identity = directory.join("identity");
        let cluster = Cluster::open(identity, Vec::new(), "x86-64".into()).expect("opened");
        let settings = Settings {
            state: directory.to_path_buf(),
            run: directory.to_path_buf(),
            configured: Config::lab(),
            libexec: directory.to_path_buf(),
            root: true,
            faults: Faults::default(),
        };
        Daemon::new(settings, cluster)
    }

    /// A journey that this supervisor carries. Its own process is another one, so that nothing else says that ours moves.
    fn carried_by(supervisor: &Stat) -> Journey {
        Journey::new(About {
            pid: std::process::id().cast_signed(),
            notes: Notes {
                supervisor: Some((supervisor.pid, supervisor.start_time)),
                ..Notes::default()
            },
            ..About::invented("j1")
        })
    }

    /// What becomes of a row that was made while its process moved, if the reason is asked for after that.
    fn seen_later(daemon: &Daemon, pid: i32) -> (State, Option<String>) {
        let mut rows = own_rows(daemon, false);
        rows.retain(|row| row.pid == pid);
        rows[0].state = State::Moving;
        let known = daemon.moves().candidates().get(pid).cloned();
        say_what_keeps(daemon, &mut rows, vec![(0, known.expect("a candidate"))]);
        (rows[0].state, rows[0].stay.take())
    }

    /// It was shown as traced by a debugger.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_that_its_supervisor_holds_is_moving() {
        let directory = tempfile::tempdir().expect("directory");
        let daemon = daemon(directory.path());
        let program = Waiting::start();
        let pid = program.pid();
        let stat = processes::stat(pid).expect("alive");
        let caller = Caller {
            pid: 1,
            uid: 0,
            gid: 0,
            admin: true,
        };
        let credentials = processes::credentials(pid).expect("alive");
        let declaration = Declaration::by(&caller, &credentials);
        let candidate = Candidate::new(&stat, RunOptions::default(), declaration);
        let added = daemon.moves().candidates().add(candidate);
        added.expect("room");
        Running::seize(pid, Options::NONE).expect("traced");
        let said = || {
            let rows = own_rows(&daemon, false);
            let row = rows.into_iter().find(|row| row.pid == pid).expect("listed");
            let why = sentences_of(&daemon, &caller, &stat, None).join(" ");
            (row.state, row.stay, why)
        };
        let (state, stay, why) = said();
        assert_eq!(state, State::Home);
        assert!(stay.is_some_and(|stay| stay.contains("traced by")));
        assert!(why.contains("traced by"), "{why}");
        assert_eq!(seen_later(&daemon, pid), (State::Moving, None));
        let tracer = processes::stat(std::process::id().cast_signed()).expect("alive");
        let journey = carried_by(&tracer);
        let mut journeys = daemon.moves().journeys();
        journeys.by_id.insert("j1".into(), journey);
        drop(journeys);
        let (state, stay, why) = said();
        assert_eq!((state, stay), (State::Moving, None));
        assert!(why.contains(stay::MOVES_NOW), "{why}");
        assert!(!why.contains("traced by"), "{why}");
    }

    /// A program that began to move was shown as traced by a debugger, until its journey had noted its supervisor.
    #[tokio::test]
    async fn a_supervisor_is_known_before_its_journey_notes_it() {
        let directory = tempfile::tempdir().expect("directory");
        let daemon = daemon(directory.path());
        let started = Waiting::start();
        assert!(stay::is_home_supervisor(daemon.moves(), started.pid()));
        let another = nix::unistd::getppid().as_raw();
        assert!(!stay::is_home_supervisor(daemon.moves(), another));
    }
}
