//! Signals that are queued for the guest as they are, with their true siginfo.
//!
//! Only the thread itself may do that, so it is stopped for it, and then goes on where it was. Only the leader may
//! queue a signal for the process, because in another thread the kernel would not believe the sender in the siginfo.
//! A thread that cannot be stopped for it now, since a signal of its own is about to be delivered or it waits for an
//! answer from home, does it later. What comes after waits behind it, so that the order stays.

use crate::cut::{asking, without_stop};
use crate::error::GuestError;
use crate::guest::{Guest, Kind, Trace};
use crate::tickets::TICKETS_MAX;
use whim_model::{QueuedSignal, Registers};
use whim_sys::ptrace::{RawSigInfo, Stop, Stopped};

/// How often a thread is stopped anew that has stopped for something else.
const TRIES: usize = 8;

/// A signal that waits until a thread can queue it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unqueued {
    /// The thread that queues it, for itself if it is `to_thread`.
    host_tid: i32,
    to_thread: bool,
    signal: i32,
    info: RawSigInfo,
}

impl Guest {
    /// Queues a signal with its true siginfo, now or as soon as that is possible.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn queue_exactly(
        &mut self,
        host_tid: i32,
        to_thread: bool,
        signal: i32,
        info: &RawSigInfo,
    ) -> Result<(), GuestError> {
        let one = Unqueued {
            host_tid,
            to_thread,
            signal,
            info: *info,
        };
        if !self.unqueued.is_empty() || !self.queues_now(&one)? {
            if self.unqueued.len() >= TICKETS_MAX {
                tracing::warn!(signal, "a signal is dropped: too many wait to be queued");
                return Ok(());
            }
            self.unqueued.push_back(one);
        }
        Ok(())
    }

    /// Queues what could not be queued before, as far as it can be now.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn queue_what_waits(&mut self) -> Result<(), GuestError> {
        while let Some(one) = self.unqueued.front().copied() {
            if !self.queues_now(&one)? {
                break;
            }
            self.unqueued.pop_front();
        }
        Ok(())
    }

    /// Signals that wait to be queued, for this thread or for the process.
    pub(crate) fn unqueued_for(&self, host_tid: Option<i32>) -> Vec<QueuedSignal> {
        let meant = |one: &&Unqueued| host_tid == one.to_thread.then_some(one.host_tid);
        let signals = self.unqueued.iter().filter(meant);
        signals
            .filter_map(|one| QueuedSignal::new(one.signal, &one.info))
            .collect()
    }

    /// Queues a signal if that is possible now; returns whether nothing is left to be done for it.
    fn queues_now(&mut self, one: &Unqueued) -> Result<bool, GuestError> {
        let host_tid = one.host_tid;
        for _ in 0..TRIES {
            let Some(thread) = self.threads.get_mut(&host_tid) else {
                return Ok(true);
            };
            if !matches!(thread.trace, Trace::Running) {
                return self.queues_at_stop(one);
            }
            let mut asks = false;
            match thread.waiting.as_ref().map(|waiting| &waiting.kind) {
                None | Some(Kind::Undecided | Kind::GoHome) => {}
                Some(Kind::Forward(_)) => asks = thread.leaves_its_call_to_home(),
                Some(_) => return Ok(false),
            }
            let stopped = self.take_out(host_tid)?;
            if stopped.stop() != Stop::Interrupt {
                // Its own signal is delivered first, or it is at the end of a wait.
                self.set_trace(host_tid, Trace::Stopped(stopped));
                self.resume()?;
                continue;
            }
            let after = if asks { asking } else { without_stop };
            let stopped = self.queue_in(stopped, one, after)?;
            self.go_on(host_tid, stopped)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The same for a thread that does not run. If it is held, there may be no delivery stop, as when it waits for
    /// the signal later: a ticket would be what it gets.
    fn queues_at_stop(&mut self, one: &Unqueued) -> Result<bool, GuestError> {
        let Some(thread) = self.threads.get_mut(&one.host_tid) else {
            return Ok(true);
        };
        let is_held =
            matches!(&thread.trace, Trace::Stopped(stopped) if stopped.stop() == Stop::Interrupt);
        if !is_held || thread.waiting.is_some() {
            return Ok(false);
        }
        let trace = std::mem::replace(&mut thread.trace, Trace::Interrupted);
        let Trace::Stopped(stopped) = trace else {
            return Ok(false);
        };
        let stopped = self.queue_in(stopped, one, without_stop)?;
        self.set_trace(one.host_tid, Trace::Stopped(stopped));
        Ok(true)
    }

    /// Queues a signal in a thread that stands at an interrupt, unless it is counted instead. `after` tells the
    /// registers with which the thread goes on.
    fn queue_in(
        &mut self,
        stopped: Stopped,
        one: &Unqueued,
        after: fn(&Registers) -> Registers,
    ) -> Result<Stopped, GuestError> {
        let queued = || stopped.queued_signals(!one.to_thread);
        let admitted = self.tickets.admit(&one.info, queued)?;
        let before = stopped.registers()?;
        let signal = admitted
            .as_ref()
            .map(|info| (one.to_thread, one.signal, info));
        let stopped = self.inject_at_stop(stopped, signal)?;
        stopped.set_registers(&after(&before))?;
        Ok(stopped)
    }

    /// Has a thread that stands at an interrupt queue a signal, if there is one, and stands at an interrupt again.
    fn inject_at_stop(
        &mut self,
        stopped: Stopped,
        signal: Option<(bool, i32, &RawSigInfo)>,
    ) -> Result<Stopped, GuestError> {
        let (stopped, result) = match signal {
            Some((to_thread, signal, info)) => {
                self.inject_signal(stopped, to_thread, signal, info)?
            }
            None => (stopped, 0),
        };
        if result < 0 {
            tracing::warn!(result, "a signal could not be queued");
        }
        // After a syscall stop the kernel does not restart calls, so the thread is stopped once
        // more.
        // Trap: restart-numbers-leak
        self.stop_anew(stopped)
    }
}
