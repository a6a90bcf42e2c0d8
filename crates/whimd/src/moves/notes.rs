//! What is noted of journeys, in files.

use std::fs;
use tokio::runtime::{Handle, RuntimeFlavor};

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
    on_disk(|| whim_secret::files::write_atomically(&path, &bytes))
        .map_err(|e| MoveError::Refused(e.to_string()))
}

/// Does what may take as long as a disk stands still. Other threads of the runtime do meanwhile what else this one has to
/// do; no lock may be held that they need.
pub(crate) fn on_disk<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There are no others.
        _ => work(),
    }
}

/// Removes what was noted of a journey.
pub(crate) fn forget(settings: &Settings, id: &str) {
    on_disk(|| {
        for kind in ["json", "journal"] {
            let _ = fs::remove_file(settings.journeys().join(format!("{id}.{kind}")));
        }
    });
}
