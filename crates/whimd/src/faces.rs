//! The interfaces of this node: the command line, the monitors, the page, metrics, other nodes.

pub(crate) mod clients;
mod guests;
pub(crate) mod health;
pub(crate) mod lines;
pub(crate) mod listing;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod port;
mod reasons;
pub(crate) mod registering;
pub(crate) mod requests;
pub(crate) mod server;
pub(crate) mod telling;
pub(crate) mod tuning;
#[cfg(test)]
mod waiting;
pub(crate) mod watched;
pub(crate) mod web;
