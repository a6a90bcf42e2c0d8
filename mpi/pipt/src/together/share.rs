//! Which rank computes which blocks. Nothing here depends on time, but for the speeds that it is given.
//!
//! Blocks that are yet to be done have places, from 0 on, in the order in which they lie in the file. Where tiles have to
//! go there in that order the places are taken up in *waves*: no rank computes far ahead of what others are yet to
//! bring, as it would have to keep it all.

use std::ops::Range;

/// How the blocks of an image are given to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Distribution {
    /// A slice of rows for each, all of them equally high, as in the toolkit of the 1990s.
    Rows,
    /// One block for each rank after the other.
    Tiles,
    /// A slice for each, as high as it is fast: all compute one block first, and are timed.
    Weighted,
    /// Whoever has nothing to do asks for some more; there are fewer of them towards the end, so that all end together
    /// (guided self-scheduling: C. Polychronopoulos and D. Kuck, IEEE Transactions on Computers C-36, 1987).
    #[default]
    Dynamic,
    /// Each rank does some of the files of `foreach` by itself.
    Files,
}

impl Distribution {
    pub const ALL: [Self; 5] = [
        Self::Rows,
        Self::Tiles,
        Self::Weighted,
        Self::Dynamic,
        Self::Files,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Tiles => "tiles",
            Self::Weighted => "weighted",
            Self::Dynamic => "dynamic",
            Self::Files => "files",
        }
    }
}

/// The places of one rank, in ascending order, where that is settled before the work begins.
pub(super) fn settled(
    distribution: Distribution,
    rank: usize,
    speeds: &[u64],
    places: u64,
    wave: u64,
) -> Box<dyn Iterator<Item = u64> + Send> {
    let (ranks, wave) = (speeds.len().max(1) as u64, wave.max(1));
    if distribution == Distribution::Tiles {
        let every = usize::try_from(ranks).unwrap_or(usize::MAX);
        return Box::new((rank as u64..places).step_by(every));
    }
    let speeds = match distribution {
        Distribution::Weighted if speeds.iter().any(|speed| *speed > 0) => speeds.to_vec(),
        _ => vec![1; speeds.len().max(1)],
    };
    let waves = (0..places.div_ceil(wave)).flat_map(move |number| {
        let begin = number * wave;
        let slice = slice(&speeds, rank, wave.min(places - begin));
        begin + slice.start..begin + slice.end
    });
    Box::new(waves)
}

/// The part of so many places that goes to a rank: as large as its part of all speeds, to whole places.
fn slice(speeds: &[u64], rank: usize, places: u64) -> Range<u64> {
    let sum = |ranks: &[u64]| ranks.iter().map(|speed| u128::from(*speed)).sum::<u128>();
    let all = sum(speeds).max(1);
    let border = |ranks: usize| {
        let part = u128::from(places) * sum(&speeds[..ranks.min(speeds.len())]);
        u64::try_from((part + all / 2) / all).unwrap_or(places)
    };
    border(rank)..border(rank + 1)
}

/// Gives places to those who ask, in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Guided {
    next: u64,
    places: u64,
    ranks: u64,
    most: u64,
}

impl Guided {
    /// Of so many places, and at most `most` of them at a time.
    #[must_use]
    pub(super) fn new(places: u64, ranks: usize, most: u64) -> Self {
        Self {
            next: 0,
            places,
            ranks: ranks.max(1) as u64,
            most: most.max(1),
        }
    }

    /// The next ones: half of each rank's part of those that are left. None are left if it is empty.
    pub(super) fn give(&mut self) -> Range<u64> {
        let left = self.places - self.next;
        let count = (left / (2 * self.ranks)).clamp(1, self.most).min(left);
        let given = self.next..self.next + count;
        self.next = given.end;
        given
    }
}

/// Whole files for each rank, about as many bytes for each: the largest first, to the rank that has least so far
/// (R. Graham, "Bounds on Multiprocessing Timing Anomalies", SIAM Journal on Applied Mathematics 17, 1969). Gives the rank
/// of each file.
#[must_use]
pub fn files(sizes: &[u64], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|file| (std::cmp::Reverse(sizes[*file]), *file));
    let (mut loads, mut owners) = (vec![0_u64; ranks.max(1)], vec![0; sizes.len()]);
    for file in order {
        let least = (0..loads.len()).min_by_key(|rank| (loads[*rank], *rank));
        owners[file] = least.unwrap_or(0);
        // A file without a byte is some work, too.
        loads[owners[file]] = loads[owners[file]].saturating_add(sizes[file].max(1));
    }
    owners
}

