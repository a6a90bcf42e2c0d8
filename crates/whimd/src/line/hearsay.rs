//! A supervisor belongs to a user, so what it says may be anything. Here that is bounded and made harmless
//! before anybody believes it, and it counts for the supervisor's own journey alone.

use std::time::{Duration, Instant};

use whim_journey::job::{Event, MoveReport, Status};
use whim_net::NodeName;

use whim_monitor::plain::{is_harmless, sentence};

/// Longest name of a call, in characters.
const CALL_MAX: usize = 64;
/// Phases that one move may report.
const PHASES_MAX: usize = 64;
/// Notices that one move may give.
const NOTICES_MAX: u32 = 16;
/// Least time between two reports of progress that are passed on.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// No process has more memory, in bytes.
const BYTES_MAX: u64 = 1 << 47;
/// CPU time counts no further, in nanoseconds: a program of 146 threads gets there in a year. A rate is the
/// difference of two, so at the bound a program looks as if it slept.
const CPU_NS_MAX: u64 = 1 << 62;
/// Numbers of calls count no further: a million a second get there in 570 years.
const COUNT_MAX: u64 = 1 << 54;
/// No move takes longer: a year, in milliseconds.
const TIME_MAX_MS: f64 = 366.0 * 86_400_000.0;

/// The name, if a node can have it, whether there is such a node or not.
#[must_use]
pub(crate) fn node(name: &str) -> Option<String> {
    NodeName::new(name)
        .ok()
        .map(|name| name.as_str().to_owned())
}

/// The name of a call, bounded and harmless.
#[must_use]
pub(crate) fn call(name: &str) -> String {
    let letters = name.chars().take(CALL_MAX);
    letters.filter(|c| is_harmless(*c)).collect()
}

fn time(milliseconds: f64) -> f64 {
    if milliseconds.is_nan() {
        return 0.0;
    }
    milliseconds.clamp(0.0, TIME_MAX_MS)
}

/// How a journey stands, if the status is of this journey, of the process `pid` of `home`, and can be
/// true: `is_place` says where the process may be.
#[must_use]
pub(crate) fn status(
    said: Status,
    (journey, pid, home): (&str, i32, &str),
    supervisor_pid: Option<i32>,
    is_place: impl Fn(&str) -> bool,
) -> Option<Status> {
    let own = (said.journey.as_str(), said.pid, said.home.as_str()) == (journey, pid, home);
    if !own || node(&said.location).is_none() || !is_place(&said.location) {
        return None;
    }
    Some(Status {
        supervisor_pid: supervisor_pid.unwrap_or(0),
        cpu_ns: said.cpu_ns.min(CPU_NS_MAX),
        busy_ns: said.busy_ns.min(CPU_NS_MAX),
        resident_bytes: said.resident_bytes.min(BYTES_MAX),
        forwarded_calls: said.forwarded_calls.min(COUNT_MAX),
        reason: said.reason.as_deref().map(sentence),
        ..said
    })
}

/// The report of a move, bounded and harmless.
#[must_use]
pub(crate) fn report(said: MoveReport) -> MoveReport {
    let name = |name: &str| node(name).unwrap_or_default();
    let phases = said.phases.into_iter().take(PHASES_MAX);
    MoveReport {
        from: name(&said.from),
        to: name(&said.to),
        phases: phases.map(|(phase, took)| (phase, time(took))).collect(),
        bytes: said.bytes.min(BYTES_MAX),
        pages: said.pages.min(BYTES_MAX),
        freeze_ms: time(said.freeze_ms),
        total_ms: time(said.total_ms),
        reason: said.reason.as_deref().map(sentence),
    }
}

/// What follows from an event in the course of a move.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    /// Tell this to the client that waits.
    Tell(Event),
    Nothing,
    Done(MoveReport),
    Refused {
        reason: String,
        stays: bool,
    },
    /// No supervisor that carries a move says that.
    Nonsense,
}

/// What the supervisor of one move has reported so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    phases: usize,
    notices: u32,
    progress: Option<Instant>,
}

