//! Sizes and rectangles, in pixels.

use std::fmt;

/// Of an image or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    #[must_use]
    pub const fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    #[must_use]
    pub const fn pixels(self) -> u64 {
        self.width as u64 * self.height as u64
    }

    /// With so many pixels around it.
    #[must_use]
    pub const fn grown(self, halo: Halo) -> Self {
        Self {
            width: self
                .width
                .saturating_add(halo.left)
                .saturating_add(halo.right),
            height: self
                .height
                .saturating_add(halo.above)
                .saturating_add(halo.below),
        }
    }

    /// All of it.
    #[must_use]
    pub const fn rect(self) -> Rect {
        Rect {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} x {}", self.width, self.height)
    }
}

/// Part of an image: columns `x..x + width` of the rows `y..y + height`, from the upper left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rect {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

impl Rect {
    #[must_use]
    pub const fn new(x: u32, y: u32, width: u32, height: u32) -> Self {
        Self {
            x,
            y,
            width,
            height,
        }
    }

    #[must_use]
    pub const fn size(self) -> Size {
        Size::new(self.width, self.height)
    }

    #[must_use]
    pub const fn pixels(self) -> u64 {
        self.size().pixels()
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// The first column to its right, and the first row below it.
    #[must_use]
    pub const fn end(self) -> (u64, u64) {
        (
            self.x as u64 + self.width as u64,
            self.y as u64 + self.height as u64,
        )
    }

    /// Whether it lies within an image of this size.
    #[must_use]
    pub const fn is_within(self, size: Size) -> bool {
        let (right, below) = self.end();
        right <= size.width as u64 && below <= size.height as u64
    }

    /// What both have in common; empty, if that is nothing.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        let ((right, below), (other_right, other_below)) = (self.end(), other.end());
        let (x, y) = (self.x.max(other.x), self.y.max(other.y));
        let extent = |end: u64, begin: u32| {
            u32::try_from(end.saturating_sub(u64::from(begin))).unwrap_or(u32::MAX)
        };
        Self {
            x,
            y,
            width: extent(right.min(other_right), x),
            height: extent(below.min(other_below), y),
        }
    }

    /// The smallest rectangle that has both within.
    #[must_use]
    pub fn around(self, other: Self) -> Self {
        let ((right, below), (other_right, other_below)) = (self.end(), other.end());
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let extent = |end: u64, begin: u32| {
            u32::try_from(end.saturating_sub(u64::from(begin))).unwrap_or(u32::MAX)
        };
        Self {
            x,
            y,
            width: extent(right.max(other_right), x),
            height: extent(below.max(other_below), y),
        }
    }

    /// It and so many pixels around it, cut at the edges of an image of this size.
    #[must_use]
    pub fn grown(self, halo: Halo, size: Size) -> Self {
        let (x, y) = (
            self.x.saturating_sub(halo.left),
            self.y.saturating_sub(halo.above),
        );
        let (right, below) = self.end();
        let end = |end: u64, more: u32, most: u32| {
            u32::try_from((end + u64::from(more)).min(u64::from(most))).unwrap_or(most)
        };
        let (right, below) = (
            end(right, halo.right, size.width),
            end(below, halo.below, size.height),
        );
        Self {
            x,
            y,
            width: right.saturating_sub(x),
            height: below.saturating_sub(y),
        }
    }
}

impl fmt::Display for Rect {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} at ({}, {})", self.size(), self.x, self.y)
    }
}

/// Pixels around a part of an image that an operation looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Halo {
    pub left: u32,
    pub right: u32,
    pub above: u32,
    pub below: u32,
}

impl Halo {
    /// So many on each side.
    #[must_use]
    pub const fn even(pixels: u32) -> Self {
        Self {
            left: pixels,
            right: pixels,
            above: pixels,
            below: pixels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_halo_ends_at_the_edge_of_the_image() {
        let size = Size::new(10, 6);
        let rect = Rect::new(1, 2, 4, 4);
        assert_eq!(rect.grown(Halo::even(3), size), Rect::new(0, 0, 8, 6));
        let whole = size.rect();
        assert_eq!(whole.grown(Halo::even(u32::MAX), size), whole);
        assert_eq!(size.grown(Halo::even(3)), Size::new(16, 12));
        assert_eq!(size.grown(Halo::even(u32::MAX)).width, u32::MAX);
    }

    #[test]
    fn what_lies_apart_has_nothing_in_common() {
        let far = Rect::new(100, 0, 5, 5).intersection(Rect::new(0, 0, 100, 5));
        assert!(far.is_empty(), "{far}");
        assert_eq!(
            Rect::new(2, 2, 4, 4).intersection(Rect::new(4, 0, 9, 3)),
            Rect::new(4, 2, 2, 1)
        );
        assert!(!Rect::new(u32::MAX, 0, 1, 1).is_within(Size::new(u32::MAX, 1)));
    }

    proptest! {
        #[test]
        fn in_common_is_what_is_in_both(
            a in any::<[u8; 4]>(), b in any::<[u8; 4]>(), x in 0..520u32, y in 0..520u32,
        ) {
            let rect = |n: [u8; 4]| {
                let [x, y, width, height] = n.map(u32::from);
                Rect { x, y, width, height }
            };
            let has = |r: Rect| x >= r.x && x - r.x < r.width && y >= r.y && y - r.y < r.height;
            let (a, b) = (rect(a), rect(b));
            prop_assert_eq!(has(a.intersection(b)), has(a) && has(b));
        }
    }
}
