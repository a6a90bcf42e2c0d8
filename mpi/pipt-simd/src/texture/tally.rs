//! The numbers of windows from how often their pairs occur.
//!
//! Each count adds itself to the sum of squared counts, its logarithm to the sum of `c log2 c`, and may be the
//! largest one. Logarithms are integers of three bytes, each of which is looked up for a vector of counts. The
//! bytes of several pairs of a window are brought side by side, so that one instruction adds them up.

use super::aligned::Aligned;
use super::bins::Bins;
use super::histogram::Slots;
use super::logarithms::Logarithms;
use super::matches::{Matches, Planes, Step};
use super::rows::{Number, Rows};
use crate::{Level, for_each_level};

/// Windows at a time, at most.
pub(super) const MOST_LANES: usize = 64;

/// Whether vectors of 64 bytes can be looked up and added up in fours.
fn has_byte_tables(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has && level == Level::Avx512
}

/// The numbers of windows whose rows of pairs are not all taken yet: of as many rows as a window has.
pub(super) struct Tallies {
    /// In the order in which instructions leave them: see [`place`].
    energy: Aligned<u32>,
    log: Aligned<u32>,
    /// Of pairs of any levels and of equal ones, for which it counts half.
    most: Aligned<u8>,
    most_equal: Aligned<u8>,
    width: usize,
    stride: usize,
    rows: usize,
}

impl Tallies {
    pub(super) fn new(width: usize, rows: usize) -> Self {
        let stride = width.next_multiple_of(MOST_LANES);
        Self {
            energy: Aligned::new(0, stride * rows),
            log: Aligned::new(0, stride * rows),
            most: Aligned::new(0, stride * rows),
            most_equal: Aligned::new(0, stride * rows),
            width,
            stride,
            rows,
        }
    }

    pub(super) fn bytes(width: usize, rows: usize) -> usize {
        width.next_multiple_of(MOST_LANES) * rows * 10
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// Where the numbers of a row's windows from `x` are.
    #[inline(always)]
    fn begin(&self, row: usize, x: usize) -> usize {
        row % self.rows * self.stride + x
    }

    /// Writes a row of windows, and empties it for another one.
    pub(super) fn write<N: Tallied>(
        &mut self,
        level: Level,
        (row, slots, add): (usize, Slots, bool),
        rows: &mut Rows<N>,
    ) {
        let by_four = has_byte_tables(level);
        let what = Written {
            row,
            slots,
            add,
            by_four,
        };
        N::write(level, self, what, rows);
    }

    #[inline(always)]
    fn put_row<N: Number>(&mut self, what: Written, rows: &mut Rows<N>) {
        let Written {
            row,
            slots,
            add,
            by_four,
        } = what;
        let begin = self.begin(row, 0);
        let end = begin + self.stride;
        let sums = [(slots.energy, &mut self.energy), (slots.log, &mut self.log)];
        for (slot, sums) in sums {
            let sums = &mut sums[begin..end];
            if let Some(slot) = slot {
                let to = rows.row_mut(slot);
                if by_four {
                    put::<N, 64>(sums, to, add);
                } else {
                    put::<N, 32>(sums, to, add);
                }
            }
            sums.fill(0);
        }
        let (most, most_equal) = (&mut self.most[begin..end], &mut self.most_equal[begin..end]);
        if let Some(slot) = slots.most {
            put_most(most, most_equal, rows.row_mut(slot), add);
        }
        most.fill(0);
        most_equal.fill(0);
    }
}

/// A row of windows that is written, and in which order its sums are.
#[derive(Clone, Copy)]
pub(super) struct Written {
    row: usize,
    slots: Slots,
    add: bool,
    by_four: bool,
}

/// Numbers that sums are written as.
pub(super) trait Tallied: Number {
    fn write(level: Level, tallies: &mut Tallies, what: Written, rows: &mut Rows<Self>);

    /// See [`write`].
    fn put(level: Level, numbers: (&[u32], bool), to: &mut [Self], scale: Option<f64>);
}

impl Tallied for f64 {
    fn write(level: Level, tallies: &mut Tallies, what: Written, rows: &mut Rows<Self>) {
        write_real(level, tallies, what, rows);
    }

    fn put(level: Level, numbers: (&[u32], bool), to: &mut [Self], scale: Option<f64>) {
        match scale {
            None => put_real(level, numbers, to),
            Some(scale) => put_parts(level, numbers, to, scale),
        }
    }
}

impl Tallied for u32 {
    fn write(level: Level, tallies: &mut Tallies, what: Written, rows: &mut Rows<Self>) {
        write_brief(level, tallies, what, rows);
    }

