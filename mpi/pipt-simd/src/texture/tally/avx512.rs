//! With lookups of bytes in up to four registers, and sums of four products.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi8, _mm512_add_epi16, _mm512_add_epi32, _mm512_and_si512,
    _mm512_cmpeq_epi8_mask, _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_loadu_si512,
    _mm512_mask_add_epi8, _mm512_mask_blend_epi8, _mm512_mask_cmpeq_epi8_mask,
    _mm512_mask_sub_epi8, _mm512_max_epu8, _mm512_max_epu32, _mm512_movepi8_mask, _mm512_movm_epi8,
    _mm512_or_si512, _mm512_permutex2var_epi8, _mm512_permutexvar_epi8, _mm512_set1_epi8,
    _mm512_set1_epi16, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_slli_epi32,
    _mm512_srli_epi16, _mm512_storeu_si512, _mm512_test_epi8_mask, _mm512_unpackhi_epi8,
    _mm512_unpackhi_epi16, _mm512_unpacklo_epi8, _mm512_unpacklo_epi16,
};

use super::super::bins::{Binned, Bins, Keys, Numbers, Sum, Vectors};
use super::super::logarithms::Logarithms;
use super::super::matches::{Counted, MOST_SIDE, Matches, Planes, Slide, Slides, Step, Whole};
use super::{Tallies, at, at_mut, avx2};

