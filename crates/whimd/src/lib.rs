//! The daemon of a node.
#![forbid(unsafe_code)]

mod balancing;
mod blocking;
mod daemon;
mod faces;
mod faults;
pub mod fuzz;
mod ground;
mod host;
mod leaving;
mod line;
mod locks;
mod members;
mod moves;
mod past;
mod rounds;
mod settings;
mod start;
mod words;

pub use faces::port::HELLOS_MAX;
pub use members::handshakes::{HANDSHAKES_BURST, HANDSHAKES_PER_SECOND};
pub use settings::CLIENTS_OF_USER_MAX;
pub use start::main;
