//! Sums over the pairs of a window, without any matrix.
//!
//! A feature that is a sum of `f(i, j) P(i, j)` is the mean of `f` over the window's pairs. Sums of integers
//! run down the columns (one row of pairs comes, one goes) and are added across each window; what is not an
//! integer is a fixed-point number. So no sum depends on where a rectangle begins.

use std::ops::{Add, Mul, Sub};

use super::image::{Grey, PairRow};
use super::rows::Rows;
use crate::for_each_level;

/// A function of a pair that is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    /// 1: the number of valid pairs.
    Count,
    /// Whether both levels are the same.
    Same,
    /// A power of `d`.
    Difference(u32),
    /// A power of `s`.
    Sum(u32),
    /// A power of `s` divided by 2^32, and what remains: where the sum would not fit.
    SumHigh(u32),
    SumLow(u32),
    /// `1 / (1 + d)`, `1 / (1 + d^2)` and, where `d` is not 0, `1 / d^exponent`; fixed point.
    InverseDifference,
    InverseSquare,
    InversePower(u32),
    /// A power of the first level, or of the second.
    First(u32),
    Second(u32),
    /// First level times second.
    Product,
}

impl Moment {
    /// The largest term of so many levels.
    pub(super) fn largest(self, levels: u32, fraction: u32) -> u128 {
        let most = u128::from(levels - 1);
        match self {
            Self::Count | Self::Same => 1,
            Self::Difference(power) | Self::First(power) | Self::Second(power) => {
                most.saturating_pow(power)
            }
            Self::Sum(power) => (2 * most).saturating_pow(power),
            Self::SumHigh(power) => (2 * most).saturating_pow(power) >> 32,
            Self::SumLow(_) => u128::from(u32::MAX),
            Self::InverseDifference | Self::InverseSquare | Self::InversePower(_) => 1 << fraction,
            Self::Product => most * most,
        }
    }
}

/// One sum to keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub moment: Moment,
    /// The row of [`Rows`] that it goes to.
    pub slot: usize,
    /// Whether a window's sum may not fit 32 bits.
    pub wide: bool,
}

/// What sums are of: the running sums of columns of pairs of one offset.
pub(super) struct Columns {
    narrow: Vec<Vec<u32>>,
    wide: Vec<Vec<u64>>,
}

impl Columns {
    pub(super) fn new(wanted: &[Wanted], length: usize) -> Self {
        let count = |wide| wanted.iter().filter(|wanted| wanted.wide == wide).count();
        Self {
            narrow: vec![vec![0; length]; count(false)],
            wide: vec![vec![0; length]; count(true)],
        }
    }

    pub(super) fn bytes(wanted: &[Wanted], length: usize) -> usize {
        let each = wanted.iter().map(|wanted| if wanted.wide { 8 } else { 4 });
        each.sum::<usize>() * length
    }
}

/// What a step of the running sums does.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub wanted: &'a [Wanted],
    /// Bits after the point of fixed-point terms.
    pub fraction: u32,
    /// Pairs in a row of a window.
    pub pairs: usize,
    /// Whether window sums are added to what the rows have.
    pub add: bool,
}

