//! Runs the programs of `network` on rows of pixels.

use super::network::{CHUNK_BYTES, Kind, Program, Stage};
use super::{Output, Plane, convert};
use crate::{Level, for_each_level};
use pipt_raster::Sample;

/// A key as narrow as its sample: what SIMD compares.
trait Lane: Copy + Default + Ord {
    fn of_key(key: u64) -> Self;
    fn key(self) -> u64;
}

macro_rules! lane {
    ($($type:ident)*) => {$(
        impl Lane for $type {
            #[allow(clippy::cast_possible_truncation, reason = "the key of a sample of this width")]
            #[inline(always)]
            fn of_key(key: u64) -> Self {
                key as Self
            }

            #[inline(always)]
            fn key(self) -> u64 {
                u64::from(self)
            }
        }
    )*};
}

lane!(u8 u16 u32 u64);

#[derive(Default)]
pub(super) struct Scratch {
    of_1: Rows<u8>,
    of_2: Rows<u16>,
    of_4: Rows<u32>,
    of_8: Rows<u64>,
}

#[derive(Default)]
struct Rows<L> {
    /// Of the image, one after the other.
    keys: Vec<L>,
    /// The same, each phase of a row by itself.
    leaves: Vec<L>,
    /// What the program works on.
    arena: Vec<L>,
    results: Vec<L>,
}

/// Some columns of a part of an image.
struct Job<'a, L> {
    program: &'a Program,
    rows: &'a mut Rows<L>,
    width: usize,
    height: usize,
}

