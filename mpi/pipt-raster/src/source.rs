//! Where an image comes from.

use crate::rect::{Rect, Size};
use crate::sample::SampleType;
use crate::samples::Samples;

/// What is known of an image before any sample of it is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub size: Size,
    pub bands: u32,
    pub kind: SampleType,
    /// A sample of this value is none.
    pub nodata: Option<f64>,
    /// Of the bands, where they have names; else empty.
    pub names: Vec<String>,
    /// Rectangles along these lines are read without reading anything twice: the size of a tile, or of a
    /// strip. They begin at the upper left corner.
    pub grain: Size,
}

/// An image that can be read in parts, by several threads at once.
pub trait Source: Sync {
    type Error: std::error::Error + Send + Sync + 'static;

    fn info(&self) -> &Info;

    /// The samples of one band (from 0) in a rectangle within the image.
    ///
    /// # Errors
    ///
    /// What the image is kept in cannot be read, or is not what it should be.
    fn read(&self, band: u32, rect: Rect) -> Result<Samples, Self::Error>;
}

/// An image in memory.
#[derive(Clone, Debug)]
pub struct Memory {
    info: Info,
    bands: Vec<Samples>,
}

/// Bands do not fit an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    NoBand,
    /// This band has another number of samples, or samples of another type, than the image.
    Differs(u32),
    /// There is no such band, or the rectangle does not lie within the image.
    Outside(u32, Rect),
}

impl std::fmt::Display for MemoryError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoBand => write!(to, "An image has at least one band"),
            Self::Differs(band) => write!(
                to,
                "Band {band} has not as many samples as the image, or they are of another type"
            ),
            Self::Outside(band, rect) => {
                write!(to, "There is no part {rect} of band {band} in the image")
            }
        }
    }
}

impl std::error::Error for MemoryError {}

impl Memory {
    /// # Errors
    ///
    /// There is no band, or they are not all of one type and of the image's size.
    pub fn new(size: Size, bands: Vec<Samples>) -> Result<Self, MemoryError> {
        let kind = bands.first().ok_or(MemoryError::NoBand)?.kind();
        for (number, band) in (0..).zip(&bands) {
            if band.kind() != kind || band.len() as u64 != size.pixels() {
                return Err(MemoryError::Differs(number));
            }
        }
        let info = Info {
            size,
            bands: u32::try_from(bands.len()).unwrap_or(u32::MAX),
            kind,
            nodata: None,
            names: Vec::new(),
            grain: size,
        };
        Ok(Self { info, bands })
    }
}

impl Source for Memory {
    type Error = MemoryError;

    fn info(&self) -> &Info {
        &self.info
    }

    fn read(&self, band: u32, rect: Rect) -> Result<Samples, MemoryError> {
        let outside = MemoryError::Outside(band, rect);
        let samples = self.bands.get(band as usize).ok_or(outside.clone())?;
        if !rect.is_within(self.info.size) {
            return Err(outside);
        }
        let width = self.info.size.width as usize;
        let (left, right) = (rect.x as usize, rect.x as usize + rect.width as usize);
        let rows = rect.y as usize..rect.y as usize + rect.height as usize;
        Ok(crate::each!(samples, values => {
            let rows = rows.map(|row| &values[row * width + left..row * width + right]);
            rows.flatten().copied().collect::<Vec<_>>().into()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_image_are_read() {
        let samples: Vec<u16> = (0..12).collect();
        let image = Memory::new(Size::new(4, 3), vec![samples.into()]).expect("an image");
        let part = image.read(0, Rect::new(1, 1, 2, 2)).expect("a part");
        assert_eq!(part, Samples::U16(vec![5, 6, 9, 10]));
        for (band, rect) in [(1, Rect::new(0, 0, 1, 1)), (0, Rect::new(3, 0, 2, 1))] {
            let refused = image.read(band, rect).expect_err("outside");
            assert_eq!(refused, MemoryError::Outside(band, rect));
        }
    }

    #[test]
    fn bands_that_differ_are_refused() {
        let size = Size::new(2, 1);
        let bands = |more: Samples| vec![Samples::U8(vec![1, 2]), more];
        for more in [Samples::U8(vec![1]), Samples::I8(vec![1, 2])] {
            let refused = Memory::new(size, bands(more)).expect_err("another");
            assert_eq!(refused, MemoryError::Differs(1));
        }
        assert_eq!(
            Memory::new(size, Vec::new()).err(),
            Some(MemoryError::NoBand)
        );
    }
}
