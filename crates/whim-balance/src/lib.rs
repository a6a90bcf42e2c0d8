//! Where programs should be.
//!
//! Nodes measure themselves ([`load`]), report that to others ([`gossip`]), weigh their use ([`cost`]), and
//! decide for their own programs whether one of them is better off elsewhere. Everything here is pure: time,
//! random numbers and what the sensors say come as arguments, so that the simulator runs the same code as the
//! daemon.

#![forbid(unsafe_code)]

pub mod balancer;
pub mod candidate;
pub mod cost;
pub mod decide;
pub mod gossip;
pub mod load;
pub mod pace;
pub mod sample;
mod usher;

use serde::{Deserialize, Serialize};

/// A node of the cluster, as a hash of its name, because names are long and messages are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// Milliseconds of a node's own clock, which never steps back. The clocks of two nodes say nothing about each
/// other, so only ages are sent between nodes.
pub type Millis = u64;
