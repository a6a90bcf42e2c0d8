//! Minimum and maximum of windows without invalid samples.
//!
//! Down the columns, extremes run through blocks as high as the window, from above and from below, and each
//! result is made of two of them: three comparisons for a pixel, whatever the height (van Herk 1992; Gil and
//! Werman 1993). Along a row the same would keep SIMD idle; there the extreme of 2, 4, 8 .. neighbours is
//! made of two of the one before, which is quicker up to the largest windows that there are.

use super::plan::End;
use super::{Output, Plane, TILE, Window, convert};
use crate::{Level, for_each_level};
use pipt_raster::Sample;

/// Bytes at most.
pub(super) fn bytes(window: Window) -> usize {
    let (columns, rows) = window.extent();
    (TILE.0 + columns as usize) * (TILE.1 + rows as usize) * 8 * 4
}

/// Rows of keys; of a maximum all bits are turned round, so that it is a minimum.
struct Job<'a, L> {
    keys: &'a mut Vec<L>,
    window: Window,
    /// Of the results.
    size: (usize, usize),
}

for_each_level! {
    fn run_1(job: &mut Job<'_, u8>) = run::<u8>;
    fn run_2(job: &mut Job<'_, u16>) = run::<u16>;
    fn run_4(job: &mut Job<'_, u32>) = run::<u32>;
    fn run_8(job: &mut Job<'_, u64>) = run::<u64>;
}

pub(super) fn filter<T: Sample, O: Sample>(
    level: Level,
    window: Window,
    end: End,
    input: Plane<'_, T>,
    output: &mut Output<'_, O>,
    at: (usize, usize),
    size: (usize, usize),
) {
    let bits = u32::try_from(8 * T::TYPE.bytes()).unwrap_or(64);
    let turned = if end == End::Largest {
        u64::MAX >> (64 - bits)
    } else {
        0
    };
    macro_rules! run {
        ($type:ident, $run:path) => {{
            let mut keys: Vec<$type> = Vec::with_capacity(input.size().0 * input.size().1);
            for y in 0..input.size().1 {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "keys are as wide as samples"
                )]
                let key = |sample: &T| (sample.key() ^ turned) as $type;
                keys.extend(input.row(y).iter().map(key));
            }
            $run(
                level,
                &mut Job {
                    keys: &mut keys,
                    window,
                    size,
                },
            );
            for (y, found) in keys.chunks_exact(input.size().0).take(size.1).enumerate() {
                let row = &mut output.samples.row_mut(at.1 + y)[at.0..at.0 + size.0];
                for (sample, key) in row.iter_mut().zip(found) {
                    *sample = convert::<T, O>(u64::from(*key) ^ turned);
                }
            }
        }};
    }
    match T::TYPE.bytes() {
        1 => run!(u8, run_1),
        2 => run!(u16, run_2),
        4 => run!(u32, run_4),
        _ => run!(u64, run_8),
    }
}

/// Leaves the results in the first rows, at the first columns.
#[inline(always)]
fn run<L: Copy + Ord>(job: &mut Job<'_, L>) {
    let (width, height) = job.size;
    match job.window {
        Window::Rectangle {
            width: across,
            height: down,
        } => {
            let wide = width + across as usize - 1;
            for row in job.keys.chunks_exact_mut(wide) {
                along(row, across as usize);
            }
            downwards(job.keys, wide, height, down as usize);
        }
        Window::Cross { arm } => {
            let arm = arm as usize;
            let wide = width + 2 * arm;
            let mut middle = job.keys[arm * wide..(arm + height) * wide].to_vec();
            for row in middle.chunks_exact_mut(wide) {
                along(row, 2 * arm + 1);
            }
            downwards(job.keys, wide, height, 2 * arm + 1);
            for (row, middle) in job
                .keys
                .chunks_exact_mut(wide)
                .zip(middle.chunks_exact(wide))
            {
                // The column through the middle of a window is `arm` further to the right.
                for x in 0..width {
                    row[x] = row[x + arm].min(middle[x]);
                }
            }
        }
    }
}

/// The minimum of so many samples from each on; where there are fewer, that means nothing.
#[inline(always)]
fn along<L: Copy + Ord>(row: &mut [L], across: usize) {
    let mut have = 1;
    while have < across {
        let step = have.min(across - have);
        for x in 0..row.len().saturating_sub(step) {
            row[x] = row[x].min(row[x + step]);
        }
        have += step;
    }
}

/// The minimum of so many rows from each on.
#[inline(always)]
fn downwards<L: Copy + Ord>(keys: &mut [L], wide: usize, height: usize, down: usize) {
    let rows = keys.len() / wide;
    // From the end of each block up to its beginning, over the samples; downwards, beside them.
    let mut below = keys.to_vec();
    for y in (1..rows).filter(|y| y % down != 0) {
        let (before, now) = below.split_at_mut(y * wide);
        smaller(&mut now[..wide], &before[(y - 1) * wide..]);
    }
    for y in (0..rows.saturating_sub(1))
        .rev()
        .filter(|y| (y + 1) % down != 0)
    {
        let (now, after) = keys.split_at_mut((y + 1) * wide);
        smaller(&mut now[y * wide..], &after[..wide]);
    }
    for y in 0..height {
        smaller(
            &mut keys[y * wide..][..wide],
            &below[(y + down - 1) * wide..][..wide],
        );
    }
}

#[inline(always)]
fn smaller<L: Copy + Ord>(row: &mut [L], other: &[L]) {
    for (one, other) in row.iter_mut().zip(other) {
        *one = (*one).min(*other);
    }
}
