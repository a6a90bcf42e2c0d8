//! How often the pairs of small windows occur in them, many windows at a time.
//!
//! Energy, entropy and the largest entry need of each pair only how many pairs `c` of its window are equal to
//! it: the sum of squared counts is the sum of `c` over the pairs, that of `c log2 c` is the sum of `log2 c`,
//! and the largest count is the largest `c`. Every pair is compared with those around it, and `c` is the sum
//! of these matches over the window, which slides over the displacements: along the columns first, then along
//! the rows. That costs as many comparisons as a window has displacements, whatever the number of levels,
//! and no access to memory depends on a level. The results are the bits that a
//! [`Histogram`](super::histogram::Histogram) gives.

use super::aligned::Aligned;
use super::histogram::Slots;
use super::image::{Grey, PairRow};
use super::logarithms::Logarithms;
use super::rows::Rows;
use super::tally::{self, Tallied, Tallies};
use crate::Level;

/// The longest row and column of pairs in a window: counts of 15 x 15 pairs fit a byte.
pub(super) const MOST_SIDE: usize = 15;

/// The most pairs that are counted together.
pub(super) const MOST_PAIRS: usize = 255;

/// Rows of windows, at most, of which all sums of matches are made at once: larger ones do not stay in the nearest
/// cache.
const MOST_WHOLE: usize = 5;

/// Columns before the first pair of a row that may be read.
const BEFORE: usize = 16;

/// Levels of which all unordered pairs have a code of a byte, and one is left that is no pair.
const MOST_CODED: u32 = 22;

/// Whether windows with so many pixels a side are counted faster here, by this instruction set, than in a
/// histogram.
pub(super) fn is_fast(level: Level, levels: u32, window: usize) -> bool {
    // A large window has as many displacements, and with few levels large counts, which AVX2 looks up in
    // as many tables.
    let small = window < 15 || levels > 64;
    level >= Level::Avx512 || (level >= Level::Avx2 && small)
}

/// A band's pairs of one offset.
pub(super) struct Planes {
    /// A code of each pair, or its smaller level.
    pub(super) keys: Vec<u8>,
    /// The larger level where there are too many for codes. Pairs that are not valid have a smaller one that
    /// is larger.
    pub(super) larger: Vec<u8>,
    /// 2 for pairs of equal levels, 1 for others, 0 for what is not valid.
    pub(super) weights: Vec<u8>,
    levels: u32,
    masked: bool,
    /// From a row to the next one.
    pub(super) stride: usize,
    /// Rows above the first one, and below the last one, that are no pairs.
    beyond: usize,
    pub columns: usize,
    pub rows: usize,
}

impl Planes {
    pub(super) fn new(
        levels: u32,
        (length, height): (usize, usize),
        (columns, rows): (usize, usize),
    ) -> Self {
        let beyond = beyond(rows);
        let height = height + 2 * beyond;
        let stride =
            BEFORE + (length + tally::MOST_LANES).next_multiple_of(tally::MOST_LANES) + BEFORE;
        // What lies beside a row is compared as well, to no effect. It is unlike its neighbours, so that
        // nothing is thought to occur often there.
        let beside = (0..stride * height).map(|place| u8::try_from(place * 37 % 251).unwrap_or(0));
        let beside: Vec<u8> = beside.collect();
        Self {
            larger: if levels > MOST_CODED {
                beside.clone()
            } else {
                Vec::new()
            },
            weights: vec![0; stride * height],
            keys: beside,
            levels,
            masked: false,
            stride,
            beyond,
            columns,
            rows,
        }
    }

    pub(super) fn bytes(length: usize, height: usize, rows: usize) -> usize {
        3 * (length + 2 * tally::MOST_LANES) * (height + 2 * beyond(rows))
    }

    /// Whether a row of pairs may be compared with all rows that any window of it has, though there may be
    /// no such window.
    pub(super) const fn reaches_beyond(&self) -> bool {
        self.beyond > 0
    }

