//! Features in 32-bit numbers, of which a vector has twice as many: for windows with so few pairs and levels
//! that everything that has to be exact is an integer below 2^31.
//!
//! A float is made of what is left after the last subtraction, so that a feature is as exact as a few
//! roundings of a 32-bit float leave it, and no digits cancel.

use super::{Arithmetic, At, Finish, Scratch};
use crate::Level;
use crate::texture::moments::Moment;
use crate::texture::parameters::{Combine, Feature, Logarithm, Parameters};
use crate::texture::plan::Plan;
use crate::texture::quantities::{COUNT, Margin, Quantity};
use crate::texture::rows::{PART, Rows};

type Sums = crate::texture::rows::Part<u32>;
type Values = crate::texture::rows::Part<f32>;

/// 32-bit integers and floats.
pub(in crate::texture) enum Brief {}

/// Whether all features of windows of so many pairs can be made so. Pairs are to be comparable: then matrices
/// are symmetric, and counts of pairs are bytes. Fixed-point numbers leave no room for those of several offsets.
pub(in crate::texture) fn is_enough(parameters: &Parameters, most_pairs: usize) -> bool {
    let most = u64::from(parameters.levels - 1);
    // The square of the sum of pairs' sums of levels; no difference of products is larger.
    let fits = u64::try_from(most_pairs).is_ok_and(|pairs| (2 * most * pairs).pow(2) < 1 << 31);
    let is_made = |feature: &Feature| match feature {
        Feature::Contrast { exponent } => *exponent <= 2,
        Feature::InverseMoment { .. }
        | Feature::Max
        | Feature::Energy
        | Feature::InverseDifferenceMoment
        | Feature::Homogeneity
        | Feature::SumAverage
        | Feature::SumVariance
        | Feature::Variance
        | Feature::Correlation
        | Feature::DifferenceVariance
        | Feature::Entropy
        | Feature::Cluster { exponent: 2 } => true,
        _ => false,
    };
    let apart = parameters.combine != Combine::Sum || parameters.offsets.len() == 1;
    fits && apart && parameters.features.iter().all(is_made)
}

impl Arithmetic for Brief {
    type Sum = u32;
    type Value = f32;

    fn finish(
        level: Level,
        all: &Finish<'_, u32>,
        scratch: &mut Scratch<Self>,
        y: usize,
        outputs: &mut [&mut [f32]],
    ) {
        super::finish_brief(level, all, scratch, y, outputs);
    }

    #[inline(always)]
    fn log_count(plan: &Plan, pairs: usize) -> u32 {
        plan.logarithms.whole[pairs]
    }

    #[inline(always)]
    fn add(all: &Finish<'_, u32>, scratch: &mut Scratch<Self>, at: At) {
        let made = Made {
            plan: all.plan,
            sums: scratch.sums.as_chunks().0,
            inverse: &scratch.inverse,
            log_count: &scratch.log_count,
            rows: &all.rows[at.matrix],
            number: at.part,
        };
        let features = all.plan.parameters.features.iter();
        for (feature, to) in features.zip(scratch.features.as_chunks_mut().0) {
            made.add(*feature, to);
        }
    }
}

/// What a feature of a part of a row is made of.
struct Made<'a> {
    plan: &'a Plan,
    sums: &'a [Sums],
    /// 1 divided by the number of pairs, or 0.
    inverse: &'a Values,
    /// `c log2 c` of it, as counts have it.
    log_count: &'a Sums,
    rows: &'a Rows<u32>,
    number: usize,
}

/// `count * squares - sum * sum`, exactly.
#[inline(always)]
fn spread(count: u32, squares: u32, sum: u32) -> f32 {
    real(
        count
            .wrapping_mul(squares)
            .wrapping_sub(sum.wrapping_mul(sum)),
    )
}

/// A number between -2^31 and 2^31, of which this is the remainder modulo 2^32: signed integers are what AVX2
/// can convert.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "as said above")]
#[allow(
    clippy::cast_precision_loss,
    reason = "rounded once, after what had to be exact"
)]
fn real(value: u32) -> f32 {
    value as i32 as f32
}

/// What a fixed-point sum is multiplied by.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "a power of two")]
fn unit_of(plan: &Plan) -> f32 {
    plan.fixed_unit() as f32
}

