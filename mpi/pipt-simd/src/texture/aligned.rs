//! Memory that begins where a cache line does.
//!
//! What is allocated begins 16 bytes after such a place if it is large, so that every vector of 64 bytes would
//! lie in two lines, and be read and written twice.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the largest vector.
const LINE: usize = 64;

/// So many values, which are never more or fewer: they would move.
pub(super) struct Aligned<T> {
    values: Vec<T>,
    first: usize,
    length: usize,
}

impl<T: Copy> Aligned<T> {
    pub(super) fn new(value: T, length: usize) -> Self {
        let values = vec![value; length + LINE / size_of::<T>().clamp(1, LINE)];
        let first = values.as_ptr().align_offset(LINE);
        Self {
            // It is right wherever it begins.
            first: first.min(values.len() - length),
            values,
            length,
        }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.values[self.first..self.first + self.length]
    }
}

impl<T> DerefMut for Aligned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.first..self.first + self.length]
    }
}
