//! The migration protocol: frames, messages, jobs. No clock, no socket, no file.
#![forbid(unsafe_code)]

pub mod frame;
pub mod fuzz;
pub mod job;
pub mod message;
pub mod session;
