//! Threads in the middle of the kernel's own code in the program (vDSO).
//!
//! That code reads the clocks from pages of the kernel's, and these are arranged otherwise for a process that has
//! clocks of its own, as each guest has: where it then finds the kernel's time, a program at home has nothing (SIGBUS).
//! A thread that is taken elsewhere between two instructions of it may also add one host's distance from home to the
//! time that it has read of another. So it is let go up to the end of the function, instruction by instruction. All
//! these functions are short, and none waits.
//!
//! Where the kernels differ there is nothing to do: the guest has a copy of home's code then, whose functions may begin
//! anew at any point ([`whim_image::vdso`]).

use crate::capture::ACTION;
use crate::error::GuestError;
use crate::guest::Guest;
use std::sync::LazyLock;
use whim_image::freeze_calls::SYSCALL_INSTRUCTION;
use whim_image::rebuild::runner::{SIGTRAP_BIT, working_mask};
use whim_image::vdso::{self, Doing};
use whim_model::{Backing, Range, Syscall};
use whim_sys::process_vm;
use whim_sys::ptrace::{RawSigInfo, Stop, Stopped, info_word};

/// More instructions than any of these functions executes.
const STEPS_MAX: usize = 4000;
/// Signals that an instruction can cause.
pub(crate) const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
/// Of the processor's flags: a trap follows each instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// `si_code` of a SIGTRAP after one instruction.
const TRAP_TRACE: i32 = 2;

impl Guest {
    /// Lets a thread that computes run on to the end of the kernel's own code, if it is in the middle of that, and
    /// stops it where it stopped before. A signal that comes first is reported by the stop that is returned.
    ///
    /// # Errors
    /// The thread has ended; tracing failed.
    pub(crate) fn leave_kernel_code(&mut self, stopped: Stopped) -> Result<Stopped, GuestError> {
        let leaves: &[Doing] = if *RANDOM_IS_WITH_CLOCKS {
            &[Doing::Clock, Doing::Random]
        } else {
            &[Doing::Clock]
        };
        let Some(code) = self.stands_in_kernel_code(&stopped, leaves)? else {
            return Ok(stopped);
        };
        let (stopped, action) = if self.ignores_traps() {
            let (stopped, at) = self.read_trap_action(stopped)?;
            (stopped, Some(at))
        } else {
            (stopped, None)
        };
        let mut stopped = self.step_out(stopped, code)?;
        if let Some(at) = action {
            // The step has reset it.
            let args = [libc::SIGTRAP.unsigned_abs().into(), at, 0, 8];
            let operation = Syscall::new(libc::SYS_rt_sigaction, &args);
            (stopped, _) = self.inject(stopped, &operation)?;
        }
        if action.is_none() && !is_after_step(&stopped)? {
            return Ok(stopped);
        }
        self.stop_anew(stopped)
    }

    /// The same for a thread that is about to run a handler for the signal of which this is told: its frame must not
    /// point into the middle of that code. It stands at the delivery of a signal afterwards as before, and what is told
    /// of that is returned. A program that ignores SIGTRAP is left where it is: to restore that action would end the
    /// delivery.
    ///
    /// # Errors
    /// The thread has ended; tracing failed.
    pub(crate) fn leave_kernel_code_first(
        &mut self,
        stopped: Stopped,
        told: RawSigInfo,
    ) -> Result<(Stopped, RawSigInfo), GuestError> {
        if is_fault(&told) {
            // What the handler of a fault changes is to be found by the instruction that met it.
            return Ok((stopped, told));
        }
        match self.stands_in_kernel_code(&stopped, &[Doing::Clock])? {
            Some(code) if !self.ignores_traps() => {
                let stopped = self.step_out(stopped, code)?;
                let now = stopped.signal_info()?;
                if let Stop::Signal(other) = stopped.stop()
                    && now != told
                    && !is_after_step(&stopped)?
                    && !is_fault(&now)
                {
                    // Somebody has sent it just now.
                    self.keep(stopped.tid(), other, now);
                }
                Ok((stopped, now))
            }
            _ => Ok((stopped, told)),
        }
    }

