//! The routines as operations on parts of images.

mod canny;
mod edges;
mod geometry;
mod kernel;
mod mapping;
mod means;
mod measures;
mod noise;
mod order;
mod points;
mod resample;
mod texture;
mod user;

pub use canny::{Hysteresis, Thin};
pub use edges::{Edges, Join};
pub use geometry::{Crop, Turn};
pub use kernel::{Kernel, gaussian};
pub use mapping::{Mapping, Rule};
pub use means::{Mean, Means};
pub use measures::SquaredDifference;
pub use noise::Noise;
pub use order::Order;
pub use points::{Arithmetic, Both, Function, Point};
pub use resample::{Method, Resample};
pub use texture::Texture;
pub use user::User;

use crate::graph::{Failure, Given};
use pipt_raster::rect::Halo;
use pipt_raster::{Rect, Sample, SampleType, Samples, Size, of_type};
use pipt_simd::rank::{Padding, Plane, PlaneMut, RankError, pad};

/// What lies beyond the edge of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edge {
    /// Its pixels again, turned round; the last one twice.
    Reflect,
    /// The same, the last one once.
    Mirror,
    /// The last pixel.
    Replicate,
    Constant(f64),
    /// Nothing: the window ends there.
    Shrink,
    /// Nothing, and what a window would need it for is no data.
    Nodata,
}

impl Edge {
    fn of<T: Sample>(self) -> Padding<T> {
        match self {
            Self::Reflect => Padding::Reflect,
            Self::Mirror => Padding::Mirror,
            Self::Replicate | Self::Shrink | Self::Nodata => Padding::Replicate,
            Self::Constant(value) => Padding::Constant(T::of_f64(value)),
        }
    }

    /// Of whether samples are there.
    fn of_mask(self) -> Padding<bool> {
        match self {
            Self::Reflect => Padding::Reflect,
            Self::Mirror => Padding::Mirror,
            Self::Replicate => Padding::Replicate,
            Self::Constant(_) => Padding::Constant(true),
            Self::Shrink | Self::Nodata => Padding::Constant(false),
        }
    }
}

/// Samples with the whole of a halo around what is wanted.
struct Around<T> {
    samples: Vec<T>,
    there: Option<Vec<bool>>,
    /// Columns and rows.
    size: (usize, usize),
}

/// Puts around a part what lies beyond the edges of the image. The halo must not be wider on one side than
/// on the other: what is reflected at the one edge would be beyond the other end of a small part.
fn around<T: Sample>(
    given: &Given<'_>,
    values: &[T],
    halo: Halo,
    edge: Edge,
) -> Result<Around<T>, Failure> {
    let missing = missing(given, halo);
    let size = given.rect.size().grown(missing);
    let samples = padded(values, given.rect, missing, edge.of())?;
    let ends = matches!(edge, Edge::Shrink | Edge::Nodata) && missing != Halo::default();
    let mask = |there: &[bool]| padded(there, given.rect, missing, edge.of_mask());
    let there = match &given.part.there {
        Some(there) => Some(mask(there)?),
        None if ends => Some(mask(&vec![true; values.len()])?),
        None => None,
    };
    Ok(Around {
        samples,
        there,
        size: (size.width as usize, size.height as usize),
    })
}

/// A rectangle's values with what is missing around them.
fn padded<T: Copy + Default>(
    values: &[T],
    rect: Rect,
    missing: Halo,
    padding: Padding<T>,
) -> Result<Vec<T>, RankError> {
    let (width, height) = (rect.width as usize, rect.height as usize);
    let size = rect.size().grown(missing);
    let (columns, rows) = (size.width as usize, size.height as usize);
    let mut padded = vec![T::default(); columns * rows];
    pad(
        Plane::new(values, width, height, width)?,
        missing,
        padding,
        &mut PlaneMut::new(&mut padded, columns, rows, columns)?,
    )?;
    Ok(padded)
}

/// What of a halo around what is wanted lies outside the image.
fn missing(given: &Given<'_>, halo: Halo) -> Halo {
    let (wanted, rect) = (given.wanted, given.rect);
    let ((right, below), (has_right, has_below)) = (wanted.end(), rect.end());
    let rest = |halo: u32, has: u64| halo - u32::try_from(has).unwrap_or(halo).min(halo);
    Halo {
        left: halo.left - (wanted.x - rect.x).min(halo.left),
        above: halo.above - (wanted.y - rect.y).min(halo.above),
        right: rest(halo.right, has_right - right),
        below: rest(halo.below, has_below - below),
    }
}

/// Takes the data off where a window leaves the image.
fn without_edges(given: &Given<'_>, halo: Halo, there: &mut [bool]) {
    let Size { width, height } = given.size;
    let within = |at: u32, before: u32, after: u32, all: u32| {
        at >= before && u64::from(at) + u64::from(after) < u64::from(all)
    };
    let wanted = given.wanted;
    let rows = there.chunks_exact_mut((wanted.width as usize).max(1));
    for (row, y) in rows.zip(wanted.y..) {
        let is_within = within(y, halo.above, halo.below, height);
        for (there, x) in row.iter_mut().zip(wanted.x..) {
            *there &= is_within && within(x, halo.left, halo.right, width);
        }
    }
}

/// The nearest samples of a type.
fn of_real(kind: SampleType, numbers: &[f64]) -> Samples {
    fn all<T: Sample>(numbers: &[f64]) -> Vec<T> {
        numbers.iter().map(|number| T::of_f64(*number)).collect()
    }
    of_type!(kind, T => all::<T>(numbers).into())
}

/// As wide on both sides, so that a part can be reflected.
fn even(halo: Halo) -> Halo {
    let (across, down) = (halo.left.max(halo.right), halo.above.max(halo.below));
    Halo {
        left: across,
        right: across,
        above: down,
        below: down,
    }
}
