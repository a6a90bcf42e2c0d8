//! What becomes of each sample by itself, or of two that lie in one place of two images.
//!
//! Whole numbers of up to 64 bits are computed with exactly where the result is a whole number too; all else in 64-bit
//! floats. What a type has no number for becomes the nearest that it has.

use super::of_real;
use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{SampleType, Samples, Size};

/// What is done to two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// By 0 there is no data. Whole numbers are rounded, halves to the even one.
    Divide,
    And,
    Or,
    Xor,
}

impl Arithmetic {
    fn real(self, a: f64, b: f64) -> Option<f64> {
        Some(match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a * b,
            Self::Divide if b != 0.0 => a / b,
            // Bits are of whole numbers.
            Self::Divide | Self::And | Self::Or | Self::Xor => return None,
        })
    }

    fn whole(self, a: i128, b: i128) -> Option<i128> {
        Some(match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Multiply => a.saturating_mul(b),
            Self::Divide if b != 0 => divided(a, b),
            Self::Divide => return None,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
        })
    }
}

/// Rounded to the nearest, halves to the even one.
fn divided(a: i128, b: i128) -> i128 {
    let (below, rest) = (a.div_euclid(b), a.rem_euclid(b));
    // `a = b * below + rest`, with a rest from 0 to |b|: the other neighbour is one further in the direction of b.
    let further = below + b.signum();
    match (2 * rest).cmp(&b.abs()) {
        std::cmp::Ordering::Less => below,
        std::cmp::Ordering::Greater => further,
        std::cmp::Ordering::Equal if below % 2 == 0 => below,
        std::cmp::Ordering::Equal => further,
    }
}

/// Two images in one.
pub struct Both {
    pub arithmetic: Arithmetic,
    /// Of the result.
    pub kind: SampleType,
    /// What a quotient by 0 is, if not no data.
    pub by_zero: Option<f64>,
}

impl Operation for Both {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, _: SampleType) -> u64 {
        // Both, and the result with whether it is there.
        wanted.pixels() * (16 + 16 + 32)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let [other] = given.others else {
            return Err("Another image is missing".into());
        };
        let (one, two) = (&given.part.samples, &other.samples);
        let there = |place: usize| {
            let is_there = |part: &Part| part.there.as_ref().is_none_or(|there| there[place]);
            is_there(given.part) && is_there(other)
        };
        let wholes = (!self.kind.is_float()).then(|| whole(one).zip(whole(two)));
        let part = if let Some((one, two)) = wholes.flatten() {
            let zero = self
                .by_zero
                .map(|number| to_whole(number.round_ties_even()));
            let of = |a, b| self.arithmetic.whole(a, b).or(zero);
            let pairs = one.into_iter().zip(two).enumerate();
            let results = pairs.map(|(place, (a, b))| there(place).then(|| of(a, b)).flatten());
            made(results, |numbers| of_whole(self.kind, numbers))
        } else {
            let of = |a, b| self.arithmetic.real(a, b).or(self.by_zero);
            let pairs = one.to_f64().into_iter().zip(two.to_f64()).enumerate();
            let results = pairs.map(|(place, (a, b))| there(place).then(|| of(a, b)).flatten());
            made(results, |numbers| of_real(self.kind, numbers))
        };
        Ok(vec![part])
    }
}

/// What is done to a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// The distance to the one number becomes that to the other.
    Invert(f64, f64),
    /// To this base; of what is not above 0 there is no data.
    Log(f64),
    /// The same power of this base.
    Power(f64),
    /// The part of the way from one number to another, to this power; beyond these the nearer one.
    Gamma { power: f64, least: f64, most: f64 },
    /// 1 from one number to the other, else 0.
    Within(f64, f64),
    /// The nearer end of a range, if it is beyond.
    Clip(f64, f64),
    /// Equal steps between two numbers, from 0 on; or the middle of the step.
    Steps {
        levels: f64,
        least: f64,
        most: f64,
        middle: bool,
    },
}

impl Function {
    fn real(self, value: f64) -> Option<f64> {
        Some(match self {
            Self::Invert(least, most) => least + most - value,
            // A logarithm of the base itself is exact, which a quotient of two others is not.
            Self::Log(base) if value > 0.0 => match base {
                2.0 => value.log2(),
                10.0 => value.log10(),
                _ => value.ln(),
            },
            Self::Log(_) => return None,
            Self::Power(base) => match base {
                2.0 => value.exp2(),
                10.0 => 10_f64.powf(value),
                _ => value.exp(),
            },
            Self::Gamma { power, least, most } => {
                let part = ((value - least) / (most - least)).clamp(0.0, 1.0);
                least + (most - least) * part.powf(power)
            }
            Self::Within(least, most) => f64::from(u8::from((least..=most).contains(&value))),
            Self::Clip(least, most) => value.clamp(least, most),
            Self::Steps {
                levels,
                least,
                most,
                middle,
            } => {
                let step = ((value - least) / (most - least) * levels).floor();
                let step = step.clamp(0.0, levels - 1.0);
                match middle {
                    true => least + (step + 0.5) * ((most - least) / levels),
                    false => step,
                }
            }
        })
    }

    /// What has to be exact for whole numbers of all sizes.
    fn whole(self, value: i128) -> Option<i128> {
        match self {
            Self::Invert(least, most) if is_whole(least) && is_whole(most) => {
                Some(to_whole(least) + to_whole(most) - value)
            }
            // Within a range there are the whole numbers from the next above to the next below.
            Self::Clip(least, most) => Some(
                value
                    .max(to_whole(least.ceil()))
                    .min(to_whole(most.floor())),
            ),
            _ => None,
        }
    }