    /// Takes the rows of pairs of a band.
    pub(super) fn fill<'a, L: Grey + 'a>(&mut self, rows: impl Iterator<Item = PairRow<'a, L>>) {
        for (y, row) in rows.enumerate() {
            let length = row.first.len();
            let begin = self.begin(y, 0);
            let keys = &mut self.keys[begin..begin + length];
            let weights = &mut self.weights[begin..begin + length];
            let pairs = || {
                row.first
                    .iter()
                    .zip(row.second)
                    .map(|(a, b)| (low_byte(*a), low_byte(*b)))
            };
            weights
                .iter_mut()
                .zip(pairs())
                .for_each(|(weight, (a, b))| *weight = 1 + u8::from(a == b));
            let coded = self.levels <= MOST_CODED;
            if coded {
                keys.iter_mut()
                    .zip(pairs())
                    .for_each(|(key, (a, b))| *key = code(a.min(b), a.max(b)));
            } else {
                let larger = &mut self.larger[begin..begin + length];
                for ((key, larger), (a, b)) in keys.iter_mut().zip(larger).zip(pairs()) {
                    (*key, *larger) = (a.min(b), a.max(b));
                }
            }
            self.masked = row.valid.is_some();
            let Some((first, second)) = row.valid else {
                continue;
            };
            // All bits of what is no pair, so that no branch depends on a mask.
            let none = || {
                let both = first.iter().zip(second);
                both.map(|(a, b)| 0_u8.wrapping_sub(u8::from((*a == 0) | (*b == 0))))
            };
            let weights = weights.iter_mut().zip(none());
            weights.for_each(|(weight, none)| *weight &= !none);
            if coded {
                let keys = keys.iter_mut().zip(none());
                keys.for_each(|(key, none)| *key |= none);
            } else {
                let larger = &mut self.larger[begin..begin + length];
                for ((key, larger), none) in keys.iter_mut().zip(larger).zip(none()) {
                    *key = (*key & !none) | (none & 1);
                    *larger &= !none;
                }
            }
        }
    }

    /// Where a pair is in the planes.
    #[inline(always)]
    pub(super) fn begin(&self, row: usize, x: usize) -> usize {
        (row + self.beyond) * self.stride + BEFORE + x
    }

    /// The weights of a vector of pairs and of those after it.
    #[inline(always)]
    pub(super) fn weights(&self, row: usize, x: usize, length: usize) -> &[u8] {
        let begin = self.begin(row, x);
        &self.weights[begin..begin + length]
    }
}

/// Rows of no pairs around those of windows of so many rows.
const fn beyond(rows: usize) -> usize {
    if rows <= MOST_WHOLE { rows - 1 } else { 0 }
}

/// Levels here are at most 255; a masked pixel may have any.
#[inline(always)]
fn low_byte<L: Grey>(level: L) -> u8 {
    let level: u32 = level.into();
    level.to_le_bytes()[0]
}

/// Of levels below [`MOST_CODED`]; of others, which are masked, no matter what.
#[inline(always)]
fn code(smaller: u8, larger: u8) -> u8 {
    let larger = u16::from(larger);
    let [code, _] = (larger.wrapping_mul(larger + 1) / 2 + u16::from(smaller)).to_le_bytes();
    code
}

/// What a row of pairs is counted in: the windows of rows `top` to `bottom`.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) row: usize,
    pub(super) top: usize,
    pub(super) bottom: usize,
}

/// How often the pairs of one offset occur among those of some offsets.
pub(super) struct Matches {
    pub(super) tallies: Tallies,
    /// Matches summed up over the rows of a window, for each displacement along the row; of all the rows of
    /// windows that a pair is in, where these are made at once.
    sums: Aligned<u8>,
    /// Matches of the last rows, of which there are as many as a window has.
    matches: Aligned<u8>,
    /// Of each window row and place in it: counts of the pairs of two vectors, one after the other.
    pub(super) counts: Aligned<u8>,
    /// What no count of each of both is above.
    most: [u8; 2],
    /// The next row of pairs to be taken.
    next: usize,
}

