//! A histogram of codes that slides along a row.
//!
//! A step of one pixel takes a column of pairs in and another one out, and keeps three numbers up to date:
//! the sum of squared counts, the sum of `c log2 c`, and the largest count, the last by counting how many
//! bins have at least so many. A step costs as many updates as a window has rows, whatever the number of
//! levels.

use super::image::{Grey, PairRow};
use super::rows::{Number, Rows};

/// No pair.
pub(super) const INVALID: u32 = u32::MAX;

/// What of a pair is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Both levels, in their order.
    Ordered,
    /// Both levels, in any order; pairs of equal levels come after all others.
    Unordered,
    Sum,
    Difference,
    First,
    Second,
}

impl Kind {
    /// The number of codes of so many levels.
    pub(super) const fn codes(self, levels: u32) -> u64 {
        let levels = levels as u64;
        match self {
            Self::Ordered => levels * levels,
            Self::Unordered => levels * (levels + 1) / 2,
            Self::Sum => 2 * levels - 1,
            Self::Difference | Self::First | Self::Second => levels,
        }
    }

    /// The first code of a pair of equal levels.
    const fn first_equal(self, levels: u32) -> u64 {
        match self {
            Self::Unordered => levels as u64 * (levels as u64 - 1) / 2,
            _ => u64::MAX,
        }
    }

    #[inline(always)]
    fn code(self, first: u32, second: u32, levels: u32) -> u64 {
        let (small, large) = (u64::from(first.min(second)), u64::from(first.max(second)));
        match self {
            Self::Ordered => u64::from(first) * u64::from(levels) + u64::from(second),
            Self::Unordered if small == large => self.first_equal(levels) + small,
            Self::Unordered => large * large.saturating_sub(1) / 2 + small,
            Self::Sum => small + large,
            Self::Difference => large - small,
            Self::First => u64::from(first),
            Self::Second => u64::from(second),
        }
    }
}

/// The codes of a band of rows of pairs, column by column.
pub(super) struct Codes {
    kind: Kind,
    values: Vec<u32>,
    /// One row of codes, before it is laid out in columns.
    row: Vec<u32>,
    /// Rows of pairs that there is room for.
    height: usize,
    /// Pairs in a row and in a column of a window.
    columns: usize,
    rows: usize,
}

impl Codes {
    pub(super) fn new(
        kind: Kind,
        length: usize,
        height: usize,
        columns: usize,
        rows: usize,
    ) -> Self {
        Self {
            kind,
            values: vec![INVALID; length * height],
            row: Vec::with_capacity(length),
            height,
            columns,
            rows,
        }
    }

    /// Takes the rows of pairs of a band, as they are numbered from its first one.
    pub(super) fn fill<'a, L: Grey + 'a>(
        &mut self,
        levels: u32,
        rows: impl Iterator<Item = PairRow<'a, L>>,
        number: &Numbering,
    ) {
        let kind = self.kind;
        match number {
            Numbering::Found { .. } => self.fill_with(rows, |first, second| {
                number.of(kind.code(first, second, levels))
            }),
            // The same codes as `kind` has, in 32 bits: there are at most `MOST_BINS` of them.
            Numbering::Same { first_equal, .. } => match kind {
                Kind::Unordered => self.fill_with(rows, |first, second| {
                    let (small, large) = (first.min(second), first.max(second));
                    let different = large * large.wrapping_sub(1) / 2 + small;
                    if first == second {
                        first_equal + first
                    } else {
                        different
                    }
                }),
                Kind::Ordered => self.fill_with(rows, |first, second| first * levels + second),
                Kind::Sum => self.fill_with(rows, |first, second| first + second),
                Kind::Difference => self.fill_with(rows, u32::abs_diff),
                Kind::First => self.fill_with(rows, |first, _| first),
                Kind::Second => self.fill_with(rows, |_, second| second),
            },
        }
    }

    fn fill_with<'a, L: Grey + 'a>(
        &mut self,
        rows: impl Iterator<Item = PairRow<'a, L>>,
        code: impl Fn(u32, u32) -> u32,
    ) {
        for (y, row) in rows.enumerate().take(self.height) {
            self.row.clear();
            let pairs = row.first.iter().zip(row.second);
            // Masked pixels may have any level, whose code is never used.
            self.row
                .extend(pairs.map(|(first, second)| code((*first).into(), (*second).into())));
            if let Some((first, second)) = row.valid {
                for (code, (first, second)) in self.row.iter_mut().zip(first.iter().zip(second)) {
                    if *first == 0 || *second == 0 {
                        *code = INVALID;
                    }
                }
            }
            let columns = self.values.chunks_exact_mut(self.height);
            for (column, code) in columns.zip(&self.row) {
                column[y] = *code;
            }
        }
    }

