//! An image in more or fewer pixels.
//!
//! Each pixel is a weighted mean of those that its place in the other image lies among: the product of a function of
//! the distance in columns and of that in rows. Where there are fewer pixels than before the function is as many times
//! as wide, so that all pixels count. Sources: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing",
//! IEEE Transactions on Acoustics, Speech, and Signal Processing 29 (1981); C. Duchon, "Lanczos Filtering in One and Two
//! Dimensions", Journal of Applied Meteorology 18 (1979). What lies beyond the edge does not count.

use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Rect, Sample, SampleType, Samples, Size, each};
use std::f64::consts::PI;

/// How pixels are weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The pixel that its middle lies in.
    Nearest,
    /// All alike: with fewer pixels the mean of those that a pixel covers.
    Average,
    Linear,
    /// Keys's, with a = -1/2.
    Cubic,
    /// A sinc in the window of another one that is three times as wide.
    Lanczos,
}

impl Method {
    /// By its name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "nearest" => Self::Nearest,
            "average" => Self::Average,
            "linear" => Self::Linear,
            "cubic" => Self::Cubic,
            "lanczos" => Self::Lanczos,
            _ => return None,
        })
    }

    /// Pixels on each side that count.
    const fn support(self) -> f64 {
        match self {
            Self::Nearest | Self::Average => 0.5,
            Self::Linear => 1.0,
            Self::Cubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        let sinc = |x: f64| {
            if x == 0.0 {
                1.0
            } else {
                (PI * x).sin() / (PI * x)
            }
        };
        match self {
            // A border belongs to one pixel alone.
            Self::Nearest | Self::Average => {
                f64::from(u8::from(distance > -0.5 && distance <= 0.5))
            }
            Self::Linear => (1.0 - x).max(0.0),
            Self::Cubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Cubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Cubic | Self::Lanczos => 0.0,
        }
    }
}

/// From an image of one size to one of another.
pub struct Resample {
    method: Method,
    from: Size,
    to: Size,
}

/// Which pixels of a row count, and how much: together 1.
struct Taps {
    first: u32,
    weights: Vec<f64>,
}

impl Resample {
    #[must_use]
    pub const fn new(method: Method, from: Size, to: Size) -> Self {
        Self { method, from, to }
    }

    /// Of a column, or a row, of `to` in all, among `from`.
    fn taps(&self, at: u32, from: u32, to: u32) -> Taps {
        let scale = f64::from(from) / f64::from(to);
        let middle = (f64::from(at) + 0.5) * scale;
        if self.method == Method::Nearest {
            return Taps {
                first: whole(middle, from - 1),
                weights: vec![1.0],
            };
        }
        let wide = scale.max(1.0);
        let support = self.method.support() * wide;
        let (first, end) = (
            whole(middle - support + 0.5, from - 1),
            whole(middle + support + 0.5, from),
        );
        let weight = |place: u32| self.method.weight((f64::from(place) + 0.5 - middle) / wide);
        let mut weights: Vec<f64> = (first..end.max(first + 1)).map(weight).collect();
        let all: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= all);
        Taps { first, weights }
    }

    /// Pixels along one side that so many are made of.
    fn reach_of(&self, wanted: u32, from: u32, to: u32) -> u32 {
        let scale = f64::from(from) / f64::from(to);
        let around = 2.0 * self.method.support() * scale.max(1.0);
        whole((f64::from(wanted) * scale + around).ceil() + 2.0, from)
    }

    fn nearest<T: Copy>(&self, given: &Given<'_>, values: &[T]) -> Vec<T> {
        let (wanted, rect) = (given.wanted, given.rect);
        let (from, to) = (self.from, self.to);
        let columns = wanted.x..wanted.x + wanted.width;
        let columns = columns.map(|x| (self.taps(x, from.width, to.width).first - rect.x) as usize);
        let columns: Vec<usize> = columns.collect();
        let rows = (wanted.y..wanted.y + wanted.height).flat_map(|y| {
            let row = self.taps(y, from.height, to.height).first - rect.y;
            let begin = row as usize * rect.width as usize;
            columns.iter().map(move |column| values[begin + column])
        });
        rows.collect()
    }

    fn resampled<T: Sample>(&self, given: &Given<'_>, values: &[T]) -> Part
    where
        Samples: From<Vec<T>>,
    {
        let (wanted, rect) = (given.wanted, given.rect);
        let columns = wanted.x..wanted.x + wanted.width;
        let rows = wanted.y..wanted.y + wanted.height;
        let across: Vec<Taps> = columns
            .map(|x| self.taps(x, self.from.width, self.to.width))
            .collect();
        let down: Vec<Taps> = rows
            .map(|y| self.taps(y, self.from.height, self.to.height))
            .collect();
        let begins = (rect.x, rect.y);
        let width = rect.width as usize;
        let there = given.part.there.as_deref();
        let is_there =
            |place: usize| there.is_none_or(|there| there[place]) && !values[place].is_nan();
        let sum = |place: usize| match is_there(place) {
            true => values[place].to_f64(),
            false => 0.0,
        };
        let sums = weighed((&across, &down), begins, width, sum);
        let complete = there.is_none() && !values.iter().any(|value| value.is_nan());
        if complete {
            let samples: Vec<T> = sums.into_iter().map(T::of_f64).collect();
            return Part {
                samples: samples.into(),
                there: None,
            };
        }
        let part = |place: usize| f64::from(u8::from(is_there(place)));
        let parts = weighed((&across, &down), begins, width, part);
        // Half of what a pixel is made of has to be there.
        let there: Vec<bool> = parts.iter().map(|part| *part >= 0.5).collect();
        let all = sums.iter().zip(&parts).zip(&there);
        let samples: Vec<T> = all
            .map(|((sum, part), there)| match there {
                true => T::of_f64(sum / part),
                false => T::default(),
            })
            .collect();
        Part {
            samples: samples.into(),
            there: there.contains(&false).then_some(there),
        }
    }
}

