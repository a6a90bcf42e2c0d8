//! Journeys of this node's own processes: one for each home supervisor.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use whim_journey::job::{Phase, State, Status};
use whim_model::CpuTime;

use whim_control::protocol::LeaseChoice;
use whim_machine::processes::Stat;
use whim_machine::sensors::float;

/// Journals of ended journeys that are kept.
const KEPT: usize = 1000;
/// On average, no more than this of a journal is read in a millisecond.
const JOURNAL_BYTES_PER_MS: u64 = 256;
/// After a supervisor has not answered in time, nobody waits for it during twice this pause. The pause
/// doubles with each further silence, up to so many of them.
const SILENCE_PAUSE_MS: u64 = 2_000;
const SILENCES_MAX: u32 = 10;

/// What we note about a journey when it begins, beside its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub journey: String,
    pub pid: i32,
    pub start_time: u64,
    pub command: String,
    pub home: String,
    /// uid that asked for the first move.
    pub requested_by: u32,
    /// Milliseconds since 1970.
    pub begun_ms: u64,
    /// The name of the run that it belongs to (`whim run --time`).
    #[serde(default)]
    pub run: Option<String>,
    /// Moves of earlier journeys of the same process.
    pub moves_before: u32,
    /// pid of the guest supervisor where the process is now, as its host told when it admitted the
    /// guest.
    #[serde(default)]
    pub guest_supervisor_pid: Option<i32>,
    /// What we know of it ourselves, and act upon.
    #[serde(default)]
    pub notes: Notes,
    /// When and how it ended; `None` while it lasts.
    #[serde(default)]
    pub end: Option<End>,
}

/// What the daemon itself has found out about a journey.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notes {
    /// pid and start time of the home supervisor.
    #[serde(default)]
    pub supervisor: Option<(i32, u64)>,
    /// Limits of the process before its supervisor was started: resource, soft and hard limit.
    #[serde(default)]
    pub limits: Vec<(u32, u64, u64)>,
    /// Under which uid the supervisor of an older daemon listens, in a directory that was its own.
    #[serde(default)]
    pub older: Option<u32>,
    /// The lease of this journey, noted because the configured one may change before the journey ends.
    #[serde(default)]
    pub lease: Option<LeaseChoice>,
}

/// How a journey ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub at_ms: u64,
    /// The process came home and goes on there.
    pub at_home: bool,
    pub reason: String,
    pub moves: u32,
    #[serde(default)]
    pub location: Option<String>,
    /// CPU time that the process has used away.
    #[serde(default)]
    pub cpu_away: CpuTime,
}

/// One journey.
#[derive(Clone, Debug)]
pub(crate) struct Journey {
    pub about: About,
    /// As last heard from the supervisor; not kept once the journey has ended.
    pub status: Option<Status>,
    pub supervisor_pid: Option<i32>,
    /// Highest epoch for which a slot was requested.
    pub epoch: u32,
    /// Host and epoch of the move that is under way.
    pub bound_for: Option<(String, u32)>,
    /// Moves that its journal tells of, and where the last one went.
    pub done: u32,
    pub last_host: Option<String>,
    /// Last sample of its CPU time: (milliseconds of our clock, nanoseconds).
    pub seen: Option<(u64, u64)>,
    pub cpu_percent: f64,
    /// How its supervisor answers when it is asked.
    pub manners: Manners,
    /// One return from a removed host at a time.
    pub eviction: Arc<tokio::sync::Mutex<()>>,
    /// Why we ended its supervisor, if we did.
    pub cut: Option<String>,
}

/// How a supervisor has answered so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manners {
    /// It is being asked just now.
    pub asked: bool,
    /// Until when nobody waits for its answers (milliseconds of our clock), and how often it has not
    /// answered in time. The more often, the longer nobody waits.
    not_awaited_until: u64,
    silences: u32,
    /// Length of the journal when it was last read, and when that was.
    pub journal: Option<(u64, u64)>,
}

impl Manners {
    /// Whether others wait for its answer.
    #[must_use]
    pub(crate) fn is_awaited(&self, now_ms: u64) -> bool {
        now_ms >= self.not_awaited_until
    }

    /// It has not answered in time.
    pub(crate) fn was_silent(&mut self, now_ms: u64) {
        self.silences = self.silences.saturating_add(1).min(SILENCES_MAX);
        let pause = SILENCE_PAUSE_MS << self.silences;
        self.not_awaited_until = now_ms.saturating_add(pause);
    }

    /// Whether the journal is to be read again, now that it has this length. A long journal is read less
    /// often.
    pub(crate) fn reads(&mut self, length: u64, now_ms: u64) -> bool {
        let pause = length / JOURNAL_BYTES_PER_MS;
        let is_read = self
            .journal
            .is_none_or(|(before, at)| length != before && now_ms.saturating_sub(at) >= pause);
        if is_read {
            self.journal = Some((length, now_ms));
        }
        is_read
    }
}