    #[inline(always)]
    fn column(&self, x: usize, row: usize) -> &[u32] {
        let begin = x * self.height + row;
        &self.values[begin..begin + self.rows]
    }
}

/// The bins of codes.
pub(super) enum Numbering {
    /// A code's number is the code.
    Same { codes: usize, first_equal: u32 },
    /// Codes that occur, in their order: where there are more of them than can be counted each.
    Found { codes: Vec<u64>, first_equal: u32 },
}

/// Codes that are counted each, in a histogram of 2 bytes a bin.
pub(super) const MOST_BINS: u64 = 1 << 18;

impl Numbering {
    pub(super) fn same(kind: Kind, levels: u32) -> Self {
        Self::Same {
            codes: usize::try_from(kind.codes(levels)).unwrap_or(0),
            first_equal: u32::try_from(kind.first_equal(levels)).unwrap_or(INVALID),
        }
    }

    /// Numbers the codes of some rows of pairs.
    pub(super) fn find<'a, L: Grey + 'a>(
        kind: Kind,
        levels: u32,
        rows: impl Iterator<Item = PairRow<'a, L>>,
        mut codes: Vec<u64>,
    ) -> Self {
        codes.clear();
        for row in rows {
            let pairs = row.first.iter().zip(row.second);
            codes.extend(pairs.map(|(a, b)| kind.code((*a).into(), (*b).into(), levels)));
        }
        codes.sort_unstable();
        codes.dedup();
        let first_equal = codes.partition_point(|code| *code < kind.first_equal(levels));
        Self::Found {
            codes,
            first_equal: u32::try_from(first_equal).unwrap_or(INVALID),
        }
    }

    #[inline(always)]
    fn of(&self, code: u64) -> u32 {
        match self {
            Self::Same { .. } => u32::try_from(code).unwrap_or(INVALID),
            Self::Found { codes, .. } => {
                let found = codes.binary_search(&code).ok();
                found
                    .and_then(|found| u32::try_from(found).ok())
                    .unwrap_or(INVALID)
            }
        }
    }

    pub(super) fn bins(&self) -> usize {
        match self {
            Self::Same { codes, .. } => *codes,
            Self::Found { codes, .. } => codes.len(),
        }
    }

    fn first_equal(&self) -> u32 {
        match self {
            Self::Same { first_equal, .. } | Self::Found { first_equal, .. } => *first_equal,
        }
    }

    /// What it keeps its codes in, to be used again.
    pub(super) fn into_codes(self) -> Vec<u64> {
        match self {
            Self::Same { .. } => Vec::new(),
            Self::Found { codes, .. } => codes,
        }
    }
}

/// Rows of [`Rows`] that results go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// Sum of squared counts; of unordered pairs, those of equal levels twice.
    pub energy: Option<usize>,
    /// Sum of `c log2 c`, as [`Logarithms`](super::logarithms::Logarithms) have it.
    pub log: Option<usize>,
    /// The largest count; of unordered pairs, those of equal levels have twice their count.
    pub most: Option<usize>,
}

/// The bins, all of them empty between rows.
#[derive(Default)]
pub(super) struct Histogram {
    counts: Vec<u16>,
    /// How many bins have at least so many, of pairs of different and of equal levels.
    at_least: [Vec<u16>; 2],
}

impl Histogram {
    /// Makes room for so many bins and counts.
    pub(super) fn reserve(&mut self, bins: usize, most: usize) {
        if self.counts.len() < bins {
            self.counts.resize(bins, 0);
        }
        for at_least in &mut self.at_least {
            if at_least.len() <= most {
                at_least.resize(most + 1, 0);
            }
            // Never removed: the search for the largest count ends here.
            at_least[0] = 1;
        }
    }