/// The whole number below, from 0 to the most.
fn whole(value: f64, most: u32) -> u32 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is within these"
    )]
    let whole = value.clamp(0.0, f64::from(most)) as u32;
    whole
}

/// Weighted sums, along rows and then along columns, of the values of pixels in a part that begins there.
fn weighed(
    (across, down): (&[Taps], &[Taps]),
    (left, above): (u32, u32),
    width: usize,
    value: impl Fn(usize) -> f64,
) -> Vec<f64> {
    let first = down.first().map_or(0, |taps| taps.first);
    let end = |taps: &Taps| taps.first as usize + taps.weights.len();
    let rows = down.iter().map(end).max().unwrap_or(0) - first as usize;
    let along: Vec<f64> = (0..rows)
        .flat_map(|row| {
            let begin = (row + (first - above) as usize) * width;
            let value = &value;
            across.iter().map(move |taps| {
                let begin = begin + (taps.first - left) as usize;
                let all = taps.weights.iter().zip(begin..);
                all.map(|(weight, place)| weight * value(place)).sum()
            })
        })
        .collect();
    let mut made = Vec::with_capacity(across.len() * down.len());
    for taps in down {
        let begin = (taps.first - first) as usize;
        for column in 0..across.len() {
            let all = taps.weights.iter().zip(begin..);
            let sum: f64 = all
                .map(|(weight, row)| weight * along[row * across.len() + column])
                .sum();
            made.push(sum);
        }
    }
    made
}

impl Operation for Resample {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn region(&self, wanted: Rect, of: Size) -> Rect {
        let side = |begin: u32, length: u32, from: u32, to: u32| {
            let first = self.taps(begin, from, to).first;
            let last = self.taps(begin + length.max(1) - 1, from, to);
            let end = last.first as usize + last.weights.len();
            (first, u32::try_from(end).unwrap_or(from).min(from) - first)
        };
        let (x, width) = side(wanted.x, wanted.width, of.width, self.to.width);
        let (y, height) = side(wanted.y, wanted.height, of.height, self.to.height);
        Rect::new(x, y, width, height)
    }

    fn reach(&self, wanted: Size) -> Size {
        Size::new(
            self.reach_of(wanted.width, self.from.width, self.to.width),
            self.reach_of(wanted.height, self.from.height, self.to.height),
        )
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, _: SampleType) -> u64 {
        // Sums along rows, and both kinds of sums.
        let rows = u64::from(self.reach(wanted).height);
        let scale = |from: u32, to: u32| (f64::from(from) / f64::from(to)).max(1.0);
        let wide =
            scale(self.from.width, self.to.width).max(scale(self.from.height, self.to.height));
        let each = whole(2.0 * self.method.support() * wide + 2.0, u32::MAX);
        let taps = u64::from(wanted.width) + u64::from(wanted.height);
        let weights = taps * u64::from(each) * 8;
        u64::from(wanted.width) * (rows + 2 * u64::from(wanted.height)) * 8 + weights
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        if self.method == Method::Nearest {
            let samples: Samples =
                each!(&given.part.samples, values => self.nearest(given, values).into());
            let there = given.part.there.as_ref();
            return Ok(vec![Part {
                samples,
                there: there.map(|there| self.nearest(given, there)),
            }]);
        }
        let part = each!(&given.part.samples, values => self.resampled(given, values));
        Ok(vec![part])
    }
}
