//! From samples to grey levels.
//!
//! A level says in which of so many classes a sample is. What is no number, or the image's nodata value, has
//! no level: the mask is 0 there, and the level is 0.

use std::fmt;

use pipt_raster::Sample;

/// How samples become levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiser {
    rule: Rule,
    levels: u32,
    nodata: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// A sample is its level.
    Same,
    /// Classes of one width; a sample outside is in the nearest class, or in none.
    Equal {
        minimum: f64,
        maximum: f64,
        outside: Outside,
    },
    /// Class k holds what is at least `bounds[k - 1]` and less than `bounds[k]`.
    Bounds(Vec<f64>),
}

/// What becomes of a sample that is outside the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The first or last level.
    Nearest,
    /// No level.
    Invalid,
}

/// Samples cannot be quantised so.
#[derive(Clone, Debug, PartialEq)]
pub enum QuantiseError {
    Levels(u32),
    Range(f64, f64),
    /// The bounds are not numbers that grow, at this place.
    Bounds(usize),
    /// There are more samples than room for levels or masks.
    Room(usize, usize),
}

impl fmt::Display for QuantiseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levels(levels) => {
                write!(
                    to,
                    "{levels} grey levels cannot be made: ask for 2 to {MOST_LEVELS}"
                )
            }
            Self::Range(minimum, maximum) => write!(
                to,
                "There is no range from {minimum} to {maximum}: give two numbers, the smaller one first"
            ),
            Self::Bounds(place) => write!(
                to,
                "Bound number {place} of the levels is not larger than the one before: sort them, each once"
            ),
            Self::Room(samples, room) => {
                write!(
                    to,
                    "{samples} samples do not fit {room} levels: give as much room"
                )
            }
        }
    }
}

impl std::error::Error for QuantiseError {}

const MOST_LEVELS: u32 = 65_536;

impl Quantiser {
    /// Samples that are levels already, as GRASS's `r.texture` takes them. A sample that is negative, not
    /// below `levels` or not whole has no level.
    ///
    /// # Errors
    ///
    /// `levels` is not within 2 to 65,536.
    pub fn same(levels: u32) -> Result<Self, QuantiseError> {
        Self::new(Rule::Same, levels)
    }

    /// `levels` classes of one width from `minimum` to `maximum`: the level of a sample is
    /// `floor((sample - minimum) / ((maximum - minimum) / levels))`, and that of the maximum itself is the
    /// last one. So the classes are half open, except the last. Samples outside have the nearest level.
    ///
    /// # Errors
    ///
    /// `levels` is not within 2 to 65,536, or the range is empty or not of numbers.
    pub fn equal(minimum: f64, maximum: f64, levels: u32) -> Result<Self, QuantiseError> {
        let rule = Rule::Equal {
            minimum,
            maximum,
            outside: Outside::Nearest,
        };
        let width = maximum - minimum;
        if width.is_finite() && width > 0.0 {
            Self::new(rule, levels)
        } else {
            Err(QuantiseError::Range(minimum, maximum))
        }
    }

    /// As many levels as bounds and one: a sample's level is the number of bounds that are not larger.
    /// Quantiles as bounds give levels that are about equally frequent.
    ///
    /// # Errors
    ///
    /// There are no bounds or more than 65,535, or they do not grow.
    pub fn bounds(bounds: &[f64]) -> Result<Self, QuantiseError> {
        let levels = u32::try_from(bounds.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        if let Some(place) = bounds.iter().position(|bound| bound.is_nan()) {
            return Err(QuantiseError::Bounds(place));
        }
        if let Some(place) = bounds.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(QuantiseError::Bounds(place + 1));
        }
        Self::new(Rule::Bounds(bounds.to_vec()), levels)
    }

    /// The same with another rule for samples outside of the range of [`equal`](Self::equal).
    #[must_use]
    pub fn outside(mut self, what: Outside) -> Self {
        if let Rule::Equal { outside, .. } = &mut self.rule {
            *outside = what;
        }
        self
    }

    /// The same where samples of this value, compared as 64-bit floats, have no level.
    #[must_use]
    pub const fn nodata(mut self, nodata: Option<f64>) -> Self {
        self.nodata = nodata;
        self
    }

    fn new(rule: Rule, levels: u32) -> Result<Self, QuantiseError> {
        if !(2..=MOST_LEVELS).contains(&levels) {
            return Err(QuantiseError::Levels(levels));
        }
        Ok(Self {
            rule,
            levels,
            nodata: None,
        })
    }

    /// The number of levels.
    #[must_use]
    pub const fn levels(&self) -> u32 {
        self.levels
    }

    /// The level of a sample, if it has one.
    pub fn level<T: Sample>(&self, sample: T) -> Option<u32> {
        let value = sample.to_f64();
        if value.is_nan() || self.nodata == Some(value) {
            return None;
        }
        match &self.rule {
            Rule::Same => {
                let whole = value >= 0.0 && value < f64::from(self.levels) && value.fract() == 0.0;
                whole.then(|| floor(value))
            }
            Rule::Equal {
                minimum,
                maximum,
                outside,
            } => {
                if *outside == Outside::Invalid && !(*minimum..=*maximum).contains(&value) {
                    return None;
                }
                let width = (maximum - minimum) / f64::from(self.levels);
                Some(floor((value - minimum) / width).min(self.levels - 1))
            }
            Rule::Bounds(bounds) => {
                let level = bounds.partition_point(|bound| *bound <= value);
                u32::try_from(level).ok()
            }
        }
    }