/// Whole numbers that mostly follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    ranges: Vec<Range<u64>>,
    /// How many there are before each range.
    before: Vec<u64>,
    count: u64,
}

impl Places {
    /// Of numbers in ascending order.
    #[must_use]
    pub(super) fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number + 1),
            }
        }
        Self::of_ranges(ranges)
    }

    #[must_use]
    pub(super) fn of_ranges(ranges: Vec<Range<u64>>) -> Self {
        let mut count = 0_u64;
        let before = ranges.iter().map(|range| {
            let before = count;
            count = count.saturating_add(range.end.saturating_sub(range.start));
            before
        });
        Self {
            before: before.collect(),
            ranges,
            count,
        }
    }

    #[must_use]
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    #[must_use]
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The number at a place.
    #[must_use]
    pub(super) fn get(&self, place: u64) -> Option<u64> {
        let after = self.before.partition_point(|before| *before <= place);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        let number = range.start + (place - self.before[after - 1]);
        (number < range.end).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTLED: [Distribution; 3] = [
        Distribution::Rows,
        Distribution::Tiles,
        Distribution::Weighted,
    ];

    proptest! {
        #[test]
        fn each_place_is_one_ranks_and_ascends(
            places in 0..300_u64, wave in 1..400_u64, speeds in proptest::collection::vec(0..9_u64, 1..9),
        ) {
            for distribution in SETTLED {
                let mut all = Vec::new();
                for rank in 0..speeds.len() {
                    let own: Vec<u64> = settled(distribution, rank, &speeds, places, wave).collect();
                    prop_assert!(own.is_sorted());
                    all.extend(own);
                }
                all.sort_unstable();
                prop_assert_eq!(all, (0..places).collect::<Vec<_>>(), "{:?}", distribution);
            }
        }

        #[test]
        fn slices_are_as_large_as_ranks_are_fast(
            places in 0..10_000_u64, speeds in proptest::collection::vec(1..1000_u64, 1..9),
        ) {
            let sum: u64 = speeds.iter().sum();
            for (rank, speed) in speeds.iter().enumerate() {
                let count = settled(Distribution::Weighted, rank, &speeds, places, u64::MAX).count() as u64;
                prop_assert!((count * sum).abs_diff(places * speed) <= sum, "{count} for {speed} of {sum}");
                let equal = settled(Distribution::Rows, rank, &speeds, places, u64::MAX).count() as u64;
                prop_assert!((equal * speeds.len() as u64).abs_diff(places) <= speeds.len() as u64);
            }
        }

        #[test]
        fn those_who_ask_are_given_all_and_less_each_time(
            places in 0..5000_u64, ranks in 1..9_usize, most in 1..200_u64,
        ) {
            let mut guided = Guided::new(places, ranks, most);
            let (mut next, mut before) = (0, most);
            loop {
                let given = guided.give();
                prop_assert_eq!(given.start, next);
                if given.is_empty() {
                    break;
                }
                let count = given.end - given.start;
                prop_assert!(count <= before);
                (next, before) = (given.end, count);
            }
            prop_assert_eq!(next, places);
        }

        #[test]
        fn files_are_shared_by_their_bytes(
            sizes in proptest::collection::vec(0..1000_u64, 0..40), ranks in 1..9_usize,
        ) {
            let owners = files(&sizes, ranks);
            let loads: Vec<u64> = (0..ranks).map(|rank| {
                let own = owners.iter().zip(&sizes).filter(|(owner, _)| **owner == rank);
                own.map(|(_, size)| (*size).max(1)).sum()
            }).collect();
            let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
            let (most, least) = (loads.iter().max(), loads.iter().min());
            prop_assert!(most.copied().unwrap_or(0) - least.copied().unwrap_or(0) <= largest, "{loads:?}");
        }

        #[test]
        fn places_lead_to_their_numbers(numbers in proptest::collection::btree_set(0..200_u64, 0..100)) {
            let places = Places::of(numbers.iter().copied());
            prop_assert_eq!(places.count(), numbers.len() as u64);
            let found: Vec<u64> = (0..places.count()).filter_map(|place| places.get(place)).collect();
            prop_assert_eq!(found, numbers.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(places.get(places.count()), None);
        }
    }

    #[test]
    fn within_a_wave_nobody_is_far_ahead() {
        let own = |rank| settled(Distribution::Rows, rank, &[1, 1], 10, 4).collect::<Vec<_>>();
        assert_eq!(own(0), [0, 1, 4, 5, 8]);
        assert_eq!(own(1), [2, 3, 6, 7, 9]);
    }
}
