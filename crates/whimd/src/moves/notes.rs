//! What is noted of journeys, in files.

use std::fs;

use crate::blocking::blocking;
use crate::moves::attempt::MoveError;
use crate::moves::journeys::About;
use crate::settings::Settings;

/// Notes what is to be known of a journey.
///
/// # Errors
/// A full disk, mostly.
pub(crate) fn write_about(settings: &Settings, about: &About) -> Result<(), MoveError> {
    let path = settings.journeys().join(format!("{}.json", about.journey));
    let bytes = serde_json::to_vec(about).map_err(|e| MoveError::Refused(e.to_string()))?;
    blocking(|| whim_secret::files::write_atomically(&path, &bytes))
        .map_err(|e| MoveError::Refused(e.to_string()))
}

/// Removes what was noted of a journey.
pub(crate) fn forget(settings: &Settings, id: &str) {
    blocking(|| {
        for kind in ["json", "journal"] {
            let _ = fs::remove_file(settings.journeys().join(format!("{id}.{kind}")));
        }
    });
}
