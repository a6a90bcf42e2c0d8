//! What a node reports to Prometheus: names, units and labels of its metrics, and the text that contains them.
//!
//! There is no clock, no socket and no file here. The daemon counts what happens ([`Counters`]), describes its
//! present state when it is asked ([`Snapshot`]), and gets a text ([`Metrics::text`]). Labels have the values
//! of the types in [`labels`] and no others, so a node has the same few hundred series whatever runs on it: no
//! process, user or command has a series of its own.
#![forbid(unsafe_code)]

mod exposition;
pub mod fuzz;
pub mod labels;
mod metrics;
mod snapshot;

pub use exposition::{Format, negotiate};
pub use metrics::{Counters, Metrics};
pub use snapshot::{Guests, Members, Processes, Snapshot};
