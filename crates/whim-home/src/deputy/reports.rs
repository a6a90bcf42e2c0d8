//! What the kernel reports of the deputy's threads, signals in the order in which they were sent.
//!
//! The kernel reports first what the thread does that we have traced for longest. While we are busy, each signal of the
//! process goes to another thread: to the first one, or else to the next that has none. Nothing that a thread
//! reports says when it was given its signal. (When it ran last is no help: each CPU has a clock of its own, and in a
//! virtual machine they were seen to differ by more than a second.) So nobody goes on before all have been heard; and
//! while signals wait for the process, one thread after the other goes on, each when the one before has its next.

use super::{Deputy, DeputyError, DeputyEvent, Trace};
use std::time::{Duration, Instant};
use whim_image::freeze_observe::Status as Seen;
use whim_sys::ptrace::{self, RawSigInfo, Status, Stop, Stopped, Tid};
use whim_sys::pulse;

/// Most stops of its threads that are looked at in one go, while others wait to hear from us.
const STOPS_IN_A_TURN: usize = 256;
/// A thread that goes on takes what waits for it within this time, or it is frozen.
const TAKES_WITHIN: Duration = Duration::from_millis(20);

/// A thread that has taken a signal stops within this time.
const STOPS_WITHIN: Duration = Duration::from_millis(1);

type Report = (Tid, Status);

/// What a thread has been given that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Signal,
    /// It could have been given a signal, and has not got on.
    Late,
}

impl Deputy {
    /// Answers what the kernel has to report. The result of a call comes behind the signals that the call has
    /// sent: who hears the result first goes on although it is to end.
    ///
    /// # Errors
    /// Tracing failed.
    pub(super) fn drain(&mut self) -> Result<(), DeputyError> {
        self.hear()?;
        let begun = Instant::now();
        while std::mem::take(&mut self.has_sent) && begun.elapsed() < TAKES_WITHIN {
            // In a stopped process none takes it.
            if !self.group_stopped && self.can_take(self.pid) {
                self.has_sent = true;
                std::thread::yield_now();
            }
            self.hear()?;
        }
        let finished = self.finished.drain(..).map(DeputyEvent::Finished);
        self.events.extend(finished);
        Ok(())
    }

    /// Whether a signal waits for the process that this thread can be given.
    fn can_take(&self, tid: Tid) -> bool {
        let can_take = |seen: Seen| seen.pending_shared & !seen.blocked != 0;
        Seen::read(self.pid, tid).is_ok_and(can_take)
    }

    /// A thread has done its work. If that has sent a signal to the process, another thread may have to be
    /// heard first. A thread that is given a signal stops before it can be seen that the signal is not
    /// queued any more.
    pub(super) fn note_finished(
        &mut self,
        seat: usize,
        stopped: &Stopped,
    ) -> Result<(), DeputyError> {
        if self.threads.len() == 1 {
            self.events.push_back(DeputyEvent::Finished(seat));
            return Ok(());
        }
        self.has_sent |= stopped.has_queued(true)?;
        self.finished.push(seat);
        Ok(())
    }

    /// A thread has been given a signal, behind what it has done before.
    pub(super) fn note_signal(&mut self, seat: usize, signal: i32, info: RawSigInfo) {
        let before = self.finished.extract_if(.., |other| *other == seat);
        self.events.extend(before.map(DeputyEvent::Finished));
        self.events
            .push_back(DeputyEvent::Signal { seat, signal, info });
    }

    fn hear(&mut self) -> Result<(), DeputyError> {
        let (mut heard, mut is_patient) = (0, true);
        while heard < STOPS_IN_A_TURN {
            let Some(first) = next()? else {
                return Ok(());
            };
            let mut reports = vec![first];
            while reports.len() < self.threads.len()
                && let Some(another) = next()?
            {
                reports.push(another);
            }
            heard += reports.len();
            if self.threads.len() > 1 && reports.iter().any(is_signal) {
                self.in_order(reports, &mut is_patient)?;
                continue;
            }
            self.line.clear();
            for report in reports {
                self.reported(report)?;
            }
        }
        Ok(())
    }

