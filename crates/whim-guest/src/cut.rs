//! What the registers of a stopped thread tell of the call in which it was stopped, and how it goes on.

use whim_image::freeze_calls::{EINTR, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTSYS};
use whim_model::{AWAIT_NUMBER, Registers};
use whim_sys::ptrace::{Stopped, TraceError};

/// Whether the thread stands behind a system call that did not end, or ended because of a stop.
pub(crate) fn was_cut(registers: &Registers) -> bool {
    let in_call = registers.orig_rax.cast_signed() >= 0;
    let result = registers.rax.cast_signed();
    in_call && ((ERESTART_RESTARTBLOCK..=ERESTARTSYS).contains(&result) || result == EINTR)
}

/// The call is made again from its beginning.
pub(crate) fn rewound(registers: &Registers) -> Registers {
    let result = registers.rax.cast_signed();
    let number = registers.orig_rax.cast_signed();
    let mut registers = *registers;
    if number >= 0 {
        let again = match result {
            ERESTARTNOHAND..=ERESTARTSYS => true,
            ERESTART_RESTARTBLOCK => starts_anew(number, registers.rsi, registers.r10),
            EINTR => number == libc::SYS_rt_sigtimedwait,
            _ => false,
        };
        if again {
            registers.rax = registers.orig_rax;
            registers.rip = registers.rip.wrapping_sub(2);
        } else if result == ERESTART_RESTARTBLOCK {
            // A wait for a futex may end for no reason.
            let futex = number == libc::SYS_futex;
            registers.rax = if futex { 0 } else { EINTR.cast_unsigned() };
        }
    }
    registers.orig_rax = u64::MAX;
    registers
}

/// Whether a call with a restart block may begin anew. A futex's relative timeout would be waited
/// for in full again; a wait for a futex may end for no reason, so it does.
fn starts_anew(number: i64, operation: u64, timeout: u64) -> bool {
    const COMMAND: u64 = 0x7f;
    const FUTEX_WAIT: u64 = 0;
    match number {
        libc::SYS_restart_syscall => false,
        libc::SYS_futex => operation & COMMAND != FUTEX_WAIT || timeout == 0,
        _ => true,
    }
}

/// Registers with which a thread that was merely stopped goes on: of a call that a stop ends with
/// EINTR, the kernel is told to begin it again unless a handler runs.
pub(crate) fn without_stop(registers: &Registers) -> Registers {
    let mut registers = *registers;
    if registers.orig_rax.cast_signed() == libc::SYS_rt_sigtimedwait
        && registers.rax.cast_signed() == EINTR
    {
        registers.rax = ERESTARTNOHAND.cast_unsigned();
    }
    registers
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

/// Leaves a stopped thread behind its call, with this result.
pub(crate) fn end_call(thread: &Stopped, result: i64) -> Result<(), TraceError> {
    let mut registers = thread.registers()?;
    registers.rax = result.cast_unsigned();
    registers.orig_rax = u64::MAX;
    thread.set_registers(&registers)
}
