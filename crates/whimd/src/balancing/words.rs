//! The balancer's decisions as sentences, with the numbers that decided.

use whim_balance::balancer::{Fixed, Record, Relocation, Verdict};
use whim_balance::decide::{Numbers, Stay};
use whim_balance::pace::Pace;
use whim_balance::{Millis, NodeId};
use whim_journey::cause::Cause;

use super::watch::Observed;

/// A relocation as a sentence; `name` gives the names of nodes.
#[must_use]
pub(super) fn relocation(relocation: &Relocation, name: &dyn Fn(NodeId) -> String) -> String {
    let (from, to) = (name(relocation.from), name(relocation.to));
    let why = relocation.cause.because();
    let numbers = match relocation.cause {
        Cause::Memory => {
            let (frees, lacks) = (
                mebibytes(relocation.numbers.relieves),
                mebibytes(relocation.numbers.adds),
            );
            format!("{from} will lack {lacks:.0} MiB, it takes {frees:.0} MiB along")
        }
        Cause::Terminal => format!("it stands still for {}", seconds(relocation.numbers.cost)),
        Cause::Turn => format!(
            "it evens out {}, and stands still for {}",
            seconds(relocation.numbers.gain),
            seconds(relocation.numbers.cost)
        ),
        _ => weighed(&relocation.numbers, &from, &to),
    };
    format!("From {from} to {to}, since {why}: {numbers}")
}

fn weighed(numbers: &Numbers, from: &str, to: &str) -> String {
    let less = if numbers.gain < 0.0 { "more" } else { "less" };
    format!(
        "programs wait {} {less} in all, {}, and it stands still for {}",
        seconds(numbers.gain.abs()),
        strain(numbers, from, to),
        seconds(numbers.cost)
    )
}

/// The two costs have no unit that a person knows, but the one as a part of the other is clear.
fn strain(numbers: &Numbers, from: &str, to: &str) -> String {
    if numbers.relieves <= 0.0 {
        return format!("it would not relieve {from}");
    }
    let percent = (100.0 * numbers.adds / numbers.relieves).max(0.0);
    format!("{to} gets {percent:.0}% of the strain that it takes off {from}")
}

/// What is said of a program that has moved since the last decision about it.
pub(super) const NOT_SINCE: &str = "Balancer: it has not looked at this since that move.";
/// What is said in the first seconds, instead of that it wants no CPU.
pub(super) const UNMEASURED: &str =
    "Balancer, now: it stays, since it has not been measured yet how much CPU it wants.";

