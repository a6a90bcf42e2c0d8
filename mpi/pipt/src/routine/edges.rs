//! Edges and sharpening.

use super::Routine;

/// All of them.
pub(super) const ALL: &[Routine] = &[];
