//! A node's identity on disk, and what can be done with it.
//!
//! ```text
//! STATE/lock             held by the process that has the state open
//! STATE/node.json        name, cluster, signing certificate and its key   (0600)
//! STATE/ca.pem           the cluster's CA
//! STATE/roster.json      members and revocations, signed by the CA
//! STATE/removals.json    notices for nodes that were removed, each signed by the CA
//! STATE/removed.json     the notice that this node itself was removed, once it has one
//! STATE/ca.key           \ only on the node that ran `init`               (0600)
//! STATE/authority.json   / tokens (hashed), certificates signed           (0600)
//! ```
//! Time is always a parameter, in Unix seconds. The node's TLS leaf is made anew at each start and on request;
//! it is never on disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::holder::{Backup, Book, CA_CERTIFICATE, CA_KEY, Holder};
use crate::name::{ClusterName, JourneyId, NodeName, PeerExpectation, PeerIdentity, Role, Subject};
use crate::removal::{REMOVALS_MAX, Removal, RemovalError, Removals, SignedRemoval};
use crate::revocation::{RevocationList, Revoked};
use crate::roster::{Member, Roster, RosterError, SignedRoster};
use crate::tls::digest::random;
use crate::tls::issue::{
    Authority, CLOCK_SKEW, Issued, JOURNEY_LIFE, NODE_LIFE, NodeSigner, SecretKey,
};
use crate::tls::{self, Credentials, TlsError, point_of_certificate};
use crate::token::TokenError;
use whim_secret::files::{self, FileError};
use whim_secret::hexadecimal::{hex, unhex};

const NODE: &str = "node.json";
const ROSTER: &str = "roster.json";
const REMOVALS: &str = "removals.json";
const REMOVED: &str = "removed.json";
const LOCK: &str = "lock";
const PENDING: &str = "pending.key";

#[derive(Debug, Error)]
pub enum StateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Removal(#[from] RemovalError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("Another process uses {0}: the daemon runs; ask it, or stop it first")]
    Busy(PathBuf),
    #[error(
        "{0} holds no identity: run `whim init` for a new cluster, or `whim join` with a token"
    )]
    Missing(PathBuf),
    #[error(
        "{0} holds an identity already: run `whim leave` first if this node shall change cluster"
    )]
    Exists(PathBuf),
    #[error(
        "{path} is damaged ({reason}): restore it from a backup, or leave the cluster and join again"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("Only {0} holds the CA of this cluster: run the command there")]
    NotHolder(NodeName),
    #[error("There is no member named {0}: `whim nodes` lists them")]
    UnknownMember(NodeName),
    #[error(
        "There is a member named {0} already: choose another name, or remove the old one with `whim remove {0}`"
    )]
    NameTaken(NodeName),
    #[error(
        "{0} holds the CA and cannot be removed: restore a backup of the CA on another node first"
    )]
    RemoveHolder(NodeName),
    #[error("The request for a new certificate is refused: {0}")]
    Renewal(&'static str),
    #[error(
        "What was given as a backup of the CA is none that this version reads ({0}): give the file that `whim ca backup` wrote"
    )]
    Backup(String),
    #[error("Failed to encode a file of the state directory: {0}")]
    Encode(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    cluster: ClusterName,
    node: NodeName,
    certificate: Issued,
    key_pem: String,
}

/// How a node names itself when a cluster is made or joined.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub node: NodeName,
    /// `HOST:PORT` under which other nodes reach it.
    pub addresses: Vec<String>,
    /// Migration class; may be empty.
    pub class: String,
}

/// The identity of this node, open and locked.
#[derive(Debug)]
pub struct State {
    pub(crate) directory: PathBuf,
    _lock: File,
    node: NodeName,
    cluster: ClusterName,
    ca_pem: String,
    ca_point: Vec<u8>,
    signer: NodeSigner,
    roster: Roster,
    signed_roster: SignedRoster,
    revocations: RevocationList,
    /// The notices for nodes that were removed.
    removals: Removals,
    /// The notice that this node itself was removed.
    removed: Option<Removal>,
    pub(crate) holder: Option<Holder>,
}

