//! Pixels in other places.

use super::Routine;

/// All of them.
pub(super) const ALL: &[Routine] = &[];
