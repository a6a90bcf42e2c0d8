//! What is written down of a fault that ends the program on this host.
//!
//! It may be the program's own, and then it says what a core file would begin with. It may be ours: a page
//! that did not come, or came wrong. The program ends at home, where nothing of this is left.

use crate::tickets::word;
use whim_sys::procmap::{Entry, Maps};
use whim_sys::ptrace::{RawSigInfo, Stopped};

/// A sentence about a fault that the processor has reported, if the signal is one. Of the program's memory
/// nothing is in it but addresses. `blocked`: the thread's signals, as bits.
pub(crate) fn describe(
    stopped: &Stopped,
    signal: i32,
    info: &RawSigInfo,
    blocked: u64,
) -> Option<String> {
    let code = word(info, 8);
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

/// Whether the kernel sent it for what an instruction did: who else sends such a signal says so by a code
/// that is not positive.
fn is_fault(signal: i32, code: i32) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    faults.contains(&signal) && code > 0
}

/// `si_addr`: what was accessed, or which instruction it was.
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
        // Sent by kill and by tgkill; and one that is none.
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
