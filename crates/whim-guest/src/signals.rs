//! Signals from home, and the way of all to the handler.
//!
//! The kernel does not let a process queue a signal for another one with the siginfo of a real
//! signal. So a signal from home is queued with a ticket in the place of its siginfo. When it is
//! about to be delivered, the thread stops, and we give it the true siginfo.

use crate::cut::Standing;
use crate::error::GuestError;
use crate::fault;
use crate::guest::{Guest, Kind, Trace};
use crate::kernel_code::FAULTS;
use nix::errno::Errno;
use std::str::SplitWhitespace;
use whim_image::freeze_calls::ERESTARTNOHAND;
use whim_image::rebuild::runner::{SIGTRAP_BIT, step_registers};
use whim_journey::message::ToHome;
use whim_model::overruns::{timer_of, waits_once};
use whim_model::{QueuedSignal, Registers, Syscall};
use whim_sys::kernel_file;
use whim_sys::pidfd;
use whim_sys::process_vm;
use whim_sys::ptrace::{RawSigInfo, Stopped, info_word};

/// What a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Caught,
    Nothing,
    /// Job control: it acts at home.
    Stops,
    Ends,
}

/// Whether the signal is the terminal's answer to a call of a background process.
fn refuses_background(signal: i32, info: &[u8]) -> bool {
    const SI_KERNEL: i32 = 0x80;
    matches!(signal, libc::SIGTTIN | libc::SIGTTOU) && info_word(info, 8) == SI_KERNEL
}

/// The number of a call and the words of its arguments, as /proc/PID/syscall has them.
fn called(text: &str) -> (Option<i64>, SplitWhitespace<'_>) {
    let mut words = text.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    (number, words)
}

/// Signals that stop a process by default.
const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

pub(crate) fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1)
        .ok()
        .and_then(|shift| 1u64.checked_shl(shift))
        .unwrap_or(0)
}

impl Guest {
    /// What a signal does to the guest, if it is delivered.
    #[must_use]
    pub(crate) fn effect(&self, signal: i32) -> Effect {
        let status = self.status(self.host_tid);
        if status.caught & bit(signal) != 0 {
            return Effect::Caught;
        }
        if status.ignored & bit(signal) != 0 {
            return Effect::Nothing;
        }
        match signal {
            libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT => Effect::Nothing,
            _ if self.is_first() => Effect::Nothing,
            stop if STOPS.contains(&stop) => Effect::Stops,
            _ => Effect::Ends,
        }
    }

    /// Whether a handler of the thread is to run if its call returns -ERESTART.
    #[must_use]
    pub(crate) fn has_deliverable(&self, host_tid: i32, wait_mask: Option<u64>) -> bool {
        let status = self.status(host_tid);
        let blocked = wait_mask.unwrap_or(status.blocked);
        status.all_pending() & !blocked & status.caught != 0
    }

    /// Whether a fault of the thread, or a SIGTRAP, is about to be delivered to it: what we ask it for by calls in its
    /// name would end by that.
    ///
    /// # Errors
    /// The thread has ended.
    pub(crate) fn has_fault(&self, stopped: &Stopped) -> Result<bool, GuestError> {
        // Few threads have any signal: to ask that is cheaper than to read a status.
        if !stopped.has_queued(false)? && !stopped.has_queued(true)? {
            return Ok(false);
        }
        let faults = FAULTS
            .iter()
            .fold(SIGTRAP_BIT, |all, fault| all | bit(*fault));
        let status = self.status(stopped.tid());
        Ok(status.all_pending() & !status.blocked & faults != 0)
    }

    /// Whether a signal waits because the thread blocks it, and is let through by the mask of its call. It need not
    /// have a handler: it may be dropped then, or end the program.
    #[must_use]
    pub(crate) fn has_let_through(&self, host_tid: i32, wait_mask: u64) -> bool {
        let status = self.status(host_tid);
        status.all_pending() & status.blocked & !wait_mask != 0
    }

