//! Smaller copies of an image, each made of the one before.

use std::sync::atomic::{AtomicU64, Ordering};

use pipt_raster::{Info, Rect, Sample, Samples, Size, Source};

use crate::design::{Design, Level, Reduce};
use crate::error::TiffError;
use crate::reader::{ReadOptions, Tiff};
use crate::writer::Writer;

/// Makes all overviews of a file whose other tiles are there. A level is read back from the file, so that no
/// more than some tiles are in memory.
pub(crate) fn make(writer: &Writer, reduce: Reduce) -> Result<(), TiffError> {
    let design = writer.design();
    let levels = design.levels().to_vec();
    for (number, pair) in levels.windows(2).enumerate() {
        writer.write_front()?;
        let options = ReadOptions {
            page: number,
            ..ReadOptions::default()
        };
        let larger = Tiff::of(writer.file(), options)?;
        let end = levels
            .get(number + 2)
            .map_or(design.tiles(), |level| level.first);
        level(writer, &larger, pair[1], end, reduce)?;
    }
    Ok(())
}

fn level(
    writer: &Writer,
    larger: &Tiff,
    level: Level,
    end: u64,
    reduce: Reduce,
) -> Result<(), TiffError> {
    let next = AtomicU64::new(level.first);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return Ok(());
            }
            if writer.is_done(number) {
                continue;
            }
            let tile = tile(writer.design(), larger, number, reduce);
            let done = tile.and_then(|bytes| writer.put(number, bytes));
            done.inspect_err(|error| writer.give_up(&error.to_string()))?;
        }
    };
    std::thread::scope(|scope| {
        let threads = writer.design().options.threads;
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            let other = other.join().unwrap_or_else(|_| {
                Err(TiffError::GivenUp {
                    why: "a thread that makes overviews failed".to_owned(),
                })
            });
            done = done.and(other);
        }
        done
    })
}

fn tile(design: &Design, larger: &Tiff, number: u64, reduce: Reduce) -> Result<Vec<u8>, TiffError> {
    let at = design.tile(number).ok_or_else(|| TiffError::Tile {
        tile: number,
        problem: "there is no such tile".to_owned(),
    })?;
    let size = larger.info().size;
    let (x, y) = (2 * at.rect.x, 2 * at.rect.y);
    let double = |extent: u32, begin: u32, end: u32| extent.saturating_mul(2).min(end - begin);
    let from = Rect::new(
        x,
        y,
        double(at.rect.width, x, size.width),
        double(at.rect.height, y, size.height),
    );
    let bands = larger.read_bands(at.band, design.bands_of_tile(), from)?;
    let small = |band: &Samples| smaller(band, from.size(), larger.info(), reduce);
    let bands: Vec<Samples> = bands.iter().map(small).collect();
    design.encode_tile(number, &bands)
}

/// Half as wide and high, rounded up.
fn smaller(samples: &Samples, size: Size, info: &Info, reduce: Reduce) -> Samples {
    pipt_raster::each!(samples, values => match reduce {
        Reduce::Nearest => nearest(values, size).into(),
        Reduce::Average => average(values, size, info.nodata).into(),
    })
}

fn nearest<T: Copy>(values: &[T], size: Size) -> Vec<T> {
    let rows = values.chunks_exact(size.width as usize).step_by(2);
    rows.flat_map(|row| row.iter().step_by(2).copied())
        .collect()
}

fn average<T: Sample>(values: &[T], size: Size, nodata: Option<f64>) -> Vec<T> {
    let width = size.width as usize;
    let has_data = |value: f64| !value.is_nan() && Some(value) != nodata;
    let mut out = Vec::with_capacity(values.len() / 4 + width);
    for rows in values.chunks(2 * width) {
        let (above, below) = rows.split_at(width);
        for at in (0..width).step_by(2) {
            let end = (at + 2).min(width);
            let below = below.get(at..end).unwrap_or_default();
            let (mut sum, mut count) = (0.0, 0_u32);
            for value in above[at..end].iter().chain(below) {
                let value = value.to_f64();
                if has_data(value) {
                    sum += value;
                    count += 1;
                }
            }
            out.push(match count {
                0 => above[at],
                _ => T::of_f64(sum / f64::from(count)),
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_pixels_that_have_data() {
        let size = Size::new(3, 3);
        let values = [1_u8, 2, 9, 3, 255, 255, 7, 8, 5];
        assert_eq!(average(&values, size, Some(255.0)), [2, 9, 8, 5]);
        assert_eq!(average(&values, size, None), [65, 132, 8, 5]);
        assert_eq!(nearest(&values, size), [1, 9, 7, 5]);
        let floats = [f32::NAN, 1.0, f32::NAN, f32::NAN];
        assert_eq!(average(&floats, Size::new(2, 2), None), [1.0]);
        assert!(average(&floats[2..], Size::new(2, 1), None)[0].is_nan());
    }

    #[test]
    fn where_no_pixel_has_data_neither_has_the_smaller_one() {
        let none = [-9999_i16; 4];
        assert_eq!(average(&none, Size::new(2, 2), Some(-9999.0)), [-9999]);
    }
}
