//! The signals that waited when the process left home.
//!
//! They are delivered to the deputy as soon as it runs, to several threads at the same time, and nothing
//! that is delivered says in which queue it has waited, a thread's own or that of the process, nor after
//! what. So both are written down before.

use crate::held::HeldSignal;
use std::collections::{HashMap, VecDeque};
use whim_sys::ptrace::{RawSigInfo, info_word};

/// A signal that can be passed on.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub held: HeldSignal,
    pub waited: Waited,
}

/// For whom a signal has waited since before the process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// For nobody: it has come since.
    Not,
    Thread,
    Process,
}

/// Signals by their number, those of one number in the order in which they came. There may be tens of thousands,
/// and each is looked for.
type ByNumber = HashMap<[u8; 4], VecDeque<RawSigInfo>>;

/// What has not been delivered yet.
#[derive(Debug, Default)]
pub struct Queues {
    /// By seat.
    own: Vec<ByNumber>,
    shared: ByNumber,
    /// Delivered before others of its number that have waited for longer.
    early: Vec<HeldSignal>,
}

fn number(info: &RawSigInfo) -> [u8; 4] {
    [info[0], info[1], info[2], info[3]]
}

/// Whether this is the signal that has waited as `queued`. The kernel counts a timer's overruns when the signal
/// leaves the queue, and has marks of its own in it meanwhile: such a signal is known by its timer, of which
/// never two wait.
pub(crate) fn is_same(queued: &RawSigInfo, delivered: &RawSigInfo) -> bool {
    // The kernel keeps no more of a siginfo, and gives zeros for the rest.
    const KEPT: usize = 48;
    let timer = |info| (info_word(info, 8) == libc::SI_TIMER).then(|| info_word(info, 16));
    match (timer(queued), timer(delivered)) {
        (Some(one), Some(other)) => one == other && number(queued) == number(delivered),
        _ => queued[..KEPT] == delivered[..KEPT],
    }
}

fn by_number(all: Vec<RawSigInfo>) -> ByNumber {
    let mut found = ByNumber::new();
    for info in all {
        found.entry(number(&info)).or_default().push_back(info);
    }
    found
}

fn fresh(held: HeldSignal) -> Arrived {
    Arrived {
        held,
        waited: Waited::Not,
    }
}

impl Queues {
    /// `own` is in the order of the seats; each queue is in the order in which its signals came.
    #[must_use]
    pub fn new(own: Vec<Vec<RawSigInfo>>, shared: Vec<RawSigInfo>) -> Self {
        Self {
            own: own.into_iter().map(by_number).collect(),
            shared: by_number(shared),
            early: Vec::new(),
        }
    }

    /// The signals that can be passed on now that this one has been delivered.
    ///
    /// Those of one number are taken in their order. The kernel takes them from the queue in this order too,
    /// so one that is missing has been taken, and will be delivered.
    pub fn arrived(&mut self, held: HeldSignal) -> Vec<Arrived> {
        let number = number(&held.info);
        // The kernel delivers a thread's own signals before those of the process.
        // Trap: queues-of-signals
        let own = self.own.get_mut(held.seat);
        if let Some(queue) = own.and_then(|own| own.get_mut(&number))
            && let Some(at) = queue.iter().position(|info| is_same(info, &held.info))
        {
            queue.remove(at);
            return vec![Arrived {
                held,
                waited: Waited::Thread,
            }];
        }
        let Some(queue) = self.shared.get_mut(&number) else {
            return vec![fresh(held)];
        };
        if !queue.front().is_some_and(|info| is_same(info, &held.info)) {
            if queue.iter().any(|info| is_same(info, &held.info)) {
                self.early.push(held);
                return Vec::new();
            }
            return vec![fresh(held)];
        }
        let mut found = Vec::new();
        let mut next = Some(held);
        while let Some(held) = next {
            queue.pop_front();
            found.push(Arrived {
                held,
                waited: Waited::Process,
            });
            // The next one of this number may have been delivered already.
            next = queue.front().and_then(|first| {
                let mut early = self.early.iter();
                let at = early.position(|held| is_same(first, &held.info))?;
                Some(self.early.remove(at))
            });
        }
        found
    }

