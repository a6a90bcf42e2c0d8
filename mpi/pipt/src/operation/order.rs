//! Order statistics: medians and trimmed means of a square or a cross.

use super::{Edge, around, without_edges};
use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Samples, Size, each};
use pipt_simd::rank::{self, Input, Output, Plane, PlaneMut, RankError, RankFilter, Window};

pub struct Order {
    filter: RankFilter,
    edge: Edge,
}

impl Order {
    /// # Errors
    ///
    /// The filter cannot be.
    pub fn new(
        window: Window,
        operation: rank::Operation,
        fill: bool,
        edge: Edge,
    ) -> Result<Self, RankError> {
        let filter = RankFilter::new(window, operation, fill)?;
        Ok(Self { filter, edge })
    }

    fn filtered<T: Sample>(&self, given: &Given<'_>, values: &[T]) -> Result<Part, Failure>
    where
        Samples: From<Vec<T>>,
    {
        let halo = self.filter.halo();
        let around = around(given, values, halo, self.edge)?;
        let (width, height) = around.size;
        let plane = |mask| Plane::new(mask, width, height, width);
        let valid = around.there.as_deref().map(plane).transpose()?;
        let input = Input {
            samples: Plane::new(&around.samples, width, height, width)?,
            valid,
        };
        let (width, height) = (given.wanted.width as usize, given.wanted.height as usize);
        let mut samples = vec![T::default(); width * height];
        let mut there = vec![true; width * height];
        let output = Output {
            samples: PlaneMut::new(&mut samples, width, height, width)?,
            valid: Some(PlaneMut::new(&mut there, width, height, width)?),
        };
        self.filter.apply(given.level, input, output)?;
        if self.edge == Edge::Nodata {
            without_edges(given, halo, &mut there);
        }
        Ok(Part {
            samples: samples.into(),
            there: there.contains(&false).then_some(there),
        })
    }
}

impl Operation for Order {
    fn halo(&self) -> Halo {
        self.filter.halo()
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, kind: SampleType) -> u64 {
        let padded = wanted.grown(self.halo()).pixels() * (kind.bytes() as u64 + 1);
        // Whatever the type, it takes no more than for the widest one.
        padded + self.filter.scratch_bytes::<f64>() as u64
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let part = each!(&given.part.samples, values => self.filtered(given, values))?;
        Ok(vec![part])
    }
}
