//! How often samples are in an image: each number by itself where the type has few, else in equal steps.

use pipt_raster::{Sample, SampleType, Samples, each, of_type};
use serde::{Deserialize, Serialize};

/// What samples are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Bins {
    /// Each number of a type of 8 or 16 bits, from its least one on.
    Numbers { first: f64, count: usize },
    /// Equal steps from the first number to the last one, which belongs to the last step. A border between two
    /// belongs to the upper one.
    Steps { least: f64, most: f64, count: usize },
}

impl Bins {
    /// Each number of the type, if there are few.
    #[must_use]
    pub fn numbers(kind: SampleType) -> Option<Self> {
        let few = match kind {
            SampleType::U8 | SampleType::I8 => 1 << 8,
            SampleType::U16 | SampleType::I16 => 1 << 16,
            _ => return None,
        };
        let first = of_type!(kind, T => T::of_f64(f64::MIN).to_f64());
        Some(Self::Numbers { first, count: few })
    }

    #[must_use]
    pub const fn count(&self) -> usize {
        match self {
            Self::Numbers { count, .. } | Self::Steps { count, .. } => *count,
        }
    }

    /// The lower border of a bin; that of the one behind the last is the upper border of the last.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "there are at most 2^24")]
    pub fn border(&self, bin: usize) -> f64 {
        match *self {
            Self::Numbers { first, .. } => first + bin as f64 - 0.5,
            Self::Steps { most, count, .. } if bin >= count => most,
            Self::Steps { least, most, count } => {
                bin as f64 * ((most - least) / count as f64) + least
            }
        }
    }

    /// The number that stands for all of a bin: that in its middle.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "there are at most 2^24")]
    pub fn middle(&self, bin: usize) -> f64 {
        match *self {
            Self::Numbers { first, .. } => first + bin as f64,
            Self::Steps { .. } => 0.5 * (self.border(bin) + self.border(bin + 1)),
        }
    }

    /// The bin of a sample; None if it is in none.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "it is within the bins"
    )]
    pub fn of(&self, sample: f64) -> Option<usize> {
        match *self {
            Self::Numbers { first, count } => {
                let bin = sample - first;
                (bin >= 0.0 && bin < count as f64).then_some(bin as usize)
            }
            Self::Steps { least, most, count } => {
                if !(least..=most).contains(&sample) {
                    return None;
                }
                let steps = (sample - least) / (most - least) * count as f64;
                let mut bin = (steps as usize).min(count - 1);
                // The division may have been rounded over a border.
                if sample < self.border(bin) {
                    bin -= 1;
                } else if bin + 1 < count && sample >= self.border(bin + 1) {
                    bin += 1;
                }
                Some(bin)
            }
        }
    }
}

/// Samples that were counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    pub bins: Bins,
    pub counts: Vec<u64>,
}

impl Counts {
    #[must_use]
    pub fn new(bins: Bins) -> Self {
        Self {
            counts: vec![0; bins.count()],
            bins,
        }
    }

    /// Takes samples up; `there` says of each whether it counts, and NaN never does.
    pub fn take(&mut self, samples: &Samples, there: Option<&[bool]>) {
        each!(samples, values => {
            for value in super::counted(values, there) {
                if let Some(bin) = self.bins.of(value.to_f64()) {
                    self.counts[bin] += 1;
                }
            }
        });
    }

    /// Takes up what was counted elsewhere.
    pub fn join(&mut self, other: &Self) {
        let both = self.counts.iter_mut().zip(&other.counts);
        both.for_each(|(own, other)| *own += other);
    }

    /// Of each bin, how many samples are in it and in those before.
    fn cumulative(&self) -> Vec<u64> {
        let mut all = 0;
        let sums = self.counts.iter().map(|count| {
            all += count;
            all
        });
        sums.collect()
    }

    /// What each bin becomes for all numbers between two to be as frequent: the number of samples up to it, less those
    /// of the first bin, in proportion (R. Gonzalez and R. Woods, "Digital Image Processing", 1992, section 4.2).
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a part of all pixels")]
    pub fn equalised(&self, (low, high): (f64, f64)) -> Vec<f64> {
        let sums = self.cumulative();
        let first = sums.iter().find(|sum| **sum > 0).copied().unwrap_or(0);
        let all = sums.last().copied().unwrap_or(0) - first;
        let of = |sum: &u64| match all {
            // There is one number, or none.
            0 => low,
            _ => low + (high - low) * (sum.saturating_sub(first) as f64 / all as f64),
        };
        sums.iter().map(of).collect()
    }

    /// What each bin becomes for samples to be as frequent as in another image: the number up to which as large a part
    /// of that image's samples goes, by straight lines between its numbers.
    #[must_use]
    pub fn matched(&self, other: &Self) -> Vec<f64> {
        let parts = |counts: &Self| {
            let sums = counts.cumulative();
            let all = sums.last().copied().unwrap_or(0).max(1);
            #[allow(clippy::cast_precision_loss, reason = "a part of all pixels")]
            let parts = sums.into_iter().map(move |sum| sum as f64 / all as f64);
            parts.collect::<Vec<f64>>()
        };
        let known = parts(other).into_iter().enumerate();
        let known = known.filter(|(bin, _)| other.counts[*bin] > 0);
        let known: Vec<(f64, f64)> = known
            .map(|(bin, part)| (part, other.bins.middle(bin)))
            .collect();
        let mut at = 0;
        let of = |part: f64| {
            // Parts only grow from bin to bin.
            while at + 1 < known.len() && known[at].0 < part {
                at += 1;
            }
            match (at.checked_sub(1).map(|before| known[before]), known.get(at)) {
                (Some((low, from)), Some((high, to))) if part < *high => {
                    from + (to - from) * ((part - low) / (high - low))
                }
                (_, Some((_, value))) => *value,
                _ => 0.0,
            }
        };
        parts(self).into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_in_the_bin_whose_borders_it_lies_between() {
        let bins = Bins::Steps {
            least: -1.0,
            most: 2.0,
            count: 10,
        };
        for bin in 0..10 {
            assert_eq!(bins.of(bins.border(bin)), Some(bin));
            assert_eq!(bins.of(bins.middle(bin)), Some(bin));
        }
        assert_eq!(
            (bins.of(2.0), bins.of(2.1), bins.of(-1.1)),
            (Some(9), None, None)
        );
        let bytes = Bins::numbers(SampleType::I8).expect("few");
        assert_eq!((bytes.of(-128.0), bytes.of(127.0)), (Some(0), Some(255)));
        assert_eq!(bytes.middle(0), -128.0);
        assert_eq!(Bins::numbers(SampleType::F32), None);
    }

    #[test]
    fn numbers_are_spread_and_matched() {
        let counted = |numbers: Vec<u8>| {
            let mut counts = Counts::new(Bins::numbers(SampleType::U8).expect("few"));
            counts.take(&numbers.into(), None);
            counts
        };
        let few = counted(vec![3, 3, 5, 9]);
        let spread = few.equalised((0.0, 255.0));
        assert_eq!((spread[3], spread[5], spread[9]), (0.0, 127.5, 255.0));
        let other = counted(vec![10, 10, 20, 40]);
        let matched = few.matched(&other);
        assert_eq!((matched[3], matched[5], matched[9]), (10.0, 20.0, 40.0));
        // One number alone, and nothing at all.
        assert_eq!(counted(vec![7]).equalised((0.0, 255.0))[7], 0.0);
        assert_eq!(few.matched(&counted(Vec::new()))[5], 0.0);
    }
}
