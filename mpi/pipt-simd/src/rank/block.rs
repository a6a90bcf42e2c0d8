//! Windows of any kind, with any samples left out: bitsets of ranks that move over a block.
//!
//! The samples of a block are sorted once; each is then known by its place in that order, so that a window
//! is a set of bits, one for each sample of the block. A step to the next pixel turns over the bits of the
//! samples that leave and enter, and the cursors that stand on the wanted ranks move a little. So the time
//! for a pixel grows with the height of the window, not with its area, and does not depend on the type.

use super::exact::{self, Accumulator, Scale, Sum};
use super::{Input, Output, RankFilter, Window, convert, nothing};
use crate::{Level, for_each_level};
use pipt_raster::Sample;

/// Bytes at most for an [`Engine`] and one block.
pub(super) fn bytes(window: Window) -> usize {
    let (columns, rows) = window.extent();
    let side = side(window);
    let samples = (side + columns as usize) * (side + rows as usize);
    // Two buffers for sorting, the ranks, the keys, and the integers of the samples.
    samples * (16 + 16 + 4 + 8 + 16 + 1) + side * side * 32 + 4096
}

/// Results along each side of a block. Larger blocks sort less per result, and their bitsets are longer.
fn side(window: Window) -> usize {
    let (columns, rows) = window.extent();
    match columns.max(rows) {
        0..=39 => 50,
        40..=99 => 80,
        _ => 160,
    }
}

pub(super) struct Engine {
    level: Level,
    side: usize,
    /// For each row of the window: its number, and its first and last column.
    row_ends: Vec<(usize, usize, usize)>,
    /// For each column of the window: its number, and its first and last row.
    column_ends: Vec<(usize, usize, usize)>,
    order: Order,
}

/// The samples of a block in their order.
#[derive(Default)]
struct Order {
    width: usize,
    /// The rank of each sample, row by row; of invalid ones that of a word behind the last one.
    ranks: Vec<u32>,
    /// How many are valid.
    samples: u32,
    /// The key of each rank.
    keys: Vec<u64>,
    narrow: [Vec<u64>; 2],
    wide: [Vec<u128>; 2],
}

/// What a window has at the wanted ranks.
#[derive(Clone, Copy, Default)]
struct Found<S> {
    /// Of the values that are kept; only for means.
    sum: S,
    /// Ranks in the block of the first and the last value that is kept.
    first: u32,
    last: u32,
    /// Valid values in the window; 0 also where the result is to be none.
    count: u32,
}

impl Engine {
    pub(super) fn new(window: Window, level: Level) -> Self {
        let (columns, rows) = window.extent();
        let (columns, rows) = (columns as usize, rows as usize);
        let (row_ends, column_ends) = match window {
            Window::Rectangle { .. } => (
                (0..rows).map(|row| (row, 0, columns - 1)).collect(),
                (0..columns).map(|column| (column, 0, rows - 1)).collect(),
            ),
            Window::Cross { arm } => {
                let arm = arm as usize;
                let end = |at: usize| {
                    if at == arm {
                        (at, 0, 2 * arm)
                    } else {
                        (at, arm, arm)
                    }
                };
                (
                    (0..rows).map(end).collect(),
                    (0..columns).map(end).collect::<Vec<_>>(),
                )
            }
        };
        Self {
            level,
            side: side(window),
            row_ends,
            column_ends,
            order: Order::default(),
        }
    }

    /// The rank of each sample of a block, row by row, and the key of each rank.
    pub(super) fn ordered<T: Sample>(&mut self, input: &Input<'_, T>) -> (&[u32], &[u64]) {
        self.order.sort(input);
        (&self.order.ranks, &self.order.keys)
    }

    pub(super) fn filter<T: Sample, O: Sample>(
        &mut self,
        filter: &RankFilter,
        input: &Input<'_, T>,
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) {
        let side = self.side;
        let (columns, rows) = filter.window.extent();
        for y in (0..size.1).step_by(side) {
            for x in (0..size.0).step_by(side) {
                let size = (side.min(size.0 - x), side.min(size.1 - y));
                let footprint = (size.0 + columns as usize - 1, size.1 + rows as usize - 1);
                let part = input.part((x, y), footprint);
                self.order.sort(&part);
                self.block::<T, O>(filter, output, (at.0 + x, at.1 + y), size);
            }
        }
    }

