//! Handlers that become due when a thread has made a reported call, but that call has not begun.
//!
//! Until we have read a reported call, any signal ends it: the kernel makes -ERESTARTSYS of it, and
//! EINTR of that if the handler has no SA_RESTART. But such a call has not begun. A call that never
//! waits (a `close`, a `fork`, a `sigaction`) never ends with EINTR, so the handler runs first, and
//! then the call begins. A call that may wait is to be ended by the signal if it waits, but not if
//! there is nothing to wait for. Only home can tell which is the case, so the call begins first,
//! and then the signal comes.

use crate::cut::rewound;
use crate::error::GuestError;
use crate::guest::{Guest, Kind, Thread};
use crate::signals::{Effect, bit};
use whim_calls::{Decision, resolve};
use whim_image::freeze_calls::{ERESTARTNOINTR, ERESTARTSYS};
use whim_model::Syscall;
use whim_model::{QueuedSignal, Registers};
use whim_sys::ptrace::{RawSigInfo, Stopped};

impl Guest {
    /// Keeps a signal whose handler is about to run until the thread's call has begun, if need be.
    /// Returns whether it did so. It also does so if the thread is about to ask for the result of a
    /// call in which it came here, because the handler's own calls would come in between.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn postpone(
        &mut self,
        stopped: &Stopped,
        signal: i32,
        info: &RawSigInfo,
    ) -> Result<bool, GuestError> {
        let mut registers = stopped.registers()?;
        let Some(thread) = self.threads.get(&stopped.tid()) else {
            return Ok(false);
        };
        let asks = thread.is_about_to_ask(&registers);
        // Trap: unread-calls-end-with-eintr
        let unread = self.unread(thread, &registers);
        let Some(thread) = self.threads.get_mut(&stopped.tid()) else {
            return Ok(false);
        };
        if (asks || unread == Some(Unread::MayWait))
            && let Some(kept) = QueuedSignal::new(signal, info)
        {
            thread.postponed.push(kept);
            stopped.set_registers(&rewound(&registers))?;
            return Ok(true);
        }
        if unread.is_some() {
            registers.rax = ERESTARTNOINTR.cast_unsigned();
            stopped.set_registers(&registers)?;
        }
        thread.told_interrupted = false;
        Ok(false)
    }

    /// What the reported call of a thread may do, if a signal has ended it before we have read it.
    fn unread(&self, thread: &Thread, registers: &Registers) -> Option<Unread> {
        let number = registers.orig_rax;
        let ended = number.cast_signed() >= 0 && registers.rax.cast_signed() == ERESTARTSYS;
        if !ended || thread.told_interrupted || whim_calls::restarts_here(number) {
            return None;
        }
        let args = registers.arguments();
        let decision = resolve(&Syscall { number, args }, &self.context, &self.memory);
        // The pages that are missing for the call are asked for when it is read.
        let _ = self.memory.take_needed();
        Some(match decision {
            Decision::Forward(forward) if forward.may_block => Unread::MayWait,
            _ => Unread::NeverWaits,
        })
    }

    /// Queues the signals that were postponed for a thread, once its call has begun.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn requeue_once_begun(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let waiting = self.threads.get(&host_tid).and_then(|t| t.waiting.as_ref());
        if waiting.is_some_and(|waiting| waiting.kind == Kind::Undecided) {
            // Pages have to come first.
            return Ok(());
        }
        self.requeue_postponed(host_tid)
    }

    /// Queues the signals that were postponed for a thread.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn requeue_postponed(&mut self, host_tid: i32) -> Result<(), GuestError> {
        let thread = self.threads.get_mut(&host_tid);
        let kept = thread.map(|thread| std::mem::take(&mut thread.postponed));
        for kept in kept.unwrap_or_default() {
            let signal = i32::from(kept.signal);
            let Ok(info) = RawSigInfo::try_from(kept.info.as_slice()) else {
                continue;
            };
            if signal == libc::SIGTRAP && self.blocked(host_tid) & bit(signal) != 0 {
                self.takes_home(host_tid, &info);
                continue;
            }
            let effect = self.effect_of(signal, &info);
            let acts = matches!(effect, Effect::Ends | Effect::Stops);
            if acts && self.sets_aside(host_tid, true, signal, &info) {
                continue;
            }
            match effect {
                Effect::Ends if self.blocked(host_tid) & bit(signal) == 0 => {
                    self.ends_at_home(host_tid, signal, info);
                }
                Effect::Stops if self.blocked(host_tid) & bit(signal) == 0 => {
                    self.stops_at_home(host_tid, signal, info)?;
                }
                _ => self.queue(Some(host_tid), Some(host_tid), signal, info)?,
            }
        }
        Ok(())
    }
}

/// What an unread call may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    NeverWaits,
    MayWait,
}
