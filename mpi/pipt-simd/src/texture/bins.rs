//! The histograms of windows side by side, where pairs have few codes.
//!
//! Each code is counted by itself: how often it occurs in the columns of a row of windows, which slide down,
//! and then in each window, a vector of windows at a time. That costs as many additions as there are codes,
//! whatever the number of pairs that are equal, and offsets that count together have their columns in common.
//!
//! All that a window has to give follows from these counts: those of the levels, of their sums and of their
//! differences are sums of some of them, and a sum over pairs is one over codes. The results are the integers
//! that a [`Histogram`](super::histogram::Histogram) and [`moments`](super::moments) give.

mod recipe;

use super::aligned::Aligned;
use super::image::{Geometry, Grey, PairRow};
use super::matches::{MOST_PAIRS, MOST_SIDE};
use super::parameters::{Combine, Parameters};
use super::rows::Rows;
use super::tally;
use super::tally::Tallied;
use crate::{Level, for_each_level};

pub(super) use recipe::{Asked, Recipe, Sum};
use recipe::{Number, Recipes};

/// With more levels than these, comparing pairs costs less than so many codes.
const MOST_LEVELS: u32 = 8;

/// Bits of a code that are the second level.
const LEVEL_BITS: u32 = 3;

/// Codes of as many levels, in whole fours.
pub(super) const MOST_CODES: usize = 64;

/// The most offsets that are counted together.
const MOST_OFFSETS: usize = Parameters::MOST_OFFSETS;

/// A code of nothing, and the key of pairs that are not valid and of rows that are not there.
const NOTHING: u8 = 254;
const INVALID: u8 = u8::MAX;

/// Keys of a vector of pairs: of the row that comes into the columns, and of the one that leaves them.
pub(super) type Keys<const LANES: usize> = [[u8; LANES]; 2];

/// Whether all histograms and sums can be made of the counts of codes, each in a byte: a margin of a
/// symmetric matrix counts each pair twice, which has to be a byte if its logarithm is wanted.
pub(super) fn can_count(parameters: &Parameters, geometry: &[Geometry], twice: bool) -> bool {
    let pairs = geometry.iter().map(Geometry::pairs);
    let most = match parameters.combine {
        Combine::Sum => pairs.sum(),
        Combine::Mean | Combine::Separate => pairs.max().unwrap_or(0),
    };
    parameters.levels <= MOST_LEVELS
        && most << u32::from(twice) <= MOST_PAIRS
        && geometry.iter().all(|of| of.columns <= MOST_SIDE)
}

/// Whether this instruction set is faster that way.
pub(super) fn is_fast(level: Level) -> bool {
    level >= Level::Avx2
}

#[inline(always)]
const fn code(first: u8, second: u8) -> u8 {
    (first << LEVEL_BITS) | second
}

/// The levels of a code, if it is one of pairs.
fn levels_of(code: u8) -> Option<(u8, u8)> {
    let levels = (code >> LEVEL_BITS, code & ((1 << LEVEL_BITS) - 1));
    (code != NOTHING).then_some(levels)
}