    /// Levels and mask of some samples; whether all of them have a level. With more than 256 levels,
    /// bytes cannot hold them: see [`words`](Self::words).
    ///
    /// # Errors
    ///
    /// There is not as much room as there are samples, or there are more than 256 levels.
    pub fn bytes<T: Sample>(
        &self,
        samples: &[T],
        levels: &mut [u8],
        mask: &mut [u8],
    ) -> Result<bool, QuantiseError> {
        if self.levels > 256 {
            return Err(QuantiseError::Levels(self.levels));
        }
        self.fill(samples, levels, mask, |level| {
            u8::try_from(level).unwrap_or(u8::MAX)
        })
    }

    /// The same for up to 65,536 levels.
    ///
    /// # Errors
    ///
    /// There is not as much room as there are samples.
    pub fn words<T: Sample>(
        &self,
        samples: &[T],
        levels: &mut [u16],
        mask: &mut [u8],
    ) -> Result<bool, QuantiseError> {
        self.fill(samples, levels, mask, |level| {
            u16::try_from(level).unwrap_or(u16::MAX)
        })
    }

    fn fill<T: Sample, L>(
        &self,
        samples: &[T],
        levels: &mut [L],
        mask: &mut [u8],
        narrow: impl Fn(u32) -> L,
    ) -> Result<bool, QuantiseError> {
        let room = levels.len().min(mask.len());
        if room < samples.len() {
            return Err(QuantiseError::Room(samples.len(), room));
        }
        let mut all = true;
        for ((sample, to), valid) in samples.iter().zip(levels).zip(mask) {
            let level = self.level(*sample);
            *to = narrow(level.unwrap_or(0));
            *valid = u8::from(level.is_some());
            all &= level.is_some();
        }
        Ok(all)
    }
}

/// What is below 0 is 0, and what is above the largest number is that.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as documented"
)]
fn floor(value: f64) -> u32 {
    value.floor() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_of_equal_width_are_half_open() {
        let quantiser = Quantiser::equal(0.0, 256.0, 8).expect("a range");
        let levels = [0_u16, 31, 32, 255, 256, 300].map(|sample| quantiser.level(sample));
        assert_eq!(levels, [0, 0, 1, 7, 7, 7].map(Some));
        let floats = [-1.0, 0.0, 31.9, f64::INFINITY, f64::NEG_INFINITY];
        let levels = floats.map(|sample| quantiser.level(sample));
        assert_eq!(levels, [0, 0, 0, 7, 0].map(Some));
        let strict = quantiser.outside(Outside::Invalid);
        assert_eq!(
            [-1.0, 256.5, 256.0].map(|s| strict.level(s)),
            [None, None, Some(7)]
        );
    }

    #[test]
    fn what_is_no_number_or_nodata_has_no_level() {
        let quantiser = Quantiser::equal(0.0, 100.0, 4)
            .expect("a range")
            .nodata(Some(50.0));
        let (mut levels, mut mask) = ([9; 4], [9; 4]);
        let all = quantiser.bytes(&[10.0_f32, 50.0, f32::NAN, 99.0], &mut levels, &mut mask);
        assert_eq!((all, levels, mask), (Ok(false), [0, 0, 0, 3], [1, 0, 0, 1]));
        let all = quantiser.bytes(&[10_i8, 60], &mut levels, &mut mask);
        assert_eq!(
            (all, &levels[..2], &mask[..2]),
            (Ok(true), &[0, 2][..], &[1, 1][..])
        );
        let none = quantiser.bytes(&[1_u8; 5], &mut levels, &mut mask);
        assert_eq!(none, Err(QuantiseError::Room(5, 4)));
    }

    #[test]
    fn levels_may_be_samples_already() {
        let quantiser = Quantiser::same(16).expect("levels");
        assert_eq!(
            [0_u8, 15, 16].map(|s| quantiser.level(s)),
            [Some(0), Some(15), None]
        );
        assert_eq!([-1_i32, 3].map(|s| quantiser.level(s)), [None, Some(3)]);
        assert_eq!([1.5, 2.0].map(|s| quantiser.level(s)), [None, Some(2)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for (minimum, maximum) in [
            (1.0, 1.0),
            (2.0, 1.0),
            (f64::NAN, 1.0),
            (0.0, f64::INFINITY),
        ] {
            let refused = Quantiser::equal(minimum, maximum, 8);
            assert!(
                matches!(refused, Err(QuantiseError::Range(..))),
                "{refused:?}"
            );
        }
        for levels in [0, 1, 65_537] {
            assert_eq!(
                Quantiser::equal(0.0, 1.0, levels),
                Err(QuantiseError::Levels(levels))
            );
        }
        assert_eq!(Quantiser::bounds(&[]), Err(QuantiseError::Levels(1)));
        assert_eq!(
            Quantiser::bounds(&[1.0, 1.0]),
            Err(QuantiseError::Bounds(1))
        );
        assert_eq!(
            Quantiser::bounds(&[f64::NAN]),
            Err(QuantiseError::Bounds(0))
        );
        let words = Quantiser::equal(0.0, 1.0, 257).expect("levels");
        assert_eq!(
            words.bytes(&[0.0], &mut [0], &mut [0]),
            Err(QuantiseError::Levels(257))
        );
        let mut level = [0];
        assert_eq!(words.words(&[1.0], &mut level, &mut [0]), Ok(true));
        assert_eq!(level, [256]);
    }

    proptest! {
        #[test]
        fn bounds_and_equal_classes_agree(samples in proptest::collection::vec(0_u16..1024, 50), levels in 2_u32..100) {
            let equal = Quantiser::equal(0.0, f64::from(16 * levels), levels).expect("a range");
            let bounds: Vec<f64> = (1..levels).map(|level| f64::from(16 * level)).collect();
            let bounds = Quantiser::bounds(&bounds).expect("bounds");
            prop_assert_eq!(bounds.levels(), levels);
            for sample in samples {
                prop_assert_eq!(equal.level(sample), bounds.level(sample));
            }
        }
    }
}