    /// A signal is about to be delivered to a thread.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn deliver(&mut self, stopped: Stopped, signal: i32) -> Result<(), GuestError> {
        let host_tid = stopped.tid();
        let raw = stopped.signal_info()?;
        let info = self.tickets.redeem(&raw);
        let mut effect = self.effect_of(signal, &info);
        if effect == Effect::Stops && self.was_ended_before() {
            effect = Effect::Nothing;
        }
        tracing::trace!(host_tid, signal, ?effect, "delivery");
        self.leave_suspension(&stopped, effect)?;
        if self.is_in_homes_code(&stopped, &info)? {
            let tid = self.threads.get(&host_tid).map_or(0, |thread| thread.tid);
            let reason = "it left home in the middle of its kernel's own code".into();
            self.say(ToHome::GoHome { tid, reason });
            self.set_trace(host_tid, Trace::Stopped(stopped));
            if let Some(thread) = self.threads.get_mut(&host_tid) {
                // This host has caused the signal, so nobody gets it.
                thread.at_our_stop = true;
            }
            return Ok(());
        }
        let (mut stopped, mut raw) = (stopped, raw);
        if effect == Effect::Caught {
            self.leave_proxy(&stopped)?;
            (stopped, raw) = self.leave_kernel_code_first(stopped, raw)?;
        }
        // Trap: a-call-s-mask-is-home-s
        let early = self.comes_before_its_call(&stopped, &info, effect)?;
        if (early || effect == Effect::Caught) && self.postpone(&stopped, signal, &info)? {
            stopped.resume(0)?;
            return Ok(());
        }
        if effect == Effect::Caught
            && let Some(thread) = self.threads.get_mut(&host_tid)
        {
            // The handler ends the wait.
            thread.timed = None;
        }
        match effect {
            Effect::Caught => {
                // Trap: forged-siginfo
                if info != raw {
                    stopped.set_signal_info(&info)?;
                }
                stopped.resume(signal)?;
            }
            Effect::Nothing => self.resume_in_time(stopped)?,
            Effect::Stops => {
                self.stops_at_home(host_tid, signal, info)?;
                self.resume_in_time(stopped)?;
            }
            Effect::Ends => {
                let blocked = self.blocked(host_tid);
                if let Some(fault) = fault::describe(&stopped, signal, &info, blocked) {
                    tracing::warn!("a fault ends the program: {fault}");
                }
                // Trap: the-guest-dies-instead
                self.ends_at_home(host_tid, signal, info);
                self.set_trace(host_tid, Trace::Stopped(stopped));
            }
        }
        Ok(())
    }

    /// Whether a SIGCONT has come since the stop signal that is about to be delivered was left with
    /// the kernel. (The kernel itself drops a stop in the same way after it has begun to deliver
    /// it.) Home has reported that SIGCONT already, so if the stop were asked for now, nothing
    /// would end it.
    fn was_ended_before(&mut self) -> bool {
        let queued = self.stop_queued.take();
        queued.is_some_and(|continues| continues < self.continues)
    }

    /// Whether a stop signal is pending in a thread or in the process.
    fn has_pending_stop(&self) -> bool {
        let stops = STOPS.into_iter().fold(0, |all, stop| all | bit(stop));
        let mut host_tids = self.threads.keys();
        host_tids.any(|host_tid| self.status(*host_tid).all_pending() & stops != 0)
    }

    /// To be called for each signal that is left pending in the kernel until a thread receives it.
    pub(crate) fn leaves_with_kernel(&mut self, signal: i32) {
        if STOPS.contains(&signal) {
            self.stop_queued = Some(self.continues);
        }
    }

    /// Whether a thread has accessed data that home's vDSO finds only at home.
    fn is_in_homes_code(&self, stopped: &Stopped, info: &RawSigInfo) -> Result<bool, GuestError> {
        let (Some(proxy), libc::SIGSEGV) = (&self.proxy, info_word(info, 0)) else {
            return Ok(false);
        };
        let rip = stopped.registers()?.rip;
        Ok(proxy.is_unfinished(rip, fault::address(info)))
    }

    /// Moves a thread that is in the copied vDSO back to the beginning of the function it is in,
    /// because a handler's frame must not point into the middle of a function that exists on this
    /// host only.
    fn leave_proxy(&self, stopped: &Stopped) -> Result<(), GuestError> {
        let Some(proxy) = &self.proxy else {
            return Ok(());
        };
        let mut registers = stopped.registers()?;
        if let Some(begin) = proxy.begin_of(registers.rip) {
            (registers.rip, registers.orig_rax) = (begin, u64::MAX);
            stopped.set_registers(&registers)?;
        }
        Ok(())
    }

    /// The signal ends the process at home, where core dump and exit status belong.
    pub(crate) fn ends_at_home(&mut self, host_tid: i32, signal: i32, info: RawSigInfo) {
        let Some(fatal) = QueuedSignal::new(signal, &info) else {
            return;
        };
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.fatal = Some(fatal);
            let tid = thread.tid;
            let reason = format!("signal {signal} ends it");
            // Trap: a-call-behind-the-end
            self.holds.ends = true;
            self.say(ToHome::GoHome { tid, reason });
        }
    }

    /// A SIGTRAP that is blocked waits at home, where it is the program's alone.
    pub(crate) fn takes_home(&mut self, host_tid: i32, info: &RawSigInfo) {
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            // Trap: a-waiting-sigtrap
            thread
                .postponed
                .extend(QueuedSignal::new(libc::SIGTRAP, info));
            let tid = thread.tid;
            let reason = "a SIGTRAP waits which it blocks".into();
            self.say(ToHome::GoHome { tid, reason });
        }
    }

    /// Keeps a signal, which the thread gets where it moves to.
    pub(crate) fn keep(&mut self, host_tid: i32, signal: i32, info: [u8; 128]) {
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.postponed.extend(QueuedSignal::new(signal, &info));
        }
    }

    /// Like `keep`, for the signal that ends the thread.
    pub(crate) fn keep_fatal(&mut self, host_tid: i32, signal: i32, info: [u8; 128]) {
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.fatal = QueuedSignal::new(signal, &info);
        }
    }

    /// Job control acts at home. No thread here runs on until home says so, because the call that
    /// has sent the signal must not return before the stop.
    pub(crate) fn stops_at_home(
        &mut self,
        host_tid: i32,
        signal: i32,
        info: RawSigInfo,
    ) -> Result<(), GuestError> {
        let tid = self.threads.get(&host_tid).map(|thread| thread.tid);
        let (Some(tid), Ok(number)) = (tid, u8::try_from(signal)) else {
            return Ok(());
        };
        self.holds.stopped = true;
        self.interrupt_all()?;
        self.say(ToHome::DefaultStop {
            tid,
            signal: number,
            info: info.to_vec(),
            continues: self.continues,
        });
        Ok(())
    }

    /// The process goes on at home, or has not been stopped there.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn goes_on(&mut self) -> Result<(), GuestError> {
        self.holds.stopped = false;
        self.resume()?;
        self.decide_again()
    }

    /// The process's control group at home is frozen, or is not any more.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn stands_still(&mut self, frozen: bool) -> Result<(), GuestError> {
        self.holds.frozen = frozen;
        self.hold(frozen)?;
        self.decide_again()
    }

    /// A signal from home.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn signal(
        &mut self,
        tid: Option<i32>,
        signal: u8,
        info: &[u8],
    ) -> Result<(), GuestError> {
        let (Ok(info), 1..=64) = (RawSigInfo::try_from(info), signal) else {
            tracing::warn!(signal, "home sends a signal that does not exist");
            return Ok(());
        };
        let signal = i32::from(signal);
        tracing::trace!(signal, ?tid, "signal from home");
        // It may say that a file has been written.
        self.refresh()?;
        if signal == libc::SIGCONT {
            self.continues += 1;
        }
        let target = match tid {
            Some(tid) => match self.thread_of(tid) {
                Some(thread) => Some(thread.host_tid),
                None => return Ok(()),
            },
            None => None,
        };
        if let Some(waiter) = self.waiter(target, signal) {
            // What is for the process waits in its queue, behind what was sent before. If the waiting thread
            // queued it, it would be that thread's, and come first.
            let leader = self.threads.contains_key(&self.host_tid);
            let executor = if leader && target.is_none() {
                self.host_tid
            } else {
                waiter
            };
            return self.queue_exactly(executor, target.is_some(), signal, &info);
        }
        let chosen = target.or_else(|| self.chosen(signal));
        let blocked = chosen.is_none_or(|host_tid| self.blocked(host_tid) & bit(signal) != 0);
        if blocked && tid.is_some() && refuses_background(signal, &info) {
            // The kernel would not have sent the signal to a thread that blocks it, but home could
            // not know that (see `mask_for_home`). The call is made again, with the mask.
            return Ok(());
        }
        if blocked && signal == libc::SIGTRAP {
            self.takes_home(target.unwrap_or(self.host_tid), &info);
            return Ok(());
        }
        // Trap: signal-as-a-wait-begins
        if blocked || chosen.is_some_and(|host_tid| self.may_begin_to_wait(host_tid, signal)) {
            // Either there will be no delivery stop at which the true siginfo could replace a
            // ticket, or it is not known whether there will be one. So the signal is queued as it
            // is, and the kernel decides.
            let executor = target.unwrap_or(self.host_tid);
            return self.queue_exactly(executor, target.is_some(), signal, &info);
        }
        let effect = self.effect(signal);
        if let (Effect::Ends | Effect::Stops, Some(host_tid)) = (effect, chosen)
            && self.sets_aside(host_tid, target.is_some(), signal, &info)
        {
            return Ok(());
        }
        match effect {
            // The kernel discards the pending stop signals.
            Effect::Nothing if signal == libc::SIGCONT && self.has_pending_stop() => {
                self.queue(target, None, signal, info)
            }
            Effect::Nothing => Ok(()),
            Effect::Stops => self.stops_at_home(chosen.unwrap_or(self.host_tid), signal, info),
            Effect::Ends => {
                self.ends_at_home(chosen.unwrap_or(self.host_tid), signal, info);
                Ok(())
            }
            Effect::Caught => self.queue(target, chosen, signal, info),
        }
    }

    /// Which of the signals SIGTTIN and SIGTTOU the thread blocks. The kernel looks at them when a
    /// background process uses the terminal. Reading the mask takes time, so for reads and writes
    /// it is read only after the terminal has refused them once (`again`).
    pub(crate) fn mask_for_home(&self, host_tid: i32, call: &Syscall, again: bool) -> u64 {
        if !again && !whim_calls::is_terminal_control(call) {
            return 0;
        }
        // Trap: the-background-is-refused-the-terminal
        self.blocked(host_tid) & (bit(libc::SIGTTIN) | bit(libc::SIGTTOU))
    }

    /// A thread that waits for this signal in `sigwaitinfo` or a similar call. Meanwhile the kernel
    /// shows the signal as not blocked.
    pub(crate) fn waiter(&self, target: Option<i32>, signal: i32) -> Option<i32> {
        let candidates = self
            .threads
            .values()
            .filter(|thread| thread.waiting.is_none());
        let mut host_tids = candidates.map(|thread| thread.host_tid);
        host_tids.find(|host_tid| {
            target.is_none_or(|target| target == *host_tid) && self.waits_for(*host_tid, signal)
        })
    }

    /// The call in which the thread sleeps, with its arguments; or that the thread is running.
    fn sleeps_in(&self, host_tid: i32) -> String {
        let path = format!("/proc/{}/task/{host_tid}/syscall", self.host_tid);
        kernel_file::read_text(path).unwrap_or_default()
    }

    /// Whether a thread that seems not to block the signal may be on its way into a wait for it, or
    /// out of such a wait. The signal would then be mistaken for one that no thread waits for, and
    /// be lost or end the program.
    fn may_begin_to_wait(&self, host_tid: i32, signal: i32) -> bool {
        let Some(thread) = self.threads.get(&host_tid) else {
            return false;
        };
        if thread.waiting.is_some() || !matches!(thread.trace, Trace::Running) {
            return false;
        }
        let sleeps_in = self.sleeps_in(host_tid);
        let waits = called(&sleeps_in).0 == Some(libc::SYS_rt_sigtimedwait);
        waits
            || sleeps_in.starts_with("running")
            || self.blocked(host_tid) & bit(signal) != 0
            || self.sleeps_in(host_tid) != sleeps_in
    }

    fn waits_for(&self, host_tid: i32, signal: i32) -> bool {
        let text = self.sleeps_in(host_tid);
        let (number, mut words) = called(&text);
        if number != Some(libc::SYS_rt_sigtimedwait) {
            return false;
        }
        let set = words.next().and_then(|word| word.strip_prefix("0x"));
        let set = set.and_then(|word| u64::from_str_radix(word, 16).ok());
        let mut bytes = [0; 8];
        let read = set.map(|set| process_vm::read_exact(self.host_tid, set, &mut bytes));
        matches!(read, Some(Ok(()))) && u64::from_ne_bytes(bytes) & bit(signal) != 0
    }

    /// Signals that a thread blocks while it waits in its call.
    pub(crate) fn blocked(&self, host_tid: i32) -> u64 {
        let waiting = self
            .threads
            .get(&host_tid)
            .and_then(|thread| thread.waiting.as_ref());
        if let Some(Kind::Forward(forwarded)) = waiting.map(|waiting| &waiting.kind)
            && let Some(mask) = forwarded.wait_mask
        {
            return mask;
        }
        self.status(host_tid).blocked
    }

    /// The thread that the kernel chooses for a signal to the process: the leader, or else the
    /// first thread that does not block the signal.
    pub(crate) fn chosen(&self, signal: i32) -> Option<i32> {
        let others = self
            .threads
            .keys()
            .copied()
            .filter(|host_tid| *host_tid != self.host_tid);
        std::iter::once(self.host_tid)
            .chain(others)
            .find(|host_tid| {
                self.threads.contains_key(host_tid) && self.blocked(*host_tid) & bit(signal) == 0
            })
    }

    /// Queues a signal for a thread or the process, and takes the thread that is to run its handler
    /// out of a forwarded call.
    pub(crate) fn queue(
        &mut self,
        target: Option<i32>,
        chosen: Option<i32>,
        signal: i32,
        info: RawSigInfo,
    ) -> Result<(), GuestError> {
        self.leaves_with_kernel(signal);
        if timer_of(&info).is_some() && self.would_be_dropped(target, signal) {
            self.tickets.count(&info);
        } else {
            let ticket = self.tickets.issue(signal, info);
            match pidfd::queue_signal(self.host_tid, target, signal, &ticket) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => {
                    return Err(GuestError::Os {
                        what: "Queueing a signal for the guest",
                        errno,
                    });
                }
            }
        }
        let Some(host_tid) = chosen else {
            return Ok(());
        };
        if self.blocked(host_tid) & bit(signal) == 0 {
            self.cancel(host_tid);
        }
        Ok(())
    }

    /// Whether the kernel would drop a signal, because one of its number waits where it would go.
    fn would_be_dropped(&self, target: Option<i32>, signal: i32) -> bool {
        let waiting = match target {
            _ if !waits_once(signal) => 0,
            Some(host_tid) => self.status(host_tid).pending,
            None => self.status(self.host_tid).pending_shared,
        };
        waiting & bit(signal) != 0
    }

    /// Asks home to interrupt a thread's call.
    pub(crate) fn cancel(&mut self, host_tid: i32) {
        let Some(thread) = self.threads.get_mut(&host_tid) else {
            return;
        };
        let tid = thread.tid;
        let Some(waiting) = &mut thread.waiting else {
            return;
        };
        let again = std::mem::replace(&mut waiting.cancelled, true);
        if matches!(waiting.kind, Kind::Forward(_)) && !again {
            let sequence = waiting.sequence;
            self.say(ToHome::Cancel { tid, sequence });
        }
    }

    /// Makes a stopped thread queue a signal for itself, or, if it is the leader, for the process.
    pub(crate) fn inject_signal(
        &mut self,
        stopped: Stopped,
        to_thread: bool,
        signal: i32,
        info: &RawSigInfo,
    ) -> Result<(Stopped, i64), GuestError> {
        self.leaves_with_kernel(signal);
        let host_tid = stopped.tid();
        let tid = self.threads.get(&host_tid).map_or(0, |thread| thread.tid);
        let mut arguments = self.runner.arguments();
        let address = arguments.add(info);
        self.runner.store(&arguments)?;
        let number = |id: i32| i64::from(id).cast_unsigned();
        let (pid, signal) = (number(self.pid), number(signal));
        let operation = if host_tid == self.host_tid && !to_thread {
            Syscall::new(libc::SYS_rt_sigqueueinfo, &[pid, signal, address])
        } else {
            let args = [pid, number(tid), signal, address];
            Syscall::new(libc::SYS_rt_tgsigqueueinfo, &args)
        };
        self.inject(stopped, &operation)
    }

    /// A handler interrupts a call that waits under a mask of its own (ppoll and similar calls).
    /// The thread makes the call `rt_sigsuspend` instead, with which the kernel does exactly what
    /// is needed with the mask. At the delivery the registers become those of the interrupted call
    /// again.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn interrupt_under_mask(
        &mut self,
        host_tid: i32,
        mask: u64,
    ) -> Result<(), GuestError> {
        let stopped = self.take_out(host_tid)?;
        let registers = stopped.registers()?;
        self.suspend_under_mask(stopped, registers, mask)
    }

    /// The same for a thread that was taken out of its call; `registers` are those behind the call.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn suspend_under_mask(
        &mut self,
        stopped: Stopped,
        registers: Registers,
        mask: u64,
    ) -> Result<(), GuestError> {
        let host_tid = stopped.tid();
        let mut arguments = self.runner.arguments();
        let address = arguments.add(&mask.to_le_bytes());
        self.runner.store(&arguments)?;
        let suspend = Syscall::new(libc::SYS_rt_sigsuspend, &[address, 8]);
        let at = registers.rip.wrapping_sub(2);
        let own = stopped.signal_mask()?;
        stopped.set_signal_mask(u64::MAX)?;
        stopped.set_registers(&step_registers(&registers, at, &suspend))?;
        let standing = self.await_entry(stopped.resume_to_syscall(0)?, own)?;
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.suspended = Some(registers);
        }
        if let Standing::AtEntry(stopped) | Standing::There(stopped) = standing {
            stopped.resume(0)?;
        }
        self.set_trace(host_tid, Trace::Running);
        Ok(())
    }

    /// A signal that ends [`Self::suspend_under_mask`] is about to be delivered: restores the registers of the call. If
    /// a handler runs, the call returns EINTR, otherwise it is made again. Of a signal that is dropped the kernel here
    /// decides which: a handler may follow.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn leave_suspension(
        &mut self,
        stopped: &Stopped,
        effect: Effect,
    ) -> Result<(), GuestError> {
        let thread = self.threads.get_mut(&stopped.tid());
        let Some(mut registers) = thread.and_then(|thread| thread.suspended.take()) else {
            return Ok(());
        };
        if matches!(effect, Effect::Caught | Effect::Nothing) {
            registers.rax = ERESTARTNOHAND.cast_unsigned();
        } else {
            registers.rax = registers.orig_rax;
            registers.rip = registers.rip.wrapping_sub(2);
            registers.orig_rax = u64::MAX;
        }
        Ok(stopped.set_registers(&registers)?)
    }
}
