//! Features of co-occurrence, of samples that become grey levels on the way.

use super::{Edge, around, even, without_edges};
use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Sample, SampleType, Size, each};
use pipt_simd::texture::Quantiser;
use pipt_simd::texture::{LevelImage, Levels, Parameters, Plan, TextureError};

pub struct Texture {
    plan: Plan,
    names: Vec<String>,
    edge: Edge,
    /// Of each band.
    quantisers: Vec<Quantiser>,
}

impl Texture {
    /// # Errors
    ///
    /// The parameters name what cannot be computed.
    pub fn new(
        parameters: &Parameters,
        edge: Edge,
        quantisers: Vec<Quantiser>,
    ) -> Result<Self, TextureError> {
        let plan = Plan::new(parameters)?;
        let names = plan.outputs();
        Ok(Self {
            plan,
            names,
            edge,
            quantisers,
        })
    }

    /// Of the bands that are made of one.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn features<T: Sample>(&self, given: &Given<'_>, values: &[T]) -> Result<Vec<Part>, Failure> {
        let quantiser = self
            .quantisers
            .get(given.band as usize)
            .ok_or("There is no such band")?;
        let (own, halo) = (self.plan.halo(), self.halo());
        let around = around(given, values, halo, self.edge)?;
        let mut mask = vec![0; around.samples.len()];
        let (mut bytes, mut words) = (Vec::new(), Vec::new());
        let whole = if quantiser.levels() <= 256 {
            bytes.resize(around.samples.len(), 0);
            quantiser.bytes(&around.samples, &mut bytes, &mut mask)?
        } else {
            words.resize(around.samples.len(), 0);
            quantiser.words(&around.samples, &mut words, &mut mask)?
        };
        if let Some(there) = &around.there {
            mask.iter_mut()
                .zip(there)
                .for_each(|(mask, there)| *mask &= u8::from(*there));
        }
        let mask = (!whole || around.there.is_some()).then_some(mask);
        // The halo is as wide on both sides, and the plan's may not be.
        let stride = around.size.0;
        let begin = (halo.above - own.above) as usize * stride + (halo.left - own.left) as usize;
        let levels = match bytes.is_empty() {
            false => Levels::U8(&bytes[begin..]),
            true => Levels::U16(&words[begin..]),
        };
        let (width, height) = (given.wanted.width as usize, given.wanted.height as usize);
        let image = LevelImage::new(
            levels,
            mask.as_deref().map(|mask| &mask[begin..]),
            stride,
            width,
            height,
        );
        let mut outputs = vec![vec![0f32; width * height]; self.names.len()];
        let mut slices: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        self.plan.run(given.level, &image, &mut slices)?;
        Ok(outputs
            .into_iter()
            .map(|values| self.part(given, values))
            .collect())
    }

    fn part(&self, given: &Given<'_>, values: Vec<f32>) -> Part {
        let mut there: Vec<bool> = values.iter().map(|value| !value.is_nan()).collect();
        if self.edge == Edge::Nodata {
            without_edges(given, self.plan.halo(), &mut there);
        }
        Part {
            samples: values.into(),
            there: there.contains(&false).then_some(there),
        }
    }
}

impl Operation for Texture {
    fn halo(&self) -> Halo {
        even(self.plan.halo())
    }

    fn outputs(&self) -> usize {
        self.names.len()
    }

    fn scratch(&self, wanted: Size, kind: SampleType) -> u64 {
        // Samples and whether they are there; levels, of two bytes at the most, and their mask.
        let bytes = wanted.grown(self.halo()).pixels() * (kind.bytes() as u64 + 1 + 2 + 1);
        bytes + self.plan.scratch_bytes(wanted.width as usize) as u64
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        each!(&given.part.samples, values => self.features(given, values))
    }
}
