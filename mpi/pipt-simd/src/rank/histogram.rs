//! Ranks and trimmed means of bytes in large windows: histograms of columns.
//!
//! After Perreault and Hébert, "Median Filtering in Constant Time" (IEEE Transactions on Image Processing 16,
//! 2007): each column of the image has a histogram of the rows of a window, which a step downwards changes by
//! two samples; a window's histogram is that of its columns added, so a step to the right adds one and takes
//! one away. There are two tiers of 16 numbers: how many samples have each upper half of a byte, and for each of
//! these the lower halves, which are brought up to date only when a rank lies among them.
//!
//! Other than there the histograms are cumulative, so that a rank is found by comparing 16 numbers with
//! it at once, instead of adding them up one after the other.

use super::plan::Kept;
use super::{Output, Plane, Window, convert};
use crate::{Level, for_each_level};
use pipt_raster::Sample;

/// Columns of results that are made at a time, so that the histograms stay in a cache of the second level.
const STRIP: usize = 512;
/// Rows of results: the first one takes as much time as the window has rows.
pub(super) const ROWS: usize = 256;

/// How many samples have at most each half of a byte.
type Tier = [u16; 16];

/// Bytes at most.
pub(super) fn bytes(window: Window) -> usize {
    let (columns, rows) = window.extent();
    let wide = STRIP + columns as usize;
    wide * (16 * 32 + 32 + 64) + wide * (ROWS + rows as usize) + STRIP * ROWS * 4
}

#[derive(Default)]
pub(super) struct Scratch {
    keys: Vec<u8>,
    /// Of each upper half and then of each column: the lower halves.
    lower: Vec<Tier>,
    /// Of each column: the upper halves.
    upper: Vec<Tier>,
    /// Of each column: the sum of the samples with at most each upper half.
    sums: Vec<[u32; 16]>,
    state: Box<State>,
    /// Ranks' keys, or sums of what is kept.
    results: Vec<u32>,
}

/// Some columns of a part of an image.
struct Job<'a> {
    scratch: &'a mut Scratch,
    /// Columns and rows of a window.
    window: (usize, usize),
    size: (usize, usize),
    kept: (u16, u16),
}

