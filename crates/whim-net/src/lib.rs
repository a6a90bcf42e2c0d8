//! Identity, mutual TLS and connections.
#![forbid(unsafe_code)]

pub mod channel;
pub mod files;
pub mod hello;
mod inbox;
mod link;
pub mod name;
pub mod revocation;
pub mod tls;

pub use channel::{Channel, ChannelError, Received};
pub use name::{JourneyId, NodeName, PeerExpectation, PeerIdentity, Role};
pub use revocation::{RevocationList, Revoked};
pub use tls::{Credentials, client_config, peer_identity, server_config};
