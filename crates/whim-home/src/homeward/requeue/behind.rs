//! Signals of which several can wait, in the order in which they came.
//!
//! Those that come while all signals are masked are in home's queues before those that are put there again,
//! which have waited for longer. A program that takes them one by one would see the later ones first. So they are
//! taken out of the queues, and put behind the others. Others may come in the midst of that: it is done again
//! then.

use super::{DeputyError, Due, OwnTid, RawSigInfo, take};
use crate::deputy::Deputy;
use crate::queues::is_same;
use std::collections::{BTreeSet, HashMap, VecDeque};
use whim_sys::resident::DATA_LENGTH;

/// How often it is tried. All are queued in a few microseconds, so that one more time is rare.
const TRIES: usize = 16;
/// Bytes of the deck's data for each siginfo, and how many are queued at a time.
const PLACE: usize = 128;
const AT_ONCE: usize = DATA_LENGTH / PLACE / 2;

/// Queues the signals before all others of their numbers.
///
/// # Errors
/// The deputy is lost.
pub(super) fn queue_first(
    deputy: &mut Deputy,
    leader: (OwnTid, usize),
    due: Vec<Due>,
) -> Result<(), DeputyError> {
    let mut due = due;
    for _ in 0..TRIES {
        if due.is_empty() {
            return Ok(());
        }
        // Trap: a-later-signal-comes-first
        let later = take_all(deputy, leader, &due)?;
        due.extend(later);
        due = queue_all(deputy, leader.0, due)?;
        if are_first(deputy, &due)? {
            return Ok(());
        }
        // They are taken out once more, each with those that have come between them; of these, the ones that
        // wait already come first.
        let ours = std::mem::take(&mut due);
        let found = take_all(deputy, leader, &ours)?;
        due = in_order(ours, found);
    }
    tracing::debug!("signals that came meanwhile may be taken before older ones");
    queue_all(deputy, leader.0, due)?;
    Ok(())
}

/// A queue of one thread (by its seat), or that of the process.
type Place = Option<usize>;

impl Due {
    fn place(&self) -> Place {
        self.tid.map(|_| self.seat)
    }
}

/// Queues them, and returns those that the kernel has taken: there is a limit (RLIMIT_SIGPENDING).
fn queue_all(deputy: &mut Deputy, pid: OwnTid, due: Vec<Due>) -> Result<Vec<Due>, DeputyError> {
    let mut is_taken = Vec::with_capacity(due.len());
    for alike in due.chunk_by(|one, other| one.seat == other.seat) {
        for some in alike.chunks(AT_ONCE) {
            let places = some.iter().zip((0..).step_by(PLACE));
            let work: Vec<_> = places
                .map(|(due, at)| due.queueing(deputy, pid, at))
                .collect();
            let results = deputy.run(some[0].seat, &work)?;
            is_taken.extend(results.into_iter().map(|result| result >= 0));
        }
    }
    let refused = is_taken.iter().filter(|is_taken| !**is_taken).count();
    if refused > 0 {
        tracing::warn!(refused, "the kernel has no room for signals that wait");
    }
    let both = due.into_iter().zip(is_taken);
    Ok(both
        .filter_map(|(due, is_taken)| is_taken.then_some(due))
        .collect())
}

/// Whether the first signals of each number and queue are these.
fn are_first(deputy: &mut Deputy, due: &[Due]) -> Result<bool, DeputyError> {
    let mut queues: HashMap<(Place, i32), VecDeque<RawSigInfo>> = HashMap::new();
    let places: BTreeSet<(Place, usize)> = due.iter().map(|due| (due.place(), due.seat)).collect();
    for (place, seat) in places {
        for info in deputy.queued_signals(seat, place.is_none())? {
            let number = i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
            queues.entry((place, number)).or_default().push_back(info);
        }
    }
    Ok(due.iter().all(|due| {
        let queue = queues.get_mut(&(due.place(), due.signal));
        let first = queue.and_then(VecDeque::pop_front);
        first.is_some_and(|first| is_same(&first, &due.info))
    }))
}

/// Takes all signals of these numbers out of these queues, in their order.
fn take_all(
    deputy: &mut Deputy,
    leader: (OwnTid, usize),
    due: &[Due],
) -> Result<Vec<Due>, DeputyError> {
    let mut places: BTreeSet<(i32, usize, Option<OwnTid>)> = BTreeSet::new();
    for due in due {
        places.insert((due.signal, due.seat, due.tid));
        // A thread takes the signals of its own queue before those of its process.
        if due.tid.is_none() {
            places.insert((due.signal, leader.1, Some(leader.0)));
        }
    }
    let (own, shared): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| place.2.is_some());
    let mut found = Vec::new();
    for (signal, seat, tid) in own.into_iter().chain(shared) {
        let queued = deputy.queued_signals(seat, tid.is_none())?;
        let number = signal.to_ne_bytes();
        for _ in queued.iter().filter(|info| info[0..4] == number) {
            let due = Due {
                seat,
                tid,
                signal,
                info: [0; 128],
            };
            let Some(info) = take(deputy, &due)? else {
                break;
            };
            found.push(Due { info, ..due });
        }
    }
    Ok(found)
}

/// Ours in their order, and behind them what else was found.
fn in_order(ours: Vec<Due>, found: Vec<Due>) -> Vec<Due> {
    let mut left: HashMap<(Place, i32), VecDeque<Due>> = HashMap::new();
    for due in found {
        let queue = left.entry((due.place(), due.signal)).or_default();
        queue.push_back(due);
    }
    let mut ordered = Vec::new();
    for due in ours {
        let queue = left.entry((due.place(), due.signal)).or_default();
        let at = queue.iter().position(|one| is_same(&one.info, &due.info));
        ordered.extend(at.and_then(|at| queue.remove(at)));
    }
    ordered.extend(left.into_values().flatten());
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(signal: i32, value: u8) -> Due {
        let mut info = [0; 128];
        info[0..4].copy_from_slice(&signal.to_ne_bytes());
        info[24] = value;
        Due {
            seat: 0,
            tid: None,
            signal,
            info,
        }
    }

    #[test]
    fn what_came_between_goes_behind() {
        let ours = vec![due(34, 1), due(34, 2), due(35, 1), due(34, 3)];
        let found = vec![
            due(34, 1),
            due(34, 9),
            due(34, 2),
            due(34, 8),
            due(34, 3),
            due(35, 7),
            due(35, 1),
        ];
        let ordered = in_order(ours, found);
        let of = |signal| {
            let some = ordered.iter().filter(|due| due.signal == signal);
            some.map(|due| due.info[24]).collect::<Vec<_>>()
        };
        assert_eq!(of(34), [1, 2, 3, 9, 8]);
        assert_eq!(of(35), [1, 7]);
    }
}
