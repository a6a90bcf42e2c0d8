//! What a program can see of the CPU: the layout of its extended state and its features.

use std::arch::x86_64::__cpuid_count;
use std::fmt::Write;

/// Leaf that describes the parts of the extended state (XSAVE area).
const LEAF_XSTATE: u32 = 0xd;

/// Vendor, and offset and size of every part of the extended state, as one line of text. Two
/// machines with different lines cannot exchange registers.
#[must_use]
pub fn register_layout() -> String {
    let vendor = __cpuid_count(0, 0);
    let mut text = format!("{:08x}{:08x}{:08x}", vendor.ebx, vendor.edx, vendor.ecx);
    if vendor.eax < LEAF_XSTATE {
        return text;
    }
    let enabled = __cpuid_count(LEAF_XSTATE, 0);
    let _ = write!(text, " {:08x}{:08x}", enabled.edx, enabled.eax);
    for part in 2..63 {
        let leaf = __cpuid_count(LEAF_XSTATE, part);
        if leaf.eax != 0 {
            let _ = write!(text, " {part}:{:x}+{:x}", leaf.ebx, leaf.eax);
        }
    }
    text
}

/// The feature leaves that user programs consult (1, 7, 0xd.1, 0x80000001), as text; what differs
/// from core to core of one machine (APIC ids, topology) is left out.
#[must_use]
pub fn features() -> String {
    let highest = __cpuid_count(0, 0).eax;
    let mut text = String::new();
    let basic = __cpuid_count(1, 0);
    // Bit 27 of ecx (OSXSAVE) is set by the kernel and belongs to what programs see; family, model
    // and stepping do not decide which instructions run.
    let _ = write!(text, "1:{:08x}{:08x}", basic.ecx, basic.edx);
    if highest >= 7 {
        for sub in 0..=__cpuid_count(7, 0).eax.min(2) {
            let leaf = __cpuid_count(7, sub);
            let _ = write!(
                text,
                " 7.{sub}:{:08x}{:08x}{:08x}",
                leaf.ebx, leaf.ecx, leaf.edx
            );
        }
    }
    if highest >= LEAF_XSTATE {
        let _ = write!(text, " d.1:{:08x}", __cpuid_count(LEAF_XSTATE, 1).eax);
    }
    if __cpuid_count(0x8000_0000, 0).eax >= 0x8000_0001 {
        let leaf = __cpuid_count(0x8000_0001, 0);
        let _ = write!(text, " e:{:08x}{:08x}", leaf.ecx, leaf.edx);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_the_same_on_every_look() {
        assert_eq!(register_layout(), register_layout());
        let seen: Vec<String> = (0..50)
            .map(|_| std::thread::spawn(features).join().expect("thread"))
            .collect();
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    }
}
