//! Features in 64-bit floats, in which sums are integers below 2^53. With more than 256 levels differences of
//! products are computed in wider integers.

use super::{Arithmetic, At, Finish, Scratch};
use crate::Level;
use crate::texture::moments::Moment;
use crate::texture::parameters::{Feature, Logarithm};
use crate::texture::plan::Plan;
use crate::texture::quantities::{COUNT, FIRST_FREE, Margin, Quantity};
use crate::texture::rows::{PART, Rows};

mod first;

type Part = crate::texture::rows::Part<f64>;

/// 64-bit floats.
pub(in crate::texture) enum Real {}

impl Arithmetic for Real {
    type Sum = f64;
    type Value = f64;

    fn finish(
        level: Level,
        all: &Finish<'_, f64>,
        scratch: &mut Scratch<Self>,
        y: usize,
        outputs: &mut [&mut [f32]],
    ) {
        super::finish_real(level, all, scratch, y, outputs);
    }

    #[inline(always)]
    fn log_count(plan: &Plan, pairs: usize) -> f64 {
        plan.logarithms.of[pairs]
    }

    #[inline(always)]
    fn add(all: &Finish<'_, f64>, scratch: &mut Scratch<Self>, at: At) {
        let made = Made {
            plan: all.plan,
            sums: scratch.sums.as_chunks().0,
            inverse: &scratch.inverse,
            log_count: &scratch.log_count,
            rows: &all.rows[at.matrix],
            maximal: all.maximal.get(at.matrix),
            made: at.made,
            number: at.part,
        };
        let features = all.plan.parameters.features.iter();
        for (feature, to) in features.zip(scratch.features.as_chunks_mut().0) {
            if all.plan.wide {
                made.add::<true>(*feature, to);
            } else {
                made.add::<false>(*feature, to);
            }
        }
    }
}

/// What a feature of a part of a row is made of.
struct Made<'a> {
    plan: &'a Plan,
    sums: &'a [Part],
    /// 1 divided by the number of pairs, or 0.
    inverse: &'a Part,
    /// `log2` of it.
    log_count: &'a Part,
    rows: &'a Rows<f64>,
    maximal: Option<&'a Rows<f64>>,
    /// Whether moments are among the rows.
    made: bool,
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
        let quantities = &self.plan.quantities;
        let place = quantities.sum(moment);
        match place.checked_sub(FIRST_FREE) {
            Some(place) if self.made => self.rows.part(quantities.rows() + place, self.number),
            _ => &self.sums[place],
        }
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
        let (count, inverse) = (&self.sums[COUNT], self.inverse);
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
                if let Some(made) = self.maximal {
                    let made = made.part(0, self.number);
                    self.each(to, [made], |_, _, [made]| made);
                }
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
        let (third, third_high) = self.power_of_sum(3);
        let (fourth, fourth_high) = self.power_of_sum(if FOURTH { 4 } else { 3 });
        let from = [
            self.moment(Moment::Sum(1)),
            self.moment(Moment::Sum(2)),
            third,
            third_high.unwrap_or(third),
            fourth,
            fourth_high.unwrap_or(fourth),
        ];
        let high = |row: Option<&Part>, value: f64| if row.is_some() { value } else { 0.0 };
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

    /// The sum of a power of `s`, and of what is beyond 32 bits where it came in two parts.
    #[inline(always)]
    fn power_of_sum(&self, power: u32) -> (&Part, Option<&Part>) {
        let low = Moment::SumLow(power);
        if self.plan.quantities.has(Quantity::Moment(low)) {
            (self.moment(low), Some(self.moment(Moment::SumHigh(power))))
        } else {
            (self.moment(Moment::Sum(power)), None)
        }
    }

    #[inline(always)]
    fn of_entropies(&self, feature: Feature, to: &mut Part) {
        let unit = match self.plan.parameters.logarithm {
            Logarithm::Binary => 1.0,
            Logarithm::Natural => std::f64::consts::LN_2,
        };
        let bits = self.plan.logarithms.unit();
        let plain = |margin| [self.quantity(Quantity::Log(margin)), self.log_count];
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
        let from = [joint, self.log_count, same, first, second];
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
