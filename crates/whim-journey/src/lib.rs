//! The migration protocol: frames, messages, jobs, and what is decided by it. No clock, no socket, no
//! file.
//!
//! The deciding parts are state machines of one form: `handle(now, event)` gives what is to be done.
//! The supervisors run them, and so does the simulator of the system tests
//! (`tests/system/schedules`), through all kinds of faults.
//!
//! - [`session`]: frames survive their connections.
//! - [`turn`]: each call of a thread is executed once.
//! - [`commit`]: home's half of a move; [`lease`]: how long it waits for a host; [`recall`]: how long for
//!   a guest that is to come home.
//! - [`stay`]: the guest's half of both.
#![forbid(unsafe_code)]

pub mod cause;
pub mod commit;
pub mod frame;
pub mod fuzz;
pub mod job;
pub mod lease;
pub mod message;
pub mod recall;
pub mod session;
pub mod stay;
pub mod turn;
