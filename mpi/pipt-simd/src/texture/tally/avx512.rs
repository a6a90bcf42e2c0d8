//! With lookups of bytes in up to four registers, and sums of four products.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512, _mm512_cmpeq_epi8_mask,
    _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_mask_add_epi8,
    _mm512_mask_blend_epi8, _mm512_mask_cmpeq_epi8_mask, _mm512_mask_sub_epi8, _mm512_max_epu8,
    _mm512_movepi8_mask, _mm512_movm_epi8, _mm512_permutex2var_epi8, _mm512_permutexvar_epi8,
    _mm512_set1_epi8, _mm512_set1_epi16, _mm512_setzero_si512, _mm512_slli_epi32,
    _mm512_srli_epi16, _mm512_storeu_si512, _mm512_test_epi8_mask, _mm512_unpackhi_epi8,
    _mm512_unpackhi_epi16, _mm512_unpacklo_epi8, _mm512_unpacklo_epi16,
};

use super::super::matches::bins::{Binned, Keys, Vectors};
use super::super::matches::{Counted, MOST_SIDE, Matches, Planes, Slide, Slides, Step, Whole};
use super::{Tallies, at, at_mut};

const LANES: usize = 64;

/// Bytes of a mask of matches.
const MATCH: usize = LANES / 8;

/// Fours of pairs in a row of a window.
const FOURS: usize = MOST_SIDE.div_ceil(4);

#[target_feature(
    enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vnni"
)]
pub(super) fn take_row(
    matches: &mut Matches,
    (of, among): (&Planes, &[Planes]),
    step: Step,
    bytes: &[[u8; 256]; 3],
) {
    let slide = |row: Slide<'_>| {
        if row.larger.is_some() {
            slide::<true>(row);
        } else {
            slide::<false>(row);
        }
    };
    let whole = |whole: Whole<'_>| {
        if whole.larger.is_some() {
            whole_of::<true>(whole)
        } else {
            whole_of::<false>(whole)
        }
    };
    let slides = Slides { slide, whole };
    matches.take::<LANES, MATCH>(
        (of, among),
        step,
        slides,
        |tallies, counted| match counted.most {
            0..=63 => tally::<1>(tallies, counted, bytes),
            64..=127 => tally::<2>(tallies, counted, bytes),
            _ => tally::<4>(tallies, counted, bytes),
        },
    );
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load(from: &[u8; LANES]) -> __m512i {
    // JUSTIFICATION: a vector is read from bytes.
    // SAFETY: there are 64 of them, and they need no alignment.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn store(vector: __m512i, to: &mut [u8; LANES]) {
    // JUSTIFICATION: a vector is written to bytes.
    // SAFETY: there are 64 of them, and they need no alignment.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
#[inline]
fn add_to(sums: &mut [u32], begin: usize, more: [__m512i; 4]) {
    let (vectors, _) = sums[begin..begin + LANES].as_chunks_mut::<16>();
    for (sums, more) in vectors.iter_mut().zip(more) {
        // JUSTIFICATION: vectors are read from integers and written to them.
        // SAFETY: there are 16 of 4 bytes, and they need no alignment.
        unsafe {
            let before = _mm512_loadu_si512(sums.as_ptr().cast());
            _mm512_storeu_si512(sums.as_mut_ptr().cast(), _mm512_add_epi32(before, more));
        }
    }
}

/// With matches of a bit each.
#[target_feature(enable = "avx512f,avx512bw")]
fn slide<const LARGER: bool>(row: Slide<'_>) {
    let one = _mm512_set1_epi8(1);
    let key = load(at(row.key, 0));
    let larger = row.larger.map_or(key, |larger| load(at(larger, 0)));
    let all_larger = if LARGER { row.all_larger } else { row.keys };
    let others = row.keys.windows(LANES).zip(all_larger.windows(LANES));
    let (matches, _) = row.matches.as_chunks_mut::<MATCH>();
    let (sums, _) = row.sums.as_chunks_mut::<LANES>();
    for ((keys, all_larger), (matches, to)) in others.zip(matches.iter_mut().zip(sums)) {
        let mut come = _mm512_cmpeq_epi8_mask(key, load(at(keys, 0)));
        if LARGER {
            come = _mm512_mask_cmpeq_epi8_mask(come, larger, load(at(all_larger, 0)));
        }
        let gone = u64::from_le_bytes(*matches);
        *matches = come.to_le_bytes();
        let sum = load(to);
        let sum = _mm512_mask_add_epi8(sum, come, sum, one);
        store(_mm512_mask_sub_epi8(sum, gone, sum, one), to);
    }
}

/// The same of all rows at once, of windows with as many rows as those of 5 x 5 pixels have. With more of them
/// it is not faster.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn whole_of<const LARGER: bool>(whole: Whole<'_>) -> bool {
    match whole.sums.len() / (whole.shifts * LANES) {
        4 => all_rows::<LARGER, 4, 7>(whole),
        5 => all_rows::<LARGER, 5, 9>(whole),
        _ => return false,
    }
    true
}

