//! Merging networks for windows, with the work that neighbouring windows share.
//!
//! The columns of a window are sorted, and sorted runs of columns are merged (Batcher's odd-even merge, Knuth
//! volume 3, section 5.3.4). Every comparison is made for a whole row of pixels at once. Two things save
//! most of the work (Adams, "Fast Median Filters using Separable Sorting Networks", 2021):
//! * some windows next to each other (a group) have most columns in common: these are merged once, and of
//!   the result only the values are kept that can still have the wanted rank in one of the windows. Then each
//!   half of the group gets the columns that only it has, and so on down to one window;
//! * a run of columns that lies one group further to the right is the same one, seen from another lane.
//!
//! What no result depends on is left out of the networks at the end.

use super::plan::Kept;
use super::{TILE, Window};
use crate::Level;
use pipt_raster::Sample;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Bytes that are compared by one step of a program, and so what its rows are multiples of.
pub(super) const CHUNK_BYTES: usize = 128;
/// Chunks of a row for which a program is made.
const CHUNKS: usize = 2;
/// Larger windows are faster otherwise, and their networks would take long to make.
const MOST_PIXELS: u32 = 41 * 41;
/// Programs for samples of 1, 2, 4 and 8 bytes, made when they are needed first.
#[derive(Debug, Default)]
pub(super) struct Programs([OnceLock<Option<Program>>; 4]);

impl Programs {
    /// At most so many bytes are taken for a program and while it runs.
    pub(super) fn bytes<T: Sample>(&self, window: Window, kept: &Kept) -> usize {
        let of = |bytes| {
            self.made(window, kept, bytes)
                .map_or(0, |program| program.bytes(bytes))
        };
        match T::TYPE.bytes() {
            bytes @ (1 | 2) => of(bytes),
            bytes => of(bytes) + of(2),
        }
    }

    fn made(&self, window: Window, kept: &Kept, bytes: usize) -> Option<&Program> {
        let place = bytes.trailing_zeros() as usize;
        let make = || Program::best(window, kept, CHUNK_BYTES / bytes);
        self.0[place].get_or_init(make).as_ref()
    }

    /// The program for samples of this type, if it is the fastest method.
    pub(super) fn get<T: Sample>(
        &self,
        window: Window,
        kept: &Kept,
        level: Level,
    ) -> Option<&Program> {
        let bytes = T::TYPE.bytes();
        self.made(window, kept, bytes)
            .filter(|program| program.is_worth(level, bytes, window))
    }

    /// The program for ranks of two bytes, if these are faster than the samples themselves.
    pub(super) fn of_ranks<T: Sample>(
        &self,
        window: Window,
        kept: &Kept,
        level: Level,
    ) -> Option<&Program> {
        let bytes = T::TYPE.bytes();
        let (first, last) = kept.whole();
        if bytes < 4 || first != last || !matches!(window, Window::Rectangle { .. }) {
            return None;
        }
        let ranks = self.made(window, kept, 2)?;
        let direct = self.made(window, kept, bytes)?.cost(level, bytes);
        // Measured: what sorting takes, for each sample of the block.
        let sorting = if bytes == 4 { 20.0 } else { 45.0 };
        let cost = ranks.cost(level, 2) + sorting;
        (cost < direct && cost < of_bitsets(window)).then_some(ranks)
    }
}

impl Program {
    /// At most so many bytes are taken for it, and while it runs on samples of so many bytes.
    fn bytes(&self, bytes: usize) -> usize {
        let (columns, rows) = self.extent;
        let (strip, high) = (self.lanes * self.group, TILE.1 + rows);
        let image = (strip + columns) * high + high * self.group * self.leaf;
        let results = 2 * strip * TILE.1;
        let comparisons = self.stages.iter().map(|stage| stage.comparisons.len());
        (self.arena + 3 * (strip + columns) + image + results) * bytes
            + comparisons.sum::<usize>() * 16
    }
}

/// What is written of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Both,
    Smaller,
    Larger,
}

/// Compares the rows at `a` and `b`, and writes the smaller and the larger value of each lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) smaller: u32,
    pub(super) larger: u32,
}

/// Copies a row of the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) row: u32,
    pub(super) phase: u32,
    pub(super) to: u32,
}