impl Journey {
    #[must_use]
    pub(crate) fn new(about: About) -> Self {
        Self {
            about,
            status: None,
            supervisor_pid: None,
            epoch: 0,
            bound_for: None,
            done: 0,
            last_host: None,
            seen: None,
            cpu_percent: 0.0,
            manners: Manners::default(),
            eviction: Arc::default(),
            cut: None,
        }
    }

    /// Whether this is the journey of a process that lives.
    #[must_use]
    pub(crate) fn is_of(&self, stat: &Stat) -> bool {
        self.is_live() && (self.about.pid, self.about.start_time) == (stat.pid, stat.start_time)
    }

    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.about.end.is_none()
    }

    /// Whether its process is at home, as far as is known.
    #[must_use]
    pub(crate) fn is_at_home(&self) -> bool {
        let status = self.status.as_ref();
        status.is_none_or(|status| status.state == State::Home)
    }

    /// Where its computation is.
    #[must_use]
    pub(crate) fn location(&self) -> &str {
        self.status
            .as_ref()
            .map_or(&self.about.home, |status| &status.location)
    }

    #[must_use]
    pub(crate) fn state(&self) -> State {
        if self.is_live() {
            self.status
                .as_ref()
                .map_or(State::Moving, |status| status.state)
        } else {
            State::Ended
        }
    }

    /// Takes a new status; `now_ms` rises steadily.
    pub(crate) fn note_status(&mut self, status: Status, now_ms: u64) {
        match self.seen {
            Some((then, cpu_ns)) if now_ms >= then + 200 => {
                let micros = status.cpu_ns.saturating_sub(cpu_ns) / 1000;
                let tenths = micros / (now_ms - then).max(1);
                self.cpu_percent = float(tenths) / 10.0;
                self.seen = Some((now_ms, status.cpu_ns));
            }
            Some(_) => {}
            None => self.seen = Some((now_ms, status.cpu_ns)),
        }
        self.epoch = self.epoch.max(status.epoch);
        self.supervisor_pid = Some(status.supervisor_pid);
        self.status = Some(status);
    }

    /// Its supervisor says that it has arrived there. What is known of it must not wait until the supervisor, which
    /// may have much to do then, is asked: the next host believes only whom home names as the last one.
    pub(crate) fn note_arrival(&mut self, node: &str, epoch: u32) {
        self.epoch = self.epoch.max(epoch);
        let about = &self.about;
        let status = self.status.get_or_insert_with(|| Status {
            journey: about.journey.clone(),
            pid: about.pid,
            home: about.home.clone(),
            location: String::new(),
            state: State::Away,
            phase: Phase::Away,
            epoch: 0,
            moves: 0,
            supervisor_pid: about.notes.supervisor.map_or(0, |(pid, _)| pid),
            cpu_ns: 0,
            busy_ns: 0,
            counted_ms: 0,
            resident_bytes: 0,
            forwarded_calls: 0,
            held_threads: 0,
            reason: None,
        });
        // It may have been asked meanwhile, and have come home since.
        if status.epoch < epoch {
            status.location = node.to_owned();
            status.epoch = epoch;
            status.state = State::Away;
            status.moves = status.moves.saturating_add(1);
        }
    }

    /// Ends the journey. Little of it is kept, because there may be many ended journeys.
    pub(crate) fn take_end(&mut self, end: End) {
        self.about.end = Some(end);
        self.status = None;
        self.cpu_percent = 0.0;
    }

    #[must_use]
    pub(crate) fn moves(&self) -> u32 {
        let now = self.about.end.as_ref().map_or(self.done, |end| end.moves);
        self.about.moves_before.saturating_add(now)
    }
}

/// All journeys, by their identifier.
#[derive(Debug, Default)]
pub(crate) struct Journeys {
    pub by_id: HashMap<String, Journey>,
    /// CPU time that forgotten journeys of a run have used away, and their moves: a program of the run
    /// may outlive any number of others. The run of the journey that was forgotten last comes last.
    forgotten: VecDeque<(String, CpuTime, u32)>,
}

