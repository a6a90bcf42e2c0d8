//! Images that are put together one by one, of what is read elsewhere.

use super::{AssembleError, Assembled, Image, Setting};
use crate::graph::{Reading, Shape};
use crate::parameter::Values;
use crate::routine::Routine;
use crate::stop::Stoppable;

impl Assembled {
    /// Adds an image that is read; gives its place in [`Assembled::images`].
    pub fn add(
        &mut self,
        shape: Shape,
        reading: impl Reading + 'static,
        has_holes: bool,
        setting: &Setting<'_>,
    ) -> usize {
        let (size, bands) = (shape.size, shape.bands.len());
        let reading = Stoppable {
            reading,
            stop: setting.stop.clone(),
        };
        self.images.push(Image {
            node: self.graph.read(shape, Box::new(reading)),
            tags: Vec::new(),
            part: (size.rect(), size),
            bands: (0..).take(bands).collect(),
            has_holes,
            scales: Vec::new(),
            bounds: vec![None; bands],
        });
        self.images.len() - 1
    }

    /// Adds an image of a file; gives its place.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn file(
        &mut self,
        path: &str,
        values: &Values,
        bands: Option<&[u32]>,
        setting: &Setting<'_>,
    ) -> Result<usize, AssembleError> {
        let image = self.read(path, values, bands, setting)?;
        self.images.push(image);
        Ok(self.images.len() - 1)
    }

    /// Adds what a routine makes of images at these places; gives its place.
    ///
    /// # Errors
    ///
    /// The routine cannot do that.
    pub fn routine(
        &mut self,
        routine: &Routine,
        images: &[usize],
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<usize, AssembleError> {
        let image = self.make(routine, images, values, setting)?;
        self.images.push(image);
        Ok(self.images.len() - 1)
    }
}
