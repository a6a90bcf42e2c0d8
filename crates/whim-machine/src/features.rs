//! Names of CPU features and of parts of the register state.

/// One feature: where CPUID reports it, and its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub leaf: u32,
    pub subleaf: u32,
    /// Index into eax, ebx, ecx, edx.
    pub register: usize,
    pub bit: u32,
    /// As in /proc/cpuinfo.
    pub name: &'static str,
    /// Its name in the tunable `glibc.cpu.hwcaps`, if glibc chooses code by it. The names were
    /// found by asking the loader (`ld.so --list-diagnostics`) of 2.36 and 2.41 what each word
    /// switches off; it ignores words that it does not know.
    pub glibc: Option<&'static str>,
}

const EAX: usize = 0;
const EBX: usize = 1;
const ECX: usize = 2;
const EDX: usize = 3;

const fn name(place: (u32, u32, usize), bit: u32, name: &'static str) -> Name {
    Name {
        leaf: place.0,
        subleaf: place.1,
        register: place.2,
        bit,
        name,
        glibc: None,
    }
}

/// A feature that glibc knows, too.
const fn both(
    place: (u32, u32, usize),
    bit: u32,
    linux: &'static str,
    glibc: &'static str,
) -> Name {
    Name {
        glibc: Some(glibc),
        ..name(place, bit, linux)
    }
}

const BASIC: (u32, u32, usize) = (1, 0, ECX);
const MORE_B: (u32, u32, usize) = (7, 0, EBX);
const MORE_C: (u32, u32, usize) = (7, 0, ECX);
const MORE_D: (u32, u32, usize) = (7, 0, EDX);
const NEW_A: (u32, u32, usize) = (7, 1, EAX);
const NEW_D: (u32, u32, usize) = (7, 1, EDX);
const XSTATE: (u32, u32, usize) = (0xd, 1, EAX);
const EXTENDED_C: (u32, u32, usize) = (0x8000_0001, 0, ECX);
const EXTENDED_D: (u32, u32, usize) = (0x8000_0001, 0, EDX);
const EXTENDED_B: (u32, u32, usize) = (0x8000_0008, 0, EBX);

/// The features that have a name.
pub const NAMES: &[Name] = &[
    name(BASIC, 0, "sse3"),
    name(BASIC, 1, "pclmulqdq"),
    both(BASIC, 9, "ssse3", "SSSE3"),
    both(BASIC, 12, "fma", "FMA"),
    name(BASIC, 13, "cx16"),
    both(BASIC, 19, "sse4_1", "SSE4_1"),
    both(BASIC, 20, "sse4_2", "SSE4_2"),
    both(BASIC, 22, "movbe", "MOVBE"),
    both(BASIC, 23, "popcnt", "POPCNT"),
    name(BASIC, 25, "aes"),
    both(BASIC, 26, "xsave", "XSAVE"),
    name(BASIC, 27, "osxsave"),
    both(BASIC, 28, "avx", "AVX"),
    name(BASIC, 29, "f16c"),
    name(BASIC, 30, "rdrand"),
    name(MORE_B, 0, "fsgsbase"),
    both(MORE_B, 3, "bmi1", "BMI1"),
    name(MORE_B, 4, "hle"),
    both(MORE_B, 5, "avx2", "AVX2"),
    both(MORE_B, 8, "bmi2", "BMI2"),
    both(MORE_B, 9, "erms", "ERMS"),
    both(MORE_B, 11, "rtm", "RTM"),
    name(MORE_B, 14, "mpx"),
    both(MORE_B, 16, "avx512f", "AVX512F"),
    both(MORE_B, 17, "avx512dq", "AVX512DQ"),
    name(MORE_B, 18, "rdseed"),
    name(MORE_B, 19, "adx"),
    name(MORE_B, 21, "avx512ifma"),
    name(MORE_B, 23, "clflushopt"),
    name(MORE_B, 24, "clwb"),
    both(MORE_B, 26, "avx512pf", "AVX512PF"),
    both(MORE_B, 27, "avx512er", "AVX512ER"),
    both(MORE_B, 28, "avx512cd", "AVX512CD"),
    name(MORE_B, 29, "sha_ni"),
    both(MORE_B, 30, "avx512bw", "AVX512BW"),
    both(MORE_B, 31, "avx512vl", "AVX512VL"),
    name(MORE_C, 1, "avx512vbmi"),
    name(MORE_C, 3, "pku"),
    name(MORE_C, 4, "ospke"),
    name(MORE_C, 5, "waitpkg"),
    name(MORE_C, 6, "avx512_vbmi2"),
    name(MORE_C, 7, "shstk"),
    name(MORE_C, 8, "gfni"),
    name(MORE_C, 9, "vaes"),
    name(MORE_C, 10, "vpclmulqdq"),
    name(MORE_C, 11, "avx512_vnni"),
    name(MORE_C, 12, "avx512_bitalg"),
    name(MORE_C, 14, "avx512_vpopcntdq"),
    name(MORE_C, 22, "rdpid"),
    name(MORE_C, 25, "cldemote"),
    name(MORE_C, 27, "movdiri"),
    name(MORE_C, 28, "movdir64b"),
    name(MORE_C, 29, "enqcmd"),
    name(MORE_D, 4, "fsrm"),
    name(MORE_D, 8, "avx512_vp2intersect"),
    name(MORE_D, 14, "serialize"),
    name(MORE_D, 16, "tsxldtrk"),
    name(MORE_D, 20, "ibt"),
    name(MORE_D, 22, "amx_bf16"),
    name(MORE_D, 23, "avx512_fp16"),
    name(MORE_D, 24, "amx_tile"),
    name(MORE_D, 25, "amx_int8"),
    name(NEW_A, 4, "avx_vnni"),
    name(NEW_A, 5, "avx512_bf16"),
    name(NEW_A, 7, "cmpccxadd"),
    name(NEW_A, 23, "avx_ifma"),
    name(NEW_D, 4, "avx_vnni_int8"),
    name(NEW_D, 5, "avx_ne_convert"),
    name(NEW_D, 19, "avx10"),
    name(NEW_D, 21, "apx"),
    name(XSTATE, 0, "xsaveopt"),
    both(XSTATE, 1, "xsavec", "XSAVEC"),
    name(XSTATE, 2, "xgetbv1"),
    name(XSTATE, 3, "xsaves"),
    name(XSTATE, 4, "xfd"),
    name(EXTENDED_C, 0, "lahf_lm"),
    both(EXTENDED_C, 5, "abm", "LZCNT"),
    name(EXTENDED_C, 6, "sse4a"),
    name(EXTENDED_C, 7, "misalignsse"),
    name(EXTENDED_C, 8, "3dnowprefetch"),
    name(EXTENDED_C, 11, "xop"),
    both(EXTENDED_C, 16, "fma4", "FMA4"),
    name(EXTENDED_C, 21, "tbm"),
    name(EXTENDED_C, 29, "mwaitx"),
    name(EXTENDED_D, 27, "rdtscp"),
    name(EXTENDED_B, 0, "clzero"),
    name(EXTENDED_B, 4, "rdpru"),
];

/// Name of a part of the register state (XSAVE), by its number.
#[must_use]
pub fn part(number: u32) -> &'static str {
    match number {
        0 => "x87",
        1 => "SSE",
        2 => "AVX",
        3 | 4 => "MPX",
        5..=7 => "AVX-512",
        9 => "protection keys",
        11 | 12 => "shadow stacks",
        17 | 18 => "AMX",
        19 => "APX",
        _ => "parts without a common name",
    }
}
