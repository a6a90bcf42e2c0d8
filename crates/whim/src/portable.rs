//! `whim run --portable`: the environment by which the C library does without some CPU features.

use std::ffi::CString;

/// What a portable program's user has to know.
pub(crate) const NOT_COVERED: &str = "--portable limits the system's C library alone. Programs that read CPUID \
themselves (some libraries for mathematics, cryptography and video do), and those that are linked \
statically or use another C library, are not covered";

/// The variable of the C library's tunables, as it begins a word of the environment.
const VARIABLE: &[u8] = b"GLIBC_TUNABLES=";
const TUNABLE: &[u8] = b"glibc.cpu.hwcaps";

/// The environment as it is, but for the features of these names.
#[must_use]
pub(crate) fn environment(without: &[String]) -> Vec<CString> {
    let mut words = whim_sys::startup::environment();
    if !without.is_empty() {
        let place = words
            .iter()
            .position(|word| word.as_bytes().starts_with(VARIABLE));
        let before = place.map(|place| words.remove(place));
        let before = before
            .as_ref()
            .map_or(&b""[..], |word| &word.as_bytes()[VARIABLE.len()..]);
        let word = [VARIABLE, &tunables(before, without)].concat();
        words.extend(CString::new(word));
    }
    words
}

/// The tunables that were there, with these features switched off besides. glibc takes the last of
/// several values of one tunable alone, so all of them become one.
fn tunables(before: &[u8], without: &[String]) -> Vec<u8> {
    let mut others: Vec<&[u8]> = Vec::new();
    let mut words: Vec<Vec<u8>> = Vec::new();
    for tunable in before.split(|byte| *byte == b':') {
        let value = tunable.strip_prefix(TUNABLE);
        match value.and_then(|rest| rest.strip_prefix(b"=")) {
            Some(value) => words.push(value.to_vec()),
            None if tunable.is_empty() => {}
            None => others.push(tunable),
        }
    }
    words.extend(without.iter().map(|word| format!("-{word}").into_bytes()));
    words.retain(|word| !word.is_empty());
    let hwcaps = [TUNABLE, b"=", &words.join(&b","[..])].concat();
    others.push(&hwcaps);
    others.join(&b":"[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_set_stays() {
        let without = ["AVX2".to_string(), "FMA".to_string()];
        for (before, after) in [
            ("", "glibc.cpu.hwcaps=-AVX2,-FMA"),
            (
                "glibc.malloc.check=3",
                "glibc.malloc.check=3:glibc.cpu.hwcaps=-AVX2,-FMA",
            ),
            (
                "glibc.cpu.hwcaps=-ERMS:glibc.malloc.check=3",
                "glibc.malloc.check=3:glibc.cpu.hwcaps=-ERMS,-AVX2,-FMA",
            ),
            (
                "glibc.cpu.hwcaps_mask=1:glibc.cpu.hwcaps=",
                "glibc.cpu.hwcaps_mask=1:glibc.cpu.hwcaps=-AVX2,-FMA",
            ),
        ] {
            assert_eq!(tunables(before.as_bytes(), &without), after.as_bytes());
        }
    }
}
