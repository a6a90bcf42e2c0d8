//! Images of grey levels, as the kernels take them.

use pipt_raster::rect::Halo;

use super::parameters::TextureError;

/// Grey levels, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Levels<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
}

impl Levels<'_> {
    fn len(&self) -> usize {
        match self {
            Self::U8(levels) => levels.len(),
            Self::U16(levels) => levels.len(),
        }
    }
}

/// The levels of a rectangle of pixels and of margins around it.
#[derive(Clone, Copy, Debug)]
pub struct LevelImage<'a> {
    pub(super) levels: Levels<'a>,
    pub(super) mask: Option<&'a [u8]>,
    /// From a row's begin to the next one's, in samples; of the levels and of the mask.
    pub(super) stride: usize,
    /// Of the rectangle, without margins.
    pub(super) width: usize,
    pub(super) height: usize,
}

impl<'a> LevelImage<'a> {
    /// `width` x `height` pixels that results are wanted for. `levels` begins with the margin's upper left
    /// corner: its rows have `stride` samples, of which the first `left + width + right` are used, and there
    /// are `above + height + below` of them ([`Plan::halo`](super::Plan::halo)). `mask` has the same rows: 0
    /// is a pixel without a level. Where a window should shrink at an image's edge, the margin is masked.
    #[must_use]
    pub const fn new(
        levels: Levels<'a>,
        mask: Option<&'a [u8]>,
        stride: usize,
        width: usize,
        height: usize,
    ) -> Self {
        Self {
            levels,
            mask,
            stride,
            width,
            height,
        }
    }

    /// Whether the buffers have all that is read, and no valid level is too large.
    pub(super) fn check(&self, halo: Halo, levels: u32) -> Result<(), TextureError> {
        let too_large = || TextureError::Size(self.width, self.height);
        let grown = |inner: usize, before: u32, after: u32| {
            let margin = usize::try_from(u64::from(before) + u64::from(after)).ok()?;
            inner.checked_add(margin)
        };
        let columns = grown(self.width, halo.left, halo.right).ok_or_else(too_large)?;
        let rows = grown(self.height, halo.above, halo.below).ok_or_else(too_large)?;
        if self.stride < columns {
            return Err(TextureError::Stride(self.stride, columns));
        }
        let before_last = (rows - 1).checked_mul(self.stride).ok_or_else(too_large)?;
        let needed = before_last.checked_add(columns).ok_or_else(too_large)?;
        if self.levels.len() < needed {
            return Err(TextureError::Image(self.levels.len(), needed));
        }
        if let Some(mask) = self.mask
            && mask.len() < needed
        {
            return Err(TextureError::Mask(mask.len(), needed));
        }
        let largest = match self.levels {
            Levels::U8(_) if levels >= 256 => 0,
            Levels::U8(all) => u32::from(self.largest(all, columns, rows)),
            Levels::U16(_) if levels >= 65_536 => 0,
            Levels::U16(all) => u32::from(self.largest(all, columns, rows)),
        };
        if largest >= levels {
            return Err(TextureError::Level(largest, levels));
        }
        Ok(())
    }

    fn largest<L: Copy + Ord + Default>(&self, all: &[L], columns: usize, rows: usize) -> L {
        let mut largest = L::default();
        for row in 0..rows {
            let begin = row * self.stride;
            let row = &all[begin..begin + columns];
            match self.mask {
                None => largest = row.iter().fold(largest, |a, b| a.max(*b)),
                Some(mask) => {
                    let valid = row.iter().zip(&mask[begin..begin + columns]);
                    largest = valid.fold(
                        largest,
                        |a, (b, valid)| {
                            if *valid != 0 { a.max(*b) } else { a }
                        },
                    );
                }
            }
        }
        largest
    }
}

/// A sample that is a level.
pub(super) trait Grey: Copy + Into<u32> {
    /// Levels of bytes as they are.
    fn bytes(levels: &[Self]) -> Option<&[u8]>;
}

impl Grey for u8 {
    #[inline(always)]
    fn bytes(levels: &[Self]) -> Option<&[u8]> {
        Some(levels)
    }
}

impl Grey for u16 {
    #[inline(always)]
    fn bytes(_: &[Self]) -> Option<&[u8]> {
        None
    }
}

/// Levels of one type with their rows.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a, L> {
    pub levels: &'a [L],
    pub mask: Option<&'a [u8]>,
    pub stride: usize,
}

/// A row of pairs: the first pixels, the second ones, and whether they are valid.
#[derive(Clone, Copy)]
pub(super) struct PairRow<'a, L> {
    pub first: &'a [L],
    pub second: &'a [L],
    pub valid: Option<(&'a [u8], &'a [u8])>,
}

/// Where the pairs of an offset lie in the windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// The first and second pixel of the first pair of the first window, in the padded image.
    first: (usize, usize),
    second: (usize, usize),
    /// Pairs in a row and in a column of a window.
    pub columns: usize,
    pub rows: usize,
}

impl Geometry {
    pub(super) const fn new(
        first: (usize, usize),
        second: (usize, usize),
        columns: usize,
        rows: usize,
    ) -> Self {
        Self {
            first,
            second,
            columns,
            rows,
        }
    }

    pub(super) const fn pairs(&self) -> usize {
        self.columns * self.rows
    }

    /// The pairs' row number `row` of a rectangle of that width.
    #[inline(always)]
    pub(super) fn row<'a, L>(
        &self,
        grid: &Grid<'a, L>,
        row: usize,
        width: usize,
    ) -> PairRow<'a, L> {
        let length = width + self.columns - 1;
        let first = (self.first.1 + row) * grid.stride + self.first.0;
        let second = (self.second.1 + row) * grid.stride + self.second.0;
        PairRow {
            first: &grid.levels[first..first + length],
            second: &grid.levels[second..second + length],
            valid: grid
                .mask
                .map(|mask| (&mask[first..first + length], &mask[second..second + length])),
        }
    }
}
