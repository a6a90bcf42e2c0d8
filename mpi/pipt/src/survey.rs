//! What has to be known of a whole image before a pixel of the result can be computed: the least and the
//! greatest sample, and quantiles. All of it is exact, and does not depend on how the image was divided.

use pipt_raster::{Sample, Samples, each};
use serde::{Deserialize, Serialize};

mod counts;
pub mod hysteresis;
mod moments;
mod regions;

pub use counts::{Bins, Counts};
pub use moments::Moments;

/// Digits of a key that one pass counts, and how many there are.
const DIGIT_BITS: u32 = 16;
const DIGITS: usize = 1 << DIGIT_BITS;

/// The least and the greatest sample that is there, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    pub count: u64,
    /// None where no sample is there.
    pub least: Option<f64>,
    pub greatest: Option<f64>,
}

impl Extent {
    /// Takes samples up; `there` says of each whether it counts, and NaN never does.
    pub fn take(&mut self, samples: &Samples, there: Option<&[bool]>) {
        each!(samples, values => self.take_values(values, there));
    }

    fn take_values<T: Sample>(&mut self, values: &[T], there: Option<&[bool]>) {
        let mut extent: Option<(T, T)> = None;
        for value in counted(values, there) {
            self.count += 1;
            extent = Some(match extent {
                None => (value, value),
                Some((least, greatest)) => (
                    if value < least { value } else { least },
                    if value > greatest { value } else { greatest },
                ),
            });
        }
        if let Some((least, greatest)) = extent {
            self.join(&Self {
                count: 0,
                least: Some(least.to_f64()),
                greatest: Some(greatest.to_f64()),
            });
        }
    }

    /// Takes up what was seen elsewhere.
    pub fn join(&mut self, other: &Self) {
        self.count += other.count;
        let fold = |a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (a, b) => a.or(b),
        };
        self.least = fold(self.least, other.least, f64::min);
        self.greatest = fold(self.greatest, other.greatest, f64::max);
    }
}

fn counted<'a, T: Sample>(
    values: &'a [T],
    there: Option<&'a [bool]>,
) -> impl Iterator<Item = T> + 'a {
    let is_there = move |place: usize| there.is_none_or(|there| there.get(place) == Some(&true));
    let all = values.iter().enumerate();
    all.filter(move |(place, value)| is_there(*place) && !value.is_nan())
        .map(|(_, value)| *value)
}

/// Finds samples by their rank among all, in several passes over the image: one for each 16 bits of the
/// type. Each pass counts one digit of the samples' keys where the digits before it are those of a rank
/// that is looked for (selection by radix, Blum et al. 1973 as most significant digits first).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranks {
    /// Bits of the key that are yet to be counted.
    bits: u32,
    sought: Vec<Sought>,
    /// Of each prefix that is sought, in their order: how often each digit follows it.
    prefixes: Vec<u64>,
    counts: Vec<Vec<u64>>,
}

/// A rank, from 0, among the samples whose key begins with this prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sought {
    prefix: u64,
    rank: u64,
}

impl Ranks {
    /// Of samples of so many bytes; ranks from 0 among all samples that are there.
    #[must_use]
    pub fn new(bytes: usize, ranks: &[u64]) -> Self {
        let sought = ranks.iter().map(|rank| Sought {
            prefix: 0,
            rank: *rank,
        });
        let bits = u32::try_from(8 * bytes).unwrap_or(64).max(DIGIT_BITS);
        let mut ranks = Self {
            bits,
            sought: sought.collect(),
            prefixes: Vec::new(),
            counts: Vec::new(),
        };
        ranks.begin();
        ranks
    }

