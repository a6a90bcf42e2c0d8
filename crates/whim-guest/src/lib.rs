//! The guest supervisor: one visiting process in a sandbox, its memory, its calls.
//!
//! - [`sandbox`]: the empty namespaces and the blank process in them.
//! - `arrival`: from the blank process to the guest.
//! - [`supervisor`]: the main loop. `connections` and `control` are its connections, and `reception`
//!   accepts them.
//! - `guest`: threads and their stops. `calls` and `signals` handle what happens to the threads, `own_signals`
//!   what they send each other.
//!   `cut` reads the registers of a stopped call. `unread` handles a signal whose handler is due
//!   before a reported call has begun. `entries` brings threads back into calls that wait for signals. `times` adds up the threads' CPU time, and `waits` computes
//!   what is left of their timed waits.
//! - [`pager`], [`table`], `memory`: pages that come from home when they are needed. `remap`: file
//!   mappings that become longer. `populate`: pages that are made at once. `refresh`: files that change at home.
//! - `allowance`: what this host allows a guest besides memory.
//! - `capture`: the way out, from the guest to an image.
#![forbid(unsafe_code)]

mod allowance;
mod arrival;
mod calls;
mod capture;
mod clocks;
mod connections;
mod control;
mod cpu_time;
mod cut;
mod descriptor_signals;
mod entries;
mod error;
mod fault;
mod first;
mod guest;
mod kernel_code;
mod limits;
mod mappings;
mod masked;
mod memory;
mod mirrored;
mod numbers;
mod own_signals;
pub mod pager;
mod populate;
mod queueing;
mod reception;
mod refresh;
mod remap;
mod remarks;
mod reply;
pub mod sandbox;
mod signals;
pub mod supervisor;
pub mod table;
mod threads;
mod tickets;
mod times;
mod title;
mod unread;
mod waits;