impl Matches {
    pub(super) fn new(width: usize, columns: usize, rows: usize) -> Self {
        let lanes = tally::MOST_LANES;
        Self {
            tallies: Tallies::new(width, rows),
            sums: Aligned::new(0, (MOST_WHOLE * (columns + MOST_SIDE) + 1) * lanes),
            matches: Aligned::new(0, (MOST_SIDE * (columns + MOST_SIDE) + 1) * lanes),
            counts: Aligned::new(0, (rows * columns * 2 + 1) * lanes),
            most: [0; 2],
            next: 0,
        }
    }

    pub(super) fn bytes(width: usize, columns: usize, rows: usize) -> usize {
        let lanes = tally::MOST_LANES;
        let vectors = rows * 2 * columns + (MOST_SIDE + MOST_WHOLE) * (columns + MOST_SIDE) + 3;
        Tallies::bytes(width, rows) + vectors * lanes
    }

    /// Begins a band.
    pub(super) fn begin(&mut self) {
        self.next = 0;
    }

    /// One row of windows of a band of `height` rows: `row` counts from its first one. Rows come in their
    /// order. Numbers are added to what `rows` have if `add` is set.
    pub(super) fn run<N: Tallied>(
        &mut self,
        level: Level,
        (of, among): (&Planes, &[Planes]),
        (row, height): (usize, usize),
        logarithms: &Logarithms,
        (slots, rows, add): (Slots, &mut Rows<N>, bool),
    ) {
        while self.next < row + of.rows {
            let step = Step {
                row: self.next,
                top: (self.next + 1).saturating_sub(of.rows),
                bottom: self.next.min(height - 1),
            };
            tally::take_row(level, self, (of, among), step, logarithms);
            self.next += 1;
        }
        self.tallies.write(level, (row, slots, add), rows);
    }

