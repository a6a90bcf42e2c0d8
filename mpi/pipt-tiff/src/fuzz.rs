//! An entry for tests with bytes that nobody meant.

use std::sync::Arc;

use pipt_raster::{Rect, Source};

use crate::error::TiffError;
use crate::layout::{Complex, Narrow};
use crate::reader::{ReadOptions, Tiff};

/// Larger chunks are not decoded here, bytes.
const CHUNK_BYTES: u64 = 1 << 20;
/// No more than so many pages are looked at.
const PAGES: usize = 8;
/// Nor more than so many bands, and pixels along each side of a rectangle, at two corners.
const BANDS: u32 = 4;
const SIDE: u32 = 64;

/// Opens bytes as a TIFF file, and reads from its images what fits into some megabytes. How many images were
/// opened.
///
/// # Errors
///
/// It is no TIFF file, or has no image that is read.
pub fn fuzz(data: &[u8]) -> Result<usize, TiffError> {
    let options = ReadOptions {
        narrow: Narrow::Widen,
        complex: Complex::Magnitude,
        cache_bytes: 1 << 20,
        chunk_bytes: CHUNK_BYTES,
        ..ReadOptions::default()
    };
    let first = Tiff::of(Arc::new(data.to_vec()), options)?;
    read(&first);
    let mut opened = 1;
    for page in 1..first.pages().min(PAGES) {
        if let Ok(image) = first.page(page) {
            read(&image);
            opened += 1;
        }
    }
    Ok(opened)
}

/// What cannot be decoded is no fault of the reader.
fn read(image: &Tiff) {
    let size = image.info().size;
    let (width, height) = (size.width.min(SIDE), size.height.min(SIDE));
    let count = image.info().bands.min(BANDS);
    let corners = [(0, 0), (size.width - width, size.height - height)];
    for (x, y) in corners {
        let rect = Rect::new(x, y, width, height);
        if let Ok(bands) = image.read_bands(0, count, rect) {
            for band in bands {
                assert_eq!(band.len() as u64, rect.pixels(), "{rect} of {image:?}");
                assert_eq!(band.kind(), image.info().kind, "{rect} of {image:?}");
            }
        }
    }
}
