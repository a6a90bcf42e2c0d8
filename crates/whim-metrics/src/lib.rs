//! What a node tells Prometheus: names, units and labels of its metrics, and the text that they make.
//!
//! No clock, no socket, no file: the daemon counts what happens ([`Counters`]), says how things stand when
//! it is asked ([`Snapshot`]), and gets a text ([`Metrics::text`]). Labels take the values of the types in
//! [`labels`] and no others, so that a node has the same few hundred series whatever runs on it: no process,
//! no user and no command has a series of its own.
#![forbid(unsafe_code)]

mod exposition;
pub mod fuzz;
pub mod labels;
mod metrics;
mod snapshot;

pub use exposition::{Format, negotiate};
pub use metrics::{Counters, Metrics};
pub use snapshot::{Guests, Members, Processes, Snapshot};
