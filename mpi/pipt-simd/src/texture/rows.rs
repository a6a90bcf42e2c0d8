//! Numbers of a row of windows.

/// So many rows of so many numbers: sums are integers below 2^53, which are exact.
pub(super) struct Rows {
    width: usize,
    values: Vec<f64>,
}

impl Rows {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self {
            width,
            values: vec![0.0; rows * width],
        }
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub(super) fn row(&self, slot: usize) -> &[f64] {
        &self.values[slot * self.width..(slot + 1) * self.width]
    }

    #[inline(always)]
    pub(super) fn row_mut(&mut self, slot: usize) -> &mut [f64] {
        &mut self.values[slot * self.width..(slot + 1) * self.width]
    }

    pub(super) fn clear(&mut self) {
        self.values.fill(0.0);
    }
}