    fn put(level: Level, numbers: (&[u32], bool), to: &mut [Self], _scale: Option<f64>) {
        put_brief(level, numbers, to);
    }
}

for_each_level! {
    fn write_real(tallies: &mut Tallies, what: Written, rows: &mut Rows<f64>) = Tallies::put_row;
    fn write_brief(tallies: &mut Tallies, what: Written, rows: &mut Rows<u32>) = Tallies::put_row;
    fn put_real(numbers: (&[u32], bool), to: &mut [f64]) = put_any;
    fn put_brief(numbers: (&[u32], bool), to: &mut [u32]) = put_any;
    fn put_parts(numbers: (&[u32], bool), to: &mut [f64], scale: f64) = put_scaled;
}

/// Writes sums of windows, or adds them, in the order of the windows.
///
/// Bytes are brought side by side within 16 of them, fours of windows come first, fifth, ...: as many vectors
/// of sums as a sum has bytes, of which each has every fourth four.
#[inline(always)]
fn put<N: Number, const LANES: usize>(sums: &[u32], to: &mut [N], add: bool) {
    for (to, sums) in to.chunks_mut(LANES).zip(sums.as_chunks::<LANES>().0) {
        let mut ordered = [N::of(0); LANES];
        for (four, to) in ordered.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let begin = first_of(four, LANES);
            for (place, to) in to.iter_mut().enumerate() {
                *to = N::of(sums[begin + place]);
            }
        }
        match to.first_chunk_mut::<LANES>() {
            Some(to) if !add => *to = ordered,
            _ => {
                for (to, sum) in to.iter_mut().zip(ordered) {
                    *to = if add { *to + sum } else { sum };
                }
            }
        }
    }
}

/// Writes the largest counts, or those that are larger.
#[inline(always)]
fn put_most<N: Number>(most: &[u8], most_equal: &[u8], to: &mut [N], add: bool) {
    let both = most.iter().zip(most_equal);
    for (to, (most, equal)) in to.iter_mut().zip(both) {
        let most = N::of(u32::from(*most).max(2 * u32::from(*equal)));
        *to = if add && *to > most { *to } else { most };
    }
}

/// Panics if nothing here is compiled for the level, or the CPU does not have it.
fn check(level: Level) {
    assert!(
        level >= Level::Avx2 && level.is_here(),
        "{level} has no such tables"
    );
}

/// The bytes from a place on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn at<const LANES: usize>(bytes: &[u8], begin: usize) -> &[u8; LANES] {
    let (bytes, _) = bytes[begin..].as_chunks();
    &bytes[0]
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn at_mut<const LANES: usize>(bytes: &mut [u8], begin: usize) -> &mut [u8; LANES] {
    let (bytes, _) = bytes[begin..].as_chunks_mut();
    &mut bytes[0]
}

/// Takes a row of pairs, as the best of the machine's instructions of this level do it.
pub(super) fn take_row(
    level: Level,
    matches: &mut Matches,
    (of, among): (&Planes, &[Planes]),
    step: Step,
    logarithms: &Logarithms,
) {
    check(level);
    #[cfg(target_arch = "x86_64")]
    if has_byte_tables(level) {
        // JUSTIFICATION: there is no other way to call a function that is compiled for more than every CPU has.
        // SAFETY: the CPU was asked for the level's features and for the two others.
        unsafe { avx512::take_row(matches, (of, among), step, logarithms) }
    } else {
        // JUSTIFICATION: as above.
        // SAFETY: `check` asked the CPU for a level that has these features.
        unsafe { avx2::take_row(matches, (of, among), step, &logarithms.bytes) }
    }
}

/// Counts each code in a row of windows, as [`take_row`] takes a row of pairs. The tables are the bytes of
/// `c log2 c`: four or six of them.
pub(super) fn take_bins(
    level: Level,
    bins: &mut Bins,
    counted: (usize, usize),
    tables: &[[u8; 256]],
) {
    check(level);
    #[cfg(target_arch = "x86_64")]
    if has_byte_tables(level) {
        // JUSTIFICATION: there is no other way to call a function that is compiled for more than every CPU has.
        // SAFETY: the CPU was asked for the level's features and for the two others.
        unsafe { avx512::take_bins(bins, counted, tables) }
    } else {
        // JUSTIFICATION: as above.
        // SAFETY: `check` asked the CPU for a level that has these features.
        unsafe { avx2::take_bins(bins, counted, tables) }
    }
}

/// Writes a number of windows, or adds it so many times: only 64-bit floats have room for more than one.
pub(super) fn write<N: Tallied>(level: Level, numbers: &[u32], to: &mut [N], scale: Option<f64>) {
    N::put(level, (numbers, has_byte_tables(level)), to, scale);
}

#[inline(always)]
fn put_any<N: Number>((numbers, by_four): (&[u32], bool), to: &mut [N]) {
    if by_four {
        put::<N, 64>(numbers, to, false);
    } else {
        put::<N, 32>(numbers, to, false);
    }
}

/// Adds sums of windows that are parts of larger numbers.
#[inline(always)]
fn put_scaled((numbers, by_four): (&[u32], bool), to: &mut [f64], scale: f64) {
    let lanes = if by_four { 64 } else { 32 };
    let all = to.chunks_mut(lanes).zip(numbers.chunks_exact(lanes));
    for (to, sums) in all {
        for (four, to) in to.chunks_mut(4).enumerate() {
            let begin = first_of(four, lanes);
            for (to, sum) in to.iter_mut().zip(&sums[begin..begin + 4]) {
                *to += f64::from(*sum) * scale;
            }
        }
    }
}

/// Where the sums of a four of windows are.
#[inline(always)]
const fn first_of(four: usize, lanes: usize) -> usize {
    four % 4 * (lanes / 4) + four / 4 * 4
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
