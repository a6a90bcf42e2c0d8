//! Means and smoothing: each pixel from those around it. What is not there does not count.

use super::kernel::{Field, Kernel};
use super::{Edge, without_edges};
use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Size, each};

/// Which mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Mean {
    /// Weighted by a kernel.
    Weighted(Kernel),
    /// `exp` of the mean of logarithms; 0 where a sample is not above 0.
    Geometric(Kernel),
    /// The number of samples divided by the sum of 1 / sample; 0 where a sample is not above 0.
    Harmonic(Kernel),
    /// Of the samples of a square that differ by no more than that from the one in the middle (J.-S. Lee, "Digital Image
    /// Smoothing and the Sigma Filter", Computer Vision, Graphics, and Image Processing 24, 1983).
    Near { half: usize, within: f64 },
    /// The sample, nearer to the mean of its square the less that varies beyond the variance of noise (J. S. Lim,
    /// "Two-Dimensional Signal and Image Processing", 1990, equation 9.44).
    Wiener { half: usize, noise: Vec<f64> },
    /// The variance in a square.
    Variance { half: usize },
    /// The sample and so many times its difference from the mean by the kernel, if that is not below the limit.
    Unsharp {
        kernel: Kernel,
        amount: f64,
        threshold: f64,
    },
}

/// A mean of each pixel's window.
pub struct Means {
    pub mean: Mean,
    pub edge: Edge,
    /// Whether a pixel without data is given a value, where its window has some.
    pub fill: bool,
    /// Of the result.
    pub kind: SampleType,
}

fn sides(half: usize) -> Halo {
    Halo::even(u32::try_from(half).unwrap_or(u32::MAX))
}

impl Means {
    /// Of each wanted pixel; None where nothing is there.
    fn results(&self, field: &Field, band: usize) -> Vec<Option<f64>> {
        let value = |place: usize| field.values[place];
        match &self.mean {
            Mean::Weighted(kernel) => weighted(kernel, field, value),
            Mean::Geometric(kernel) => positive(kernel, field, f64::ln, f64::exp),
            Mean::Harmonic(kernel) => positive(kernel, field, f64::recip, f64::recip),
            Mean::Near { half, within } => {
                let of = |centre: usize| near(field, centre, *half, *within);
                field.centres().map(of).collect()
            }
            Mean::Wiener { half, noise } => {
                // Of each band, or of all.
                let noise = noise.get(band).or(noise.last()).copied().unwrap_or(0.0);
                let of = |centre: usize| wiener(field, centre, *half, noise);
                field.centres().map(of).collect()
            }
            Mean::Variance { half } => {
                let of = |centre: usize| Some(moments(field, centre, *half)?.1);
                field.centres().map(of).collect()
            }
            Mean::Unsharp {
                kernel,
                amount,
                threshold,
            } => {
                let means = weighted(kernel, field, value).into_iter();
                let sharpened = means.zip(field.centres()).map(|(mean, centre)| {
                    let (sample, mean) = (field.values[centre], mean?);
                    let difference = sample - mean;
                    Some(match difference.abs() < *threshold {
                        true => sample,
                        false => sample + amount * difference,
                    })
                });
                sharpened.collect()
            }
        }
    }

    fn part<T: Sample>(&self, given: &Given<'_>, values: &[T]) -> Result<Part, Failure> {
        let field = Field::new(given, values, self.halo(), self.edge)?;
        let mut results = self.results(&field, given.band as usize);
        // Only means of others can be had where there is no sample.
        let fills = self.fill
            && !matches!(
                self.mean,
                Mean::Near { .. } | Mean::Unsharp { .. } | Mean::Wiener { .. }
            );
        if let (false, Some(there)) = (fills, &field.there) {
            let missing = results
                .iter_mut()
                .zip(field.centres())
                .filter(|(_, centre)| !there[*centre]);
            missing.for_each(|(result, _)| *result = None);
        }
        let mut there: Vec<bool> = results.iter().map(Option::is_some).collect();
        let numbers: Vec<f64> = results.into_iter().map(Option::unwrap_or_default).collect();
        if self.edge == Edge::Nodata {
            without_edges(given, self.halo(), &mut there);
        }
        Ok(Part {
            samples: super::of_real(self.kind, &numbers),
            there: there.contains(&false).then_some(there),
        })
    }
}

