//! Waits with a relative timeout that a move cuts in two.
//!
//! When such a wait is cut off, we find out what is left of its time, which travels with the
//! thread. On the next host the thread makes the call again with its whole timeout, because that
//! stands in the program's own memory. So we keep the time there: we follow the thread through the
//! call, and when the time is over we end the call as the kernel would have ended it.

use crate::clocks::Ahead;
use crate::cut::{Timed, end_call, was_cut};
use crate::error::GuestError;
use crate::guest::{Guest, Thread, Trace};
use std::time::Duration;
use whim_image::freeze_calls::{
    self, EINTR, ERESTART_RESTARTBLOCK, RESTART_SYSCALL, relative_timeout, restarts,
};
use whim_image::freeze_observe::{Observation, elapsed_ns, monotonic_ns, observe_and_stop};
use whim_model::{Activity, ProcessImage, Registers};
use whim_sys::process_vm;
use whim_sys::ptrace::{Phase, Running, Stopped};

/// Time between two tries to queue a signal.
const QUEUED_AGAIN: Duration = Duration::from_millis(5);

/// A thread that sleeps in such a call, observed before it is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper {
    host_tid: i32,
    number: u64,
    before: Observation,
}

impl Guest {
    /// Takes up the waits that were cut off where the guest comes from.
    pub(crate) fn take_up_waits(&mut self, image: &ProcessImage, ahead: Ahead) {
        for old in &image.threads {
            let Some(deadline) = old
                .deadline_ns
                .filter(|_| old.activity == Activity::Computing)
            else {
                continue;
            };
            let thread = self.threads.values_mut().find(|one| one.tid == old.tid);
            if let Some(thread) = thread {
                thread.timed = Some(Timed {
                    deadline_ns: deadline.saturating_add_signed(-ahead.monotonic_ns),
                    number: None,
                    in_call: false,
                    expired: false,
                });
            }
        }
    }

    /// A thread that is followed enters its call, or leaves it.
    pub(crate) fn in_a_wait(&mut self, stopped: Stopped) -> Result<(), GuestError> {
        let host_tid = stopped.tid();
        let leaves = stopped.phase()? == Phase::Exit;
        let handler = leaves && self.has_deliverable(host_tid, None);
        let thread = self.threads.get_mut(&host_tid);
        let Some(timed) = thread.and_then(|thread| thread.timed.as_mut()) else {
            stopped.resume(0)?;
            return Ok(());
        };
        timed.in_call = !leaves;
        let registers = stopped.registers()?;
        if !leaves {
            let expired = timed.expired;
            timed.number.get_or_insert(registers.orig_rax);
            stopped.resume_to_syscall(0)?;
            if expired {
                Running::assume(host_tid).interrupt()?;
            }
            return Ok(());
        }
        let again = restarts(registers.rax);
        let cut = again || registers.rax.cast_signed() == EINTR;
        if cut && timed.expired && !handler {
            end_call(
                &stopped,
                whim_calls::result_when_over(timed.number.unwrap_or_default()),
            )?;
        } else if again && !handler {
            // A signal that does nothing: the kernel goes on with the call.
            stopped.resume_to_syscall(0)?;
            return Ok(());
        }
        if let Some(thread) = self.threads.get_mut(&host_tid) {
            thread.timed = None;
        }
        stopped.resume(0)?;
        Ok(())
    }