/// A directory that is about to become a node's state. It is locked, and it has been proved that files can be
/// written to it before a token is spent on it.
#[derive(Debug)]
pub struct Vacant {
    directory: PathBuf,
    lock: File,
    key: SecretKey,
}

impl Vacant {
    /// Makes and locks the directory, and writes a new key to it.
    ///
    /// # Errors
    /// If there is an identity already, another process uses the directory, or the disk is full.
    pub fn claim(directory: &Path) -> Result<Self, StateError> {
        files::make_private_directory(directory)?;
        let lock = lock(directory)?;
        if State::exists(directory) {
            return Err(StateError::Exists(directory.to_path_buf()));
        }
        let key = SecretKey::generate()?;
        files::write_atomically(&directory.join(PENDING), key.to_pem().as_bytes())?;
        // Files that an interrupted attempt may have left.
        for name in [
            CA_KEY,
            "authority.json",
            ROSTER,
            CA_CERTIFICATE,
            REMOVALS,
            REMOVED,
        ] {
            files::remove(&directory.join(name))?;
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            lock,
            key,
        })
    }

    pub(crate) fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Completes the state. `node.json` is written last, because without it there is no identity.
    pub(crate) fn settle(
        self,
        node: NodeName,
        ca_pem: String,
        certificate: Issued,
        signed_roster: SignedRoster,
        holder: Option<Holder>,
    ) -> Result<State, StateError> {
        let Self {
            directory,
            lock,
            key,
        } = self;
        let ca_point = point_of_certificate(&ca_pem)?;
        let signer = NodeSigner::new(node.clone(), certificate, key)?;
        let cluster = signer_cluster(&signer)?;
        let roster = signed_roster.open(&ca_point, &cluster)?;
        files::write_atomically(&directory.join(CA_CERTIFICATE), ca_pem.as_bytes())?;
        let state = State {
            revocations: RevocationList::new(roster.revocations()),
            directory,
            _lock: lock,
            node,
            cluster,
            ca_pem,
            ca_point,
            signer,
            roster,
            signed_roster,
            removals: Removals::default(),
            removed: None,
            holder,
        };
        state.save_roster(&state.signed_roster)?;
        state.save_node(&state.signer)?;
        files::remove(&state.directory.join(PENDING))?;
        Ok(state)
    }
}

/// Cluster of a signing certificate.
fn signer_cluster(signer: &NodeSigner) -> Result<ClusterName, StateError> {
    Ok(tls::subject_of_certificate(&signer.certificate().pem)?
        .cluster()
        .clone())
}

fn lock(directory: &Path) -> Result<File, StateError> {
    let path = directory.join(LOCK);
    let failed = |source| FileError::Io {
        action: "lock",
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StateError::Busy(directory.to_path_buf())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source).into()),
    }
}

