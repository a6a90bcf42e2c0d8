//! The way back into calls that wait for signals.
//!
//! A thread that was stopped in `rt_sigsuspend` or `rt_sigtimedwait` goes through the kernel's delivery
//! of signals, under its ordinary mask, before it is in its call again. There it would receive
//! what its call keeps away: a signal that waits and is to come after the call would come first, or
//! end the program. So the thread goes to the entry of its call with all signals blocked, and gets
//! its mask back there. What comes next is the call's own affair, as if it had never been left.
//!
//! Calls that home executes wait under the thread's ordinary mask here. What their own mask keeps
//! away is set aside when it is about to be delivered, and queued again once the call has begun.

use crate::cut::{Standing, is_made_again, was_cut, without_stop};
use crate::error::GuestError;
use crate::first::is_fault;
use crate::guest::{Guest, Kind, Thread, Waiting};
use crate::signals::{Effect, bit};
use std::time::Duration;
use whim_image::freeze_calls::ERESTARTSYS;
use whim_sys::ptrace::{Phase, Polled, RawSigInfo, Running, Stop, Stopped, TraceError, Waited};

/// A thread that has not entered its call by then goes on as it is. It takes microseconds, if the
/// page of the code is here.
const ENTERS_WITHIN: Duration = Duration::from_millis(500);

impl Guest {
    /// Brings a thread that was stopped in a call that waits for signals to the entry of that call.
    /// If it was stopped elsewhere, the page of its code may have to come first, and that is not
    /// waited for (`has_entered`).
    ///
    /// # Errors
    /// The thread has ended; tracing failed.
    pub(crate) fn back_in_its_call(&mut self, stopped: Stopped) -> Result<Standing, GuestError> {
        let Some(thread) = self.threads.get_mut(&stopped.tid()) else {
            return Ok(Standing::There(stopped));
        };
        let comes = std::mem::take(&mut thread.enters);
        let found = stopped.registers()?;
        let registers = without_stop(&found);
        if registers != found && stopped.stop() != Stop::SyscallStop {
            // Trap: a-held-wait-ends
            stopped.set_registers(&registers)?;
        }
        thread.note_restart(&registers);
        if !comes && !is_made_again(&registers) {
            return Ok(Standing::There(stopped));
        }
        let mask = stopped.signal_mask()?;
        // Trap: the-mask-of-a-wait-is-lost
        stopped.set_signal_mask(u64::MAX)?;
        let running = stopped.resume_to_syscall(0)?;
        if comes {
            thread.entering = Some(mask);
            return Ok(Standing::OnItsWay);
        }
        self.await_entry(running, mask)
    }

