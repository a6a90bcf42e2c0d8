//! Noise meets samples.

use crate::{Level, for_each_level};
use pipt_raster::Sample;

/// A sample that noise can be added to: all are. There are at least as many random words as samples.
pub trait Noisy: Sample {
    /// Least and largest sample; of floats 0 and 1, between which those of a picture lie.
    #[doc(hidden)]
    const ENDS: (Self, Self);

    /// Adds numbers between two bounds.
    #[doc(hidden)]
    fn add_uniform(level: Level, samples: &mut [Self], words: &[u32], bounds: (f64, f64));

    /// Adds numbers with this mean and standard deviation; words are bits of normal `f32`s.
    #[doc(hidden)]
    fn add_normal(level: Level, samples: &mut [Self], words: &[u32], shape: (f64, f64));

    /// Adds to each sample its product with such a number.
    #[doc(hidden)]
    fn add_product(level: Level, samples: &mut [Self], words: &[u32], shape: (f64, f64));

    /// Samples become the second end where the word is below the first number, else the first end where it is
    /// below the second.
    #[doc(hidden)]
    fn replace(
        level: Level,
        samples: &mut [Self],
        words: &[u32],
        below: (u64, u64),
        ends: (Self, Self),
    );

    /// Turns a bit over where the word is below a number.
    #[doc(hidden)]
    fn turn_bits(level: Level, samples: &mut [Self], words: &[u32], which: (u64, u32));
}

/// How noise is added to one sample.
trait Add: Copy {
    /// Of a random word: a number between 0 and 1, and not one of these.
    type Number: Number;
    const ENDS: (Self, Self);
    fn number(self) -> Self::Number;
    fn plus(self, noise: Self::Number) -> Self;
    fn turn(self, bit: u32, by: bool) -> Self;
}

/// `f32` is enough for samples of 8 and 16 bits, and twice as fast.
trait Number: Copy {
    fn of(value: f64) -> Self;
    fn normal(value: f32) -> Self;
    fn unit(word: u32) -> Self;
    fn line(self, slope: Self, from: Self) -> Self;
    fn times(self, by: Self) -> Self;
}

impl Number for f32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "more saturates every sample anyway"
    )]
    fn of(value: f64) -> Self {
        value.clamp(-1e30, 1e30) as Self
    }

    #[inline(always)]
    fn normal(value: f32) -> Self {
        value
    }

    #[allow(clippy::cast_precision_loss, reason = "23 bits and a half of one fit")]
    #[inline(always)]
    fn unit(word: u32) -> Self {
        ((word >> 9).cast_signed() as Self + 0.5) * (1.0 / 8_388_608.0)
    }

    #[inline(always)]
    fn line(self, slope: Self, from: Self) -> Self {
        self * slope + from
    }

    #[inline(always)]
    fn times(self, by: Self) -> Self {
        self * by
    }
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn normal(value: f32) -> Self {
        Self::from(value)
    }

    #[inline(always)]
    fn unit(word: u32) -> Self {
        (Self::from(word) + 0.5) * (1.0 / 4_294_967_296.0)
    }

    #[inline(always)]
    fn line(self, slope: Self, from: Self) -> Self {
        self * slope + from
    }

    #[inline(always)]
    fn times(self, by: Self) -> Self {
        self * by
    }
}

macro_rules! narrow {
    ($($type:ident $unsigned:ident)*) => {$(
        impl Add for $type {
            type Number = f32;
            const ENDS: (Self, Self) = (Self::MIN, Self::MAX);

            #[inline(always)]
            fn number(self) -> f32 {
                f32::from(self)
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "clamped before"
            )]
            #[inline(always)]
            fn plus(self, noise: f32) -> Self {
                // 1.5 * 2^23: the sum has no place for fractions, so it is rounded, ties to even, and its
                // lower bits are a whole number. Every instruction set has this.
                const SHIFT: f32 = 12_582_912.0;
                let whole = (noise.clamp(-70_000.0, 70_000.0) + SHIFT).to_bits().cast_signed();
                let sum = i32::from(self) + (whole - SHIFT.to_bits().cast_signed());
                sum.clamp(i32::from(Self::MIN), i32::from(Self::MAX)) as Self
            }

            #[allow(clippy::cast_possible_wrap, reason = "bits are meant")]
            #[inline(always)]
            fn turn(self, bit: u32, by: bool) -> Self {
                self ^ ($unsigned::from(by) << bit) as Self
            }
        }
    )*};
}

narrow!(u8 u8 i8 u8 u16 u16 i16 u16);

macro_rules! wide {
    ($($type:ident $unsigned:ident $sum:expr;)*) => {$(
        impl Add for $type {
            type Number = f64;
            const ENDS: (Self, Self) = (Self::MIN, Self::MAX);

            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "the nearest one is meant")]
            #[inline(always)]
            fn number(self) -> f64 {
                self as f64
            }

            #[allow(clippy::cast_possible_truncation, reason = "`as` saturates, as is documented")]
            #[inline(always)]
            fn plus(self, noise: f64) -> Self {
                let sum: fn(Self, i64) -> Self = $sum;
                sum(self, noise.round_ties_even() as i64)
            }

            #[allow(clippy::cast_possible_wrap, reason = "bits are meant")]
            #[inline(always)]
            fn turn(self, bit: u32, by: bool) -> Self {
                self ^ ($unsigned::from(by) << bit) as Self
            }
        }
    )*};
}