/// The content of a file of the directory; `None`: the file does not exist.
fn kept<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<Option<T>, StateError> {
    let path = directory.join(name);
    match files::read(&path) {
        Ok(bytes) => {
            let read = serde_json::from_slice(&bytes);
            read.map(Some).map_err(|e| StateError::Damaged {
                path,
                reason: e.to_string(),
            })
        }
        Err(FileError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl State {
    /// Whether a directory holds an identity.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        directory.join(NODE).exists()
    }

    /// Makes a new cluster, of which this node is the first member and holds the CA. `cluster` is its name,
    /// which is drawn at random if it is `None`.
    ///
    /// # Errors
    /// There is an identity already, or the directory cannot be written.
    pub fn init(
        directory: &Path,
        options: &NodeOptions,
        cluster: Option<ClusterName>,
        now: u64,
    ) -> Result<Self, StateError> {
        let vacant = Vacant::claim(directory)?;
        let cluster = match cluster {
            Some(name) => name,
            None => ClusterName::new(hex(&random::<8>()?))
                .map_err(|e| StateError::Encode(e.to_string()))?,
        };
        let authority = Authority::create(cluster.clone(), now)?;
        let roster = Roster {
            cluster,
            version: now,
            holder: options.node.clone(),
            members: Vec::new(),
            revoked: Vec::new(),
        };
        Self::found(
            vacant,
            options,
            authority,
            Book::default(),
            roster,
            (now, now),
        )
    }

    /// Restores the CA from a backup: this node becomes its holder, in place of the node that was lost. The old
    /// certificates of a member with this node's name are revoked.
    ///
    /// # Errors
    /// As [`State::init`]; or the backup is damaged.
    pub fn restore(
        directory: &Path,
        backup: &[u8],
        options: &NodeOptions,
        now: u64,
    ) -> Result<Self, StateError> {
        let backup = Backup::read(backup)?;
        let point = point_of_certificate(&backup.ca_pem)?;
        let mut roster = backup.roster.open(&point, &backup.cluster)?;
        let authority = Authority::from_pem(backup.cluster, backup.ca_pem, &backup.ca_key_pem)?;
        let vacant = Vacant::claim(directory)?;
        let mut book = backup.book;
        // Later than the holder before it, even by a clock that is behind.
        let since = now.max(roster.held_since().saturating_add(1));
        roster.revoked.extend(book.strike(&options.node));
        roster.members.retain(|m| m.name != options.node);
        roster.holder = options.node.clone();
        roster.raise(now);
        Self::found(vacant, options, authority, book, roster, (now, since))
    }

    fn found(
        vacant: Vacant,
        options: &NodeOptions,
        authority: Authority,
        mut book: Book,
        mut roster: Roster,
        (now, since): (u64, u64),
    ) -> Result<Self, StateError> {
        let NodeOptions {
            node,
            addresses,
            class,
        } = options.clone();
        let certificate = authority.issue_node(&node, &vacant.key().point(), now)?;
        book.record(&node, &certificate, now);
        let member = Member {
            name: node.clone(),
            addresses,
            class,
            added: since,
        };
        member.check()?;
        roster.members.push(member);
        roster.advance(now);
        let signed = roster.sign(&authority)?;
        let ca_pem = authority.certificate_pem().to_owned();
        let mut holder = Holder::new(&vacant.directory, authority, Book::default());
        holder.save_key()?;
        holder.save_book(book)?;
        vacant.settle(node, ca_pem, certificate, signed, Some(holder))
    }

    /// Opens the identity of a node, and locks it against all other processes.
    ///
    /// # Errors
    /// If there is none, or it is in use, damaged, or readable by others.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        if !Self::exists(directory) {
            return Err(StateError::Missing(directory.to_path_buf()));
        }
        let lock = lock(directory)?;
        let damaged = |name: &str, reason: String| StateError::Damaged {
            path: directory.join(name),
            reason,
        };
        // Beside the key, which is there.
        let gone = |error: FileError| match error {
            FileError::Missing { path } => StateError::Damaged {
                path,
                reason: "it is not there".into(),
            },
            error => error.into(),
        };
        let node: NodeFile =
            serde_json::from_slice(&files::read_secret(&directory.join(NODE)).map_err(gone)?)
                .map_err(|e| damaged(NODE, e.to_string()))?;
        let ca_pem = String::from_utf8(files::read(&directory.join(CA_CERTIFICATE)).map_err(gone)?)
            .map_err(|e| damaged(CA_CERTIFICATE, e.to_string()))?;
        let signed_roster: SignedRoster =
            serde_json::from_slice(&files::read(&directory.join(ROSTER)).map_err(gone)?)
                .map_err(|e| damaged(ROSTER, e.to_string()))?;
        let ca_point = point_of_certificate(&ca_pem)?;
        let key = SecretKey::from_pem(&node.key_pem)?;
        let signer = NodeSigner::new(node.node.clone(), node.certificate, key)?;
        let roster = signed_roster.open(&ca_point, &node.cluster)?;
        // A key that is left from before the CA was taken up elsewhere signs nothing any more.
        let holder = if roster.holder == node.node {
            Holder::open(directory, &node.cluster, &ca_pem)?
        } else {
            None
        };
        let mut removals = Removals::default();
        for signed in kept::<Vec<SignedRemoval>>(directory, REMOVALS)?.unwrap_or_default() {
            removals.add(signed.open(&ca_point, &node.cluster)?, signed);
        }
        let removed = kept::<SignedRemoval>(directory, REMOVED)?;
        let removed = removed
            .map(|signed| signed.open(&ca_point, &node.cluster))
            .transpose()?
            .filter(|removal| removal.is(&node.node, &signer.certificate().serial));
        Ok(Self {
            revocations: RevocationList::new(roster.revocations()),
            directory: directory.to_path_buf(),
            _lock: lock,
            node: node.node,
            cluster: node.cluster,
            ca_pem,
            ca_point,
            signer,
            roster,
            signed_roster,
            removals,
            removed,
            holder,
        })
    }

    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Members and revocations, as last received.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Members and revocations, signed, to hand on to other nodes.
    #[must_use]
    pub fn signed_roster(&self) -> &SignedRoster {
        &self.signed_roster
    }

    /// The list that all configurations of this state use; it follows each change.
    #[must_use]
    pub fn revocations(&self) -> &RevocationList {
        &self.revocations
    }

    /// Whether this node holds the CA.
    #[must_use]
    pub fn is_holder(&self) -> bool {
        self.holder.is_some()
    }

    /// Until when this node's certificates are valid, in Unix seconds.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.signer.certificate().not_after
    }

    fn credentials_for(
        &self,
        subject: &Subject,
        life: u64,
        now: u64,
    ) -> Result<Credentials, StateError> {
        let (leaf, key_pem) = self
            .signer
            .issue_leaf(subject, Duration::from_secs(life), now)?;
        Ok(Credentials {
            chain_pem: leaf.pem + &self.signer.certificate().pem,
            key_pem,
            ca_pem: self.ca_pem.clone(),
            revoked: self.roster.revocations(),
        })
    }

    /// Credentials of this node's daemon, with a new key each time.
    ///
    /// # Errors
    /// No random numbers.
    pub fn credentials(&self, now: u64) -> Result<Credentials, StateError> {
        let (cluster, node) = (self.cluster.clone(), self.node.clone());
        self.credentials_for(&Subject::Node { cluster, node }, NODE_LIFE, now)
    }

    /// Credentials of one supervisor: for this journey alone, and never the node's key.
    ///
    /// # Errors
    /// No random numbers.
    pub fn journey_credentials(
        &self,
        journey: &JourneyId,
        role: Role,
        now: u64,
    ) -> Result<Credentials, StateError> {
        let (cluster, node) = (self.cluster.clone(), self.node.clone());
        let subject = Subject::Journey {
            cluster,
            node,
            journey: journey.clone(),
            role,
        };
        self.credentials_for(&subject, JOURNEY_LIFE, now)
    }

    /// Configuration to accept other daemons. Make it once, and again after a renewal.
    ///
    /// # Errors
    /// No random numbers.
    pub fn server_config(&self, now: u64) -> Result<Arc<rustls::ServerConfig>, StateError> {
        let (credentials, list) = (self.credentials(now)?, self.revocations.clone());
        Ok(tls::server_config(
            &credentials,
            list,
            &PeerExpectation::AnyNode,
        )?)
    }

    /// Configuration to connect to another daemon, under the server name
    /// [`crate::name::SERVER_NAME_NODE`].
    ///
    /// # Errors
    /// No random numbers.
    pub fn client_config(
        &self,
        expect: &PeerExpectation,
        now: u64,
    ) -> Result<Arc<rustls::ClientConfig>, StateError> {
        let (credentials, list) = (self.credentials(now)?, self.revocations.clone());
        Ok(tls::client_config(&credentials, list, expect)?)
    }

    /// Accepts a list of members that came from any node. Returns true if there is a newer one than before: this
    /// one, or ours, put above it, if it is of a holder from whom we have taken up the CA. A holder that hears of
    /// one who took up the CA later gives way.
    ///
    /// # Errors
    /// If it is not signed by our CA, or cannot be written.
    pub fn accept_roster(&mut self, signed: &SignedRoster) -> Result<bool, StateError> {
        let roster = signed.open(&self.ca_point, &self.cluster)?;
        if roster.version <= self.roster.version {
            return Ok(false);
        }
        let another = roster.holder != self.node;
        if another && self.holder.is_some() && roster.held_since() < self.roster.held_since() {
            let mut ours = self.roster.clone();
            ours.version = roster.version;
            self.publish(ours, 0)?;
            return Ok(true);
        }
        self.adopt(roster, signed.clone())?;
        if another {
            self.holder = None;
        }
        if let Some(removal) = &self.removed
            && self.is_named_after(removal.version)
        {
            files::remove(&self.directory.join(REMOVED))?;
            self.removed = None;
        }
        Ok(true)
    }

    /// Whether our list is later than this version, and has this node as a member.
    fn is_named_after(&self, version: u64) -> bool {
        let own = Revoked::Serial(self.signer.certificate().serial.clone());
        let named = self.roster.member(&self.node).is_some()
            && !self
                .roster
                .revoked
                .iter()
                .any(|revoked| revoked.what == own);
        self.roster.version > version && named
    }

    /// Accepts notices of removals that came from any node, to hand them on to the nodes that they are about.
    /// Returns true if there were new ones.
    ///
    /// # Errors
    /// If one is not signed by our CA, or they cannot be written.
    pub fn accept_removals(&mut self, signed: &[SignedRemoval]) -> Result<bool, StateError> {
        let mut removals = self.removals.clone();
        let mut newer = false;
        for one in signed.iter().take(REMOVALS_MAX) {
            let removal = one.open(&self.ca_point, &self.cluster)?;
            newer |= removals.add(removal, one.clone());
        }
        if newer {
            self.keep(REMOVALS, &removals.signed())?;
            self.removals = removals;
        }
        Ok(newer)
    }

    /// The notices that we have, to hand on to other members.
    #[must_use]
    pub fn removals(&self) -> Vec<SignedRemoval> {
        self.removals.signed()
    }

    /// The notice for a node that is refused; `None`: there is none, or it is no longer kept.
    #[must_use]
    pub fn removal_of(&self, peer: &PeerIdentity) -> Option<SignedRemoval> {
        self.removals.of(peer).cloned()
    }

    /// Accepts a notice that this node itself was removed. Returns true if that is new.
    ///
    /// # Errors
    /// If it is not signed by our CA, not about this node with its present certificate, or older than a list of
    /// members that names us; or if it cannot be written.
    pub fn accept_removal(&mut self, signed: &SignedRemoval) -> Result<bool, StateError> {
        let removal = signed.open(&self.ca_point, &self.cluster)?;
        if !removal.is(&self.node, &self.signer.certificate().serial) {
            return Err(RemovalError::Another(removal.node).into());
        }
        if self.is_named_after(removal.version) {
            return Err(RemovalError::Older.into());
        }
        if self.removed.is_some() {
            return Ok(false);
        }
        self.keep(REMOVED, signed)?;
        self.removed = Some(removal);
        Ok(true)
    }

    /// Whether, and when, this node was removed, as far as it has heard.
    #[must_use]
    pub fn removed(&self) -> Option<&Removal> {
        self.removed.as_ref()
    }

    fn keep(&self, name: &str, value: &impl Serialize) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(value).map_err(|e| StateError::Encode(e.to_string()))?;
        Ok(files::write_atomically(&self.directory.join(name), &bytes)?)
    }

    pub(crate) fn adopt(&mut self, roster: Roster, signed: SignedRoster) -> Result<(), StateError> {
        self.save_roster(&signed)?;
        self.revocations.replace(roster.revocations());
        self.roster = roster;
        self.signed_roster = signed;
        Ok(())
    }

    fn save_roster(&self, signed: &SignedRoster) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(signed).map_err(|e| StateError::Encode(e.to_string()))?;
        Ok(files::write_atomically(
            &self.directory.join(ROSTER),
            &bytes,
        )?)
    }

    fn save_node(&self, signer: &NodeSigner) -> Result<(), StateError> {
        let file = NodeFile {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            certificate: signer.certificate().clone(),
            key_pem: signer.key_pem(),
        };
        let bytes = serde_json::to_vec(&file).map_err(|e| StateError::Encode(e.to_string()))?;
        Ok(files::write_atomically(&self.directory.join(NODE), &bytes)?)
    }

    /// Whether it is time for new certificates: two thirds of their life are over.
    #[must_use]
    pub fn renew_due(&self, now: u64) -> bool {
        let certificate = self.signer.certificate();
        let issued = certificate.not_before.saturating_add(CLOCK_SKEW);
        now >= issued + certificate.not_after.saturating_sub(issued) / 3 * 2
    }

    /// Begins a renewal, with a new key: send its request to the holder of the CA.
    ///
    /// # Errors
    /// No random numbers.
    pub fn start_renewal(&self) -> Result<Renewal, StateError> {
        let key = SecretKey::generate()?;
        let request = RenewRequest::new(&self.node, &key)?;
        Ok(Renewal { key, request })
    }

    /// Adopts the new certificate. Make configurations anew afterwards; the old certificates stay valid until
    /// they expire.
    ///
    /// # Errors
    /// If it is not for this key or this node, or cannot be written; the old one stays then.
    pub fn finish_renewal(&mut self, renewal: Renewal, reply: Issued) -> Result<(), StateError> {
        let signer = NodeSigner::new(self.node.clone(), reply, renewal.key)?;
        let subject = tls::subject_of_certificate(&signer.certificate().pem)?;
        if subject.node() != Some(&self.node) || *subject.cluster() != self.cluster {
            return Err(StateError::Renewal("the answer is for another node"));
        }
        self.save_node(&signer)?;
        self.signer = signer;
        Ok(())
    }

    /// Gives up this node's identity: the last step of `leave`, once the holder has removed it.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn forget(self) -> Result<(), StateError> {
        for name in [
            NODE,
            CA_KEY,
            "authority.json",
            ROSTER,
            CA_CERTIFICATE,
            REMOVALS,
            REMOVED,
            PENDING,
        ] {
            files::remove(&self.directory.join(name))?;
        }
        Ok(())
    }
}

