//! Pixels around an image.

use super::{Plane, PlaneMut, RankError};
use pipt_raster::rect::Halo;

/// What stands outside an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding<T> {
    /// The image, turned round at its edge, the pixels at the edge twice: `c b a | a b c | c b a`. SciPy
    /// calls it `reflect`, NumPy `symmetric`.
    Reflect,
    /// The same, the pixels at the edge once: `c b | a b c | b a`. SciPy calls it `mirror`, NumPy `reflect`.
    Mirror,
    /// The pixels at the edge. SciPy calls it `nearest`, NumPy `edge`.
    Replicate,
    /// This value.
    Constant(T),
}

impl<T> Padding<T> {
    /// Where the pixel at this distance before (negative) or after the first one of so many is to be found;
    /// none, if it is the constant. Images smaller than the halo are reflected again and again.
    fn index(&self, at: i64, length: i64) -> Option<usize> {
        let inside = match self {
            _ if (0..length).contains(&at) => at,
            Self::Constant(_) => return None,
            Self::Replicate => at.clamp(0, length - 1),
            Self::Reflect => {
                let place = at.rem_euclid(2 * length);
                place.min(2 * length - 1 - place)
            }
            Self::Mirror if length == 1 => 0,
            Self::Mirror => {
                let place = at.rem_euclid(2 * (length - 1));
                place.min(2 * (length - 1) - place)
            }
        };
        usize::try_from(inside).ok()
    }
}

/// Copies an image with a halo around it.
///
/// A mask is padded in the same way; with `Padding::Constant(false)` windows end at the edge of the image
/// ("shrink").
///
/// # Errors
///
/// The output has not the size of the image and the halo, or the image has no pixels to repeat.
pub fn pad<T: Copy>(
    image: Plane<'_, T>,
    halo: Halo,
    padding: Padding<T>,
    output: &mut PlaneMut<'_, T>,
) -> Result<(), RankError> {
    let (width, height) = image.size();
    let wanted = (
        width.saturating_add(halo.left as usize + halo.right as usize),
        height.saturating_add(halo.above as usize + halo.below as usize),
    );
    if output.size() != wanted {
        return Err(RankError::Sizes {
            what: "padded image",
            wanted,
            got: output.size(),
        });
    }
    if (width == 0 || height == 0) && !matches!(padding, Padding::Constant(_)) {
        return Err(RankError::NothingToPad);
    }
    let places = |before: u32, length: usize, all: usize| -> Vec<Option<usize>> {
        let begin = -i64::from(before);
        let length = i64::try_from(length).unwrap_or(i64::MAX / 4);
        (begin..)
            .take(all)
            .map(|at| padding.index(at, length))
            .collect()
    };
    // Most columns are those of the image.
    let (left, right) = (halo.left as usize, halo.left as usize + width);
    let columns = places(halo.left, width, wanted.0);
    let edges: Vec<(usize, Option<usize>)> = (0..left)
        .chain(right..wanted.0)
        .map(|place| (place, columns[place]))
        .collect();
    for (y, from) in places(halo.above, height, wanted.1).into_iter().enumerate() {
        let to = output.row_mut(y);
        match (from, padding) {
            (Some(from), _) => {
                let row = image.row(from);
                to[left..right].copy_from_slice(row);
                for (place, column) in &edges {
                    match (column, padding) {
                        (Some(column), _) => to[*place] = row[*column],
                        (None, Padding::Constant(value)) => to[*place] = value,
                        (None, _) => {}
                    }
                }
            }
            (None, Padding::Constant(value)) => to.fill(value),
            (None, _) => {}
        }
    }
    Ok(())
}
