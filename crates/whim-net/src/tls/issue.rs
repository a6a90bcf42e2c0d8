//! Issuing: the cluster's CA, the signing certificate of each node, and the leaves below it.
//!
//! ```text
//! CA (10 years) ── signing certificate of a node (90 days) ── leaf of the node (TLS)
//!       │                                                  └─ leaf of each journey
//!       └── join leaf: proves to a new node that it speaks with the holder of the CA
//! ```

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
    SigningKey,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::digest::{self, POINT_LENGTH};
use super::{TlsError, point_of_certificate};
use crate::name::{ClusterName, NodeName, Subject};

const DAY: u64 = 24 * 60 * 60;
/// Life of the CA, in seconds.
pub const CA_LIFE: u64 = 3652 * DAY;
/// Life of a node's certificates, in seconds.
pub const NODE_LIFE: u64 = 90 * DAY;
/// Life of a journey's certificate, in seconds.
pub const JOURNEY_LIFE: u64 = 30 * DAY;
/// Life of the certificate that admits new nodes, in seconds.
pub const JOIN_LIFE: u64 = 2 * DAY;
/// Seconds by which clocks may differ in either direction: certificates begin this much before they
/// are made, and verifiers allow as much again.
pub const CLOCK_SKEW: u64 = DAY;

/// A certificate and what we need to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    pub pem: String,
    /// Serial number, lower-case hexadecimal.
    pub serial: String,
    /// Validity, in Unix seconds.
    pub not_before: u64,
    pub not_after: u64,
}

/// Private key of ECDSA P-256. Its `Debug` shows nothing of it.
pub struct SecretKey(KeyPair);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl SecretKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// Only where the kernel has no random numbers.
    pub fn generate() -> Result<Self, TlsError> {
        Ok(Self(
            KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(TlsError::issue)?,
        ))
    }

    /// Reads PKCS#8 PEM.
    ///
    /// # Errors
    /// Not such a key.
    pub fn from_pem(pem: &str) -> Result<Self, TlsError> {
        KeyPair::from_pkcs8_pem_and_sign_algo(pem, &rcgen::PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(TlsError::issue)
    }

    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// Public key, as an uncompressed point.
    #[must_use]
    pub fn point(&self) -> Vec<u8> {
        self.0.public_key_raw().to_vec()
    }

    /// Signs (ECDSA P-256 with SHA-256, ASN.1).
    ///
    /// # Errors
    /// Only where the kernel has no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.0.sign(message).map_err(TlsError::issue)
    }
}

/// A public key that came from elsewhere.
struct Point<'a>(&'a [u8]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn moment(seconds: u64) -> Result<OffsetDateTime, TlsError> {
    i64::try_from(seconds)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
        .ok_or(TlsError::Clock(seconds))
}

fn parameters(
    common_name: &str,
    uri: Option<&Subject>,
    not_before: u64,
    not_after: u64,
) -> Result<(CertificateParams, String), TlsError> {
    let mut parameters = CertificateParams::default();
    parameters.not_before = moment(not_before)?;
    parameters.not_after = moment(not_after)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    parameters.distinguished_name = name;
    if let Some(uri) = uri {
        let text = uri.to_string().try_into().map_err(TlsError::issue)?;
        parameters.subject_alt_names = vec![SanType::URI(text)];
    }
    let mut serial = digest::random::<16>()?;
    // Positive and of fixed length, so that its DER and its text are the same digits.
    serial[0] = serial[0] & 0x3f | 0x40;
    parameters.serial_number = Some(SerialNumber::from_slice(&serial));
    parameters.use_authority_key_identifier_extension = true;
    Ok((parameters, whim_secret::hexadecimal::hex(&serial)))
}

fn leaf_parameters(
    common_name: &str,
    subject: &Subject,
    now: u64,
    not_after: u64,
) -> Result<(CertificateParams, String), TlsError> {
    let not_before = now.saturating_sub(CLOCK_SKEW);
    let (mut leaf, serial) = parameters(common_name, Some(subject), not_before, not_after)?;
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok((leaf, serial))
}

/// A key that signs certificates, under the name that its own certificate gives it.
fn issuer<'a>(common_name: &str, key: &'a KeyPair) -> Issuer<'static, &'a KeyPair> {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name;
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Issuer::new(parameters, key)
}

/// The cluster's CA, with its key. Only the node that ran `init` has it.
#[derive(Debug)]
pub struct Authority {
    cluster: ClusterName,
    certificate_pem: String,
    key: SecretKey,
}

impl Authority {
    fn common_name(cluster: &ClusterName) -> String {
        format!("whim CA {cluster}")
    }