    /// Those that wait for others, which will not be delivered here any more.
    pub fn take_early(&mut self) -> Vec<HeldSignal> {
        std::mem::take(&mut self.early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: u8, value: u8) -> RawSigInfo {
        let mut info = [0; 128];
        (info[0], info[24]) = (number, value);
        info
    }

    fn delivered(queues: &mut Queues, seat: usize, number: u8, value: u8) -> Vec<(u8, u8, bool)> {
        let held = HeldSignal {
            seat,
            signal: i32::from(number),
            info: info(number, value),
            in_call: false,
        };
        let told = queues.arrived(held).into_iter();
        told.map(|told| {
            (
                told.held.info[0],
                told.held.info[24],
                told.waited == Waited::Thread,
            )
        })
        .collect()
    }

    #[test]
    fn signals_of_one_number_keep_their_order_whichever_thread_takes_them() {
        let shared = [(34, 1), (34, 2), (34, 3), (35, 1)];
        let shared = shared.map(|(number, value)| info(number, value)).to_vec();
        let mut queues = Queues::new(Vec::new(), shared);
        assert_eq!(delivered(&mut queues, 1, 34, 3), []);
        assert_eq!(delivered(&mut queues, 2, 34, 2), []);
        assert_eq!(delivered(&mut queues, 0, 35, 1), [(35, 1, false)]);
        let all = [(34, 1, false), (34, 2, false), (34, 3, false)];
        assert_eq!(delivered(&mut queues, 0, 34, 1), all);
        // One that comes later waits for nothing.
        assert_eq!(delivered(&mut queues, 0, 34, 3), [(34, 3, false)]);
    }

    #[test]
    fn a_timer_s_signal_is_known_again_whatever_the_kernel_has_counted_meanwhile() {
        let timer = |number: u8, overruns: u8, mark: u8| {
            let mut info = info(34, 0);
            info[8..12].copy_from_slice(&libc::SI_TIMER.to_ne_bytes());
            (info[16], info[20], info[32]) = (number, overruns, mark);
            info
        };
        let shared = vec![timer(5, 0, 9), timer(6, 0, 9), info(34, 2)];
        let mut queues = Queues::new(Vec::new(), shared);
        assert_eq!(delivered(&mut queues, 1, 34, 2), []);
        let mut told = |seat, info| {
            let signal = 34;
            let held = HeldSignal {
                seat,
                signal,
                info,
                in_call: false,
            };
            let told = queues.arrived(held).into_iter();
            told.map(|told| told.held.info).collect::<Vec<_>>()
        };
        assert!(told(1, timer(6, 3, 0)).is_empty());
        // It is told as it was delivered.
        let all = [timer(5, 7, 0), timer(6, 3, 0), info(34, 2)];
        assert_eq!(told(0, timer(5, 7, 0)), all);
        assert_eq!(told(0, timer(5, 1, 0)), [timer(5, 1, 0)]);
    }

    #[test]
    fn a_thread_s_own_signals_are_told_from_the_same_ones_of_the_process() {
        let own = vec![vec![], vec![info(34, 7)]];
        let mut queues = Queues::new(own, vec![info(34, 7)]);
        assert_eq!(delivered(&mut queues, 0, 34, 7), [(34, 7, false)]);
        assert_eq!(delivered(&mut queues, 1, 34, 7), [(34, 7, true)]);
        assert_eq!(delivered(&mut queues, 1, 34, 7), [(34, 7, false)]);
    }

    #[test]
    fn what_waits_for_others_can_be_taken() {
        let mut queues = Queues::new(Vec::new(), vec![info(34, 1), info(34, 2)]);
        assert_eq!(delivered(&mut queues, 0, 34, 2), []);
        assert_eq!(queues.take_early().len(), 1);
        assert_eq!(delivered(&mut queues, 0, 34, 1), [(34, 1, false)]);
    }
}