    /// A thread on its way to its call has stopped: it gets its mask back.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn has_entered(&mut self, stopped: &Stopped) -> Result<(), GuestError> {
        if let Some(thread) = self.threads.get_mut(&stopped.tid())
            && let Some(mask) = thread.entering.take()
        {
            stopped.set_signal_mask(mask)?;
            thread.enters = stopped.stop() != Stop::SyscallStop;
        }
        Ok(())
    }

    /// As `has_entered`, for a thread that is wanted stopped, in its call or before it. Nor does a thread stay at
    /// the entry or the end of a wait that is followed (`in_a_wait`): there its registers do not tell whether
    /// the call has been made.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn stopped_on_its_way(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        let host_tid = stopped.tid();
        let thread = self.threads.get(&host_tid);
        let enters = thread.is_some_and(|thread| thread.entering.is_some());
        let is_followed = thread.is_some_and(|thread| thread.timed.is_some());
        if enters {
            self.has_entered(&stopped)?;
        }
        if stopped.stop() != Stop::SyscallStop || !(enters || is_followed) {
            return Ok(stopped);
        }
        if is_followed && stopped.phase()? == Phase::Exit && !was_cut(&stopped.registers()?) {
            // The wait is over, and the next call is another one.
            if let Some(thread) = self.threads.get_mut(&host_tid) {
                thread.timed = None;
            }
        }
        self.stop_anew(stopped)
    }

    /// Waits until a thread is at the entry of its call, and gives it this mask there.
    ///
    /// # Errors
    /// The thread has ended; tracing failed.
    pub(crate) fn await_entry(
        &mut self,
        mut running: Running,
        mask: u64,
    ) -> Result<Standing, GuestError> {
        let host_tid = running.tid();
        let (mut interrupted, mut late) = (false, false);
        loop {
            let event = match running.wait_gently_for(ENTERS_WITHIN)? {
                Polled::Event(event) => event,
                Polled::Still(still) => {
                    still.interrupt()?;
                    (running, late) = (still, true);
                    continue;
                }
            };
            let Waited::Stopped(stopped) = event else {
                self.ended(host_tid);
                return Err(GuestError::Ended);
            };
            running = match stopped.stop() {
                Stop::SyscallStop if stopped.phase()? == Phase::Entry => {
                    stopped.set_signal_mask(mask)?;
                    if interrupted {
                        // Somebody has asked for a stop, and gets it in the call.
                        Running::assume(host_tid).interrupt()?;
                    }
                    return Ok(Standing::AtEntry(stopped));
                }
                Stop::Interrupt if late => {
                    tracing::debug!(host_tid, "a thread has not come back to its call");
                    stopped.set_signal_mask(mask)?;
                    return Ok(Standing::There(stopped));
                }
                Stop::Signal(signal) => stopped.resume_to_syscall(signal)?,
                stop => {
                    interrupted |= stop == Stop::Interrupt;
                    stopped.resume_to_syscall(0)?
                }
            };
        }
    }

    /// Lets a thread go on where it stands, and follows it into its wait and out of it, if it makes one again. Otherwise
    /// that might end unseen, and the next one be taken for it.
    pub(crate) fn resume_followed(&self, stopped: Stopped) -> Result<Running, GuestError> {
        let timed = |thread: &Thread| thread.timed.is_some();
        let is_timed = self.threads.get(&stopped.tid()).is_some_and(timed);
        let running = if is_timed {
            stopped.resume_to_syscall(0)
        } else {
            stopped.resume(0)
        };
        Ok(running?)
    }

    /// Lets a thread go on. If it is to make a wait again, it is followed.
    pub(crate) fn resume_in_time(&mut self, stopped: Stopped) -> Result<(), GuestError> {
        match self.back_in_its_call(stopped) {
            Ok(Standing::OnItsWay) => {}
            Ok(Standing::AtEntry(stopped)) => self.in_a_wait(stopped)?,
            Ok(Standing::There(stopped)) => {
                self.resume_followed(stopped)?;
            }
            // It has been killed; whoever waits for threads hears of it.
            Err(GuestError::Ended | GuestError::Trace(TraceError::Died)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether a signal that would end or stop the program meets the thread on its way back into a
    /// call that home executes and that waits under a mask of its own.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn comes_before_its_call(
        &self,
        stopped: &Stopped,
        info: &RawSigInfo,
        effect: Effect,
    ) -> Result<bool, GuestError> {
        let Some(thread) = self.threads.get(&stopped.tid()) else {
            return Ok(false);
        };
        if !matches!(effect, Effect::Ends | Effect::Stops) || is_fault(info) {
            return Ok(false);
        }
        let registers = stopped.registers()?;
        let unread = registers.rax.cast_signed() == ERESTARTSYS
            && !thread.told_interrupted
            && whim_calls::has_signals_of_its_own(registers.orig_rax, &registers.arguments());
        let asks = thread.has_masked_call_in_flight() && thread.is_about_to_ask(&registers);
        Ok(unread || asks)
    }

    /// Sets a signal aside that would end or stop the program, if it meets the thread on its way
    /// back into such a call. Returns whether it did so; not if the signal is for the process, and
    /// another thread receives it.
    pub(crate) fn sets_aside(
        &mut self,
        host_tid: i32,
        to_thread: bool,
        signal: i32,
        info: &RawSigInfo,
    ) -> bool {
        let asks_later = |thread: &Thread| {
            let asks = |waiting: &Waiting| matches!(waiting.kind, Kind::Forward(_));
            thread.has_masked_call_in_flight() && !thread.waiting.as_ref().is_some_and(asks)
        };
        let receives = |thread: &Thread| {
            thread.host_tid != host_tid
                && !asks_later(thread)
                && self.blocked(thread.host_tid) & bit(signal) == 0
        };
        if !self.threads.get(&host_tid).is_some_and(asks_later)
            || is_fault(info)
            || (!to_thread && self.threads.values().any(receives))
        {
            return false;
        }
        self.keep(host_tid, signal, *info);
        true
    }
}

impl Thread {
    /// Whether home executes a call of this thread that waits under a mask of its own, and the
    /// thread has not asked for its result yet: the mask is not known until then.
    pub(crate) fn has_masked_call_in_flight(&self) -> bool {
        let masked = |call: &whim_model::Syscall| {
            whim_calls::has_signals_of_its_own(call.number, &call.args)
        };
        self.in_flight.as_ref().is_some_and(masked)
    }
}
