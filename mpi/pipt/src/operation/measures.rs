//! What is measured between two images.

use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{SampleType, Size};

/// The square of the difference of two images, as 64-bit floats; where both have data.
pub struct SquaredDifference;

impl Operation for SquaredDifference {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, _: SampleType) -> u64 {
        wanted.pixels() * 16
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let [other] = given.others else {
            return Err("Another image is missing".into());
        };
        let (one, two) = (given.part.samples.to_f64(), other.samples.to_f64());
        let squares = one.iter().zip(two).map(|(a, b)| (a - b) * (a - b));
        let there = match (&given.part.there, &other.there) {
            (Some(one), Some(two)) => Some(one.iter().zip(two).map(|(a, b)| *a && *b).collect()),
            (one, two) => one.as_ref().or(two.as_ref()).cloned(),
        };
        Ok(vec![Part {
            samples: squares.collect::<Vec<f64>>().into(),
            there,
        }])
    }
}
