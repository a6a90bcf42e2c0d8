//! Weights of the pixels around one, and sums by them.

use super::{Edge, around};
use crate::graph::{Failure, Given};
use pipt_raster::Sample;
use pipt_raster::rect::Halo;

/// An odd number of columns and of rows, around the pixel in the middle.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// Each pixel's weight, row by row of so many columns.
    Plane { columns: usize, weights: Vec<f64> },
    /// The product of a column's weight and a row's.
    Product { across: Vec<f64>, down: Vec<f64> },
}

impl Kernel {
    #[must_use]
    pub fn square(size: usize) -> Self {
        Self::Product {
            across: vec![1.0; size],
            down: vec![1.0; size],
        }
    }

    #[must_use]
    pub fn cross(size: usize) -> Self {
        let middle = size / 2;
        let is_in = |place: usize| place / size == middle || place % size == middle;
        let weights = (0..size * size).map(|place| f64::from(u8::from(is_in(place))));
        Self::Plane {
            columns: size,
            weights: weights.collect(),
        }
    }

    /// So many columns, and rows.
    fn sides(&self) -> (usize, usize) {
        match self {
            Self::Plane { columns, weights } => (*columns, weights.len() / columns),
            Self::Product { across, down } => (across.len(), down.len()),
        }
    }

    #[must_use]
    pub fn halo(&self) -> Halo {
        let (columns, rows) = self.sides();
        let half = |side: usize| u32::try_from(side / 2).unwrap_or(u32::MAX);
        Halo {
            left: half(columns),
            right: half(columns),
            above: half(rows),
            below: half(rows),
        }
    }

    /// Of all weights.
    #[must_use]
    pub fn total(&self) -> f64 {
        match self {
            Self::Plane { weights, .. } => weights.iter().sum(),
            Self::Product { across, down } => across.iter().sum::<f64>() * down.iter().sum::<f64>(),
        }
    }

    /// The weighted sums of the pixels around each. The order of a sum's terms is that of the window's rows, or of its
    /// columns and then its rows, wherever the part begins.
    #[must_use]
    pub fn sums(&self, field: &Field, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let (own, most) = (self.halo(), field.halo);
        let stride = field.stride();
        // A field may reach further than this kernel.
        let begin = (most.above - own.above) as usize * stride + (most.left - own.left) as usize;
        let (width, height) = field.size;
        match self {
            Self::Plane { columns, weights } => {
                let weighed = weights
                    .iter()
                    .enumerate()
                    .filter(|(_, weight)| **weight != 0.0);
                let places = weighed
                    .map(|(place, weight)| (place / columns * stride + place % columns, *weight));
                let places: Vec<(usize, f64)> = places.collect();
                let pixels =
                    (0..height).flat_map(|y| (0..width).map(move |x| begin + y * stride + x));
                let sum = |pixel: usize| {
                    places
                        .iter()
                        .map(|(place, weight)| weight * value(pixel + place))
                        .sum()
                };
                pixels.map(sum).collect()
            }
            Self::Product { across, down } => {
                let rows = height + down.len() - 1;
                let along = |pixel: usize| -> f64 {
                    let weighed = across.iter().zip(pixel..);
                    weighed.map(|(weight, place)| weight * value(place)).sum()
                };
                let pixels =
                    (0..rows).flat_map(|y| (0..width).map(move |x| begin + y * stride + x));
                let along: Vec<f64> = pixels.map(along).collect();
                let sum = |pixel: usize| {
                    let weighed = down.iter().zip((pixel..).step_by(width));
                    weighed.map(|(weight, place)| weight * along[place]).sum()
                };
                (0..height * width).map(sum).collect()
            }
        }
    }
}

/// The weights of a normal distribution of this deviation, in pixels, up to so many deviations on each side; together 1.
/// The second derivative of it with `is_second`.
#[must_use]
pub fn gaussian(deviation: f64, truncate: f64, is_second: bool) -> Vec<f64> {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "parameters have limits"
    )]
    let radius = (deviation * truncate + 0.5) as i32;
    let square = deviation * deviation;
    let bell = |x: i32| (-0.5 * f64::from(x * x) / square).exp();
    let all: f64 = (-radius..=radius).map(bell).sum();
    let weight = |x: i32| {
        let weight = bell(x) / all;
        match is_second {
            true => weight * (f64::from(x * x) / square - 1.0) / square,
            false => weight,
        }
    };
    (-radius..=radius).map(weight).collect()
}

/// Numbers with all that lies around what is wanted.
pub struct Field {
    /// Of what is not there, 0.
    pub values: Vec<f64>,
    /// None: all are.
    pub there: Option<Vec<bool>>,
    halo: Halo,
    /// Of what is wanted.
    size: (usize, usize),
}

impl Field {
    pub(super) fn new<T: Sample>(
        given: &Given<'_>,
        values: &[T],
        halo: Halo,
        edge: Edge,
    ) -> Result<Self, Failure> {
        let around = around(given, values, halo, edge)?;
        let has_none = around.samples.iter().any(|value| value.is_nan());
        let mut there = around.there;
        if has_none {
            let there = there.get_or_insert_with(|| vec![true; around.samples.len()]);
            let both = there.iter_mut().zip(&around.samples);
            both.for_each(|(there, value)| *there &= !value.is_nan());
        }
        let mut values: Vec<f64> = around.samples.iter().map(|value| value.to_f64()).collect();
        if let Some(there) = &there {
            let missing = values.iter_mut().zip(there).filter(|(_, there)| !**there);
            missing.for_each(|(value, _)| *value = 0.0);
        }
        let wanted = given.wanted;
        Ok(Self {
            values,
            there: there.filter(|there| there.contains(&false)),
            halo,
            size: (wanted.width as usize, wanted.height as usize),
        })
    }

    fn stride(&self) -> usize {
        self.size.0 + (self.halo.left + self.halo.right) as usize
    }

    /// Whether a number is there, as one.
    #[must_use]
    pub fn part(&self, place: usize) -> f64 {
        let there = self.there.as_ref();
        f64::from(u8::from(there.is_none_or(|there| there[place])))
    }

    /// The places of the wanted pixels among the values.
    pub fn centres(&self) -> impl Iterator<Item = usize> + use<> {
        let (width, stride) = (self.size.0, self.stride());
        let begin = self.halo.above as usize * stride + self.halo.left as usize;
        (0..self.size.1).flat_map(move |y| {
            let row = begin + y * stride;
            row..row + width
        })
    }

    /// The places of all of a square around each, of so many pixels on each side.
    pub fn square(&self, centre: usize, half: usize) -> impl Iterator<Item = usize> + use<> {
        let stride = self.stride();
        let first = centre - half * stride - half;
        (0..=2 * half).flat_map(move |row| {
            let begin = first + row * stride;
            begin..=begin + 2 * half
        })
    }
}
