//! The daemon of a node.
#![forbid(unsafe_code)]

mod balancing;
mod daemon;
mod faces;
mod faults;
pub mod fuzz;
mod host;
mod line;
mod locks;
mod members;
mod moves;
mod past;
mod rounds;
mod settings;
mod start;

pub use faces::clients::CLIENTS_OF_USER_MAX;
pub use members::handshakes::{HANDSHAKES_BURST, HANDSHAKES_PER_SECOND};
pub use members::port::HELLOS_MAX;
pub use start::main;
