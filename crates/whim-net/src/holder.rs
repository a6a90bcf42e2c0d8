//! What only the holder of the CA keeps: its key, the tokens, and the certificates that it has signed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::name::{ClusterName, NodeName};
use crate::removal::SERIALS_MAX;
use crate::revocation::Revoked;
use crate::roster::{RevokedUntil, SignedRoster};
use crate::state::StateError;
use crate::tls::issue::{Authority, CLOCK_SKEW, Issued};
use crate::token::TokenBook;
use whim_secret::Concealed;
use whim_secret::files;

pub(crate) const CA_CERTIFICATE: &str = "ca.pem";
pub(crate) const CA_KEY: &str = "ca.key";
const BOOK: &str = "authority.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    serial: String,
    not_after: u64,
}

/// The records of the CA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    pub(crate) tokens: TokenBook,
    /// The signing certificates of each node that have not expired: these are what `remove` revokes.
    signed: BTreeMap<NodeName, Vec<Signed>>,
}

impl Book {
    pub(crate) fn record(&mut self, node: &NodeName, issued: &Issued, now: u64) {
        let list = self.signed.entry(node.clone()).or_default();
        list.retain(|s| s.not_after.saturating_add(CLOCK_SKEW) > now);
        list.push(Signed {
            serial: issued.serial.clone(),
            not_after: issued.not_after,
        });
    }

    /// Serial numbers of a node's certificates; if there are many, of the newest.
    pub(crate) fn serials(&self, node: &NodeName) -> Vec<String> {
        let signed = self.signed.get(node).map_or(&[][..], Vec::as_slice);
        let newest = signed.iter().rev().take(SERIALS_MAX);
        newest.map(|signed| signed.serial.clone()).collect()
    }

    /// Takes a node out; returns what must be revoked for it.
    pub(crate) fn strike(&mut self, node: &NodeName) -> Vec<RevokedUntil> {
        let signed = self.signed.remove(node).unwrap_or_default();
        signed
            .into_iter()
            .map(|s| RevokedUntil {
                what: Revoked::Serial(s.serial),
                // Verifiers accept a certificate for the skew beyond its end, so it must stay on the list as
                // long.
                until: s.not_after.saturating_add(2 * CLOCK_SKEW),
            })
            .collect()
    }
}

/// The CA with its records.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) authority: Authority,
    pub(crate) book: Book,
    directory: PathBuf,
}

/// A copy of the CA, as `whim ca backup` writes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {
    /// Version of this format.
    whim_ca_backup: u32,
    pub(crate) cluster: ClusterName,
    pub(crate) ca_pem: String,
    pub(crate) ca_key_pem: String,
    pub(crate) book: Book,
    pub(crate) roster: SignedRoster,
}

const BACKUP_VERSION: u32 = 1;

impl Holder {
    pub(crate) fn new(directory: &Path, authority: Authority, book: Book) -> Self {
        Self {
            authority,
            book,
            directory: directory.to_path_buf(),
        }
    }

    /// `None`: this node does not hold the CA.
    pub(crate) fn open(
        directory: &Path,
        cluster: &ClusterName,
        ca_pem: &str,
    ) -> Result<Option<Self>, StateError> {
        let path = directory.join(CA_KEY);
        let key = match files::read_secret(&path) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|e| StateError::Damaged {
                path,
                reason: e.to_string(),
            })?,
            Err(files::FileError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let authority = Authority::from_pem(cluster.clone(), ca_pem.to_owned(), &key)?;
        let path = directory.join(BOOK);
        let bytes = files::read_secret(&path)?;
        let book = serde_json::from_slice(&bytes).map_err(|e| StateError::Damaged {
            path,
            reason: e.to_string(),
        })?;
        Ok(Some(Self::new(directory, authority, book)))
    }

    pub(crate) fn save_key(&self) -> Result<(), StateError> {
        let key = self.authority.key_pem();
        Ok(files::write_atomically(
            &self.directory.join(CA_KEY),
            key.as_bytes(),
        )?)
    }

    /// Writes changed records, and only then uses them: a change that could not be written has not happened.
    pub(crate) fn save_book(&mut self, book: Book) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(&book).map_err(|e| StateError::Encode(e.to_string()))?;
        files::write_atomically(&self.directory.join(BOOK), &bytes)?;
        self.book = book;
        Ok(())
    }

    pub(crate) fn backup(&self, roster: &SignedRoster) -> Result<Concealed, StateError> {
        let backup = Backup {
            whim_ca_backup: BACKUP_VERSION,
            cluster: self.authority.cluster().clone(),
            ca_pem: self.authority.certificate_pem().to_owned(),
            ca_key_pem: self.authority.key_pem(),
            book: self.book.clone(),
            roster: roster.clone(),
        };
        let text = serde_json::to_string(&backup);
        text.map(Concealed::new)
            .map_err(|e| StateError::Encode(e.to_string()))
    }
}

impl Backup {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, StateError> {
        // An error of the decoder may quote what it reads, and that contains the CA's key.
        let backup: Self = serde_json::from_slice(bytes)
            .map_err(|e| StateError::Backup(format!("line {}, column {}", e.line(), e.column())))?;
        match backup.whim_ca_backup {
            BACKUP_VERSION => Ok(backup),
            other => Err(StateError::Backup(format!("it has version {other}"))),
        }
    }
}
