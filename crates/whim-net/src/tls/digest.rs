//! Hashes, random numbers and signatures, all from the one cryptographic library that we use.

use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, signature};

use super::TlsError;

/// Length of an uncompressed point of P-256, the form in which public keys are sent.
pub const POINT_LENGTH: usize = 65;

/// SHA-256.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

/// `N` random bytes from the kernel.
///
/// # Errors
/// Only where the kernel has no random numbers.
pub fn random<const N: usize>() -> Result<[u8; N], TlsError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| TlsError::NoRandom)?;
    Ok(bytes)
}

/// Whether `signature` (ASN.1, ECDSA P-256 with SHA-256) over `message` was made by the key of
/// `point`.
#[must_use]
pub fn signature_holds(point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point)
        .verify(message, signature)
        .is_ok()
}
