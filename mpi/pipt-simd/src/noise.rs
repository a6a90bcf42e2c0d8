//! Noise that depends on a seed and on where a pixel is, and on nothing else.
//!
//! Random numbers are those of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As
//! Easy as 1, 2, 3", 2011): a function of the seed, of the number of the pixel in the image (`y * width +
//! x`), of the band, and of what they are for. So an image gets the same noise in whatever parts it is
//! worked on, in whatever order, on whatever instruction set.
//!
//! Of numbers the noise is rounded to a whole one (ties to even), then added; what is then too large or too
//! small becomes the largest or smallest sample. To floats it is added as `f64`, and the sum rounded.

mod apply;
mod normal;
mod philox;

use std::fmt;

pub use apply::Noisy;

use crate::Level;
use philox::{GROUP, Stream};
use pipt_raster::Rect;

/// What is done to each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// A number between both is added, each as likely: one of 2^23 in equal distances for samples of 8 and
    /// 16 bits, of 2^32 for wider ones.
    Uniform { minimum: f64, maximum: f64 },
    /// A number of the normal distribution is added. It is made as a 24-bit float by the method of Box and
    /// Muller (1958), and at most 6.7 standard deviations from the mean: beyond lies one of 10^10.
    Gaussian { mean: f64, deviation: f64 },
    /// A number of Laplace's distribution is added: on both sides of the mean an exponential one, whose
    /// distances have the mean `deviation / sqrt(2)` (Laplace, "Mémoire sur la probabilité des causes par
    /// les évènements", 1774). It is made as a 24-bit float, and at most 16 standard deviations from the mean.
    Laplacian { mean: f64, deviation: f64 },
    /// The sample times a number of the normal distribution is added, as a coherent wave's echo varies.
    /// Samples of 64 bits are multiplied as `f64`s.
    Speckle { mean: f64, deviation: f64 },
    /// With this probability, in steps of 2^-32, the sample becomes the first or the second of `ends`, or if
    /// there are none the least or the largest of its type, of floats 0 or 1: the second (salt) in this part
    /// of the cases.
    SaltPepper {
        probability: f64,
        salt: f64,
        ends: Option<(f64, f64)>,
    },
    /// Each bit of the sample is turned over with this probability, in steps of 2^-32: of floats too.
    BitError { probability: f64 },
}

/// Noise for one band of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generator {
    noise: Noise,
    seed: u64,
    width: u32,
    band: u32,
}

/// Noise cannot be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseError {
    /// A bound, mean or deviation is no number, or beyond 10^300.
    NoNumber(f64),
    /// The first is larger than the second.
    Bounds(f64, f64),
    Deviation(f64),
    Probability(f64),
    /// The rectangle is not within an image of this width.
    Outside(Rect, u32),
    /// The rectangle has more samples, or rows overlap.
    Short {
        place: Rect,
        stride: usize,
        samples: usize,
    },
}

impl fmt::Display for NoiseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber(value) => {
                write!(
                    to,
                    "Noise cannot be made of {value}: give a number of at most 1e300"
                )
            }
            Self::Bounds(minimum, maximum) => write!(
                to,
                "Nothing lies between {minimum} and {maximum}: give the smaller one first"
            ),
            Self::Deviation(value) => {
                write!(to, "No standard deviation is {value}: give 0 or more")
            }
            Self::Probability(value) => {
                write!(to, "No probability is {value}: give a number from 0 to 1")
            }
            Self::Outside(place, width) => {
                write!(
                    to,
                    "The part {place} is not within an image {width} pixels wide"
                )
            }
            Self::Short {
                place,
                stride,
                samples,
            } => write!(
                to,
                "{samples} samples, {stride} from row to row, are too few for the part {place}"
            ),
        }
    }
}

impl std::error::Error for NoiseError {}

impl Noise {
    fn check(self) -> Result<(), NoiseError> {
        match self {
            Self::Uniform { minimum, maximum } => bounds(minimum, maximum),
            Self::Gaussian { mean, deviation }
            | Self::Laplacian { mean, deviation }
            | Self::Speckle { mean, deviation } => {
                number(mean)?;
                number(deviation)?;
                if deviation < 0.0 {
                    return Err(NoiseError::Deviation(deviation));
                }
                Ok(())
            }
            Self::SaltPepper {
                probability: often,
                salt,
                ends,
            } => {
                probability(often)?;
                probability(salt)?;
                ends.map_or(Ok(()), |(least, most)| bounds(least, most))
            }
            Self::BitError { probability: often } => probability(often),
        }
    }
}

fn number(value: f64) -> Result<(), NoiseError> {
    if value.abs() <= 1e300 {
        Ok(())
    } else {
        Err(NoiseError::NoNumber(value))
    }
}

