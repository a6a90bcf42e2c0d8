//! The guest supervisor: one visiting process in a sandbox, its memory, its calls.
//!
//! - [`sandbox`]: the empty namespaces and the blank process in them.
//! - `arrival`: from the blank process to the guest.
//! - [`supervisor`]: the one loop; `link` and `control` are its connections, `reception` is
//!   where they come in.
//! - `guest`: threads and their stops; `calls` and `signals` are what happens to them. `cut`
//!   reads the registers of a stopped call, `unread` is where a handler meets one that has not begun;
//!   `times` adds up their CPU time, `waits` what is left of their waits.
//! - [`pager`], [`table`], `memory`: pages that come from home when they are needed.
//! - `capture`: the way out.
#![forbid(unsafe_code)]

mod arrival;
mod calls;
mod capture;
mod clocks;
mod control;
mod cut;
mod error;
mod fault;
mod guest;
mod limits;
mod link;
mod mappings;
mod memory;
mod numbers;
pub mod pager;
mod reception;
pub mod sandbox;
mod signals;
pub mod supervisor;
pub mod table;
mod threads;
mod tickets;
mod times;
mod unread;
mod waits;
