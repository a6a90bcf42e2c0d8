//! Sums over the pairs of a window, without any matrix.
//!
//! A feature that is a sum of `f(i, j) P(i, j)` is the mean of `f` over the window's pairs. Sums of integers
//! run down the columns (one row of pairs comes, one goes) and are added across each window; what is not an
//! integer is a fixed-point number. So no sum depends on where a rectangle begins.

use std::ops::{Add, Mul, Range, Sub};

use super::aligned::Aligned;
use super::image::{Grey, PairRow};
use super::inverse::Inverses;
use super::rows::{Number, PART, Part};
use crate::{Level, for_each_level};

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
    /// Its place among the sums.
    pub slot: usize,
    pub size: Size,
}

/// How many bits a window's sum may need: the fewer they are, the more of them are added at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Short,
    Narrow,
    Wide,
}

impl Size {
    /// Of sums that are at most so large.
    pub(super) fn of(largest: u128) -> Self {
        if largest <= u16::MAX.into() {
            Self::Short
        } else if largest <= u32::MAX.into() {
            Self::Narrow
        } else {
            Self::Wide
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Short => 2,
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }
}

/// What sums are of: the running sums of columns of pairs of one offset.
pub(super) struct Columns {
    short: Vec<Aligned<u16>>,
    narrow: Vec<Aligned<u32>>,
    wide: Vec<Aligned<u64>>,
}

impl Columns {
    /// For a row of so many windows of so many columns of pairs.
    pub(super) fn new(wanted: &[Wanted], width: usize, pairs: usize) -> Self {
        let count = |size| wanted.iter().filter(|wanted| wanted.size == size).count();
        let length = length(width, pairs);
        Self {
            short: zeros(count(Size::Short), length),
            narrow: zeros(count(Size::Narrow), length),
            wide: zeros(count(Size::Wide), length),
        }
    }

    pub(super) fn bytes(wanted: &[Wanted], width: usize, pairs: usize) -> usize {
        let each = wanted.iter().map(|wanted| wanted.size.bytes());
        each.sum::<usize>() * length(width, pairs)
    }
}

fn zeros<T: Cell>(rows: usize, length: usize) -> Vec<Aligned<T>> {
    (0..rows).map(|_| Aligned::new(T::of(0), length)).collect()
}

/// As many as whole parts of windows have: those after the row's end stay 0.
const fn length(width: usize, pairs: usize) -> usize {
    width.next_multiple_of(PART) + pairs - 1
}

/// What a step of the running sums does.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub wanted: &'a [Wanted],
    /// Bits after the point of fixed-point terms.
    pub fraction: u32,
    pub level: Level,
    pub inverses: &'a Inverses,
}

for_each_level! {
    /// Takes a row of pairs into the columns and another one out.
    pub(super) fn slide_u8(columns: &mut Columns, step: Step<'_>, new: PairRow<'_, u8>, old: Option<PairRow<'_, u8>>) = slide;
    /// The same.
    pub(super) fn slide_u16(columns: &mut Columns, step: Step<'_>, new: PairRow<'_, u16>, old: Option<PairRow<'_, u16>>) = slide;
}

/// An unsigned integer of a sum.
trait Cell: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    fn of(value: u32) -> Self;
    /// Of a sum that is known to fit.
    fn of_wide(value: u64) -> Self;
    fn to<N: Number>(self) -> N;
}

impl Cell for u16 {
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "terms are not larger than a sum, which fits"
    )]
    fn of(value: u32) -> Self {
        value as Self
    }

    #[inline(always)]
    fn of_wide(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }

    #[inline(always)]
    fn to<N: Number>(self) -> N {
        N::of(self.into())
    }
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
    fn to<N: Number>(self) -> N {
        N::of(self)
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
    fn to<N: Number>(self) -> N {
        N::of_wide(self)
    }
}

#[inline(always)]
fn slide<L: Grey>(
    columns: &mut Columns,
    step: Step<'_>,
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    let length = new.first.len();
    if new.valid.is_none() {
        slide_part(columns, step, 0..length, new, old);
        return;
    }
    // Most parts of most masks are all valid: those that follow each other are taken together.
    let mut first_valid = 0;
    for begin in (0..length).step_by(MASKED_PART) {
        let part = begin..length.min(begin + MASKED_PART);
        if is_valid(new, &part) && old.is_none_or(|old| is_valid(old, &part)) {
            continue;
        }
        let valid = first_valid..begin;
        first_valid = part.end;
        slide_range(columns, step, (valid, true), new, old);
        slide_range(columns, step, (part, false), new, old);
    }
    slide_range(columns, step, (first_valid..length, true), new, old);
}