    /// Answers what has been reported, of which some are signals.
    fn in_order(
        &mut self,
        mut reports: Vec<Report>,
        is_patient: &mut bool,
    ) -> Result<(), DeputyError> {
        let line = std::mem::take(&mut self.line);
        let ring = (self.threads.len(), self.taker);
        let place = |(tid, _): &Report| {
            let first = line.iter().position(|other| other == tid);
            let seat = self.seats.get(tid).copied().unwrap_or_default();
            first.unwrap_or_else(|| line.len() + turn(seat, ring))
        };
        // What is no signal comes first, as it came.
        reports.sort_by_key(|report| is_signal(report).then(|| place(report)));
        for report in reports {
            let (tid, _) = report;
            self.reported(report)?;
            // Trap: signals-among-threads
            let given = if *is_patient {
                self.awaits_next(tid)?
            } else {
                Given::Nothing
            };
            match given {
                Given::Signal => self.line.push(tid),
                // Where one does not get on, the others do not either, and the host waits to hear from us.
                Given::Late => *is_patient = false,
                Given::Nothing if is_signal(&report) && !line.contains(&tid) => {
                    let seat = self.seats.get(&tid).copied();
                    self.taker = seat.filter(|seat| *seat != 0).unwrap_or(self.taker);
                }
                Given::Nothing => {}
            }
        }
        Ok(())
    }

    /// Waits until a thread that goes on has been given its next signal, if one waits for the process that it can be
    /// given.
    fn awaits_next(&self, tid: Tid) -> Result<Given, DeputyError> {
        let seat = self.seats.get(&tid).copied();
        let runs = seat.is_some_and(|seat| matches!(self.threads[seat].trace, Trace::Running(_)));
        if !runs || !self.can_take(tid) {
            return Ok(Given::Nothing);
        }
        let begun = Instant::now();
        let mut taken: Option<Instant> = None;
        while begun.elapsed() < TAKES_WITHIN {
            match ptrace::has_report(tid) {
                Ok(true) => return Ok(Given::Signal),
                Ok(false) => {}
                Err(ptrace::TraceError::Died) => return Ok(Given::Nothing),
                Err(error) => return Err(error.into()),
            }
            // Another thread may have taken it. If it was this one, it stops at once.
            if taken.is_some_and(|at| at.elapsed() > STOPS_WITHIN) {
                return Ok(Given::Nothing);
            }
            if taken.is_none() && !self.can_take(tid) {
                taken = Some(Instant::now());
            }
            std::thread::yield_now();
        }
        Ok(Given::Late)
    }

    fn reported(&mut self, (tid, status): Report) -> Result<(), DeputyError> {
        let seat = self.seats.get(&tid).copied();
        match (seat, status) {
            // A number comes round again when its thread is gone.
            (Some(seat), Status::Stopped(stop)) if !self.is_gone(seat) => {
                self.stopped(seat, stop)?
            }
            (_, Status::Stopped(stop)) => {
                // Trap: a-new-thread-stops-first
                self.born.insert(tid, stop);
            }
            (Some(seat), ended) => self.ended(seat, ended),
            (None, _) => {}
        }
        pulse::advance();
        Ok(())
    }
}

/// The next report; none, too, if no thread is left: their ends have been reported.
fn next() -> Result<Option<Report>, DeputyError> {
    match ptrace::wait_any_nonblocking() {
        Err(ptrace::TraceError::Died) => Ok(None),
        reported => Ok(reported?),
    }
}

/// Whether a thread has been given a signal of others. A SIGTRAP mostly says that a thread has done our work, and of
/// those of others never two wait.
fn is_signal((_, status): &Report) -> bool {
    matches!(status, Status::Stopped(Stop::Signal(signal)) if *signal != libc::SIGTRAP)
}

/// When the thread at this seat is given a signal, of so many threads: the first one is asked first, and the others in a
/// ring, from the one that took the last (`complete_signal` in the kernel's `kernel/signal.c`).
fn turn(seat: usize, (threads, taker): (usize, usize)) -> usize {
    match seat {
        0 => 0,
        _ if seat >= taker => 1 + seat - taker,
        _ => 1 + seat + threads - taker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_round_behind_the_first_thread() {
        let order = |threads: usize, taker: usize| {
            let mut seats: Vec<usize> = (0..threads).rev().collect();
            seats.sort_by_key(|seat| turn(*seat, (threads, taker)));
            seats
        };
        assert_eq!(order(4, 0), [0, 1, 2, 3]);
        assert_eq!(order(4, 2), [0, 2, 3, 1]);
        assert_eq!(order(4, 3), [0, 3, 1, 2]);
        assert_eq!(order(1, 0), [0]);
    }

    #[test]
    fn a_trap_is_no_signal_of_others() {
        let stopped = |stop| (1, Status::Stopped(stop));
        let usr1 = stopped(Stop::Signal(libc::SIGUSR1));
        assert!(is_signal(&usr1));
        for other in [
            Stop::Signal(libc::SIGTRAP),
            Stop::Interrupt,
            Stop::SyscallStop,
        ] {
            assert!(!is_signal(&stopped(other)), "{other:?}");
        }
        assert!(!is_signal(&(1, Status::Exited(0))));
    }
}
