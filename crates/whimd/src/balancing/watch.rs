//! What each candidate does, from one sample to the next: the sensors of programs.

use std::fs;
use whim_balance::Millis;
use whim_balance::load::{Demand, PromptDemand};

use whim_machine::processes::{self, TICKS_PER_SECOND};
use whim_machine::sensors::{float, queue};

/// Seconds that one call loses by travelling home and back, until a cluster has measured its own.
pub(super) const CALL: f64 = 150e-6;
/// Bytes a second that forwarded calls carry.
const CARRIED: f64 = 200e6;
/// Seconds after which half of what was learnt about trips home is forgotten.
const TRIPS_HALF: f64 = 600.0;
/// Beside the two moves of a trip home, the call itself and the decision to leave again, in seconds.
const TRIP_EXTRA: f64 = 0.2;
/// No program is assumed to lose more than this for a second of computing, or to compute less.
const LOSES_MOST: f64 = 100.0;
const RUNS_LEAST: f64 = 0.01;
/// Samples during which a program may still be arriving.
const ARRIVES: u32 = 3;
/// If a guest makes more calls a second than this, in the fading average, the time that it does not run
/// is time that it waits for home. Single samples say too much or too little: a busy node's daemon takes
/// them late, and what a guest has run is reported only now and then. Fewer calls than this take no time
/// worth speaking of, unless each travels for ten milliseconds.
const ASKS_MUCH: f64 = 100.0;

/// One sample of a process; all but memory counts from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// Nanoseconds that all threads have run, and that they have run or waited for a CPU.
    pub ran_ns: u64,
    pub busy_ns: u64,
    /// When a host counted that, by its own clock; none where nobody says so, and at home.
    pub counted: Option<Millis>,
    pub memory: u64,
    /// Reads and writes, and their bytes; away: all forwarded calls.
    pub calls: u64,
    pub bytes: u64,
    /// Page faults of children that have ended: a process that starts programs has more of them each
    /// time.
    pub reaped: u64,
}

/// Where a program computes, and how many threads share that node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub node: String,
    pub is_home: bool,
    /// Its cores, and threads that could run there.
    pub cores: f64,
    pub running: f64,
    pub speed: f64,
}

/// One candidate under observation.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub start_time: u64,
    node: String,
    last: Option<(Millis, Reading)>,
    demand: PromptDemand,
    runs: Demand,
    asks: Demand,
    carries: Demand,
    waits: Demand,
    starts: Demand,
    growth: PromptDemand,
    /// Cores that it kept busy in the last sample.
    pub ran: f64,
    /// CPU time that it has used, in seconds of a core of speed 1.
    pub done: f64,
    /// When it came to where it is; `None` if it has never moved.
    came: Option<Millis>,
    /// Samples since it came to where it is.
    looks: u32,
    /// Trips home that nobody asked for, and seconds away, both fading.
    trips: f64,
    away: f64,
    pub memory: u64,
    pub threads: u32,
}

impl Observed {
    /// `done`: seconds of CPU time that it has used before it was watched.
    #[must_use]
    pub(super) fn new(start_time: u64, node: &str, done: f64) -> Self {
        Self {
            start_time,
            node: node.to_owned(),
            last: None,
            demand: PromptDemand::default(),
            runs: Demand::default(),
            asks: Demand::default(),
            carries: Demand::default(),
            waits: Demand::default(),
            starts: Demand::default(),
            growth: PromptDemand::default(),
            ran: 0.0,
            done,
            came: None,
            looks: 0,
            trips: 0.0,
            away: 0.0,
            memory: 0,
            threads: 1,
        }
    }

