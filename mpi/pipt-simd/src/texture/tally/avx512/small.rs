//! Windows of a few pairs: all that a row of pairs adds to them is made in registers.
//!
//! A vector of pairs is compared with all those around it, displacement by displacement. Sums of matches over
//! the rows of each window slide down, and sums over its columns are differences of running sums. What is
//! counted so belongs to windows that begin in two vectors, of which the first one has its counts of the vector
//! before already: these wait in memory.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi8, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_setzero_si256,
    _mm256_sub_epi8, _mm512_add_epi32, _mm512_castsi256_si512, _mm512_dpbusd_epi32,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_maskz_mov_epi8,
    _mm512_max_epu8, _mm512_permutex2var_epi8, _mm512_permutex2var_epi32, _mm512_permutexvar_epi8,
    _mm512_set1_epi8, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_storeu_si512,
    _mm512_test_epi8_mask,
};

use super::super::super::logarithms::{FEW, Logarithms};
use super::super::super::matches::{Matches, Planes, Step};
use super::super::{Tallies, at, at_mut, avx2};
use super::{LANES, interleave, load, store};

/// The body once for each number, of five or nine, that is below an end: what is indexed by constants stays in
/// registers.
macro_rules! unrolled {
    (five $index:ident < $end:expr => $body:block) => {
        unrolled!(@ $index, $end, $body, 0 1 2 3 4)
    };
    (nine $index:ident < $end:expr => $body:block) => {
        unrolled!(@ $index, $end, $body, 0 1 2 3 4 5 6 7 8)
    };
    (@ $index:ident, $end:expr, $body:block, $($number:literal)*) => {
        $(if $number < $end {
            let $index: usize = $number;
            $body
        })*
    };
}

/// The most rows and columns of pairs in a window.
const MOST: usize = 5;

const HALF: usize = LANES / 2;

/// Bytes from the first displacement of half a vector on.
const REACH: usize = HALF + 2 * MOST - 2;

/// Bytes that count up: from a number on, the places of a vector of windows among two vectors of pairs.
const PLACES: [u8; 2 * LANES] = {
    let mut places = [0; 2 * LANES];
    let mut place: u8 = 0;
    let mut rest: &mut [u8] = &mut places;
    while let Some((first, others)) = rest.split_first_mut() {
        *first = place;
        place += 1;
        rest = others;
    }
    places
};

/// Takes a row of pairs: false if windows have more pairs than are taken here.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
pub(super) fn take_row(
    matches: &mut Matches,
    planes: &Planes,
    step: Step,
    logarithms: &Logarithms,
) -> bool {
    let row = Row {
        planes,
        step,
        logarithms,
    };
    match (planes.rows, planes.columns) {
        (2, 2) => take::<2, 2>(matches, row),
        (2, 3) => take::<2, 3>(matches, row),
        (3, 2) => take::<3, 2>(matches, row),
        (3, 3) => take::<3, 3>(matches, row),
        (4, 4) => take::<4, 4>(matches, row),
        (4, 5) => take::<4, 5>(matches, row),
        (5, 4) => take::<5, 4>(matches, row),
        (5, 5) => take::<5, 5>(matches, row),
        _ => return false,
    }
    true
}

