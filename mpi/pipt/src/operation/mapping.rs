//! Samples that become what was found for them from the whole image.

use crate::graph::{Failure, Given, Operation, Part};
use crate::survey::Bins;
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Samples, Size, each};

/// What the samples of a band become.
pub enum Rule {
    /// Those of each bin, a number.
    Table(Bins, Vec<f64>),
    /// In proportion, from between the first two numbers to between the others; beyond these the nearer one of them.
    Line { from: (f64, f64), to: (f64, f64) },
}

impl Rule {
    fn of(&self, sample: f64) -> f64 {
        match self {
            Self::Table(bins, numbers) => bins.of(sample).map_or(sample, |bin| numbers[bin]),
            Self::Line { from, to } => {
                let part = (sample - from.0) / (from.1 - from.0);
                // Of one number alone there is no proportion.
                let part = if part.is_nan() {
                    0.0
                } else {
                    part.clamp(0.0, 1.0)
                };
                to.0 + (to.1 - to.0) * part
            }
        }
    }
}

/// A rule for each band.
pub struct Mapping(pub Vec<Rule>);

impl Mapping {
    fn mapped<T: Sample>(rule: &Rule, values: &[T]) -> Samples
    where
        Samples: From<Vec<T>>,
    {
        let of = |value: &T| match value.is_nan() {
            true => *value,
            false => T::of_f64(rule.of(value.to_f64())),
        };
        values.iter().map(of).collect::<Vec<T>>().into()
    }
}

impl Operation for Mapping {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, _: Size, _: SampleType) -> u64 {
        0
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let rule = self.0.get(given.band as usize);
        let rule = rule.ok_or("There is no such band")?;
        let samples = each!(&given.part.samples, values => Self::mapped(rule, values));
        Ok(vec![Part {
            samples,
            there: given.part.there.clone(),
        }])
    }
}
