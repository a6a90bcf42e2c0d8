//! Inner loops of the image toolkit, compiled for each instruction set and chosen at run time.
//!
//! All of them give the same bits: they count in integers until the last step, and sums of floats have one
//! order. What an instruction set changes is the time. This is the one crate of the toolkit's kernels in
//! which `unsafe` may be written. It is written for calls of what is compiled for an instruction set, in
//! [`level`] and `texture::tally`, and where the files of `texture::tally` read and write vectors.

pub mod level;
pub mod noise;
pub mod rank;
pub mod texture;

pub use level::Level;