/// Sums divided by the weights of what is there.
fn weighted(kernel: &Kernel, field: &Field, value: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
    let sums = kernel.sums(field, value);
    match &field.there {
        None => {
            let total = kernel.total();
            sums.into_iter().map(|sum| Some(sum / total)).collect()
        }
        Some(_) => {
            let parts = kernel.sums(field, |place| field.part(place));
            let both = sums.into_iter().zip(parts);
            both.map(|(sum, part)| (part > 0.0).then(|| sum / part))
                .collect()
        }
    }
}

/// `back` of the mean of `there`, of samples above 0.
fn positive(
    kernel: &Kernel,
    field: &Field,
    there: fn(f64) -> f64,
    back: fn(f64) -> f64,
) -> Vec<Option<f64>> {
    let is_bad = |place: usize| field.values[place] <= 0.0 && field.part(place) > 0.0;
    let bad = kernel.sums(field, |place| f64::from(u8::from(is_bad(place))));
    let value = |place: usize| match field.values[place] {
        value if value > 0.0 => there(value),
        _ => 0.0,
    };
    let means = weighted(kernel, field, value).into_iter().zip(bad);
    means
        .map(|(mean, bad)| mean.map(|mean| if bad > 0.0 { 0.0 } else { back(mean) }))
        .collect()
}

fn near(field: &Field, centre: usize, half: usize, within: f64) -> Option<f64> {
    let middle = field.values[centre];
    let (mut sum, mut count) = (0.0, 0.0);
    for place in field.square(centre, half) {
        let value = field.values[place];
        if field.part(place) > 0.0 && (value - middle).abs() <= within {
            sum += value;
            count += 1.0;
        }
    }
    (count > 0.0).then(|| sum / count)
}

/// The mean and the variance of a square.
fn moments(field: &Field, centre: usize, half: usize) -> Option<(f64, f64)> {
    let count: f64 = field
        .square(centre, half)
        .map(|place| field.part(place))
        .sum();
    if count == 0.0 {
        return None;
    }
    let mean = field
        .square(centre, half)
        .map(|place| field.values[place])
        .sum::<f64>()
        / count;
    let squares = field.square(centre, half).map(|place| {
        let apart = field.values[place] - mean;
        field.part(place) * apart * apart
    });
    Some((mean, squares.sum::<f64>() / count))
}

fn wiener(field: &Field, centre: usize, half: usize, noise: f64) -> Option<f64> {
    let (mean, variance) = moments(field, centre, half)?;
    Some(match variance <= noise {
        true => mean,
        false => mean + (1.0 - noise / variance) * (field.values[centre] - mean),
    })
}

impl Operation for Means {
    fn halo(&self) -> Halo {
        match &self.mean {
            Mean::Weighted(kernel)
            | Mean::Geometric(kernel)
            | Mean::Harmonic(kernel)
            | Mean::Unsharp { kernel, .. } => kernel.halo(),
            Mean::Near { half, .. } | Mean::Wiener { half, .. } | Mean::Variance { half } => {
                sides(*half)
            }
        }
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, kind: SampleType) -> u64 {
        // Samples and whether they are there, as they are and as floats, sums along rows of both, and results.
        let around = wanted.grown(self.halo()).pixels();
        around * (kind.bytes() as u64 + 2 + 8 + 16) + wanted.pixels() * (16 + 16 + 8)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let part = each!(&given.part.samples, values => self.part(given, values))?;
        Ok(vec![part])
    }
}
