//! Sizes of memory, as people write them.

/// The least that anything can be done with.
const LEAST: u64 = 16 << 20;

/// A number of bytes: `800M`, `4G`, `1T`, or with `K` or nothing behind it; K is 1024.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes >= LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("512M"), Some(512 << 20));
        assert_eq!(bytes("4g"), Some(4 << 30));
        assert_eq!(bytes("16777216"), Some(16 << 20));
        for wrong in ["", "M", "1M", "4X", "-4G", "4 G", "99999999999T", "1.5G"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