/// A part of the columns, of whose pairs all are valid, or not all.
#[inline(always)]
fn slide_range<L: Grey>(
    columns: &mut Columns,
    step: Step<'_>,
    (part, all_valid): (Range<usize>, bool),
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    if part.is_empty() {
        return;
    }
    let new = part_of(new, &part, all_valid);
    let old = old.map(|old| part_of(old, &part, all_valid));
    slide_part(columns, step, part, new, old);
}

/// Whether every pair of a part of a row is valid.
#[inline(always)]
fn is_valid<L>(row: PairRow<'_, L>, part: &Range<usize>) -> bool {
    row.valid.is_none_or(|(first, second)| {
        let pixels = first[part.clone()].iter().zip(&second[part.clone()]);
        pixels.fold(u8::MAX, |least, (a, b)| least.min(*a).min(*b)) != 0
    })
}

/// A part of a row of pairs, without its mask where all of them are valid.
#[inline(always)]
fn part_of<'a, L>(row: PairRow<'a, L>, part: &Range<usize>, all_valid: bool) -> PairRow<'a, L> {
    let of = |mask: &'a [u8]| &mask[part.clone()];
    let valid = row.valid.filter(|_| !all_valid);
    PairRow {
        first: &row.first[part.clone()],
        second: &row.second[part.clone()],
        valid: valid.map(|(first, second)| (of(first), of(second))),
    }
}

/// Columns that are looked at for whether all of their pairs are valid.
const MASKED_PART: usize = 32;

#[inline(always)]
fn slide_part<L: Grey>(
    columns: &mut Columns,
    step: Step<'_>,
    part: Range<usize>,
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    let (mut short, mut narrow) = (columns.short.iter_mut(), columns.narrow.iter_mut());
    let mut wide = columns.wide.iter_mut();
    for Wanted { moment, size, .. } in step.wanted {
        let what = (*moment, step.fraction);
        match size {
            Size::Short => {
                let Some(sums) = short.next() else { return };
                slide_one(&mut sums[part.clone()], what, new, old);
            }
            Size::Narrow => {
                let Some(sums) = narrow.next() else { return };
                let sums = &mut sums[part.clone()];
                if !look_up(sums, *moment, step, new, old) {
                    slide_one(sums, what, new, old);
                }
            }
            Size::Wide => {
                let Some(sums) = wide.next() else { return };
                slide_one(&mut sums[part.clone()], what, new, old);
            }
        }
    }
}

/// The term of a pair of levels.
pub(super) fn term(moment: Moment, fraction: u32, (first, second): (u8, u8)) -> u64 {
    let mut sum = [0_u64];
    let row = PairRow {
        first: &[first],
        second: &[second],
        valid: None,
    };
    slide_one(&mut sum, (moment, fraction), row, None);
    sum[0]
}

#[inline(always)]
fn bytes_of<L: Grey>(row: PairRow<'_, L>, length: usize) -> Option<[&[u8]; 2]> {
    let (first, second) = (L::bytes(row.first)?, L::bytes(row.second)?);
    Some([&first[..length], &second[..length]])
}

/// Whether the moment is looked up, and then was.
#[inline(always)]
fn look_up<L: Grey>(
    sums: &mut [u32],
    moment: Moment,
    step: Step<'_>,
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) -> bool {
    let length = sums.len();
    let bytes_of = |row| bytes_of(row, length);
    match (bytes_of(new), old.and_then(bytes_of), new.valid) {
        (Some(new), Some(old), None) => step.inverses.slide(step.level, moment, sums, new, old),
        _ => false,
    }
}

#[inline(always)]
fn slide_one<L: Grey, T: Cell>(
    sums: &mut [T],
    (moment, fraction): (Moment, u32),
    new: PairRow<'_, L>,
    old: Option<PairRow<'_, L>>,
) {
    let one = T::of(1);
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
            T::of(inverse_difference(a.abs_diff(b), fraction))
        }),
        Moment::InverseSquare => walk(sums, new, old, |a, b| {
            T::of(inverse_square(a.abs_diff(b), fraction))
        }),
        Moment::InversePower(n) => walk(sums, new, old, |a, b| {
            T::of(inverse_power(a.abs_diff(b), n, fraction))
        }),
        Moment::First(1) => walk(sums, new, old, |a, _| T::of(a)),
        Moment::First(_) => walk(sums, new, old, |a, _| square(T::of(a))),
        Moment::Second(1) => walk(sums, new, old, |_, b| T::of(b)),
        Moment::Second(_) => walk(sums, new, old, |_, b| square(T::of(b))),
        Moment::Product => walk(sums, new, old, |a, b| T::of(a) * T::of(b)),
    }
}

