//! Verifying peers: the chain, its dates, its names, and that it was not revoked.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, PeerMisbehaved,
    SignatureScheme,
};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage};

use super::digest;
use super::issue::CLOCK_SKEW;
use crate::name::{ClusterName, PeerExpectation, PeerIdentity, Subject};
use crate::revocation::RevocationList;

/// Why a peer is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("The peer sent {0} certificates instead of 2: it is not a node of this version")]
    ChainLength(usize),
    #[error("The peer's certificate cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "The peer's certificate was not issued by this cluster's CA: it belongs to another cluster, or to none"
    )]
    OtherAuthority,
    #[error(
        "The peer's certificate has expired, by more than clocks may differ: check the clocks of both nodes, or whether it could not renew it"
    )]
    Expired,
    #[error(
        "The peer's certificate is not valid yet: the clock of one of the two nodes is off by more than a day"
    )]
    NotYetValid,
    #[error("The peer's certificate does not hold: {0}")]
    Invalid(String),
    #[error(
        "The peer's certificate names {leaf}, but was issued by {signer}: it pretends to be another node"
    )]
    ForeignName { leaf: String, signer: String },
    #[error("The peer's certificate does not name a node of this cluster")]
    NotANode,
    #[error("{0} was removed from the cluster")]
    Revoked(String),
    #[error("The peer is {found}, expected was {expected}")]
    Unexpected { found: String, expected: String },
    #[error(
        "The CA at the other end is not the one that the token names: the address leads to another cluster, or somebody is in between"
    )]
    PinMismatch,
}

impl Refusal {
    /// The error that the TLS library carries; it selects the alert that the peer gets.
    fn into_tls(self) -> rustls::Error {
        let error = match &self {
            Self::Expired => CertificateError::Expired,
            Self::NotYetValid => CertificateError::NotValidYet,
            Self::OtherAuthority => CertificateError::UnknownIssuer,
            Self::Revoked(_) => CertificateError::Revoked,
            _ => CertificateError::Other(OtherError(Arc::new(self))),
        };
        rustls::Error::InvalidCertificate(error)
    }

    /// The refusal in such an error, for the message of the side that refused.
    pub(super) fn of_tls(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired => Self::Expired,
            CertificateError::NotValidYet => Self::NotYetValid,
            CertificateError::UnknownIssuer => Self::OtherAuthority,
            CertificateError::Revoked => Self::Revoked("The peer".into()),
            CertificateError::Other(OtherError(inner)) => match inner.downcast_ref::<Self>() {
                Some(refusal) => refusal.clone(),
                None => Self::Invalid(inner.to_string()),
            },
            other => Self::Invalid(other.to_string()),
        }
    }
}

fn parse<'a>(der: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>, Refusal> {
    EndEntityCert::try_from(der).map_err(|e| Refusal::Unreadable(e.to_string()))
}

/// The one URI that a certificate of ours carries.
pub(super) fn subject_of(certificate: &EndEntityCert<'_>) -> Result<Subject, Refusal> {
    let mut names = certificate.valid_uri_names();
    let (first, second) = (names.next(), names.next());
    match (first, second) {
        (Some(uri), None) => uri.parse().map_err(|_| Refusal::NotANode),
        _ => Err(Refusal::NotANode),
    }
}