    /// Takes a sample. `told`: its last change of place was asked for, by a user or by us.
    pub(super) fn sample(&mut self, now: Millis, place: &Place, seen: Reading, told: bool) {
        if place.node != self.node {
            if place.is_home && !told {
                self.trips += 1.0;
            }
            self.node.clone_from(&place.node);
            self.came = Some(now);
            self.last = None;
            self.looks = 0;
        }
        self.memory = seen.memory;
        // A guest is counted when its host comes to it. What has not been counted anew says nothing.
        let at = seen.counted.unwrap_or(now);
        let known = self.last.filter(|(_, last)| last.counted.is_some());
        if seen.counted.is_some() && known.is_some_and(|(then, _)| then == at) {
            return;
        }
        self.looks = self.looks.saturating_add(1);
        let last = self.last.replace((at, seen));
        let same = |last: &Reading| last.counted.is_some() == seen.counted.is_some();
        let Some((then, before)) = last.filter(|(then, last)| *then < at && same(last)) else {
            return;
        };
        let seconds = float(at - then) / 1000.0;
        let rate = |now: u64, before: u64| float(now.saturating_sub(before)) / seconds;
        self.ran = rate(seen.ran_ns, before.ran_ns) / 1e9;
        self.done += self.ran * seconds * place.speed;
        let share = (place.cores / place.running.max(place.cores).max(0.01)).min(1.0);
        let wanted = if place.is_home || seen.counted.is_some() {
            // The sums of threads that have ended are gone with them.
            (rate(seen.busy_ns, before.busy_ns) / 1e9).max(self.ran)
        } else {
            // The host does not tell how long it waited for a CPU, since it has too many threads. So this is what it
            // would have run if it had not had to share.
            self.ran / share.max(0.01)
        };
        let wanted = wanted.min(f64::from(self.threads.max(1)));
        self.demand.sample(wanted);
        self.runs.sample(self.ran);
        let calls = rate(seen.calls, before.calls);
        self.asks.sample(calls);
        self.carries.sample(rate(seen.bytes, before.bytes));
        // The first calls after an arrival take longer: connections are new, and pages are missing.
        let waits = !place.is_home && self.asks.value() > ASKS_MUCH && self.looks > ARRIVES;
        self.waits
            .sample(if waits { (1.0 - wanted).max(0.0) } else { 0.0 });
        self.starts.sample(if seen.reaped > before.reaped {
            1.0
        } else {
            0.0
        });
        // Memory that has just arrived with the program did not grow here.
        let has_come = self.came.is_none() || self.looks > ARRIVES;
        if has_come && before.memory > 0 {
            self.growth.sample(rate(seen.memory, before.memory));
        }
        let kept = 0.5f64.powf(seconds / TRIPS_HALF);
        self.trips *= kept;
        self.away = self.away * kept + if place.is_home { 0.0 } else { seconds };
    }

    /// Where it computes.
    #[must_use]
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Whether there are two samples. Before that, what it does is not known.
    #[must_use]
    pub(super) fn was_seen_twice(&self) -> bool {
        self.looks > 1
    }

    /// Cores that it would keep busy.
    #[must_use]
    pub(super) fn cpus(&self) -> f64 {
        self.demand.value()
    }

    /// Bytes a second.
    #[must_use]
    pub(super) fn growth(&self) -> f64 {
        self.growth.value()
    }

    /// Seconds since it came to where it is, for a program of this age.
    #[must_use]
    pub(super) fn here(&self, now: Millis, age: f64) -> f64 {
        match self.came {
            Some(came) => float(now.saturating_sub(came)) / 1000.0,
            None => age,
        }
    }

    /// Trips home a second that it would make if it were away. As long as it has not been away, this is
    /// how often it starts programs.
    #[must_use]
    pub(super) fn trips(&self) -> f64 {
        let made = self.trips / (self.away + 1.0);
        made.max(self.starts.value())
    }

    /// Calls a second that travel home, or would travel if it were away.
    #[must_use]
    pub(super) fn calls(&self) -> f64 {
        self.asks.value()
    }

    /// Seconds that it loses away from home for each second that it computes: by what it asks home, and by
    /// its trips, of `trip` seconds each way.
    #[must_use]
    pub(super) fn loses(&self, trip: f64) -> f64 {
        let asks = self.asks.value() * CALL + self.carries.value() / CARRIED;
        let trips = self.trips() * (2.0 * trip + TRIP_EXTRA);
        let lost = asks.max(self.waits.value()) + trips;
        (lost / self.runs.value().max(RUNS_LEAST)).min(LOSES_MOST)
    }
}

/// What /proc says of a process that is at home.
#[must_use]
pub(super) fn at_home(pid: i32, stat: &processes::Stat) -> Reading {
    let (calls, bytes) = io(pid);
    Reading {
        ran_ns: stat
            .cpu_ticks
            .saturating_mul(1_000_000_000 / TICKS_PER_SECOND),
        busy_ns: busy(pid),
        counted: None,
        memory: stat.resident_bytes,
        calls,
        bytes,
        reaped: stat.reaped_faults,
    }
}

/// Nanoseconds that the threads which a process has now have run or waited for a CPU.
fn busy(pid: i32) -> u64 {
    let threads = processes::threads(pid).into_iter();
    threads.filter_map(queue::read).fold(0, u64::saturating_add)
}