    fn block<T: Sample, O: Sample>(
        &mut self,
        filter: &RankFilter,
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) {
        let keys = std::mem::take(&mut self.order.keys);
        if filter.kept.is_one() {
            let found = self.slide::<()>(filter, size, Vec::new(), slide_ranks);
            write(output, at, size, &found, |found| {
                convert::<T, O>(keys[found.first as usize])
            });
        } else {
            match exact::scale::<T>(&keys) {
                Scale::Fixed {
                    exponent,
                    narrow: true,
                } => {
                    let values = integers::<T, i64>(&keys, exponent, self.order.ranks.len());
                    let found = self.slide(filter, size, values, slide_narrow);
                    write(output, at, size, &found, |found| {
                        mean::<T, O, _>(&keys, found, exponent)
                    });
                }
                Scale::Fixed { exponent, .. } => {
                    let values = integers::<T, i128>(&keys, exponent, self.order.ranks.len());
                    let found = self.slide(filter, size, values, slide_wide);
                    write(output, at, size, &found, |found| {
                        mean::<T, O, _>(&keys, found, exponent)
                    });
                }
                Scale::Wide => self.one_by_one::<T, O>(filter, &keys, output, at, size),
            }
        }
        self.order.keys = keys;
    }

    fn slide<S: Sum>(
        &self,
        filter: &RankFilter,
        size: (usize, usize),
        values: Vec<S>,
        run: fn(Level, &mut Slide<'_, S>),
    ) -> Vec<Found<S>> {
        let words = behind(self.order.ranks.len()) / 64 + 1;
        let mut slide = Slide {
            engine: self,
            filter,
            size,
            bits: vec![0; words],
            values,
            found: vec![Found::default(); size.0 * size.1],
        };
        run(self.level, &mut slide);
        slide.found
    }

    /// Means of floats that are too far apart for sums in integers.
    fn one_by_one<T: Sample, O: Sample>(
        &self,
        filter: &RankFilter,
        keys: &[u64],
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) {
        let found = self.slide::<()>(filter, size, Vec::new(), slide_both);
        let mut place = 0;
        let order = &self.order;
        let mean = |found: &Found<()>| {
            let (x, y) = (place % size.0, place / size.0);
            place += 1;
            let (first, last) = filter.kept.of(found.count);
            let ends =
                [found.first, found.last].map(|rank| T::of_key(keys[rank as usize]).to_f64());
            if found.count == 0 {
                return nothing();
            }
            if keys[found.first as usize] == keys[found.last as usize] {
                return convert::<T, O>(keys[found.first as usize]);
            }
            if !(ends[0].is_finite() && ends[1].is_finite()) {
                return O::of_f64(exact::infinite(ends));
            }
            let mut sum = Accumulator::new();
            for (row, begin, end) in &self.row_ends {
                for rank in &order.ranks[(y + row) * order.width + x..][*begin..=*end] {
                    if (found.first..=found.last).contains(rank) {
                        sum.add(T::of_key(keys[*rank as usize]).to_f64());
                    }
                }
            }
            O::of_f64(sum.mean(last - first + 1))
        };
        write_all(output, at, size, &found, mean);
    }
}

/// Those of the samples, and some nobody asks for, for the rank of invalid ones.
fn integers<T: Sample, S: Sum>(keys: &[u64], exponent: i32, ranks: usize) -> Vec<S> {
    let integer = |key: &u64| S::of(exact::integer::<T>(*key, exponent));
    let mut values: Vec<S> = keys.iter().map(integer).collect();
    values.resize(behind(ranks) + 1, S::default());
    values
}

/// The mean of what was found; `count` is then the number of values that are kept.
fn mean<T: Sample, O: Sample, S: Sum>(keys: &[u64], found: &Found<S>, exponent: i32) -> O {
    let ends = [found.first, found.last].map(|rank| keys[rank as usize]);
    if ends[0] == ends[1] {
        return convert::<T, O>(ends[0]);
    }
    if T::TYPE.is_float() {
        let ends = ends.map(|key| T::of_key(key).to_f64());
        if !(ends[0].is_finite() && ends[1].is_finite()) {
            return O::of_f64(exact::infinite(ends));
        }
    }
    exact::mean::<T, O>(found.sum.wide(), found.count, exponent)
}

fn write<O: Sample, S: Sum>(
    output: &mut Output<'_, O>,
    at: (usize, usize),
    size: (usize, usize),
    found: &[Found<S>],
    value: impl Fn(&Found<S>) -> O,
) {
    write_all(output, at, size, found, |found| match found.count {
        0 => nothing(),
        _ => value(found),
    });
}

fn write_all<O: Sample, S: Sum>(
    output: &mut Output<'_, O>,
    at: (usize, usize),
    size: (usize, usize),
    found: &[Found<S>],
    mut value: impl FnMut(&Found<S>) -> O,
) {
    for (y, found) in found.chunks_exact(size.0).enumerate() {
        let row = &mut output.samples.row_mut(at.1 + y)[at.0..at.0 + size.0];
        for (sample, found) in row.iter_mut().zip(found) {
            *sample = value(found);
        }
        if let Some(valid) = &mut output.valid {
            let row = &mut valid.row_mut(at.1 + y)[at.0..at.0 + size.0];
            for (valid, found) in row.iter_mut().zip(found) {
                *valid = found.count > 0;
            }
        }
    }
}

impl Order {
    fn sort<T: Sample>(&mut self, input: &Input<'_, T>) {
        let (width, height) = input.samples.size();
        self.width = width;
        let places = width * height;
        self.ranks.clear();
        self.ranks
            .resize(places, u32::try_from(behind(places)).unwrap_or(u32::MAX));
        self.keys.clear();
        let bits = u32::try_from(8 * T::TYPE.bytes()).unwrap_or(64);
        if bits <= 32 {
            let [items, other] = &mut self.narrow;
            items.clear();
            collect(input, |place, key| items.push(key << 32 | u64::from(place)));
            radix(items, other, bits);
            #[allow(
                clippy::cast_possible_truncation,
                reason = "the place is in the lower half"
            )]
            let items = items.iter().map(|item| (*item as u32, item >> 32));
            give_ranks(&mut self.ranks, &mut self.keys, items);
        } else {
            let [items, other] = &mut self.wide;
            items.clear();
            collect(input, |place, key| {
                items.push(u128::from(key) << 32 | u128::from(place))
            });
            radix(items, other, bits);
            #[allow(
                clippy::cast_possible_truncation,
                reason = "place and key are 32 and 64 bits"
            )]
            let items = items.iter().map(|item| (*item as u32, (item >> 32) as u64));
            give_ranks(&mut self.ranks, &mut self.keys, items);
        }
        self.samples = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
    }
}