wide! {
    u32 u32 |value, noise| {
        let sum = i64::from(value).saturating_add(noise).max(0);
        u32::try_from(sum).unwrap_or(u32::MAX)
    };
    i32 u32 |value, noise| {
        let sum = i64::from(value).saturating_add(noise);
        i32::try_from(sum).unwrap_or(if sum < 0 { i32::MIN } else { i32::MAX })
    };
    u64 u64 |value, noise| value.saturating_add_signed(noise);
    i64 u64 |value, noise| value.saturating_add(noise);
}

macro_rules! float {
    ($($type:ident $unsigned:ident)*) => {$(
        impl Add for $type {
            type Number = f64;
            const ENDS: (Self, Self) = (0.0, 1.0);

            #[inline(always)]
            fn number(self) -> f64 {
                f64::from(self)
            }

            #[allow(clippy::cast_possible_truncation, reason = "the nearest one is meant")]
            #[inline(always)]
            fn plus(self, noise: f64) -> Self {
                (f64::from(self) + noise) as Self
            }

            #[inline(always)]
            fn turn(self, bit: u32, by: bool) -> Self {
                Self::from_bits(self.to_bits() ^ ($unsigned::from(by) << bit))
            }
        }
    )*};
}

float!(f32 u32 f64 u64);

#[inline(always)]
fn uniform<T: Add>(samples: &mut [T], words: &[u32], bounds: (f64, f64)) {
    let (slope, from) = (T::Number::of(bounds.1 - bounds.0), T::Number::of(bounds.0));
    for (sample, word) in samples.iter_mut().zip(words) {
        *sample = sample.plus(T::Number::unit(*word).line(slope, from));
    }
}

#[inline(always)]
fn normal<T: Add>(samples: &mut [T], words: &[u32], shape: (f64, f64)) {
    let (slope, from) = (T::Number::of(shape.1), T::Number::of(shape.0));
    for (sample, word) in samples.iter_mut().zip(words) {
        let noise = T::Number::normal(f32::from_bits(*word));
        *sample = sample.plus(noise.line(slope, from));
    }
}

#[inline(always)]
fn product<T: Add>(samples: &mut [T], words: &[u32], shape: (f64, f64)) {
    let (slope, from) = (T::Number::of(shape.1), T::Number::of(shape.0));
    for (sample, word) in samples.iter_mut().zip(words) {
        let noise = T::Number::normal(f32::from_bits(*word)).line(slope, from);
        *sample = sample.plus(noise.times(sample.number()));
    }
}

#[inline(always)]
fn replaced<T: Add>(samples: &mut [T], words: &[u32], below: (u64, u64), ends: (T, T)) {
    for (sample, word) in samples.iter_mut().zip(words) {
        let word = u64::from(*word);
        let dark = if word < below.1 { ends.0 } else { *sample };
        *sample = if word < below.0 { ends.1 } else { dark };
    }
}

#[inline(always)]
fn turn<T: Add>(samples: &mut [T], words: &[u32], (below, bit): (u64, u32)) {
    for (sample, word) in samples.iter_mut().zip(words) {
        *sample = sample.turn(bit, u64::from(*word) < below);
    }
}

macro_rules! noisy {
    ($($type:ident)*) => {$(
        impl Noisy for $type {
            const ENDS: (Self, Self) = <$type as Add>::ENDS;

            fn add_uniform(level: Level, samples: &mut [Self], words: &[u32], bounds: (f64, f64)) {
                for_each_level! {
                    fn run(samples: &mut [$type], words: &[u32], bounds: (f64, f64)) = uniform::<$type>;
                }
                run(level, samples, words, bounds);
            }

            fn add_normal(level: Level, samples: &mut [Self], words: &[u32], shape: (f64, f64)) {
                for_each_level! {
                    fn run(samples: &mut [$type], words: &[u32], shape: (f64, f64)) = normal::<$type>;
                }
                run(level, samples, words, shape);
            }

            fn add_product(level: Level, samples: &mut [Self], words: &[u32], shape: (f64, f64)) {
                for_each_level! {
                    fn run(samples: &mut [$type], words: &[u32], shape: (f64, f64)) = product::<$type>;
                }
                run(level, samples, words, shape);
            }

            fn replace(
                level: Level,
                samples: &mut [Self],
                words: &[u32],
                below: (u64, u64),
                ends: (Self, Self),
            ) {
                for_each_level! {
                    fn run(
                        samples: &mut [$type],
                        words: &[u32],
                        below: (u64, u64),
                        ends: ($type, $type),
                    ) = replaced::<$type>;
                }
                run(level, samples, words, below, ends);
            }

            fn turn_bits(level: Level, samples: &mut [Self], words: &[u32], which: (u64, u32)) {
                for_each_level! {
                    fn run(samples: &mut [$type], words: &[u32], which: (u64, u32)) = turn::<$type>;
                }
                run(level, samples, words, which);
            }
        }
    )*};
}

noisy!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
