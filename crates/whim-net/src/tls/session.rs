//! One TLS session without its socket.

use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::ServerConnection;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, Connection, ServerConfig};

use super::verify::Refusal;
use super::{TlsError, peer_identity};
use crate::name::PeerIdentity;

/// Longest plaintext of one TLS record, and what a record adds to it on the wire, in bytes.
const RECORD_PLAIN: usize = 16384;
const RECORD_OVERHEAD: usize = 5 + 1 + 16;

/// Why a session cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// We refused the peer's certificate.
    Refused(Refusal),
    /// The peer refused ours, or something else about us.
    RefusedByPeer(String),
    /// The bytes are no TLS, or break its rules.
    Protocol(String),
}

impl From<rustls::Error> for Failure {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(inner) => Self::Refused(Refusal::of_tls(&inner)),
            rustls::Error::AlertReceived(alert) => Self::RefusedByPeer(sentence(alert)),
            rustls::Error::NoCertificatesPresented => {
                Self::Protocol("it shows no certificate: it is not a member of the cluster".into())
            }
            other => Self::Protocol(other.to_string()),
        }
    }
}

fn sentence(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRevoked => "this node was removed from the cluster".into(),
        AlertDescription::CertificateExpired => {
            "our certificate has expired, or the clocks differ by more than a day".into()
        }
        AlertDescription::UnknownCA => "it belongs to another cluster".into(),
        AlertDescription::CertificateUnknown | AlertDescription::BadCertificate => {
            "our certificate does not name whom it expects".into()
        }
        AlertDescription::CertificateRequired => "it wants a certificate and got none".into(),
        AlertDescription::NoApplicationProtocol | AlertDescription::ProtocolVersion => {
            "it speaks no protocol version of ours: upgrade the older of the two nodes".into()
        }
        other => format!("TLS alert {other:?}"),
    }
}

pub(crate) struct Session {
    connection: Connection,
}

impl Session {
    pub(crate) fn client(config: Arc<ClientConfig>, server_name: &str) -> Result<Self, TlsError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| TlsError::Credentials(format!("{server_name:?} is no server name")))?;
        Ok(Self::of(ClientConnection::new(config, name)?.into()))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        Ok(Self::of(ServerConnection::new(config)?.into()))
    }

    fn of(mut connection: Connection) -> Self {
        // By default the library accepts only a part of what is queued once its buffer is full. The
        // caller sees `queued_bytes` and decides itself when it has queued enough.
        connection.set_buffer_limit(None);
        Self { connection }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Decrypts `cipher`, and passes each piece of plaintext to `sink`. Returns true if the peer
    /// has closed.
    pub(crate) fn feed<E: From<Failure>>(
        &mut self,
        mut cipher: &[u8],
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut closed = false;
        while !cipher.is_empty() && !closed {
            // Consumes up to 4 KiB of `cipher`; an error means a record longer than TLS allows.
            self.connection
                .read_tls(&mut cipher)
                .map_err(|e| Failure::Protocol(e.to_string()))?;
            let state = self
                .connection
                .process_new_packets()
                .map_err(Failure::from)?;
            closed = state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut reader = self.connection.reader();
                let piece = reader
                    .fill_buf()
                    .map_err(|e| Failure::Protocol(e.to_string()))?;
                let length = piece.len();
                if length == 0 {
                    break;
                }
                sink(piece)?;
                reader.consume(length);
                left = left.saturating_sub(length);
            }
        }
        Ok(closed)
    }

    /// Encrypts `parts` as one run of plaintext, in as few records as possible. Returns the length
    /// on the wire, in bytes.
    pub(crate) fn seal(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, Failure> {
        let length: usize = parts.iter().map(|p| p.len()).sum();
        let taken = self
            .connection
            .writer()
            .write_vectored(parts)
            .map_err(|e| Failure::Protocol(e.to_string()))?;
        // Without a buffer limit the library accepts all; anything else would tear a frame.
        if taken != length {
            return Err(Failure::Protocol(
                "the session took a part of a frame".into(),
            ));
        }
        Ok(length + length.div_ceil(RECORD_PLAIN) * RECORD_OVERHEAD)
    }

    /// Writes ciphertext to `socket`, in one call.
    pub(crate) fn write_to(&mut self, socket: &mut dyn io::Write) -> io::Result<usize> {
        self.connection.write_tls(socket)
    }

    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    pub(crate) fn peer(&self) -> Result<PeerIdentity, TlsError> {
        peer_identity(&self.connection)
    }

    /// Checks that both sides have agreed on a protocol version of ours.
    pub(crate) fn check_version(&self) -> Result<(), TlsError> {
        super::check_version(&self.connection)
    }
}
