//! Sums that have no rounding, so that they do not depend on an order.
//!
//! The samples of a block become integers, multiples of a common power of two; their sums are integers, and
//! one division at the end gives the mean. Floats of a block that lie too far apart even for 128 bits are
//! summed window by window, in an accumulator as wide as all `f64`s. Both ways round the same exact sum in
//! the same way, so nothing depends on what else is in a block.

use pipt_raster::{Sample, SampleType};

/// A sum of integers.
pub(super) trait Sum: Copy + Default {
    fn of(value: i128) -> Self;
    /// It, or nothing.
    fn only_if(self, kept: bool) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn wide(self) -> i128;
}

/// For order statistics, which need none.
impl Sum for () {
    fn of(_: i128) {}
    fn only_if(self, _: bool) {}
    fn plus(self, (): Self) {}
    fn minus(self, (): Self) {}
    fn wide(self) -> i128 {
        0
    }
}

macro_rules! sum {
    ($($type:ident)*) => {$(
        impl Sum for $type {
            #[allow(clippy::cast_possible_truncation, reason = "`Scale` chose a type that holds it")]
            #[inline(always)]
            fn of(value: i128) -> Self {
                value as Self
            }

            #[inline(always)]
            fn only_if(self, kept: bool) -> Self {
                // A branch here would be foretold wrongly for every other sample.
                self & -Self::from(kept)
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn wide(self) -> i128 {
                i128::from(self)
            }
        }
    )*};
}

sum!(i64 i128);

/// What the integers of a block stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Multiples of two to this power; whether sums of 65025 of them fit into 64 bits.
    Fixed { exponent: i32, narrow: bool },
    /// Integers would be too large.
    Wide,
}

/// A finite number as a whole number and a power of two.
fn parts(value: f64) -> (i64, i32) {
    let bits = value.to_bits();
    let exponent = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let fraction = (bits & ((1 << 52) - 1)).cast_signed();
    let (whole, exponent) = if exponent == 0 {
        (fraction, -1074)
    } else {
        (fraction | 1 << 52, exponent - 1075)
    };
    (if bits >> 63 == 1 { -whole } else { whole }, exponent)
}

/// Of the finite numbers of a block.
pub(super) fn scale<T: Sample>(keys: &[u64]) -> Scale {
    match T::TYPE {
        SampleType::U64 | SampleType::I64 => {
            return Scale::Fixed {
                exponent: 0,
                narrow: false,
            };
        }
        SampleType::F32 | SampleType::F64 => {}
        _ => {
            return Scale::Fixed {
                exponent: 0,
                narrow: true,
            };
        }
    }
    let (mut least, mut most) = (i32::MAX, i32::MIN);
    for key in keys {
        let value = T::of_key(*key).to_f64();
        if value.is_finite() && value != 0.0 {
            let (whole, exponent) = parts(value);
            let zeros = whole.trailing_zeros().cast_signed();
            least = least.min(exponent + zeros);
            most = most.max(exponent + 53);
        }
    }
    // 16 bits more for 65025 values, and one for the sign.
    match most.saturating_sub(least) {
        _ if least > most => Scale::Fixed {
            exponent: 0,
            narrow: true,
        },
        bits if bits <= 63 - 17 => Scale::Fixed {
            exponent: least,
            narrow: true,
        },
        bits if bits <= 127 - 17 => Scale::Fixed {
            exponent: least,
            narrow: false,
        },
        _ => Scale::Wide,
    }
}

/// The integer of a sample; 0 for infinities, which the caller looks for.
pub(super) fn integer<T: Sample>(key: u64, exponent: i32) -> i128 {
    match T::TYPE {
        SampleType::U64 => i128::from(key),
        SampleType::I64 => i128::from(key) - (1 << 63),
        _ => {
            let value = T::of_key(key).to_f64();
            if !value.is_finite() || value == 0.0 {
                return 0;
            }
            let (whole, own) = parts(value);
            let zeros = whole.trailing_zeros();
            // Of integers the exponent is 0, and that of the value with its zeros shifted out is not below.
            let up = u32::try_from(own + zeros.cast_signed() - exponent).unwrap_or(0);
            i128::from(whole >> zeros) << up
        }
    }
}

/// `value * 2^exponent`, rounded once where it becomes subnormal.
fn scaled(value: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| {
        let biased = u64::try_from(exponent + 1023).unwrap_or(0);
        f64::from_bits(biased << 52)
    };
    let mut left = exponent.clamp(-3000, 3000);
    let mut value = value;
    // Only the last step can round: |value| is 0 or more than 2^-17, and no exponent is below -1075.
    while left > 1000 {
        value *= power(1000);
        left -= 1000;
    }
    if left < -900 {
        value *= power(-900);
        left += 900;
    }
    value * power(left)
}

/// The mean of so many values with this exact sum of integers; `O` is their own type or another one.
#[allow(
    clippy::cast_precision_loss,
    reason = "the one rounding that is documented"
)]
pub(super) fn mean<T: Sample, O: Sample>(sum: i128, count: u32, exponent: i32) -> O {
    let wide = matches!(T::TYPE, SampleType::U64 | SampleType::I64);
    if wide && T::TYPE == O::TYPE {
        return O::of_key(whole_mean(sum, count, T::TYPE));
    }
    let quotient = sum as f64 / f64::from(count);
    // Adding +0 makes +0 of a -0 that was too small.
    O::of_f64(if exponent == 0 {
        quotient
    } else {
        scaled(quotient, exponent) + 0.0
    })
}