    /// Ends the waits whose time is over.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn end_waits(&mut self) -> Result<(), GuestError> {
        let now = monotonic_ns();
        for thread in self.threads.values_mut() {
            let Some(timed) = &mut thread.timed else {
                continue;
            };
            if timed.expired || timed.deadline_ns > now {
                continue;
            }
            timed.expired = true;
            if timed.in_call && matches!(thread.trace, Trace::Running) {
                Running::assume(thread.host_tid).interrupt()?;
            }
        }
        Ok(())
    }

    /// Time until the next wait ends, or a signal that could not be queued is tried again.
    #[must_use]
    pub(crate) fn until_end_of_wait(&self) -> Duration {
        let timed = self.threads.values().filter_map(|thread| thread.timed);
        let next = timed
            .filter(|timed| !timed.expired)
            .map(|timed| timed.deadline_ns)
            .min();
        let left = next.map_or(Duration::MAX, |next| {
            Duration::from_nanos(next.saturating_sub(monotonic_ns()))
        });
        if self.unqueued.is_empty() {
            left
        } else {
            left.min(QUEUED_AGAIN)
        }
    }

    /// Interrupts all threads; returns those that sleep in a call with a timeout.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn interrupt_sleepers(&mut self) -> Result<Vec<Sleeper>, GuestError> {
        let known = |number| {
            i64::try_from(number).is_ok_and(|number| {
                matches!(
                    number,
                    libc::SYS_restart_syscall
                        | libc::SYS_nanosleep
                        | libc::SYS_clock_nanosleep
                        | libc::SYS_futex
                        | libc::SYS_rt_sigtimedwait
                )
            })
        };
        let process = self.host_tid;
        let mut sleepers = Vec::new();
        for thread in self.threads.values_mut() {
            let host_tid = thread.host_tid;
            let (seen, interrupted) =
                observe_and_stop(process, host_tid, known, || thread.interrupt());
            interrupted?;
            sleepers.extend(seen.map(|(number, before)| Sleeper {
                host_tid,
                number,
                before,
            }));
        }
        Ok(sleepers)
    }

    /// Notes until when the threads wait that are stopped in such a call now.
    ///
    /// # Errors
    /// Tracing failed.
    pub(crate) fn note_deadlines(&mut self, sleepers: &[Sleeper]) -> Result<(), GuestError> {
        let process = self.host_tid;
        for thread in self.threads.values_mut() {
            thread.deadline_ns = None;
            let Trace::Stopped(stopped) = &thread.trace else {
                continue;
            };
            let mut registers = stopped.registers()?;
            if let Some(timed) = thread.timed.filter(|timed| timed.is_at(&registers)) {
                // The kernel's own timeout for this call began on this host, so it does not count.
                thread.deadline_ns = Some(timed.deadline_ns);
                continue;
            }
            if thread.awaits || !was_cut(&registers) {
                continue;
            }
            // A thread that was not asleep yet has slept for no time that counts.
            let before = sleepers
                .iter()
                .find(|one| one.host_tid == thread.host_tid && one.number == registers.orig_rax)
                .map_or_else(Observation::default, |one| one.before);
            let continued = registers.orig_rax == RESTART_SYSCALL;
            registers.orig_rax = thread.true_number(process, &registers);
            if continued && whim_calls::ends_for_nothing(registers.orig_rax) {
                // It has slept before, and nobody knows for how long.
                continue;
            }
            let elapsed = || elapsed_ns(process, thread.host_tid, &before);
            let rest = rest_ns(process, &registers, elapsed);
            thread.deadline_ns = rest.map(|rest| monotonic_ns() + rest);
        }
        Ok(())
    }
}

/// What is left of the call's time.
fn rest_ns(process: i32, registers: &Registers, elapsed: impl FnOnce() -> u64) -> Option<u64> {
    let args = registers.arguments();
    let (_, total) = relative_timeout(process, registers.orig_rax, &args)?;
    let told = whim_calls::rest_of_time(registers.orig_rax).map_or(0, |index| args[index]);
    if told == 0 {
        return Some(total.saturating_sub(elapsed()));
    }
    // The kernel has written the rest there, often to the same place from which it read the
    // timeout.
    let mut bytes = [0; 16];
    process_vm::read_exact(process, told, &mut bytes).ok()?;
    let (seconds, rest) = bytes.split_at(8);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    Some(
        word(seconds)?
            .saturating_mul(1_000_000_000)
            .saturating_add(word(rest)?),
    )
}

impl Thread {
    /// Remembers the call with which a stopped thread goes on. The kernel does that by `restart_syscall`, and if it
    /// is stopped once more the number of its call is not to be seen.
    pub(crate) fn note_restart(&mut self, registers: &Registers) {
        if registers.rax.cast_signed() == ERESTART_RESTARTBLOCK
            && registers.orig_rax != RESTART_SYSCALL
        {
            self.restarted = Some((registers.rip, registers.orig_rax));
        }
    }

    /// The number of the call behind which the thread stands.
    pub(crate) fn true_number(&self, process: i32, registers: &Registers) -> u64 {
        match self.restarted {
            Some((rip, number))
                if registers.orig_rax == RESTART_SYSCALL && registers.rip == rip =>
            {
                number
            }
            _ => freeze_calls::true_number(process, registers),
        }
    }
}
