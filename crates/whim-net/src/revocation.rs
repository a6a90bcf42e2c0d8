//! Peers that are no longer trusted although their certificates are still valid.

use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use crate::name::{NodeName, PeerIdentity};

/// One entry of the revocation list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Revoked {
    /// Every certificate with this node's name.
    Node(NodeName),
    /// A certificate's serial number, lower-case hexadecimal: a node may come back under the same
    /// name with a new certificate.
    Serial(String),
}

impl Revoked {
    #[must_use]
    pub fn covers(&self, peer: &PeerIdentity) -> bool {
        match self {
            Self::Node(name) => *name == peer.node,
            Self::Serial(serial) => *serial == peer.serial || *serial == peer.node_serial,
        }
    }
}

/// The list as verifiers see it: cheap to clone, and every clone sees each change at once.
#[derive(Clone, Debug, Default)]
pub struct RevocationList(Arc<RwLock<Vec<Revoked>>>);

impl RevocationList {
    #[must_use]
    pub fn new(entries: Vec<Revoked>) -> Self {
        Self(Arc::new(RwLock::new(entries)))
    }

    /// Replaces the whole list.
    pub fn replace(&self, entries: Vec<Revoked>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    /// Whether `peer` is refused. Ask again for live connections after each change.
    #[must_use]
    pub fn refuses(&self, peer: &PeerIdentity) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|r| r.covers(peer))
    }

    #[must_use]
    pub fn entries(&self) -> Vec<Revoked> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
