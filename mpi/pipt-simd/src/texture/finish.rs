//! Features from sums and counts.
//!
//! Sums are exact integers, and so are the differences of products that variances are made of, as long as
//! levels are few enough; with more of them these are computed in wider integers. What remains has one order,
//! so that every instruction set gives the same bits.

mod first;

use std::ops::Range;

use super::image::Geometry;
use super::moments::{self, Columns, Moment, Wanted};
use super::parameters::{Combine, Feature, Logarithm};
use super::plan::Plan;
use super::quantities::{COUNT, INVERSE, LOG_COUNT, Margin, Quantity};
use super::rows::{PART, Part, Rows};
use crate::for_each_level;

for_each_level! {
    /// Computes the features of row `y` of windows, a part of them at a time.
    pub(super) fn finish(all: &Finish<'_>, scratch: &mut Scratch, y: usize, outputs: &mut [&mut [f32]]) = finish_row;
}

/// What a row of features is computed of.
pub(super) struct Finish<'a> {
    pub plan: &'a Plan,
    pub wanted: &'a [Wanted],
    /// Of each offset.
    pub columns: &'a [Columns],
    /// What was counted: of each offset, or of all of them together.
    pub rows: &'a [Rows],
    pub masked: bool,
    pub width: usize,
}

/// The numbers of a part of a row.
pub(super) struct Scratch {
    sums: Vec<Part>,
    /// Of each feature.
    features: Vec<Part>,
    /// How many of the offsets have a pair.
    used: Part,
}

impl Scratch {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            sums: vec![[0.0; PART]; plan.quantities.sums()],
            features: vec![[0.0; PART]; plan.parameters.features.len()],
            used: [0.0; PART],
        }
    }

    pub(super) fn bytes(plan: &Plan) -> usize {
        (plan.quantities.sums() + plan.parameters.features.len() + 1) * size_of::<Part>()
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.features.fill([0.0; PART]);
        self.used = [0.0; PART];
    }
}

#[inline(always)]
fn finish_row(all: &Finish<'_>, scratch: &mut Scratch, y: usize, outputs: &mut [&mut [f32]]) {
    let features = all.plan.parameters.features.len();
    let offsets = all.columns.len();
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

impl Finish<'_> {
    /// Adds the features of some offsets together.
    #[inline(always)]
    fn add(&self, scratch: &mut Scratch, number: usize, offsets: Range<usize>) {
        let geometry = &self.plan.geometry[offsets.clone()];
        for (order, (of, columns)) in geometry
            .iter()
            .zip(&self.columns[offsets.clone()])
            .enumerate()
        {
            let what = (self.wanted, of.columns);
            moments::across(columns, what, number, order > 0, &mut scratch.sums);
        }
        if self.masked {
            self.valid(scratch);
        } else {
            self.constant(scratch, geometry.iter().map(Geometry::pairs).sum());
        }
        let made = Made {
            plan: self.plan,
            sums: &scratch.sums,
            rows: &self.rows[offsets.start],
            number,
        };
        let slots = self.plan.parameters.features.iter();
        for (feature, to) in slots.zip(&mut scratch.features) {
            if self.plan.wide {
                made.add::<true>(*feature, to);
            } else {
                made.add::<false>(*feature, to);
            }
        }
    }

    /// What follows from the number of pairs where all of them are valid.
    #[inline(always)]
    fn constant(&self, scratch: &mut Scratch, pairs: usize) {
        #[allow(clippy::cast_precision_loss, reason = "at most 63 x 63 x 8")]
        let count = pairs as f64;
        scratch.sums[COUNT] = [count; PART];
        scratch.sums[INVERSE] = [1.0 / count; PART];
        scratch.sums[LOG_COUNT] = [self.plan.logarithms.of[pairs]; PART];
    }

    /// The same where each window has its number.
    #[inline(always)]
    fn valid(&self, scratch: &mut Scratch) {
        let count = scratch.sums[COUNT];
        let inverse = &mut scratch.sums[INVERSE];
        for ((inverse, used), count) in inverse.iter_mut().zip(&mut scratch.used).zip(count) {
            let any = count > 0.0;
            *inverse = if any { 1.0 / count } else { 0.0 };
            *used += if any { 1.0 } else { 0.0 };
        }
        if !self.plan.quantities.has_logarithms() {
            return;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of pairs"
        )]
        let logarithm = |count: f64| self.plan.logarithms.of[count as usize];
        let alike = count
            .iter()
            .fold(true, |alike, other| alike & (*other == count[0]));
        let to = &mut scratch.sums[LOG_COUNT];
        if alike {
            to.fill(logarithm(count[0]));
        } else {
            for (to, count) in to.iter_mut().zip(count) {
                *to = logarithm(count);
            }
        }
    }

    /// Writes means over so many offsets.
    #[inline(always)]
    fn write(
        &self,
        scratch: &Scratch,
        (number, y): (usize, usize),
        outputs: &mut [&mut [f32]],
        offsets: usize,
    ) {
        #[allow(clippy::cast_precision_loss, reason = "at most 8")]
        let mut shares = [1.0 / offsets as f64; PART];
        if self.masked {
            // A pixel without a pair is no number, whatever its sums are.
            for (share, used) in shares.iter_mut().zip(&scratch.used) {
                *share = if *used > 0.0 { 1.0 / used } else { f64::NAN };
            }
        }
        let begin = y * self.width + number * PART;
        let end = (begin + PART).min((y + 1) * self.width);
        for (output, sums) in outputs.iter_mut().zip(&scratch.features) {
            let output = output[begin..end].iter_mut();
            #[allow(clippy::cast_possible_truncation, reason = "results are 32-bit floats")]
            output
                .zip(sums.iter().zip(&shares))
                .for_each(|(output, (sum, share))| *output = (sum * share) as f32);
        }
    }
}