/// A renewal under way.
#[derive(Debug)]
pub struct Renewal {
    key: SecretKey,
    pub request: RenewRequest,
}

/// What a node sends to the holder of the CA, over a connection that proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The new public key: an uncompressed point of P-256, hexadecimal.
    pub public_key: String,
    /// Signature by that key, which proves that the sender has it.
    pub proof: String,
}

impl RenewRequest {
    pub(crate) fn message(node: &NodeName, point: &[u8]) -> Vec<u8> {
        [b"whim key v1\0", node.as_str().as_bytes(), b"\0", point].concat()
    }

    pub(crate) fn new(node: &NodeName, key: &SecretKey) -> Result<Self, TlsError> {
        let point = key.point();
        let proof = hex(&key.sign(&Self::message(node, &point))?);
        Ok(Self {
            public_key: hex(&point),
            proof,
        })
    }

    /// The public key, once its proof holds.
    pub(crate) fn point(&self, node: &NodeName) -> Result<Vec<u8>, StateError> {
        let bad = StateError::Renewal("the public key comes without a valid proof");
        let long = self.public_key.len() > 256 || self.proof.len() > 256;
        let (Some(point), Some(proof), false) = (unhex(&self.public_key), unhex(&self.proof), long)
        else {
            return Err(bad);
        };
        if tls::digest::signature_holds(&point, &Self::message(node, &point), &proof) {
            Ok(point)
        } else {
            Err(bad)
        }
    }
}