for_each_level! {
    /// Writes the codes of a row of pairs.
    fn encode_u8(row: PairRow<'_, u8>, unordered: bool, keys: &mut [u8]) = encode;
    /// The same.
    fn encode_u16(row: PairRow<'_, u16>, unordered: bool, keys: &mut [u8]) = encode;
}

#[inline(always)]
fn encode<L: Grey>(row: PairRow<'_, L>, unordered: bool, keys: &mut [u8]) {
    let pairs = row.first.iter().zip(row.second);
    let pairs = pairs.map(|(first, second)| (low_byte(*first), low_byte(*second)));
    if unordered {
        for (key, (a, b)) in keys.iter_mut().zip(pairs) {
            *key = code(a.min(b), a.max(b));
        }
    } else {
        for (key, (a, b)) in keys.iter_mut().zip(pairs) {
            *key = code(a, b);
        }
    }
    if let Some((first, second)) = row.valid {
        for (key, (first, second)) in keys.iter_mut().zip(first.iter().zip(second)) {
            let invalid = u8::from((*first == 0) | (*second == 0));
            *key |= 0_u8.wrapping_sub(invalid);
        }
    }
}

/// Levels here are at most 7; a masked pixel may have any.
#[inline(always)]
fn low_byte<L: Grey>(level: L) -> u8 {
    let level: u32 = level.into();
    level.to_le_bytes()[0]
}

/// How rows of pairs are encoded.
pub(super) type Encode<L> = fn(Level, PairRow<'_, L>, bool, &mut [u8]);

pub(super) const ENCODE_U8: Encode<u8> = encode_u8;
pub(super) const ENCODE_U16: Encode<u16> = encode_u16;

/// A band's pairs of one offset.
struct Plane {
    keys: Aligned<u8>,
    /// Pairs in a column of a window.
    rows: usize,
}

/// Offsets that have a pair in these columns of a window.
struct Group {
    offsets: Vec<usize>,
    columns: std::ops::Range<usize>,
}

/// What some offsets that count together are counted in.
struct Counter {
    offsets: std::ops::Range<usize>,
    groups: Vec<Group>,
    /// For each group of offsets and each code: how often it is in a column of the windows.
    columns: Aligned<u8>,
}

/// The numbers of a row of windows.
pub(super) struct Numbers {
    /// One after the other, in the order in which instructions leave them.
    values: Aligned<u32>,
    stride: usize,
}

impl Numbers {
    /// Those of a vector of windows, from `x` on.
    #[inline(always)]
    pub(super) fn vector<const LANES: usize>(
        &mut self,
        number: usize,
        x: usize,
    ) -> &mut [u32; LANES] {
        let begin = number * self.stride + x;
        let (vectors, _) = self.values[begin..].as_chunks_mut();
        &mut vectors[0]
    }
}

/// What a vector of windows has.
pub(super) struct Binned<'a> {
    pub recipe: &'a Recipe,
    /// Of each code and window, a vector of windows after the other. They may be overwritten.
    pub counts: &'a mut [u8],
    /// The first window.
    pub x: usize,
}

/// What an instruction set does with vectors.
pub(super) struct Vectors<Slide, Across, Gather, Tally> {
    /// Counts a code in columns: the keys that come and those that go.
    pub slide: Slide,
    /// Adds as many columns as there are bytes after a vector, from each window's first one on.
    pub across: Across,
    /// Adds the counts in these places.
    pub gather: Gather,
    pub tally: Tally,
}

/// Counts of the codes of all offsets, each by itself or together.
pub(super) struct Bins {
    recipes: Recipes,
    unordered: bool,
    planes: Vec<Plane>,
    counters: Vec<Counter>,
    /// For each code of pairs: how often it is in each of a vector of windows.
    counts: Aligned<u8>,
    /// For each code of a margin.
    gathered: Aligned<u8>,
    numbers: Numbers,
    width: usize,
    /// From a row of keys or columns to the next one.
    stride: usize,
}

impl Bins {
    /// For rows of so many windows, of which a band has so many. Offsets are counted each by itself, or by one
    /// counter.
    pub(super) fn new(
        asked: &Asked<'_>,
        geometry: &[Geometry],
        counters: usize,
        (width, band): (usize, usize),
    ) -> Self {
        let recipes = Recipes::new(asked);
        let stride = stride(width);
        let planes = geometry.iter().map(|of| Plane {
            keys: Aligned::new(INVALID, stride * (band + of.rows - 1)),
            rows: of.rows,
        });
        let each = geometry.len() / counters;
        let offsets = (0..geometry.len()).step_by(each);
        let lanes = tally::MOST_LANES;
        let counters = offsets.map(|first| {
            let groups = groups(&geometry[first..first + each]);
            let columns = groups.len() * recipes.codes.len() * stride + lanes;
            Counter {
                groups,
                offsets: first..first + each,
                columns: Aligned::new(0, columns),
            }
        });
        let room = width.next_multiple_of(lanes);
        Self {
            unordered: asked.symmetric,
            planes: planes.collect(),
            counters: counters.collect(),
            counts: Aligned::new(0, (MOST_CODES + 1) * lanes),
            gathered: Aligned::new(0, (MOST_CODES + 1) * lanes),
            numbers: Numbers {
                values: Aligned::new(0, recipes.numbers.len() * room),
                stride: room,
            },
            recipes,
            width,
            stride,
        }
    }

    /// Memory for so many numbers.
    pub(super) fn bytes(
        numbers: usize,
        geometry: &[Geometry],
        (width, band): (usize, usize),
    ) -> usize {
        let rows = geometry.iter().map(|of| band + of.rows - 1 + MOST_CODES);
        let lanes = tally::MOST_LANES;
        stride(width) * rows.sum::<usize>()
            + 2 * (MOST_CODES + 1) * lanes
            + numbers * width.next_multiple_of(lanes) * size_of::<u32>()
    }

    /// Takes the rows of pairs of a band of one offset.
    pub(super) fn fill<'a, L: Grey + 'a>(
        &mut self,
        (level, encode): (Level, Encode<L>),
        offset: usize,
        rows: impl Iterator<Item = PairRow<'a, L>>,
    ) {
        let keys = self.planes[offset].keys.chunks_exact_mut(self.stride);
        for (keys, row) in keys.zip(rows) {
            let length = row.first.len();
            encode(level, row, self.unordered, &mut keys[..length]);
        }
    }

    /// The numbers of a row of windows: rows come in their order, from a band's first one, which is 0.
    /// `counter` counts its offsets together.
    pub(super) fn run<N: Tallied>(
        &mut self,
        level: Level,
        (counter, row): (usize, usize),
        tables: &[[u8; 256]],
        rows: &mut Rows<N>,
    ) {
        tally::take_bins(level, self, (counter, row), tables);
        let values = self.numbers.values.chunks_exact(self.numbers.stride);
        for (values, number) in values.zip(&self.recipes.numbers) {
            let Number { row, scale } = *number;
            tally::write(level, values, rows.row_mut(row), scale);
        }
    }

    /// Counts each code in a row of windows.
    #[inline(always)]
    pub(super) fn take<const LANES: usize>(
        &mut self,
        (counter, row): (usize, usize),
        vectors: &Vectors<
            impl Fn(&mut [u8; LANES], u8, &[Keys<LANES>]),
            impl Fn(&[u8], &mut [u8; LANES]),
            impl Fn(&[[u8; LANES]], &[usize], &mut [u8; LANES]),
            impl Fn(Binned<'_>, &mut Numbers),
        >,
    ) {
        let (codes, stride) = (&self.recipes.codes[..], self.stride);
        let counter = &mut self.counters[counter];
        let planes = &self.planes[counter.offsets.clone()];
        if row == 0 {
            // Of a new band.
            counter.columns.fill(0);
            let most = planes.iter().map(|plane| plane.rows).max().unwrap_or(1);
            for before in (1..most).rev() {
                for x in (0..self.width + LANES).step_by(LANES) {
                    counter.slide((planes, codes), stride, (0, before, x), &vectors.slide);
                }
            }
        }
        let (counts, _) = self.counts.as_chunks_mut::<LANES>();
        let counts = &mut counts[..codes.len()];
        let (gathered, _) = self.gathered.as_chunks_mut::<LANES>();
        for x in (0..self.width + 2 * LANES).step_by(LANES) {
            if x < self.width + LANES {
                counter.slide((planes, codes), stride, (row, 0, x), &vectors.slide);
            }
            // Columns are read when they are no longer being written.
            let Some(x) = x.checked_sub(2 * LANES) else {
                continue;
            };
            counter.across((stride, x), &vectors.across, counts);
            // That of the pairs' own codes comes last.
            for recipe in &self.recipes.all {
                let gathered = &mut gathered[..recipe.sources.len()];
                for (to, sources) in gathered.iter_mut().zip(&recipe.sources) {
                    (vectors.gather)(counts, sources, to);
                }
                let counts = if recipe.sources.is_empty() {
                    counts.as_flattened_mut()
                } else {
                    gathered.as_flattened_mut()
                };
                (vectors.tally)(Binned { recipe, counts, x }, &mut self.numbers);
            }
        }
    }
}

/// An odd number of vectors, so that codes do not meet in the same lines of the cache.
const fn stride(width: usize) -> usize {
    let lanes = tally::MOST_LANES;
    (width + lanes).next_multiple_of(2 * lanes) + lanes
}

fn groups(geometry: &[Geometry]) -> Vec<Group> {
    let mut lengths: Vec<usize> = geometry.iter().map(|of| of.columns).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let before = std::iter::once(0).chain(lengths.iter().copied());
    let groups = before.zip(&lengths).map(|(before, length)| {
        let offsets = 0..geometry.len();
        let offsets = offsets.filter(|at| geometry[*at].columns >= *length);
        Group {
            offsets: offsets.collect(),
            columns: before..*length,
        }
    });
    groups.collect()
}

impl Counter {
    /// A row of pairs comes into a vector of columns, and one goes: the last one of this row of windows, or
    /// the one so many rows before it.
    #[inline(always)]
    fn slide<const LANES: usize>(
        &mut self,
        (planes, codes): (&[Plane], &[u8]),
        stride: usize,
        (row, before, x): (usize, usize, usize),
        slide: &impl Fn(&mut [u8; LANES], u8, &[Keys<LANES>]),
    ) {
        let columns = self.columns.chunks_exact_mut(stride);
        let mut columns = columns.map(|columns| {
            let (vector, _) = columns[x..].as_chunks_mut();
            &mut vector[0]
        });
        for group in &self.groups {
            let mut keys: [Keys<LANES>; MOST_OFFSETS] = [[[INVALID; LANES]; 2]; MOST_OFFSETS];
            for (keys, offset) in keys.iter_mut().zip(&group.offsets) {
                let plane = &planes[*offset];
                let come = (row + plane.rows).checked_sub(1 + before);
                for (keys, row) in keys.iter_mut().zip([come, row.checked_sub(1)]) {
                    if let Some(row) = row {
                        let (there, _) = plane.keys[row * stride + x..].as_chunks();
                        *keys = there[0];
                    }
                }
            }
            let keys = &keys[..group.offsets.len()];
            for (code, columns) in codes.iter().zip(&mut columns) {
                slide(columns, *code, keys);
            }
        }
    }

    /// Counts in a vector of windows.
    #[inline(always)]
    fn across<const LANES: usize>(
        &mut self,
        (stride, x): (usize, usize),
        across: &impl Fn(&[u8], &mut [u8; LANES]),
        counts: &mut [[u8; LANES]],
    ) {
        let columns = &self.columns;
        let codes = counts.len();
        for (place, sums) in counts.iter_mut().enumerate() {
            *sums = [0; LANES];
            for (order, group) in self.groups.iter().enumerate() {
                let begin = (order * codes + place) * stride + x;
                let (first, end) = (group.columns.start, group.columns.end);
                across(&columns[begin + first..begin + end + LANES - 1], sums);
            }
        }
    }
}
