//! The only module that uses the TLS library, the certificate library and the cryptography.
//!
//! Mutual TLS 1.3 only; no resumption (a resumed session would skip the verification, and with it
//! the revocation list), no early data, ALPN [`ALPN`].

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring as suite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, ServerConfig};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use webpki::EndEntityCert;

use crate::name::{ClusterName, PeerExpectation, PeerIdentity};
use crate::revocation::{RevocationList, Revoked};

pub mod digest;
pub mod issue;
pub mod page;
pub(crate) mod seal;
pub(crate) mod session;
mod verify;

pub use seal::{Part, Secret};
pub use verify::Refusal;
pub(crate) use verify::identify;

/// Name and version of the protocol inside TLS. A later version will be offered beside it.
pub const ALPN: &[u8] = b"whim/1";

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("The kernel gave no random numbers: check that getrandom is allowed here")]
    NoRandom,
    #[error("Failed to make a certificate or key: {0}")]
    Issue(rcgen::Error),
    #[error("The time {0} (seconds since 1970) cannot stand in a certificate: set the clock")]
    Clock(u64),
    #[error("What was sent as a public key is none of P-256")]
    PublicKey,
    #[error("A private key does not belong to its certificate: restore both from the same backup")]
    KeyMismatch,
    #[error("The credentials are damaged: {0}")]
    Credentials(String),
    #[error("The cryptographic library refuses a key of its own length")]
    DatagramKey,
    #[error("The TLS library refuses our own credentials: {0}")]
    Library(#[from] rustls::Error),
    #[error(transparent)]
    Peer(#[from] Refusal),
    #[error("The peer speaks no protocol version of ours: upgrade the older of the two nodes")]
    NoVersion,
}

impl TlsError {
    fn issue(error: rcgen::Error) -> Self {
        Self::Issue(error)
    }
}

/// All that one side of a connection needs, as data that can be given to a supervisor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// Leaf, then the node's signing certificate.
    pub chain_pem: String,
    /// Key of the leaf (PKCS#8).
    pub key_pem: String,
    /// Certificate of the cluster's CA.
    pub ca_pem: String,
    pub revoked: Vec<Revoked>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("chain_pem", &self.chain_pem)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// The identity that these credentials give us.
    ///
    /// # Errors
    /// They are damaged.
    pub fn identity(&self) -> Result<PeerIdentity, TlsError> {
        Ok(verify::identify(&certificates(&self.chain_pem)?)?)
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| TlsError::Credentials(e.to_string()))
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| TlsError::Credentials(e.to_string()))
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| TlsError::Credentials(e.to_string()))
}

fn parse<'a>(der: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>, TlsError> {
    EndEntityCert::try_from(der).map_err(|e| TlsError::Credentials(e.to_string()))
}

/// Public key of a certificate of ours, as an uncompressed point of P-256.
pub(crate) fn point_of_certificate(pem: &str) -> Result<Vec<u8>, TlsError> {
    let der = certificate(pem)?;
    let info = parse(&der)?.subject_public_key_info();
    // The structure ends with the point; its algorithm was fixed when we made the certificate.
    let start = info
        .len()
        .checked_sub(digest::POINT_LENGTH)
        .ok_or(TlsError::PublicKey)?;
    let point = &info[start..];
    if point.first() == Some(&4) {
        Ok(point.to_vec())
    } else {
        Err(TlsError::PublicKey)
    }
}

/// SHA-256 of a CA's SubjectPublicKeyInfo: what a token pins.
///
/// # Errors
/// Not a certificate.
pub fn authority_pin(ca_pem: &str) -> Result<[u8; 32], TlsError> {
    let der = certificate(ca_pem)?;
    Ok(digest::sha256(&parse(&der)?.subject_public_key_info()))
}

/// The library's provider with one key exchange, and with the cipher suites in the order that we
/// want: AES-128 first, which is the fastest on every CPU that this project supports.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = suite::default_provider();
    provider.cipher_suites = vec![
        suite::cipher_suite::TLS13_AES_128_GCM_SHA256,
        suite::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![suite::kx_group::X25519];
    Arc::new(provider)
}

fn verifier(
    credentials: &Credentials,
    revocations: RevocationList,
    expect: &PeerExpectation,
) -> Result<Arc<verify::PeerVerifier>, TlsError> {
    let ca = certificate(&credentials.ca_pem)?;
    let anchor: TrustAnchor<'static> = webpki::anchor_from_trusted_cert(&ca)
        .map_err(|e| TlsError::Credentials(e.to_string()))?
        .to_owned();
    let cluster: ClusterName = credentials.identity()?.cluster;
    let (expect, provider) = (expect.clone(), provider());
    Ok(Arc::new(verify::PeerVerifier {
        anchor,
        cluster,
        revocations,
        expect,
        provider,
    }))
}

/// Configuration of the side that accepts: the peer must show a certificate that `expect` admits.
///
/// # Errors
/// The credentials are damaged.
pub fn server_config(
    credentials: &Credentials,
    revocations: RevocationList,
    expect: &PeerExpectation,
) -> Result<Arc<ServerConfig>, TlsError> {
    let verifier = verifier(credentials, revocations, expect)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            certificates(&credentials.chain_pem)?,
            private_key(&credentials.key_pem)?,
        )?;
    harden(&mut config);
    Ok(Arc::new(config))
}

fn harden(config: &mut ServerConfig) {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// Configuration of the side that connects: the peer must be one that `expect` admits, whatever
/// server name the connection asks for (that name is only for routing).
///
/// # Errors
/// The credentials are damaged.
pub fn client_config(
    credentials: &Credentials,
    revocations: RevocationList,
    expect: &PeerExpectation,
) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = verifier(credentials, revocations, expect)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(
            certificates(&credentials.chain_pem)?,
            private_key(&credentials.key_pem)?,
        )?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Configuration with which the holder of the CA answers nodes that have no certificate yet.
/// `leaf_pem` and `key_pem` are what [`issue::Authority::issue_join`] returned.
///
/// # Errors
/// The certificates are damaged.
pub fn join_server_config(
    leaf_pem: &str,
    key_pem: &str,
    ca_pem: &str,
) -> Result<Arc<ServerConfig>, TlsError> {
    // The CA's own certificate is sent along, because the new node does not have it yet.
    let chain = vec![certificate(leaf_pem)?, certificate(ca_pem)?];
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, private_key(key_pem)?)?;
    harden(&mut config);
    Ok(Arc::new(config))
}

/// Configuration with which a new node connects to the holder of the CA that its token pins.
///
/// # Errors
/// Never in practice: only if the library refused its own versions.
pub fn join_client_config(pin: [u8; 32]) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = Arc::new(verify::PinVerifier {
        pin,
        provider: provider(),
    });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The identity of the peer after a finished handshake. For `tokio_rustls` streams: pass
/// `stream.get_ref().1`.
///
/// # Errors
/// If the peer agreed on no protocol version, or its chain is not that of a node.
pub fn peer_identity(connection: &CommonState) -> Result<PeerIdentity, TlsError> {
    check_version(connection)?;
    Ok(verify::identify(
        connection.peer_certificates().unwrap_or_default(),
    )?)
}

fn check_version(connection: &CommonState) -> Result<(), TlsError> {
    if connection.alpn_protocol() == Some(ALPN) {
        Ok(())
    } else {
        Err(TlsError::NoVersion)
    }
}

/// What a certificate of ours says of its holder.
pub(crate) fn subject_of_certificate(pem: &str) -> Result<crate::name::Subject, TlsError> {
    let der = certificate(pem)?;
    Ok(verify::subject_of(&parse(&der)?)?)
}