/// The first rank of the word behind those of so many samples.
fn behind(samples: usize) -> usize {
    (samples / 64 + 1) * 64
}

/// Goes through the valid samples, row by row.
fn collect<T: Sample>(input: &Input<'_, T>, mut push: impl FnMut(u32, u64)) {
    let mut place = 0;
    for y in 0..input.samples.size().1 {
        let valid = input.valid.map(|valid| valid.row(y));
        for (x, sample) in input.samples.row(y).iter().enumerate() {
            if !sample.is_nan() && valid.is_none_or(|valid| valid[x]) {
                push(place, sample.key());
            }
            place += 1;
        }
    }
}

fn give_ranks(ranks: &mut [u32], keys: &mut Vec<u64>, items: impl Iterator<Item = (u32, u64)>) {
    for (rank, (place, key)) in (0..).zip(items) {
        ranks[place as usize] = rank;
        keys.push(key);
    }
}

/// What is sorted: a key above 32 bits that say where it was.
trait Item: Copy + Default {
    fn digit(self, shift: u32) -> usize;
}

impl Item for u64 {
    #[allow(clippy::cast_possible_truncation, reason = "11 bits are left")]
    #[inline(always)]
    fn digit(self, shift: u32) -> usize {
        (self >> (32 + shift)) as usize & (DIGITS - 1)
    }
}

impl Item for u128 {
    #[allow(clippy::cast_possible_truncation, reason = "11 bits are left")]
    #[inline(always)]
    fn digit(self, shift: u32) -> usize {
        (self >> (32 + shift)) as usize & (DIGITS - 1)
    }
}