/// Reads the identity of the holder of a chain, without verifying any signature.
pub(crate) fn identify(chain: &[CertificateDer<'_>]) -> Result<PeerIdentity, Refusal> {
    let [leaf, signer] = chain else {
        return Err(Refusal::ChainLength(chain.len()));
    };
    let (leaf, signer) = (parse(leaf)?, parse(signer)?);
    let (leaf_subject, signer_subject) = (subject_of(&leaf)?, subject_of(&signer)?);
    let Subject::Node { cluster, node } = &signer_subject else {
        return Err(Refusal::NotANode);
    };
    let journey = match &leaf_subject {
        Subject::Node { .. } => None,
        Subject::Journey { journey, role, .. } => Some((journey.clone(), *role)),
        Subject::Join { .. } => return Err(Refusal::NotANode),
    };
    if leaf_subject.node() != Some(node) || leaf_subject.cluster() != cluster {
        return Err(Refusal::ForeignName {
            leaf: leaf_subject.to_string(),
            signer: signer_subject.to_string(),
        });
    }
    Ok(PeerIdentity {
        cluster: cluster.clone(),
        node: node.clone(),
        journey,
        serial: whim_secret::hexadecimal::hex(leaf.serial()),
        node_serial: whim_secret::hexadecimal::hex(signer.serial()),
    })
}

/// Checks signatures, constraints, purpose and dates, allowing [`CLOCK_SKEW`] either way.
fn verify_chain(
    leaf: &EndEntityCert<'_>,
    intermediates: &[CertificateDer<'_>],
    anchor: &TrustAnchor<'_>,
    provider: &CryptoProvider,
    usage: &Usage,
    now: UnixTime,
) -> Result<(), Refusal> {
    let at = |time: UnixTime| {
        let algorithms = provider.signature_verification_algorithms.all;
        let anchors = std::slice::from_ref(anchor);
        leaf.verify_for_usage(
            algorithms,
            anchors,
            intermediates,
            time,
            usage.key(),
            None,
            None,
        )
        .map(|_| ())
    };
    let seconds = now.as_secs();
    let shifted = |s: u64| UnixTime::since_unix_epoch(Duration::from_secs(s));
    let result = match at(now) {
        Err(webpki::Error::CertExpired { .. }) => at(shifted(seconds.saturating_sub(CLOCK_SKEW))),
        Err(webpki::Error::CertNotValidYet { .. }) => {
            at(shifted(seconds.saturating_add(CLOCK_SKEW)))
        }
        other => other,
    };
    result.map_err(|error| match error {
        webpki::Error::CertExpired { .. } => Refusal::Expired,
        webpki::Error::CertNotValidYet { .. } => Refusal::NotYetValid,
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            Refusal::OtherAuthority
        }
        other => Refusal::Invalid(other.to_string()),
    })
}

/// The role in which the peer uses its certificate.
enum Usage {
    Client,
    Server,
}

impl Usage {
    fn key(&self) -> KeyUsage {
        match self {
            Self::Client => KeyUsage::client_auth(),
            Self::Server => KeyUsage::server_auth(),
        }
    }
}

/// Verifies members of our cluster, in both directions.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    pub(super) anchor: TrustAnchor<'static>,
    pub(super) cluster: ClusterName,
    pub(super) revocations: RevocationList,
    pub(super) expect: PeerExpectation,
    pub(super) provider: Arc<CryptoProvider>,
}

impl PeerVerifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        usage: &Usage,
        now: UnixTime,
    ) -> Result<PeerIdentity, Refusal> {
        let [signer] = intermediates else {
            return Err(Refusal::ChainLength(intermediates.len() + 1));
        };
        let parsed = parse(leaf)?;
        verify_chain(
            &parsed,
            intermediates,
            &self.anchor,
            &self.provider,
            usage,
            now,
        )?;
        let chain = [leaf.clone(), signer.clone()];
        let peer = identify(&chain)?;
        if peer.cluster != self.cluster {
            return Err(Refusal::OtherAuthority);
        }
        if self.revocations.refuses(&peer) {
            return Err(Refusal::Revoked(peer.to_string()));
        }
        if !self.expect.admits(&peer) {
            let (found, expected) = (peer.to_string(), self.expect.to_string());
            return Err(Refusal::Unexpected { found, expected });
        }
        Ok(peer)
    }

    fn logged(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        usage: &Usage,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.verify(leaf, intermediates, usage, now)
            .map(|_| ())
            .map_err(|refusal| {
                tracing::warn!(%refusal, "a peer's certificate is refused");
                refusal.into_tls()
            })
    }
}

/// The library also requires functions for TLS 1.2 signatures, but we never speak TLS 1.2.
fn no_tls12() -> rustls::Error {
    rustls::Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.logged(end_entity, intermediates, &Usage::Server, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.logged(end_entity, intermediates, &Usage::Client, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Verifies the holder of the CA by the hash in a token, which is all that a new node knows.
#[derive(Debug)]
pub(super) struct PinVerifier {
    /// SHA-256 of the CA's SubjectPublicKeyInfo.
    pub(super) pin: [u8; 32],
    pub(super) provider: Arc<CryptoProvider>,
}

impl PinVerifier {
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let [authority] = intermediates else {
            return Err(Refusal::ChainLength(intermediates.len() + 1));
        };
        if digest::sha256(&parse(authority)?.subject_public_key_info()) != self.pin {
            return Err(Refusal::PinMismatch);
        }
        let anchor = webpki::anchor_from_trusted_cert(authority)
            .map_err(|e| Refusal::Unreadable(e.to_string()))?;
        let parsed = parse(leaf)?;
        verify_chain(&parsed, &[], &anchor, &self.provider, &Usage::Server, now)?;
        match subject_of(&parsed)? {
            Subject::Join { .. } => Ok(()),
            _ => Err(Refusal::NotANode),
        }
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now)
            .map_err(Refusal::into_tls)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
