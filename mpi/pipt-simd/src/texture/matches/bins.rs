//! The histograms of windows side by side, where pairs have few codes.
//!
//! Each code is counted by itself: how often it occurs in the columns of a row of windows, which slide down,
//! and then in each window, a vector of windows at a time. That costs as many additions as there are codes,
//! whatever the number of pairs that are equal, and offsets that count together have their columns in common.

use super::{BEFORE, Planes, aligned, code};
use crate::Level;
use crate::texture::Parameters;
use crate::texture::tally::{self, Tallies};

/// With more levels than these, comparing pairs costs less than so many codes.
const MOST_LEVELS: u32 = 8;

/// Windows of so many pairs a side are compared faster with AVX-512 if none of them is masked.
const MOST_COMPARED: usize = 5;

/// Codes of as many levels, those of different and of equal levels in whole fours.
const MOST_CODES: usize = 28 + 8;

/// The most offsets that are counted together.
const MOST_OFFSETS: usize = Parameters::MOST_OFFSETS;

/// A code of nothing, and the key of pairs that are not valid and of rows that are not there.
const NOTHING: u8 = 254;
const INVALID: u8 = u8::MAX;

/// Keys of a vector of pairs: of the row that comes into the columns, and of the one that leaves them.
pub(in crate::texture) type Keys<const LANES: usize> = [[u8; LANES]; 2];

/// Counts of the codes of some offsets.
#[derive(Default)]
pub(super) struct Bins {
    /// For each group of offsets and each code: how often it is in a column of the windows.
    columns: Vec<u8>,
    /// For each code: how often it is in each of a vector of windows.
    counts: Vec<u8>,
    /// Those of different levels come first. Fours are filled up with what is no code.
    codes: Vec<u8>,
    first_equal: usize,
    stride: usize,
    groups: Vec<Group>,
}

/// Offsets that have a pair in these columns of a window.
struct Group {
    offsets: Vec<usize>,
    columns: std::ops::Range<usize>,
}

/// What a vector of windows has.
#[derive(Clone, Copy)]
pub(in crate::texture) struct Binned<'a> {
    /// Of each code and window, a vector of windows after the other.
    pub counts: &'a [u8],
    /// How many are of different levels: they come first.
    pub different: usize,
    /// No count is larger.
    pub most: u8,
    /// The first window, and its row.
    pub x: usize,
    pub row: usize,
}

/// What an instruction set does with vectors.
pub(in crate::texture) struct Vectors<Slide, Across, Tally> {
    /// Counts a code in columns: the keys that come and those that go.
    pub slide: Slide,
    /// Adds as many columns as there are bytes after a vector, from each window's first one on.
    pub across: Across,
    pub tally: Tally,
}

impl Bins {
    pub(super) const fn are_few(levels: u32) -> bool {
        levels <= MOST_LEVELS
    }

    /// Whether counting codes is faster than comparing the pairs of these offsets.
    pub(super) fn are_fast(level: Level, among: &[Planes]) -> bool {
        let compared = |of: &Planes| of.columns.max(of.rows) <= MOST_COMPARED && !of.masked;
        let fast = level >= Level::Avx512 && among.len() == 1 && among.iter().all(compared);
        Self::are_few(among[0].levels) && !fast
    }

    pub(super) fn bytes(width: usize) -> usize {
        2 * MOST_CODES * (width + 2 * tally::MOST_LANES)
    }

    /// Begins a band.
    fn begin(&mut self, among: &[Planes], width: usize) {
        let levels = u8::try_from(among[0].levels).unwrap_or(u8::MAX);
        self.codes.clear();
        let different = (1..levels).flat_map(|large| (0..large).map(move |small| (small, large)));
        self.codes
            .extend(different.map(|(small, large)| code(small, large)));
        self.fill_up();
        self.first_equal = self.codes.len();
        self.codes
            .extend((0..levels).map(|level| code(level, level)));
        self.fill_up();
        let lanes = tally::MOST_LANES;
        // An odd number of vectors, so that codes do not meet in the same lines of the cache.
        self.stride = (width + lanes).next_multiple_of(2 * lanes) + lanes;
        let mut lengths: Vec<usize> = among.iter().map(|planes| planes.columns).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let before = std::iter::once(0).chain(lengths.iter().copied());
        let groups = before.zip(&lengths).map(|(before, length)| {
            let offsets = 0..among.len();
            Group {
                offsets: offsets.filter(|at| among[*at].columns >= *length).collect(),
                columns: before..*length,
            }
        });
        self.groups = groups.collect();
        let rows = self.groups.len() * self.codes.len();
        self.columns.clear();
        self.columns.resize((rows + 1) * self.stride, 0);
        self.counts.resize((self.codes.len() + 1) * lanes, 0);
    }

