//! Signals of timers (`timer_create`) that wait, and the expirations that they tell.
//!
//! The kernel queues a timer's signal once, whatever else of its number waits, and counts in it how often
//! the timer expires meanwhile. A signal that is queued by a call is dropped without a word if one of its
//! number waits and the number is a standard one. So who queues a timer's signal again adds up first.

use crate::QueuedSignal;
use std::collections::HashMap;

/// First signal of which more than one can wait.
const REAL_TIME_FIRST: i32 = 32;
const SI_TIMER: i32 = -2;
const CODE_AT: usize = 8;
const TIMER_AT: usize = 16;
const OVERRUNS_AT: usize = 20;

fn word(info: &[u8], at: usize) -> i32 {
    let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_ne_bytes)
}

/// Whether a signal of this number is dropped if another one of its number waits in the same queue.
#[must_use]
pub fn waits_once(signal: i32) -> bool {
    (1..REAL_TIME_FIRST).contains(&signal)
}

/// The timer that has sent the signal with this siginfo, if a timer has.
#[must_use]
pub fn timer_of(info: &[u8]) -> Option<i32> {
    (word(info, CODE_AT) == SI_TIMER).then(|| word(info, TIMER_AT))
}

/// Expirations that a timer's signal tells beyond its own.
#[must_use]
pub fn overruns(info: &[u8]) -> i32 {
    word(info, OVERRUNS_AT)
}

/// Adds to the overruns of a timer's signal.
pub fn add(info: &mut [u8], more: i32) {
    let sum = overruns(info).saturating_add(more);
    if let Some(place) = info.get_mut(OVERRUNS_AT..OVERRUNS_AT + 4) {
        place.copy_from_slice(&sum.to_ne_bytes());
    }
}

/// Adds the signals that would be dropped behind one of the same timer to that one. Those that remain keep
/// their order. `queue`: number and queue of a signal.
pub fn merge<T, Q: Eq + std::hash::Hash>(
    signals: &mut Vec<T>,
    queue: impl Fn(&T) -> (i32, Q),
    info: impl Fn(&mut T) -> &mut [u8],
) {
    let mut first: HashMap<(i32, Q, i32), usize> = HashMap::new();
    let mut merged: Vec<T> = Vec::with_capacity(signals.len());
    for mut signal in signals.drain(..) {
        let (number, queue) = queue(&signal);
        let told = info(&mut signal);
        if let Some(timer) = timer_of(told).filter(|_| waits_once(number)) {
            let key = (number, queue, timer);
            if let Some(at) = first.get(&key) {
                let more = overruns(told).saturating_add(1);
                add(info(&mut merged[*at]), more);
                continue;
            }
            first.insert(key, merged.len());
        }
        merged.push(signal);
    }
    *signals = merged;
}

/// [`merge`], for signals of one queue.
pub fn merge_queued(signals: &mut Vec<QueuedSignal>) {
    merge(
        signals,
        |signal| (i32::from(signal.signal), ()),
        |signal| &mut signal.info,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(signal: u8, timer: i32, overruns: i32) -> QueuedSignal {
        let mut info = vec![0; 128];
        info[0] = signal;
        info[CODE_AT..CODE_AT + 4].copy_from_slice(&SI_TIMER.to_ne_bytes());
        info[TIMER_AT..TIMER_AT + 4].copy_from_slice(&timer.to_ne_bytes());
        add(&mut info, overruns);
        QueuedSignal { signal, info }
    }

    #[test]
    fn a_standard_signal_behind_one_of_its_timer_is_an_overrun_of_that() {
        let mut signals = vec![timers(12, 1, 0), timers(12, 2, 5), timers(12, 1, 3)];
        merge_queued(&mut signals);
        assert_eq!(signals, [timers(12, 1, 4), timers(12, 2, 5)]);
        let mut real_time = vec![timers(34, 1, 0), timers(34, 1, 3)];
        merge_queued(&mut real_time);
        assert_eq!(real_time.len(), 2, "of these more than one can wait");
    }

    #[test]
    fn signals_of_others_stay_as_they_are() {
        let mut sent = timers(12, 1, 0);
        sent.info[CODE_AT..CODE_AT + 4].copy_from_slice(&0i32.to_ne_bytes());
        let all = [timers(12, 1, 0), sent.clone(), timers(10, 1, 0), sent];
        let mut signals = all.to_vec();
        merge_queued(&mut signals);
        assert_eq!(signals, all);
    }

    #[test]
    fn a_siginfo_of_another_length_is_nobody_s() {
        let short = QueuedSignal {
            signal: 12,
            info: vec![0xfe, 0xff],
        };
        let mut signals = vec![short.clone(), short];
        merge_queued(&mut signals);
        assert_eq!(signals.len(), 2);
        add(&mut signals[0].info, 1);
        assert_eq!(overruns(&signals[0].info), 0);
    }

    #[test]
    fn counts_stop_at_their_limit() {
        let mut signals = vec![timers(12, 1, i32::MAX), timers(12, 1, i32::MAX)];
        merge_queued(&mut signals);
        assert_eq!(overruns(&signals[0].info), i32::MAX);
    }
}