/// Makes one sorted list.
#[derive(Debug)]
pub(super) struct Stage {
    /// Lanes that later stages look at beyond those of the results.
    pub(super) extra: usize,
    pub(super) loads: Vec<Load>,
    /// Comparisons of one kind that follow each other: the kind, and how many.
    pub(super) runs: Vec<(Kind, u32)>,
    pub(super) comparisons: Vec<Comparison>,
}

/// Makes the results of a row of windows.
#[derive(Debug)]
pub(super) struct Program {
    /// Columns and rows of the window.
    pub(super) extent: (usize, usize),
    /// Windows in a group: lane `i` of phase `p` is column `group * i + p`.
    pub(super) group: usize,
    /// Groups in a row at most.
    pub(super) lanes: usize,
    /// Lanes of a row of the image in each phase.
    pub(super) leaf: usize,
    /// Samples of scratch.
    pub(super) arena: usize,
    pub(super) stages: Vec<Stage>,
    /// For each window of a group, where its results begin.
    pub(super) results: Vec<Vec<u32>>,
    /// Whether there is a quicker way.
    pub(super) is_median_of_nine: bool,
    /// Chunks read or written for each pixel, halves of comparisons counting one.
    work: usize,
}

impl Program {
    /// The one with the group that takes the least work.
    fn best(window: Window, kept: &Kept, chunk: usize) -> Option<Self> {
        let (first, last) = kept.whole();
        if window.pixels() > MOST_PIXELS || last - first > 1 {
            return None;
        }
        let (columns, _) = window.extent();
        let groups = [1, 2, 4, 8].into_iter().filter(|group| match window {
            Window::Rectangle { .. } => *group <= columns.div_ceil(2),
            Window::Cross { .. } => *group == 1,
        });
        let made = groups.filter_map(|group| {
            let mut builder = Builder::new(window, group as usize, (first as usize, last as usize));
            builder.build();
            builder.program(chunk)
        });
        made.min_by(|a, b| (a.work * b.group).cmp(&(b.work * a.group)))
    }

    /// Whether it is faster than bitsets, or histograms.
    fn is_worth(&self, level: Level, bytes: usize, window: Window) -> bool {
        let other = match (bytes, window) {
            (1, Window::Rectangle { .. }) => OF_HISTOGRAMS,
            _ => of_bitsets(window),
        };
        self.cost(level, bytes) < other
    }

    /// About how many cycles a pixel takes: measured.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn cost(&self, level: Level, bytes: usize) -> f64 {
        if self.is_median_of_nine {
            return 1.0;
        }
        let vector = match level {
            Level::Scalar | Level::Sse42 => 16,
            Level::Avx2 => 32,
            Level::Avx512 => 64,
        };
        // Only AVX-512 compares 64 bits at once, and plain SSE2 compares little.
        let slow = match (level, bytes) {
            (Level::Scalar, 2 | 4) => 3,
            (Level::Scalar | Level::Sse42, 8) => 4,
            (Level::Avx2, 8) => 2,
            // Of two bytes' lanes a CPU compares two vectors in a cycle, of eight bytes' one in two.
            (Level::Avx512, 8) => 3,
            _ => 1,
        };
        (self.work * slow * bytes) as f64 * 3.0 / (vector * self.group) as f64
    }
}

/// The same of bitsets and of histograms.
fn of_bitsets(window: Window) -> f64 {
    40.0 + 7.5 * f64::from(window.extent().1)
}
const OF_HISTOGRAMS: f64 = 65.0;

/// Where a value of a list comes from.
#[derive(Clone, Copy)]
enum Origin {
    Image {
        row: usize,
        phase: usize,
    },
    List {
        list: usize,
        element: usize,
        shift: usize,
    },
}

/// A sorted list that is to be made, the same in each lane.
struct List {
    origins: Vec<Origin>,
    /// Wires that are compared, in this order; the smaller value stays on the first one.
    comparisons: Vec<(usize, usize)>,
    /// The wires from the smallest to the largest value.
    order: Vec<usize>,
}

/// Elements of a list, some lanes further to the right.
#[derive(Clone, Copy)]
struct View {
    list: usize,
    shift: usize,
    from: usize,
    to: usize,
    /// Values that were left out, being smaller than any that is wanted.
    smaller: usize,
    /// Values that it is made of, those left out at both ends among them.
    total: usize,
}

impl View {
    fn len(self) -> usize {
        self.to - self.from
    }
}

struct Builder {
    window: Window,
    group: usize,
    wanted: (usize, usize),
    lists: Vec<List>,
    /// Runs of columns by their phase and length.
    runs: HashMap<(usize, usize), usize>,
    results: Vec<View>,
}