/// Reads and writes of a process, and their bytes.
fn io(pid: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    };
    let calls = field("syscr:").saturating_add(field("syscw:"));
    (calls, field("rchar:").saturating_add(field("wchar:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn place(node: &str, is_home: bool) -> Place {
        Place {
            node: node.into(),
            is_home,
            cores: 1.0,
            running: 2.0,
            speed: 1.0,
        }
    }

    /// Samples a program once a second for so many seconds, in each of which it does so much.
    fn watch(watched: &mut Observed, from: u64, seconds: u64, place: &Place, each: Reading) {
        for second in from..=from + seconds {
            let seen = Reading {
                ran_ns: each.ran_ns * second,
                busy_ns: each.busy_ns * second,
                counted: None,
                memory: each.memory * second,
                calls: each.calls * second,
                bytes: each.bytes * second,
                reaped: each.reaped * second,
            };
            watched.sample(second * 1000, place, seen, false);
        }
    }

    #[test]
    fn who_shares_a_core_wants_a_whole_one_at_home_and_away() {
        let half = Reading {
            ran_ns: SECOND / 2,
            busy_ns: SECOND,
            ..Reading::default()
        };
        let mut watched = Observed::new(1, "n1", 0.0);
        watch(&mut watched, 0, 20, &place("n1", true), half);
        assert!((watched.cpus() - 1.0).abs() < 0.01, "{}", watched.cpus());
        assert!((watched.done - 10.0).abs() < 0.01, "{}", watched.done);
        watch(&mut watched, 21, 20, &place("n2", false), half);
        assert!((watched.cpus() - 1.0).abs() < 0.01, "{}", watched.cpus());
        assert!((watched.here(41_000, 41.0) - 20.0).abs() < 0.01);
        assert!(watched.loses(0.1) < 0.01);
    }

    /// The node knows of one other thread, but something that it cannot see takes most of its cores.
    #[test]
    fn what_a_host_has_counted_is_believed_rather_than_a_share() {
        let mut watched = Observed::new(1, "n2", 0.0);
        let mut second = 0;
        // Counted every second and a half, of which the program ran a tenth.
        for report in 0..20 {
            let at = 1_500 * report;
            let seen = Reading {
                ran_ns: SECOND / 1_000 * at / 10,
                busy_ns: SECOND / 1_000 * at + 1,
                counted: Some(7_000 + at),
                ..Reading::default()
            };
            while second <= at {
                watched.sample(second, &place("n2", false), seen, false);
                second += 1_000;
            }
        }
        assert!((watched.cpus() - 1.0).abs() < 0.01, "{}", watched.cpus());
        assert!((watched.ran - 0.1).abs() < 0.01, "{}", watched.ran);
    }

    #[test]
    fn who_asks_home_much_loses_much() {
        let reader = Reading {
            ran_ns: SECOND / 5,
            busy_ns: SECOND / 5,
            calls: 2_000,
            ..Reading::default()
        };
        let mut watched = Observed::new(1, "n2", 0.0);
        watch(&mut watched, 0, 20, &place("n2", false), reader);
        assert!(watched.loses(0.1) > 2.0, "{}", watched.loses(0.1));
        // As soon as it computes again, it loses nothing.
        let computes = Reading {
            ran_ns: SECOND / 2,
            ..Reading::default()
        };
        watched.last = None;
        watch(&mut watched, 21, 20, &place("n2", false), computes);
        assert!(watched.loses(0.1) < 0.01, "{}", watched.loses(0.1));
    }

    #[test]
    fn who_starts_programs_again_and_again_would_travel_for_each() {
        let script = Reading {
            ran_ns: SECOND / 10,
            busy_ns: SECOND / 10,
            reaped: 500,
            ..Reading::default()
        };
        let mut watched = Observed::new(1, "n1", 0.0);
        watch(&mut watched, 0, 20, &place("n1", true), script);
        assert!(watched.trips() > 0.9 && watched.loses(0.1) > 0.3);
    }

    #[test]
    fn trips_that_were_not_asked_for_count() {
        let mut watched = Observed::new(1, "n2", 0.0);
        let seen = Reading::default();
        watched.sample(0, &place("n2", false), seen, false);
        watched.sample(1_000, &place("n2", false), seen, false);
        watched.sample(2_000, &place("n1", true), seen, true);
        assert!(watched.trips() < 1e-9);
        watched.sample(3_000, &place("n2", false), seen, true);
        watched.sample(4_000, &place("n2", false), seen, true);
        watched.sample(5_000, &place("n1", true), seen, false);
        assert!(watched.trips() > 0.3, "{}", watched.trips());
    }

    #[test]
    fn this_process_has_run_and_read() {
        let pid = std::process::id().cast_signed();
        let stat = processes::stat(pid).expect("it lives");
        let seen = at_home(pid, &stat);
        assert!(
            seen.memory > 0 && seen.calls > 0 && seen.bytes > 0,
            "{seen:?}"
        );
        assert!(seen.busy_ns > 0, "{seen:?}");
    }
}
