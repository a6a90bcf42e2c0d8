//! With lookups of bytes in tables of sixteen, and sums of two products.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_adds_epu8,
    _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_max_epu8, _mm256_max_epu32, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_slli_epi32, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_sub_epi8, _mm256_testz_si256,
    _mm256_unpackhi_epi8, _mm256_unpackhi_epi16, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16,
};

use super::super::bins::{Binned, Bins, Keys, Numbers, Sum, Vectors};
use super::super::matches::{Counted, MOST_SIDE, Matches, Planes, Slides, Step, Whole, slide};
use super::{Tallies, at, at_mut};

const LANES: usize = 32;

/// Twos of pairs in a row of a window.
const TWOS: usize = MOST_SIDE.div_ceil(2);

/// The bytes of logarithms of sixteen counts each, twice, as lookups need them.
type Tables<const BYTES: usize> = [[__m256i; BYTES]; 16];

#[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt")]
pub(super) fn take_row(
    matches: &mut Matches,
    (of, among): (&Planes, &[Planes]),
    step: Step,
    bytes: &[[u8; 256]; 3],
) {
    let tables = tables_of(bytes);
    let slides = Slides {
        slide: slide::<LANES>,
        whole: |_: Whole<'_>| false,
    };
    matches.take::<LANES, LANES>((of, among), step, slides, |tallies, counted| {
        if counted.most < 16 {
            tally::<false>(tallies, counted, &tables);
        } else {
            tally::<true>(tallies, counted, &tables);
        }
    });
}

#[target_feature(enable = "avx2")]
fn tables_of<const BYTES: usize>(bytes: &[[u8; 256]; BYTES]) -> Tables<BYTES> {
    let mut tables = [[_mm256_setzero_si256(); BYTES]; 16];
    for (part, tables) in tables.iter_mut().enumerate() {
        for (bytes, table) in bytes.iter().zip(tables) {
            let mut twice = [0; LANES];
            twice[..16].copy_from_slice(&bytes[16 * part..16 * part + 16]);
            twice.copy_within(..16, 16);
            *table = load(&twice);
        }
    }
    tables
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load(from: &[u8; LANES]) -> __m256i {
    // JUSTIFICATION: a vector is read from bytes.
    // SAFETY: there are 32 of them, and they need no alignment.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(vector: __m256i, to: &mut [u8; LANES]) {
    // JUSTIFICATION: a vector is written to bytes.
    // SAFETY: there are 32 of them, and they need no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_to(sums: &mut [u32], begin: usize, more: [__m256i; 4]) {
    let (vectors, _) = sums[begin..begin + LANES].as_chunks_mut::<8>();
    for (sums, more) in vectors.iter_mut().zip(more) {
        // JUSTIFICATION: vectors are read from integers and written to them.
        // SAFETY: there are 8 of 4 bytes, and they need no alignment.
        unsafe {
            let before = _mm256_loadu_si256(sums.as_ptr().cast());
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), _mm256_add_epi32(before, more));
        }
    }
}

/// The words of two times two vectors, those of a lane side by side.
#[target_feature(enable = "avx2")]
#[inline]
fn interleave_words(low: [__m256i; 2], high: [__m256i; 2]) -> [__m256i; 4] {
    [
        _mm256_unpacklo_epi16(low[0], high[0]),
        _mm256_unpackhi_epi16(low[0], high[0]),
        _mm256_unpacklo_epi16(low[1], high[1]),
        _mm256_unpackhi_epi16(low[1], high[1]),
    ]
}

/// The bytes of each count's logarithm. A lookup of a byte above 127 gives 0.
#[target_feature(enable = "avx2")]
#[inline]
fn look_up<const LARGE: bool, const BYTES: usize>(
    tables: &Tables<BYTES>,
    counts: __m256i,
    parts: usize,
) -> [__m256i; BYTES] {
    let mut found = tables[0];
    if !LARGE {
        return found.map(|table| _mm256_shuffle_epi8(table, counts));
    }
    found = [_mm256_setzero_si256(); BYTES];
    let mut places = counts;
    for tables in &tables[..parts] {
        // From 0 to 15 stays below 128, larger ones do not.
        let at = _mm256_adds_epu8(places, _mm256_set1_epi8(0x70));
        for (found, table) in found.iter_mut().zip(tables) {
            *found = _mm256_or_si256(*found, _mm256_shuffle_epi8(*table, at));
        }
        places = _mm256_sub_epi8(places, _mm256_set1_epi8(16));
    }
    found
}

