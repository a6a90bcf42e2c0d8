//! What the command line and the daemon share: their protocol, the places where a daemon is found, and its
//! configuration.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod client;
pub mod config;
pub mod fuzz;
pub mod history;
mod owned;
pub mod places;
pub mod protocol;
pub mod rules;
pub mod similar;
