//! Counts of equal pairs in small windows, many windows at a time.
//!
//! The k-th pair of its kind in a window has rank k. A histogram's numbers are made of ranks: with `n(k)` pairs
//! of rank k or more, the sum of squared counts is `n(1) + 2 n(2) + 2 n(3) + ...`, the sum of `c log2 c` is
//! that of `n(k)` times how much its growth grows, and the largest count is the last k of which there is a
//! pair. A rank is found by comparing a pair with all before it, a vector of windows at a time: that costs the
//! square of the number of pairs, but no access to memory that depends on a level. The results are the bits
//! that a [`Histogram`](super::histogram::Histogram) gives.

use super::histogram::Slots;
use super::image::{Grey, PairRow};
use super::rows::Rows;
use crate::{Level, for_each_level};

/// Windows at a time.
const LANES: usize = 64;

/// The largest number of pairs of a window.
const MOST_PAIRS: usize = 49;

/// Whether this is faster than a histogram: windows of 7 with 64 lanes in a register, of 5 with 32.
pub(super) const fn is_faster(level: Level, pairs: usize) -> bool {
    match level {
        Level::Avx512 => pairs <= MOST_PAIRS,
        Level::Avx2 => pairs <= 25,
        Level::Sse42 | Level::Scalar => false,
    }
}

/// The levels of a band's pairs, the smaller one of each pair and the larger one. Pairs that are not valid
/// have a smaller one that is larger.
pub(super) struct Planes {
    smaller: Vec<u8>,
    larger: Vec<u8>,
    /// From a row to the next one.
    stride: usize,
    columns: usize,
    rows: usize,
}

impl Planes {
    pub(super) fn new(length: usize, height: usize, columns: usize, rows: usize) -> Self {
        let stride = length + LANES;
        Self {
            smaller: vec![1; stride * height],
            larger: vec![0; stride * height],
            stride,
            columns,
            rows,
        }
    }

    /// Takes the rows of pairs of a band.
    pub(super) fn fill<'a, L: Grey + 'a>(&mut self, rows: impl Iterator<Item = PairRow<'a, L>>) {
        let smaller = self.smaller.chunks_exact_mut(self.stride);
        let planes = smaller.zip(self.larger.chunks_exact_mut(self.stride));
        for (row, (smaller, larger)) in rows.zip(planes) {
            let to = smaller.iter_mut().zip(larger.iter_mut());
            for ((smaller, larger), (a, b)) in to.zip(row.first.iter().zip(row.second)) {
                let (a, b): (u32, u32) = ((*a).into(), (*b).into());
                *smaller = u8::try_from(a.min(b)).unwrap_or(u8::MAX);
                *larger = u8::try_from(a.max(b)).unwrap_or(u8::MAX);
            }
            if let Some((first, second)) = row.valid {
                let to = smaller.iter_mut().zip(larger);
                for ((smaller, larger), (a, b)) in to.zip(first.iter().zip(second)) {
                    if *a == 0 || *b == 0 {
                        (*smaller, *larger) = (1, 0);
                    }
                }
            }
        }
    }

    /// The vectors of the pairs' levels of the windows from `x`, in rows from `row`.
    #[inline(always)]
    fn lanes(plane: &[u8], at: usize) -> [u8; LANES] {
        let mut lanes = [0; LANES];
        lanes.copy_from_slice(&plane[at..at + LANES]);
        lanes
    }
}

for_each_level! {
    /// One row of windows: `row` counts from the band's first one.
    pub(super) fn run(planes: &Planes, growth: &[u64], row: usize, slots: Slots, rows: &mut Rows) = run_row;
}

/// How many pairs have at least a rank; the first of each is of rank 1.
struct Counts {
    different: [[u8; LANES]; MOST_PAIRS],
    equal: [[u8; LANES]; MOST_PAIRS],
    ranks: usize,
}

