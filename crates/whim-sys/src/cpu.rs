//! What a program can see of the CPU: the layout of its extended state and its features.

use std::arch::x86_64::__cpuid_count;

/// Leaf that describes the parts of the extended state (XSAVE area).
const LEAF_XSTATE: u32 = 0xd;
/// Bit of register ecx in leaf 1: the kernel has switched XSAVE on.
const OSXSAVE: u32 = 1 << 27;

/// How this machine lays out a thread's registers in memory (XSAVE area, standard format). Two
/// machines that differ in this cannot exchange registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterLayout {
    /// Vendor of the CPU, twelve bytes such as "GenuineIntel".
    pub vendor: [u8; 12],
    /// Parts that the kernel has switched on (XCR0), one bit each; 0 without XSAVE.
    pub enabled: u64,
    /// Number, offset and size in bytes of each of those parts, from the third on.
    pub parts: Vec<(u32, u32, u32)>,
}

/// The layout on this machine.
#[must_use]
pub fn register_layout() -> RegisterLayout {
    let first = __cpuid_count(0, 0);
    let mut vendor = [0; 12];
    let words = [first.ebx, first.edx, first.ecx];
    for (place, word) in vendor.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let enabled = enabled_parts();
    let parts = (2..63).filter(|part| enabled & (1 << part) != 0);
    let parts = parts.map(|part| {
        let leaf = __cpuid_count(LEAF_XSTATE, part);
        (part, leaf.ebx, leaf.eax)
    });
    RegisterLayout {
        vendor,
        enabled,
        parts: parts.collect(),
    }
}

/// The part of the registers that a process may use only after it has asked for it
/// (`ARCH_REQ_XCOMP_PERM`): the tiles of AMX.
pub const TILES: u32 = 18;

/// Whether programs of this machine can ask for tiles.
#[must_use]
pub fn has_tiles() -> bool {
    enabled_parts() >> TILES & 1 == 1
}

/// Whether the kernel uses protection keys, with which memory can be executed and not read.
#[must_use]
pub fn has_protection_keys() -> bool {
    /// The register of the keys (PKRU).
    const KEYS: u32 = 9;
    enabled_parts() >> KEYS & 1 == 1
}

/// XCR0. Parts that the CPU could have besides do not matter, because their place in the area is
/// fixed.
fn enabled_parts() -> u64 {
    if __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return 0;
    }
    // JUSTIFICATION: no system call tells what the kernel has switched on.
    // SAFETY: OSXSAVE says that the instruction is there and that user programs may run it; it
    // only reads a register.
    unsafe { read_xcr0() }
}

#[target_feature(enable = "xsave")]
fn read_xcr0() -> u64 {
    // JUSTIFICATION: as above.
    // SAFETY: the caller has seen that XSAVE is switched on.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// One leaf of CPUID, as far as it tells which instructions user programs may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub leaf: u32,
    pub subleaf: u32,
    /// eax, ebx, ecx, edx.
    pub registers: [u32; 4],
}

/// Leaf and subleaf, and the bits that count in each register. Bits are left out if user programs
/// cannot use them (the kernel's own features, mitigations, which come and go with microcode, and
/// the kind of hypervisor), or if they differ from core to core (topology).
const SEEN: [(u32, u32, [u32; 4]); 7] = [
    (1, 0, [0, 0, 0x7ed8_3203, 0x0788_8911]),
    (7, 0, [0, 0xfdef_6b79, 0x3ec0_5ffb, 0x03d1_413c]),
    (7, 1, [0xb3a1_ffff, 0, 0, 0xfffb_dfff]),
    (LEAF_XSTATE, 0, [!0, 0, 0, !0]),
    (LEAF_XSTATE, 1, [!0, 0, 0, 0]),
    (0x8000_0001, 0, [0, 0, 0x2021_89e1, 0xea40_0800]),
    (0x8000_0008, 0, [0, 0x11, 0, 0]),
];

/// The feature leaves that user programs consult; those that this CPU does not have are left out.
#[must_use]
pub fn features() -> Vec<Leaf> {
    let exists = |leaf: u32, subleaf: u32| {
        let highest = __cpuid_count(leaf & 0x8000_0000, 0).eax;
        // Leaf 7 tells in its first subleaf how many it has; 0xd has two at least.
        leaf <= highest && (leaf != 7 || subleaf <= __cpuid_count(7, 0).eax)
    };
    let leaves = SEEN.iter().filter(|(leaf, sub, _)| exists(*leaf, *sub));
    let leaves = leaves.map(|&(leaf, subleaf, seen)| {
        let found = __cpuid_count(leaf, subleaf);
        let found = [found.eax, found.ebx, found.ecx, found.edx];
        Leaf {
            leaf,
            subleaf,
            registers: std::array::from_fn(|index| found[index] & seen[index]),
        }
    });
    leaves.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_the_same_on_every_look() {
        assert_eq!(register_layout(), register_layout());
        let seen: Vec<Vec<Leaf>> = (0..50)
            .map(|_| std::thread::spawn(features).join().expect("thread"))
            .collect();
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    }

    #[test]
    fn every_x86_64_cpu_has_sse2_and_keeps_its_registers_behind_the_legacy_area() {
        let leaves = features();
        let first = leaves.iter().find(|leaf| leaf.leaf == 1).expect("leaf 1");
        assert_ne!(first.registers[3] & 1 << 26, 0, "{leaves:x?}");
        let layout = register_layout();
        assert!(layout.vendor.iter().all(u8::is_ascii), "{layout:x?}");
        assert!(
            layout
                .parts
                .iter()
                .all(|&(_, offset, size)| offset >= 576 && size > 0),
            "{layout:x?}"
        );
    }
}
