//! Texture: features of grey-level co-occurrence matrices, for a window around every pixel.
//!
//! After R. M. Haralick, K. Shanmugam and I. Dinstein, "Textural features for image classification", IEEE
//! Transactions on Systems, Man, and Cybernetics SMC-3 (1973), pages 610-621. No matrix is ever made: features
//! that are means of a function of a pair of levels come from running sums, and the others from how often each
//! pair of levels occurs in a window, counted as the window slides.
//!
//! ```
//! use pipt_simd::Level;
//! use pipt_simd::texture::{Feature, LevelImage, Levels, Parameters, Plan};
//!
//! let plan = Plan::new(&Parameters::new(3, 4, &[Feature::Energy, Feature::Entropy]))?;
//! assert_eq!(plan.halo().left, 1);
//! // One pixel, and a margin of one around it.
//! let levels = Levels::U8(&[0, 1, 2, 0, 1, 2, 0, 1, 2]);
//! let (mut energy, mut entropy) = ([0.0], [0.0]);
//! plan.run(
//!     Level::best(),
//!     &LevelImage::new(levels, None, 3, 1, 1),
//!     &mut [&mut energy, &mut entropy],
//! )?;
//! assert!((energy[0] - 0.270_833_3).abs() < 1e-6, "{}", energy[0]);
//! # Ok::<(), pipt_simd::texture::TextureError>(())
//! ```

mod aligned;
mod bins;
mod finish;
mod histogram;
mod image;
mod inverse;
mod logarithms;
mod matches;
mod maximal;
mod moments;
mod parameters;
mod plan;
mod quantise;
mod quantities;
mod rows;
mod tally;

pub use image::{LevelImage, Levels};
pub use parameters::{Combine, Feature, Logarithm, Offset, Pairs, Parameters, TextureError};
pub use plan::Plan;
pub use quantise::{Outside, QuantiseError, Quantiser};
