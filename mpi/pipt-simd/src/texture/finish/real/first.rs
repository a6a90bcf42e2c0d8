//! Features that have the mean and the variance of the first level of a pair for both levels, whatever the
//! second one's are. Of a symmetric matrix they are those that have each level's own.

use super::{Made, Moment, Part, central, spread, wide_central};
use crate::texture::quantities::{Margin, Quantity};

impl Made<'_> {
    /// With `A` and `B` the sums of the levels, `(i - A / N) (j - A / N)` sums up to the covariance,
    /// since `i - A / N` sums up to 0; and `4 i j = s^2 - d^2`.
    #[inline(always)]
    pub(super) fn first_correlation<const WIDE: bool>(&self, to: &mut Part) {
        if self.symmetric() {
            return self.correlation_by_variance::<WIDE>(to);
        }
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let from = [
            Moment::First(1),
            Moment::First(2),
            Moment::Sum(1),
            Moment::Sum(2),
            Moment::Difference(2),
        ]
        .map(|moment| self.moment(moment));
        self.each(
            to,
            from,
            |count, _, [first, firsts, sum, squares, differences]| {
                let second = sum - first;
                let four = spread::<WIDE>(count, squares - differences, 2.0 * first, 2.0 * second);
                let variance = spread::<WIDE>(count, firsts, first, first);
                if variance > 0.0 {
                    four / variance * (count * count) / variance * 0.25
                } else {
                    flat
                }
            },
        );
    }

    /// The margin's entries are `c / n`, `n` being the number of pairs, twice where each counts in both
    /// orders; their squares' sum is `E / n^2`, their mean `1 / levels`.
    #[inline(always)]
    pub(super) fn first_haralick_correlation(&self, to: &mut Part) {
        let flat = f64::from(self.plan.parameters.flat_correlation);
        let levels = f64::from(self.plan.parameters.levels);
        let orders = if self.symmetric() { 2.0 } else { 1.0 };
        let from = [
            self.moment(Moment::Sum(2)),
            self.moment(Moment::Difference(2)),
            self.quantity(Quantity::Energy(Margin::First)),
        ];
        self.each(
            to,
            from,
            |count, inverse, [squares, differences, energy]| {
                let pairs = (orders * count) * (orders * count);
                let variance = (energy * levels - pairs) / (pairs * levels * levels);
                if variance > 0.0 {
                    let product = (squares - differences) * 0.25 * inverse;
                    (product - 1.0 / (levels * levels)) / variance
                } else {
                    flat
                }
            },
        );
    }

    #[inline(always)]
    pub(super) fn first_cluster<const WIDE: bool>(&self, exponent: u32, to: &mut Part) {
        match (self.symmetric(), exponent) {
            (true, 3) => self.cluster::<WIDE, false>(to),
            (true, 4) => self.cluster::<WIDE, true>(to),
            (true, _) => self.variance::<WIDE>(to, Moment::Sum(1), Moment::Sum(2)),
            (false, 3) => self.ordered_cluster::<WIDE, false>(to),
            (false, 4) => self.ordered_cluster::<WIDE, true>(to),
            (false, _) => self.ordered_tendency::<WIDE>(to),
        }
    }

    /// `N (s - 2 A / N)^2` sums up to `N s^2 - 4 A B`.
    #[inline(always)]
    fn ordered_tendency<const WIDE: bool>(&self, to: &mut Part) {
        let from =
            [Moment::Sum(1), Moment::Sum(2), Moment::First(1)].map(|moment| self.moment(moment));
        self.each(to, from, |count, inverse, [sum, squares, first]| {
            let spread = spread::<WIDE>(count, squares, 2.0 * first, 2.0 * (sum - first));
            spread * (inverse * inverse)
        });
    }

    /// Moments about an integer near twice the first level's mean, exactly, and then about that.
    #[inline(always)]
    fn ordered_cluster<const WIDE: bool, const FOURTH: bool>(&self, to: &mut Part) {
        let (third, third_high) = self.power_of_sum(3);
        let (fourth, fourth_high) = self.power_of_sum(if FOURTH { 4 } else { 3 });
        let from = [
            self.moment(Moment::First(1)),
            self.moment(Moment::Sum(1)),
            self.moment(Moment::Sum(2)),
            third,
            third_high.unwrap_or(third),
            fourth,
            fourth_high.unwrap_or(fourth),
        ];
        let high = |row: Option<&Part>, value: f64| if row.is_some() { value } else { 0.0 };
        self.each(to, from, |count, inverse, sums| {
            let [first, one, two, three, three_high, four, four_high] = sums;
            let about = (2.0 * first * inverse).round_ties_even();
            let sums = [count, one, two, three, four];
            let central = if WIDE {
                let high = [high(third_high, three_high), high(fourth_high, four_high)];
                wide_central(sums, high, about)
            } else {
                central(sums, about)
            };
            let [_, mean, second, third, fourth] = central.map(|sum| sum * inverse);
            let shift = (2.0 * first - count * about) * inverse;
            if FOURTH {
                fourth - 4.0 * shift * third + 6.0 * (shift * shift) * second
                    - 4.0 * (shift * shift) * shift * mean
                    + (shift * shift) * (shift * shift)
            } else {
                third - 3.0 * shift * second + 3.0 * (shift * shift) * mean
                    - shift * (shift * shift)
            }
        });
    }
}
