//! Small sealed datagrams between the daemons of two nodes.
//!
//! Each pair of nodes has its own keys, one for each direction, which are derived from a mutual TLS session
//! between the two ([`Secret`]). So a datagram proves who sent it, and costs no handshake. Its format:
//!
//! | bytes | |
//! |---|---|
//! | 1 | [`SEALED`], or [`UNKNOWN`] |
//! | 8 | name of the key |
//! | 8 | number of the datagram under this key, little-endian (not in [`UNKNOWN`]) |
//! | ... 16 | sealed text, and its tag |
//!
//! [`UNKNOWN`] says that the receiver has no such key, because it has been restarted. This answer is not
//! authenticated: it is only a reason to agree on new keys if that was not done lately.
//!
//! The longest datagram fits into the smallest packet that every IPv4 path accepts, whatever its MTU. So
//! nothing is ever fragmented, and no path has to be measured.
//!
//! Sans-I/O: there is no socket and no clock here. Times are measured from any fixed moment, and do not go
//! back.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

use crate::name::NodeName;
use crate::tls::seal::{ID_LENGTH, SealKey, TAG_LENGTH};
use crate::tls::{Part, Secret, TlsError};

/// 576 bytes, without the headers of IPv4 and UDP.
pub const DATAGRAM_MAX: usize = 548;
const HEADER: usize = 1 + ID_LENGTH + 8;
/// The most bytes of a text.
pub const TEXT_MAX: usize = DATAGRAM_MAX - HEADER - TAG_LENGTH;

pub const SEALED: u8 = 1;
pub const UNKNOWN: u8 = 2;

/// The most keys of a pair that are accepted: the one in use, and those that both sides have agreed on at the
/// same time.
pub const KEYS_MAX: usize = 3;
/// The age at which keys are renewed.
pub const RENEWED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The other side of a pair waits this long, so that only one of them asks.
pub const RENEWED_LATEST: Duration = Duration::from_secs(25 * 60 * 60);
/// The highest number under one key; it is far below the point where numbers would wrap around.
const NUMBERS_MAX: u64 = 1 << 60;
/// Datagrams are accepted even if they have been overtaken by almost this many others.
pub const REPLAY_WINDOW: u64 = 128;
/// The most answers a second to datagrams under unknown keys.
pub const ANSWERS_PER_SECOND: u32 = 32;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum DatagramError {
    #[error("The datagram has {0} bytes: it is none of ours")]
    Length(usize),
    #[error("The datagram is of kind {0}, which is none of ours")]
    Kind(u8),
    #[error("The datagram is under a key that is not known here")]
    UnknownKey,
    #[error("The datagram was not sealed by the holder of its key, or was changed on its way")]
    Forged,
    #[error("The datagram was received before, or is older than {REPLAY_WINDOW} others")]
    Replayed,
    #[error("There are no keys for this node yet")]
    NoKeys,
    #[error("No address of this node is known yet")]
    NoAddress,
    #[error("The text has {0} bytes, the limit is {TEXT_MAX}")]
    TooLong(usize),
}

/// What a datagram was.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A text from this node, received for the first time.
    Text { from: NodeName, text: Vec<u8> },
    /// Somebody says that this node does not know our keys any more.
    Doubted { node: NodeName },
    /// These bytes are to be sent back to where the datagram came from.
    Answer([u8; 1 + ID_LENGTH]),
}

#[derive(Debug)]
struct Key {
    id: [u8; ID_LENGTH],
    seal: SealKey,
    open: SealKey,
    made: Duration,
    /// Number of the next datagram that we send.
    next: u64,
    seen: Seen,
    /// The other side is known to have the key, too.
    confirmed: bool,
}

/// The numbers that were received: the highest, and a bit for it and for each number before it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    highest: u64,
    bits: u128,
}

impl Seen {
    fn is_new(self, number: u64) -> bool {
        match self.highest.checked_sub(number) {
            None => true,
            Some(behind) => behind < REPLAY_WINDOW && self.bits & (1 << behind) == 0,
        }
    }

