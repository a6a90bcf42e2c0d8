//! Which requests are accepted: those that this node's own page sends, under a name that this node has.
//!
//! - *Host*: a foreign name that leads here (DNS rebinding) is refused.
//! - *Origin*, *Sec-Fetch-Site*: requests that another page makes a browser send are refused, also those for
//!   the feed.
//! - *Token*: an order carries a secret that only this session's page knows.
//!
//! Each of these works by itself: a browser that lacks one is still held by the others (OWASP, Cross-Site
//! Request Forgery Prevention, 2025).

use thiserror::Error;

/// Name of the header that carries a session's token.
pub const TOKEN_HEADER: &str = "x-whim-token";

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GuardError {
    #[error(
        "The request has no Host, or one that is not this page's: give its name in [web] names"
    )]
    Host,
    #[error("The request comes from another page: only this node's own may send it")]
    Origin,
    #[error("The request lacks its session's token: load the page again")]
    Token,
}

/// The parts of a request that are judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    pub fetch_site: Option<&'a str>,
    pub token: Option<&'a str>,
}

/// Knows the names under which the page is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// `http` or `https`.
    scheme: &'static str,
    /// `NAME:PORT`, in small letters.
    hosts: Vec<String>,
}

impl Guard {
    /// `names` are given without their port, and IPv6 addresses in brackets.
    #[must_use]
    pub fn new(tls: bool, names: &[String], port: u16) -> Self {
        let scheme = if tls { "https" } else { "http" };
        let usual = if tls { 443 } else { 80 };
        let mut hosts = Vec::new();
        for name in names {
            let name = name.to_ascii_lowercase();
            hosts.push(format!("{name}:{port}"));
            if port == usual {
                hosts.push(name);
            }
        }
        Self { scheme, hosts }
    }

    /// Checks any request.
    ///
    /// # Errors
    /// [`GuardError::Host`].
    pub fn visit(&self, head: &Head<'_>) -> Result<(), GuardError> {
        let host = head.host.ok_or(GuardError::Host)?.to_ascii_lowercase();
        if self.hosts.contains(&host) {
            Ok(())
        } else {
            Err(GuardError::Host)
        }
    }

    /// Checks a request that reads something private: the feed, or what is known of a process. Browsers send no
    /// origin when a page reads from the place that it came from.
    ///
    /// # Errors
    /// [`GuardError::Host`], [`GuardError::Origin`].
    pub fn read(&self, head: &Head<'_>) -> Result<(), GuardError> {
        self.visit(head)?;
        let own_site = head.fetch_site.is_none_or(|site| site == "same-origin");
        let own_page = head.origin.is_none_or(|origin| self.is_own(origin, head));
        if own_site && own_page {
            Ok(())
        } else {
            Err(GuardError::Origin)
        }
    }

    /// Checks an order: it must name its origin, and have the token of its session.
    ///
    /// # Errors
    /// Each of [`GuardError`].
    pub fn order(&self, head: &Head<'_>, token: &str) -> Result<(), GuardError> {
        self.read(head)?;
        if head.origin.is_none() {
            return Err(GuardError::Origin);
        }
        let shown = head.token.ok_or(GuardError::Token)?;
        if same(shown, token) {
            Ok(())
        } else {
            Err(GuardError::Token)
        }
    }

    fn is_own(&self, origin: &str, head: &Head<'_>) -> bool {
        let host = head.host.unwrap_or_default();
        origin.eq_ignore_ascii_case(&format!("{}://{host}", self.scheme))
    }
}

/// Compares two secrets to their end, no matter how early they differ.
fn same(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).map(|(a, b)| a ^ b);
    one.len() == other.len() && differences.fold(0, |all, one| all | one) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard::new(false, &["127.0.0.1".into(), "LocalHost".into()], 7947)
    }

    const OWN: Head<'_> = Head {
        host: Some("127.0.0.1:7947"),
        origin: Some("http://127.0.0.1:7947"),
        fetch_site: Some("same-origin"),
        token: Some("secret"),
    };

    #[test]
    fn the_own_page_is_heard() {
        assert_eq!(guard().order(&OWN, "secret"), Ok(()));
        let other_name = Head {
            host: Some("localhost:7947"),
            origin: Some("http://localhost:7947"),
            ..OWN
        };
        assert_eq!(guard().order(&other_name, "secret"), Ok(()));
        let plain = Head {
            origin: None,
            fetch_site: None,
            token: None,
            ..OWN
        };
        assert_eq!(guard().read(&plain), Ok(()));
    }

    #[test]
    fn foreign_names_are_refused() {
        for host in [
            None,
            Some(""),
            Some("127.0.0.1"),
            Some("127.0.0.1:80"),
            Some("evil.example:7947"),
            Some("127.0.0.1:7947.evil.example"),
        ] {
            let head = Head { host, ..OWN };
            assert_eq!(guard().visit(&head), Err(GuardError::Host), "{host:?}");
        }
        let usual = Guard::new(true, &["n1".into()], 443);
        let head = |host| Head {
            host: Some(host),
            ..Head::default()
        };
        assert!(usual.visit(&head("n1")).is_ok() && usual.visit(&head("n1:443")).is_ok());
    }

    #[test]
    fn other_pages_are_refused() {
        for origin in [
            "null",
            "http://evil.example",
            "https://127.0.0.1:7947",
            "http://127.0.0.1:7946",
            "http://localhost:7947",
        ] {
            let head = Head {
                origin: Some(origin),
                ..OWN
            };
            assert_eq!(guard().read(&head), Err(GuardError::Origin), "{origin}");
            assert_eq!(guard().order(&head, "secret"), Err(GuardError::Origin));
        }
        for site in ["cross-site", "same-site", "none"] {
            let head = Head {
                fetch_site: Some(site),
                origin: None,
                ..OWN
            };
            assert_eq!(guard().read(&head), Err(GuardError::Origin), "{site}");
        }
        let unnamed = Head {
            origin: None,
            ..OWN
        };
        assert_eq!(guard().order(&unnamed, "secret"), Err(GuardError::Origin));
    }

    #[test]
    fn an_order_needs_the_token() {
        for token in [
            None,
            Some(""),
            Some("secre"),
            Some("secret "),
            Some("Secret"),
        ] {
            let head = Head { token, ..OWN };
            let refused = guard().order(&head, "secret");
            assert_eq!(refused, Err(GuardError::Token), "{token:?}");
        }
    }
}
