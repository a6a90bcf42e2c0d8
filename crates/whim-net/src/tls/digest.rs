//! Hashes, random numbers and signatures, of the one cryptographic library that we use.

use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, signature};

use super::TlsError;

/// Length of an uncompressed point of P-256: how public keys travel.
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

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Bytes of hexadecimal text; `None` for anything else.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| {
        char::from(c)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal() {
        assert_eq!(hex(&[0, 0xa5, 0xff]), "00a5ff");
        assert_eq!(unhex("00a5ff"), Some(vec![0, 0xa5, 0xff]));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
    }
}
