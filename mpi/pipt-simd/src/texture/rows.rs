//! Numbers of a row of windows.

use std::ops::Add;

use super::aligned::Aligned;

/// Windows that are finished at a time: their numbers stay near the processor from the sums to the outputs.
pub(super) const PART: usize = 256;

/// A number of each of them.
pub(super) type Part<N> = [N; PART];

/// What exact sums are finished in: floats, in which they are integers below 2^53, or integers of half the
/// size where these are enough.
pub(super) trait Number: Copy + PartialOrd + Add<Output = Self> {
    fn of(value: u32) -> Self;
    /// Of a sum that is known to fit.
    fn of_wide(value: u64) -> Self;
    /// Of what was made of one that counts pairs.
    fn to_count(self) -> usize;
}

impl Number for f64 {
    #[inline(always)]
    fn of(value: u32) -> Self {
        Self::from(value)
    }

    #[inline(always)]
    #[allow(
        clippy::cast_precision_loss,
        reason = "a plan lets sums only be below 2^53"
    )]
    fn of_wide(value: u64) -> Self {
        value as Self
    }

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of pairs"
    )]
    fn to_count(self) -> usize {
        self as usize
    }
}

impl Number for u32 {
    #[inline(always)]
    fn of(value: u32) -> Self {
        value
    }

    #[inline(always)]
    fn of_wide(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    #[inline(always)]
    fn to_count(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// So many rows of so many numbers, in parts, of which the last one may be longer than the row.
pub(super) struct Rows<N> {
    width: usize,
    parts: usize,
    values: Aligned<N>,
}

impl<N: Number> Rows<N> {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        let parts = width.div_ceil(PART);
        Self {
            width,
            parts,
            values: Aligned::new(N::of(0), rows * parts * PART),
        }
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub(super) fn row_mut(&mut self, slot: usize) -> &mut [N] {
        let begin = slot * self.parts * PART;
        &mut self.values[begin..begin + self.width]
    }

    #[inline(always)]
    pub(super) fn part(&self, slot: usize, number: usize) -> &Part<N> {
        &self.values.as_chunks().0[slot * self.parts + number]
    }
}

/// Memory of so many rows of numbers of any kind.
pub(super) fn bytes(rows: usize, width: usize) -> usize {
    rows * width.next_multiple_of(PART) * size_of::<f64>()
}