impl Builder {
    fn new(window: Window, group: usize, wanted: (usize, usize)) -> Self {
        Self {
            window,
            group,
            wanted,
            lists: Vec::new(),
            runs: HashMap::new(),
            results: Vec::new(),
        }
    }

    fn build(&mut self) {
        match self.window {
            Window::Rectangle { width, .. } => {
                let (width, group) = (width as usize, self.group);
                let common = self.run(group - 1, width + 1 - group);
                let common = self.candidates(common);
                self.split(0, group, common, width);
            }
            Window::Cross { arm } => {
                let arm = arm as usize;
                let across = self.run(0, 2 * arm + 1);
                let mut all = self.candidates(across);
                if arm > 0 {
                    let rows = (0..=2 * arm).filter(|row| *row != arm).collect();
                    let down = self.column(0, rows);
                    let down = self.view(down, arm);
                    let down = self.candidates(down);
                    all = self.merge(all, down);
                }
                let all = self.candidates(all);
                self.results.push(all);
            }
        }
    }

    /// Gives the windows of a group the columns that they do not all have.
    fn split(&mut self, first: usize, size: usize, common: View, width: usize) {
        if size == 1 {
            self.results.push(common);
            return;
        }
        let half = size / 2;
        for (begin, first) in [(first + half - 1, first), (first + width, first + half)] {
            let more = self.run(begin, half);
            let more = self.candidates(more);
            let both = self.merge(common, more);
            let both = self.candidates(both);
            self.split(first, half, both, width);
        }
    }

    fn view(&self, list: usize, shift: usize) -> View {
        View {
            list,
            shift,
            from: 0,
            to: self.lists[list].order.len(),
            smaller: 0,
            total: self.lists[list].order.len(),
        }
    }

    /// Leaves out what cannot have the wanted ranks, whatever else is in the window.
    fn candidates(&self, view: View) -> View {
        let unknown = self.window.pixels() as usize - view.total;
        let from = self.wanted.0.saturating_sub(unknown + view.smaller);
        let to = (self.wanted.1 + 1)
            .saturating_sub(view.smaller)
            .min(view.len());
        View {
            from: view.from + from,
            to: view.from + to,
            smaller: view.smaller + from,
            ..view
        }
    }

    /// One column of the image, sorted.
    fn column(&mut self, phase: usize, rows: Vec<usize>) -> usize {
        let wires: Vec<usize> = (0..rows.len()).collect();
        let mut comparisons = Vec::new();
        let order = sort(&wires, &mut comparisons);
        self.lists.push(List {
            origins: rows
                .into_iter()
                .map(|row| Origin::Image { row, phase })
                .collect(),
            comparisons,
            order,
        });
        self.lists.len() - 1
    }

    /// Columns next to each other, sorted together.
    fn run(&mut self, begin: usize, length: usize) -> View {
        let (shift, phase) = (begin / self.group, begin % self.group);
        if let Some(list) = self.runs.get(&(phase, length)) {
            return self.view(*list, shift);
        }
        let list = if length == 1 {
            let rows = match self.window {
                Window::Rectangle { height, .. } => (0..height as usize).collect(),
                Window::Cross { arm } => vec![arm as usize],
            };
            self.column(phase, rows)
        } else {
            // The left part is a power of two, so that other runs have it too.
            let left = length.div_ceil(2).next_power_of_two();
            let (one, other) = (self.run(phase, left), self.run(phase + left, length - left));
            self.merge(one, other).list
        };
        self.runs.insert((phase, length), list);
        self.view(list, shift)
    }

    fn merge(&mut self, one: View, other: View) -> View {
        // Seen from the lane of the one further to the left.
        let shift = one.shift.min(other.shift);
        let mut origins = Vec::new();
        for view in [one, other] {
            let order = &self.lists[view.list].order;
            debug_assert!(view.to <= order.len(), "a view of a list that is not there");
            origins.extend((view.from..view.to).map(|element| Origin::List {
                list: view.list,
                element,
                shift: view.shift - shift,
            }));
        }
        let mut comparisons = Vec::new();
        let wires: Vec<usize> = (0..origins.len()).collect();
        let (left, right) = wires.split_at(one.len());
        let order = merge(left, right, &mut comparisons);
        self.lists.push(List {
            origins,
            comparisons,
            order,
        });
        View {
            smaller: one.smaller + other.smaller,
            total: one.total + other.total,
            ..self.view(self.lists.len() - 1, shift)
        }
    }

