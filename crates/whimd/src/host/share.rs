//! How much of this node's memory its guests may use together.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use whim_control::config::Config;
use whim_machine::cgroup;

use crate::settings::Settings;

/// What all guests may use of this node's memory together, in bytes.
#[must_use]
pub(crate) fn of_guests(config: &Config) -> u64 {
    let (total, _) = whim_machine::sensors::memory();
    config.guests.share(total)
}

/// Tells the share to the supervisors of guests and to the kernel, as far as they do not know it: an
/// earlier daemon may have had another configuration, and this node's memory may change.
pub(crate) fn hold(settings: &Settings, share: u64) {
    // The file is written in place, always with the same length: supervisors have it open, and may read
    // it at any time.
    let text = format!("{share:020}\n");
    let path = settings.guests_share();
    if !std::fs::read_to_string(&path).is_ok_and(|now| now == text) {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let written = options
            .open(&path)
            .and_then(|file| file.write_all_at(text.as_bytes(), 0));
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "guests are not told of their limit");
        }
    }
    cgroup::hold_share(&settings.group_prefix(), share);
}
