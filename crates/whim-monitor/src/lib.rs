//! What the monitors show: `whim top`, `whim mon` and the page draw the same picture of the cluster.
//!
//! The daemon tells its rows once, and from then on what has changed of them ([`feed`]); each monitor keeps
//! a picture of it ([`model`]) and shows a part in some order ([`order`]). No clock, no socket, no file: a
//! recorded feed gives the same pictures.
#![forbid(unsafe_code)]

pub mod feed;
pub mod history;
pub mod model;
pub mod moment;
pub mod order;
pub mod plain;
pub mod rows;