impl Made<'_> {
    #[inline(always)]
    fn moment(&self, moment: Moment) -> &Sums {
        &self.sums[self.plan.quantities.sum(moment)]
    }

    #[inline(always)]
    fn quantity(&self, quantity: Quantity) -> &Sums {
        let slot = self.plan.quantities.slot(quantity);
        self.rows.part(slot, self.number)
    }

    /// Adds `term(count, 1 / count, numbers)`, which is to be 0 where there is no pair: all sums are 0 then.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "several arrays in step")]
    fn each<const N: usize>(
        &self,
        to: &mut Values,
        from: [&Sums; N],
        term: impl Fn(u32, f32, [u32; N]) -> f32,
    ) {
        let (count, inverse) = (&self.sums[COUNT], self.inverse);
        for x in 0..PART {
            to[x] += term(count[x], inverse[x], from.map(|row| row[x]));
        }
    }

    #[inline(always)]
    fn add(&self, feature: Feature, to: &mut Values) {
        let fixed = unit_of(self.plan);
        match feature {
            Feature::Max => {
                let most = self.quantity(Quantity::Most);
                self.each(to, [most], |_, inverse, [most]| real(most) * inverse * 0.5);
            }
            Feature::Energy => {
                let energy = self.quantity(Quantity::Energy(Margin::Joint));
                self.each(to, [energy], |_, inverse, [energy]| {
                    real(energy) * (inverse * inverse) * 0.5
                });
            }
            Feature::Contrast { exponent } => self.mean(to, Moment::Difference(exponent)),
            Feature::InverseDifferenceMoment => self.fixed(to, Moment::InverseSquare, fixed),
            Feature::InverseMoment { exponent } => {
                self.fixed(to, Moment::InversePower(exponent), fixed);
            }
            Feature::Homogeneity => self.fixed(to, Moment::InverseDifference, fixed),
            Feature::SumAverage => self.mean(to, Moment::Sum(1)),
            Feature::Cluster { .. } | Feature::SumVariance => {
                self.variance(to, Moment::Sum(1), Moment::Sum(2));
            }
            Feature::DifferenceVariance => {
                self.variance(to, Moment::Difference(1), Moment::Difference(2));
            }
            Feature::Variance => {
                let from = self.symmetric_sums();
                self.each(to, from, |count, inverse, [sum, squares, differences]| {
                    spread(count, squares + differences, sum) * (inverse * inverse) * 0.25
                });
            }
            Feature::Correlation => self.correlation(to),
            // All others are refused by `is_enough`.
            _ => self.entropy(to),
        }
    }

    #[inline(always)]
    fn mean(&self, to: &mut Values, moment: Moment) {
        let sums = self.moment(moment);
        self.each(to, [sums], |_, inverse, [sum]| real(sum) * inverse);
    }

    /// The mean of fixed-point numbers, whose sums may have 32 bits.
    #[inline(always)]
    fn fixed(&self, to: &mut Values, moment: Moment, unit: f32) {
        let sums = self.moment(moment);
        let twice = 2.0 * unit;
        self.each(to, [sums], |_, inverse, [sum]| {
            real(sum >> 1) * inverse * twice
        });
    }

    #[inline(always)]
    fn variance(&self, to: &mut Values, first: Moment, second: Moment) {
        let from = [self.moment(first), self.moment(second)];
        self.each(to, from, |count, inverse, [sum, squares]| {
            spread(count, squares, sum) * (inverse * inverse)
        });
    }

    /// With `s` and `d` of each pair, `2 i j = (s^2 - d^2) / 2` and `i^2 + j^2 = (s^2 + d^2) / 2`.
    #[inline(always)]
    fn symmetric_sums(&self) -> [&Sums; 3] {
        [Moment::Sum(1), Moment::Sum(2), Moment::Difference(2)].map(|moment| self.moment(moment))
    }

    #[inline(always)]
    fn correlation(&self, to: &mut Values) {
        let flat = self.plan.parameters.flat_correlation;
        let from = self.symmetric_sums();
        self.each(to, from, |count, _, [sum, squares, differences]| {
            let covariance = spread(count, squares.wrapping_sub(differences), sum);
            let variance = spread(count, squares + differences, sum);
            let flat = if count > 0 { flat } else { 0.0 };
            if variance > 0.0 {
                covariance / variance
            } else {
                flat
            }
        });
    }

    #[inline(always)]
    fn entropy(&self, to: &mut Values) {
        #[allow(clippy::cast_possible_truncation, reason = "32-bit floats are enough")]
        let (unit, bits) = (
            match self.plan.parameters.logarithm {
                Logarithm::Binary => 1.0,
                Logarithm::Natural => std::f32::consts::LN_2,
            },
            2.0 * self.plan.logarithms.unit() as f32,
        );
        let log = self.quantity(Quantity::Log(Margin::Joint));
        let from = [log, self.log_count, self.moment(Moment::Same)];
        self.each(to, from, |count, inverse, [log, log_count, same]| {
            // Below 2^32; the last of some 30 bits does not count.
            let less = real(log_count.wrapping_sub(log) >> 1);
            (less * bits + real(count - same)) * inverse * unit
        });
    }
}
