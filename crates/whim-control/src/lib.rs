//! What the command line and the daemon share: what they say to each other, where a daemon is found, and what
//! it is configured to do.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod client;
pub mod config;
pub mod fuzz;
pub mod history;
mod owned;
pub mod places;
pub mod protocol;
