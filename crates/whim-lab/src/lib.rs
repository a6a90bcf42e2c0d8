//! A cluster on one machine: every node in namespaces, cgroups and directories of its own.
//!
//! A lab is one *switch* (a network namespace that routes between the nodes and lets links be
//! cut, slowed or made lossy) and up to 32 *nodes* (network, PID, mount, UTS, IPC and time
//! namespaces with a private first process). All namespaces are held by processes and nothing
//! else: no mount, interface or file outside the lab's directory and cgroup belongs to a lab, so
//! that ending the processes ends everything.
//!
//! The way of a packet from n1 to n2: `eth0` in n1, `v1` in the switch, the routing table there
//! (or, where a link was given properties, a cable with a rate or a wire process between two TUN
//! devices), `v2`, `eth0` in n2. A cut is a pair of blackhole rules in the switch: no error
//! reaches either side.
//!
//! The crate never prints. Its helper processes are re-executions of a binary whose `main` hands
//! `lab-node ...` to [`node::main`] before doing anything else.
#![forbid(unsafe_code)]

mod bootstrap;
mod cgroup;
mod command;
mod enter;
mod error;
mod lab;
mod layout;
mod listing;
mod mounts;
mod network;
pub mod node;
pub mod options;
mod process;
mod role;
mod state;
mod status;
mod teardown;
mod wire;
mod wire_role;

pub use error::LabError;
pub use lab::Lab;
pub use listing::{ListedLab, list_all};
pub use options::{Bootstrap, LinkSettings, Options, Place, Step};
pub use status::{DaemonStatus, LabStatus, LinkStatus, NodeState, NodeStatus, WireCounters};
