//! A process as data: freeze it, capture it, rebuild it.
#![forbid(unsafe_code)]

pub mod model;
pub mod rebuild;
