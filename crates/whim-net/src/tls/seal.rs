//! Keys of datagrams: agreed on in a TLS session, used outside of it.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionCommon;

use super::TlsError;

/// How many bytes a sealed text is longer than the plain one.
pub(crate) const TAG_LENGTH: usize = 16;
/// Length of the name of a key.
pub(crate) const ID_LENGTH: usize = 8;
const KEY_LENGTH: usize = 32;
const LABEL: &[u8] = b"EXPORTER-whimbrel-datagrams/1";

/// Our side of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// We connected.
    Asking,
    /// We were connected to.
    Answering,
}

/// What two nodes, and nobody else, know after a session: the name of their keys, and a key for each direction.
#[derive(Clone)]
pub struct Secret([u8; ID_LENGTH + 2 * KEY_LENGTH]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The secret of a session whose handshake is done. The same session always gives the same secret, so this
    /// may be called only once for it: otherwise nonces would be used again.
    ///
    /// # Errors
    /// The handshake is not done.
    pub fn of_session<D>(session: &ConnectionCommon<D>) -> Result<Self, TlsError> {
        let empty = [0; ID_LENGTH + 2 * KEY_LENGTH];
        Ok(Self(session.export_keying_material(empty, LABEL, None)?))
    }

    /// A secret as if a session had given it.
    #[must_use]
    pub(crate) fn made_up(byte: u8) -> Self {
        let mut bytes = [byte; ID_LENGTH + 2 * KEY_LENGTH];
        for (bytes, index) in bytes.iter_mut().zip(0..) {
            *bytes ^= index;
        }
        Self(bytes)
    }

    pub(crate) fn id(&self) -> [u8; ID_LENGTH] {
        let mut id = [0; ID_LENGTH];
        id.copy_from_slice(&self.0[..ID_LENGTH]);
        id
    }

    /// The keys with which we seal and open.
    pub(crate) fn keys(&self, part: Part) -> Result<(SealKey, SealKey), TlsError> {
        let (first, second) = self.0[ID_LENGTH..].split_at(KEY_LENGTH);
        let (first, second) = (SealKey::new(first)?, SealKey::new(second)?);
        Ok(match part {
            Part::Asking => (first, second),
            Part::Answering => (second, first),
        })
    }
}

/// One direction's key.
#[derive(Debug)]
pub(crate) struct SealKey(LessSafeKey);

impl SealKey {
    fn new(bytes: &[u8]) -> Result<Self, TlsError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).map_err(|_| TlsError::DatagramKey)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts `text` in place, and returns its tag. No number may be used twice with one key.
    pub(crate) fn seal(&self, number: u64, header: &[u8], text: &mut [u8]) -> Option<[u8; 16]> {
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(header), text)
            .ok()?;
        let mut bytes = [0; TAG_LENGTH];
        bytes.copy_from_slice(tag.as_ref());
        Some(bytes)
    }

    /// Decrypts in place; `None`: it was not sealed with this key, number and header.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let opened = self
            .0
            .open_in_place(nonce(number), Aad::from(header), sealed);
        opened.ok().map(|text| &*text)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
