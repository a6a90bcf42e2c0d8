//! Whether this node's own processes may leave, and whether guests may come: as an administrator has told it, or
//! because its owner is back.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use thiserror::Error;
use whim_machine::sensors::Report;
use whim_secret::files::FileError;

use crate::members::peers::Still;

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

    /// What other nodes are told of it, but for `drain`.
    #[must_use]
    pub(crate) fn still(self) -> Still {
        Still {
            stay: self.stay,
            block: self.block,
            owner: self.owner,
            evacuate: self.evacuate,
        }
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
        let all = [
            (self.stay, "stay", "whim go"),
            (self.block, "block", "whim unblock"),
            (self.drain, "drain", "whim undrain"),
            (self.evacuate, "evacuate", "whim evacuate --undo"),
        ];
        let told = all.into_iter().filter(|(holds, ..)| *holds);
        let told = told.map(|(_, order, end)| format!("'{order}' holds until '{end}'"));
        let owner = self.owner.then(|| "its owner sits before it".to_owned());
        let why: Vec<String> = told.chain(owner).collect();
        let why = match why.is_empty() {
            true => String::new(),
            false => format!(" ({})", why.join("; ")),
        };
        format!("This node's own processes {leave}; guests are {guests}{why}")
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

/// Why a node refuses guests that is not drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Shut {
    #[error("it is blocked ('whim unblock' there lets them in)")]
    Blocked,
    #[error("it is evacuated ('whim evacuate --undo' there lets them in)")]
    Evacuated,
    #[error("its owner sits before it")]
    Owned,
}

impl Shut {
    /// All that hold.
    #[must_use]
    pub(crate) fn all(still: Still) -> Vec<Self> {
        let all = [
            (still.block, Self::Blocked),
            (still.evacuate, Self::Evacuated),
            (still.owner, Self::Owned),
        ];
        let hold = all.into_iter().filter(|(holds, _)| *holds);
        hold.map(|(_, why)| why).collect()
    }

    /// As a node reports it. `Blocked` stands also for what a node of an earlier version does not tell.
    #[must_use]
    pub(crate) fn of(report: &Report) -> Option<Self> {
        if report.evacuates {
            Some(Self::Evacuated)
        } else if report.owner_here {
            Some(Self::Owned)
        } else {
            report.blocked.then_some(Self::Blocked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_named_with_what_ends_it() {
        let told = Orders {
            evacuate: true,
            ..Orders::default()
        };
        assert_eq!(
            told.sentence(),
            "This node's own processes may not leave; guests are refused ('evacuate' holds until 'whim evacuate --undo')"
        );
        let none = Orders::default().sentence();
        assert_eq!(
            none,
            "This node's own processes may leave; guests are admitted"
        );
        let all = Orders {
            stay: true,
            block: true,
            drain: true,
            owner: true,
            evacuate: true,
        };
        for word in ["'whim go'", "'whim unblock'", "'whim undrain'", "owner"] {
            assert!(all.sentence().contains(word), "{}", all.sentence());
        }
        let shut = [Shut::Blocked, Shut::Evacuated, Shut::Owned];
        assert_eq!(Shut::all(all.still()), shut);
    }

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