    /// Takes a row of pairs, a vector of `LANES` pairs at a time: the windows that begin in a vector have
    /// pairs in the next one too. Matches of a vector take `MATCH` bytes. `slides` add matches, and `tally` what was counted to windows.
    #[inline(always)]
    pub(super) fn take<const LANES: usize, const MATCH: usize>(
        &mut self,
        (of, among): (&Planes, &[Planes]),
        step: Step,
        slides: Slides<impl Fn(Slide<'_>), impl Fn(Whole<'_>) -> bool>,
        mut tally: impl FnMut(&mut Tallies, Counted<'_>),
    ) {
        let rows = step.top..step.bottom + 1;
        let used = rows.len() * of.columns * 2 * LANES;
        for x in (0..self.tallies.width() + LANES).step_by(LANES) {
            for pair in self.counts[..used].chunks_exact_mut(2 * LANES) {
                let (first, second) = pair.split_at_mut(LANES);
                first.copy_from_slice(second);
            }
            self.most[0] = self.most[1];
            // The last vector of windows may have no pair in the next one.
            if x == 0 || x + 1 < self.tallies.width() + of.columns {
                self.count::<LANES, MATCH>((of, among), step, x, &slides);
            }
            if x > 0 {
                let counted = Counted {
                    counts: &self.counts[..used],
                    weights: of.weights(step.row, x - LANES, LANES + MOST_SIDE),
                    columns: of.columns,
                    most: self.most[0].max(self.most[1]),
                    x: x - LANES,
                    top: step.top,
                };
                tally(&mut self.tallies, counted);
            }
        }
    }

    /// Counts a vector of pairs in all windows that they are in.
    #[inline(always)]
    fn count<const LANES: usize, const MATCH: usize>(
        &mut self,
        (of, among): (&Planes, &[Planes]),
        step: Step,
        x: usize,
        slides: &Slides<impl Fn(Slide<'_>), impl Fn(Whole<'_>) -> bool>,
    ) {
        let mut most = [0; LANES];
        let windows = step.bottom + 1 - step.top;
        let (sums, matches) = (&mut *self.sums, &mut *self.matches);
        let counts = &mut *self.counts;
        let mut valid = [u8::MAX; LANES];
        if of.masked {
            let weights = of.weights(step.row, x, LANES).iter();
            let validity = valid.iter_mut().zip(weights);
            validity.for_each(|(valid, weight)| *valid = 0_u8.wrapping_sub(u8::from(*weight != 0)));
        }
        let begin = of.begin(step.row, x);
        for (order, with) in among.iter().enumerate() {
            let shifts = of.columns + with.columns - 1;
            let others = with.begin(step.top, x) - (of.columns - 1);
            let whole = windows == with.rows && windows <= MOST_WHOLE;
            if whole
                && (slides.whole)(Whole {
                    key: &of.keys[begin..begin + LANES],
                    larger: of.larger.get(begin..begin + LANES),
                    keys: &with.keys[others..],
                    all_larger: with.larger.get(others..).unwrap_or_default(),
                    stride: with.stride,
                    shifts,
                    sums: &mut sums[..windows * shifts * LANES],
                })
            {
                let sums = sums.chunks_exact(shifts * LANES).take(windows);
                for (sums, counts) in sums.zip(counts.chunks_exact_mut(of.columns * 2 * LANES)) {
                    along_row::<LANES>(sums, counts, &mut most, (&valid, order > 0));
                }
                continue;
            }
            let length = shifts * MATCH;
            let (sums, matches) = (
                &mut sums[..shifts * LANES],
                &mut matches[..with.rows * length],
            );
            sums.fill(0);
            matches.fill(0);
            for row in 0..windows + with.rows - 1 {
                let others = with.begin(step.top + row, x) - (of.columns - 1);
                let others = others..others + LANES + shifts - 1;
                let place = row % with.rows * length;
                (slides.slide)(Slide {
                    key: &of.keys[begin..begin + LANES],
                    larger: of.larger.get(begin..begin + LANES),
                    keys: &with.keys[others.clone()],
                    all_larger: with.larger.get(others).unwrap_or_default(),
                    matches: &mut matches[place..place + length],
                    sums: &mut *sums,
                });
                // The first window has all its rows.
                if row + 1 >= with.rows {
                    let length = of.columns * 2 * LANES;
                    let begin = (row + 1 - with.rows) * length;
                    let counts = &mut counts[begin..begin + length];
                    along_row::<LANES>(sums, counts, &mut most, (&valid, order > 0));
                }
            }
        }
        self.most[1] = bound(&most);
    }
}

/// What none of some bytes is above: all bits that any of them has. Their largest one would have to be looked
/// for byte by byte.
#[inline(always)]
fn bound<const LANES: usize>(bytes: &[u8; LANES]) -> u8 {
    let words = bytes.as_chunks().0.iter();
    let all = words.fold(0, |all, word| all | u64::from_ne_bytes(*word));
    all.to_ne_bytes().iter().fold(0, |all, byte| all | byte)
}

/// What a vector of windows takes of a row of pairs.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a> {
    pub counts: &'a [u8],
    /// Of the pairs from the first window's first one.
    pub weights: &'a [u8],
    /// Pairs in a row of a window.
    pub columns: usize,
    /// No count is larger.
    pub most: u8,
    /// The first window.
    pub x: usize,
    /// The row of windows of the first counts.
    pub top: usize,
}

/// One row more of the pairs that a vector of pairs is compared with, and one that goes.
pub(super) struct Slide<'a> {
    /// The vector, and its larger levels where codes do not have them.
    pub key: &'a [u8],
    pub larger: Option<&'a [u8]>,
    /// Those it is compared with, from the first displacement's first one.
    pub keys: &'a [u8],
    pub all_larger: &'a [u8],
    /// Of each displacement the matches of the row that goes, in whatever form: 0 if there is none. Those of
    /// the row that comes take their place.
    pub matches: &'a mut [u8],
    /// Of each displacement the matches of a window's rows.
    pub sums: &'a mut [u8],
}

