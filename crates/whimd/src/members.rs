//! Which nodes are in the cluster, how they are reached, and what they say to each other.

pub(crate) mod cluster;
pub(crate) mod discovery;
pub(crate) mod gossip;
pub(crate) mod handshakes;
pub(crate) mod membership;
pub(crate) mod peers;
pub(crate) mod pulse;
pub(crate) mod swim;
pub(crate) mod upkeep;