/// What a feature of a part of a row is made of.
struct Made<'a> {
    plan: &'a Plan,
    sums: &'a [Part],
    rows: &'a Rows,
    number: usize,
}

/// `count * squares - sum * other`, exactly.
#[inline(always)]
fn spread<const WIDE: bool>(count: f64, squares: f64, sum: f64, other: f64) -> f64 {
    if WIDE {
        let whole = whole(count) * whole(squares) - whole(sum) * whole(other);
        real(whole)
    } else {
        count * squares - sum * other
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "sums are integers below 2^53"
)]
#[inline(always)]
fn whole(value: f64) -> i128 {
    value as i128
}

#[allow(
    clippy::cast_precision_loss,
    reason = "rounded once, after what had to be exact"
)]
#[inline(always)]
fn real(value: i128) -> f64 {
    value as f64
}

impl Made<'_> {
    #[inline(always)]
    fn moment(&self, moment: Moment) -> &Part {
        &self.sums[self.plan.quantities.sum(moment)]
    }

    #[inline(always)]
    fn quantity(&self, quantity: Quantity) -> &Part {
        let slot = self.plan.quantities.slot(quantity);
        self.rows.part(slot, self.number)
    }

    /// `term(count, 1 / count, numbers)` where there is a pair.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "several arrays in step")]
    fn each<const N: usize>(
        &self,
        to: &mut Part,
        from: [&Part; N],
        term: impl Fn(f64, f64, [f64; N]) -> f64,
    ) {
        let (count, inverse) = (&self.sums[COUNT], &self.sums[INVERSE]);
        for x in 0..PART {
            let value = term(count[x], inverse[x], from.map(|row| row[x]));
            to[x] += if count[x] > 0.0 { value } else { 0.0 };
        }
    }

    #[inline(always)]
    fn add<const WIDE: bool>(&self, feature: Feature, to: &mut Part) {
        let fixed = self.plan.fixed_unit();
        match feature {
            Feature::Max | Feature::Energy => self.of_counts(feature, to),
            Feature::Contrast { exponent } => self.mean(to, Moment::Difference(exponent), 1.0),
            Feature::InverseDifferenceMoment => self.mean(to, Moment::InverseSquare, fixed),
            Feature::InverseMoment { exponent } => {
                self.mean(to, Moment::InversePower(exponent), fixed);
            }
            Feature::Homogeneity => self.mean(to, Moment::InverseDifference, fixed),
            Feature::SumAverage => self.mean(to, Moment::Sum(1), 1.0),
            Feature::Correlation if self.symmetric() => self.correlation::<WIDE>(to),
            Feature::Correlation => self.ordered_correlation::<WIDE>(to),
            Feature::CorrelationByVariance => self.correlation_by_variance::<WIDE>(to),
            Feature::HaralickCorrelation => self.haralick_correlation(to),
            Feature::FirstCorrelation => self.first_correlation::<WIDE>(to),
            Feature::FirstHaralickCorrelation => self.first_haralick_correlation(to),
            Feature::FirstCluster { exponent } => self.first_cluster::<WIDE>(exponent, to),
            Feature::Cluster { exponent: 3 } => self.cluster::<WIDE, false>(to),
            Feature::Cluster { exponent: 4 } => self.cluster::<WIDE, true>(to),
            Feature::Cluster { .. } | Feature::SumVariance => {
                self.variance::<WIDE>(to, Moment::Sum(1), Moment::Sum(2));
            }
            Feature::DifferenceVariance => {
                self.variance::<WIDE>(to, Moment::Difference(1), Moment::Difference(2));
            }
            Feature::Variance if self.symmetric() => self.symmetric_variance::<WIDE>(to),
            Feature::Variance => self.variance::<WIDE>(to, Moment::First(1), Moment::First(2)),
            Feature::Entropy
            | Feature::SumEntropy
            | Feature::DifferenceEntropy
            | Feature::InformationMeasure1
            | Feature::InformationMeasure2 => self.of_entropies(feature, to),
            Feature::MaximalCorrelation => {
                let made = self.quantity(Quantity::MaximalCorrelation);
                self.each(to, [made], |_, _, [made]| made);
            }
        }
    }

    #[inline(always)]
    fn of_counts(&self, feature: Feature, to: &mut Part) {
        // A symmetric matrix has two entries for each pair; counts of equal levels were doubled.
        let unit = if self.symmetric() { 0.5 } else { 1.0 };
        if feature == Feature::Max {
            let most = self.quantity(Quantity::Most);
            self.each(to, [most], |_, inverse, [most]| most * inverse * unit);
        } else {
            let energy = self.quantity(Quantity::Energy(Margin::Joint));
            self.each(to, [energy], |_, inverse, [energy]| {
                energy * (inverse * inverse) * unit
            });
        }
    }

    #[inline(always)]
    fn symmetric_variance<const WIDE: bool>(&self, to: &mut Part) {
        let from = self.symmetric_sums();
        self.each(to, from, |count, inverse, [sum, squares, differences]| {
            let spread = spread::<WIDE>(count, squares + differences, sum, sum);
            spread * (inverse * inverse) * 0.25
        });
    }

    #[inline(always)]
    fn symmetric(&self) -> bool {
        self.plan.parameters.symmetric
    }

    #[inline(always)]
    fn mean(&self, to: &mut Part, moment: Moment, unit: f64) {
        let sums = self.moment(moment);
        self.each(to, [sums], |_, inverse, [sum]| sum * inverse * unit);
    }

    #[inline(always)]
    fn variance<const WIDE: bool>(&self, to: &mut Part, first: Moment, second: Moment) {
        let from = [self.moment(first), self.moment(second)];
        self.each(to, from, |count, inverse, [sum, squares]| {
            spread::<WIDE>(count, squares, sum, sum) * (inverse * inverse)
        });
    }

    /// With `s` and `d` of each pair, `2 i j = (s^2 - d^2) / 2` and `i^2 + j^2 = (s^2 + d^2) / 2`.
    #[inline(always)]
    fn symmetric_sums(&self) -> [&Part; 3] {
        [Moment::Sum(1), Moment::Sum(2), Moment::Difference(2)].map(|moment| self.moment(moment))
    }

    #[inline(always)]
    fn correlation<const WIDE: bool>(&self, to: &mut Part) {
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let from = self.symmetric_sums();
        self.each(to, from, |count, _, [sum, squares, differences]| {
            let covariance = spread::<WIDE>(count, squares - differences, sum, sum);
            let variance = spread::<WIDE>(count, squares + differences, sum, sum);
            if variance > 0.0 {
                covariance / variance
            } else {
                flat
            }
        });
    }

    #[inline(always)]
    fn correlation_by_variance<const WIDE: bool>(&self, to: &mut Part) {
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let from = self.symmetric_sums();
        self.each(to, from, |count, _, [sum, squares, differences]| {
            let covariance = spread::<WIDE>(count, squares - differences, sum, sum);
            let variance = spread::<WIDE>(count, squares + differences, sum, sum);
            let twice = 2.0 * count;
            if variance > 0.0 {
                covariance / variance * (twice * twice) / variance
            } else {
                flat
            }
        });
    }

    #[inline(always)]
    fn ordered_correlation<const WIDE: bool>(&self, to: &mut Part) {
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let from = [
            Moment::First(1),
            Moment::First(2),
            Moment::Second(1),
            Moment::Second(2),
            Moment::Product,
        ]
        .map(|moment| self.moment(moment));
        self.each(
            to,
            from,
            |count, _, [first, firsts, second, seconds, product]| {
                let of_first = spread::<WIDE>(count, firsts, first, first);
                let of_second = spread::<WIDE>(count, seconds, second, second);
                let covariance = spread::<WIDE>(count, product, first, second);
                if of_first > 0.0 && of_second > 0.0 {
                    covariance / (of_first.sqrt() * of_second.sqrt())
                } else {
                    flat
                }
            },
        );
    }

    /// The margin's entries are `c / 2N`; their squares' sum is `E / 4N^2`, their mean `1 / levels`.
    #[inline(always)]
    fn haralick_correlation(&self, to: &mut Part) {
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let levels = f64::from(self.plan.parameters.levels);
        let from = [
            self.moment(Moment::Product),
            self.moment(Moment::Sum(1)),
            self.quantity(Quantity::Energy(Margin::First)),
        ];
        self.each(to, from, |count, inverse, [product, sum, energy]| {
            let squares = 4.0 * count * count;
            let variance = (energy * levels - squares) / (squares * levels * levels);
            if variance > 0.0 {
                ((product - sum + count) * inverse - 1.0 / (levels * levels)) / variance
            } else {
                flat
            }
        });
    }

    /// Shade, or prominence: moments about an integer near the mean, exactly, and then about the mean.
    #[inline(always)]
    fn cluster<const WIDE: bool, const FOURTH: bool>(&self, to: &mut Part) {
        let last = if FOURTH { 4 } else { 3 };
        let power = |power: u32| {
            let low = self
                .plan
                .quantities
                .has(Quantity::Moment(Moment::SumLow(power)));
            if low {
                (Moment::SumHigh(power), Moment::SumLow(power))
            } else {
                (Moment::Count, Moment::Sum(power))
            }
        };
        let ((third_high, third), (fourth_high, fourth)) = (power(3), power(last));
        let high = |moment: Moment, value: f64| if moment == Moment::Count { 0.0 } else { value };
        let from = [
            Moment::Sum(1),
            Moment::Sum(2),
            third,
            third_high,
            fourth,
            fourth_high,
        ]
        .map(|moment| self.moment(moment));
        self.each(
            to,
            from,
            |count, inverse, [one, two, three, three_high, four, four_high]| {
                let about = (one * inverse).round_ties_even();
                let (three_high, four_high) =
                    (high(third_high, three_high), high(fourth_high, four_high));
                let central = if WIDE {
                    wide_central(
                        [count, one, two, three, four],
                        [three_high, four_high],
                        about,
                    )
                } else {
                    central([count, one, two, three, four], about)
                };
                let [_, shift, second, third, fourth] = central.map(|sum| sum * inverse);
                if FOURTH {
                    fourth - 4.0 * shift * third + 6.0 * (shift * shift) * second
                        - 3.0 * (shift * shift) * (shift * shift)
                } else {
                    third - 3.0 * shift * second + 2.0 * shift * (shift * shift)
                }
            },
        );
    }

    #[inline(always)]
    fn of_entropies(&self, feature: Feature, to: &mut Part) {
        let unit = match self.plan.parameters.logarithm {
            Logarithm::Binary => 1.0,
            Logarithm::Natural => std::f64::consts::LN_2,
        };
        let bits = self.plan.logarithms.unit();
        let plain = |margin| [self.quantity(Quantity::Log(margin)), &self.sums[LOG_COUNT]];
        match feature {
            Feature::SumEntropy | Feature::DifferenceEntropy => {
                let margin = if feature == Feature::SumEntropy {
                    Margin::Sum
                } else {
                    Margin::Difference
                };
                self.each(to, plain(margin), |_, inverse, [log, log_count]| {
                    entropy(log_count - log * bits * inverse) * unit
                });
            }
            Feature::Entropy if self.symmetric() => {
                let [log, log_count] = plain(Margin::Joint);
                let from = [log, log_count, self.moment(Moment::Same)];
                self.each(to, from, |count, inverse, [log, log_count, same]| {
                    entropy((log_count - log * bits * inverse) + (count - same) * inverse) * unit
                });
            }
            Feature::Entropy => {
                self.each(to, plain(Margin::Joint), |_, inverse, [log, log_count]| {
                    entropy(log_count - log * bits * inverse) * unit
                })
            }
            _ => self.information(feature, to, bits, unit),
        }
    }

    #[inline(always)]
    fn information(&self, feature: Feature, to: &mut Part, bits: f64, unit: f64) {
        let symmetric = self.symmetric();
        let joint = self.quantity(Quantity::Log(Margin::Joint));
        let first = self.quantity(Quantity::Log(Margin::First));
        let second = if symmetric {
            first
        } else {
            self.quantity(Quantity::Log(Margin::Second))
        };
        let same = if symmetric {
            self.moment(Moment::Same)
        } else {
            &self.sums[COUNT]
        };
        let from = [joint, &self.sums[LOG_COUNT], same, first, second];
        // A symmetric margin counts two levels of each pair.
        let (twice, half) = if symmetric { (1.0, 0.5) } else { (0.0, 1.0) };
        self.each(
            to,
            from,
            |count, inverse, [joint, log_count, same, first, second]| {
                let joint = (log_count - joint * bits * inverse) + (count - same) * inverse;
                let joint = entropy(joint);
                let margin =
                    |log: f64| entropy((log_count + twice) - log * bits * (inverse * half));
                let (first, second) = (margin(first), margin(second));
                let shared = (first + second - joint) * unit;
                if feature == Feature::InformationMeasure1 {
                    let most = first.max(second) * unit;
                    if most > 0.0 { -shared / most } else { 0.0 }
                } else {
                    (1.0 - (-2.0 * shared).exp()).max(0.0).sqrt()
                }
            },
        );
    }
}