    /// What each list must make, from the last to the first: its elements, and lanes beyond the results'.
    fn needs(&self) -> Needs {
        let mut needs = Needs {
            elements: self
                .lists
                .iter()
                .map(|list| vec![false; list.order.len()])
                .collect(),
            extra: vec![0; self.lists.len()],
            kinds: vec![Vec::new(); self.lists.len()],
        };
        for view in &self.results {
            needs.elements[view.list][view.from..view.to].fill(true);
            needs.extra[view.list] = needs.extra[view.list].max(view.shift);
        }
        for (number, list) in self.lists.iter().enumerate().rev() {
            let mut wires = vec![false; list.origins.len()];
            for (element, wire) in list.order.iter().enumerate() {
                wires[*wire] = needs.elements[number][element];
            }
            let kinds = list.comparisons.iter().rev().map(|(one, other)| {
                let kind = match (wires[*one], wires[*other]) {
                    (false, false) => return None,
                    (true, true) => Kind::Both,
                    (true, false) => Kind::Smaller,
                    (false, true) => Kind::Larger,
                };
                (wires[*one], wires[*other]) = (true, true);
                Some(kind)
            });
            let mut kinds: Vec<Option<Kind>> = kinds.collect();
            kinds.reverse();
            needs.kinds[number] = kinds;
            for (wire, origin) in list.origins.iter().enumerate() {
                if let (
                    true,
                    Origin::List {
                        list,
                        element,
                        shift,
                    },
                ) = (wires[wire], *origin)
                {
                    needs.elements[list][element] = true;
                    needs.extra[list] = needs.extra[list].max(needs.extra[number] + shift);
                }
            }
        }
        needs
    }

    /// None, if it would be too large.
    fn program(&self, chunk: usize) -> Option<Program> {
        let needs = self.needs();
        let most = needs.extra.iter().copied().max().unwrap_or(0);
        let leaf = (most / chunk + CHUNKS) * chunk;
        let mut layout = Layout {
            chunk,
            lanes: leaf - most,
            end: 0,
            places: Vec::new(),
        };
        let mut stages = Vec::new();
        for number in 0..self.lists.len() {
            stages.push(layout.stage(&self.lists[number], &needs, number)?);
        }
        let results = self.results.iter().map(|view| {
            let places = &layout.places[view.list][view.from..view.to];
            places
                .iter()
                .map(|place| u32::try_from(place + view.shift).ok())
                .collect()
        });
        let comparison = |kind: &Option<Kind>| match kind {
            None => 0,
            Some(Kind::Both) => 2,
            Some(_) => 1,
        };
        let (columns, rows) = self.window.extent();
        Some(Program {
            extent: (columns as usize, rows as usize),
            group: self.group,
            lanes: layout.lanes,
            leaf: leaf + chunk,
            // Lanes at the end of a chunk that nobody needs are read beyond the end.
            arena: layout.end + leaf + 3 * chunk,
            results: results.collect::<Option<_>>()?,
            work: needs.kinds.iter().flatten().map(comparison).sum(),
            stages,
            is_median_of_nine: self.window == Window::square(3) && self.wanted == (4, 4),
        })
    }
}

struct Needs {
    elements: Vec<Vec<bool>>,
    extra: Vec<usize>,
    /// Of each comparison of each list, what of it is needed.
    kinds: Vec<Vec<Option<Kind>>>,
}

/// Gives each value a row of the scratch memory.
struct Layout {
    chunk: usize,
    lanes: usize,
    end: usize,
    /// Where the values of each list begin, from the smallest to the largest.
    places: Vec<Vec<usize>>,
}

