//! Signals that the guest sends to itself.

use crate::error::GuestError;
use crate::guest::{After, Guest, Thread};
use crate::signals::{Effect, bit};
use std::time::{Duration, Instant};
use whim_calls::{GuestMemory, Signal};
use whim_model::Syscall;
use whim_sys::ptrace::RawSigInfo;
use whim_sys::seccomp::Response;

/// A thread that is given a signal takes it within this time, unless others have the processor.
const TAKEN_WITHIN: Duration = Duration::from_millis(20);

impl Guest {
    /// The guest sends a signal to itself.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn own_signal(&mut self, host_tid: i32, signal: Signal) -> Result<(), GuestError> {
        let target = match signal.tid {
            Some(tid) => match self.thread_of(tid) {
                Some(thread) => Some(thread.host_tid),
                None => {
                    let none = -i64::from(libc::ESRCH);
                    return self.respond(host_tid, Response::Result(none));
                }
            },
            None => None,
        };
        if let Some(executor) = self.keeps(target, signal.signal) {
            // Trap: a-waiting-sigtrap
            if signal.signal == libc::SIGTRAP {
                self.go_home(host_tid, "it sends itself a SIGTRAP, which waits");
                return Ok(());
            }
            // What the signal does is decided when a thread receives it.
            if signal.info == 0 {
                return self.keep_own(host_tid, executor, target.is_some(), &signal);
            }
            self.leaves_with_kernel(signal.signal);
            return self.respond(host_tid, Response::Continue);
        }
        match self.effect(signal.signal) {
            Effect::Ends => {
                self.go_home(host_tid, "it sends itself a signal that ends it");
                self.ends_another(host_tid, target, &signal);
                return Ok(());
            }
            Effect::Stops => {
                // The signal comes back to us from home.
                return self.forward(host_tid, signal.forward, After::Result);
            }
            Effect::Nothing | Effect::Caught => {}
        }
        let chosen = target.or_else(|| self.chosen(signal.signal));
        let reported = |thread: &Thread| thread.host_tid != host_tid && thread.waiting.is_some();
        let waits = chosen.is_some_and(|chosen| self.threads.get(&chosen).is_some_and(reported));
        // Trap: own-signals-do-not-interrupt
        if !waits {
            // The kernel executes the call itself, which is exact.
            return self.respond(host_tid, Response::Continue);
        }
        let Some(info) = self.own_info(&signal) else {
            return self.respond(host_tid, Response::Continue);
        };
        if self.effect(signal.signal) == Effect::Nothing && signal.signal != libc::SIGCONT {
            // The mask of that call lets it through, but the kernel here knows the thread under another one.
            return self.respond(host_tid, Response::Result(0));
        }
        // The signal must be queued before the call that it interrupts returns.
        self.queue(target, chosen, signal.signal, info)?;
        self.respond(host_tid, Response::Result(0))
    }

    /// A thread sends the signal that ends the process to another thread. The receiver ends the process at home,
    /// before the sender goes on. If the sender's call were made first, it would find the receiver still stopped,
    /// leave the signal in the queue, and return.
    fn ends_another(&mut self, host_tid: i32, target: Option<i32>, signal: &Signal) {
        // SIGKILL asks no thread.
        let other = target.or_else(|| self.chosen(signal.signal));
        let other = other.filter(|other| *other != host_tid && signal.signal != libc::SIGKILL);
        if let (Some(other), Some(info)) = (other, self.own_info(signal)) {
            // Trap: the-sender-outruns-its-signal
            self.ends_at_home(other, signal.signal, info);
        }
    }

    /// Hears of a signal that ends the process before a thread is told that its call, which has sent it, is done.
    /// What home sends while the first thread runs is for the kernel here to decide, which another thread does
    /// not wait for.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn hear_of_the_end(&mut self, call: &Syscall) -> Result<(), GuestError> {
        if self.threads.len() == 1 || !whim_calls::may_signal(call) {
            return Ok(());
        }
        let begun = Instant::now();
        while self.is_about_to_end() && !self.holds.any() && begun.elapsed() < TAKEN_WITHIN {
            std::thread::yield_now();
            self.reap()?;
        }
        self.reap()
    }

    /// Whether a signal waits for the process which ends it as soon as the first thread gets the processor.
    fn is_about_to_end(&self) -> bool {
        let status = self.status(self.host_tid);
        let waits = status.pending_shared & !status.blocked;
        (1..=64).any(|signal| waits & bit(signal) != 0 && self.effect(signal) == Effect::Ends)
    }

    /// The thread that has to queue a signal which is not delivered now, because a `sigwaitinfo`
    /// receives it or because it is blocked. Its siginfo must then be the true one from the
    /// beginning.
    fn keeps(&self, target: Option<i32>, signal: i32) -> Option<i32> {
        if matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
            return None;
        }
        if let Some(waiter) = self.waiter(target, signal) {
            return Some(waiter);
        }
        let chosen = target.or_else(|| self.chosen(signal));
        let blocked = chosen.is_none_or(|host_tid| self.blocked(host_tid) & bit(signal) != 0);
        blocked.then(|| target.unwrap_or(self.host_tid))
    }

    /// Queues a signal that the guest sends to itself. This host's kernel would say that the signal
    /// comes from another user, because it knows the guest under another uid than home's.
    fn keep_own(
        &mut self,
        host_tid: i32,
        executor: i32,
        to_thread: bool,
        signal: &Signal,
    ) -> Result<(), GuestError> {
        let Some(info) = self.own_info(signal) else {
            return self.respond(host_tid, Response::Continue);
        };
        if executor != host_tid {
            self.queue_exactly(executor, to_thread, signal.signal, &info)?;
            return self.respond(host_tid, Response::Result(0));
        }
        let stopped = self.take_out(host_tid)?;
        let (stopped, result) = self.inject_signal(stopped, to_thread, signal.signal, &info)?;
        self.go_on_with(host_tid, stopped, result)
    }

    /// The siginfo that home's kernel would make for a signal that the guest sends to itself.
    fn own_info(&self, signal: &Signal) -> Option<RawSigInfo> {
        const SI_TKILL: i32 = -6;
        let mut info = [0; 128];
        if signal.info != 0 {
            if self.memory.read(signal.info, &mut info) != info.len() {
                return None;
            }
            info[0..4].copy_from_slice(&signal.signal.to_ne_bytes());
            return Some(info);
        }
        let code = if signal.tid.is_some() { SI_TKILL } else { 0 };
        info[0..4].copy_from_slice(&signal.signal.to_ne_bytes());
        info[8..12].copy_from_slice(&code.to_ne_bytes());
        info[16..20].copy_from_slice(&self.pid.to_ne_bytes());
        info[20..24].copy_from_slice(&self.tickets.uid.to_ne_bytes());
        Some(info)
    }
}
