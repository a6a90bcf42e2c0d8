//! Means and smoothing.

use super::Routine;

/// All of them.
pub(super) const ALL: &[Routine] = &[];
