//! TLS for browsers, which do not know the cluster's CA: with a certificate of the administrator, or with one
//! of the node's own, which is checked by its fingerprint.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::ServerConfig;

use super::{TlsError, certificate, certificates, private_key};

/// A certificate for a page, and its key, as PEM.
#[derive(Clone)]
pub struct PageCertificate {
    pub chain_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for PageCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCertificate")
            .field("chain_pem", &self.chain_pem)
            .finish_non_exhaustive()
    }
}

impl PageCertificate {
    /// A self-signed certificate for these names and addresses. It does not expire, because users who trust it
    /// do so by its fingerprint.
    ///
    /// # Errors
    /// If a name is not valid, or the kernel has no random numbers.
    pub fn self_signed(names: &[String]) -> Result<Self, TlsError> {
        let made = rcgen::generate_simple_self_signed(names).map_err(TlsError::issue)?;
        Ok(Self {
            chain_pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
        })
    }

    /// The configuration of a server of the page. Clients present no certificates.
    ///
    /// # Errors
    /// Certificate and key are damaged, or do not belong together.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let damaged = |error: rustls::Error| TlsError::Credentials(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(damaged)?
            .with_no_client_auth()
            .with_single_cert(certificates(&self.chain_pem)?, private_key(&self.key_pem)?)
            .map_err(damaged)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// SHA-256 of the certificate, as browsers show it: `AB:CD:...`.
    ///
    /// # Errors
    /// It is damaged.
    pub fn fingerprint(&self) -> Result<String, TlsError> {
        let der = certificate(&self.chain_pem)?;
        let bytes = digest(&SHA256, &der);
        let pairs: Vec<String> = bytes.as_ref().iter().map(|b| format!("{b:02X}")).collect();
        Ok(pairs.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_our_own_serves() {
        let names = ["n1".to_owned(), "192.0.2.1".to_owned(), "::1".to_owned()];
        let made = PageCertificate::self_signed(&names).expect("made");
        made.server_config().expect("usable");
        let fingerprint = made.fingerprint().expect("whole");
        assert_eq!(fingerprint.len(), 32 * 3 - 1);
        let other = PageCertificate::self_signed(&names).expect("made");
        assert_ne!(other.fingerprint().expect("whole"), fingerprint);
        let mixed = PageCertificate {
            key_pem: other.key_pem.clone(),
            ..made.clone()
        };
        assert!(mixed.server_config().is_err());
        assert!(!format!("{made:?}").contains("PRIVATE"));
        let bad = PageCertificate::self_signed(&["\u{e9}".to_owned()]);
        assert!(bad.is_err(), "{bad:?}");
    }
}