impl Account {
    /// Takes in the next event.
    pub(crate) fn hear(&mut self, event: Event, now: Instant) -> Heard {
        match event {
            Event::Working => Heard::Nothing,
            Event::Phase { phase, at_ms } => {
                self.phases += 1;
                let at_ms = time(at_ms);
                match self.phases > PHASES_MAX {
                    true => Heard::Nonsense,
                    false => Heard::Tell(Event::Phase { phase, at_ms }),
                }
            }
            Event::Notice { text } => {
                self.notices += 1;
                let text = sentence(&text);
                match self.notices > NOTICES_MAX {
                    true => Heard::Nonsense,
                    false => Heard::Tell(Event::Notice { text }),
                }
            }
            Event::Progress { bytes, of } => {
                let since = |then: Instant| now.saturating_duration_since(then);
                if self
                    .progress
                    .is_some_and(|then| since(then) < PROGRESS_EVERY)
                {
                    return Heard::Nothing;
                }
                self.progress = Some(now);
                let of = of.min(BYTES_MAX);
                let bytes = bytes.min(of);
                Heard::Tell(Event::Progress { bytes, of })
            }
            Event::Done { report: said } => Heard::Done(report(said)),
            Event::Refused { reason, stays } => Heard::Refused {
                reason: sentence(&reason),
                stays,
            },
            _ => Heard::Nonsense,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_journey::job::{Phase, State};
    use whim_monitor::plain::SENTENCE_MAX;

    const OWN: (&str, i32, &str) = ("j", 7, "n1");

    fn said() -> Status {
        Status {
            journey: "j".into(),
            pid: 7,
            home: "n1".into(),
            location: "n2".into(),
            state: State::Away,
            phase: Phase::Away,
            epoch: 1,
            moves: 1,
            supervisor_pid: 1,
            cpu_ns: u64::MAX,
            busy_ns: u64::MAX,
            counted_ms: u64::MAX,
            resident_bytes: u64::MAX,
            forwarded_calls: u64::MAX,
            held_threads: 0,
            reason: Some(format!("\u{1b}]0;x\u{7}{}", "y".repeat(5000))),
        }
    }

    /// It counted no further than 208 days of one CPU, after which the balancer took the program to be idle.
    #[test]
    fn cpu_time_of_64_threads_counts_for_a_year() {
        let cpu_ns = 64 * 366 * 86_400 * 1_000_000_000;
        let long = Status { cpu_ns, ..said() };
        let heard = status(long, OWN, Some(9), |_| true).expect("its own");
        assert_eq!(heard.cpu_ns, cpu_ns);
    }

    #[test]
    fn a_status_is_that_of_its_journey_or_none() {
        let place = |name: &str| ["n1", "n2"].contains(&name);
        let heard = status(said(), OWN, Some(9), place).expect("its own");
        assert_eq!(heard.supervisor_pid, 9, "as we know it, not as it says");
        assert!(heard.cpu_ns.max(heard.busy_ns) <= CPU_NS_MAX && heard.resident_bytes <= BYTES_MAX);
        let reason = heard.reason.expect("kept");
        assert_eq!(reason.chars().count(), SENTENCE_MAX);
        assert!(!reason.contains(char::is_control), "{reason}");
        for wrong in [
            Status {
                journey: "k".into(),
                ..said()
            },
            Status { pid: 1, ..said() },
            Status {
                home: "n2".into(),
                ..said()
            },
            Status {
                location: "n3".into(),
                ..said()
            },
            Status {
                location: "n2\u{1b}[2J".into(),
                ..said()
            },
        ] {
            assert_eq!(status(wrong, OWN, None, place), None);
            assert_eq!(status(said(), OWN, None, |_| false), None);
        }
    }

    #[test]
    fn a_report_is_bounded() {
        let said = MoveReport {
            from: "n1".into(),
            to: "x".repeat(1 << 16),
            phases: vec![(Phase::Freeze, -1.0); 1000],
            bytes: u64::MAX,
            pages: u64::MAX,
            freeze_ms: 1e300,
            total_ms: f64::NAN,
            reason: Some("a\nb".into()),
        };
        let heard = report(said);
        assert_eq!((heard.from.as_str(), heard.to.as_str()), ("n1", ""));
        assert_eq!(heard.phases, vec![(Phase::Freeze, 0.0); PHASES_MAX]);
        assert_eq!((heard.bytes, heard.total_ms), (BYTES_MAX, 0.0));
        assert_eq!(heard.freeze_ms, TIME_MAX_MS);
        assert_eq!(heard.reason.as_deref(), Some("a b"));
    }

    #[test]
    fn a_move_is_told_of_within_limits() {
        let now = Instant::now();
        let mut account = Account::default();
        let phase = || Event::Phase {
            phase: Phase::Freeze,
            at_ms: 1.0,
        };
        let notice = || Event::Notice { text: "a".into() };
        for _ in 0..PHASES_MAX {
            assert_eq!(account.hear(phase(), now), Heard::Tell(phase()));
        }
        assert_eq!(account.hear(phase(), now), Heard::Nonsense);
        for _ in 0..NOTICES_MAX {
            assert_eq!(account.hear(notice(), now), Heard::Tell(notice()));
        }
        assert_eq!(account.hear(notice(), now), Heard::Nonsense);
        let progress = || Event::Progress { bytes: 9, of: 3 };
        let bounded = Heard::Tell(Event::Progress { bytes: 3, of: 3 });
        assert_eq!(account.hear(progress(), now), bounded);
        assert_eq!(account.hear(progress(), now), Heard::Nothing, "too soon");
        assert_eq!(account.hear(progress(), now + PROGRESS_EVERY), bounded);
        assert_eq!(account.hear(Event::Working, now), Heard::Nothing);
        let status = Event::Status { status: said() };
        assert_eq!(account.hear(status, now), Heard::Nonsense);
    }
}
