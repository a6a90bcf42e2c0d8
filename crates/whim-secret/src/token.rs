//! Tokens: the texts that a user carries from the holder of the CA to a new node.
//!
//! ```text
//! ID (8 digits) . SECRET (32 digits) . SHA-256 of the CA's public key (64 digits), hexadecimal
//! ```
//! By the hash the new node recognizes the cluster; by the secret the cluster recognizes the new node, once.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::hexadecimal::{hex, unhex};

/// The most bytes of a token as text, with what may stand around it.
pub const TOKEN_LENGTH_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "This is no token: one has 8, 32 and 64 hexadecimal digits with points between; copy it whole"
)]
pub struct NotAToken;

/// A token as the user sees it. `Debug` does not show its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: [u8; 4],
    secret: [u8; 16],
    pin: [u8; 32],
}

impl Token {
    /// A token of these random bytes, for the CA whose key has this SHA-256.
    #[must_use]
    pub fn new(id: [u8; 4], secret: [u8; 16], pin: [u8; 32]) -> Self {
        Self { id, secret, pin }
    }

    /// Its public part, by which the holder of the CA finds it.
    #[must_use]
    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// What proves that the new node was given the token.
    #[must_use]
    pub fn secret(&self) -> String {
        hex(&self.secret)
    }

    /// SHA-256 of the CA's SubjectPublicKeyInfo.
    #[must_use]
    pub fn pin(&self) -> [u8; 32] {
        self.pin
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            hex(&self.id),
            hex(&self.secret),
            hex(&self.pin)
        )
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}..)", hex(&self.id))
    }
}

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let mut parts = text.trim().split('.');
        let token = Self {
            id: part(&mut parts)?,
            secret: part(&mut parts)?,
            pin: part(&mut parts)?,
        };
        if parts.next().is_some() {
            Err(NotAToken)
        } else {
            Ok(token)
        }
    }
}

/// Whether a text has the form of a token's public part.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 8 && unhex(text).is_some()
}

/// Whether a text contains a token, or so much of one that it must not be shown, because somebody gave it in
/// the wrong place or copied it in parts.
#[must_use]
pub fn resembles(text: &str) -> bool {
    const DIGITS: usize = 32;
    let mut run = 0;
    text.bytes().any(|byte| {
        run = if byte.is_ascii_hexdigit() { run + 1 } else { 0 };
        run >= DIGITS
    })
}

/// Whether a text is a token, or so much of one that it cannot be the name of a machine.
#[must_use]
pub fn stands_in(text: &str) -> bool {
    let hexadecimal = |part: &str, length| part.len() == length && unhex(part).is_some();
    let parts: Vec<&str> = text.split(['.', ':']).collect();
    parts.iter().any(|part| hexadecimal(part, 64))
        || parts
            .windows(2)
            .any(|two| is_id(two[0]) && hexadecimal(two[1], 32))
}

fn part<'a, const N: usize>(
    parts: &mut impl Iterator<Item = &'a str>,
) -> Result<[u8; N], NotAToken> {
    let text = parts.next().filter(|t| t.len() == 2 * N).ok_or(NotAToken)?;
    unhex(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(NotAToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_printed_and_read() {
        let token = Token::new([0x1a; 4], [0x2b; 16], [7; 32]);
        let text = token.to_string();
        assert_eq!(text.len(), 8 + 1 + 32 + 1 + 64);
        assert_eq!(text.parse::<Token>().expect("read"), token);
        assert_eq!(format!(" {text}\n").parse::<Token>().expect("read"), token);
        assert!(!format!("{token:?}").contains(&token.secret()));
        assert!(text.len() <= TOKEN_LENGTH_MAX && is_id(&token.id()));
        let part = format!("--token={}", token.secret());
        assert!(resembles(&text) && resembles(&part));
        assert!(stands_in(&text) && stands_in(&text[..41]) && stands_in(&text[9..]));
        assert!(!stands_in(&token.secret()), "a machine may be called so");
        assert!(!resembles("n1.example.org:7946") && !resembles(&token.id()));
        for bad in [
            "",
            "a.b.c",
            &text[1..],
            &format!("{text}.00"),
            &text.replace('.', "-"),
        ] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }
}
