//! The guest supervisor: one visiting process in a sandbox, its memory, its calls.
#![forbid(unsafe_code)]

pub mod calls;
pub mod guest;
pub mod memory;
pub mod pager;
pub mod sandbox;
pub mod signals;
pub mod table;
