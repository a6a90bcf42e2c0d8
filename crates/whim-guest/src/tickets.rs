//! Tickets, each of which stands for the siginfo of a signal that is queued for the guest, until
//! the signal is delivered.

use std::collections::{HashMap, VecDeque};
use whim_model::QueuedSignal;
use whim_model::overruns::{self, timer_of, waits_once};
use whim_sys::ptrace::{RawSigInfo, info_word};

/// Most tickets that wait. The kernel queues no more signals for a user by default.
pub(crate) const TICKETS_MAX: usize = 65_536;
/// Upper half of a ticket's value.
const TICKET_MARK: u32 = 0x5748_4947;
/// uid under which this host's kernel sees the guest.
const INSIDE_ID: u32 = 1;
const SI_QUEUE: i32 = -1;

/// True siginfos of queued signals.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    next: u32,
    waiting: VecDeque<(u32, RawSigInfo)>,
    /// Timers that have expired while a signal of theirs waited, and how often.
    overruns: HashMap<i32, i32>,
    /// uid of the process at home, as the process itself sees it.
    pub(crate) uid: u32,
}

impl Tickets {
    pub(crate) fn issue(&mut self, signal: i32, info: RawSigInfo) -> RawSigInfo {
        self.next = self.next.wrapping_add(1);
        if self.waiting.len() >= TICKETS_MAX {
            // A standard signal is queued only once at a time, so the tickets of its repetitions
            // are never seen.
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.next, info));
        let mut ticket = [0; 128];
        ticket[0..4].copy_from_slice(&signal.to_ne_bytes());
        ticket[8..12].copy_from_slice(&SI_QUEUE.to_ne_bytes());
        ticket[24..28].copy_from_slice(&self.next.to_ne_bytes());
        ticket[28..32].copy_from_slice(&TICKET_MARK.to_ne_bytes());
        ticket
    }

    fn find(&self, info: &RawSigInfo) -> Option<usize> {
        let mark = info_word(info, 28).cast_unsigned();
        if info_word(info, 8) != SI_QUEUE || mark != TICKET_MARK {
            return None;
        }
        let number = info_word(info, 24).cast_unsigned();
        self.waiting
            .iter()
            .position(|(ticket, _)| *ticket == number)
    }

    /// The true siginfo of a signal that is about to be delivered.
    pub(crate) fn redeem(&mut self, info: &RawSigInfo) -> RawSigInfo {
        let mut info = match self.find(info).and_then(|at| self.waiting.remove(at)) {
            Some((_, info)) => info,
            None => self.translate(info),
        };
        if let Some(timer) = timer_of(&info)
            && let Some(more) = self.overruns.remove(&timer)
        {
            overruns::add(&mut info, more);
        }
        info
    }

    /// Counts a timer's signal, instead of queueing it behind one that waits.
    pub(crate) fn count(&mut self, info: &RawSigInfo) {
        let Some(timer) = timer_of(info) else {
            return;
        };
        let count = self.overruns.entry(timer).or_default();
        let more = overruns::overruns(info).saturating_add(1);
        *count = count.saturating_add(more);
    }

    /// What is to be queued for this signal: nothing if it is counted instead. A timer sends no
    /// second signal while its first one waits; the kernel counts the others. A standard signal that
    /// waits for another reason is in the way too: behind it, this one would be dropped. `queued`:
    /// the signals that wait where this one would go, which are thousands sometimes, and are read
    /// for a timer's signal alone.
    ///
    /// # Errors
    /// Those of `queued`.
    pub(crate) fn admit<E>(
        &mut self,
        info: &RawSigInfo,
        queued: impl FnOnce() -> Result<Vec<RawSigInfo>, E>,
    ) -> Result<Option<RawSigInfo>, E> {
        let Some(timer) = timer_of(info) else {
            return Ok(Some(*info));
        };
        let number = info_word(info, 0);
        let waits = queued()?.iter().any(|other| {
            (waits_once(number) && info_word(other, 0) == number)
                || timer_of(&self.look_up(other)) == Some(timer)
        });
        if waits {
            self.count(info);
            return Ok(None);
        }
        let count = self.overruns.remove(&timer).unwrap_or(0);
        // The signal before this one has left the queue, and nobody may have asked yet for what was
        // counted meanwhile: its stop is not handled, or it has been received without a handler.
        let mut next = *info;
        overruns::add(&mut next, count);
        Ok(Some(next))
    }

    /// Tells signals that move elsewhere what was counted here, the first one of each timer.
    pub(crate) fn tell_counted<'a>(&self, signals: impl Iterator<Item = &'a mut QueuedSignal>) {
        let mut left = self.overruns.clone();
        for signal in signals {
            let more = timer_of(&signal.info).and_then(|timer| left.remove(&timer));
            overruns::add(&mut signal.info, more.unwrap_or(0));
        }
    }

    /// The true siginfo of a signal that stays queued.
    #[must_use]
    pub(crate) fn look_up(&self, info: &RawSigInfo) -> RawSigInfo {
        match self.find(info) {
            Some(at) => self.waiting[at].1,
            None => self.translate(info),
        }
    }

    /// Puts home's uid in the place of the uid under which this host's kernel knows the guest.
    fn translate(&self, info: &RawSigInfo) -> RawSigInfo {
        const SI_TKILL: i32 = -6;
        let mut info = *info;
        let sent = matches!(info_word(&info, 8), 0 | SI_QUEUE | SI_TKILL);
        if sent && info_word(&info, 20).cast_unsigned() == INSIDE_ID {
            info[20..24].copy_from_slice(&self.uid.to_ne_bytes());
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const SI_TIMER: i32 = -2;
    use std::convert::Infallible;

    fn admitted(
        tickets: &mut Tickets,
        info: &RawSigInfo,
        queued: &[RawSigInfo],
    ) -> Option<RawSigInfo> {
        let queued = || Ok::<_, Infallible>(queued.to_vec());
        tickets
            .admit(info, queued)
            .unwrap_or_else(|never| match never {})
    }

    fn timers(timer: i32, overrun: i32) -> RawSigInfo {
        let mut info = [0; 128];
        info[8..12].copy_from_slice(&SI_TIMER.to_ne_bytes());
        info[16..20].copy_from_slice(&timer.to_ne_bytes());
        info[20..24].copy_from_slice(&overrun.to_ne_bytes());
        info
    }

    #[test]
    fn a_ticket_gives_the_true_siginfo_back_once() {
        let mut tickets = Tickets::default();
        let mut info = [0; 128];
        info[0] = 10;
        info[8] = 1;
        let ticket = tickets.issue(10, info);
        assert_eq!(tickets.look_up(&ticket), info);
        assert_eq!(tickets.redeem(&ticket), info);
        assert_eq!(tickets.redeem(&ticket), ticket);
    }

    #[test]
    fn beyond_their_limit_the_oldest_tickets_are_forgotten() {
        let mut tickets = Tickets::default();
        let info = |number: usize| {
            let mut info = [0; 128];
            info[8..12].copy_from_slice(&1i32.to_ne_bytes());
            info[64..72].copy_from_slice(&number.to_ne_bytes());
            info
        };
        let first = tickets.issue(10, info(1));
        let second = tickets.issue(10, info(2));
        let mut last = second;
        for number in 3..=TICKETS_MAX {
            last = tickets.issue(10, info(number));
        }
        assert_eq!(tickets.look_up(&first), info(1), "as many as there may be");
        let above = tickets.issue(10, info(TICKETS_MAX + 1));
        assert_eq!(tickets.look_up(&first), first, "it stands for nothing more");
        assert_eq!(tickets.look_up(&second), info(2));
        assert_eq!(tickets.redeem(&last), info(TICKETS_MAX));
        assert_eq!(tickets.redeem(&above), info(TICKETS_MAX + 1));
    }

    #[test]
    fn a_timer_counts_what_it_does_not_send() {
        let mut tickets = Tickets::default();
        let first = timers(3, 0);
        let waiting = [first];
        assert_eq!(admitted(&mut tickets, &first, &[timers(4, 0)]), Some(first));
        assert_eq!(admitted(&mut tickets, &timers(3, 0), &waiting), None);
        assert_eq!(admitted(&mut tickets, &timers(3, 2), &waiting), None);
        assert_eq!(info_word(&tickets.redeem(&first), 20), 4);
        assert_eq!(info_word(&tickets.redeem(&first), 20), 0);
    }

    #[test]
    fn overruns_go_with_the_next_signal_if_theirs_has_left_the_queue() {
        let mut tickets = Tickets::default();
        let first = timers(3, 0);
        assert_eq!(admitted(&mut tickets, &timers(3, 20), &[first]), None);
        let next = admitted(&mut tickets, &timers(3, 1), &[]);
        assert_eq!(next, Some(timers(3, 22)));
        // They are told once, whichever of the two is delivered first.
        assert_eq!(tickets.redeem(&first), first);
        assert_eq!(tickets.redeem(&timers(3, 22)), timers(3, 22));
    }

    #[test]
    fn a_timer_s_standard_signal_is_counted_behind_any_of_its_number() {
        let mut tickets = Tickets::default();
        let with_number = |timer: i32, number: u8| {
            let mut info = timers(timer, 0);
            info[0] = number;
            info
        };
        let (first, other) = (with_number(3, 12), with_number(4, 12));
        assert_eq!(admitted(&mut tickets, &first, &[other]), None);
        assert_eq!(tickets.redeem(&other), other, "not its own");
        assert_eq!(overruns::overruns(&tickets.redeem(&first)), 1);
        let (first, other) = (with_number(3, 34), with_number(4, 34));
        assert_eq!(admitted(&mut tickets, &first, &[other]), Some(first));
    }

    #[test]
    fn what_was_counted_moves_with_one_signal_of_its_timer() {
        let mut tickets = Tickets::default();
        let moving = |timer: i32, overruns: i32| QueuedSignal {
            signal: 12,
            info: timers(timer, overruns).to_vec(),
        };
        tickets.count(&timers(3, 0));
        tickets.count(&timers(3, 2));
        let mut signals = [moving(4, 1), moving(3, 1), moving(3, 0)];
        tickets.tell_counted(signals.iter_mut());
        assert_eq!(signals, [moving(4, 1), moving(3, 5), moving(3, 0)]);
        // It is kept for a move that fails.
        assert_eq!(tickets.redeem(&timers(3, 0)), timers(3, 4));
    }

    #[test]
    fn the_sandbox_uid_becomes_that_of_home() {
        let mut tickets = Tickets {
            uid: 1000,
            ..Tickets::default()
        };
        let mut info = [0; 128];
        info[20..24].copy_from_slice(&INSIDE_ID.to_ne_bytes());
        assert_eq!(info_word(&tickets.redeem(&info), 20), 1000);
        info[8..12].copy_from_slice(&1i32.to_ne_bytes());
        assert_eq!(
            info_word(&tickets.redeem(&info), 20),
            1,
            "a child's uid is not ours to change"
        );
    }
}