/// The mean of two values that are given as keys.
pub(super) fn mean_of_two<T: Sample, O: Sample>(first: u64, last: u64) -> O {
    if T::TYPE.is_float() {
        let ends = [first, last].map(|key| T::of_key(key).to_f64());
        if !(ends[0].is_finite() && ends[1].is_finite()) {
            return O::of_f64(infinite(ends));
        }
        // The sum is rounded once, and halving is exact but where it becomes subnormal, as in `scaled`.
        let sum = ends[0] + ends[1];
        return O::of_f64(if sum.is_finite() {
            sum / 2.0 + 0.0
        } else {
            ends[0] / 2.0 + ends[1] / 2.0
        });
    }
    mean::<T, O>(integer::<T>(first, 0) + integer::<T>(last, 0), 2, 0)
}

/// The mean of values of which not both ends are finite.
pub(super) fn infinite(ends: [f64; 2]) -> f64 {
    if ends[0].is_infinite() && ends[1].is_infinite() {
        ends[0] + ends[1]
    } else if ends[0].is_infinite() {
        ends[0]
    } else {
        ends[1]
    }
}

/// The key of the mean of 64-bit integers, ties to even.
fn whole_mean(sum: i128, count: u32, kind: SampleType) -> u64 {
    let count = i128::from(count);
    let (down, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    let up = 2 * rest > count || (2 * rest == count && down & 1 == 1);
    let mean = down + i128::from(up);
    let key = if kind == SampleType::I64 {
        mean + (1 << 63)
    } else {
        mean
    };
    u64::try_from(key).unwrap_or(u64::MAX)
}

/// An accumulator for any finite `f64`s: 32 bits of the sum in each place, with room for carries.
pub(super) struct Accumulator {
    places: [i64; 68],
}

impl Accumulator {
    pub(super) const fn new() -> Self {
        Self { places: [0; 68] }
    }

    /// At most 2^30 of them.
    pub(super) fn add(&mut self, value: f64) {
        let (whole, exponent) = parts(value);
        let from = usize::try_from(exponent + 1074).unwrap_or(0);
        let shifted = i128::from(whole) << (from % 32);
        let (negative, mut left) = (shifted < 0, shifted.unsigned_abs());
        for place in &mut self.places[from / 32..] {
            if left == 0 {
                break;
            }
            let part = i64::from(u32::try_from(left & 0xffff_ffff).unwrap_or(0));
            *place += if negative { -part } else { part };
            left >>= 32;
        }
    }

    /// The sum, rounded to 53 bits, and divided.
    #[allow(
        clippy::cast_precision_loss,
        reason = "the one rounding that is documented"
    )]
    pub(super) fn mean(mut self, count: u32) -> f64 {
        let negative = self.carry();
        if negative {
            for place in &mut self.places {
                *place = -*place;
            }
            self.carry();
        }
        let Some(top) = self.places.iter().rposition(|place| *place != 0) else {
            return 0.0;
        };
        // The highest three places hold at least 65 bits; what is below only decides ties.
        let low = top.saturating_sub(2);
        let mut high: i128 = 0;
        for place in self.places[low..=top].iter().rev() {
            high = high << 32 | i128::from(*place);
        }
        let below = self.places[..low].iter().any(|place| *place != 0);
        let rounded = (high << 1 | i128::from(below)) as f64;
        let exponent = i32::try_from(32 * low).unwrap_or(0) - 1074 - 1;
        let mean = scaled(rounded / f64::from(count), exponent);
        if negative { -mean + 0.0 } else { mean }
    }

    /// Brings all places but the last below 2^32; whether the sum is negative.
    fn carry(&mut self) -> bool {
        let last = self.places.len() - 1;
        let mut carry = 0;
        for place in &mut self.places[..last] {
            let sum = *place + carry;
            *place = sum & 0xffff_ffff;
            carry = sum >> 32;
        }
        self.places[last] += carry;
        self.places[last] < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_is_rounded_once() {
        for (value, exponent, wanted) in [
            (1.0, -1074, f64::from_bits(1)),
            (1.5, -1074, f64::from_bits(2)),
            (1.499_999_999_999_999_8, -1074, f64::from_bits(1)),
            (0.75, 1024, 0.75 * 2f64.powi(1000) * 2f64.powi(24)),
            (2f64.powi(120), -1190, 2f64.powi(-1070)),
            (1.0, 3000, f64::INFINITY),
            (1.0, -3000, 0.0),
        ] {
            assert_eq!(
                scaled(value, exponent).to_bits(),
                wanted.to_bits(),
                "{value} {exponent}"
            );
        }
    }

    #[test]
    fn an_accumulator_loses_nothing() {
        let mut sum = Accumulator::new();
        for value in [1e300, 3.0, -1e300, 5e-324, -5e-324, 4.0] {
            sum.add(value);
        }
        assert_eq!(sum.mean(2).to_bits(), 3.5f64.to_bits());
        let mut sum = Accumulator::new();
        for value in [-f64::MAX, -f64::MAX, -f64::MAX] {
            sum.add(value);
        }
        assert_eq!(sum.mean(3).to_bits(), (-f64::MAX).to_bits());
    }

    #[test]
    fn means_of_wide_integers_round_to_even() {
        let mean = |sum, count| mean::<i64, i64>(sum, count, 0);
        assert_eq!(
            (mean(5, 2), mean(7, 2), mean(-5, 2), mean(-7, 2)),
            (2, 4, -2, -4)
        );
        assert_eq!(mean(i128::from(i64::MAX) * 3, 3), i64::MAX);
        assert_eq!(mean(i128::from(i64::MIN) * 3, 3), i64::MIN);
    }
}