    fn is_exact(self) -> bool {
        self.whole(0).is_some()
    }
}

fn is_whole(value: f64) -> bool {
    value.fract() == 0.0
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "limits of types are far below 2^127, and it saturates"
)]
fn to_whole(value: f64) -> i128 {
    // The greatest number of 64 bits is no float: the nearest one is one more.
    let whole = value as i128;
    let limits = [i128::from(u64::MAX), i128::from(i64::MAX)];
    let found = limits.into_iter().find(|limit| whole == limit + 1);
    found.unwrap_or(whole)
}

/// Each sample of an image.
pub struct Point {
    pub function: Function,
    /// Of the result.
    pub kind: SampleType,
}

impl Operation for Point {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, _: SampleType) -> u64 {
        wanted.pixels() * (16 + 32)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let (function, kind) = (self.function, self.kind);
        let there = |place: usize| given.part.there.as_ref().is_none_or(|there| there[place]);
        let wholes = (!kind.is_float() && function.is_exact()).then(|| whole(&given.part.samples));
        let part = if let Some(numbers) = wholes.flatten() {
            let numbers = numbers.into_iter().enumerate();
            let results = numbers
                .map(|(place, number)| there(place).then(|| function.whole(number)).flatten());
            made(results, |numbers| of_whole(kind, numbers))
        } else {
            let numbers = given.part.samples.to_f64().into_iter().enumerate();
            let results = numbers
                .map(|(place, number)| there(place).then(|| function.real(number)).flatten());
            made(results, |numbers| of_real(kind, numbers))
        };
        Ok(vec![part])
    }
}

/// Samples, and which of them are there.
fn made<N: Copy + Default>(
    results: impl Iterator<Item = Option<N>>,
    samples: impl FnOnce(&[N]) -> Samples,
) -> Part {
    let results: Vec<Option<N>> = results.collect();
    let there: Vec<bool> = results.iter().map(Option::is_some).collect();
    let numbers: Vec<N> = results.into_iter().map(Option::unwrap_or_default).collect();
    Part {
        samples: samples(&numbers),
        there: there.contains(&false).then_some(there),
    }
}

/// None of floats.
fn whole(samples: &Samples) -> Option<Vec<i128>> {
    fn all<T: Copy + Into<i128>>(values: &[T]) -> Vec<i128> {
        values.iter().map(|value| (*value).into()).collect()
    }
    Some(match samples {
        Samples::U8(values) => all(values),
        Samples::U16(values) => all(values),
        Samples::U32(values) => all(values),
        Samples::U64(values) => all(values),
        Samples::I8(values) => all(values),
        Samples::I16(values) => all(values),
        Samples::I32(values) => all(values),
        Samples::I64(values) => all(values),
        Samples::F32(_) | Samples::F64(_) => return None,
    })
}

fn of_whole(kind: SampleType, numbers: &[i128]) -> Samples {
    fn all<T: TryFrom<i128> + Copy>(numbers: &[i128], (least, most): (T, T)) -> Vec<T> {
        let near = |number: &i128| if *number < 0 { least } else { most };
        let of = |number: &i128| T::try_from(*number).unwrap_or_else(|_| near(number));
        numbers.iter().map(of).collect()
    }
    macro_rules! all_of {
        ($type:ident) => {
            all::<$type>(numbers, ($type::MIN, $type::MAX)).into()
        };
    }
    match kind {
        SampleType::U8 => all_of!(u8),
        SampleType::U16 => all_of!(u16),
        SampleType::U32 => all_of!(u32),
        SampleType::U64 => all_of!(u64),
        SampleType::I8 => all_of!(i8),
        SampleType::I16 => all_of!(i16),
        SampleType::I32 => all_of!(i32),
        SampleType::I64 => all_of!(i64),
        SampleType::F32 | SampleType::F64 => {
            #[allow(clippy::cast_precision_loss, reason = "rounded once")]
            let reals: Vec<f64> = numbers.iter().map(|number| *number as f64).collect();
            of_real(kind, &reals)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_halves_to_the_even_one() {
        for (a, b, expected) in [
            (7, 2, 4),
            (5, 2, 2),
            (-5, 2, -2),
            (-7, 2, -4),
            (5, -2, -2),
            (7, -2, -4),
            (-7, -2, 4),
            (8, 3, 3),
            (-8, 3, -3),
            (7, 3, 2),
            (0, -9, 0),
        ] {
            assert_eq!(divided(a, b), expected, "{a} / {b}");
        }
        assert_eq!(Arithmetic::Divide.whole(3, 0), None);
        assert_eq!(Arithmetic::Divide.real(3.0, 0.0), None);
    }

    #[test]
    fn the_greatest_numbers_are_exact() {
        let most = of_whole(SampleType::U64, &[i128::from(u64::MAX) * 2, -1]);
        assert_eq!(most, vec![u64::MAX, 0].into());
        let invert = Function::Invert(0.0, 18_446_744_073_709_551_615.0);
        assert_eq!(invert.whole(1), Some(i128::from(u64::MAX) - 1));
        assert_eq!(Function::Clip(1.5, 9.5).whole(1), Some(2));
        assert_eq!(Function::Clip(1.5, 9.5).whole(11), Some(9));
        assert_eq!(Function::Log(2.0).real(8.0), Some(3.0));
        assert_eq!(Function::Log(10.0).real(0.0), None);
    }
}