/// What was measured of a program.
#[must_use]
pub(super) fn measured(watched: &Observed, trip: f64) -> String {
    let mut text = format!(
        " It wants {:.2} cores, and has used {} of CPU time;",
        watched.cpus(),
        seconds(watched.done)
    );
    text.push_str(&format!(
        " away from home it loses {} for each second that it computes: {:.0} calls and {:.2} trips home a second.",
        seconds(watched.loses(trip)),
        watched.calls(),
        watched.trips()
    ));
    text
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

/// A time that a person can take in.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

/// What was decided about a program last; `from` is where it is, and `failure` what the last try to move it ended with.
#[must_use]
pub(super) fn record(
    record: &Record,
    now: Millis,
    (from, failure): (&str, Option<&str>),
    name: &dyn Fn(NodeId) -> String,
) -> String {
    let since = now.saturating_sub(record.since) / 1000;
    let mut sentence = verdict(&record.verdict, from, name);
    if let (Verdict::Failed { .. }, Some(failure)) = (record.verdict, failure) {
        sentence = format!("{sentence} ({})", failure.trim_end_matches('.'));
    }
    match (record.verdict, since) {
        (Verdict::Move(_), _) => format!("Balancer, {since} s ago: {sentence}."),
        (_, 0..=1) => format!("Balancer, now: {sentence}."),
        _ => format!("Balancer, for {since} s: {sentence}."),
    }
}

fn verdict(verdict: &Verdict, from: &str, name: &dyn Fn(NodeId) -> String) -> String {
    match verdict {
        Verdict::Move(decided) => relocation(decided, name),
        Verdict::Moving => "it is being moved".into(),
        Verdict::Fixed(Fixed::Told) => "it stays, as it was told or has to".into(),
        Verdict::Fixed(Fixed::Interactive) => {
            "it stays, since it was started with '--class interactive'".into()
        }
        Verdict::Fixed(Fixed::Placed) => "it stays where its user has just put it".into(),
        Verdict::Young { least } => {
            format!(
                "it stays, since it has not lived for {} yet",
                seconds(*least)
            )
        }
        Verdict::Light { cpus, least } => {
            format!("it stays, since it wants {cpus:.2} of a core, less than {least:.2}")
        }
        Verdict::Terminal => "it stays, since its user sits before it".into(),
        Verdict::Spent { cause: spent, most } => format!(
            "it stays, although {}: it was moved for that {most} times within an hour, as often as it may be",
            spent.because()
        ),
        Verdict::Paced(numbers) => {
            let to = name(numbers.to);
            format!(
                "it stays for now, although {}: without news, a node moves one program in {} s",
                weighed(numbers, from, &to),
                Pace::UNASKED_EVERY / 1000
            )
        }
        Verdict::Failed { wait_ms } => {
            format!(
                "it stays, since the last try failed; the next is in {} s",
                wait_ms.div_ceil(1000)
            )
        }
        Verdict::Stay(why) => stay(why, from, name),
    }
}

fn stay(why: &Stay, from: &str, name: &dyn Fn(NodeId) -> String) -> String {
    match why {
        Stay::NoCandidate | Stay::NoNode => "it stays, since no other node may have it".into(),
        Stay::JustCame => "it stays, since it came a short time ago, for its age".into(),
        Stay::NoRoom => "it stays, since no other node has room for it".into(),
        Stay::NotCheaper(numbers) => format!(
            "it stays, since no node is better by enough: to {}, {}",
            name(numbers.to),
            weighed(numbers, from, &name(numbers.to))
        ),
        Stay::NotWorth(numbers) => format!(
            "it stays, since a move costs more than it gains: to {}, {}",
            name(numbers.to),
            weighed(numbers, from, &name(numbers.to))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(node: NodeId) -> String {
        format!("n{}", node.0)
    }

    const NUMBERS: Numbers = Numbers {
        process: 7,
        to: NodeId(2),
        relieves: 0.75,
        adds: 0.25,
        gain: 12.34,
        cost: 0.056,
    };

    #[test]
    fn the_numbers_that_decided_are_said() {
        let relocation = |cause| Relocation {
            process: 7,
            from: NodeId(1),
            to: NodeId(2),
            cause,
            numbers: NUMBERS,
        };
        let record = |verdict, since| Record {
            verdict,
            at: 9_000,
            since,
        };
        let failure = Some("To n2: Node n2 does not answer: it is down.");
        let said =
            |verdict, since| super::record(&record(verdict, since), 9_000, ("n1", failure), &name);
        assert_eq!(
            said(Verdict::Move(relocation(Cause::Load)), 2_000),
            "Balancer, 7 s ago: From n1 to n2, since there is less to wait for there: programs wait 12.3 s less in \
             all, n2 gets 33% of the strain that it takes off n1, and it stands still for 56 ms."
        );
        assert_eq!(
            said(Verdict::Stay(Stay::NotCheaper(NUMBERS)), 4_000),
            "Balancer, for 5 s: it stays, since no node is better by enough: to n2, programs wait 12.3 s less in \
             all, n2 gets 33% of the strain that it takes off n1, and it stands still for 56 ms."
        );
        let dear = Numbers {
            gain: -3.152,
            ..NUMBERS
        };
        let sentence = said(Verdict::Stay(Stay::NotWorth(dear)), 4_000);
        assert!(
            sentence.contains("to n2, programs wait 3.2 s more in all, n2 gets"),
            "{sentence}"
        );
        assert_eq!(
            said(Verdict::Failed { wait_ms: 20_000 }, 9_000),
            "Balancer, now: it stays, since the last try failed; the next is in 20 s (To n2: Node n2 does not \
             answer: it is down)."
        );
        assert_eq!(
            said(
                Verdict::Light {
                    cpus: 0.1,
                    least: 0.3
                },
                9_000
            ),
            "Balancer, now: it stays, since it wants 0.10 of a core, less than 0.30."
        );
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (time, said) in [
            (0.0504, "50 ms"),
            (2.0, "2.0 s"),
            (300.0, "5 min"),
            (7200.0, "2 h"),
        ] {
            assert_eq!(seconds(time), said);
        }
    }
}