fn bounds(minimum: f64, maximum: f64) -> Result<(), NoiseError> {
    number(minimum)?;
    number(maximum)?;
    if minimum > maximum {
        return Err(NoiseError::Bounds(minimum, maximum));
    }
    Ok(())
}

fn probability(value: f64) -> Result<(), NoiseError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(NoiseError::Probability(value))
    }
}

/// Random words below this number are as many as a probability says.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a probability is from 0 to 1: from 0 to 2^32"
)]
fn words_below(probability: f64) -> u64 {
    (probability * 4_294_967_296.0).round_ties_even() as u64
}

/// Pixels for which random numbers are made at once; they take 16 KiB of the stack.
const BATCH: usize = 64 * GROUP;

impl Generator {
    /// For this band of an image so many pixels wide.
    ///
    /// # Errors
    ///
    /// The noise is described by something that is no number, or no probability.
    pub fn new(noise: Noise, seed: u64, width: u32, band: u32) -> Result<Self, NoiseError> {
        noise.check()?;
        Ok(Self {
            noise,
            seed,
            width,
            band,
        })
    }

    /// Adds noise to a part of the band: its row `y` is `samples[y * stride..]`.
    ///
    /// # Errors
    ///
    /// The part is not within the image's width, or there are too few samples.
    pub fn add<T: Noisy>(
        &self,
        level: Level,
        samples: &mut [T],
        stride: usize,
        place: Rect,
    ) -> Result<(), NoiseError> {
        if place.end().0 > u64::from(self.width) {
            return Err(NoiseError::Outside(place, self.width));
        }
        if place.is_empty() {
            return Ok(());
        }
        let (width, height) = (place.width as usize, place.height as usize);
        let end = (height - 1)
            .checked_mul(stride)
            .and_then(|rows| rows.checked_add(width));
        if width > stride || end.is_none_or(|end| end > samples.len()) {
            let samples = samples.len();
            return Err(NoiseError::Short {
                place,
                stride,
                samples,
            });
        }
        for (y, row) in (u64::from(place.y)..).zip(samples.chunks_mut(stride).take(height)) {
            // At most 2^32 - 1 rows and columns: it fits.
            let first = y * u64::from(self.width) + u64::from(place.x);
            self.add_to_row(level, &mut row[..width], first);
        }
        Ok(())
    }

    /// Random numbers come in groups of pixels; those before the first pixel of the row are not used.
    fn add_to_row<T: Noisy>(&self, level: Level, mut row: &mut [T], mut first: u64) {
        let mut batch = [0; BATCH];
        while !row.is_empty() {
            let group = first / GROUP as u64;
            let before = usize::try_from(first % GROUP as u64).unwrap_or(0);
            let count = row.len().min(BATCH - before);
            let (now, later) = row.split_at_mut(count);
            let words = (before + count).next_multiple_of(GROUP);
            self.add_to_batch(level, now, group, before, &mut batch[..words]);
            first += count as u64;
            row = later;
        }
    }

    fn add_to_batch<T: Noisy>(
        &self,
        level: Level,
        samples: &mut [T],
        group: u64,
        before: usize,
        batch: &mut [u32],
    ) {
        let stream = |purpose| Stream {
            seed: self.seed,
            band: self.band,
            purpose,
        };
        match self.noise {
            Noise::Uniform { minimum, maximum } => {
                philox::words(level, stream(1), group, batch);
                T::add_uniform(level, samples, &batch[before..], (minimum, maximum));
            }
            Noise::Gaussian { mean, deviation } => {
                normal::normals(level, stream(2), group, batch);
                T::add_normal(level, samples, &batch[before..], (mean, deviation));
            }
            Noise::Laplacian { mean, deviation } => {
                normal::laplaces(level, stream(3), group, batch);
                T::add_normal(level, samples, &batch[before..], (mean, deviation));
            }
            Noise::Speckle { mean, deviation } => {
                normal::normals(level, stream(4), group, batch);
                T::add_product(level, samples, &batch[before..], (mean, deviation));
            }
            Noise::SaltPepper {
                probability,
                salt,
                ends,
            } => {
                philox::words(level, stream(5), group, batch);
                let below = (words_below(probability * salt), words_below(probability));
                let ends =
                    ends.map_or(T::ENDS, |(least, most)| (T::of_f64(least), T::of_f64(most)));
                T::replace(level, samples, &batch[before..], below, ends);
            }
            Noise::BitError { probability } => {
                let below = words_below(probability);
                let bits = u32::try_from(8 * T::TYPE.bytes()).unwrap_or(64);
                for bit in 0..bits {
                    philox::words(level, stream(256 + bit), group, batch);
                    T::turn_bits(level, samples, &batch[before..], (below, bit));
                }
            }
        }
    }
}
