//! The way back into calls that wait under a signal mask of their own.
//!
//! A thread that was stopped in such a call goes through the kernel's delivery of signals before it
//! is in its call again, and the kernel puts its ordinary mask back before that. There it would
//! receive what its call keeps away: a signal that waits and is to come after the call would come
//! first, or end the program. If one waits, the thread goes to the entry of its call with all
//! signals blocked, and gets its mask back there. What comes next is the call's own affair.
//!
//! If the tracer dies in these microseconds, the thread keeps all signals blocked. So this is
//! done only where a signal waits that would come too early.

use crate::freeze::{FreezeError, Frozen};
use crate::freeze_calls::SYSCALL_INSTRUCTION;
use crate::freeze_groups::Awaited;
use crate::freeze_observe::Status;
use whim_sys::ptrace::{Phase, Stop, TraceError, Waited};

/// Signals that do nothing by default.
const WITHOUT_EFFECT: [i32; 4] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
/// Signals that stop a process by default.
const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Whether a signal ends a process that neither handles nor ignores it (signal(7)).
#[must_use]
pub fn ends_by_default(signal: i32) -> bool {
    !WITHOUT_EFFECT.contains(&signal) && !STOPS.contains(&signal)
}

/// The signals that the process ignores; they would end some calls if they waited at the entry.
fn without_effect(status: &Status) -> u64 {
    let default = WITHOUT_EFFECT
        .iter()
        .fold(0, |set, signal| set | 1u64 << (signal - 1));
    status.ignored | (default & !status.caught)
}

impl Frozen {
    /// Brings a thread to the entry of its call, if a signal waits that would come before it.
    pub(crate) fn back_in_its_call(&mut self, index: usize) -> Result<(), FreezeError> {
        if self.threads[index].stopped.is_none() || !self.makes_such_a_call(index) {
            return Ok(());
        }
        let mask = self.threads[index].mask()?;
        let Ok(status) = Status::read(self.pid, self.threads[index].tid) else {
            return Err(TraceError::Died.into());
        };
        let nothing = without_effect(&status);
        if status.all_pending() & !mask & !nothing == 0 {
            return Ok(());
        }
        let stopped = self.threads[index].take()?;
        // Trap: the-mask-of-a-wait-is-lost-at-home
        stopped.set_signal_mask(mask | !nothing)?;
        let mut running = stopped.resume_to_syscall(0)?;
        loop {
            let stopped = match self.await_event(running)? {
                Awaited::Event(Waited::Stopped(stopped)) => stopped,
                Awaited::Event(_) => return Err(TraceError::Died.into()),
                Awaited::Frozen(running, _) => {
                    // It goes on when it is thawed, from where it is.
                    self.recall(index, running)?;
                    break;
                }
            };
            running = match stopped.stop() {
                Stop::SyscallStop if stopped.phase()? == Phase::Entry => {
                    self.threads[index].stopped = Some(stopped);
                    break;
                }
                Stop::Group(_) => {
                    self.threads[index].stopped = Some(stopped);
                    break;
                }
                Stop::Signal(signal) => stopped.resume_to_syscall(signal)?,
                _ => stopped.resume_to_syscall(0)?,
            };
        }
        match &self.threads[index].stopped {
            Some(stopped) => Ok(stopped.set_signal_mask(mask)?),
            None => Ok(()),
        }
    }

    /// Whether the first thing that the thread does is such a call: the kernel makes it again, or
    /// the thread stands right before it.
    fn makes_such_a_call(&self, index: usize) -> bool {
        let thread = &self.threads[index];
        let registers = &thread.original;
        let number = match thread.call() {
            Some(call) if thread.restartable() => call.syscall.number,
            _ => {
                let mut code = [0; 2];
                let read = self.memory.read_exact(registers.rip, &mut code);
                if registers.orig_rax != u64::MAX || read.is_err() || code != SYSCALL_INSTRUCTION {
                    return false;
                }
                registers.rax
            }
        };
        whim_calls::has_signals_of_its_own(number, &registers.arguments())
    }
}