    /// One row of windows: `row` counts from the band's first one. All the codes go to one histogram.
    pub(super) fn run<N: Number>(
        &mut self,
        codes: &[Codes],
        (number, growth): (&Numbering, &[u64]),
        row: usize,
        slots: Slots,
        rows: &mut Rows<N>,
    ) {
        let unordered = codes.iter().any(|codes| codes.kind == Kind::Unordered);
        let run = match (unordered, slots.most.is_some()) {
            (false, false) => slide_row::<N, false, false>,
            (false, true) => slide_row::<N, false, true>,
            (true, false) => slide_row::<N, true, false>,
            (true, true) => slide_row::<N, true, true>,
        };
        let [different, equal] = &mut self.at_least;
        let bins = Bins {
            counts: &mut self.counts,
            at_least: [different, equal],
            growth,
            first_equal: number.first_equal(),
        };
        run(bins, codes, row, slots, rows);
    }
}

struct Bins<'a> {
    counts: &'a mut [u16],
    at_least: [&'a mut [u16]; 2],
    growth: &'a [u64],
    first_equal: u32,
}

/// Kept apart from the bins, so that they stay in registers.
#[derive(Clone, Copy, Default)]
struct Totals {
    energy: u64,
    log: u64,
    /// The largest counts of pairs of different and of equal levels.
    most: [usize; 2],
}

fn slide_row<N: Number, const UNORDERED: bool, const MOST: bool>(
    mut bins: Bins<'_>,
    codes: &[Codes],
    row: usize,
    slots: Slots,
    rows: &mut Rows<N>,
) {
    let width = rows.width();
    let mut totals = Totals::default();
    for codes in codes {
        for x in 0..codes.columns {
            for code in codes.column(x, row) {
                totals = bins.add::<UNORDERED, MOST>(totals, *code);
            }
        }
    }
    totals.write(0, slots, rows);
    for x in 1..width {
        for codes in codes {
            let new = codes.column(x + codes.columns - 1, row);
            for (old, new) in codes.column(x - 1, row).iter().zip(new) {
                totals = bins.remove::<UNORDERED, MOST>(totals, *old);
                totals = bins.add::<UNORDERED, MOST>(totals, *new);
            }
        }
        totals.write(x, slots, rows);
    }
    for codes in codes {
        for x in width - 1..width - 1 + codes.columns {
            for code in codes.column(x, row) {
                totals = bins.remove::<UNORDERED, MOST>(totals, *code);
            }
        }
    }
}

impl Bins<'_> {
    #[inline(always)]
    fn add<const UNORDERED: bool, const MOST: bool>(
        &mut self,
        mut totals: Totals,
        code: u32,
    ) -> Totals {
        if code == INVALID {
            return totals;
        }
        let equal = UNORDERED && code >= self.first_equal;
        let bin = &mut self.counts[code as usize];
        *bin += 1;
        let count = usize::from(*bin);
        totals.log += self.growth[count];
        totals.energy += (2 * count as u64 - 1) << u32::from(equal);
        if MOST {
            if equal {
                self.at_least[1][count] += 1;
                totals.most[1] = totals.most[1].max(count);
            } else {
                self.at_least[0][count] += 1;
                totals.most[0] = totals.most[0].max(count);
            }
        }
        totals
    }

    #[inline(always)]
    fn remove<const UNORDERED: bool, const MOST: bool>(
        &mut self,
        mut totals: Totals,
        code: u32,
    ) -> Totals {
        if code == INVALID {
            return totals;
        }
        let equal = UNORDERED && code >= self.first_equal;
        let bin = &mut self.counts[code as usize];
        let count = usize::from(*bin);
        *bin -= 1;
        totals.log -= self.growth[count];
        totals.energy -= (2 * count as u64 - 1) << u32::from(equal);
        if MOST {
            // One bin had the largest count, if none has it now: it has one less.
            if equal {
                self.at_least[1][count] -= 1;
                totals.most[1] -= usize::from(self.at_least[1][totals.most[1]] == 0);
            } else {
                self.at_least[0][count] -= 1;
                totals.most[0] -= usize::from(self.at_least[0][totals.most[0]] == 0);
            }
        }
        totals
    }
}

impl Totals {
    #[inline(always)]
    fn write<N: Number>(self, x: usize, slots: Slots, rows: &mut Rows<N>) {
        if let Some(slot) = slots.energy {
            rows.row_mut(slot)[x] = N::of_wide(self.energy);
        }
        if let Some(slot) = slots.log {
            rows.row_mut(slot)[x] = N::of_wide(self.log);
        }
        if let Some(slot) = slots.most {
            let most = self.most[0].max(2 * self.most[1]);
            rows.row_mut(slot)[x] = N::of_wide(most as u64);
        }
    }
}
