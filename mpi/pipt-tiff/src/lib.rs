//! TIFF and BigTIFF files: parts of an image are read from them, and tiles are written to them, by many
//! threads at once.
//!
//! The container (header, directories, strips and tiles, predictors, widths of samples) is our own, by TIFF
//! 6.0, its Technical Notes and the BigTIFF design; streams are decoded by crates for each compression.
//!
//! # What is read
//!
//! Every file is either read as `tifffile` reads it, number by number, or refused by a sentence that names
//! what it is. `tests/oracle.rs` compares them. Where tifffile refuses a file or stops within it, what is read is
//! what libtiff reads.
//!
//! | of a file | read | refused |
//! |---|---|---|
//! | format | TIFF and BigTIFF, both orders of bytes, each of up to 2^20 pages | |
//! | layout | strips and tiles, bands beside each other or in planes, up to 65535 bands, tags of strips or tiles that are missing or sparse where they can be told | volumes (`ImageDepth`), bands of different widths or types |
//! | integers | 1 to 64 bits, with a sign and without; odd widths become the next wider type; `FillOrder` 2 | |
//! | floats | 32 and 64 bits; 16 and 24 become 32 bits by choice ([`Narrow`]) | 16 and 24 bits without a choice |
//! | complex | magnitude, real or imaginary part by choice ([`Complex`]); floats of 2 x 16, 32, 64 bits, integers of 2 x 8, 16, 32 | without a choice |
//! | meaning | numbers as they are: indices of palettes, values where 0 is white, CMYK, CIELab, YCbCr; further samples are bands | YCbCr with subsampled chroma, in planes or not in JPEG |
//! | predictors | 1; 2 of 8, 16, 32, 64 bits; 3 of floats of 16, 32, 64 bits | 2 of other widths, DNG's 34892 to 34895 |
//! | lossless | none, PackBits, LZW of both kinds, Deflate (8, 32946, 50013), ZSTD, LZMA, CCITT run lengths (2, 32771), Group 3 of one and two dimensions, Group 4 | LERC, JBIG, JPEG 2000, JPEG XL, JPEG XR, PNG, ThunderScan, NeXT, Pixar, SGI log, and raw formats of cameras; Group 3 whose lines have ends between them but none before the first |
//! | lossy | JPEG of 8 bits, baseline and progressive, YCbCr as RGB; WebP | JPEG of 12 and 16 bits, lossless, with arithmetic coding, and of the old kind (6) |
//!
//! JPEG is the one exception from "number by number": its specification leaves the rounding of transforms
//! and the widening of chroma open, and the decoder here (`zune-jpeg`) differs from libjpeg-turbo by up to 5
//! of 255 in the files of the tests. Where JPEG pixels must be those of libjpeg-turbo, convert such files by
//! it first.
//!
//! # Files of others
//!
//! All pages of the test images of other programs were compared with tifffile 2026.3.3 and libtiff: all files that
//! begin as a TIFF does, whatever they are called. A file is counted by the worst of its pages.
//!
//! | of | files | equal | JPEG, by up to 5 | equal to libtiff | by us alone | refused | damaged |
//! |---|---|---|---|---|---|---|---|
//! | Orfeo ToolBox 8.1.1, all below `Data/Input` | 212 | 212 | | | | | |
//! | Pillow 13.0.0 | 104 | 87 | 8 | 1 | | 3 | 5 |
//! | Pillow's repository | 115 | 87 | 8 | | | 3 | 17 |
//! | libtiff 4.7.1 | 35 | 28 | 1 | 2 | | 4 | |
//! | LibTiff.Net | 458 | 402 | 17 | 2 | 3 | 32 | 2 |
//! | image-tiff, 130 of them made by fuzzers | 342 | 200 | 4 | 1 | 8 | 19 | 110 |
//! | TwelveMonkeys | 162 | 113 | 11 | 2 | | 31 | 5 |
//! | Commons Imaging | 53 | 45 | 8 | | | | |
//! | rasterio | 33 | 29 | 3 | | | | 1 |
//! | GeoTIFF's test data | 20 | 20 | | | | | |
//! | ImageMagick | 17 | 17 | | | | | |
//! | libvips | 9 | 5 | 1 | | | 3 | |
//!
//! None was different. Damaged are files that were cut or made up by fuzzers, or whose streams and tags are broken:
//! a few of them tifffile or libtiff read, and make up what is missing. Here each gives an error that says what is
//! wrong, and where. Those read by us alone are three of
//! CMYK JPEG in planes, which libtiff turns into RGB, and eight by fuzzers, of PackBits that goes on beyond its strip.
//!
//! All tags are kept as they are ([`Tiff::tags`]), and those that stay true for an image that is made of
//! another one can be handed on to a writer ([`Tiff::carried_tags`]).
//!
//! # What is written
//!
//! Tiled TIFF or BigTIFF, the lowest byte first, of any type and number of bands, in planes or beside each
//! other; uncompressed, Deflate, ZSTD or LZW, with or without a predictor; names and scales of bands and the
//! value for no data as GDAL has them; overviews. Not written: strips, JPEG, WebP, palettes, samples below a byte.
//!
//! [`Design`] says what a file will be, and encodes tiles, which needs no file: it can be done anywhere.
//! [`Writer`] puts them into the file. Planes are the default: a program that computes features gives each
//! as it is ready, and one who wants a single feature reads nothing of the others.
//!
//! # Limits
//!
//! What a file says of itself is checked before memory is taken for it: [`directory::MAX_PAGES`],
//! [`directory::MAX_TAGS`], [`directory::MAX_DIRECTORY_BYTES`], [`layout::MAX_CHUNKS`] and
//! [`ReadOptions::chunk_bytes`]; what a stream has beyond its chunk is not decoded (in Deflate and ZSTD it is an
//! error if it is more than a padded chunk), and one that cannot decode to so much is told by its length.

#![forbid(unsafe_code)]

pub mod at;
mod cache;
mod codec;
pub mod design;
pub mod directory;
mod encode;
pub mod error;
pub mod fuzz;
mod journal;
pub mod layout;
pub mod metadata;
mod overview;
pub mod reader;
pub mod tag;
mod unpack;
pub mod writer;

pub use at::ReadAt;
pub use codec::{Codec, Colours, Fax};
pub use design::{Compression, Design, Interleave, Predict, Reduce, WriteOptions};
pub use error::TiffError;
pub use layout::{Complex, Layout, Narrow, Predictor};
pub use metadata::Scale;
pub use reader::{ReadOptions, Tiff};
pub use tag::{FieldType, Tag};
pub use writer::{Finished, Writer};