const DIGIT_BITS: usize = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Sorts by the lowest digit first, which keeps equal ones in order: ties are broken by place.
fn radix<I: Item>(items: &mut Vec<I>, other: &mut Vec<I>, bits: u32) {
    other.clear();
    other.resize(items.len(), I::default());
    for shift in (0..bits).step_by(DIGIT_BITS) {
        let mut begins = [0u32; DIGITS];
        for item in items.iter() {
            begins[item.digit(shift)] += 1;
        }
        let all = u32::try_from(items.len()).unwrap_or(u32::MAX);
        if items
            .first()
            .is_some_and(|first| begins[first.digit(shift)] == all)
        {
            continue;
        }
        let mut sum = 0;
        for begin in &mut begins {
            sum += std::mem::replace(begin, sum);
        }
        for item in items.iter() {
            let begin = &mut begins[item.digit(shift)];
            other[*begin as usize] = *item;
            *begin += 1;
        }
        std::mem::swap(items, other);
    }
}

/// A window on its way over a block.
struct Slide<'a, S> {
    engine: &'a Engine,
    filter: &'a RankFilter,
    size: (usize, usize),
    bits: Vec<u64>,
    /// Of each rank, for means.
    values: Vec<S>,
    found: Vec<Found<S>>,
}

/// Stands on a word of the bitset.
#[derive(Clone, Copy, Default)]
struct Cursor {
    word: u32,
    /// Bits in the words before it.
    below: u32,
}

