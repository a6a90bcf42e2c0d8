//! Which of the ordered values of a window are kept, for each number of valid ones.

use super::{Even, Operation, RankError, Trim};

/// Of `count` valid values, in their order, the mean of those from the first to the last number is the
/// result: every operation is of this kind.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// By the number of valid values; that of 0 means nothing.
    ranks: Box<[(u32, u32)]>,
}

/// An end of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Smallest,
    Largest,
}

impl Kept {
    pub(super) fn new(operation: Operation, pixels: u32) -> Result<Self, RankError> {
        match operation {
            Operation::Rank(rank) if rank >= pixels => {
                return Err(RankError::RankTooLarge { rank, pixels });
            }
            Operation::TrimmedMean(Trim::Count(count)) if count > (pixels - 1) / 2 => {
                return Err(RankError::TrimCount { count, pixels });
            }
            Operation::TrimmedMean(Trim::Fraction(fraction)) if !(0.0..0.5).contains(&fraction) => {
                return Err(RankError::TrimFraction(fraction));
            }
            _ => {}
        }
        let of = |count| match count {
            0 => (0, 0),
            count => ranks(operation, count, pixels),
        };
        Ok(Self {
            ranks: (0..=pixels).map(of).collect(),
        })
    }

    /// First and last rank that are kept of so many values.
    pub(super) fn of(&self, count: u32) -> (u32, u32) {
        self.ranks[count as usize]
    }

    /// Those of a whole window.
    pub(super) fn whole(&self) -> (u32, u32) {
        self.ranks.last().copied().unwrap_or((0, 0))
    }

    /// Whether one value is kept, however many are valid.
    pub(super) fn is_one(&self) -> bool {
        self.ranks.iter().all(|(first, last)| first == last)
    }

    /// If only the smallest or only the largest value of a whole window is kept, which one.
    pub(super) fn extreme(&self) -> Option<End> {
        let pixels = u32::try_from(self.ranks.len()).ok()? - 1;
        match self.whole() {
            (0, 0) => Some(End::Smallest),
            (first, last) if first + 1 == pixels && last == first => Some(End::Largest),
            _ => None,
        }
    }
}

/// Of `count` values, at least one, in a window of so many pixels.
fn ranks(operation: Operation, count: u32, pixels: u32) -> (u32, u32) {
    let last = count - 1;
    // At most 65025 * 65024: it fits.
    let scaled = |value: u32, to: u32, from: u32| value * to / from.max(1);
    match operation {
        Operation::Minimum => (0, 0),
        Operation::Maximum => (last, last),
        Operation::Median(Even::Lower) => (last / 2, last / 2),
        Operation::Median(Even::Mean) => (last / 2, count / 2),
        Operation::Rank(rank) => {
            let rank = scaled(rank, last, pixels - 1);
            (rank, rank)
        }
        Operation::TrimmedMean(trim) => {
            let left_out = match trim {
                Trim::Count(most) => scaled(most, count, pixels),
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "rounding down is meant; the product is below half of `count`"
                )]
                Trim::Fraction(fraction) => (fraction * f64::from(count)) as u32,
            };
            // The product of a fraction just below a half may be rounded up.
            let left_out = left_out.min(last / 2);
            (left_out, last - left_out)
        }
    }
}