/// A row of pairs.
#[derive(Clone, Copy)]
struct Row<'a> {
    planes: &'a Planes,
    step: Step,
    logarithms: &'a Logarithms,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn take<const ROWS: usize, const COLUMNS: usize>(matches: &mut Matches, row: Row<'_>) {
    if row.planes.larger.is_empty() {
        take_vectors::<false, ROWS, COLUMNS>(matches, row);
    } else {
        take_vectors::<true, ROWS, COLUMNS>(matches, row);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn take_vectors<const LARGER: bool, const ROWS: usize, const COLUMNS: usize>(
    matches: &mut Matches,
    Row {
        planes,
        step,
        logarithms,
    }: Row<'_>,
) {
    // Twice as many pairs of equal levels fit a byte, and few logarithms are enough.
    const { assert!(ROWS * COLUMNS < FEW && ROWS <= MOST && COLUMNS <= MOST) };
    let tables = logarithms.bytes.each_ref().map(|bytes| load(at(bytes, 0)));
    let few = few(logarithms);
    let (counts, _) = matches.counts.as_chunks_mut::<LANES>();
    let (mut before, rest) = counts.split_at_mut(ROWS * COLUMNS);
    let (mut counts, _) = rest.split_at_mut(ROWS * COLUMNS);
    let tallies = &mut matches.tallies;
    for x in (0..tallies.width() + LANES).step_by(LANES) {
        count::<LARGER, ROWS, COLUMNS>(planes, (step.row, x), counts);
        // The first vector's windows have all their pairs when the second one is counted.
        if let Some(x) = x.checked_sub(LANES) {
            let weights = weights::<COLUMNS>(planes, (step.row, x));
            let counts = before
                .chunks_exact(COLUMNS)
                .zip(counts.chunks_exact(COLUMNS));
            for (row, (before, after)) in (step.row + 1..).zip(counts) {
                let Some(row) = row.checked_sub(ROWS) else {
                    continue;
                };
                if row > step.bottom {
                    break;
                }
                let pairs = of_windows::<COLUMNS>(before, after);
                let begin = tallies.begin(row, x);
                tally::<COLUMNS>(tallies, begin, &pairs, &weights, (&tables, &few));
            }
        }
        (before, counts) = (counts, before);
    }
}

/// Half a vector of pairs, in the places that it may have in each row of windows.
type Half<const ROWS: usize, const COLUMNS: usize> = [[__m256i; COLUMNS]; ROWS];

/// How often each pair of a vector is among those of the windows of `ROWS` rows, at each of the places that it
/// may have in a row of them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn count<const LARGER: bool, const ROWS: usize, const COLUMNS: usize>(
    planes: &Planes,
    (row, x): (usize, usize),
    counts: &mut [[u8; LANES]],
) {
    let begin = planes.begin(row, x);
    let others = begin - (ROWS - 1) * planes.stride - (COLUMNS - 1);
    let mut halves = [[[_mm256_setzero_si256(); COLUMNS]; ROWS]; 2];
    for (half, counts) in halves.iter_mut().enumerate() {
        let from = half * HALF;
        count_half::<LARGER, ROWS, COLUMNS>(planes, (begin + from, others + from), counts);
    }
    let valid = load(at(&planes.weights, begin));
    let valid = _mm512_test_epi8_mask(valid, valid);
    let halves = halves[0]
        .as_flattened()
        .iter()
        .zip(halves[1].as_flattened());
    for (counts, (low, high)) in counts.iter_mut().zip(halves) {
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(*low), *high);
        store(_mm512_maskz_mov_epi8(valid, both), counts);
    }
}

/// Vectors of 32 bytes are compared into a vector, those of 64 into a mask, which it takes another instruction to
/// make a vector of.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
#[inline]
#[allow(unused_assignments, reason = "the last displacement has none after it")]
fn count_half<const LARGER: bool, const ROWS: usize, const COLUMNS: usize>(
    planes: &Planes,
    (begin, others): (usize, usize),
    counts: &mut Half<ROWS, COLUMNS>,
) {
    let zero = _mm256_setzero_si256();
    let key = avx2::load(at(&planes.keys, begin));
    let keys = reached::<ROWS>(&planes.keys, others, planes.stride);
    let (mut larger, mut all_larger) = (key, keys);
    if LARGER {
        larger = avx2::load(at(&planes.larger, begin));
        all_larger = reached::<ROWS>(&planes.larger, others, planes.stride);
    }
    let (mut totals, mut before) = ([zero; ROWS], [[zero; COLUMNS]; ROWS]);
    unrolled!(nine shift < 2 * COLUMNS - 1 => {
        let mut matches = [zero; 2 * MOST - 1];
        let mut sum = zero;
        unrolled!(nine row < 2 * ROWS - 1 => {
            let mut same = _mm256_cmpeq_epi8(key, avx2::load(at(keys[row], shift)));
            if LARGER {
                let other = avx2::load(at(all_larger[row], shift));
                same = _mm256_and_si256(same, _mm256_cmpeq_epi8(larger, other));
            }
            matches[row] = same;
            // A match has all bits, so that it is -1.
            sum = _mm256_sub_epi8(sum, same);
            if row >= ROWS {
                sum = _mm256_add_epi8(sum, matches[row - ROWS]);
            }
            if row + 1 >= ROWS {
                let window = row + 1 - ROWS;
                let total = _mm256_add_epi8(totals[window], sum);
                totals[window] = total;
                if shift + 1 < COLUMNS {
                    before[window][shift] = total;
                } else if let Some(gone) = shift.checked_sub(COLUMNS) {
                    let place = 2 * COLUMNS - 2 - shift;
                    counts[window][place] = _mm256_sub_epi8(total, before[window][gone]);
                } else {
                    counts[window][COLUMNS - 1] = total;
                }
            }
        });
    });
}

/// What the displacements of a half reach, in each row.
#[inline(always)]
fn reached<const ROWS: usize>(
    plane: &[u8],
    first: usize,
    stride: usize,
) -> [&[u8; REACH]; 2 * MOST - 1] {
    let mut rows = [at(plane, first); 2 * MOST - 1];
    for (row, to) in rows[..2 * ROWS - 1].iter_mut().enumerate() {
        *to = at(plane, first + row * stride);
    }
    rows
}

