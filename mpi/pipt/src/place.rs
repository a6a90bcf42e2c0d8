//! Where an image lies on a map: from pixels to coordinates and back, and the tags of a part of an image.
//!
//! Source: OGC GeoTIFF Standard 1.1 (19-008r4), annex B.6: raster space to model space.

use pipt_raster::{Rect, Size};
use pipt_tiff::tag::Tag;

/// `ModelPixelScaleTag`, `ModelTiepointTag`, `ModelTransformationTag`.
const SCALE: u16 = 33_550;
const TIEPOINTS: u16 = 33_922;
const TRANSFORMATION: u16 = 34_264;

/// A tie point: column, row and depth of a pixel's corner, and its three coordinates.
const TIEPOINT: usize = 6;
/// A matrix of four rows.
const MATRIX: usize = 16;

/// From pixels' corners to coordinates: `x = a + b * column + c * row`, `y = d + e * column + f * row`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    x: [f64; 3],
    y: [f64; 3],
}

impl Affine {
    /// What the tags of an image say, if they say it by one formula.
    #[must_use]
    pub fn of(tags: &[Tag]) -> Option<Self> {
        if let Some(matrix) = floats(tags, TRANSFORMATION) {
            let matrix: [f64; MATRIX] = matrix.try_into().ok()?;
            return Some(Self {
                x: [matrix[3], matrix[0], matrix[1]],
                y: [matrix[7], matrix[4], matrix[5]],
            });
        }
        let (scale, points) = (floats(tags, SCALE)?, floats(tags, TIEPOINTS)?);
        let (Some(across), Some(down)) = (scale.first(), scale.get(1)) else {
            return None;
        };
        // Several tie points are a warp, of which no part is a rectangle.
        let [column, row, _, x, y, _] = points.as_slice() else {
            return None;
        };
        Some(Self {
            x: [x - column * across, *across, 0.0],
            y: [y + row * down, 0.0, -down],
        })
    }

    /// That of an image whose corners lie so in this one.
    fn after(&self, [first, column, row]: [(f64, f64); 3]) -> Self {
        let (x, y) = self.coordinates(first.0, first.1);
        let step = |by: &[f64; 3], of: (f64, f64)| by[1] * of.0 + by[2] * of.1;
        Self {
            x: [x, step(&self.x, column), step(&self.x, row)],
            y: [y, step(&self.y, column), step(&self.y, row)],
        }
    }

    /// North up as the scale of pixels and a tie point, which all readers know; else as a matrix.
    fn tags(&self) -> Vec<Tag> {
        let ([x, across, skew], [y, turn, down]) = (self.x, self.y);
        if skew == 0.0 && turn == 0.0 && across > 0.0 && down < 0.0 {
            return vec![
                Tag::doubles(SCALE, &[across, -down, 0.0]),
                Tag::doubles(TIEPOINTS, &[0.0, 0.0, 0.0, x, y, 0.0]),
            ];
        }
        let matrix = [
            [across, skew, 0.0, x],
            [turn, down, 0.0, y],
            [0.0; 4],
            [0.0, 0.0, 0.0, 1.0],
        ];
        vec![Tag::doubles(TRANSFORMATION, matrix.as_flattened())]
    }

    /// The coordinates of a pixel's upper left corner.
    #[must_use]
    pub fn coordinates(&self, column: f64, row: f64) -> (f64, f64) {
        let of = |by: &[f64; 3]| by[0] + by[1] * column + by[2] * row;
        (of(&self.x), of(&self.y))
    }

    /// The column and row of coordinates; None where all pixels lie on a line.
    #[must_use]
    pub fn pixel(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let determinant = self.x[1] * self.y[2] - self.x[2] * self.y[1];
        let (x, y) = (x - self.x[0], y - self.y[0]);
        let column = (x * self.y[2] - y * self.x[2]) / determinant;
        let row = (y * self.x[1] - x * self.y[1]) / determinant;
        (column.is_finite() && row.is_finite()).then_some((column, row))
    }
}

/// The pixels of an image of which any part lies between two corners, which are given as left, upper, right
/// and lower end: in coordinates where there are such, else in pixels. None, if there are no such pixels.
#[must_use]
pub fn part(corners: [f64; 4], place: Option<Affine>, size: Size) -> Option<Rect> {
    let [left, upper, right, lower] = corners;
    let corners = [(left, upper), (right, upper), (left, lower), (right, lower)];
    let pixels = corners.map(|(x, y)| place.map_or(Some((x, y)), |place| place.pixel(x, y)));
    let (mut least, mut most) = ((f64::MAX, f64::MAX), (f64::MIN, f64::MIN));
    for pixel in pixels {
        let (column, row) = pixel?;
        least = (least.0.min(column), least.1.min(row));
        most = (most.0.max(column), most.1.max(row));
    }
    let (x, right) = between(least.0, most.0, size.width);
    let (y, below) = between(least.1, most.1, size.height);
    (x < right && y < below).then(|| Rect::new(x, y, right - x, below - y))
}

/// Whole pixels from the first to the one behind the last; coordinates that are a hair's breadth beyond a
/// pixel's edge, by their rounding, do not take one more.
fn between(least: f64, most: f64, all: u32) -> (u32, u32) {
    const HAIR: f64 = 1e-6;
    let within = |pixel: f64| pixel.clamp(0.0, f64::from(all));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies within the image"
    )]
    let whole = |pixel: f64| within(pixel) as u32;
    (whole((least + HAIR).floor()), whole((most - HAIR).ceil()))
}