/// Sums and matches stay in registers: `ALL` rows of pairs are those of `ROWS` windows of `ROWS` rows.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn all_rows<const LARGER: bool, const ROWS: usize, const ALL: usize>(whole: Whole<'_>) {
    let one = _mm512_set1_epi8(1);
    let key = load(at(whole.key, 0));
    let larger = whole.larger.map_or(key, |larger| load(at(larger, 0)));
    let (shifts, stride) = (whole.shifts, whole.stride);
    let rows: [&[u8]; ALL] =
        std::array::from_fn(|row| &whole.keys[row * stride..][..shifts + LANES]);
    let rows_larger: [&[u8]; ALL] = if LARGER {
        std::array::from_fn(|row| &whole.all_larger[row * stride..][..shifts + LANES])
    } else {
        rows
    };
    let (sums, _) = whole.sums.as_chunks_mut::<LANES>();
    let sums = &mut sums[..ROWS * shifts];
    for shift in 0..shifts {
        let mut matches = [0; ALL];
        for (row, matches) in matches.iter_mut().enumerate() {
            *matches = _mm512_cmpeq_epi8_mask(key, load(at(rows[row], shift)));
            if LARGER {
                let other = load(at(rows_larger[row], shift));
                *matches = _mm512_mask_cmpeq_epi8_mask(*matches, larger, other);
            }
        }
        let mut sum = _mm512_setzero_si512();
        for matches in &matches[..ROWS] {
            sum = _mm512_mask_add_epi8(sum, *matches, sum, one);
        }
        store(sum, &mut sums[shift]);
        for window in 1..ROWS {
            sum = _mm512_mask_sub_epi8(sum, matches[window - 1], sum, one);
            sum = _mm512_mask_add_epi8(sum, matches[window + ROWS - 1], sum, one);
            store(sum, &mut sums[window * shifts + shift]);
        }
    }
}

/// The bytes of four vectors, those of a lane side by side.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn interleave([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (low, high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
    let (other_low, other_high) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
    [
        _mm512_unpacklo_epi16(low, other_low),
        _mm512_unpackhi_epi16(low, other_low),
        _mm512_unpacklo_epi16(high, other_high),
        _mm512_unpackhi_epi16(high, other_high),
    ]
}

/// A byte of each count's logarithm, of counts below 64 for each register.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
fn look_up<const REGISTERS: usize>(table: &[__m512i; REGISTERS], counts: __m512i) -> __m512i {
    if REGISTERS == 1 {
        return _mm512_permutexvar_epi8(counts, table[0]);
    }
    let low = _mm512_permutex2var_epi8(table[0], counts, table[1]);
    if REGISTERS == 2 {
        return low;
    }
    let high = _mm512_permutex2var_epi8(table[REGISTERS - 2], counts, table[REGISTERS - 1]);
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(counts), low, high)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn tally<const REGISTERS: usize>(
    tallies: &mut Tallies,
    counted: Counted<'_>,
    bytes: &[[u8; 256]; 3],
) {
    let columns = counted.columns;
    let zero = _mm512_setzero_si512();
    let one = _mm512_set1_epi8(1);
    let tables = bytes.each_ref().map(|bytes| {
        let mut table = [zero; REGISTERS];
        for (part, table) in table.iter_mut().enumerate() {
            *table = load(at(bytes, part * LANES));
        }
        table
    });
    // These are the same for every row of windows.
    let (mut weights, mut equal) = ([[zero; 4]; FOURS], [zero; 4 * FOURS]);
    for (four, weights) in weights[..columns.div_ceil(4)].iter_mut().enumerate() {
        for place in 4 * four..columns.min(4 * four + 4) {
            weights[place % 4] = load(at(counted.weights, place));
            let two = _mm512_test_epi8_mask(weights[place % 4], _mm512_set1_epi8(2));
            equal[place] = _mm512_movm_epi8(two);
        }
        *weights = interleave(*weights);
    }
    let rows = counted.counts.chunks_exact(columns * 2 * LANES);
    for (row, counts) in (counted.top..).zip(rows) {
        let begin = tallies.begin(row, counted.x);
        let (mut energy, mut logs) = ([zero; 4], [[zero; 4]; 3]);
        let mut most = load(at(&tallies.most, begin));
        let mut most_equal = load(at(&tallies.most_equal, begin));
        for (four, weights) in weights[..columns.div_ceil(4)].iter().enumerate() {
            let mut group = [zero; 4];
            for (of_four, count) in group.iter_mut().enumerate() {
                let place = 4 * four + of_four;
                if place < columns {
                    *count = load(at(counts, place * (2 * LANES + 1)));
                    most = _mm512_max_epu8(most, *count);
                    let count = _mm512_and_si512(*count, equal[place]);
                    most_equal = _mm512_max_epu8(most_equal, count);
                }
            }
            let group = interleave(group);
            for part in 0..4 {
                energy[part] = _mm512_dpbusd_epi32(energy[part], group[part], weights[part]);
                for (log, table) in logs.iter_mut().zip(&tables) {
                    let found = look_up(table, group[part]);
                    log[part] = _mm512_dpbusd_epi32(log[part], found, one);
                }
            }
        }
        let [low, middle, high] = logs;
        let mut log = low;
        for part in 0..4 {
            log[part] = _mm512_add_epi32(log[part], _mm512_slli_epi32::<8>(middle[part]));
            log[part] = _mm512_add_epi32(log[part], _mm512_slli_epi32::<16>(high[part]));
        }
        add_to(&mut tallies.log, begin, log);
        add_to(&mut tallies.energy, begin, energy);
        store(most, at_mut(&mut tallies.most, begin));
        store(most_equal, at_mut(&mut tallies.most_equal, begin));
    }
}

