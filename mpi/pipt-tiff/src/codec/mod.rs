//! Compressions: what each chunk is decoded by.

mod fax;
mod image;

use std::io::Read;

use weezl::{BitOrder, LzwStatus};

use crate::directory::Directory;
use crate::error::TiffError;
use crate::tag::number as n;

pub use fax::Fax;

/// More memory than this is not taken by the dictionary of a chunk in LZMA, KiB: what its level 9 needs.
const LZMA_MEMORY: u32 = 80 * 1024;

/// How the chunks of an image are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    PackBits,
    Lzw,
    Deflate,
    Zstd,
    Lzma,
    Fax(Fax),
    WebP,
    Jpeg {
        /// What all chunks have in common.
        tables: Vec<u8>,
        colours: Colours,
    },
}

/// What becomes of the three bands of a JPEG stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// They are given as they are.
    Raw,
    /// They are luma and chroma, and given as red, green and blue.
    ToRgb,
    /// They are that if the stream says so by a JFIF marker.
    ByMarker,
}

/// Compressions that are known by name alone.
const REFUSED: [(u64, &str); 32] = [
    (6, "JPEG of the old kind (compression 6)"),
    (9, "JBIG (compression 9)"),
    (10, "JBIG of colours (compression 10)"),
    (32766, "NeXT's run lengths (compression 32766)"),
    (32809, "ThunderScan (compression 32809)"),
    (32895, "IT8 CT with padding (compression 32895)"),
    (32896, "IT8 line work (compression 32896)"),
    (32897, "IT8 monochrome pictures (compression 32897)"),
    (32898, "IT8 binary line art (compression 32898)"),
    (32908, "Pixar film (compression 32908)"),
    (32909, "Pixar log (compression 32909)"),
    (32947, "Kodak DCS (compression 32947)"),
    (
        33003,
        "JPEG 2000 as Aperio writes it, YCbCr (compression 33003)",
    ),
    (33004, "JPEG 2000 as Aperio writes it (compression 33004)"),
    (
        33005,
        "JPEG 2000 as Aperio writes it, RGB (compression 33005)",
    ),
    (33007, "JPEG as Hamamatsu writes it (compression 33007)"),
    (34661, "JBIG (compression 34661)"),
    (34676, "SGI log luminance (compression 34676)"),
    (34677, "SGI log luminance of 24 bits (compression 34677)"),
    (34712, "JPEG 2000 (compression 34712)"),
    (34713, "Nikon's raw format (compression 34713)"),
    (34715, "JBIG2 (compression 34715)"),
    (34887, "LERC (compression 34887)"),
    (34892, "lossy JPEG of DNG (compression 34892)"),
    (34926, "ZSTD under its provisional number 34926"),
    (34927, "WebP under its provisional number 34927"),
    (34933, "PNG (compression 34933)"),
    (34934, "JPEG XR (compression 34934)"),
    (48124, "Jetraw (compression 48124)"),
    (50002, "JPEG XL (compression 50002)"),
    (52546, "JPEG XL of DNG (compression 52546)"),
    (65000, "events of electrons (compression 65000)"),
];

impl Codec {
    /// # Errors
    ///
    /// There is no decoder for it.
    pub fn of(directory: &Directory) -> Result<Self, TiffError> {
        let refused = |flavour: &str| TiffError::refused(directory.page, flavour);
        let options = directory.number(n::T4_OPTIONS)?.unwrap_or(0);
        match directory.number(n::COMPRESSION)?.unwrap_or(1) {
            0 | 1 => Ok(Self::None),
            2 => Ok(Self::Fax(Fax::Rows { align: 8 })),
            3 => Ok(Self::Fax(Fax::Group3 {
                two_dimensional: options & 1 != 0,
            })),
            4 => Ok(Self::Fax(Fax::Group4)),
            5 => Ok(Self::Lzw),
            7 => Ok(Self::jpeg(directory)?),
            // The last one is that of PixTIFF.
            8 | 32946 | 50013 => Ok(Self::Deflate),
            32771 => Ok(Self::Fax(Fax::Rows { align: 16 })),
            32773 => Ok(Self::PackBits),
            34925 => Ok(Self::Lzma),
            50000 => Ok(Self::Zstd),
            50001 => Ok(Self::WebP),
            other => match REFUSED.iter().find(|(number, _)| *number == other) {
                Some((_, name)) => Err(refused(name)),
                None => Err(refused(&format!("the unknown compression {other}"))),
            },
        }
    }

    fn jpeg(directory: &Directory) -> Result<Self, TiffError> {
        // The same choice as that of libtiff's and tifffile's readers: what a file calls RGB is that,
        // unless its streams say otherwise (some scanners' do).
        let more = directory.tag(n::EXTRA_SAMPLES).is_some();
        let colours = match directory.number(n::PHOTOMETRIC)? {
            Some(6) if !more => Colours::ToRgb,
            Some(2) if !more => Colours::ByMarker,
            _ => Colours::Raw,
        };
        let tables = directory.tag(n::JPEG_TABLES);
        Ok(Self::Jpeg {
            tables: tables.map(|tag| tag.bytes.clone()).unwrap_or_default(),
            colours,
        })
    }

