//! The tokens that the holder of the CA has given out: each is good once, and for a while.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use whim_secret::hexadecimal::{hex, unhex};
use whim_secret::token::Token;

use crate::name::NodeName;
use crate::tls::TlsError;
use crate::tls::digest::{random, sha256};

/// How long a token is valid, in seconds.
pub const TOKEN_LIFE: u64 = 15 * 60;
/// How far a clock that is corrected may step back while a token waits, in seconds.
const BACK_MAX: u64 = 60;
/// How long a token is remembered after its life, in seconds, to tell why it is refused.
const TOKEN_MEMORY: u64 = 7 * 24 * 60 * 60;
/// How long it is shown which node a token has admitted, in seconds.
pub const ADMITTED_SHOWN: u64 = 24 * 60 * 60;
/// No more tokens are kept.
pub const TOKENS_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenRefusal {
    #[error("The token is not known there: copy it whole, or make a new one with `whim token`")]
    Unknown,
    #[error("The token was used before: a token admits one node; make a new one with `whim token`")]
    Used,
    #[error("The token has expired (it is good for 15 minutes): make a new one with `whim token`")]
    Expired,
}

#[derive(Debug, Error)]
pub enum TokenError {
    #[error("{TOKENS_MAX} tokens are waiting to be used already: wait until they expire")]
    TooMany,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    /// SHA-256 of the secret, which has 128 random bits: a plain hash is enough.
    secret_sha256: String,
    /// Unix seconds.
    expires: u64,
    used: Option<u64>,
    /// The node that it has admitted, and the address that the request came from.
    #[serde(default)]
    admitted: Option<(NodeName, String)>,
}

/// A node that a token has admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub node: NodeName,
    /// The token's public part.
    pub token: String,
    /// Unix seconds.
    pub at: u64,
    /// Address and port from which the node asked.
    pub from: String,
}

/// The tokens that the holder of the CA has given out. Secrets are kept hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenBook {
    tokens: Vec<Entry>,
}

impl TokenBook {
    /// Makes a token for the CA of `pin`.
    ///
    /// # Errors
    /// If too many tokens are kept already, or there are no random numbers.
    pub fn issue(&mut self, pin: [u8; 32], now: u64) -> Result<Token, TokenError> {
        self.tokens
            .retain(|t| now < t.expires.saturating_add(TOKEN_MEMORY));
        if self.tokens.len() >= TOKENS_MAX {
            return Err(TokenError::TooMany);
        }
        let secret = random()?;
        let token = Token::new(random()?, secret, pin);
        self.tokens.push(Entry {
            id: token.id(),
            secret_sha256: hex(&sha256(&secret)),
            expires: now.saturating_add(TOKEN_LIFE),
            used: None,
            admitted: None,
        });
        Ok(token)
    }

    /// Whether a token would be accepted now.
    ///
    /// # Errors
    /// Why not. Somebody who does not know the secret learns nothing but `Unknown`.
    pub fn check(&self, id: &str, secret: &str, now: u64) -> Result<(), TokenRefusal> {
        self.find(id, secret, now).map(|_| ())
    }

    /// Accepts a token, which is spent from here on.
    ///
    /// # Errors
    /// As [`TokenBook::check`].
    pub fn redeem(&mut self, id: &str, secret: &str, now: u64) -> Result<(), TokenRefusal> {
        let index = self.find(id, secret, now)?;
        self.tokens[index].used = Some(now);
        Ok(())
    }

    /// Records which node a spent token has admitted, and from where.
    pub fn admitted(&mut self, id: &str, node: &NodeName, from: &str) {
        let spent = |entry: &&mut Entry| entry.id == id && entry.used.is_some();
        if let Some(entry) = self.tokens.iter_mut().rev().find(spent) {
            entry.admitted = Some((node.clone(), from.to_owned()));
        }
    }

    /// The nodes that were admitted within the last day, the earliest first.
    #[must_use]
    pub fn lately(&self, now: u64) -> Vec<Admitted> {
        let all = self.tokens.iter().filter_map(|entry| {
            let ((node, from), at) = (entry.admitted.clone()?, entry.used?);
            let shown = now < at.saturating_add(ADMITTED_SHOWN);
            let token = entry.id.clone();
            shown.then_some(Admitted {
                node,
                token,
                at,
                from,
            })
        });
        let mut all: Vec<Admitted> = all.collect();
        all.sort_by_key(|admitted| admitted.at);
        all
    }

