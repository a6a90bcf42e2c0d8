//! Edges: how samples change from pixel to pixel. In the place of a neighbour that is not there stands the pixel itself.

use super::kernel::{Field, Kernel};
use super::{Edge, of_real, without_edges};
use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Size, each};

/// What is made of the sums of several kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Sum,
    /// The root of the sum of squares.
    Length,
    Greatest,
}

/// Sums by kernels, which are the products of correlation: a kernel lies on the image as it is written.
pub struct Edges {
    pub kernels: Vec<Kernel>,
    pub join: Join,
    pub edge: Edge,
    /// Of the result.
    pub kind: SampleType,
}

impl Edges {
    fn part<T: Sample>(&self, given: &Given<'_>, values: &[T]) -> Result<Part, Failure> {
        let field = Field::new(given, values, self.halo(), self.edge)?;
        let mut results: Option<Vec<f64>> = None;
        for kernel in &self.kernels {
            let sums = responses(kernel, &field);
            results = Some(match results {
                None if self.join == Join::Length => sums.iter().map(|sum| sum * sum).collect(),
                None => sums,
                Some(mut all) => {
                    let both = all.iter_mut().zip(sums);
                    match self.join {
                        Join::Sum => both.for_each(|(all, sum)| *all += sum),
                        Join::Length => both.for_each(|(all, sum)| *all += sum * sum),
                        Join::Greatest => both.for_each(|(all, sum)| *all = all.max(sum)),
                    }
                    all
                }
            });
        }
        let mut results = results.unwrap_or_default();
        if self.join == Join::Length {
            results
                .iter_mut()
                .for_each(|result| *result = result.sqrt());
        }
        let mut there: Vec<bool> = field
            .centres()
            .map(|centre| field.part(centre) > 0.0)
            .collect();
        if self.edge == Edge::Nodata {
            without_edges(given, self.halo(), &mut there);
        }
        Ok(Part {
            samples: of_real(self.kind, &results),
            there: there.contains(&false).then_some(there),
        })
    }
}

fn responses(kernel: &Kernel, field: &Field) -> Vec<f64> {
    let mut sums = kernel.sums(field, |place| field.values[place]);
    if field.there.is_some() {
        let total = kernel.total();
        let parts = kernel.sums(field, |place| field.part(place));
        let all = sums.iter_mut().zip(parts).zip(field.centres());
        all.for_each(|((sum, part), centre)| *sum += field.values[centre] * (total - part));
    }
    sums
}

impl Operation for Edges {
    fn halo(&self) -> Halo {
        let halos = self.kernels.iter().map(Kernel::halo);
        let largest = |a: Halo, b: Halo| Halo {
            left: a.left.max(b.left),
            right: a.right.max(b.right),
            above: a.above.max(b.above),
            below: a.below.max(b.below),
        };
        halos.reduce(largest).unwrap_or_default()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, kind: SampleType) -> u64 {
        // Samples and whether they are there, as they are and as floats, sums along rows of both, and results.
        let around = wanted.grown(self.halo()).pixels();
        around * (kind.bytes() as u64 + 2 + 8 + 16) + wanted.pixels() * (8 * 4)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let part = each!(&given.part.samples, values => self.part(given, values))?;
        Ok(vec![part])
    }
}
