//! What is noted of journeys, in files.

use std::fs;

use crate::daemon::Daemon;
use crate::moves::attempt::MoveError;
use crate::moves::journeys::About;

/// Notes what is to be known of a journey.
///
/// # Errors
/// A full disk, mostly.
pub(crate) fn write_about(daemon: &Daemon, about: &About) -> Result<(), MoveError> {
    let path = daemon
        .settings()
        .journeys()
        .join(format!("{}.json", about.journey));
    let bytes = serde_json::to_vec(about).map_err(|e| MoveError::Refused(e.to_string()))?;
    whim_secret::files::write_atomically(&path, &bytes)
        .map_err(|e| MoveError::Refused(e.to_string()))
}

/// Removes what was noted of a journey.
pub(crate) fn forget(daemon: &Daemon, id: &str) {
    for kind in ["json", "journal"] {
        let _ = fs::remove_file(daemon.settings().journeys().join(format!("{id}.{kind}")));
    }
}
