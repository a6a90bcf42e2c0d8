//! Features from sums and counts.
//!
//! Sums are exact integers, and so are the differences of products that variances are made of. What remains has
//! one order, so that every instruction set gives the same bits. A plan decides in which numbers it is done:
//! see [`Arithmetic`].

use std::ops::{Add, Mul, Range};

use super::aligned::Aligned;
use super::image::Geometry;
use super::moments::{self, Columns, Wanted};
use super::parameters::Combine;
use super::plan::Plan;
use super::quantities::COUNT;
use super::rows::{Number, PART, Part, Rows};
use super::tally::Tallied;
use crate::{Level, for_each_level};

mod brief;
mod real;

pub(super) use brief::{Brief, is_enough};
pub(super) use real::Real;

for_each_level! {
    /// See [`Arithmetic::finish`].
    fn finish_real(all: &Finish<'_, f64>, scratch: &mut Scratch<Real>, y: usize, outputs: &mut [&mut [f32]]) = finish_row::<Real>;
    /// The same.
    fn finish_brief(all: &Finish<'_, u32>, scratch: &mut Scratch<Brief>, y: usize, outputs: &mut [&mut [f32]]) = finish_row::<Brief>;
}

/// In which numbers features are computed.
pub(super) trait Arithmetic: Sized {
    /// Of sums and counts.
    type Sum: Tallied;
    /// Of features.
    type Value: Value;

    /// Computes the features of row `y` of windows, a part of them at a time.
    fn finish(
        level: Level,
        all: &Finish<'_, Self::Sum>,
        scratch: &mut Scratch<Self>,
        y: usize,
        outputs: &mut [&mut [f32]],
    );

    /// What an entropy needs of the number of pairs.
    fn log_count(plan: &Plan, pairs: usize) -> Self::Sum;

    /// Adds features of the windows whose sums `scratch` has.
    fn add(all: &Finish<'_, Self::Sum>, scratch: &mut Scratch<Self>, at: At);
}

/// A float.
pub(super) trait Value: Copy + Add<Output = Self> + Mul<Output = Self> + PartialOrd {
    const ZERO: Self;
    const NONE: Self;
    /// 1 divided by a number of pairs or offsets.
    fn share(count: usize) -> Self;
    fn to_result(self) -> f32;
}

impl Value for f64 {
    const ZERO: Self = 0.0;
    const NONE: Self = Self::NAN;

    #[inline(always)]
    #[allow(clippy::cast_precision_loss, reason = "at most 63 x 63 x 8")]
    fn share(count: usize) -> Self {
        1.0 / count as Self
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "results are 32-bit floats")]
    fn to_result(self) -> f32 {
        self as f32
    }
}

impl Value for f32 {
    const ZERO: Self = 0.0;
    const NONE: Self = Self::NAN;

    #[inline(always)]
    #[allow(clippy::cast_precision_loss, reason = "at most 63 x 63 x 8")]
    fn share(count: usize) -> Self {
        1.0 / count as Self
    }

    #[inline(always)]
    fn to_result(self) -> f32 {
        self
    }
}

/// What a row of features is computed of.
pub(super) struct Finish<'a, N> {
    pub plan: &'a Plan,
    pub wanted: &'a [Wanted],
    /// Of each offset; none where sums are made of what was counted.
    pub columns: &'a [Columns],
    /// What was counted: of each offset, or of all of them together. Such sums follow the other quantities.
    pub rows: &'a [Rows<N>],
    /// The maximal correlations of the same, if they are wanted.
    pub maximal: &'a [Rows<f64>],
    pub masked: bool,
    pub width: usize,
}

/// Windows: a part of a row, of one of the matrices.
#[derive(Clone, Copy)]
pub(super) struct At {
    matrix: usize,
    part: usize,
    /// Whether moments are among the rows.
    made: bool,
}

/// The numbers of a part of a row.
///
/// What it has itself comes first, and so begins where a cache line does.
#[repr(C, align(64))]
pub(super) struct Scratch<A: Arithmetic> {
    /// 1 divided by the number of pairs, or 0, and what entropies need of it.
    inverse: Part<A::Value>,
    log_count: Part<A::Sum>,
    /// How many of the offsets have a pair.
    used: [u8; PART],
    sums: Aligned<A::Sum>,
    /// Of each feature.
    features: Aligned<A::Value>,
}

impl<A: Arithmetic> Scratch<A> {
    pub(super) fn new(plan: &Plan) -> Self {
        let (none, zero) = (A::Sum::of(0), A::Value::ZERO);
        Self {
            sums: Aligned::new(none, plan.quantities.sums() * PART),
            inverse: [zero; PART],
            log_count: [none; PART],
            features: Aligned::new(zero, plan.parameters.features.len() * PART),
            used: [0; PART],
        }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.features.fill(A::Value::ZERO);
        self.used = [0; PART];
    }
}

/// Memory of a [`Scratch`] of any numbers.
pub(super) fn scratch_bytes(plan: &Plan) -> usize {
    (plan.quantities.sums() + plan.parameters.features.len() + 3) * size_of::<Part<f64>>()
}

#[inline(always)]
fn finish_row<A: Arithmetic>(
    all: &Finish<'_, A::Sum>,
    scratch: &mut Scratch<A>,
    y: usize,
    outputs: &mut [&mut [f32]],
) {
    let features = all.plan.parameters.features.len();
    let offsets = all.plan.geometry.len();
    for number in 0..all.width.div_ceil(PART) {
        scratch.clear();
        match all.plan.parameters.combine {
            Combine::Separate => {
                for (offset, outputs) in outputs.chunks_exact_mut(features).enumerate() {
                    all.add(scratch, number, offset..offset + 1);
                    all.write(scratch, (number, y), outputs, 1);
                    scratch.clear();
                }
            }
            Combine::Mean => {
                for offset in 0..offsets {
                    all.add(scratch, number, offset..offset + 1);
                }
                all.write(scratch, (number, y), outputs, offsets);
            }
            Combine::Sum => {
                all.add(scratch, number, 0..offsets);
                all.write(scratch, (number, y), outputs, 1);
            }
        }
    }
}

impl<N: Number> Finish<'_, N> {
    /// Adds the features of some offsets together.
    #[inline(always)]
    fn add<A: Arithmetic<Sum = N>>(
        &self,
        scratch: &mut Scratch<A>,
        part: usize,
        offsets: Range<usize>,
    ) {
        let geometry = &self.plan.geometry[offsets.clone()];
        let matrix = offsets.start;
        let rows = &self.rows[matrix];
        let made = self.columns.is_empty();
        if let (true, true, Some(count)) = (made, self.masked, self.wanted.len().checked_sub(1)) {
            // The number of pairs is the last moment, and other numbers are made of it.
            scratch.sums.as_chunks_mut().0[COUNT] =
                *rows.part(self.plan.quantities.rows() + count, part);
        }
        let columns = self.columns.get(offsets).unwrap_or_default();
        for (order, (of, columns)) in geometry.iter().zip(columns).enumerate() {
            let what = (self.wanted, of.columns);
            moments::across(
                columns,
                what,
                part,
                order > 0,
                scratch.sums.as_chunks_mut().0,
            );
        }
        if self.masked {
            self.valid(scratch);
        } else {
            self.constant(scratch, geometry.iter().map(Geometry::pairs).sum());
        }
        A::add(self, scratch, At { matrix, part, made });
    }

    /// What follows from the number of pairs where all of them are valid.
    #[inline(always)]
    fn constant<A: Arithmetic<Sum = N>>(&self, scratch: &mut Scratch<A>, pairs: usize) {
        scratch.sums.as_chunks_mut().0[COUNT] =
            [N::of(u32::try_from(pairs).unwrap_or(u32::MAX)); PART];
        scratch.inverse = [A::Value::share(pairs); PART];
        scratch.log_count = [A::log_count(self.plan, pairs); PART];
    }

    /// The same where each window has its number.
    #[inline(always)]
    fn valid<A: Arithmetic<Sum = N>>(&self, scratch: &mut Scratch<A>) {
        let count: &Part<N> = &scratch.sums.as_chunks().0[COUNT];
        let inverse = &mut scratch.inverse;
        for ((inverse, used), count) in inverse.iter_mut().zip(&mut scratch.used).zip(count) {
            let any = *count > N::of(0);
            let share = A::Value::share(count.to_count());
            *inverse = if any { share } else { A::Value::ZERO };
            *used += u8::from(any);
        }
        if !self.plan.quantities.has_logarithms() {
            return;
        }
        let logarithm = |count: N| A::log_count(self.plan, count.to_count());
        let alike = count
            .iter()
            .fold(true, |alike, other| alike & (*other == count[0]));
        let to = &mut scratch.log_count;
        if alike {
            to.fill(logarithm(count[0]));
        } else {
            for (to, count) in to.iter_mut().zip(count) {
                *to = logarithm(*count);
            }
        }
    }

    /// Writes means over so many offsets.
    #[inline(always)]
    fn write<A: Arithmetic<Sum = N>>(
        &self,
        scratch: &Scratch<A>,
        (number, y): (usize, usize),
        outputs: &mut [&mut [f32]],
        offsets: usize,
    ) {
        let mut shares = [A::Value::share(offsets); PART];
        if self.masked {
            // A pixel without a pair is no number, whatever its sums are.
            for (share, used) in shares.iter_mut().zip(&scratch.used) {
                let of_used = A::Value::share((*used).into());
                *share = if *used > 0 { of_used } else { A::Value::NONE };
            }
        }
        let begin = y * self.width + number * PART;
        let end = (begin + PART).min((y + 1) * self.width);
        for (output, sums) in outputs
            .iter_mut()
            .zip(scratch.features.as_chunks::<PART>().0)
        {
            let output = output[begin..end].iter_mut();
            output
                .zip(sums.iter().zip(&shares))
                .for_each(|(output, (sum, share))| *output = (*sum * *share).to_result());
        }
    }
}
