//! The list of members, signed by the CA, so that any node may hand it on.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::{ClusterName, NodeName};
use crate::revocation::Revoked;
use crate::tls::TlsError;
use crate::tls::digest::signature_holds;
use crate::tls::issue::Authority;
use whim_secret::hexadecimal::{hex, unhex};

/// The most members of a cluster.
pub const MEMBERS_MAX: usize = 10_000;
/// The most addresses of a member, and the most bytes of each.
pub const ADDRESSES_MAX: usize = 16;
pub const ADDRESS_LENGTH_MAX: usize = 300;
/// Longest description of a migration class, in bytes.
pub const CLASS_LENGTH_MAX: usize = 4096;
/// Longest list in JSON, in bytes.
pub const ROSTER_LENGTH_MAX: usize = 15 << 20;

/// How far a restored list is put above its backup. Changes since then have raised the list by their number or to
/// the time of a clock that went wrong: by far less than this.
const RESTORED: u64 = 1 << 32;

/// Prefix of what is signed, so that no other signature of the CA can stand in for it.
const DOMAIN: &[u8] = b"whim roster v1\0";

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub name: NodeName,
    /// `HOST:PORT` or `[V6]:PORT`, the most likely first.
    pub addresses: Vec<String>,
    /// Migration class, as the crate that compares classes writes it; may be empty.
    pub class: String,
    /// When it was admitted, in Unix seconds.
    pub added: u64,
}

impl Member {
    /// Checks the limits of what came from outside.
    ///
    /// # Errors
    /// Too many or too long.
    pub fn check(&self) -> Result<(), RosterError> {
        let long = self
            .addresses
            .iter()
            .any(|a| a.len() > ADDRESS_LENGTH_MAX || a.is_empty());
        if self.addresses.len() > ADDRESSES_MAX || long || self.class.len() > CLASS_LENGTH_MAX {
            return Err(RosterError::Limits(self.name.clone()));
        }
        Ok(())
    }
}

/// An entry of the revocation list, which is dropped once its certificate has expired anyway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokedUntil {
    pub what: Revoked,
    /// Unix seconds.
    pub until: u64,
}

/// Members and revocations at one moment. Only the holder of the CA makes a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roster {
    pub cluster: ClusterName,
    /// Grows with each change, and is never below the time of the change in Unix seconds. A CA that comes back
    /// from a backup continues far above it, and so above what others have seen since.
    pub version: u64,
    /// The node that holds the CA.
    pub holder: NodeName,
    pub members: Vec<Member>,
    pub revoked: Vec<RevokedUntil>,
}

impl Roster {
    #[must_use]
    pub fn member(&self, name: &NodeName) -> Option<&Member> {
        self.members.iter().find(|m| m.name == *name)
    }

    /// The revocations without their dates.
    #[must_use]
    pub fn revocations(&self) -> Vec<Revoked> {
        self.revoked.iter().map(|r| r.what.clone()).collect()
    }

    /// Prepares a change: sets the next version, and drops revocations that have expired.
    pub(crate) fn advance(&mut self, now: u64) {
        self.version = self.version.saturating_add(1).max(now);
        self.revoked.retain(|r| r.until > now);
    }

    /// Puts a list from a backup above all that others may hold.
    pub(crate) fn raise(&mut self, now: u64) {
        self.version = self.version.max(now).saturating_add(RESTORED);
    }

    /// Since when its holder has been that, by the clock of the time.
    pub(crate) fn held_since(&self) -> u64 {
        self.member(&self.holder).map_or(0, |member| member.added)
    }

    /// Signs the list.
    ///
    /// # Errors
    /// No random numbers.
    pub fn sign(&self, authority: &Authority) -> Result<SignedRoster, TlsError> {
        let json = serde_json::to_string(self).map_err(|e| TlsError::Credentials(e.to_string()))?;
        let signature = hex(&authority.sign(&[DOMAIN, json.as_bytes()].concat())?);
        Ok(SignedRoster { json, signature })
    }
}

#[derive(Debug, Error)]
pub enum RosterError {
    #[error("The list of members is not signed by this cluster's CA: it is not used")]
    Signature,
    #[error("The list of members is damaged: {0}")]
    Damaged(String),
    #[error("The list of members is that of cluster {0}: it is not used")]
    Cluster(ClusterName),
    #[error("The list of members passes the limits ({MEMBERS_MAX} members, 15 MiB)")]
    TooLong,
    #[error("Member {0} has too many addresses, or one too long: the limit is {ADDRESSES_MAX}")]
    Limits(NodeName),
}