#[target_feature(enable = "avx2")]
fn tally<const LARGE: bool>(tallies: &mut Tallies, counted: Counted<'_>, tables: &Tables<3>) {
    let columns = counted.columns;
    let (zero, one) = (_mm256_setzero_si256(), _mm256_set1_epi8(1));
    let parts = usize::from(counted.most) / 16 + 1;
    // These are the same for every row of windows.
    let (mut weights, mut equal) = ([[zero; 2]; TWOS], [zero; 2 * TWOS]);
    for (two, weights) in weights[..columns.div_ceil(2)].iter_mut().enumerate() {
        let mut both = [zero; 2];
        for place in 2 * two..columns.min(2 * two + 2) {
            both[place % 2] = load(at(counted.weights, place));
            equal[place] = _mm256_cmpeq_epi8(both[place % 2], _mm256_set1_epi8(2));
        }
        let [a, b] = both;
        *weights = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
    }
    let rows = counted.counts.chunks_exact(columns * 2 * LANES);
    for (row, counts) in (counted.top..).zip(rows) {
        let begin = tallies.begin(row, counted.x);
        let (mut energy, mut logs) = ([zero; 2], [[zero; 2]; 3]);
        let mut most = load(at(&tallies.most, begin));
        let mut most_equal = load(at(&tallies.most_equal, begin));
        for (two, weights) in weights[..columns.div_ceil(2)].iter().enumerate() {
            let mut both = [zero; 2];
            for (of_two, count) in both.iter_mut().enumerate() {
                let place = 2 * two + of_two;
                if place < columns {
                    *count = load(at(counts, place * (2 * LANES + 1)));
                    most = _mm256_max_epu8(most, *count);
                    let count = _mm256_and_si256(*count, equal[place]);
                    most_equal = _mm256_max_epu8(most_equal, count);
                }
            }
            let [a, b] = both;
            let both = [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
            for half in 0..2 {
                let products = _mm256_maddubs_epi16(both[half], weights[half]);
                energy[half] = _mm256_add_epi16(energy[half], products);
                let found = look_up::<LARGE, 3>(tables, both[half], parts);
                for (log, found) in logs.iter_mut().zip(found) {
                    log[half] = _mm256_add_epi16(log[half], _mm256_maddubs_epi16(found, one));
                }
            }
        }
        let [low, middle, high] = logs;
        // Sums of 15 bytes and of 15 counts twice are below 2^13.
        let shifts = _mm256_set1_epi32((256 << 16) + 1);
        let low = interleave_words(low, middle).map(|words| _mm256_madd_epi16(words, shifts));
        let mut log = interleave_words([zero; 2], high);
        for part in 0..4 {
            log[part] = _mm256_add_epi32(log[part], low[part]);
        }
        add_to(&mut tallies.log, begin, log);
        add_to(
            &mut tallies.energy,
            begin,
            interleave_words(energy, [zero; 2]),
        );
        store(most, at_mut(&mut tallies.most, begin));
        store(most_equal, at_mut(&mut tallies.most_equal, begin));
    }
}

/// The bytes of `c log2 c`: four of them, or two times three.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Logs {
    Four(Tables<4>),
    Six([Tables<3>; 2]),
}

#[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt")]
pub(super) fn take_bins(bins: &mut Bins, counted: (usize, usize), bytes: &[[u8; 256]]) {
    let tables = if let Ok(bytes) = bytes.try_into() {
        Logs::Four(tables_of::<4>(bytes))
    } else {
        let (bytes, _) = bytes.as_chunks();
        Logs::Six([tables_of(&bytes[0]), tables_of(&bytes[1])])
    };
    let vectors = Vectors {
        slide: |columns: &mut _, code, keys: &[_]| slide_columns::<LANES>(columns, code, keys, 0),
        across: |columns: &_, sums: &mut _| across(columns, sums),
        gather: |counts: &_, places: &_, sums: &mut _| gather(counts, places, sums),
        tally: |binned: Binned<'_>, numbers: &mut _| tally_bins(binned, numbers, &tables),
    };
    bins.take::<LANES>(counted, &vectors);
}

/// The columns from `begin` on of a vector of keys.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn slide_columns<const KEYS: usize>(
    columns: &mut [u8; LANES],
    code: u8,
    keys: &[Keys<KEYS>],
    begin: usize,
) {
    let code = _mm256_set1_epi8(i8::from_le_bytes([code]));
    let mut sum = load(columns);
    // What is equal has all bits: it is -1.
    for [come, gone] in keys {
        sum = _mm256_sub_epi8(sum, _mm256_cmpeq_epi8(load(at(come, begin)), code));
        sum = _mm256_add_epi8(sum, _mm256_cmpeq_epi8(load(at(gone, begin)), code));
    }
    store(sum, columns);
}

