//! The guest supervisor: one visiting process in a sandbox, its memory, its calls.
#![forbid(unsafe_code)]

pub mod sandbox;
