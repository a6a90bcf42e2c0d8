//! Why a process of this node cannot move now.

use crate::settings::Settings;

/// Reasons, each a sentence; empty: it may move.
#[must_use]
pub fn reasons(_settings: &Settings, _pid: i32) -> Vec<String> {
    Vec::new()
}
