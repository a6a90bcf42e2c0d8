//! The recent values of a number: a ring of samples, one a second.

use std::collections::VecDeque;

/// The last samples, the oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    samples: VecDeque<f64>,
}

impl History {
    /// How many samples are kept: those of ten minutes.
    pub const SAMPLES: usize = 600;

    #[must_use]
    pub fn new() -> Self {
        let samples = VecDeque::new();
        Self { samples }
    }

    pub fn push(&mut self, sample: f64) {
        if self.samples.len() == Self::SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    #[must_use]
    pub fn last(&self) -> Option<f64> {
        self.samples.back().copied()
    }

    /// The last `count` samples, the oldest first; fewer if there are not so many.
    pub fn latest(&self, count: usize) -> impl Iterator<Item = f64> {
        let skipped = self.samples.len().saturating_sub(count);
        self.samples.iter().skip(skipped).copied()
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_samples_go() {
        let mut history = History::new();
        assert_eq!((history.last(), history.latest(3).count()), (None, 0));
        for sample in 0..=u32::try_from(History::SAMPLES).expect("small") {
            history.push(sample.into());
        }
        assert_eq!(history.latest(usize::MAX).count(), History::SAMPLES);
        let latest: Vec<f64> = history.latest(2).collect();
        assert_eq!(latest, [599.0, 600.0]);
        assert_eq!(history.latest(usize::MAX).next(), Some(1.0));
    }
}
