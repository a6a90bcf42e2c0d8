//! From samples to the bytes of a tile.

use std::cell::RefCell;

use pipt_raster::{Samples, Size};
use weezl::BitOrder;
use zstd::bulk::Compressor;

use crate::design::Compression;
use crate::layout::Predictor;

/// How to encode one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) size: Size,
    /// What the image has of it, from its upper left corner; the rest is zeros.
    pub(crate) part: Size,
    pub(crate) predictor: Predictor,
    pub(crate) compression: Compression,
}

/// Encodes the bands of a tile, which are all of one type and of the part's size.
///
/// libdeflate and zstd choose the same bytes on every CPU, which zlib's faster successors do not promise:
/// they hash by whatever instruction the CPU has.
pub(crate) fn tile(tile: Tile, bands: &[Samples]) -> Result<Vec<u8>, String> {
    let plain = plain(tile, bands);
    match tile.compression {
        Compression::None => Ok(plain),
        Compression::Deflate(level) => {
            let level = libdeflater::CompressionLvl::new(level);
            let level = level.map_err(|_| "there is no such level of Deflate")?;
            let mut encoder = libdeflater::Compressor::new(level);
            let mut out = vec![0; encoder.zlib_compress_bound(plain.len())];
            let length = encoder.zlib_compress(&plain, &mut out);
            out.truncate(length.map_err(|error| error.to_string())?);
            Ok(out)
        }
        Compression::Zstd(level) => by_zstd(&plain, level).map_err(|error| error.to_string()),
        Compression::Lzw => {
            let mut encoder = weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8);
            encoder.encode(&plain).map_err(|error| error.to_string())
        }
    }
}

/// One compressor serves all tiles of a thread: its tables are larger than a tile, and for a new one the kernel has to
/// find and clear memory. Its bytes do not depend on what it compressed before.
fn by_zstd(plain: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    thread_local! {
        static OF_THREAD: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    OF_THREAD.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(level)?),
        };
        compressor.set_compression_level(level)?;
        compressor.compress(plain)
    })
}

/// The bytes of numbers, the lowest first. A copy into its place is several times as fast as a chain of
/// iterators over single bytes.
macro_rules! bytes {
    ($words:expr) => {{
        let width = $words.first().map_or(1, |word| word.to_le_bytes().len());
        let mut out = vec![0; $words.len() * width];
        for (to, word) in out.chunks_exact_mut(width).zip(&$words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out
    }};
}

/// Takes from each number of a row the one before it in its band.
macro_rules! differences {
    ($numbers:expr, $row:expr, $bands:expr) => {{
        let mut before = Vec::new();
        for row in $numbers.chunks_mut($row) {
            before.clear();
            before.extend_from_slice(row);
            for (number, before) in row[$bands..].iter_mut().zip(&before) {
                *number = number.wrapping_sub(*before);
            }
        }
    }};
}

/// The bytes of floats, sorted in each row by their weight, the highest first (Adobe Photoshop TIFF
/// Technical Note 3).
macro_rules! sorted {
    ($words:expr, $row:expr) => {{
        let width = $words.first().map_or(1, |word| word.to_be_bytes().len());
        let mut out = vec![0; $words.len() * width];
        for (row, to) in $words
            .chunks_exact($row)
            .zip(out.chunks_exact_mut($row * width))
        {
            for (weight, plane) in to.chunks_exact_mut($row).enumerate() {
                for (to, word) in plane.iter_mut().zip(row) {
                    *to = word.to_be_bytes()[weight];
                }
            }
        }
        out
    }};
}

fn plain(tile: Tile, bands: &[Samples]) -> Vec<u8> {
    macro_rules! words {
        ($kind:ident, $word:expr) => {{
            let of_band = |band| match band {
                &Samples::$kind(ref values) => Some(values.as_slice()),
                _ => None,
            };
            let bands: Vec<_> = bands.iter().filter_map(of_band).collect();
            let mut words = whole(tile, &bands, $word);
            let row = tile.size.width as usize * bands.len();
            match tile.predictor {
                Predictor::None => bytes!(words),
                Predictor::Horizontal => {
                    differences!(words, row, bands.len());
                    bytes!(words)
                }
                Predictor::Float => {
                    let mut bytes = sorted!(words, row);
                    let width = bytes.len() / words.len();
                    differences!(bytes, row * width, bands.len());
                    bytes
                }
            }
        }};
    }
    match bands.first() {
        Some(Samples::U8(_)) => words!(U8, |value| value),
        Some(Samples::U16(_)) => words!(U16, |value| value),
        Some(Samples::U32(_)) => words!(U32, |value| value),
        Some(Samples::U64(_)) => words!(U64, |value| value),
        Some(Samples::I8(_)) => words!(I8, |value| value),
        Some(Samples::I16(_)) => words!(I16, |value| value),
        Some(Samples::I32(_)) => words!(I32, |value| value),
        Some(Samples::I64(_)) => words!(I64, |value| value),
        Some(Samples::F32(_)) => words!(F32, f32::to_bits),
        Some(Samples::F64(_)) => words!(F64, f64::to_bits),
        None => Vec::new(),
    }
}

/// All samples of a tile, the bands one beside the other.
fn whole<T: Copy, W: Copy + Default>(tile: Tile, bands: &[&[T]], word: impl Fn(T) -> W) -> Vec<W> {
    let count = bands.len();
    let pixels = usize::try_from(tile.size.pixels()).unwrap_or(0);
    let mut out = vec![W::default(); pixels * count];
    let (columns, width) = (tile.part.width as usize, tile.size.width as usize);
    for (number, band) in bands.iter().enumerate() {
        let rows = band.chunks_exact(columns);
        for (from, to) in rows.zip(out.chunks_exact_mut(width * count)) {
            for (from, to) in from.iter().zip(to[number..].iter_mut().step_by(count)) {
                *to = word(*from);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes with some order in them, others for each seed.
    fn bytes(seed: u32, length: u32) -> Vec<u8> {
        let byte = |at: u32| ((at / 7 * seed) ^ (at.wrapping_mul(at) >> 9)).to_le_bytes()[0];
        (0..length).map(byte).collect()
    }

    #[test]
    fn a_compressor_forgets_what_it_compressed_before() {
        for level in [1, 3, 9, 19, 1] {
            for (seed, length) in [(1, 1 << 18), (5, 77), (3, 1 << 19), (2, 1 << 18), (9, 0)] {
                let plain = bytes(seed, length);
                let by_new = zstd::bulk::compress(&plain, level).expect("compressed");
                assert_eq!(by_zstd(&plain, level).expect("compressed"), by_new);
            }
        }
    }
}