impl Layout {
    fn stage(&mut self, list: &List, needs: &Needs, number: usize) -> Option<Stage> {
        let extra = needs.extra[number];
        // An odd number of cache lines: rows of powers of two would fall on each other in the cache.
        let row = (self.lanes + extra).next_multiple_of(self.chunk) + self.chunk / 2;
        let mut stage = Stage {
            extra,
            loads: Vec::new(),
            runs: Vec::new(),
            comparisons: Vec::new(),
        };
        let begin = self.end;
        // A wire has a row of its own as soon as something is written to it.
        let own = |wire: usize| begin + wire * row;
        self.end += list.origins.len() * row;
        let mut places = Vec::new();
        for (wire, origin) in list.origins.iter().enumerate() {
            places.push(match origin {
                Origin::Image { row, phase } => {
                    stage.loads.push(Load {
                        row: u32::try_from(*row).ok()?,
                        phase: u32::try_from(*phase).ok()?,
                        to: u32::try_from(own(wire)).ok()?,
                    });
                    own(wire)
                }
                Origin::List {
                    list,
                    element,
                    shift,
                } => self.places[*list][*element] + shift,
            });
        }
        let mut depths = vec![0; list.origins.len()];
        let mut steps = Vec::new();
        for ((one, other), kind) in list.comparisons.iter().zip(&needs.kinds[number]) {
            let Some(kind) = kind else { continue };
            let depth = depths[*one].max(depths[*other]) + 1;
            (depths[*one], depths[*other]) = (depth, depth);
            let comparison = Comparison {
                a: u32::try_from(places[*one]).ok()?,
                b: u32::try_from(places[*other]).ok()?,
                smaller: u32::try_from(own(*one)).ok()?,
                larger: u32::try_from(own(*other)).ok()?,
            };
            (places[*one], places[*other]) = (own(*one), own(*other));
            steps.push((depth, *kind, comparison));
        }
        // Comparisons of one layer do not depend on each other: those of one kind are made in one go.
        steps.sort_by_key(|(depth, kind, _)| (*depth, *kind));
        for (_, kind, comparison) in steps {
            match stage.runs.last_mut() {
                Some((last, count)) if *last == kind => *count += 1,
                _ => stage.runs.push((kind, 1)),
            }
            stage.comparisons.push(comparison);
        }
        self.places
            .push(list.order.iter().map(|wire| places[*wire]).collect());
        Some(stage)
    }
}

/// Sorts wires; the comparisons for that, and the wires in their order.
fn sort(wires: &[usize], comparisons: &mut Vec<(usize, usize)>) -> Vec<usize> {
    if wires.len() < 2 {
        return wires.to_vec();
    }
    let (left, right) = wires.split_at(wires.len().div_ceil(2));
    let (left, right) = (sort(left, comparisons), sort(right, comparisons));
    merge(&left, &right, comparisons)
}

/// Batcher's odd-even merge of sorted lists of any lengths.
fn merge(one: &[usize], other: &[usize], comparisons: &mut Vec<(usize, usize)>) -> Vec<usize> {
    if one.is_empty() || other.is_empty() {
        return [one, other].concat();
    }
    if let ([one], [other]) = (one, other) {
        comparisons.push((*one, *other));
        return vec![*one, *other];
    }
    let every_other = |list: &[usize], from| list.iter().skip(from).step_by(2).copied().collect();
    let part =
        |from| -> (Vec<usize>, Vec<usize>) { (every_other(one, from), every_other(other, from)) };
    let ((one_even, other_even), (one_odd, other_odd)) = (part(0), part(1));
    let even = merge(&one_even, &other_even, comparisons);
    let odd = merge(&one_odd, &other_odd, comparisons);
    // The smallest is an even one; then each odd one is compared with the even one after it.
    let mut order = vec![even[0]];
    let pairs = odd.len().min(even.len() - 1);
    for (odd, even) in odd.iter().zip(&even[1..]) {
        comparisons.push((*odd, *even));
        order.extend([*odd, *even]);
    }
    order.extend(&odd[pairs..]);
    order.extend(&even[1 + pairs..]);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that merges all lists of zeros and ones merges all lists (Knuth's 0-1 principle).
    #[test]
    fn all_lists_of_two_values_are_merged() {
        for one in 0..=17 {
            for other in 0..=17 {
                let wires: Vec<usize> = (0..one + other).collect();
                let mut comparisons = Vec::new();
                let order = merge(&wires[..one], &wires[one..], &mut comparisons);
                for (zeros, more) in (0..=one).flat_map(|a| (0..=other).map(move |b| (a, b))) {
                    let mut values: Vec<bool> = wires
                        .iter()
                        .map(|w| {
                            if *w < one {
                                *w >= zeros
                            } else {
                                w - one >= more
                            }
                        })
                        .collect();
                    for (smaller, larger) in &comparisons {
                        if values[*smaller] && !values[*larger] {
                            values.swap(*smaller, *larger);
                        }
                    }
                    assert!(
                        order.is_sorted_by_key(|wire| values[*wire]),
                        "{one} {other}"
                    );
                }
            }
        }
    }
}