/// What is not 0 but for rounding. Two bins of at most 2 x 31,752 counts have more than 1e-4 bits.
#[inline(always)]
fn entropy(bits: f64) -> f64 {
    if bits > 1e-6 { bits } else { 0.0 }
}

/// Sums of the powers 0 to 4 of `s - about`, from those of `s`. With 256 levels and 31,752 pairs none of
/// the products reaches 2^57.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "sums are integers below 2^53"
)]
#[allow(
    clippy::cast_precision_loss,
    reason = "rounded once, after what had to be exact"
)]
fn central(sums: [f64; 5], about: f64) -> [f64; 5] {
    let [count, one, two, three, four] = sums.map(|sum| sum as i64);
    let m = about as i64;
    [
        count,
        one - count * m,
        two - 2 * m * one + count * m * m,
        three - 3 * m * two + 3 * m * m * one - count * m * m * m,
        (four - 4 * m * three + 6 * m * m * two)
            .wrapping_sub(4 * m * m * m * one - count * m * m * m * m),
    ]
    .map(|sum| sum as f64)
}

/// The same of 65,536 levels, of whose sums the third and fourth may have come in two parts.
#[inline(always)]
fn wide_central(sums: [f64; 5], high: [f64; 2], about: f64) -> [f64; 5] {
    let [count, one, two, three, four] = sums.map(whole);
    let (three, four) = (
        three + (whole(high[0]) << 32),
        four + (whole(high[1]) << 32),
    );
    let m = whole(about);
    [
        count,
        one - count * m,
        two - 2 * m * one + count * m * m,
        three - 3 * m * two + 3 * m * m * one - count * m * m * m,
        four - 4 * m * three + 6 * m * m * two - 4 * m * m * m * one + count * m * m * m * m,
    ]
    .map(real)
}