for_each_level! {
    /// Takes a row of pairs into the columns and another one out.
    pub(super) fn slide_u8(columns: &mut Columns, step: Step<'_>, new: PairRow<'_, u8>, old: Option<PairRow<'_, u8>>) = slide;
    /// The same.
    pub(super) fn slide_u16(columns: &mut Columns, step: Step<'_>, new: PairRow<'_, u16>, old: Option<PairRow<'_, u16>>) = slide;
    /// Adds the columns of each window.
    pub(super) fn across(columns: &Columns, step: Step<'_>, rows: &mut Rows) = sum_across;
}

/// An unsigned integer of a sum.
trait Cell: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    fn of(value: u32) -> Self;
    /// Of a sum that is known to fit.
    fn of_wide(value: u64) -> Self;
    fn to_f64(self) -> f64;
}

impl Cell for u32 {
    #[inline(always)]
    fn of(value: u32) -> Self {
        value
    }

    #[inline(always)]
    fn of_wide(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Cell for u64 {
    #[inline(always)]
    fn of(value: u32) -> Self {
        Self::from(value)
    }

    #[inline(always)]
    fn of_wide(value: u64) -> Self {
        value
    }

    #[inline(always)]
    #[allow(
        clippy::cast_precision_loss,
        reason = "a plan lets sums only be below 2^53"
    )]
    fn to_f64(self) -> f64 {
        self as f64
    }
}

#[inline(always)]
fn slide<L: Grey>(
    columns: &mut Columns,
    step: Step<'_>,
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    let (mut narrow, mut wide) = (columns.narrow.iter_mut(), columns.wide.iter_mut());
    for wanted in step.wanted {
        if wanted.wide {
            let Some(sums) = wide.next() else { return };
            slide_one::<L, u64>(sums, wanted.moment, step.fraction, new, old);
        } else {
            let Some(sums) = narrow.next() else { return };
            slide_one::<L, u32>(sums, wanted.moment, step.fraction, new, old);
        }
    }
}

#[inline(always)]
fn slide_one<L: Grey, T: Cell>(
    sums: &mut [T],
    moment: Moment,
    fraction: u32,
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    let one = T::of(1);
    let scale = power_of_two(fraction);
    match moment {
        Moment::Count => walk(sums, new, old, |_, _| one),
        Moment::Same => walk(sums, new, old, |a, b| T::of(u32::from(a == b))),
        Moment::Difference(1) => walk(sums, new, old, |a, b| T::of(a.abs_diff(b))),
        Moment::Difference(2) => walk(sums, new, old, |a, b| square(T::of(a.abs_diff(b)))),
        Moment::Difference(n) => walk(sums, new, old, |a, b| power(T::of(a.abs_diff(b)), n)),
        Moment::Sum(1) => walk(sums, new, old, |a, b| T::of(a + b)),
        Moment::Sum(2) => walk(sums, new, old, |a, b| square(T::of(a + b))),
        Moment::Sum(n) => walk(sums, new, old, |a, b| power(T::of(a + b), n)),
        Moment::SumHigh(n) => walk(sums, new, old, |a, b| {
            T::of_wide(limb(u128::from(a + b).pow(n) >> 32))
        }),
        Moment::SumLow(n) => walk(sums, new, old, |a, b| {
            T::of_wide(limb(u128::from(a + b).pow(n) & u128::from(u32::MAX)))
        }),
        Moment::InverseDifference => walk(sums, new, old, |a, b| {
            T::of(fixed(scale / (1.0 + real(a.abs_diff(b)))))
        }),
        Moment::InverseSquare => walk(sums, new, old, |a, b| {
            let difference = real(a.abs_diff(b));
            T::of(fixed(scale / (1.0 + difference * difference)))
        }),
        Moment::InversePower(n) => walk(sums, new, old, |a, b| {
            let mut divisor = real(a.abs_diff(b));
            for _ in 1..n {
                divisor *= real(a.abs_diff(b));
            }
            T::of(if a == b { 0 } else { fixed(scale / divisor) })
        }),
        Moment::First(1) => walk(sums, new, old, |a, _| T::of(a)),
        Moment::First(_) => walk(sums, new, old, |a, _| square(T::of(a))),
        Moment::Second(1) => walk(sums, new, old, |_, b| T::of(b)),
        Moment::Second(_) => walk(sums, new, old, |_, b| square(T::of(b))),
        Moment::Product => walk(sums, new, old, |a, b| T::of(a) * T::of(b)),
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several slices in step")]
fn walk<L: Grey, T: Cell>(
    sums: &mut [T],
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
    term: impl Fn(u32, u32) -> T,
) {
    let length = sums.len();
    let (first, second) = (&new.first[..length], &new.second[..length]);
    match (old, new.valid) {
        (None, None) => {
            for x in 0..length {
                sums[x] = sums[x] + term(first[x].into(), second[x].into());
            }
        }
        (Some(old), None) => {
            let (old_first, old_second) = (&old.first[..length], &old.second[..length]);
            for x in 0..length {
                let gone = term(old_first[x].into(), old_second[x].into());
                sums[x] = sums[x] + term(first[x].into(), second[x].into()) - gone;
            }
        }
        _ => {
            add_valid(sums, new, |sum, a, b, valid| sum + term(a, b) * valid);
            if let Some(old) = old {
                add_valid(sums, old, |sum, a, b, valid| sum - term(a, b) * valid);
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several slices in step")]
fn add_valid<L: Grey, T: Cell>(
    sums: &mut [T],
    row: PairRow<'_, L>,
    step: impl Fn(T, u32, u32, T) -> T,
) {
    let Some((first_valid, second_valid)) = row.valid else {
        return;
    };
    let length = sums.len();
    let (first, second) = (&row.first[..length], &row.second[..length]);
    let (first_valid, second_valid) = (&first_valid[..length], &second_valid[..length]);
    for x in 0..length {
        let valid = u32::from(first_valid[x] != 0) & u32::from(second_valid[x] != 0);
        sums[x] = step(sums[x], first[x].into(), second[x].into(), T::of(valid));
    }
}

#[inline(always)]
fn square<T: Cell>(value: T) -> T {
    value * value
}

#[inline(always)]
fn power<T: Cell>(value: T, exponent: u32) -> T {
    let mut result = value;
    for _ in 1..exponent {
        result = result * value;
    }
    result
}

#[inline(always)]
/// The fourth power of a sum of two levels is below 2^68, so that both of its parts fit.
fn limb(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Levels are below 2^24, so that this is exact.
#[inline(always)]
#[allow(clippy::cast_precision_loss, reason = "levels are below 2^24")]
#[allow(
    clippy::cast_possible_wrap,
    reason = "and so below 2^31, which converts faster"
)]
fn real(level: u32) -> f32 {
    level as i32 as f32
}

/// The nearest integer of a number below 2^32. A division of floats is rounded alike by every instruction set.
/// The sum's last bits are the integer's, which takes fewer instructions than a conversion that has to look
/// for numbers that are none.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the other bits are those of 2^52"
)]
fn fixed(value: f32) -> u32 {
    const SHIFT: f64 = (1_u64 << 52) as f64;
    (f64::from(value) + SHIFT).to_bits() as u32
}

#[inline(always)]
fn power_of_two(exponent: u32) -> f32 {
    f32::from_bits((127 + exponent) << 23)
}

#[inline(always)]
fn sum_across(columns: &Columns, step: Step<'_>, rows: &mut Rows) {
    let (mut narrow, mut wide) = (columns.narrow.iter(), columns.wide.iter());
    for wanted in step.wanted {
        let row = rows.row_mut(wanted.slot);
        if wanted.wide {
            let Some(sums) = wide.next() else { return };
            add_windows(sums, step, row);
        } else {
            let Some(sums) = narrow.next() else { return };
            add_windows(sums, step, row);
        }
    }
}

/// Each window anew: with windows of 5 to 15 that is faster than running along the row, where every sum
/// waits for the one before.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several slices in step")]
fn add_windows<T: Cell>(sums: &[T], step: Step<'_>, row: &mut [f64]) {
    // As many as stay near the processor, and are added up column by column.
    const PART: usize = 256;
    let mut totals = [T::of(0); PART];
    for (part, row) in row.chunks_mut(PART).enumerate() {
        let (begin, length) = (part * PART, row.len());
        let sums = &sums[begin..begin + length + step.pairs - 1];
        let totals = &mut totals[..length];
        totals.copy_from_slice(&sums[..length]);
        let mut pair = 1;
        while pair + 2 <= step.pairs {
            let (one, two) = (
                &sums[pair..pair + length],
                &sums[pair + 1..pair + 1 + length],
            );
            for x in 0..length {
                totals[x] = totals[x] + one[x] + two[x];
            }
            pair += 2;
        }
        if pair < step.pairs {
            let one = &sums[pair..pair + length];
            for x in 0..length {
                totals[x] = totals[x] + one[x];
            }
        }
        if step.add {
            for x in 0..length {
                row[x] += totals[x].to_f64();
            }
        } else {
            for x in 0..length {
                row[x] = totals[x].to_f64();
            }
        }
    }
}
