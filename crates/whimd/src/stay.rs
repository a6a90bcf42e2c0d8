//! Why a process of this node cannot move now.

use whim_image::stay::{self, Policy};

use crate::settings::Settings;

/// Reasons, each a sentence; empty: it may move.
#[must_use]
pub fn reasons(settings: &Settings, pid: i32) -> Vec<String> {
    let policy = Policy {
        allow_root: settings.config.allow_root,
        // Leases on files of others take a capability, which a supervisor of ours has then.
        leases: settings.holds_leases(),
        ..Policy::default()
    };
    let found = stay::reasons(pid, &policy);
    found.iter().map(|reason| format!("{reason}.")).collect()
}
