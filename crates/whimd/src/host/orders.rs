//! Whether this node's own processes may leave, and whether guests may come: as an administrator has told it, or
//! because its owner is back.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use thiserror::Error;
use whim_secret::files::FileError;

/// An order was not taken: all is as before.
#[derive(Debug, Error)]
#[error("This node could not note what it was told, and does not follow it: {0}")]
pub(crate) struct NotNoted(#[from] FileError);

/// The file of the orders, below the state directory; they are kept over restarts of the daemon.
pub(crate) const FILE: &str = "orders.json";

/// What this node was told. `stay`, `block` and `drain` are openMosix's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Orders {
    /// `whim stay`: this node's own processes may not leave.
    pub stay: bool,
    /// `whim block`: guests are refused.
    pub block: bool,
    /// `whim drain`: both, and the guests that are here leave.
    pub drain: bool,
    /// The node's owner sits before it: guests are refused, and those that are here leave.
    #[serde(skip)]
    pub owner: bool,
    /// `whim evacuate`: this node is about to go down.
    #[serde(skip)]
    pub evacuate: bool,
}

impl Orders {
    /// The orders that were noted last; none if they cannot be understood.
    #[must_use]
    pub(crate) fn load(path: &Path) -> Self {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "what this node was told is lost");
                return Self::default();
            }
        };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "what this node was told is lost");
            Self::default()
        })
    }

    /// What is kept of the orders over restarts.
    #[must_use]
    pub(crate) fn noted(self) -> Vec<u8> {
        serde_json::to_vec(&self).unwrap_or_default()
    }

    /// Whether it admits no guests.
    #[must_use]
    pub(crate) fn refuses(self) -> bool {
        self.block || self.drain || self.owner || self.evacuate
    }

    /// What holds now, as a sentence.
    #[must_use]
    pub(crate) fn sentence(self) -> String {
        let leave = if self.keeps().is_some() {
            "may not leave"
        } else {
            "may leave"
        };
        let guests = if self.refuses() {
            "refused"
        } else {
            "admitted"
        };
        format!("This node's own processes {leave}; guests are {guests}")
    }

    /// Why its own processes stay, as a sentence.
    #[must_use]
    pub(crate) fn keeps(self) -> Option<&'static str> {
        if self.evacuate {
            Some(
                "This node is going down: its own processes stay ('whim evacuate --undo' ends that).",
            )
        } else if self.drain {
            Some("This node is being drained: its own processes stay ('whim undrain' ends that).")
        } else if self.stay {
            Some("This node keeps its own processes ('whim go' lets them leave).")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_kept_and_the_unreadable_is_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        assert_eq!(Orders::load(&path), Orders::default());
        let told = Orders {
            stay: true,
            ..Orders::default()
        };
        fs::write(&path, serde_json::to_vec(&told).expect("encoded")).expect("written");
        assert_eq!(Orders::load(&path), told);
        fs::write(&path, "{").expect("written");
        assert_eq!(Orders::load(&path), Orders::default());
    }

    #[test]
    fn a_drained_node_keeps_its_own_whatever_else_it_was_told() {
        let told = |stay, drain| Orders {
            stay,
            drain,
            ..Orders::default()
        };
        assert!(told(false, false).keeps().is_none());
        assert!(
            told(true, false)
                .keeps()
                .is_some_and(|why| why.contains("whim go"))
        );
        for stay in [false, true] {
            let why = told(stay, true).keeps().expect("it keeps them");
            assert!(why.contains("undrain"), "{why}");
        }
    }
}