impl Journeys {
    /// Loads what earlier daemons noted, and removes the oldest ended journeys beyond what is kept.
    #[must_use]
    pub(crate) fn load(directory: &Path) -> Self {
        let mut found: Vec<About> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| noted_in(&entry.path()))
            .collect();
        found.sort_by_key(|about: &About| std::cmp::Reverse(about.begun_ms));
        let mut journeys = Self::default();
        for about in found {
            if journeys.by_id.len() >= KEPT && about.end.is_some() {
                for kind in ["json", "journal"] {
                    let _ = fs::remove_file(directory.join(format!("{}.{kind}", about.journey)));
                }
                continue;
            }
            journeys
                .by_id
                .insert(about.journey.clone(), Journey::new(about));
        }
        journeys
    }

    /// Removes the journeys that ended longest ago, beyond what is kept, and returns their identifiers.
    pub(crate) fn forget_oldest(&mut self) -> Vec<String> {
        let ended = |about: &About| Some((about.end.as_ref()?.at_ms, about.journey.clone()));
        let abouts = self.by_id.values().map(|journey| &journey.about);
        let mut all: Vec<(u64, String)> = abouts.filter_map(ended).collect();
        all.sort_by(|one, other| other.cmp(one));
        let old: Vec<String> = all.into_iter().skip(KEPT).map(|(_, id)| id).collect();
        for id in &old {
            let about = self.by_id.remove(id).map(|journey| journey.about);
            if let Some((Some(run), Some(end))) = about.map(|about| (about.run, about.end)) {
                self.add_forgotten(run, (end.cpu_away, end.moves));
            }
        }
        old
    }

    fn add_forgotten(&mut self, run: String, (time, moves): (CpuTime, u32)) {
        let (before, moves_before) = self.forgotten_of(&run);
        self.forgotten.retain(|(other, _, _)| *other != run);
        if self.forgotten.len() >= KEPT {
            self.forgotten.pop_front();
        }
        let moves = moves.saturating_add(moves_before);
        self.forgotten.push_back((run, time.plus(before), moves));
    }

    /// CPU time that forgotten journeys of a run have used away, and their moves.
    #[must_use]
    pub(crate) fn forgotten_of(&self, run: &str) -> (CpuTime, u32) {
        let found = self.forgotten.iter().find(|(other, _, _)| other == run);
        found.map_or_else(Default::default, |(_, time, moves)| (*time, *moves))
    }

    /// The journey that carries this process now.
    #[must_use]
    pub(crate) fn of_process(&self, pid: i32) -> Option<&Journey> {
        self.by_id
            .values()
            .find(|journey| journey.is_live() && journey.about.pid == pid)
    }

    /// Whether this process is the home supervisor of one of them.
    #[must_use]
    pub(crate) fn are_carried_by(&self, pid: i32, start_time: u64) -> bool {
        let mut live = self.by_id.values().filter(|journey| journey.is_live());
        live.any(|journey| journey.about.notes.supervisor == Some((pid, start_time)))
    }

    #[must_use]
    pub(crate) fn live(&self) -> Vec<Journey> {
        self.by_id
            .values()
            .filter(|journey| journey.is_live())
            .cloned()
            .collect()
    }

    /// The journeys for which `which` holds, oldest first. Only these are copied: ended journeys are
    /// many, and copying all of them each second takes noticeable time.
    #[must_use]
    pub(crate) fn sorted(&self, which: impl Fn(&Journey) -> bool) -> Vec<Journey> {
        let these = self.by_id.values().filter(|journey| which(journey));
        let mut list: Vec<Journey> = these.cloned().collect();
        list.sort_by_key(|journey| journey.about.begun_ms);
        list
    }

    /// CPU time that processes have used on journeys from which they came home, by pid and start time.
    #[must_use]
    pub(crate) fn cpu_before(&self) -> HashMap<(i32, u64), CpuTime> {
        let mut sums: HashMap<(i32, u64), CpuTime> = HashMap::new();
        for about in self.by_id.values().map(|journey| &journey.about) {
            let Some(end) = about.end.as_ref().filter(|end| end.at_home) else {
                continue;
            };
            let sum = sums.entry((about.pid, about.start_time)).or_default();
            *sum = sum.plus(end.cpu_away);
        }
        sums
    }

    /// The newest of the journeys for which `which` holds.
    #[must_use]
    pub(crate) fn newest(&self, which: impl Fn(&About) -> bool) -> Option<About> {
        let abouts = self.by_id.values().map(|journey| &journey.about);
        let these = abouts.filter(|about| which(about));
        these.max_by_key(|about| about.begun_ms).cloned()
    }
}

#[cfg(test)]
impl About {
    /// A journey as tests want one: of process 4711 of n1, without anything that has happened to it.
    pub(crate) fn invented(journey: &str) -> Self {
        Self {
            journey: journey.into(),
            pid: 4711,
            start_time: 0,
            command: "true".into(),
            home: "n1".into(),
            requested_by: 0,
            begun_ms: 0,
            run: None,
            moves_before: 0,
            guest_supervisor_pid: None,
            notes: Notes::default(),
            end: None,
        }
    }
}

