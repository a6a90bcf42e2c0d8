//! What home and a host say to each other, as far as it matters.

use std::collections::VecDeque;

use super::end;
use super::thread::{Asking, ThreadImage};

#[derive(Clone, Copy, Debug)]
pub(super) enum Say {
    Prepare,
    Prepared,
    Image(ThreadImage),
    Ready,
    Commit,
    Started,
    Acknowledged,
    Asks(Asking),
    Reply { sequence: u64, done: bool },
    Freeze,
    Onward(usize),
    Failed,
    Resume,
    Discard,
    Heartbeat,
}

pub(super) type Line = end::Line<Say>;

/// A frame, and the connection by which it goes.
pub(super) type Sent = (usize, end::Frame<Say>);

/// Frames on their way to one side.
pub(super) type Way = VecDeque<Sent>;
