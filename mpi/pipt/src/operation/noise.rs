//! Noise that depends on where a pixel is in the file's image.

use crate::graph::{Failure, Given, Operation, Part};
use pipt_raster::rect::Halo;
use pipt_raster::{Rect, SampleType, Size, each};
use pipt_simd::noise::{self, Generator, NoiseError};

pub struct Noise {
    noise: noise::Noise,
    seed: u64,
    /// Where the image begins within that of the file, and how wide that one is: a part of an image gets the
    /// same noise as the whole.
    begins: (u32, u32),
    width: u32,
    /// Of each band, its number in the file.
    bands: Vec<u32>,
}

impl Noise {
    /// # Errors
    ///
    /// The noise is described by something that is no number, or no probability.
    pub fn new(
        noise: noise::Noise,
        seed: u64,
        (part, whole): (Rect, Size),
        bands: Vec<u32>,
    ) -> Result<Self, NoiseError> {
        Generator::new(noise, seed, whole.width, 0)?;
        Ok(Self {
            noise,
            seed,
            begins: (part.x, part.y),
            width: whole.width,
            bands,
        })
    }
}

impl Operation for Noise {
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
        let band = *self
            .bands
            .get(given.band as usize)
            .ok_or("There is no such band")?;
        let generator = Generator::new(self.noise, self.seed, self.width, band)?;
        let place = Rect {
            x: given.rect.x + self.begins.0,
            y: given.rect.y + self.begins.1,
            ..given.rect
        };
        let mut part = given.part.clone();
        let stride = given.rect.width as usize;
        each!(&mut part.samples, values => generator.add(given.level, values, stride, place))?;
        Ok(vec![part])
    }
}
