//! The one table of x86-64 system calls, and everything that is derived from it.
//!
//! A guest computes away from its home. Each of its system calls is *local* (it runs natively in
//! the guest), *forwarded* (the deputy executes it at home) or makes the process *go home*. This
//! crate says which, and for a forwarded call it names every byte of the guest's memory that the
//! kernel may touch, so that home can place all of it before the call starts.
//!
//! The safety net is always the same: a call that the table does not know completely goes home,
//! where it runs natively. Nothing here owns a clock, a socket or a file; the guest's memory is
//! seen through [`GuestMemory`].
//!
//! - [`resolve()`] decides one call.
//! - [`guest_filter`] is the seccomp program of a guest.
//! - [`home_may_execute`] is home's own allow-list, for home does not trust the host.
//! - [`at_stop`] and its kin say what makes a stop invisible.
//! - [`doc::markdown`] makes `docs/syscalls.md`.

#![forbid(unsafe_code)]

mod at_once;
mod builder;
mod control;
mod decide;
pub mod doc;
mod filter;
pub mod fuzz;
mod hiding;
mod ioctl;
pub mod judge;
pub mod kept;
pub mod needed;
mod nested;
mod path;
mod prctl;
mod resolve;
mod shape;
mod signal_masks;
mod sockopt;
mod stopped;
mod table;
mod touch;
mod types;

pub use at_once::{AtOnce, at_once};
pub use decide::waits_for_futex;
pub use filter::{Instruction, Places, cautious_filter, guest_filter};
pub use hiding::{
    at_stop, ends_at_stop, ends_for_nothing, has_signals_of_its_own, relative_time, rest_of_time,
    restarts_here, result_when_over, transfer, waits_for_child, waits_for_signals,
};
pub use ioctl::is_terminal_control;
pub use path::is_of_home;
pub use resolve::{
    effect, home_may_execute, home_may_execute_call, may_signal, resolve, row, rows,
};
pub use shape::{CallClass, Effect, Row};
pub use stopped::{AtStop, Buffer, End, Limit, Only, Time, Transfer};
pub use touch::touched;
pub use types::{
    AWAIT_NUMBER, AWAY_BYTES_MAX, Context, Decision, Direction, Disposition, Forward, GuestMemory,
    MaskChange, NATIVE, NewThread, REGIONS_MAX, Region, Returned, Signal, SignalAction, Special,
    TimeoutArgument, TimeoutFormat, notified, signal_action,
};
