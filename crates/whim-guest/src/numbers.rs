//! Numbers as the kernel reads them.

/// The low half of an argument: the kernel ignores the high half of an `int`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the truncation is what the kernel does"
)]
pub(crate) fn low(value: u64) -> i32 {
    (value as u32).cast_signed()
}