#[target_feature(
    enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vnni"
)]
pub(super) fn take_bins(
    matches: &mut Matches,
    (among, row): (&[Planes], usize),
    bytes: &[[u8; 256]; 4],
) {
    let vectors = Vectors {
        slide: |columns: &mut _, code, keys: &_| slide_columns(columns, code, keys),
        across: |columns: &_, sums: &mut _| across(columns, sums),
        tally: |tallies: &mut _, binned: Binned<'_>| match binned.most {
            0..=63 => tally_bins::<1>(tallies, binned, bytes),
            64..=127 => tally_bins::<2>(tallies, binned, bytes),
            _ => tally_bins::<4>(tallies, binned, bytes),
        },
    };
    matches.take_bins::<LANES>((among, row), vectors);
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn slide_columns(columns: &mut [u8; LANES], code: u8, keys: &[Keys<LANES>]) {
    let (one, code) = (
        _mm512_set1_epi8(1),
        _mm512_set1_epi8(i8::from_le_bytes([code])),
    );
    let mut sum = load(columns);
    for [come, gone] in keys {
        let come = _mm512_cmpeq_epi8_mask(load(come), code);
        let gone = _mm512_cmpeq_epi8_mask(load(gone), code);
        sum = _mm512_mask_add_epi8(sum, come, sum, one);
        sum = _mm512_mask_sub_epi8(sum, gone, sum, one);
    }
    store(sum, columns);
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn across(columns: &[u8], sums: &mut [u8; LANES]) {
    let mut sum = load(sums);
    for columns in columns.windows(LANES) {
        sum = _mm512_add_epi8(sum, load(at(columns, 0)));
    }
    store(sum, sums);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn tally_bins<const REGISTERS: usize>(
    tallies: &mut Tallies,
    binned: Binned<'_>,
    bytes: &[[u8; 256]; 4],
) {
    let zero = _mm512_setzero_si512();
    let (one, low_bytes) = (_mm512_set1_epi8(1), _mm512_set1_epi16(0xff));
    let tables = bytes.each_ref().map(|bytes| {
        let mut table = [zero; REGISTERS];
        for (part, table) in table.iter_mut().enumerate() {
            *table = load(at(bytes, part * LANES));
        }
        table
    });
    let (counts, _) = binned.counts.as_chunks::<LANES>();
    let (different, equal) = counts.split_at(binned.different);
    let (mut energies, mut logs) = ([[zero; 4]; 2], [[zero; 4]; 4]);
    let mut most = [zero; 2];
    for (of_equal, counts) in [different, equal].into_iter().enumerate() {
        let energy = &mut energies[of_equal];
        for four in counts.as_chunks::<4>().0 {
            let four = four.each_ref().map(|counts| load(counts));
            for counts in four {
                most[of_equal] = _mm512_max_epu8(most[of_equal], counts);
            }
            for (part, counts) in interleave(four).into_iter().enumerate() {
                let even = _mm512_and_si512(counts, low_bytes);
                let odd = _mm512_srli_epi16::<8>(counts);
                energy[part] = _mm512_dpwssd_epi32(energy[part], even, even);
                energy[part] = _mm512_dpwssd_epi32(energy[part], odd, odd);
                for (log, table) in logs.iter_mut().zip(&tables) {
                    log[part] = _mm512_dpbusd_epi32(log[part], look_up(table, counts), one);
                }
            }
        }
    }
    let [mut energy, equal] = energies;
    let [mut log, second, third, fourth] = logs;
    for part in 0..4 {
        // Pairs of equal levels count twice.
        energy[part] = _mm512_add_epi32(energy[part], _mm512_slli_epi32::<1>(equal[part]));
        log[part] = _mm512_add_epi32(log[part], _mm512_slli_epi32::<8>(second[part]));
        log[part] = _mm512_add_epi32(log[part], _mm512_slli_epi32::<16>(third[part]));
        log[part] = _mm512_add_epi32(log[part], _mm512_slli_epi32::<24>(fourth[part]));
    }
    let begin = tallies.begin(binned.row, binned.x);
    add_to(&mut tallies.log, begin, log);
    add_to(&mut tallies.energy, begin, energy);
    let [different, equal] = most;
    store(different, at_mut(&mut tallies.most, begin));
    store(equal, at_mut(&mut tallies.most_equal, begin));
}
