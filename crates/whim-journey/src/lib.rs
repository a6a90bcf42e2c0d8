//! The migration protocol: frames, messages, jobs, and the decisions that it takes. Nothing here
//! uses a clock, a socket or a file.
//!
//! The parts that decide are state machines of one form: `handle(now, event)` returns what is to be
//! done. The supervisors run them, and so does the simulator of the system tests
//! (`tests/system/schedules`), through all kinds of faults.
//!
//! - [`session`]: frames survive their connections.
//! - [`turn`]: each call of a thread is executed once.
//! - [`commit`]: home's half of a move; [`lease`]: how long home waits for a host; [`recall`]: how
//!   long it waits for a guest that is to come home.
//! - [`stay`]: the guest's half of a move and of the lease.
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