    /// What it is called in messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::PackBits => "PackBits",
            Self::Lzw => "LZW",
            Self::Deflate => "Deflate",
            Self::Zstd => "ZSTD",
            Self::Lzma => "LZMA",
            Self::Fax(_) => "CCITT",
            Self::WebP => "WebP",
            Self::Jpeg { .. } => "JPEG",
        }
    }

    /// Whether the order of bits in bytes is that which the directory says: streams that are images by
    /// themselves have their own.
    #[must_use]
    pub const fn can_be_reversed(&self) -> bool {
        !matches!(self, Self::WebP | Self::Jpeg { .. })
    }

    /// The name of a flavour that a chunk alone tells, if it is one that is not decoded here.
    #[must_use]
    pub fn foreign(&self, data: &[u8]) -> Option<&'static str> {
        match self {
            Self::Jpeg { .. } => image::foreign_jpeg(data),
            _ => None,
        }
    }

    /// Decodes a chunk.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without where it is.
    pub fn decode(&self, data: &[u8], shape: Shape) -> Result<Vec<u8>, String> {
        match self {
            Self::None => Ok(data.to_vec()),
            Self::PackBits => pack_bits(data, shape.bytes),
            Self::Lzw => lzw(data, shape.bytes),
            Self::Deflate => deflate(data, shape),
            Self::Zstd => zstd(data, shape),
            Self::Lzma => lzma(data, shape.bytes),
            Self::Fax(fax) => fax.decode(data, shape.width, shape.rows),
            Self::WebP => image::webp(data, shape),
            Self::Jpeg { tables, colours } => image::jpeg(data, tables, *colours, shape),
        }
    }
}

/// What a chunk must decode to.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: u32,
    pub rows: u32,
    pub bands: u32,
    pub bytes: usize,
    /// Bytes of a whole chunk: some writers pad the last one of an image to it.
    pub most: usize,
}

fn short(has: usize, bytes: usize) -> String {
    format!("it ends after {has} of {bytes} bytes")
}

fn pack_bits(mut data: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    // Two bytes become at most 128.
    if data.len().saturating_mul(64) < bytes {
        return Err(short(data.len().saturating_mul(64), bytes));
    }
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        let Some((&code, rest)) = data.split_first() else {
            return Err(short(out.len(), bytes));
        };
        let left = bytes - out.len();
        match code {
            0..=127 => {
                let run = rest.len().min(usize::from(code) + 1);
                out.extend_from_slice(&rest[..run.min(left)]);
                data = &rest[run..];
            }
            128 => data = rest,
            129..=255 => {
                let Some((&value, rest)) = rest.split_first() else {
                    return Err(short(out.len(), bytes));
                };
                let run = 257 - usize::from(code);
                out.resize(out.len() + run.min(left), value);
                data = rest;
            }
        }
    }
    Ok(out)
}

fn lzw(data: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    // A code of 9 bits or more becomes at most 4096 bytes.
    if data.len().saturating_mul(4096) < bytes {
        return Err(short(data.len().saturating_mul(4096), bytes));
    }
    // Files from before TIFF 6.0 have codes from the lowest bit on, and widen them one code later: their
    // first code, 256, begins with these bits.
    let old = matches!(data, [0, second, ..] if second & 1 == 1);
    let configuration = if old {
        weezl::decode::Configuration::new(BitOrder::Lsb, 8)
    } else {
        weezl::decode::Configuration::with_tiff_size_switch(BitOrder::Msb, 8)
    };
    let mut decoder = configuration.with_yield_on_full_buffer(true).build();
    let mut out = vec![0; bytes];
    let (mut read, mut written) = (0, 0);
    while written < bytes {
        let done = decoder.decode_bytes(&data[read..], &mut out[written..]);
        read += done.consumed_in;
        written += done.consumed_out;
        match done.status {
            Ok(LzwStatus::Ok) if done.consumed_in + done.consumed_out > 0 => {}
            // Without an end, but nothing is missing.
            _ if written == bytes => {}
            Ok(_) => return Err(short(written, bytes)),
            Err(problem) => return Err(format!("{problem} after {written} of {bytes} bytes")),
        }
    }
    Ok(out)
}

