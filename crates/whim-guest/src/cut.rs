//! What the registers of a stopped thread say about the call in which it was stopped, and with
//! which registers the thread goes on.

use whim_calls::Time;
use whim_image::freeze_calls::{
    EINTR, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTSYS, RESTART_SYSCALL,
};
use whim_model::{AWAIT_NUMBER, Activity, Registers, ThreadImage};
use whim_sys::ptrace::{Stopped, TraceError};

/// Where a thread stands that is let go.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Where it was.
    There(Stopped),
    /// At the entry of the call in which it was.
    AtEntry(Stopped),
    /// On its way there, with all signals blocked.
    OnItsWay,
}

/// A wait that a thread makes again, for what was left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// By this host's CLOCK_MONOTONIC, in nanoseconds.
    pub deadline_ns: u64,
    /// Number of the call, once it has been entered.
    pub number: Option<u64>,
    pub in_call: bool,
    pub expired: bool,
}

impl Timed {
    /// Whether the thread is in its call, or about to enter it for the first time.
    pub(crate) fn is_at(&self, registers: &Registers) -> bool {
        self.number
            .is_none_or(|number| [number, RESTART_SYSCALL].contains(&registers.orig_rax))
    }
}

/// Whether the thread has left a system call that did not end, or that ended because of a stop.
pub(crate) fn was_cut(registers: &Registers) -> bool {
    let in_call = registers.orig_rax.cast_signed() >= 0;
    let result = registers.rax.cast_signed();
    in_call && ((ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&result) || result == EINTR)
}

/// Registers with which the thread makes its call again from the beginning, if the call may be
/// repeated.
pub(crate) fn rewound(registers: &Registers) -> Registers {
    let result = registers.rax.cast_signed();
    let number = registers.orig_rax.cast_signed();
    let mut registers = *registers;
    if number >= 0 {
        let again = match result {
            ERESTARTNOHAND..=ERESTARTSYS => true,
            ERESTART_RESTARTBLOCK => starts_anew(&registers),
            EINTR => number == libc::SYS_rt_sigtimedwait,
            _ => false,
        };
        if again {
            registers.rax = registers.orig_rax;
            registers.rip = registers.rip.wrapping_sub(2);
        } else if result == ERESTART_RESTARTBLOCK {
            let nothing = whim_calls::ends_for_nothing(registers.orig_rax);
            registers.rax = if nothing { 0 } else { EINTR.cast_unsigned() };
        }
    }
    registers.orig_rax = u64::MAX;
    registers
}

/// Whether a call with a restart block may begin anew. One that may end for no reason does so instead, if it would
/// wait for the whole of a relative time again.
fn starts_anew(registers: &Registers) -> bool {
    let (number, args) = (registers.orig_rax, registers.arguments());
    let is_timed = match whim_calls::relative_time(number, &args) {
        Some(Time::Timespec(index)) => args[index] != 0,
        Some(Time::Milliseconds(_)) => true,
        None => false,
    };
    number != RESTART_SYSCALL && !(is_timed && whim_calls::ends_for_nothing(number))
}

/// Registers with which a thread that was merely stopped goes on. If a stop has ended the thread's
/// call with EINTR, they tell the kernel to begin the call again unless a handler runs.
pub(crate) fn without_stop(registers: &Registers) -> Registers {
    let mut registers = *registers;
    if registers.orig_rax.cast_signed() == libc::SYS_rt_sigtimedwait
        && registers.rax.cast_signed() == EINTR
    {
        registers.rax = ERESTARTNOHAND.cast_unsigned();
    }
    registers
}

/// Whether the kernel is about to make a call again that waits for signals.
pub(crate) fn is_made_again(registers: &Registers) -> bool {
    (ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&registers.rax.cast_signed())
        && whim_calls::waits_for_signals(registers.orig_rax)
}

/// Whether the thread comes here right before a call that waits for signals.
pub(crate) fn enters(image: &ThreadImage) -> bool {
    let registers = &image.registers;
    image.activity == Activity::Computing
        && registers.orig_rax == registers.rax
        && whim_calls::waits_for_signals(registers.rax)
}

/// Registers of a thread that asks for the result of its call in flight.
pub(crate) fn asking(registers: &Registers) -> Registers {
    Registers {
        rip: registers.rip.wrapping_sub(2),
        rax: AWAIT_NUMBER,
        orig_rax: u64::MAX,
        ..*registers
    }
}

/// Ends the call of a stopped thread with this result.
pub(crate) fn end_call(thread: &Stopped, result: i64) -> Result<(), TraceError> {
    let mut registers = thread.registers()?;
    registers.rax = result.cast_unsigned();
    registers.orig_rax = u64::MAX;
    thread.set_registers(&registers)
}