    fn add(&mut self, number: u64) {
        if let Some(behind) = self.highest.checked_sub(number) {
            self.bits |= 1u128.checked_shl(low(behind)).unwrap_or(0);
            return;
        }
        let ahead = number - self.highest;
        self.bits = self.bits.checked_shl(low(ahead)).unwrap_or(0) | 1;
        self.highest = number;
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
struct Peer {
    /// The oldest first.
    keys: Vec<Key>,
    address: Option<SocketAddr>,
}

impl Peer {
    /// The key that we seal with: the newest one that the other side surely has.
    fn sending(&mut self) -> Option<&mut Key> {
        self.keys.iter_mut().rev().find(|key| key.confirmed)
    }
}

/// The keys of this node with all others.
#[derive(Debug)]
pub struct Keyring {
    own: NodeName,
    peers: BTreeMap<NodeName, Peer>,
    by_id: HashMap<[u8; ID_LENGTH], NodeName>,
    /// When the answers of this second began, and how many there were.
    answers: (Duration, u32),
}

impl Keyring {
    #[must_use]
    pub fn new(own: NodeName) -> Self {
        Self {
            own,
            peers: BTreeMap::new(),
            by_id: HashMap::new(),
            answers: (Duration::ZERO, 0),
        }
    }

    /// The node that this keyring belongs to.
    #[must_use]
    pub fn own(&self) -> &NodeName {
        &self.own
    }

    /// Installs the keys that a TLS session with `peer` has given. The side that asked for the session knows
    /// that the other side has the keys, and its address; the side that answered learns both from the first
    /// datagram.
    ///
    /// Returns false if these keys are known already; they stay as they are then.
    ///
    /// # Errors
    /// Never in practice: only if the library refused keys of its own length.
    pub fn install(
        &mut self,
        now: Duration,
        peer: &NodeName,
        secret: &Secret,
        part: Part,
        address: Option<SocketAddr>,
    ) -> Result<bool, TlsError> {
        let id = secret.id();
        if self.by_id.contains_key(&id) {
            return Ok(false);
        }
        let (seal, open) = secret.keys(part)?;
        let known = self.peers.entry(peer.clone()).or_default();
        while known.keys.len() >= KEYS_MAX {
            // Remove the oldest key, but not the one that we send with: a peer that only asks again and again
            // must not make us lose it.
            let sending = known.keys.iter().rposition(|key| key.confirmed);
            let oldest = usize::from(sending == Some(0));
            let gone = known.keys.remove(oldest);
            self.by_id.remove(&gone.id);
        }
        known.keys.push(Key {
            id,
            seal,
            open,
            made: now,
            next: 0,
            seen: Seen::default(),
            confirmed: part == Part::Asking,
        });
        known.address = address.or(known.address);
        self.by_id.insert(id, peer.clone());
        Ok(true)
    }

    /// Whether we have to agree on keys with `peer` before something can be sent to it, or soon.
    #[must_use]
    pub fn wants_keys(&self, now: Duration, peer: &NodeName) -> bool {
        let after = if self.own < *peer {
            RENEWED_AFTER
        } else {
            RENEWED_LATEST
        };
        self.peers.get(peer).is_none_or(|known| {
            let sending = known.keys.iter().rev().find(|key| key.confirmed);
            known.address.is_none()
                || sending.is_none_or(|key| now.saturating_sub(key.made) > after)
        })
    }

    /// Forgets the keys of all nodes that are no longer members.
    pub fn retain(&mut self, is_member: impl Fn(&NodeName) -> bool) {
        self.peers.retain(|name, _| is_member(name));
        self.by_id.retain(|_, name| is_member(name));
    }

    /// Seals `text` for a node; returns the datagram and the address that it goes to.
    ///
    /// # Errors
    /// It is too long, or there are no keys yet.
    pub fn seal(
        &mut self,
        peer: &NodeName,
        text: &[u8],
    ) -> Result<(Vec<u8>, SocketAddr), DatagramError> {
        if text.len() > TEXT_MAX {
            return Err(DatagramError::TooLong(text.len()));
        }
        let known = self.peers.get_mut(peer).ok_or(DatagramError::NoKeys)?;
        let address = known.address.ok_or(DatagramError::NoAddress)?;
        let key = known.sending().ok_or(DatagramError::NoKeys)?;
        if key.next >= NUMBERS_MAX {
            return Err(DatagramError::NoKeys);
        }
        let number = key.next;
        key.next += 1;
        let mut datagram = Vec::with_capacity(HEADER + text.len() + TAG_LENGTH);
        datagram.push(SEALED);
        datagram.extend_from_slice(&key.id);
        datagram.extend_from_slice(&number.to_le_bytes());
        let header: [u8; HEADER] = datagram[..]
            .try_into()
            .map_err(|_| DatagramError::Length(datagram.len()))?;
        datagram.extend_from_slice(text);
        let tag = key.seal.seal(number, &header, &mut datagram[HEADER..]);
        datagram.extend_from_slice(&tag.ok_or(DatagramError::NoKeys)?);
        Ok((datagram, address))
    }

    /// Opens a datagram that came from this address. Its bytes are overwritten.
    ///
    /// # Errors
    /// If it is none of ours, was changed, or came before; nothing has changed here then.
    pub fn receive(
        &mut self,
        now: Duration,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Result<Received, DatagramError> {
        let length = datagram.len();
        if !(1 + ID_LENGTH..=DATAGRAM_MAX).contains(&length) {
            return Err(DatagramError::Length(length));
        }
        let mut id = [0; ID_LENGTH];
        id.copy_from_slice(&datagram[1..=ID_LENGTH]);
        match datagram[0] {
            SEALED if length >= HEADER + TAG_LENGTH => {}
            UNKNOWN if length == 1 + ID_LENGTH => return self.doubted(id),
            SEALED | UNKNOWN => return Err(DatagramError::Length(length)),
            kind => return Err(DatagramError::Kind(kind)),
        }
        let Some(name) = self.by_id.get(&id).cloned() else {
            return self.unknown(now, id);
        };
        let peer = self.peers.get_mut(&name);
        let peer = peer.ok_or(DatagramError::UnknownKey)?;
        let key = peer.keys.iter_mut().find(|key| key.id == id);
        let key = key.ok_or(DatagramError::UnknownKey)?;
        let (header, sealed) = datagram.split_at_mut(HEADER);
        let mut number = [0; 8];
        number.copy_from_slice(&header[1 + ID_LENGTH..]);
        let number = u64::from_le_bytes(number);
        // The number only counts as seen once the seal has been checked. But that costs more than this check,
        // which therefore comes first.
        if !key.seen.is_new(number) {
            return Err(DatagramError::Replayed);
        }
        let text = key.open.open(number, header, sealed);
        let text = text.ok_or(DatagramError::Forged)?.to_vec();
        let newest = number >= key.seen.highest;
        key.seen.add(number);
        key.confirmed = true;
        if newest || peer.address.is_none() {
            // A peer sends from the address at which it is reached, which may be another one than before.
            peer.address = Some(from);
        }
        Ok(Received::Text { from: name, text })
    }

    fn doubted(&mut self, id: [u8; ID_LENGTH]) -> Result<Received, DatagramError> {
        let node = self.by_id.get(&id).ok_or(DatagramError::UnknownKey)?;
        let peer = self.peers.get_mut(node).ok_or(DatagramError::UnknownKey)?;
        // For keys that we no longer use this is no news.
        if peer.sending().is_none_or(|key| key.id != id) {
            return Err(DatagramError::UnknownKey);
        }
        Ok(Received::Doubted { node: node.clone() })
    }

    fn unknown(&mut self, now: Duration, id: [u8; ID_LENGTH]) -> Result<Received, DatagramError> {
        let (begun, answers) = &mut self.answers;
        if now.saturating_sub(*begun) >= Duration::from_secs(1) {
            (*begun, *answers) = (now, 0);
        }
        if *answers >= ANSWERS_PER_SECOND {
            return Err(DatagramError::UnknownKey);
        }
        *answers += 1;
        let mut answer = [UNKNOWN; 1 + ID_LENGTH];
        answer[1..].copy_from_slice(&id);
        Ok(Received::Answer(answer))
    }
}

#[cfg(test)]
mod tests;
