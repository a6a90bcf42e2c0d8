//! Where programs should be.
//!
//! Nodes measure themselves ([`load`]), tell others ([`window`]), weigh themselves ([`cost`]), and decide for their own programs
//! whether one of them is better off elsewhere. Everything here is pure: time, chance and what the
//! sensors say come as arguments, so that the simulator runs what the daemon runs.

#![forbid(unsafe_code)]

pub mod balancer;
pub mod candidate;
pub mod cost;
pub mod decide;
pub mod load;
pub mod pace;
pub mod sample;
mod usher;
pub mod window;

use serde::{Deserialize, Serialize};

/// A node of the cluster, by a hash of its name: names are long, and messages are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// Milliseconds of a node's own clock, which never steps back. Those of two nodes say nothing about each
/// other: between nodes only ages travel.
pub type Millis = u64;
