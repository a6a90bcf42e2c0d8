//! Point operations, of one image and of two.

use super::Routine;

/// All of them.
pub(super) const ALL: &[Routine] = &[];
