//! Fixed-point terms that depend on the difference of two levels, looked up where there are few levels: a
//! division and its conversions take a vector some twenty instructions, a lookup in registers one.

use super::moments::{Moment, inverse};
use crate::Level;

/// Levels of which all differences are looked up in two registers of AVX-512, and in one of AVX2.
const MOST_LEVELS: usize = 32;
#[cfg(target_arch = "x86_64")]
const FEW_LEVELS: u32 = 8;

/// The term of each difference.
type Table = [u32; MOST_LEVELS];

/// The levels of the first and second pixels of a row of pairs.
type Pairs<'a> = [&'a [u8]; 2];

/// Tables of all terms of a plan.
#[derive(Default)]
pub(super) struct Inverses {
    levels: u32,
    tables: Vec<(Moment, Table)>,
}

impl Inverses {
    pub(super) fn new(levels: u32, fraction: u32, moments: impl Iterator<Item = Moment>) -> Self {
        let inverses = moments.filter(|moment| {
            let few = usize::try_from(levels).is_ok_and(|levels| levels <= MOST_LEVELS);
            few && inverse(*moment, 1, fraction).is_some()
        });
        let tables = inverses.map(|moment| {
            let mut table = [0; MOST_LEVELS];
            for (difference, to) in (0..).zip(&mut table) {
                *to = inverse(moment, difference, fraction).unwrap_or(0);
            }
            (moment, table)
        });
        Self {
            levels,
            tables: tables.collect(),
        }
    }

    /// A row of pairs of valid pixels comes into the sums of columns, and one goes: false if this instruction
    /// set does not look the moment up.
    pub(super) fn slide(
        &self,
        level: Level,
        moment: Moment,
        sums: &mut [u32],
        new: Pairs<'_>,
        old: Pairs<'_>,
    ) -> bool {
        let mut tables = self.tables.iter();
        let Some((_, table)) = tables.find(|(of, _)| *of == moment) else {
            return false;
        };
        #[cfg(target_arch = "x86_64")]
        if level == Level::Avx512 && level.is_here() {
            // JUSTIFICATION: there is no other way to call a function that is compiled for more than every CPU has.
            // SAFETY: the CPU was asked for a level that has these features.
            unsafe { x86::slide_avx512(table, sums, new, old) };
            return true;
        } else if level == Level::Avx2 && level.is_here() && self.levels <= FEW_LEVELS {
            // JUSTIFICATION: as above.
            // SAFETY: as above.
            unsafe { x86::slide_avx2(table, sums, new, old) };
            return true;
        }
        let _ = (table, level, sums, new, old, self.levels);
        false
    }
}

/// What is left after the last vector.
fn slide_rest(table: &Table, sums: &mut [u32], new: Pairs<'_>, old: Pairs<'_>) {
    let term = |[first, second]: Pairs<'_>, x: usize| {
        table[usize::from(first[x].abs_diff(second[x])) % MOST_LEVELS]
    };
    for (x, sum) in sums.iter_mut().enumerate() {
        *sum = sum.wrapping_add(term(new, x)).wrapping_sub(term(old, x));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadl_epi64, _mm_loadu_si128, _mm_max_epu8, _mm_min_epu8,
        _mm_sub_epi8, _mm256_add_epi32, _mm256_cvtepu8_epi32, _mm256_loadu_si256,
        _mm256_permutevar8x32_epi32, _mm256_storeu_si256, _mm256_sub_epi32, _mm512_add_epi32,
        _mm512_cvtepu8_epi32, _mm512_loadu_si512, _mm512_permutex2var_epi32, _mm512_storeu_si512,
        _mm512_sub_epi32,
    };

    use super::{Pairs, Table, slide_rest};

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn slide_avx512(table: &Table, sums: &mut [u32], new: Pairs<'_>, old: Pairs<'_>) {
        const LANES: usize = 16;
        let (low, high) = table.split_at(LANES);
        let (low, high) = (load_512(low), load_512(high));
        let term = |[first, second]: Pairs<'_>, begin: usize| {
            let levels = |row: &[u8]| {
                let (row, _) = row[begin..].as_chunks::<LANES>();
                // JUSTIFICATION: a vector is read from bytes.
                // SAFETY: there are 16 of them, and they need no alignment.
                unsafe { _mm_loadu_si128(row[0].as_ptr().cast()) }
            };
            let differences = _mm512_cvtepu8_epi32(difference(levels(first), levels(second)));
            _mm512_permutex2var_epi32(low, differences, high)
        };
        let (vectors, rest) = sums.as_chunks_mut::<LANES>();
        let end = vectors.len() * LANES;
        for (begin, sums) in (0..).step_by(LANES).zip(vectors) {
            let sum = _mm512_sub_epi32(load_512(sums), term(old, begin));
            let sum = _mm512_add_epi32(sum, term(new, begin));
            // JUSTIFICATION: a vector is written to integers.
            // SAFETY: there are 16 of 4 bytes, and they need no alignment.
            unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), sum) };
        }
        slide_rest(
            table,
            rest,
            new.map(|row| &row[end..]),
            old.map(|row| &row[end..]),
        );
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn slide_avx2(table: &Table, sums: &mut [u32], new: Pairs<'_>, old: Pairs<'_>) {
        const LANES: usize = 8;
        let terms = load_256(&table[..LANES]);
        let term = |[first, second]: Pairs<'_>, begin: usize| {
            let levels = |row: &[u8]| {
                let (row, _) = row[begin..].as_chunks::<LANES>();
                // JUSTIFICATION: half a vector is read from bytes.
                // SAFETY: there are 8 of them, and they need no alignment.
                unsafe { _mm_loadl_epi64(row[0].as_ptr().cast()) }
            };
            let differences = _mm256_cvtepu8_epi32(difference(levels(first), levels(second)));
            _mm256_permutevar8x32_epi32(terms, differences)
        };
        let (vectors, rest) = sums.as_chunks_mut::<LANES>();
        let end = vectors.len() * LANES;
        for (begin, sums) in (0..).step_by(LANES).zip(vectors) {
            let sum = _mm256_sub_epi32(load_256(sums), term(old, begin));
            let sum = _mm256_add_epi32(sum, term(new, begin));
            // JUSTIFICATION: a vector is written to integers.
            // SAFETY: there are 8 of 4 bytes, and they need no alignment.
            unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), sum) };
        }
        slide_rest(
            table,
            rest,
            new.map(|row| &row[end..]),
            old.map(|row| &row[end..]),
        );
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn difference(a: __m128i, b: __m128i) -> __m128i {
        _mm_sub_epi8(_mm_max_epu8(a, b), _mm_min_epu8(a, b))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load_512(from: &[u32]) -> __m512i {
        let (vectors, _) = from.as_chunks::<16>();
        // JUSTIFICATION: a vector is read from integers.
        // SAFETY: there are 16 of 4 bytes, and they need no alignment.
        unsafe { _mm512_loadu_si512(vectors[0].as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load_256(from: &[u32]) -> __m256i {
        let (vectors, _) = from.as_chunks::<8>();
        // JUSTIFICATION: a vector is read from integers.
        // SAFETY: there are 8 of 4 bytes, and they need no alignment.
        unsafe { _mm256_loadu_si256(vectors[0].as_ptr().cast()) }
    }
}
