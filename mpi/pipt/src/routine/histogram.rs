//! Histograms, and what follows from those of a whole image.

use super::Routine;

/// All of them.
pub(super) const ALL: &[Routine] = &[];