for_each_level! {
    fn run_rank(job: &mut Job<'_>) = run::<false>;
    fn run_sums(job: &mut Job<'_>) = run::<true>;
}

/// Filters a part of an image in which all samples are valid.
pub(super) fn filter<T: Sample, O: Sample>(
    (level, scratch): (Level, &mut Scratch),
    (window, kept): (Window, &Kept),
    input: Plane<'_, T>,
    output: &mut Output<'_, O>,
    at: (usize, usize),
    size: (usize, usize),
) {
    let (columns, rows) = window.extent();
    let (columns, rows) = (columns as usize, rows as usize);
    let (first, last) = kept.whole();
    // A tier fills a vector of AVX2; made for AVX-512, comparisons take the way through its masks and back.
    let level = level.min(Level::Avx2);
    // At most 255 x 255 samples are in a window.
    let ends = [first, last].map(|rank| u16::try_from(rank).unwrap_or(u16::MAX));
    for x in (0..size.0).step_by(STRIP) {
        let width = STRIP.min(size.0 - x);
        let part = input.part((x, 0), (width + columns - 1, input.size().1));
        scratch.keys.clear();
        for y in 0..part.size().1 {
            #[allow(clippy::cast_possible_truncation, reason = "the key of a byte")]
            let keys = part.row(y).iter().map(|sample| sample.key() as u8);
            scratch.keys.extend(keys);
        }
        let mut job = Job {
            scratch,
            window: (columns, rows),
            size: (width, size.1),
            kept: ends.into(),
        };
        if first == last {
            run_rank(level, &mut job);
        } else {
            run_sums(level, &mut job);
        }
        // What a sample is more than its key.
        let more = T::of_key(0).to_f64() * f64::from(last + 1 - first);
        let count = f64::from(last + 1 - first);
        for (y, found) in scratch.results.chunks_exact(width).enumerate() {
            let row = &mut output.samples.row_mut(at.1 + y)[at.0 + x..][..width];
            for (sample, found) in row.iter_mut().zip(found) {
                *sample = if first == last {
                    convert::<T, O>(u64::from(*found))
                } else {
                    // The sum is exact: this is the one rounding of a mean.
                    O::of_f64((f64::from(*found) + more) / count)
                };
            }
        }
    }
}

#[inline(always)]
fn run<const SUMS: bool>(job: &mut Job<'_>) {
    let (columns, rows) = job.window;
    let (width, height) = job.size;
    let wide = width + columns - 1;
    let Scratch {
        keys,
        lower,
        upper,
        sums,
        state,
        results,
    } = &mut *job.scratch;
    lower.clear();
    lower.resize(16 * wide, [0; 16]);
    upper.clear();
    upper.resize(wide, [0; 16]);
    sums.clear();
    sums.resize(if SUMS { wide } else { 0 }, [0; 16]);
    results.resize(width * height, 0);
    // Slices, so that nobody asks a vector where it lies for each sample.
    let (lower, upper, sums) = (&mut lower[..], &mut upper[..], &mut sums[..]);
    for row in keys.chunks_exact(wide).take(rows - 1) {
        for (x, key) in row.iter().enumerate() {
            turn::<SUMS, true>((lower, upper, sums), x, *key);
        }
    }
    for (y, results) in results.chunks_exact_mut(width).enumerate() {
        let row = |row: usize| keys[row * wide..][..wide].iter().enumerate();
        if y > 0 {
            for (x, key) in row(y - 1) {
                turn::<SUMS, false>((lower, upper, sums), x, *key);
            }
        }
        for (x, key) in row(y + rows - 1) {
            turn::<SUMS, true>((lower, upper, sums), x, *key);
        }
        let mut moving = Moving::new((lower, upper, sums), columns, state);
        for (x, result) in results.iter_mut().enumerate() {
            if x > 0 {
                moving.step::<SUMS>(x);
            }
            *result = if SUMS {
                let most = moving.lowest(x, job.kept.1 + 1);
                most - moving.lowest(x, job.kept.0)
            } else {
                moving.rank(x, job.kept.0)
            };
        }
    }
}

/// A sample enters a column, or leaves it.
#[inline(always)]
fn turn<const SUMS: bool, const ENTERS: bool>(
    (lower, upper, sums): (&mut [Tier], &mut [Tier], &mut [[u32; 16]]),
    x: usize,
    key: u8,
) {
    let (high, low) = (u16::from(key >> 4), u16::from(key & 15));
    let wide = upper.len();
    change::<ENTERS>(&mut upper[x], &step(high));
    change::<ENTERS>(&mut lower[usize::from(high) * wide + x], &step(low));
    if SUMS {
        let mut all = sums[x];
        for (half, sum) in (0..).zip(&mut all) {
            let part = u32::from(key) * u32::from(u16::from(half >= high));
            *sum = if ENTERS {
                sum.wrapping_add(part)
            } else {
                sum.wrapping_sub(part)
            };
        }
        sums[x] = all;
    }
}

/// What a sample with this half adds to a tier.
#[inline(always)]
fn step(of: u16) -> Tier {
    let mut step = [0; 16];
    for (half, number) in (0..).zip(&mut step) {
        *number = u16::from(half >= of);
    }
    step
}

/// Of whole tiers, not of one number after the other, so that the compiler makes SIMD of it.
#[inline(always)]
fn change<const ENTERS: bool>(tier: &mut Tier, by: &Tier) {
    let (mut sum, by) = (*tier, *by);
    for (number, by) in sum.iter_mut().zip(by) {
        *number = if ENTERS {
            number.wrapping_add(by)
        } else {
            number.wrapping_sub(by)
        };
    }
    *tier = sum;
}

/// The histogram of a window on its way along a row.
struct Moving<'a> {
    lower_of: &'a [Tier],
    upper_of: &'a [Tier],
    sums_of: &'a [[u32; 16]],
    columns: usize,
    now: &'a mut State,
}

/// It lies in scratch, because the compiler would take a variable apart into single numbers.
#[derive(Default)]
struct State {
    upper: Tier,
    sums: [u32; 16],
    lower: [Tier; 16],
    /// The window that each of the lower tiers is of.
    at: [usize; 16],
}

impl<'a> Moving<'a> {
    /// The first window.
    #[inline(always)]
    fn new(
        (lower_of, upper_of, sums_of): (&'a [Tier], &'a [Tier], &'a [[u32; 16]]),
        columns: usize,
        now: &'a mut State,
    ) -> Self {
        *now = State {
            at: [usize::MAX; 16],
            ..State::default()
        };
        for tier in &upper_of[..columns] {
            change::<true>(&mut now.upper, tier);
        }
        for column in sums_of.iter().take(columns) {
            for (sum, more) in now.sums.iter_mut().zip(column) {
                *sum += *more;
            }
        }
        Self {
            lower_of,
            upper_of,
            sums_of,
            columns,
            now,
        }
    }

    /// To window `x`, from the one before.
    #[inline(always)]
    fn step<const SUMS: bool>(&mut self, x: usize) {
        change::<true>(&mut self.now.upper, &self.upper_of[x + self.columns - 1]);
        change::<false>(&mut self.now.upper, &self.upper_of[x - 1]);
        if SUMS {
            let enters = &self.sums_of[x + self.columns - 1];
            let leaves = &self.sums_of[x - 1];
            let mut sums = self.now.sums;
            for (sum, (more, less)) in sums.iter_mut().zip(enters.iter().zip(leaves)) {
                *sum = sum.wrapping_add(*more).wrapping_sub(*less);
            }
            self.now.sums = sums;
        }
    }

    /// The key with so many samples of window `x` before it.
    #[inline(always)]
    fn rank(&mut self, x: usize, rank: u16) -> u32 {
        let high = at_most(&self.now.upper, rank);
        let rest = rank - before(&self.now.upper, high);
        let low = at_most(self.lower(high, x), rest);
        u32::try_from(high * 16 + low).unwrap_or(0)
    }

    /// The sum of so many lowest keys.
    #[inline(always)]
    fn lowest(&mut self, x: usize, count: u16) -> u32 {
        let Some(last) = count.checked_sub(1) else {
            return 0;
        };
        let high = at_most(&self.now.upper, last);
        let below = high.checked_sub(1).map_or(0, |high| self.now.sums[high]);
        let rest = count - before(&self.now.upper, high);
        // A half of j is the number of halves below it: those samples that are above each are counted.
        let low: u32 = self
            .lower(high, x)
            .iter()
            .map(|number| u32::from(rest.saturating_sub(*number)))
            .sum();
        below + u32::from(rest) * u32::try_from(16 * high).unwrap_or(0) + low
    }

    /// The lower halves of the samples of window `x` with this upper half.
    #[inline(always)]
    fn lower(&mut self, high: usize, x: usize) -> &Tier {
        let wide = self.upper_of.len();
        let columns = &self.lower_of[high * wide..][..wide];
        let tier = &mut self.now.lower[high];
        let from = self.now.at[high];
        if from > x || 2 * (x - from) > self.columns {
            *tier = [0; 16];
            for column in &columns[x..x + self.columns] {
                change::<true>(tier, column);
            }
        } else {
            for at in from..x {
                change::<true>(tier, &columns[at + self.columns]);
                change::<false>(tier, &columns[at]);
            }
        }
        self.now.at[high] = x;
        tier
    }
}

/// How many of the numbers are at most this one.
#[inline(always)]
fn at_most(tier: &Tier, rank: u16) -> usize {
    let count: u16 = tier.iter().map(|number| u16::from(*number <= rank)).sum();
    // There is always one that is larger: it only tells the compiler so.
    usize::from(count & 15)
}

/// How many samples have a half below this one.
#[inline(always)]
fn before(tier: &Tier, half: usize) -> u16 {
    half.checked_sub(1).map_or(0, |half| tier[half])
}