#[inline(always)]
fn inverse_difference(difference: u32, fraction: u32) -> u32 {
    fixed(power_of_two(fraction) / (1.0 + real(difference)))
}

#[inline(always)]
fn inverse_square(difference: u32, fraction: u32) -> u32 {
    let difference = real(difference);
    fixed(power_of_two(fraction) / (1.0 + difference * difference))
}

#[inline(always)]
fn inverse_power(difference: u32, exponent: u32, fraction: u32) -> u32 {
    let mut divisor = real(difference);
    for _ in 1..exponent {
        divisor *= real(difference);
    }
    if difference == 0 {
        0
    } else {
        fixed(power_of_two(fraction) / divisor)
    }
}

/// The term of pairs of that difference, of moments that are fixed-point numbers.
pub(super) fn inverse(moment: Moment, difference: u32, fraction: u32) -> Option<u32> {
    match moment {
        Moment::InverseDifference => Some(inverse_difference(difference, fraction)),
        Moment::InverseSquare => Some(inverse_square(difference, fraction)),
        Moment::InversePower(exponent) => Some(inverse_power(difference, exponent, fraction)),
        _ => None,
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

/// Sums the columns of each window of a part of a row.
#[inline(always)]
pub(super) fn across<N: Number>(
    columns: &Columns,
    (wanted, pairs): (&[Wanted], usize),
    number: usize,
    add: bool,
    to: &mut [Part<N>],
) {
    let (mut short, mut narrow) = (columns.short.iter(), columns.narrow.iter());
    let mut wide = columns.wide.iter();
    let all = number * PART..(number + 1) * PART + pairs - 1;
    for wanted in wanted {
        let to = &mut to[wanted.slot];
        match wanted.size {
            Size::Short => {
                let Some(sums) = short.next() else { return };
                add_windows(&sums[all.clone()], pairs, add, to);
            }
            Size::Narrow => {
                let Some(sums) = narrow.next() else { return };
                add_windows(&sums[all.clone()], pairs, add, to);
            }
            Size::Wide => {
                let Some(sums) = wide.next() else { return };
                add_windows(&sums[all.clone()], pairs, add, to);
            }
        }
    }
}

/// Sums of a part of a row, which no vector's access takes two cache lines of.
#[repr(align(64))]
struct Totals<T>([T; PART]);

/// Each window anew: with windows of 5 to 15 that is faster than running along the row, where every sum
/// waits for the one before.
#[inline(always)]
fn add_windows<T: Cell, N: Number>(sums: &[T], pairs: usize, add: bool, to: &mut Part<N>) {
    let mut totals = Totals([T::of(0); PART]);
    let Totals(totals) = &mut totals;
    let mut first = 0;
    while pairs - first > 5 {
        add_columns::<T, 5>(totals, &sums[first..]);
        first += 5;
    }
    let sums = &sums[first..];
    match pairs - first {
        1 => add_columns::<T, 1>(totals, sums),
        2 => add_columns::<T, 2>(totals, sums),
        3 => add_columns::<T, 3>(totals, sums),
        4 => add_columns::<T, 4>(totals, sums),
        _ => add_columns::<T, 5>(totals, sums),
    }
    if add {
        for (to, total) in to.iter_mut().zip(totals) {
            *to = *to + total.to();
        }
    } else {
        // A map of an array of that length would go through memory.
        for (to, total) in to.iter_mut().zip(totals) {
            *to = total.to();
        }
    }
}

/// So many columns at a time, so that their sum stays in a register.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several slices in step")]
fn add_columns<T: Cell, const COLUMNS: usize>(totals: &mut [T; PART], sums: &[T]) {
    let columns: [&[T]; COLUMNS] = std::array::from_fn(|column| &sums[column..column + PART]);
    for x in 0..PART {
        let mut total = totals[x];
        for column in columns {
            total = total + column[x];
        }
        totals[x] = total;
    }
}