#[inline(always)]
fn run_row(planes: &Planes, growth: &[u64], row: usize, slots: Slots, rows: &mut Rows) {
    let width = rows.width();
    let mut places = [0; MOST_PAIRS];
    let all = (0..planes.rows).flat_map(|y| (0..planes.columns).map(move |x| (x, y)));
    for (place, (x, y)) in places.iter_mut().zip(all) {
        *place = (row + y) * planes.stride + x;
    }
    let places = &places[..planes.columns * planes.rows];
    let mut counts = Counts {
        different: [[0; LANES]; MOST_PAIRS],
        equal: [[0; LANES]; MOST_PAIRS],
        ranks: 0,
    };
    for x in (0..width).step_by(LANES) {
        count(planes, places, x, &mut counts);
        write(&counts, growth, x, slots, rows);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "several vectors in step")]
fn count(planes: &Planes, places: &[usize], x: usize, counts: &mut Counts) {
    for rank in 0..counts.ranks {
        (counts.different[rank], counts.equal[rank]) = ([0; LANES], [0; LANES]);
    }
    counts.ranks = 1;
    for (order, place) in places.iter().enumerate() {
        let smaller = Planes::lanes(&planes.smaller, place + x);
        let larger = Planes::lanes(&planes.larger, place + x);
        let mut before = [0_u8; LANES];
        for other in &places[..order] {
            let (a, b) = (
                Planes::lanes(&planes.smaller, other + x),
                Planes::lanes(&planes.larger, other + x),
            );
            for lane in 0..LANES {
                before[lane] += u8::from((smaller[lane] == a[lane]) & (larger[lane] == b[lane]));
            }
        }
        // Ranks from 1, of pairs of different and of equal levels; 0 is none.
        let (mut different, mut equal) = ([0_u8; LANES], [0_u8; LANES]);
        let mut most = 0;
        for lane in 0..LANES {
            different[lane] = if smaller[lane] < larger[lane] {
                before[lane] + 1
            } else {
                0
            };
            equal[lane] = if smaller[lane] == larger[lane] {
                before[lane] + 1
            } else {
                0
            };
            most = most.max(different[lane].max(equal[lane]));
        }
        counts.ranks = counts.ranks.max(usize::from(most));
        for (rank, (to, to_equal)) in
            (1..=most).zip(counts.different.iter_mut().zip(&mut counts.equal))
        {
            for lane in 0..LANES {
                to[lane] += u8::from(different[lane] >= rank);
                to_equal[lane] += u8::from(equal[lane] >= rank);
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::cast_precision_loss, reason = "all are below 2^53")]
#[allow(clippy::needless_range_loop, reason = "several vectors in step")]
fn write(counts: &Counts, growth: &[u64], x: usize, slots: Slots, rows: &mut Rows) {
    let (mut energy, mut log) = ([0_u32; LANES], [0_u64; LANES]);
    let mut most = [0_u8; LANES];
    for rank in 0..counts.ranks {
        let (different, equal) = (&counts.different[rank], &counts.equal[rank]);
        let share = if rank == 0 { 1 } else { 2 };
        // `c log2 c` is convex: its growth grows.
        let more = growth[rank + 1] - growth[rank];
        let count = u8::try_from(rank + 1).unwrap_or(u8::MAX);
        for lane in 0..LANES {
            let (different, equal) = (different[lane], equal[lane]);
            energy[lane] += share * (u32::from(different) + 2 * u32::from(equal));
            log[lane] += more * (u64::from(different) + u64::from(equal));
            let of_equal = if equal > 0 { 2 * count } else { 0 };
            let of_different = if different > 0 { count } else { 0 };
            most[lane] = most[lane].max(of_equal).max(of_different);
        }
    }
    let end = rows.width().min(x + LANES);
    if let Some(slot) = slots.energy {
        let to = rows.row_mut(slot)[x..end].iter_mut();
        to.zip(energy)
            .for_each(|(to, energy)| *to = f64::from(energy));
    }
    if let Some(slot) = slots.log {
        let to = rows.row_mut(slot)[x..end].iter_mut();
        to.zip(log).for_each(|(to, log)| *to = log as f64);
    }
    if let Some(slot) = slots.most {
        let to = rows.row_mut(slot)[x..end].iter_mut();
        to.zip(most).for_each(|(to, most)| *to = f64::from(most));
    }
}