    /// Makes the CA of a new cluster.
    ///
    /// # Errors
    /// No random numbers, or a clock outside of what certificates can say.
    pub fn create(cluster: ClusterName, now: u64) -> Result<Self, TlsError> {
        let key = SecretKey::generate()?;
        let from = now.saturating_sub(CLOCK_SKEW);
        let (mut ca, _) = parameters(&Self::common_name(&cluster), None, from, now + CA_LIFE)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate_pem = ca.self_signed(&key.0).map_err(TlsError::issue)?.pem();
        Ok(Self {
            cluster,
            certificate_pem,
            key,
        })
    }

    /// Loads a CA from its certificate and key.
    ///
    /// # Errors
    /// If key and certificate do not belong together, or cannot be parsed.
    pub fn from_pem(
        cluster: ClusterName,
        certificate_pem: String,
        key_pem: &str,
    ) -> Result<Self, TlsError> {
        let key = SecretKey::from_pem(key_pem)?;
        if point_of_certificate(&certificate_pem)? != key.point() {
            return Err(TlsError::KeyMismatch);
        }
        Ok(Self {
            cluster,
            certificate_pem,
            key,
        })
    }

    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.to_pem()
    }

    /// Signs a statement of the CA that is no certificate (the list of members).
    ///
    /// # Errors
    /// No random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.key.sign(message)
    }

    /// Signs the signing certificate of `node`, whose public key is `point`.
    ///
    /// # Errors
    /// Not a public key, or a clock outside of what certificates can say.
    pub fn issue_node(&self, node: &NodeName, point: &[u8], now: u64) -> Result<Issued, TlsError> {
        if point.len() != POINT_LENGTH || point[0] != 4 {
            return Err(TlsError::PublicKey);
        }
        let subject = Subject::Node {
            cluster: self.cluster.clone(),
            node: node.clone(),
        };
        let (not_before, not_after) = (now.saturating_sub(CLOCK_SKEW), now + NODE_LIFE);
        let (mut signer, serial) =
            parameters(node.as_str(), Some(&subject), not_before, not_after)?;
        signer.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        signer.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = issuer(&Self::common_name(&self.cluster), &self.key.0);
        let certificate = signer
            .signed_by(&Point(point), &issuer)
            .map_err(TlsError::issue)?;
        Ok(Issued {
            pem: certificate.pem(),
            serial,
            not_before,
            not_after,
        })
    }

    /// A leaf with which the CA itself answers new nodes, and its key as PEM.
    ///
    /// # Errors
    /// As [`Authority::issue_node`].
    pub fn issue_join(&self, now: u64) -> Result<(Issued, String), TlsError> {
        let subject = Subject::Join {
            cluster: self.cluster.clone(),
        };
        let not_after = now + JOIN_LIFE;
        let (leaf, serial) = leaf_parameters("join", &subject, now, not_after)?;
        let key = SecretKey::generate()?;
        let issuer = issuer(&Self::common_name(&self.cluster), &self.key.0);
        let certificate = leaf.signed_by(&key.0, &issuer).map_err(TlsError::issue)?;
        let not_before = now.saturating_sub(CLOCK_SKEW);
        Ok((
            Issued {
                pem: certificate.pem(),
                serial,
                not_before,
                not_after,
            },
            key.to_pem(),
        ))
    }
}

/// A node's signing certificate with its key, which makes leaves for the node and its journeys.
#[derive(Debug)]
pub struct NodeSigner {
    node: NodeName,
    certificate: Issued,
    key: SecretKey,
}

impl NodeSigner {
    /// Puts certificate and key together.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn new(node: NodeName, certificate: Issued, key: SecretKey) -> Result<Self, TlsError> {
        if point_of_certificate(&certificate.pem)? != key.point() {
            return Err(TlsError::KeyMismatch);
        }
        Ok(Self {
            node,
            certificate,
            key,
        })
    }

    #[must_use]
    pub fn certificate(&self) -> &Issued {
        &self.certificate
    }

    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.to_pem()
    }

    /// Issues a leaf with a new key; returns the certificate and that key as PEM. It never
    /// outlives the signing certificate.
    ///
    /// # Errors
    /// No random numbers, or a clock outside of what certificates can say.
    pub fn issue_leaf(
        &self,
        subject: &Subject,
        life: Duration,
        now: u64,
    ) -> Result<(Issued, String), TlsError> {
        let not_after = now
            .saturating_add(life.as_secs())
            .min(self.certificate.not_after);
        let (leaf, serial) = leaf_parameters(self.node.as_str(), subject, now, not_after)?;
        let key = SecretKey::generate()?;
        let issuer = issuer(self.node.as_str(), &self.key.0);
        let certificate = leaf.signed_by(&key.0, &issuer).map_err(TlsError::issue)?;
        let not_before = now.saturating_sub(CLOCK_SKEW);
        Ok((
            Issued {
                pem: certificate.pem(),
                serial,
                not_before,
                not_after,
            },
            key.to_pem(),
        ))
    }
}
