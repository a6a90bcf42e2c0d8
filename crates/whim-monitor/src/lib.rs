//! What the monitors show: `whim top`, `whim mon` and the page draw the same picture of the cluster.
//!
//! The daemon sends its rows once, and from then on only their changes ([`feed`]). Each monitor keeps a picture
//! of them ([`model`]) and shows a part of it in some order ([`order`]). There is no clock, no socket and no
//! file here, so a recorded feed always gives the same pictures.
#![forbid(unsafe_code)]

pub mod feed;
pub mod history;
pub mod model;
pub mod moment;
pub mod order;
pub mod plain;
pub mod rows;