    /// Whether another pass over the image is needed.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.bits > 0
    }

    /// Nothing counted yet, for a thread that counts by itself.
    #[must_use]
    pub fn fresh(&self) -> Self {
        let mut fresh = self.clone();
        fresh.counts.iter_mut().for_each(|counts| counts.fill(0));
        fresh
    }

    fn begin(&mut self) {
        self.prefixes = self.sought.iter().map(|sought| sought.prefix).collect();
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        self.counts = vec![vec![0; DIGITS]; self.prefixes.len()];
    }

    /// Takes samples up.
    pub fn take(&mut self, samples: &Samples, there: Option<&[bool]>) {
        each!(samples, values => {
            for value in counted(values, there) {
                self.count(value.key());
            }
        });
    }

    fn count(&mut self, key: u64) {
        let after = self.bits - DIGIT_BITS;
        let prefix = key.checked_shr(self.bits).unwrap_or(0);
        let Ok(place) = self.prefixes.binary_search(&prefix) else {
            return;
        };
        let digit = usize::try_from((key >> after) % DIGITS as u64).unwrap_or(0);
        self.counts[place][digit] += 1;
    }

    /// Takes up what another thread has counted.
    pub fn join(&mut self, other: &Self) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            for (own, other) in own.iter_mut().zip(others) {
                *own += other;
            }
        }
    }

    /// The pass is over: goes on to the next digit.
    pub fn next(&mut self) {
        for sought in &mut self.sought {
            let Ok(place) = self.prefixes.binary_search(&sought.prefix) else {
                continue;
            };
            let mut digit = 0;
            for count in &self.counts[place] {
                // A rank beyond the last sample is the last one's.
                if sought.rank < *count || digit == DIGITS as u64 - 1 {
                    break;
                }
                sought.rank -= count;
                digit += 1;
            }
            sought.prefix = sought.prefix << DIGIT_BITS | digit;
        }
        self.bits -= DIGIT_BITS;
        if self.wants_more() {
            self.begin();
        }
    }

    /// The keys that were found, in the order of the ranks that were asked for.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.sought.iter().map(|sought| sought.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranked<T: Sample>(values: &[T], ranks: &[u64]) -> Vec<T>
    where
        Samples: From<Vec<T>>,
    {
        let mut all = Ranks::new(size_of::<T>(), ranks);
        while all.wants_more() {
            let (one, other) = values.split_at(values.len() / 3);
            for part in [one, other] {
                let mut fresh = all.fresh();
                fresh.take(&part.to_vec().into(), None);
                all.join(&fresh);
            }
            all.next();
        }
        all.keys().map(T::of_key).collect()
    }

    fn are_found<T: Sample>(values: Vec<T>) -> Result<(), TestCaseError>
    where
        Samples: From<Vec<T>>,
    {
        let mut sorted = values.clone();
        sorted.sort_by_key(|value| value.key());
        let ranks: Vec<u64> = (0..values.len() as u64).collect();
        prop_assert_eq!(ranked(&values, &ranks), sorted);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn each_rank_is_found(words in proptest::collection::vec(any::<u64>(), 1..12)) {
            #[allow(clippy::cast_possible_truncation)]
            {
                are_found(words.iter().map(|word| *word as u8).collect())?;
                are_found(words.iter().map(|word| (*word as u16).cast_signed()).collect())?;
                are_found(words.iter().map(|word| f32::from(*word as u16) - 1000.5).collect())?;
            }
            are_found(words.iter().map(|word| word.cast_signed()).collect())?;
        }
    }

    #[test]
    fn what_is_not_there_does_not_count() {
        let mut extent = Extent::default();
        extent.take(
            &vec![1.5f32, f32::NAN, -9.0, 7.0].into(),
            Some(&[true, true, false, true]),
        );
        extent.take(&vec![200u8].into(), Some(&[false]));
        let seen = (extent.count, extent.least, extent.greatest);
        assert_eq!(seen, (2, Some(1.5), Some(7.0)));
        assert_eq!(Extent::default().least, None);
        let mut other = Extent::default();
        other.take(&vec![-3i64].into(), None);
        extent.join(&other);
        assert_eq!((extent.count, extent.least), (3, Some(-3.0)));
    }

    #[test]
    fn a_rank_beyond_the_end_is_the_last_digit() {
        assert_eq!(ranked(&[3u8, 9], &[0, 1]), [3, 9]);
        assert!(!ranked(&[3u16], &[5]).is_empty());
    }
}