/// What was noted of a journey in a file.
fn noted_in(path: &Path) -> Option<About> {
    let read = fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    let failed = |error: &std::io::Error| {
        tracing::error!(
            path = %path.display(), %error,
            "the record of a journey is damaged: its program can neither be moved nor brought home"
        );
    };
    read.inspect_err(failed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(number: u64) -> About {
        About {
            start_time: number,
            ..About::invented(&format!("j{number}"))
        }
    }

    #[test]
    fn journeys_that_ended_longest_ago_are_forgotten() {
        let mut journeys = Journeys::default();
        let mut add = |number: u64, ended: bool| {
            let at_ms = 1_000_000 - number;
            let about = About {
                run: (number >= KEPT as u64 - 2).then(|| "r".into()),
                end: ended.then(|| End {
                    at_ms,
                    at_home: true,
                    reason: "It ended".into(),
                    moves: 3,
                    location: None,
                    cpu_away: CpuTime {
                        total_ns: 3,
                        ..CpuTime::default()
                    },
                }),
                ..about(number)
            };
            journeys
                .by_id
                .insert(about.journey.clone(), Journey::new(about));
        };
        (0..KEPT as u64).for_each(|number| add(number, true));
        add(9_999, false);
        assert_eq!(journeys.forget_oldest(), Vec::<String>::new());
        let mut add_two = |numbers: [u64; 2]| {
            for number in numbers {
                let mut about = journeys.by_id["j0"].about.clone();
                about.journey = format!("j{number}");
                journeys
                    .by_id
                    .insert(about.journey.clone(), Journey::new(about));
            }
            journeys.forget_oldest()
        };
        assert_eq!(add_two([5000, 5001]), ["j998", "j999"]);
        assert!(journeys.by_id.contains_key("j9999"));
        // `whim run --time` still counts them.
        let (used, moves) = journeys.forgotten_of("r");
        assert_eq!((used.total_ns, moves), (6, 6));
    }

    #[test]
    fn what_has_ended_is_no_longer_looked_at_each_second() {
        let mut journeys = Journeys::default();
        for (number, begun_ms) in [(1, 30), (2, 10), (3, 20)] {
            let about = About {
                begun_ms,
                ..about(number)
            };
            let journey = Journey::new(about);
            journeys
                .by_id
                .insert(journey.about.journey.clone(), journey);
        }
        let ids = |list: Vec<Journey>| -> Vec<String> {
            list.into_iter().map(|j| j.about.journey).collect()
        };
        assert_eq!(ids(journeys.sorted(Journey::is_live)), ["j2", "j3", "j1"]);
        let end = End {
            at_ms: 40,
            at_home: true,
            reason: "It is at home again".into(),
            moves: 2,
            location: None,
            cpu_away: CpuTime::default(),
        };
        let first = journeys.by_id.get_mut("j1").expect("there");
        first.cpu_percent = 90.0;
        first.take_end(end);
        assert_eq!((first.state(), first.moves()), (State::Ended, 2));
        assert!(first.status.is_none() && first.cpu_percent == 0.0);
        assert_eq!(ids(journeys.sorted(Journey::is_live)), ["j2", "j3"]);
        let newest = journeys.newest(|about| about.pid == 4711);
        assert_eq!(newest.map(|about| about.journey).as_deref(), Some("j1"));
        assert!(journeys.newest(|about| about.pid == 1).is_none());
    }

    #[test]
    fn what_forgotten_runs_have_used_is_kept_up_to_its_limit() {
        let mut journeys = Journeys::default();
        let used = (CpuTime::default(), 1);
        for number in 0..KEPT {
            journeys.add_forgotten(format!("r{number}"), used);
        }
        journeys.add_forgotten("r0".into(), used);
        assert_eq!(journeys.forgotten_of("r0").1, 2);
        assert_eq!(journeys.forgotten_of("r1").1, 1);
        journeys.add_forgotten("one more".into(), used);
        assert_eq!(journeys.forgotten_of("r1").1, 0, "the oldest one");
        assert_eq!(journeys.forgotten_of("r0").1, 2);
    }

    #[test]
    fn who_does_not_answer_is_waited_for_less_and_less() {
        let mut manners = Manners::default();
        assert!(manners.is_awaited(0));
        manners.was_silent(0);
        assert!(!manners.is_awaited(3_999) && manners.is_awaited(4_000));
        manners.was_silent(4_000);
        assert!(!manners.is_awaited(11_999) && manners.is_awaited(12_000));
        assert!(manners.reads(1 << 20, 0), "once");
        assert!(!manners.reads(1 << 20, 10_000), "it is as it was");
        assert!(!manners.reads(2 << 20, 8_000), "a long one has time");
        assert!(manners.reads(2 << 20, 9_000));
    }
}
