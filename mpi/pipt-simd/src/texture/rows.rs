//! Numbers of a row of windows.

/// Windows that are finished at a time: their numbers stay near the processor from the sums to the outputs.
pub(super) const PART: usize = 256;

/// A number of each of them. Sums are integers below 2^53, which are exact.
pub(super) type Part = [f64; PART];

/// So many rows of so many numbers, in parts, of which the last one may be longer than the row.
pub(super) struct Rows {
    width: usize,
    parts: usize,
    values: Vec<Part>,
}

impl Rows {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        let parts = width.div_ceil(PART);
        Self {
            width,
            parts,
            values: vec![[0.0; PART]; rows * parts],
        }
    }

    pub(super) fn bytes(rows: usize, width: usize) -> usize {
        rows * width.next_multiple_of(PART) * size_of::<f64>()
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    pub(super) fn row_mut(&mut self, slot: usize) -> &mut [f64] {
        let row = &mut self.values[slot * self.parts..(slot + 1) * self.parts];
        &mut row.as_flattened_mut()[..self.width]
    }

    #[inline(always)]
    pub(super) fn part(&self, slot: usize, number: usize) -> &Part {
        &self.values[slot * self.parts + number]
    }
}