    fn fill_up(&mut self) {
        self.codes
            .resize(self.codes.len().next_multiple_of(4), NOTHING);
    }

    /// Counts a row of windows: rows come in their order, from a band's first one.
    #[inline(always)]
    pub(super) fn take<const LANES: usize>(
        &mut self,
        (among, row): (&[Planes], usize),
        tallies: &mut Tallies,
        vectors: &mut Vectors<
            impl Fn(&mut [u8; LANES], u8, &[Keys<LANES>]),
            impl Fn(&[u8], &mut [u8; LANES]),
            impl FnMut(&mut Tallies, Binned<'_>),
        >,
    ) {
        let width = tallies.width();
        if row == 0 {
            self.begin(among, width);
            let most = among.iter().map(|planes| planes.rows).max().unwrap_or(1);
            for before in (1..most).rev() {
                for x in (0..width + LANES).step_by(LANES) {
                    self.slide(among, (0, before), x, &vectors.slide);
                }
            }
        }
        for x in (0..width + LANES).step_by(LANES) {
            self.slide(among, (row, 0), x, &vectors.slide);
            if x > 0 {
                let most = self.across(x - LANES, &vectors.across);
                let binned = Binned {
                    counts: &aligned(&mut self.counts)[..self.codes.len() * LANES],
                    different: self.first_equal,
                    most,
                    x: x - LANES,
                    row,
                };
                (vectors.tally)(tallies, binned);
            }
        }
    }

    /// A row of pairs comes into a vector of columns, and one goes: the last one of this row of windows, or
    /// the one so many rows before it.
    #[inline(always)]
    fn slide<const LANES: usize>(
        &mut self,
        among: &[Planes],
        (row, before): (usize, usize),
        x: usize,
        slide: &impl Fn(&mut [u8; LANES], u8, &[Keys<LANES>]),
    ) {
        let columns = aligned(&mut self.columns).chunks_exact_mut(self.stride);
        let mut columns = columns.map(|columns| {
            let (vector, _) = columns[x..].as_chunks_mut();
            &mut vector[0]
        });
        for group in &self.groups {
            let mut keys: [Keys<LANES>; MOST_OFFSETS] = [[[INVALID; LANES]; 2]; MOST_OFFSETS];
            for (keys, offset) in keys.iter_mut().zip(&group.offsets) {
                let planes = &among[*offset];
                let come = (row + planes.rows).checked_sub(1 + before);
                for (keys, row) in keys.iter_mut().zip([come, row.checked_sub(1)]) {
                    if let Some(row) = row {
                        let begin = row * planes.stride + BEFORE + x;
                        let (there, _) = planes.keys[begin..].as_chunks();
                        *keys = there[0];
                    }
                }
            }
            let keys = &keys[..group.offsets.len()];
            for (code, columns) in self.codes.iter().zip(&mut columns) {
                slide(columns, *code, keys);
            }
        }
    }

    /// Counts in a vector of windows; the largest count.
    #[inline(always)]
    fn across<const LANES: usize>(
        &mut self,
        x: usize,
        across: &impl Fn(&[u8], &mut [u8; LANES]),
    ) -> u8 {
        let codes = self.codes.len();
        let columns = aligned(&mut self.columns);
        let (counts, _) = aligned(&mut self.counts).as_chunks_mut();
        let mut most = [0_u8; LANES];
        for (place, sums) in counts.iter_mut().take(codes).enumerate() {
            *sums = [0; LANES];
            for (order, group) in self.groups.iter().enumerate() {
                let begin = (order * codes + place) * self.stride + x;
                let (first, end) = (group.columns.start, group.columns.end);
                across(&columns[begin + first..begin + end + LANES - 1], sums);
            }
            for lane in 0..LANES {
                most[lane] = most[lane].max(sums[lane]);
            }
        }
        most.iter().fold(0, |a, b| a.max(*b))
    }
}