for_each_level! {
    fn slide_ranks(slide: &mut Slide<'_, ()>) = run::<(), false, false>;
    fn slide_both(slide: &mut Slide<'_, ()>) = run::<(), true, false>;
    fn slide_narrow(slide: &mut Slide<'_, i64>) = run::<i64, true, true>;
    fn slide_wide(slide: &mut Slide<'_, i128>) = run::<i128, true, true>;
}

/// What moves with a window.
struct Moving<'a, S> {
    ranks: &'a [u32],
    bits: &'a mut [u64],
    values: &'a [S],
    /// Ranks below it are those of samples.
    samples: u32,
    /// Whether there are others.
    holes: bool,
    /// Valid samples in the window.
    count: u32,
    state: State<S>,
}

/// It is a value of its own, and not part of [`Moving`], so that the compiler keeps its numbers in registers
/// while the bits are written.
#[derive(Clone, Copy, Default)]
struct State<S> {
    first: Cursor,
    last: Cursor,
    /// Of the values from the word of the first cursor to the one before that of the last.
    sum: S,
}

/// Goes to and fro, so that the window never has to be filled anew. `TWO` cursors, and their `SUMS`.
#[inline(always)]
fn run<S: Sum, const TWO: bool, const SUMS: bool>(slide: &mut Slide<'_, S>) {
    let order = &slide.engine.order;
    let width = order.width;
    let samples = order.samples;
    let mut moving = Moving {
        ranks: &order.ranks,
        samples,
        holes: samples as usize != order.ranks.len(),
        bits: &mut slide.bits,
        values: &slide.values,
        count: 0,
        state: State::default(),
    };
    for (row, begin, end) in &slide.engine.row_ends {
        for place in row * width + begin..=row * width + end {
            moving.count += u32::from(moving.ranks[place] < samples);
            moving.state = moving.turn::<TWO, SUMS, 1>(moving.state, place);
        }
    }
    let halo = slide.filter.halo();
    let centre = halo.above as usize * width + halo.left as usize;
    let ends = slide.engine.row_ends.iter();
    let left: Vec<usize> = ends
        .clone()
        .map(|(row, begin, _)| row * width + begin)
        .collect();
    let right: Vec<usize> = ends.map(|(row, _, end)| row * width + end + 1).collect();
    let ends = slide.engine.column_ends.iter();
    let above: Vec<usize> = ends
        .clone()
        .map(|(column, begin, _)| begin * width + column)
        .collect();
    let below: Vec<usize> = ends
        .map(|(column, _, end)| (end + 1) * width + column)
        .collect();
    let (columns, rows) = slide.size;
    let (mut x, mut rightwards) = (0, true);
    for y in 0..rows {
        loop {
            let wanted = slide.filter.fill || moving.ranks[y * width + x + centre] < samples;
            if wanted && moving.count > 0 {
                slide.found[y * columns + x] = moving.find::<TWO, SUMS>(slide.filter);
            }
            if (rightwards && x + 1 == columns) || (!rightwards && x == 0) {
                break;
            }
            if rightwards {
                moving.step::<TWO, SUMS>(y * width + x, &left, &right);
                x += 1;
            } else {
                x -= 1;
                moving.step::<TWO, SUMS>(y * width + x, &right, &left);
            }
        }
        rightwards = !rightwards;
        if y + 1 < rows {
            moving.step::<TWO, SUMS>(y * width + x, &above, &below);
        }
    }
}

impl<S: Sum> Moving<'_, S> {
    /// To the next window: what leaves and what enters it, from here on.
    #[inline(always)]
    fn step<const TWO: bool, const SUMS: bool>(
        &mut self,
        from: usize,
        leaves: &[usize],
        enters: &[usize],
    ) {
        if self.holes {
            let valid = |place: &usize| u32::from(self.ranks[from + place] < self.samples);
            self.count -= leaves.iter().map(valid).sum::<u32>();
            self.count += enters.iter().map(valid).sum::<u32>();
        }
        let mut state = self.state;
        for place in leaves {
            state = self.turn::<TWO, SUMS, -1>(state, from + place);
        }
        for place in enters {
            state = self.turn::<TWO, SUMS, 1>(state, from + place);
        }
        self.state = state;
    }

    /// A sample enters (1) or leaves (-1) the window. One that is invalid has a rank that no cursor reaches.
    #[inline(always)]
    fn turn<const TWO: bool, const SUMS: bool, const BY: i32>(
        &mut self,
        mut state: State<S>,
        place: usize,
    ) -> State<S> {
        let rank = self.ranks[place];
        let word = rank >> 6;
        self.bits[word as usize] ^= 1 << (rank & 63);
        let by = |before: bool| BY * i32::from(before);
        state.first.below = state
            .first
            .below
            .wrapping_add_signed(by(word < state.first.word));
        if TWO {
            state.last.below = state
                .last
                .below
                .wrapping_add_signed(by(word < state.last.word));
        }
        if SUMS {
            let between = state.last.word.wrapping_sub(state.first.word);
            let part =
                self.values[rank as usize].only_if(word.wrapping_sub(state.first.word) < between);
            state.sum = if BY > 0 {
                state.sum.plus(part)
            } else {
                state.sum.minus(part)
            };
        }
        state
    }

    #[inline(always)]
    fn find<const TWO: bool, const SUMS: bool>(&mut self, filter: &RankFilter) -> Found<S> {
        let (first, last) = filter.kept.of(self.count);
        let mut found = Found {
            count: self.count,
            ..Found::default()
        };
        let mut state = self.state;
        let (passed, before);
        (found.first, passed, before) = self.locate::<SUMS, false>(&mut state.first, first);
        if TWO {
            let (more, within);
            (found.last, more, within) = self.locate::<SUMS, true>(&mut state.last, last);
            if SUMS {
                state.sum = state.sum.minus(passed).plus(more);
                found.sum = state.sum.minus(before).plus(within);
                found.count = last - first + 1;
            }
        }
        self.state = state;
        found
    }

    /// Moves a cursor to the word of the bit with so many before it. Gives the rank of that bit, the sum of
    /// the words that were passed (negative, if backwards), and that of the word's values before the bit, or
    /// up to it and with it.
    #[inline(always)]
    fn locate<const SUMS: bool, const WITH: bool>(
        &self,
        cursor: &mut Cursor,
        wanted: u32,
    ) -> (u32, S, S) {
        let mut passed = S::default();
        while cursor.below > wanted {
            cursor.word -= 1;
            let word = self.bits[cursor.word as usize];
            cursor.below -= word.count_ones();
            if SUMS {
                passed = passed.minus(self.sum_of(cursor.word, word));
            }
        }
        loop {
            let word = self.bits[cursor.word as usize];
            let bits = word.count_ones();
            if cursor.below + bits > wanted {
                break;
            }
            cursor.below += bits;
            if SUMS {
                passed = passed.plus(self.sum_of(cursor.word, word));
            }
            cursor.word += 1;
        }
        let word = self.bits[cursor.word as usize];
        let mut left = word;
        for _ in cursor.below..wanted {
            left &= left - 1;
        }
        let rank = cursor.word * 64 + left.trailing_zeros();
        let mut before = S::default();
        if SUMS {
            before = self.sum_of(cursor.word, word & !left);
            if WITH {
                before = before.plus(self.values[rank as usize]);
            }
        }
        (rank, passed, before)
    }

    /// Of the values of some ranks of a word.
    #[inline(always)]
    fn sum_of(&self, word: u32, mut bits: u64) -> S {
        let mut sum = S::default();
        while bits != 0 {
            let rank = word * 64 + bits.trailing_zeros();
            sum = sum.plus(self.values[rank as usize]);
            bits &= bits - 1;
        }
        sum
    }
}