    fn find(&self, id: &str, secret: &str, now: u64) -> Result<usize, TokenRefusal> {
        // Only hashes are compared. A guesser cannot choose their prefix, so timing tells nothing.
        let hash = unhex(secret)
            .map(|s| hex(&sha256(&s)))
            .ok_or(TokenRefusal::Unknown)?;
        let index = self
            .tokens
            .iter()
            .position(|t| t.id == id && t.secret_sha256 == hash)
            .ok_or(TokenRefusal::Unknown)?;
        match &self.tokens[index] {
            Entry { used: Some(_), .. } => Err(TokenRefusal::Used),
            Entry { expires, .. } if now >= *expires => Err(TokenRefusal::Expired),
            // The clock was set back, so it no longer tells how old the token is.
            Entry { expires, .. } if now + TOKEN_LIFE + BACK_MAX < *expires => {
                Err(TokenRefusal::Expired)
            }
            _ => Ok(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn whom_a_token_admitted_is_told_for_a_day() {
        let mut book = TokenBook::default();
        let token = book.issue([7; 32], NOW).expect("issued");
        let (id, node) = (token.id(), NodeName::new("n2").expect("a name"));
        book.admitted(&id, &node, "192.0.2.7:40000");
        assert_eq!(book.lately(NOW), [], "it admitted nobody yet");
        book.redeem(&id, &token.secret(), NOW + 5).expect("spent");
        book.admitted(&id, &node, "192.0.2.7:40000");
        let kept = serde_json::to_string(&book).expect("written");
        let book: TokenBook = serde_json::from_str(&kept).expect("read");
        let told = Admitted {
            node,
            token: id,
            at: NOW + 5,
            from: "192.0.2.7:40000".into(),
        };
        assert_eq!(book.lately(NOW + ADMITTED_SHOWN), [told]);
        assert_eq!(book.lately(NOW + 5 + ADMITTED_SHOWN), []);
        // A book of an earlier version, which does not record that.
        let before = kept.replace(r#","admitted":["n2","192.0.2.7:40000"]"#, "");
        assert_ne!(before, kept);
        let book: TokenBook = serde_json::from_str(&before).expect("read");
        assert_eq!(book.lately(NOW + 5), []);
    }

    #[test]
    fn tokens_are_made_up_to_their_limit() {
        let mut book = TokenBook::default();
        for _ in 0..TOKENS_MAX {
            book.issue([7; 32], NOW).expect("below the limit");
        }
        let error = book.issue([7; 32], NOW).expect_err("one above");
        assert!(matches!(error, TokenError::TooMany), "{error}");
        book.issue([7; 32], NOW + TOKEN_LIFE + TOKEN_MEMORY)
            .expect("room again");
    }

    #[test]
    fn a_clock_that_is_stepped_makes_no_token_live_longer() {
        const HOUR: u64 = 3600;
        for (now, expected) in [
            (NOW + HOUR, Err(TokenRefusal::Expired)),
            (NOW - HOUR, Err(TokenRefusal::Expired)),
            (NOW - HOUR + TOKEN_LIFE, Err(TokenRefusal::Expired)),
            (NOW - BACK_MAX, Ok(())),
        ] {
            let mut book = TokenBook::default();
            let token = book.issue([7; 32], NOW).expect("issued");
            let redeemed = book.redeem(&token.id(), &token.secret(), now);
            assert_eq!(redeemed, expected, "at {now}");
            // A spent token stays spent, and a new one is valid by the new clock.
            if redeemed.is_ok() {
                let again = book.redeem(&token.id(), &token.secret(), NOW);
                assert_eq!(again, Err(TokenRefusal::Used));
            }
            let next = book.issue([7; 32], now).expect("issued");
            assert_eq!(book.redeem(&next.id(), &next.secret(), now), Ok(()));
        }
    }

    #[test]
    fn a_token_admits_once_and_expires() {
        let mut book = TokenBook::default();
        let token = book.issue([7; 32], NOW).expect("issued");
        let other = book.issue([7; 32], NOW).expect("issued");
        let (id, secret) = (token.id(), token.secret());
        assert_eq!(
            book.redeem(&id, &other.secret(), NOW),
            Err(TokenRefusal::Unknown)
        );
        assert_eq!(
            book.redeem("00000000", &secret, NOW),
            Err(TokenRefusal::Unknown)
        );
        assert_eq!(
            book.redeem(&id, "not hexadecimal", NOW),
            Err(TokenRefusal::Unknown)
        );
        assert_eq!(book.redeem(&id, &secret, NOW + TOKEN_LIFE - 1), Ok(()));
        assert_eq!(book.redeem(&id, &secret, NOW), Err(TokenRefusal::Used));
        let late = NOW + TOKEN_LIFE;
        assert_eq!(
            book.redeem(&other.id(), &other.secret(), late),
            Err(TokenRefusal::Expired)
        );
        let kept = serde_json::to_string(&book).expect("written");
        assert!(!kept.contains(&secret), "secrets are kept hashed");
        assert_eq!(
            serde_json::from_str::<TokenBook>(&kept).expect("read"),
            book
        );
        book.issue([7; 32], late + TOKEN_MEMORY).expect("issued");
        assert_eq!(book.tokens.len(), 1, "old ones are forgotten");
    }
}