mod small;

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
    logarithms: &Logarithms,
) {
    if let ([_], true) = (among, of.reaches_beyond())
        && small::take_row(matches, of, step, logarithms)
    {
        return;
    }
    let bytes = &logarithms.bytes;
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
pub(super) fn take_bins(bins: &mut Bins, counted: (usize, usize), tables: &[[u8; 256]]) {
    let vectors = Vectors {
        slide: |columns: &mut _, code, keys: &_| slide_columns(columns, code, keys),
        across: |columns: &_, sums: &mut _| across(columns, sums),
        gather: |counts: &_, places: &_, sums: &mut _| gather(counts, places, sums),
        tally: |binned: Binned<'_>, numbers: &mut _| tally_bins(binned, numbers, tables),
    };
    bins.take::<LANES>(counted, &vectors);
}

/// Vectors of 32 bytes are compared into a vector, those of 64 into a mask that costs one instruction more.
#[target_feature(enable = "avx2")]
#[inline]
fn slide_columns(columns: &mut [u8; LANES], code: u8, keys: &[Keys<LANES>]) {
    for half in [0, LANES / 2] {
        avx2::slide_columns(at_mut(columns, half), code, keys, half);
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn across(columns: &[u8], sums: &mut [u8; LANES]) {
    let (mut columns, mut sum) = (columns, load(sums));
    while let Some(five) = columns.first_chunk::<{ LANES + 4 }>() {
        for first in 0..5 {
            sum = _mm512_add_epi8(sum, load(at(five, first)));
        }
        columns = &columns[5..];
    }
    for columns in columns.windows(LANES) {
        sum = _mm512_add_epi8(sum, load(at(columns, 0)));
    }
    store(sum, sums);
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn gather(counts: &[[u8; LANES]], places: &[usize], sums: &mut [u8; LANES]) {
    let mut sum = _mm512_setzero_si512();
    for place in places {
        sum = _mm512_add_epi8(sum, load(&counts[*place]));
    }
    store(sum, sums);
}

/// The counts of four codes in a vector of windows.
type Four = [[u8; LANES]; 4];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
fn tally_bins(binned: Binned<'_>, numbers: &mut Numbers, tables: &[[u8; 256]]) {
    let (recipe, x) = (binned.recipe, binned.x);
    let fours = binned.counts.as_chunks_mut().0.as_chunks_mut().0;
    let first_equal = (recipe.first_equal / 4).min(fours.len());
    if let Some(number) = recipe.most {
        let (different, equal) = fours.split_at(first_equal);
        let (different, equal) = (largest(different), largest(equal));
        let mut most = [_mm512_setzero_si512(); 4];
        for (part, most) in most.iter_mut().enumerate() {
            let equal = _mm512_slli_epi32::<1>(equal[part]);
            *most = _mm512_max_epu32(different[part], equal);
        }
        set(numbers.vector(number, x), most);
    }
    for four in fours.iter_mut() {
        let together = interleave(vectors(four));
        for (counts, together) in four.iter_mut().zip(together) {
            store(together, counts);
        }
    }
    for sum in &recipe.sums {
        set(numbers.vector(sum.number, x), weighed_sum(fours, sum));
    }
    let half = fours.len() / 2;
    if let Some(number) = recipe.energy {
        let energy = if recipe.halves {
            let (first, second) = fours.split_at(half);
            squares_of_halves(first, second)
        } else {
            let (different, equal) = fours.split_at(first_equal);
            squares(different, equal)
        };
        set(numbers.vector(number, x), energy);
    }
    let Some(number) = recipe.log else { return };
    let mut fours = &mut *fours;
    if recipe.halves {
        let (first, second) = fours.split_at_mut(half);
        for (a, b) in first
            .as_flattened_mut()
            .iter_mut()
            .zip(second.as_flattened())
        {
            store(_mm512_add_epi8(load(a), load(b)), a);
        }
        fours = first;
    }
    let mut any = _mm512_setzero_si512();
    for counts in fours.as_flattened() {
        any = _mm512_or_si512(any, load(counts));
    }
    let above_63 = _mm512_test_epi8_mask(any, _mm512_set1_epi8(0x40)) != 0;
    let above_127 = _mm512_movepi8_mask(any) != 0;
    for (order, bytes) in tables.chunks(4 - tables.len() / 6).enumerate() {
        let log = match (above_127, above_63) {
            (true, _) => logarithms::<4>(fours, bytes),
            (false, true) => logarithms::<2>(fours, bytes),
            (false, false) => logarithms::<1>(fours, bytes),
        };
        set(numbers.vector(number + order, x), log);
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn vectors(four: &Four) -> [__m512i; 4] {
    four.each_ref().map(|counts| load(counts))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
#[inline]
fn set(numbers: &mut [u32; LANES], values: [__m512i; 4]) {
    let (vectors, _) = numbers.as_chunks_mut::<16>();
    for (numbers, values) in vectors.iter_mut().zip(values) {
        // JUSTIFICATION: a vector is written to integers.
        // SAFETY: there are 16 of 4 bytes, and they need no alignment.
        unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), values) }
    }
}

/// The largest count of each window.
#[target_feature(enable = "avx512f,avx512bw")]
fn largest(fours: &[Four]) -> [__m512i; 4] {
    let zero = _mm512_setzero_si512();
    let mut most = zero;
    for counts in fours.as_flattened() {
        most = _mm512_max_epu8(most, load(counts));
    }
    interleave([most, zero, zero, zero])
}

/// Sums of terms of the codes, a piece of seven bits of them after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn weighed_sum(fours: &[Four], sum: &Sum) -> [__m512i; 4] {
    let mut sums = [_mm512_setzero_si512(); 4];
    for terms in &sum.pieces {
        sums = sums.map(|sum| _mm512_slli_epi32::<7>(sum));
        for (four, terms) in fours.iter().zip(terms) {
            let terms = _mm512_set1_epi32(i32::from_le_bytes(*terms));
            for (sum, counts) in sums.iter_mut().zip(vectors(four)) {
                *sum = _mm512_dpbusd_epi32(*sum, counts, terms);
            }
        }
    }
    sums
}

/// Sums of squares, those of equal levels twice.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn squares(different: &[Four], equal: &[Four]) -> [__m512i; 4] {
    let low_bytes = _mm512_set1_epi16(0xff);
    let mut energy = [_mm512_setzero_si512(); 4];
    for fours in [equal, different] {
        energy = energy.map(|energy| _mm512_slli_epi32::<1>(energy));
        for four in fours {
            for (energy, counts) in energy.iter_mut().zip(vectors(four)) {
                let even = _mm512_and_si512(counts, low_bytes);
                let odd = _mm512_srli_epi16::<8>(counts);
                *energy = _mm512_dpwssd_epi32(*energy, even, even);
                *energy = _mm512_dpwssd_epi32(*energy, odd, odd);
            }
        }
    }
    energy
}

/// Sums of squares of counts that are sums of two.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn squares_of_halves(first: &[Four], second: &[Four]) -> [__m512i; 4] {
    let low_bytes = _mm512_set1_epi16(0xff);
    let mut energy = [_mm512_setzero_si512(); 4];
    for (first, second) in first.iter().zip(second) {
        let both = vectors(first).into_iter().zip(vectors(second));
        for (energy, (a, b)) in energy.iter_mut().zip(both) {
            let even = _mm512_add_epi16(
                _mm512_and_si512(a, low_bytes),
                _mm512_and_si512(b, low_bytes),
            );
            let odd = _mm512_add_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
            *energy = _mm512_dpwssd_epi32(*energy, even, even);
            *energy = _mm512_dpwssd_epi32(*energy, odd, odd);
        }
    }
    energy
}

/// Sums of `c log2 c`, or of some bytes of it.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn logarithms<const REGISTERS: usize>(fours: &[Four], bytes: &[[u8; 256]]) -> [__m512i; 4] {
    let (zero, one) = (_mm512_setzero_si512(), _mm512_set1_epi8(1));
    let mut sums = [zero; 4];
    for bytes in bytes.iter().rev() {
        let mut table = [zero; REGISTERS];
        for (part, table) in table.iter_mut().enumerate() {
            *table = load(at(bytes, part * LANES));
        }
        sums = sums.map(|sum| _mm512_slli_epi32::<8>(sum));
        for four in fours {
            for (sum, counts) in sums.iter_mut().zip(vectors(four)) {
                *sum = _mm512_dpbusd_epi32(*sum, look_up(&table, counts), one);
            }
        }
    }
    sums
}
