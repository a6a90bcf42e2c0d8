//! What is logged about a fault that ends the program on this host.
//!
//! The fault may be the program's own. Then the log says what a core file would begin with. Or it
//! may be ours: a page that did not come, or came wrong. The program ends at home, where no trace
//! of the fault is left.

use whim_sys::procmap::{Entry, Maps};
use whim_sys::ptrace::{RawSigInfo, Stopped, info_word};

/// Describes, in a sentence, a fault that the processor has reported; `None` if the signal is no
/// such fault. Of the program's memory, the sentence contains nothing but addresses. `blocked`: the
/// signals that the thread blocks, as bits.
pub(crate) fn describe(
    stopped: &Stopped,
    signal: i32,
    info: &RawSigInfo,
    blocked: u64,
) -> Option<String> {
    let code = info_word(info, 8);
    if !is_fault(signal, code) {
        return None;
    }
    let maps = Maps::open(stopped.tid()).ok()?;
    let place = |address: u64| {
        let found = maps.covering_or_next(address).ok().flatten();
        format!("{address:#x} ({})", within(address, found.as_ref()))
    };
    let registers = stopped.registers().ok()?;
    Some(format!(
        "signal {signal}, code {code}, at {}; instruction at {}; stack at {}; blocked signals {blocked:#x}",
        place(address(info)),
        place(registers.rip),
        place(registers.rsp)
    ))
}

/// Whether the kernel sent the signal for what an instruction did. If the signal has another
/// sender, its code is not positive.
fn is_fault(signal: i32, code: i32) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    faults.contains(&signal) && code > 0
}

/// `si_addr`: the address that was accessed, or that of the instruction.
pub(crate) fn address(info: &RawSigInfo) -> u64 {
    let bytes = info.get(16..24).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

fn within(address: u64, next: Option<&Entry>) -> String {
    let Some(entry) = next.filter(|entry| entry.start <= address) else {
        return "not mapped".to_owned();
    };
    let may = |may: bool, letter| if may { letter } else { '-' };
    format!(
        "{}{}{}{}, {:#x} to {:#x}",
        may(entry.readable, 'r'),
        may(entry.writable, 'w'),
        may(entry.executable, 'x'),
        may(entry.shared, 's'),
        entry.start,
        entry.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_processor_reports_is_a_fault() {
        const SEGV_MAPERR: i32 = 1;
        const SI_KERNEL: i32 = 0x80;
        assert!(is_fault(libc::SIGSEGV, SEGV_MAPERR) && is_fault(libc::SIGSEGV, SI_KERNEL));
        // Two that were sent by kill and by tgkill, and a signal that never is a fault.
        assert!(!is_fault(libc::SIGSEGV, 0) && !is_fault(libc::SIGBUS, -6));
        assert!(!is_fault(libc::SIGTERM, SI_KERNEL));
    }

    #[test]
    fn an_address_is_in_a_mapping_or_in_none() {
        let heap = Entry {
            start: 0x1000,
            end: 0x3000,
            readable: true,
            writable: true,
            ..Entry::default()
        };
        assert_eq!(within(0x1000, Some(&heap)), "rw--, 0x1000 to 0x3000");
        assert_eq!(within(0xfff, Some(&heap)), "not mapped");
        assert_eq!(within(0xfff, None), "not mapped");
    }
}