/// All the rows of pairs that a vector of pairs is compared with, where as many rows of windows have it as
/// a window has rows.
pub(super) struct Whole<'a> {
    /// The vector, and its larger levels where codes do not have them.
    pub key: &'a [u8],
    pub larger: Option<&'a [u8]>,
    /// Those it is compared with, from the first row's and displacement's first one. Rows are `stride` apart.
    pub keys: &'a [u8],
    pub all_larger: &'a [u8],
    pub stride: usize,
    /// Displacements along a row.
    pub shifts: usize,
    /// Of each row of windows and each displacement, the matches of the window's rows.
    pub sums: &'a mut [u8],
}

/// How an instruction set sums matches up.
pub(super) struct Slides<One, All> {
    pub slide: One,
    /// Returns false if it does not know windows of so many rows.
    pub whole: All,
}

/// [`Slide`] without any particular instruction.
#[inline(always)]
pub(super) fn slide<const LANES: usize>(row: Slide<'_>) {
    if row.larger.is_some() {
        slide_by::<LANES, true>(row);
    } else {
        slide_by::<LANES, false>(row);
    }
}

#[inline(always)]
fn slide_by<const LANES: usize, const LARGER: bool>(row: Slide<'_>) {
    let (mut key, mut larger) = ([0; LANES], [0; LANES]);
    key.copy_from_slice(row.key);
    if let Some(of) = row.larger {
        larger.copy_from_slice(of);
    }
    let all_larger = if LARGER { row.all_larger } else { row.keys };
    let others = row.keys.windows(LANES).zip(all_larger.windows(LANES));
    let state = row.matches.chunks_exact_mut(LANES);
    let state = state.zip(row.sums.chunks_exact_mut(LANES));
    for ((keys, all_larger), (matches, sums)) in others.zip(state) {
        for lane in 0..LANES {
            let same = key[lane] == keys[lane];
            let come = u8::from(same & (!LARGER | (larger[lane] == all_larger[lane])));
            sums[lane] = sums[lane].wrapping_sub(matches[lane]).wrapping_add(come);
            matches[lane] = come;
        }
    }
}

/// Sums of matches over the columns of each window: a displacement comes, one goes. `most` are the largest so
/// far; `valid` has all bits of pairs and none of what is no pair.
#[inline(always)]
fn along_row<const LANES: usize>(
    sums: &[u8],
    counts: &mut [u8],
    most: &mut [u8; LANES],
    (valid, add): (&[u8; LANES], bool),
) {
    let length = counts.len() / 2;
    let mut sum = [0_u8; LANES];
    for come in sums[length..].chunks_exact(LANES) {
        for lane in 0..LANES {
            sum[lane] = sum[lane].wrapping_add(come[lane]);
        }
    }
    let come = sums[..length].chunks_exact(LANES).rev();
    let gone = sums[sums.len() - length..].chunks_exact(LANES).rev();
    let to = counts.chunks_exact_mut(2 * LANES);
    for ((come, gone), to) in come.zip(gone).zip(to) {
        let mut count = [0_u8; LANES];
        for lane in 0..LANES {
            sum[lane] = sum[lane].wrapping_add(come[lane]);
            count[lane] = sum[lane];
            sum[lane] = sum[lane].wrapping_sub(gone[lane]);
        }
        if add {
            for lane in 0..LANES {
                count[lane] = count[lane].wrapping_add(to[LANES + lane]);
            }
        }
        for lane in 0..LANES {
            count[lane] &= valid[lane];
            most[lane] = most[lane].max(count[lane]);
            to[LANES + lane] = count[lane];
        }
    }
}