    /// The kernel's own code, if it is this host's and the thread has to leave it.
    fn stands_in_kernel_code(
        &self,
        stopped: &Stopped,
        leaves: &[Doing],
    ) -> Result<Option<Range>, GuestError> {
        // Trap: a-clock-half-read
        if self.proxy.is_some() {
            return Ok(None);
        }
        let Some(code) = self.kernel_code() else {
            return Ok(None);
        };
        let registers = stopped.registers()?;
        if registers.eflags & TRAP_FLAG != 0 {
            // It has each of its instructions trapped itself.
            return Ok(None);
        }
        let doing = vdso::doing_of(self.host_tid, code, &registers);
        Ok(doing
            .is_some_and(|doing| leaves.contains(&doing))
            .then_some(code))
    }

    fn ignores_traps(&self) -> bool {
        self.status(self.host_tid).ignored & SIGTRAP_BIT != 0
    }

    fn kernel_code(&self) -> Option<Range> {
        let is_code =
            |backing: &Backing| matches!(backing, Backing::Kernel { name } if name == "[vdso]");
        let found = self.origin.kernel.iter().find(|m| is_code(&m.backing))?;
        Some(Range {
            start: found.start,
            end: found.end,
        })
    }

    /// Executes one instruction after the other. Signals wait meanwhile.
    fn step_out(&mut self, stopped: Stopped, code: Range) -> Result<Stopped, GuestError> {
        let mask = stopped.signal_mask()?;
        // A fault that is blocked would end the program, whatever handler it has.
        let faults = FAULTS.iter().fold(0, |all, fault| all | 1 << (fault - 1));
        stopped.set_signal_mask(working_mask() & !(faults & !mask))?;
        let mut stopped = stopped;
        for _ in 0..STEPS_MAX {
            let rip = stopped.registers()?.rip;
            if !code.contains(rip) || self.is_syscall(rip) {
                break;
            }
            let host_tid = stopped.tid();
            stopped.step()?;
            stopped = self.await_stop(host_tid)?;
            let goes_on = stopped.stop() == Stop::Interrupt || is_after_step(&stopped)?;
            if !goes_on {
                break;
            }
        }
        stopped.set_signal_mask(mask)?;
        Ok(stopped)
    }

    /// Whether the next instruction is a system call. Some functions make one where they cannot tell by themselves.
    fn is_syscall(&self, rip: u64) -> bool {
        let mut next = [0; SYSCALL_INSTRUCTION.len()];
        let read = process_vm::read(self.host_tid, rip, &mut next);
        read == Ok(next.len()) && next == SYSCALL_INSTRUCTION
    }

    /// Where the action of SIGTRAP can be read until the next call is made in the thread's name.
    fn read_trap_action(&mut self, stopped: Stopped) -> Result<(Stopped, u64), GuestError> {
        let mut arguments = self.runner.arguments();
        let at = arguments.add(&[0; ACTION]);
        self.runner.store(&arguments)?;
        let args = [libc::SIGTRAP.unsigned_abs().into(), 0, at, 8];
        let operation = Syscall::new(libc::SYS_rt_sigaction, &args);
        let (stopped, _) = self.inject(stopped, &operation)?;
        Ok((stopped, at))
    }
}

/// Whether a signal was caused by the instruction that it is told of at.
fn is_fault(told: &RawSigInfo) -> bool {
    FAULTS.contains(&info_word(told, 0)) && info_word(told, 8) > 0
}

/// Whether it has just executed its one instruction.
fn is_after_step(stopped: &Stopped) -> Result<bool, GuestError> {
    if stopped.stop() != Stop::Signal(libc::SIGTRAP) {
        return Ok(false);
    }
    Ok(info_word(&stopped.signal_info()?, 8) == TRAP_TRACE)
}

/// Whether the kernel's data for random bytes lies with that of the clocks (Linux 6.11 to 6.14).
static RANDOM_IS_WITH_CLOCKS: LazyLock<bool> = LazyLock::new(|| {
    let names = nix::sys::utsname::uname();
    names.is_ok_and(|names| names.release().to_str().is_some_and(is_with_clocks))
});

fn is_with_clocks(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    number() == Some(6) && number().is_some_and(|minor| (11..=14).contains(&minor))
}

#[cfg(test)]
mod tests {
    use super::is_with_clocks;

    #[test]
    fn kernels_are_known_by_their_releases() {
        for release in ["6.11.0", "6.12.57+deb13-amd64", "6.14"] {
            assert!(is_with_clocks(release), "{release}");
        }
        for release in [
            "6.1.12",
            "6.10.14",
            "6.15.0-rc1",
            "7.12.0",
            "5.12",
            "",
            "a.12",
        ] {
            assert!(!is_with_clocks(release), "{release}");
        }
    }
}