/// The tags of a part of an image that begins at this pixel: all but its place are the same.
#[must_use]
pub fn tags_of_part(tags: &[Tag], x: u32, y: u32) -> Vec<Tag> {
    let (column, row) = (f64::from(x), f64::from(y));
    let moved = |tag: &Tag| {
        let numbers = tag.floats()?;
        match tag.number {
            TIEPOINTS => {
                let mut points = numbers;
                for point in points.chunks_exact_mut(TIEPOINT) {
                    point[0] -= column;
                    point[1] -= row;
                }
                Some(Tag::doubles(TIEPOINTS, &points))
            }
            TRANSFORMATION => {
                let mut matrix: [f64; MATRIX] = numbers.try_into().ok()?;
                for begin in [0, 4, 8] {
                    let of = &mut matrix[begin..begin + 4];
                    of[3] += of[0] * column + of[1] * row;
                }
                Some(Tag::doubles(TRANSFORMATION, &matrix))
            }
            _ => None,
        }
    };
    tags.iter()
        .map(|tag| moved(tag).unwrap_or_else(|| tag.clone()))
        .collect()
}

/// The tags of an image whose pixels lie elsewhere in the one that has these: where the corner of its first pixel is,
/// and how far it is from there to the next column's and to the next row's, in columns and rows of that one.
#[must_use]
pub fn tags_of_moved(tags: &[Tag], corners: [(f64, f64); 3]) -> Vec<Tag> {
    let is_place = |tag: &&Tag| [SCALE, TIEPOINTS, TRANSFORMATION].contains(&tag.number);
    let mut moved: Vec<Tag> = tags.iter().filter(|tag| !is_place(tag)).cloned().collect();
    // A warp of several tie points cannot be said for what was moved.
    if let Some(place) = Affine::of(tags) {
        moved.extend(place.after(corners).tags());
        moved.sort_by_key(|tag| tag.number);
    }
    moved
}

fn floats(tags: &[Tag], number: u16) -> Option<Vec<f64>> {
    tags.iter().find(|tag| tag.number == number)?.floats()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size::new(100, 50);

    /// 10 m pixels, whose upper left corner is at 500000, 4000000.
    fn north_up() -> Vec<Tag> {
        vec![
            Tag::doubles(SCALE, &[10.0, 10.0, 0.0]),
            Tag::doubles(TIEPOINTS, &[0.0, 0.0, 0.0, 500_000.0, 4_000_000.0, 0.0]),
        ]
    }

    fn turned() -> Vec<Tag> {
        let (a, b) = (8.0, 6.0);
        let matrix = [
            a, b, 0.0, 1000.0, b, -a, 0.0, 2000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0,
        ];
        vec![Tag::doubles(TRANSFORMATION, &matrix)]
    }

    #[test]
    fn parts_are_asked_for_in_coordinates() {
        let place = Affine::of(&north_up()).expect("a place");
        let of = |corners| part(corners, Some(place), SIZE);
        let all = Rect::new(10, 5, 20, 10);
        assert_eq!(
            of([500_100.0, 3_999_950.0, 500_300.0, 3_999_850.0]),
            Some(all)
        );
        assert_eq!(
            of([500_300.0, 3_999_850.0, 500_100.0, 3_999_950.0]),
            Some(all)
        );
        let pixel = of([500_101.0, 3_999_949.0, 500_102.0, 3_999_948.0]);
        assert_eq!(pixel, Some(Rect::new(10, 5, 1, 1)));
        assert_eq!(of([0.0, 0.0, 1.0, 1.0]), None);
        let pixels = part([-5.0, 2.0, 7.0, 900.0], None, SIZE);
        assert_eq!(pixels, Some(Rect::new(0, 2, 7, 48)));
        let everything = part([f64::MIN, f64::MIN, f64::MAX, f64::MAX], None, SIZE);
        assert_eq!(everything, Some(SIZE.rect()));
    }

    #[test]
    fn a_warp_is_no_formula() {
        let warp = vec![
            Tag::doubles(SCALE, &[1.0, 1.0, 0.0]),
            Tag::doubles(TIEPOINTS, &[0.0; 12]),
        ];
        assert_eq!(Affine::of(&warp), None);
        assert_eq!(Affine::of(&[]), None);
        let line = Affine::of(&[Tag::doubles(TRANSFORMATION, &[0.0; 16])]).expect("a place");
        assert_eq!(line.pixel(1.0, 2.0), None);
    }

    proptest! {
        #[test]
        fn a_part_lies_where_it_lay(x in 0..100u32, y in 0..50u32, column in 0..50u32, row in 0..50u32) {
            for tags in [north_up(), turned()] {
                let whole = Affine::of(&tags).expect("a place");
                let part = Affine::of(&tags_of_part(&tags, x, y)).expect("a place");
                let here = part.coordinates(f64::from(column), f64::from(row));
                let there = whole.coordinates(f64::from(x + column), f64::from(y + row));
                prop_assert!((here.0 - there.0).abs() < 1e-6 && (here.1 - there.1).abs() < 1e-6);
                let (back_x, back_y) = whole.pixel(there.0, there.1).expect("a pixel");
                prop_assert!((back_x - f64::from(x + column)).abs() < 1e-6, "{back_x}");
                prop_assert!((back_y - f64::from(y + row)).abs() < 1e-6, "{back_y}");
            }
        }
    }
}