type Run<L> = fn(Level, &mut Job<'_, L>);

for_each_level! {
    fn median_1(job: &mut Job<'_, u8>) = median_of_nine::<u8>;
    fn run_1(job: &mut Job<'_, u8>) = run::<u8, { CHUNK_BYTES }>;
    fn median_2(job: &mut Job<'_, u16>) = median_of_nine::<u16>;
    fn run_2(job: &mut Job<'_, u16>) = run::<u16, { CHUNK_BYTES / 2 }>;
    fn median_4(job: &mut Job<'_, u32>) = median_of_nine::<u32>;
    fn run_4(job: &mut Job<'_, u32>) = run::<u32, { CHUNK_BYTES / 4 }>;
    fn median_8(job: &mut Job<'_, u64>) = median_of_nine::<u64>;
    fn run_8(job: &mut Job<'_, u64>) = run::<u64, { CHUNK_BYTES / 8 }>;
}

impl Program {
    /// Filters a part of an image in which all samples are valid.
    pub(super) fn filter<T: Sample, O: Sample>(
        &self,
        level: Level,
        scratch: &mut Scratch,
        input: Plane<'_, T>,
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) {
        // Strips of equal width, so that none has a few lanes only.
        let most = self.lanes * self.group;
        let strip = size
            .0
            .div_ceil(size.0.div_ceil(most))
            .next_multiple_of(self.group);
        for x in (0..size.0).step_by(strip) {
            let width = strip.min(size.0 - x);
            let input = input.part((x, 0), (width + self.extent.0 - 1, input.size().1));
            let place = ((at.0 + x, at.1), (width, size.1));
            match T::TYPE.bytes() {
                1 => self.strip(
                    level,
                    &mut scratch.of_1,
                    input,
                    output,
                    place,
                    [run_1, median_1],
                ),
                2 => self.strip(
                    level,
                    &mut scratch.of_2,
                    input,
                    output,
                    place,
                    [run_2, median_2],
                ),
                4 => self.strip(
                    level,
                    &mut scratch.of_4,
                    input,
                    output,
                    place,
                    [run_4, median_4],
                ),
                _ => self.strip(
                    level,
                    &mut scratch.of_8,
                    input,
                    output,
                    place,
                    [run_8, median_8],
                ),
            }
        }
    }

    fn strip<T: Sample, O: Sample, L: Lane>(
        &self,
        level: Level,
        rows: &mut Rows<L>,
        input: Plane<'_, T>,
        output: &mut Output<'_, O>,
        ((left, top), (width, height)): ((usize, usize), (usize, usize)),
        runs: [Run<L>; 2],
    ) {
        let wide = width + self.extent.0 - 1;
        rows.keys.clear();
        for y in 0..input.size().1 {
            rows.keys
                .extend(input.row(y).iter().map(|sample| L::of_key(sample.key())));
        }
        rows.leaves
            .resize(input.size().1 * self.group * self.leaf, L::default());
        rows.arena.resize(self.arena.max(3 * wide), L::default());
        let across = width.next_multiple_of(self.group);
        let each = self.results.first().map_or(1, Vec::len);
        rows.results.resize(height * each * across, L::default());
        runs[usize::from(self.is_median_of_nine)](
            level,
            &mut Job {
                program: self,
                rows,
                width,
                height,
            },
        );
        for (y, found) in rows.results.chunks_exact(each * across).enumerate() {
            let row = &mut output.samples.row_mut(top + y)[left..left + width];
            let (first, last) = found.split_at(across);
            for (x, sample) in row.iter_mut().enumerate() {
                *sample = if each == 1 || first[x] == last[x] {
                    convert::<T, O>(first[x].key())
                } else {
                    super::exact::mean_of_two::<T, O>(first[x].key(), last[x].key())
                };
            }
        }
    }
}

#[inline(always)]
fn run<L: Lane, const CHUNK: usize>(job: &mut Job<'_, L>) {
    let program = job.program;
    let Rows {
        keys,
        leaves,
        arena,
        results,
    } = &mut *job.rows;
    // Vectors that lie across two lines of the cache take twice the time.
    let aligned = arena.as_ptr().align_offset(64).min(CHUNK);
    let arena = &mut arena[aligned..];
    let wide = job.width + program.extent.0 - 1;
    let leaf = program.leaf;
    for (row, leaves) in keys
        .chunks_exact(wide)
        .zip(leaves.chunks_exact_mut(program.group * leaf))
    {
        match program.group {
            1 => leaves[..wide].copy_from_slice(row),
            2 => part::<L, 2>(row, leaves, leaf),
            4 => part::<L, 4>(row, leaves, leaf),
            _ => part::<L, 8>(row, leaves, leaf),
        }
    }
    let lanes = job.width.div_ceil(program.group);
    let across = lanes * program.group;
    let each = program.results.first().map_or(1, Vec::len);
    for y in 0..job.height {
        let leaves = &leaves[y * program.group * leaf..];
        for stage in &program.stages {
            make::<L, CHUNK>(program, stage, leaves, arena, lanes + stage.extra);
        }
        let results = &mut results[y * each * across..][..each * across];
        for (number, results) in results.chunks_exact_mut(across).enumerate() {
            match program.group {
                1 => join::<L, 1>(program, number, arena, results),
                2 => join::<L, 2>(program, number, arena, results),
                4 => join::<L, 4>(program, number, arena, results),
                _ => join::<L, 8>(program, number, arena, results),
            }
        }
    }
}

/// The median of 3 x 3 samples: each column is sorted; then it is the one in the middle of the largest of the
/// smallest ones, the median of the middle ones, and the smallest of the largest ones (Paeth, Graphics Gems,
/// 1990). It is made without a program, because loading and storing would take most of the time.
#[inline(always)]
fn median_of_nine<L: Lane>(job: &mut Job<'_, L>) {
    let Rows {
        keys,
        arena,
        results,
        ..
    } = &mut *job.rows;
    let (width, wide) = (job.width, job.width + 2);
    let across = width.next_multiple_of(job.program.group);
    for (y, results) in results
        .chunks_exact_mut(across)
        .take(job.height)
        .enumerate()
    {
        let (low, rest) = arena.split_at_mut(wide);
        let (middle, rest) = rest.split_at_mut(wide);
        let high = &mut rest[..wide];
        let row = |row: usize| &keys[(y + row) * wide..][..wide];
        let (above, here, below) = (row(0), row(1), row(2));
        for x in 0..wide {
            let (one, other) = (above[x].min(here[x]), above[x].max(here[x]));
            let (other, most) = (other.min(below[x]), other.max(below[x]));
            high[x] = most;
            low[x] = one.min(other);
            middle[x] = one.max(other);
        }
        // Slices of one length, so that no index has to be checked in the loop.
        let [a, b, c] = columns(low, width);
        let [d, e, f] = columns(middle, width);
        let [g, h, i] = columns(high, width);
        for (x, result) in results[..width].iter_mut().enumerate() {
            let low = a[x].max(b[x]).max(c[x]);
            let middle = median_of_three(d[x], e[x], f[x]);
            let high = g[x].min(h[x]).min(i[x]);
            *result = median_of_three(low, middle, high);
        }
    }
}

/// The samples at each column, one further on, and two.
#[inline(always)]
fn columns<L>(row: &[L], width: usize) -> [&[L]; 3] {
    [&row[..width], &row[1..=width], &row[2..width + 2]]
}

#[inline(always)]
fn median_of_three<L: Lane>(a: L, b: L, c: L) -> L {
    a.min(b).max(a.max(b).min(c))
}

/// Parts a row into its phases.
#[inline(always)]
fn part<L: Lane, const GROUP: usize>(row: &[L], leaves: &mut [L], leaf: usize) {
    for (phase, leaves) in leaves.chunks_exact_mut(leaf).enumerate() {
        let (groups, rest) = row.as_chunks::<GROUP>();
        for (lane, group) in leaves.iter_mut().zip(groups) {
            *lane = group[phase];
        }
        if let Some(last) = rest.get(phase) {
            leaves[groups.len()] = *last;
        }
    }
}

/// Puts the phases of a row together.
#[inline(always)]
fn join<L: Lane, const GROUP: usize>(
    program: &Program,
    number: usize,
    arena: &[L],
    results: &mut [L],
) {
    let (groups, _) = results.as_chunks_mut::<GROUP>();
    let count = groups.len();
    let mut phases = [&arena[..0]; GROUP];
    for (phase, places) in phases.iter_mut().zip(&program.results) {
        *phase = &arena[places[number] as usize..][..count];
    }
    for (lane, group) in groups.iter_mut().enumerate() {
        for (sample, phase) in group.iter_mut().zip(&phases) {
            *sample = phase[lane];
        }
    }
}

#[inline(always)]
fn make<L: Lane, const CHUNK: usize>(
    program: &Program,
    stage: &Stage,
    leaves: &[L],
    arena: &mut [L],
    lanes: usize,
) {
    for at in (0..lanes).step_by(CHUNK) {
        for load in &stage.loads {
            let from =
                (load.row as usize * program.group + load.phase as usize) * program.leaf + at;
            let to = load.to as usize + at;
            arena[to..to + CHUNK].copy_from_slice(&leaves[from..from + CHUNK]);
        }
        let mut rest = &stage.comparisons[..];
        for (kind, count) in &stage.runs {
            let (now, later) = rest.split_at(*count as usize);
            rest = later;
            match kind {
                Kind::Both => {
                    for step in now {
                        let a: [L; CHUNK] = read(arena, step.a as usize + at);
                        let b: [L; CHUNK] = read(arena, step.b as usize + at);
                        write(arena, step.smaller as usize + at, &smaller(&a, &b));
                        write(arena, step.larger as usize + at, &larger(&a, &b));
                    }
                }
                Kind::Smaller => {
                    for step in now {
                        let a: [L; CHUNK] = read(arena, step.a as usize + at);
                        let b: [L; CHUNK] = read(arena, step.b as usize + at);
                        write(arena, step.smaller as usize + at, &smaller(&a, &b));
                    }
                }
                Kind::Larger => {
                    for step in now {
                        let a: [L; CHUNK] = read(arena, step.a as usize + at);
                        let b: [L; CHUNK] = read(arena, step.b as usize + at);
                        write(arena, step.larger as usize + at, &larger(&a, &b));
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn read<L: Lane, const CHUNK: usize>(arena: &[L], at: usize) -> [L; CHUNK] {
    let mut row = [L::default(); CHUNK];
    row.copy_from_slice(&arena[at..at + CHUNK]);
    row
}

#[inline(always)]
fn write<L: Lane, const CHUNK: usize>(arena: &mut [L], at: usize, row: &[L; CHUNK]) {
    arena[at..at + CHUNK].copy_from_slice(row);
}

#[inline(always)]
fn smaller<L: Lane, const CHUNK: usize>(a: &[L; CHUNK], b: &[L; CHUNK]) -> [L; CHUNK] {
    let mut row = *a;
    for (a, b) in row.iter_mut().zip(b) {
        *a = (*a).min(*b);
    }
    row
}

#[inline(always)]
fn larger<L: Lane, const CHUNK: usize>(a: &[L; CHUNK], b: &[L; CHUNK]) -> [L; CHUNK] {
    let mut row = *a;
    for (a, b) in row.iter_mut().zip(b) {
        *a = (*a).max(*b);
    }
    row
}