/// A list of members as it is sent: the very bytes that were signed, and the signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedRoster {
    pub json: String,
    pub signature: String,
}

impl SignedRoster {
    /// Checks the signature first, then everything else. `point` is the public key of the CA.
    ///
    /// # Errors
    /// If it is not signed by that key, damaged, of another cluster, or beyond a limit.
    pub fn open(&self, point: &[u8], cluster: &ClusterName) -> Result<Roster, RosterError> {
        if self.json.len() > ROSTER_LENGTH_MAX || self.signature.len() > 256 {
            return Err(RosterError::TooLong);
        }
        let signature = unhex(&self.signature).ok_or(RosterError::Signature)?;
        if !signature_holds(point, &[DOMAIN, self.json.as_bytes()].concat(), &signature) {
            return Err(RosterError::Signature);
        }
        let roster: Roster =
            serde_json::from_str(&self.json).map_err(|e| RosterError::Damaged(e.to_string()))?;
        if roster.cluster != *cluster {
            return Err(RosterError::Cluster(roster.cluster));
        }
        if roster.members.len() > MEMBERS_MAX {
            return Err(RosterError::TooLong);
        }
        roster.members.iter().try_for_each(Member::check)?;
        Ok(roster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::point_of_certificate;

    fn authority() -> Authority {
        let cluster = ClusterName::new("test").expect("a name");
        Authority::create(cluster, crate::unix_now()).expect("made")
    }

    fn roster(members: usize) -> Roster {
        let member = |number| Member {
            name: NodeName::new(format!("n{number}")).expect("a name"),
            addresses: vec![format!("n{number}.test:7946")],
            class: "x86-64".into(),
            added: 0,
        };
        Roster {
            cluster: ClusterName::new("test").expect("a name"),
            version: 1,
            holder: NodeName::new("n0").expect("a name"),
            members: (0..members).map(member).collect(),
            revoked: Vec::new(),
        }
    }

    fn open(signed: &SignedRoster, authority: &Authority) -> Result<Roster, RosterError> {
        let point = point_of_certificate(authority.certificate_pem()).expect("its key");
        signed.open(&point, authority.cluster())
    }

    #[test]
    fn a_list_names_members_up_to_their_limit() {
        let authority = authority();
        let largest = roster(MEMBERS_MAX);
        let signed = largest.sign(&authority).expect("signed");
        assert_eq!(open(&signed, &authority).expect("used"), largest);
        let above = roster(MEMBERS_MAX + 1).sign(&authority).expect("signed");
        let error = open(&above, &authority).expect_err("one member more");
        let sentence = "The list of members passes the limits (10000 members, 15 MiB)";
        assert_eq!(error.to_string(), sentence);
    }

    #[test]
    fn a_list_is_used_up_to_its_limit() {
        let authority = authority();
        let json = serde_json::to_string(&roster(3)).expect("encoded");
        let signed = |length: usize| {
            let json = json.clone() + &" ".repeat(length - json.len());
            let bytes = [DOMAIN, json.as_bytes()].concat();
            let signature = hex(&authority.sign(&bytes).expect("signed"));
            SignedRoster { json, signature }
        };
        let largest = signed(ROSTER_LENGTH_MAX);
        assert_eq!(largest.json.len(), ROSTER_LENGTH_MAX);
        assert_eq!(open(&largest, &authority).expect("used"), roster(3));
        let error = open(&signed(ROSTER_LENGTH_MAX + 1), &authority).expect_err("one byte more");
        assert!(matches!(error, RosterError::TooLong), "{error}");
    }

    #[test]
    fn members_are_taken_up_to_their_limits() {
        let member = |addresses: usize, length: usize, class: usize| Member {
            name: NodeName::new("n1").expect("a name"),
            addresses: vec!["x".repeat(length); addresses],
            class: "x".repeat(class),
            added: 0,
        };
        let largest = member(ADDRESSES_MAX, ADDRESS_LENGTH_MAX, CLASS_LENGTH_MAX);
        assert!(largest.check().is_ok());
        for above in [
            member(ADDRESSES_MAX + 1, ADDRESS_LENGTH_MAX, CLASS_LENGTH_MAX),
            member(ADDRESSES_MAX, ADDRESS_LENGTH_MAX + 1, CLASS_LENGTH_MAX),
            member(ADDRESSES_MAX, ADDRESS_LENGTH_MAX, CLASS_LENGTH_MAX + 1),
            member(1, 0, 0),
        ] {
            let error = above.check().expect_err("one above");
            assert!(matches!(error, RosterError::Limits(_)), "{error}");
        }
    }
}
