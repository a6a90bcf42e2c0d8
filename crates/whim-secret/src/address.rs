//! The address of a node, as a user writes it. A token in its place is kept from name servers and messages.

use thiserror::Error;

use crate::token;

/// TCP and UDP port of a node, unless its configuration says otherwise.
pub const PORT_DEFAULT: u16 = 7946;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    #[error("{0:?} is no address: give HOST, HOST:PORT, or [IPV6]:PORT")]
    Malformed(String),
    #[error("A token was given as the address of a host: give HOST, HOST:PORT, or [IPV6]:PORT")]
    Token,
}

/// Host and port of what a user typed: `HOST`, `HOST:PORT`, `IPV4`, `IPV6`, `[IPV6]`, `[IPV6]:PORT`.
///
/// # Errors
/// If the text has none of these forms.
pub fn parse_host(text: &str) -> Result<(String, u16), AddressError> {
    // A token would be sent to name servers, and repeated in messages.
    if token::stands_in(text) {
        return Err(AddressError::Token);
    }
    let bad = || AddressError::Malformed(text.chars().take(300).collect());
    let port = |digits: &str| digits.parse().ok().filter(|p| *p != 0).ok_or_else(bad);
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok((text.to_owned(), PORT_DEFAULT));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| bad())?;
        return match rest.strip_prefix(':') {
            Some(digits) => Ok((host.to_owned(), port(digits)?)),
            None if rest.is_empty() => Ok((host.to_owned(), PORT_DEFAULT)),
            None => Err(bad()),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, digits)) => (host, port(digits)?),
        None => (text, PORT_DEFAULT),
    };
    let usable = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(usable) {
        return Err(bad());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_parsed() {
        for (text, host, port) in [
            ("n1", "n1", 7946),
            ("n1.example:80", "n1.example", 80),
            ("10.0.0.1", "10.0.0.1", 7946),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("fe80::1", "fe80::1", 7946),
            ("[fe80::1]", "fe80::1", 7946),
            ("[fe80::1]:9", "fe80::1", 9),
        ] {
            assert_eq!(parse_host(text).expect("parsed"), (host.to_owned(), port));
        }
        for bad in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:99999",
            "[x]:1",
            "[fe80::1]9",
            "a:1:2",
            "a b",
            "a/b",
        ] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
    }
}