/// Tries the chunk's bytes, and if they are more, those of a whole chunk.
fn exactly(
    shape: Shape,
    mut decode: impl FnMut(&mut [u8]) -> Result<usize, Option<String>>,
) -> Result<Vec<u8>, String> {
    let Shape { bytes, most, .. } = shape;
    let mut out = vec![0; bytes];
    let mut done = decode(&mut out);
    if matches!(done, Err(None)) && most > bytes {
        out = vec![0; most];
        done = decode(&mut out);
    }
    match done {
        Ok(length) if length >= bytes => {
            out.truncate(bytes);
            Ok(out)
        }
        Ok(length) => Err(short(length, bytes)),
        Err(None) => Err(format!("it has more than {most} bytes")),
        Err(Some(problem)) => Err(problem),
    }
}

fn deflate(data: &[u8], shape: Shape) -> Result<Vec<u8>, String> {
    use libdeflater::DecompressionError as Error;
    // 258 bytes for 2 bits, at best.
    if data.len().saturating_mul(1032) < shape.bytes {
        return Err(short(data.len().saturating_mul(1032), shape.bytes));
    }
    let mut decoder = libdeflater::Decompressor::new();
    exactly(shape, |out| {
        decoder
            .zlib_decompress(data, out)
            .map_err(|error| match error {
                Error::InsufficientSpace => None,
                Error::BadData => Some("its stream is broken".to_owned()),
            })
    })
}

fn zstd(data: &[u8], shape: Shape) -> Result<Vec<u8>, String> {
    // A block of 4 bytes becomes at most 128 KiB.
    let most = (data.len() / 4 + 1).saturating_mul(1 << 17);
    if most < shape.bytes {
        return Err(short(most, shape.bytes));
    }
    let mut decoder = zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?;
    exactly(shape, |out| {
        let room = out.len();
        let done = decoder.decompress_to_buffer(data, out);
        // The crate gives no kinds of errors: a second try with more room tells.
        done.map_err(|error| (room >= shape.most).then(|| error.to_string()))
    })
}

fn lzma(data: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    let reader = lzma_rust2::XzReader::new_mem_limit(data, false, LZMA_MEMORY);
    let mut out = Vec::new();
    let done = reader.take(bytes as u64).read_to_end(&mut out);
    match done {
        Ok(_) if out.len() == bytes => Ok(out),
        Ok(_) => Err(short(out.len(), bytes)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(bytes: usize) -> Shape {
        Shape {
            width: 1,
            rows: 1,
            bands: 1,
            bytes,
            most: bytes + 2,
        }
    }

    #[test]
    fn packed_bits_are_those_of_the_specification() {
        // The example of TIFF 6.0, section 9.
        let packed = [
            0xfe, 0xaa, 0x02, 0x80, 0x00, 0x2a, 0xfd, 0xaa, 0x03, 0x80, 0x00, 0x2a, 0x22, 0xf7,
            0xaa,
        ];
        let plain = [
            0xaa, 0xaa, 0xaa, 0x80, 0x00, 0x2a, 0xaa, 0xaa, 0xaa, 0xaa, 0x80, 0x00, 0x2a, 0x22,
            0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
        ];
        assert_eq!(
            Codec::PackBits.decode(&packed, shape(24)),
            Ok(plain.to_vec())
        );
        let short = Codec::PackBits
            .decode(&packed, shape(25))
            .expect_err("short");
        assert!(short.contains("24 of 25"), "{short}");
    }

    #[test]
    fn a_stream_that_decodes_to_more_than_its_chunk_is_an_error() {
        let zeros = [0; 1000];
        let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut deflated = vec![0; deflate.zlib_compress_bound(1000)];
        let length = deflate.zlib_compress(&zeros, &mut deflated).expect("room");
        deflated.truncate(length);
        let zstd = zstd::bulk::compress(&zeros, 3).expect("compressed");
        for (codec, data) in [(Codec::Deflate, &deflated), (Codec::Zstd, &zstd)] {
            assert_eq!(codec.decode(data, shape(1000)), Ok(zeros.to_vec()));
            // The last strip of an image may be padded.
            assert_eq!(codec.decode(data, shape(998)), Ok(vec![0; 998]));
            for bytes in [10, 997, 1001] {
                codec
                    .decode(data, shape(bytes))
                    .expect_err("too long or short");
            }
        }
    }

    #[test]
    fn both_kinds_of_lzw_are_told_apart() {
        let plain: Vec<u8> = (0..9000_u32)
            .map(|n| ((n * n) >> 5).to_le_bytes()[0])
            .collect();
        let mut now = weezl::encode::Encoder::with_tiff_size_switch(BitOrder::Msb, 8);
        let mut before = weezl::encode::Encoder::new(BitOrder::Lsb, 8);
        for encoder in [&mut now, &mut before] {
            let data = encoder.encode(&plain).expect("encoded");
            let decoded = Codec::Lzw.decode(&data, shape(9000));
            assert!(decoded.as_ref() == Ok(&plain), "{decoded:?}");
            let short = &data[..data.len() / 2];
            Codec::Lzw
                .decode(short, shape(9000))
                .expect_err("half of it");
        }
    }
}