#[target_feature(enable = "avx2")]
#[inline]
fn across(columns: &[u8], sums: &mut [u8; LANES]) {
    let (mut columns, mut sum) = (columns, load(sums));
    while let Some(five) = columns.first_chunk::<{ LANES + 4 }>() {
        for first in 0..5 {
            sum = _mm256_add_epi8(sum, load(at(five, first)));
        }
        columns = &columns[5..];
    }
    for columns in columns.windows(LANES) {
        sum = _mm256_add_epi8(sum, load(at(columns, 0)));
    }
    store(sum, sums);
}

#[target_feature(enable = "avx2")]
#[inline]
fn gather(counts: &[[u8; LANES]], places: &[usize], sums: &mut [u8; LANES]) {
    let mut sum = _mm256_setzero_si256();
    for place in places {
        sum = _mm256_add_epi8(sum, load(&counts[*place]));
    }
    store(sum, sums);
}

/// The counts of two codes in a vector of windows.
type Two = [[u8; LANES]; 2];

#[target_feature(enable = "avx2")]
fn tally_bins(binned: Binned<'_>, numbers: &mut Numbers, tables: &Logs) {
    let (recipe, x) = (binned.recipe, binned.x);
    let twos = binned.counts.as_chunks_mut().0.as_chunks_mut().0;
    let first_equal = (recipe.first_equal / 2).min(twos.len());
    if let Some(number) = recipe.most {
        let (different, equal) = twos.split_at(first_equal);
        let (different, equal) = (largest(different), largest(equal));
        let mut most = [_mm256_setzero_si256(); 4];
        for (part, most) in most.iter_mut().enumerate() {
            let equal = _mm256_slli_epi32::<1>(equal[part]);
            *most = _mm256_max_epu32(different[part], equal);
        }
        set(numbers.vector(number, x), most);
    }
    for two in twos.iter_mut() {
        let [a, b] = vectors(two);
        let [low, high] = two;
        store(_mm256_unpacklo_epi8(a, b), low);
        store(_mm256_unpackhi_epi8(a, b), high);
    }
    for sum in &recipe.sums {
        set(numbers.vector(sum.number, x), weighed_sum(twos, sum));
    }
    let half = twos.len() / 2;
    if let Some(number) = recipe.energy {
        let energy = if recipe.halves {
            let (first, second) = twos.split_at(half);
            squares_of_halves(first, second)
        } else {
            let (different, equal) = twos.split_at(first_equal);
            squares(different, equal)
        };
        set(numbers.vector(number, x), energy);
    }
    let Some(number) = recipe.log else { return };
    let mut twos = &mut *twos;
    if recipe.halves {
        let (first, second) = twos.split_at_mut(half);
        for (a, b) in first
            .as_flattened_mut()
            .iter_mut()
            .zip(second.as_flattened())
        {
            store(_mm256_add_epi8(load(a), load(b)), a);
        }
        twos = first;
    }
    match tables {
        Logs::Four(tables) => set(numbers.vector(number, x), logarithms(twos, tables)),
        Logs::Six([low, high]) => {
            set(numbers.vector(number, x), logarithms(twos, low));
            set(numbers.vector(number + 1, x), logarithms(twos, high));
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn vectors(two: &Two) -> [__m256i; 2] {
    two.each_ref().map(|counts| load(counts))
}

#[target_feature(enable = "avx2")]
#[inline]
fn set(numbers: &mut [u32; LANES], values: [__m256i; 4]) {
    let (vectors, _) = numbers.as_chunks_mut::<8>();
    for (numbers, values) in vectors.iter_mut().zip(values) {
        // JUSTIFICATION: a vector is written to integers.
        // SAFETY: there are 8 of 4 bytes, and they need no alignment.
        unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().cast(), values) }
    }
}

/// The largest count of each window.
#[target_feature(enable = "avx2")]
fn largest(twos: &[Two]) -> [__m256i; 4] {
    let zero = _mm256_setzero_si256();
    let mut most = zero;
    for counts in twos.as_flattened() {
        most = _mm256_max_epu8(most, load(counts));
    }
    let words = [
        _mm256_unpacklo_epi8(most, zero),
        _mm256_unpackhi_epi8(most, zero),
    ];
    interleave_words(words, [zero; 2])
}

/// Sums of terms of the codes, a piece of seven bits of them after the other. A window has at most 255 pairs,
/// so that a piece's sum is below 2^15.
#[target_feature(enable = "avx2")]
fn weighed_sum(twos: &[Two], sum: &Sum) -> [__m256i; 4] {
    let zero = _mm256_setzero_si256();
    let mut sums = [zero; 4];
    for terms in &sum.pieces {
        let mut piece = [zero; 2];
        for (two, terms) in twos.iter().zip(terms.as_flattened().as_chunks().0) {
            let terms = _mm256_set1_epi16(i16::from_le_bytes(*terms));
            for (piece, counts) in piece.iter_mut().zip(vectors(two)) {
                *piece = _mm256_add_epi16(*piece, _mm256_maddubs_epi16(counts, terms));
            }
        }
        let pieces = interleave_words(piece, [zero; 2]);
        for (sum, piece) in sums.iter_mut().zip(pieces) {
            *sum = _mm256_add_epi32(_mm256_slli_epi32::<7>(*sum), piece);
        }
    }
    sums
}

/// The counts of one of two codes and of the other one, in words.
#[target_feature(enable = "avx2")]
#[inline]
fn words(two: &Two) -> [[__m256i; 2]; 2] {
    let both = vectors(two);
    let low_bytes = _mm256_set1_epi16(0xff);
    [
        both.map(|counts| _mm256_and_si256(counts, low_bytes)),
        both.map(|counts| _mm256_srli_epi16::<8>(counts)),
    ]
}

/// Sums of squares, those of equal levels twice.
#[target_feature(enable = "avx2")]
fn squares(different: &[Two], equal: &[Two]) -> [__m256i; 4] {
    let mut energy = [_mm256_setzero_si256(); 4];
    for twos in [equal, different] {
        energy = energy.map(|energy| _mm256_slli_epi32::<1>(energy));
        for two in twos {
            let [a, b] = vectors(two);
            let any = _mm256_or_si256(a, b);
            if _mm256_testz_si256(any, any) != 0 {
                continue;
            }
            let [even, odd] = words(two);
            for (energy, counts) in energy.iter_mut().zip(interleave_words(even, odd)) {
                *energy = _mm256_add_epi32(*energy, _mm256_madd_epi16(counts, counts));
            }
        }
    }
    energy
}

/// Sums of squares of counts that are sums of two.
#[target_feature(enable = "avx2")]
fn squares_of_halves(first: &[Two], second: &[Two]) -> [__m256i; 4] {
    let mut energy = [_mm256_setzero_si256(); 4];
    for (first, second) in first.iter().zip(second) {
        let (mut both, more) = (words(first), words(second));
        for (words, more) in both.as_flattened_mut().iter_mut().zip(more.as_flattened()) {
            *words = _mm256_add_epi16(*words, *more);
        }
        let [even, odd] = both;
        for (energy, counts) in energy.iter_mut().zip(interleave_words(even, odd)) {
            *energy = _mm256_add_epi32(*energy, _mm256_madd_epi16(counts, counts));
        }
    }
    energy
}

/// Sums of `c log2 c`, or of some bytes of it. Many codes are rare, so that each two are looked up in as few
/// tables as they need.
#[target_feature(enable = "avx2")]
fn logarithms<const BYTES: usize>(twos: &[Two], tables: &Tables<BYTES>) -> [__m256i; 4] {
    let (zero, one) = (_mm256_setzero_si256(), _mm256_set1_epi8(1));
    let mut logs = [[zero; 2]; BYTES];
    for two in twos {
        let both = vectors(two);
        let larger = _mm256_max_epu8(both[0], both[1]);
        if _mm256_testz_si256(larger, larger) != 0 {
            continue;
        }
        let small = _mm256_testz_si256(larger, _mm256_set1_epi8(!15)) != 0;
        let parts = if small {
            1
        } else {
            largest_of(larger) / 16 + 1
        };
        for half in 0..2 {
            let found = if small {
                look_up::<false, BYTES>(tables, both[half], parts)
            } else {
                look_up::<true, BYTES>(tables, both[half], parts)
            };
            for (log, found) in logs.iter_mut().zip(found) {
                log[half] = _mm256_add_epi16(log[half], _mm256_maddubs_epi16(found, one));
            }
        }
    }
    // Sums of a byte of each code are below 2^14.
    let mut sums = [zero; 4];
    for log in logs.into_iter().rev() {
        for (sum, log) in sums.iter_mut().zip(interleave_words(log, [zero; 2])) {
            *sum = _mm256_add_epi32(_mm256_slli_epi32::<8>(*sum), log);
        }
    }
    sums
}

/// The largest of all bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn largest_of(vector: __m256i) -> usize {
    let mut bytes = [0_u8; LANES];
    store(vector, &mut bytes);
    bytes.iter().fold(0, |a, b| a.max(*b)).into()
}
