//! Samples in memory, seen as rows.

use super::RankError;

/// Rows of samples: row `y` is `samples[y * stride..][..width]`.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T> {
    samples: &'a [T],
    width: usize,
    height: usize,
    stride: usize,
}

/// The same, to write to.
#[derive(Debug)]
pub struct PlaneMut<'a, T> {
    samples: &'a mut [T],
    width: usize,
    height: usize,
    stride: usize,
}

/// Rows of a plane do not overlap, and the last one ends within the samples.
fn check(samples: usize, width: usize, height: usize, stride: usize) -> Result<(), RankError> {
    let before = height.saturating_sub(1).checked_mul(stride);
    let end = before.and_then(|before| before.checked_add(width));
    let fits = height == 0 || (width <= stride && end.is_some_and(|end| end <= samples));
    if fits {
        Ok(())
    } else {
        Err(RankError::Short {
            width,
            height,
            stride,
            samples,
        })
    }
}

impl<'a, T> Plane<'a, T> {
    /// # Errors
    ///
    /// There are too few samples, or rows overlap.
    pub fn new(
        samples: &'a [T],
        width: usize,
        height: usize,
        stride: usize,
    ) -> Result<Self, RankError> {
        check(samples.len(), width, height, stride)?;
        Ok(Self {
            samples,
            width,
            height,
            stride,
        })
    }

    /// Columns and rows.
    #[must_use]
    pub const fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// # Panics
    ///
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, y: usize) -> &'a [T] {
        assert!(y < self.height, "There is no row {y} in {}", self.height);
        &self.samples[y * self.stride..][..self.width]
    }

    /// A part of it that lies within it.
    pub(super) fn part(&self, at: (usize, usize), size: (usize, usize)) -> Self {
        let begin = (at.1 * self.stride + at.0).min(self.samples.len());
        Self {
            samples: &self.samples[begin..],
            width: size.0,
            height: size.1,
            stride: self.stride,
        }
    }
}

impl<'a, T> PlaneMut<'a, T> {
    /// # Errors
    ///
    /// There are too few samples, or rows overlap.
    pub fn new(
        samples: &'a mut [T],
        width: usize,
        height: usize,
        stride: usize,
    ) -> Result<Self, RankError> {
        check(samples.len(), width, height, stride)?;
        Ok(Self {
            samples,
            width,
            height,
            stride,
        })
    }

    /// Columns and rows.
    #[must_use]
    pub const fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// # Panics
    ///
    /// If there is no such row.
    #[must_use]
    pub fn row_mut(&mut self, y: usize) -> &mut [T] {
        assert!(y < self.height, "There is no row {y} in {}", self.height);
        &mut self.samples[y * self.stride..][..self.width]
    }
}
