//! Pixels in other places: a part of an image, one that is turned or mirrored.

use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Rect, SampleType, Samples, Size, each};

/// A part of an image.
pub struct Crop(pub Rect);

impl Operation for Crop {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn region(&self, wanted: Rect, _: Size) -> Rect {
        Rect {
            x: wanted.x + self.0.x,
            y: wanted.y + self.0.y,
            ..wanted
        }
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, _: Size, _: SampleType) -> u64 {
        0
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        Ok(vec![given.part.clone()])
    }
}

/// By quarters of a circle, or mirrored, or both: first columns and rows change places or do not, then each is
/// counted from the other end or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub transposed: bool,
    pub from_right: bool,
    pub from_below: bool,
}

impl Turn {
    /// By its name, with quarters of a circle clockwise.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let [transposed, from_right, from_below] = match name {
            "90" => [true, false, true],
            "180" => [false, true, true],
            "270" => [true, true, false],
            "left-right" => [false, true, false],
            "top-bottom" => [false, false, true],
            "transpose" => [true, false, false],
            "transverse" => [true, true, true],
            _ => return None,
        };
        Some(Self {
            transposed,
            from_right,
            from_below,
        })
    }

    /// Of the image that is made.
    #[must_use]
    pub fn size(self, of: Size) -> Size {
        match self.transposed {
            true => Size::new(of.height, of.width),
            false => of,
        }
    }

    /// Where the place of a pixel's corner in the image that is made lies in the other one: column and row of 0, and
    /// the steps of both for a column and for a row.
    #[must_use]
    pub fn corners(self, of: Size) -> [(f64, f64); 3] {
        let end = |back: bool, all: u32| if back { f64::from(all) } else { 0.0 };
        let step = |back: bool| if back { -1.0 } else { 1.0 };
        let (across, down) = (step(self.from_right), step(self.from_below));
        let begin = (
            end(self.from_right, of.width),
            end(self.from_below, of.height),
        );
        match self.transposed {
            true => [begin, (0.0, down), (across, 0.0)],
            false => [begin, (across, 0.0), (0.0, down)],
        }
    }

    fn turned<T: Copy>(self, values: &[T], of: Size) -> Vec<T> {
        let (width, height) = (of.width as usize, of.height as usize);
        let made = self.size(of);
        let mut turned = Vec::with_capacity(values.len());
        for y in 0..made.height as usize {
            for x in 0..made.width as usize {
                let (column, row) = if self.transposed { (y, x) } else { (x, y) };
                let column = match self.from_right {
                    true => width - 1 - column,
                    false => column,
                };
                let row = if self.from_below {
                    height - 1 - row
                } else {
                    row
                };
                turned.push(values[row * width + column]);
            }
        }
        turned
    }
}

impl Operation for Turn {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn region(&self, wanted: Rect, of: Size) -> Rect {
        let Rect {
            x,
            y,
            width,
            height,
        } = wanted;
        let (x, y, width, height) = match self.transposed {
            true => (y, x, height, width),
            false => (x, y, width, height),
        };
        let x = if self.from_right {
            of.width - x - width
        } else {
            x
        };
        let y = match self.from_below {
            true => of.height - y - height,
            false => y,
        };
        Rect::new(x, y, width, height)
    }

    fn reach(&self, wanted: Size) -> Size {
        self.size(wanted)
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, _: Size, _: SampleType) -> u64 {
        0
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let of = given.rect.size();
        let samples: Samples = each!(&given.part.samples, values => self.turned(values, of).into());
        let there = given.part.there.as_ref();
        Ok(vec![Part {
            samples,
            there: there.map(|there| self.turned(there, of)),
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 7] = [
        "90",
        "180",
        "270",
        "left-right",
        "top-bottom",
        "transpose",
        "transverse",
    ];

    #[test]
    fn an_image_is_turned() {
        // 0 1 2
        // 3 4 5
        let of = Size::new(3, 2);
        let turned = |name: &str| Turn::of(name).expect(name).turned(&[0, 1, 2, 3, 4, 5], of);
        assert_eq!(turned("90"), [3, 0, 4, 1, 5, 2]);
        assert_eq!(turned("180"), [5, 4, 3, 2, 1, 0]);
        assert_eq!(turned("270"), [2, 5, 1, 4, 0, 3]);
        assert_eq!(turned("left-right"), [2, 1, 0, 5, 4, 3]);
        assert_eq!(turned("top-bottom"), [3, 4, 5, 0, 1, 2]);
        assert_eq!(turned("transpose"), [0, 3, 1, 4, 2, 5]);
        assert_eq!(turned("transverse"), [5, 2, 4, 1, 3, 0]);
        assert_eq!(Turn::of("45"), None);
    }

    #[test]
    fn a_part_of_what_is_turned_is_the_part_turned() {
        let of = Size::new(5, 4);
        let number = |x: u32, y: u32| y * of.width + x;
        let all: Vec<u32> = (0..20).collect();
        let wanted = Rect::new(1, 2, 2, 1);
        for name in NAMES {
            let turn = Turn::of(name).expect(name);
            let whole = turn.turned(&all, of);
            let width = turn.size(of).width;
            let expected = [1, 2].map(|x| whole[(2 * width + x) as usize]);
            let region = turn.region(wanted, of);
            assert!(region.is_within(of), "{name}: {region}");
            let rows = region.y..region.y + region.height;
            let part = rows.flat_map(|y| (region.x..region.x + region.width).map(move |x| (x, y)));
            let part: Vec<u32> = part.map(|(x, y)| number(x, y)).collect();
            assert_eq!(turn.turned(&part, region.size()), expected, "{name}");
            assert_eq!(turn.reach(wanted.size()), region.size(), "{name}");
        }
    }
}
