//! Identity, mutual TLS and connections.
#![forbid(unsafe_code)]

mod authority;
pub mod channel;
pub mod datagram;
pub mod door;
pub mod fuzz;
pub mod hello;
mod holder;
mod inbox;
pub mod join;
mod kept;
pub mod line;
mod meanwhile;
pub mod name;
pub mod port;
pub mod removal;
mod revocation;
pub mod roster;
pub mod state;
pub mod tls;
pub mod token;
mod transport;

pub use channel::{Channel, ChannelError, Received};
pub use door::{Door, Fresh};
pub use line::Line;
pub use meanwhile::{Rhythm, meanwhile};
pub use name::{JourneyId, NodeName, PeerExpectation, PeerIdentity, Role};
pub use removal::{Removal, SignedRemoval};
pub use revocation::{RevocationList, Revoked};
pub use roster::{Member, Roster, SignedRoster};
pub use state::{NodeOptions, State, StateError};
pub use tls::{Credentials, client_config, peer_identity, server_config};
pub use token::Admitted;

/// The time in Unix seconds, in which this crate's functions expect it.
#[must_use]
pub fn unix_now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
