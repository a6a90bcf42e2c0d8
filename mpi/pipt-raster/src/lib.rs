//! An image as numbers: types of samples, rectangles of them, and where they come from.
//!
//! Every crate of the image toolkit speaks of images in these words; none of them is bound to a file format.

#![forbid(unsafe_code)]

pub mod rect;
pub mod sample;
pub mod samples;
pub mod source;

pub use rect::{Rect, Size};
pub use sample::{Sample, SampleType};
pub use samples::Samples;
pub use source::{Info, Source};
