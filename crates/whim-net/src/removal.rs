//! The CA's notice that a node was removed: the node's name, its certificates, and when. A member that refuses
//! the node hands it the notice, and the node believes nothing else. So no member can make it think that it was
//! removed, and none tells it who the members are now.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::{ClusterName, NodeName, PeerIdentity};
use crate::tls::TlsError;
use crate::tls::digest::signature_holds;
use crate::tls::issue::Authority;
use whim_secret::hexadecimal::{hex, unhex};

/// How many notices are kept, the newest ones. A node that comes back later is refused without one.
pub const REMOVALS_MAX: usize = 64;
/// How many certificates a notice names, the newest ones.
pub const SERIALS_MAX: usize = 16;
/// The most bytes of a notice in JSON.
pub const REMOVAL_LENGTH_MAX: usize = 2048;
const SIGNATURE_LENGTH_MAX: usize = 256;

/// Prefix of what is signed, so that no other signature of the CA can stand in for it.
const DOMAIN: &[u8] = b"whim removal v1\0";

/// The notice that a node was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    pub cluster: ClusterName,
    pub node: NodeName,
    /// Serial numbers of its signing certificates: a node of this name that joins later has others.
    pub serials: Vec<String>,
    /// When, in Unix seconds.
    pub at: u64,
    /// Version of the first list of members without the node. A later list may name it again.
    pub version: u64,
}

impl Removal {
    /// Whether this notice is about the peer of a connection.
    #[must_use]
    pub fn is_of(&self, peer: &PeerIdentity) -> bool {
        self.is(&peer.node, &peer.node_serial)
    }

    pub(crate) fn is(&self, node: &NodeName, serial: &str) -> bool {
        self.node == *node && self.serials.iter().any(|known| known == serial)
    }

    pub(crate) fn sign(&self, authority: &Authority) -> Result<SignedRemoval, TlsError> {
        let json = serde_json::to_string(self).map_err(|e| TlsError::Credentials(e.to_string()))?;
        let signature = hex(&authority.sign(&[DOMAIN, json.as_bytes()].concat())?);
        Ok(SignedRemoval { json, signature })
    }
}

#[derive(Debug, Error)]
pub enum RemovalError {
    #[error("The notice of a removal is not signed by this cluster's CA: it is not believed")]
    Signature,
    #[error("The notice of a removal is damaged: {0}")]
    Damaged(String),
    #[error("The notice of a removal passes its limits")]
    TooLong,
    #[error("The notice of a removal is of {0}, or of a certificate that this node has no more")]
    Another(NodeName),
    #[error("The notice of a removal is older than the list of members, which names this node")]
    Older,
}

/// A removal as it is sent: the very bytes that were signed, and the signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedRemoval {
    pub json: String,
    pub signature: String,
}

impl SignedRemoval {
    /// Checks the signature first, then everything else. `point` is the public key of the CA.
    ///
    /// # Errors
    /// If it is not signed by that key, damaged, of another cluster, or beyond a limit.
    pub fn open(&self, point: &[u8], cluster: &ClusterName) -> Result<Removal, RemovalError> {
        if self.json.len() > REMOVAL_LENGTH_MAX || self.signature.len() > SIGNATURE_LENGTH_MAX {
            return Err(RemovalError::TooLong);
        }
        let signature = unhex(&self.signature).ok_or(RemovalError::Signature)?;
        if !signature_holds(point, &[DOMAIN, self.json.as_bytes()].concat(), &signature) {
            return Err(RemovalError::Signature);
        }
        let removal: Removal =
            serde_json::from_str(&self.json).map_err(|e| RemovalError::Damaged(e.to_string()))?;
        if removal.cluster != *cluster {
            return Err(RemovalError::Damaged(format!(
                "it is of cluster {}",
                removal.cluster
            )));
        }
        Ok(removal)
    }
}

/// The removals that a member knows, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removals {
    all: Vec<(Removal, SignedRemoval)>,
}

impl Removals {
    /// Adds a removal; returns true if that has changed something.
    pub(crate) fn add(&mut self, removal: Removal, signed: SignedRemoval) -> bool {
        if self.all.iter().any(|(known, _)| *known == removal) {
            return false;
        }
        let before = self.all.clone();
        self.all.push((removal, signed));
        self.all.sort_by_key(|(removal, _)| removal.at);
        let above = self.all.len().saturating_sub(REMOVALS_MAX);
        self.all.drain(..above);
        self.all != before
    }

    pub(crate) fn of(&self, peer: &PeerIdentity) -> Option<&SignedRemoval> {
        let found = self.all.iter().find(|(removal, _)| removal.is_of(peer));
        found.map(|(_, signed)| signed)
    }

    pub(crate) fn signed(&self) -> Vec<SignedRemoval> {
        self.all.iter().map(|(_, signed)| signed.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::point_of_certificate;

    fn removal(number: u64) -> Removal {
        Removal {
            cluster: ClusterName::new("test").expect("a name"),
            node: NodeName::new(format!("n{number}")).expect("a name"),
            serials: vec![format!("{number:040x}")],
            at: 1_800_000_000 + number,
            version: number,
        }
    }

    fn authority() -> Authority {
        let cluster = ClusterName::new("test").expect("a name");
        Authority::create(cluster, crate::unix_now()).expect("made")
    }

    fn open(signed: &SignedRemoval, authority: &Authority) -> Result<Removal, RemovalError> {
        let point = point_of_certificate(authority.certificate_pem()).expect("its key");
        signed.open(&point, authority.cluster())
    }

    #[test]
    fn a_notice_is_believed_up_to_its_limits() {
        let authority = authority();
        let largest = Removal {
            cluster: authority.cluster().clone(),
            node: NodeName::new("n".repeat(63)).expect("a name"),
            serials: vec!["f".repeat(40); SERIALS_MAX],
            at: u64::MAX,
            version: u64::MAX,
        };
        let signed = largest.sign(&authority).expect("signed");
        assert_eq!(open(&signed, &authority).expect("believed"), largest);
        let bytes = |length: usize| {
            let json = signed.json.clone() + &" ".repeat(length - signed.json.len());
            let signature = hex(&authority
                .sign(&[DOMAIN, json.as_bytes()].concat())
                .expect("signed"));
            SignedRemoval { json, signature }
        };
        open(&bytes(REMOVAL_LENGTH_MAX), &authority).expect("at the limit");
        let error = open(&bytes(REMOVAL_LENGTH_MAX + 1), &authority).expect_err("one above");
        assert!(matches!(error, RemovalError::TooLong), "{error}");
    }

    #[test]
    fn the_newest_notices_are_kept() {
        let authority = authority();
        let mut removals = Removals::default();
        let mut add = |number: u64| {
            let removal = removal(number);
            let signed = removal.sign(&authority).expect("signed");
            removals.add(removal, signed)
        };
        let most = u64::try_from(REMOVALS_MAX).expect("small");
        for number in 1..=most {
            assert!(add(number));
            assert!(!add(number), "it is known");
        }
        assert!(!add(0), "older than all that are kept");
        assert!(add(most + 1));
        let kept: Vec<u64> = removals.all.iter().map(|(r, _)| r.version).collect();
        assert_eq!(kept, (2..=most + 1).collect::<Vec<_>>());
    }
}