/// The counts of a row of pairs of each window: those of the vector that it begins in, and of the one after it.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn of_windows<const COLUMNS: usize>(
    before: &[[u8; LANES]],
    after: &[[u8; LANES]],
) -> [__m512i; COLUMNS] {
    let mut pairs = [_mm512_setzero_si512(); COLUMNS];
    let vectors = before.iter().zip(after);
    for (place, (pairs, (before, after))) in pairs.iter_mut().zip(vectors).enumerate() {
        *pairs = load(before);
        if place > 0 {
            let places = load(at(&PLACES, place));
            *pairs = _mm512_permutex2var_epi8(*pairs, places, load(after));
        }
    }
    pairs
}

/// 2 for pairs of equal levels, 1 for others, 0 for what is not valid.
struct Weights {
    /// Of the first four places in a row of a window, and of the fifth one.
    first: [__m512i; 4],
    fifth: [__m512i; 4],
    /// Where levels are equal.
    equal: [u64; 5],
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn weights<const COLUMNS: usize>(planes: &Planes, (row, x): (usize, usize)) -> Weights {
    let zero = _mm512_setzero_si512();
    let (mut all, mut equal) = ([zero; 5], [0; 5]);
    let begin = planes.begin(row, x);
    unrolled!(five place < COLUMNS => {
        all[place] = load(at(&planes.weights, begin + place));
        equal[place] = _mm512_test_epi8_mask(all[place], _mm512_set1_epi8(2));
    });
    Weights {
        first: interleave([all[0], all[1], all[2], all[3]]),
        fifth: interleave([all[4], zero, zero, zero]),
        equal,
    }
}

/// Adds a row of pairs to a vector of windows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vbmi,avx512vnni")]
#[inline]
fn tally<const COLUMNS: usize>(
    tallies: &mut Tallies,
    begin: usize,
    pairs: &[__m512i; COLUMNS],
    weights: &Weights,
    (tables, few): (&[__m512i; 3], &[__m512i; 2]),
) {
    let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi8(1));
    let mut most = load(at(&tallies.most, begin));
    let mut all = [zero; 5];
    unrolled!(five place < COLUMNS => {
        let pairs = pairs[place];
        all[place] = pairs;
        let twice = _mm512_mask_add_epi8(pairs, weights.equal[place], pairs, pairs);
        most = _mm512_max_epu8(most, twice);
    });
    store(most, at_mut(&mut tallies.most, begin));
    let first = interleave([all[0], all[1], all[2], all[3]]);
    let fifth = interleave([all[4], zero, zero, zero]);
    let energies = &mut tallies.energy[begin..begin + LANES];
    let logs = &mut tallies.log[begin..begin + LANES];
    let energies = energies.as_chunks_mut::<16>().0.iter_mut();
    let sums = energies.zip(logs.as_chunks_mut::<16>().0);
    for (part, (energy, log)) in sums.enumerate() {
        let mut squares = _mm512_dpbusd_epi32(load_sums(energy), first[part], weights.first[part]);
        let mut sum = zero;
        for (order, table) in tables.iter().rev().enumerate() {
            if order > 0 {
                sum = _mm512_slli_epi32::<8>(sum);
            }
            let found = _mm512_permutexvar_epi8(first[part], *table);
            sum = _mm512_dpbusd_epi32(sum, found, one);
        }
        if COLUMNS > 4 {
            squares = _mm512_dpbusd_epi32(squares, fifth[part], weights.fifth[part]);
            let found = _mm512_permutex2var_epi32(few[0], fifth[part], few[1]);
            sum = _mm512_add_epi32(sum, found);
        }
        store_sums(squares, energy);
        store_sums(_mm512_add_epi32(sum, load_sums(log)), log);
    }
}

/// Logarithms of small counts, in two vectors.
#[target_feature(enable = "avx512f")]
#[inline]
fn few(logarithms: &Logarithms) -> [__m512i; 2] {
    let (vectors, _) = logarithms.few.as_chunks::<16>();
    [load_sums(&vectors[0]), load_sums(&vectors[1])]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_sums(from: &[u32; 16]) -> __m512i {
    // JUSTIFICATION: a vector is read from integers.
    // SAFETY: there are 16 of 4 bytes, and they need no alignment.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_sums(vector: __m512i, to: &mut [u32; 16]) {
    // JUSTIFICATION: a vector is written to integers.
    // SAFETY: there are 16 of 4 bytes, and they need no alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
}
