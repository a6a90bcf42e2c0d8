//! What home and a host say to each other, and the production's sessions over which they do.

use whim_journey::fuzz::end;
pub(super) use whim_journey::fuzz::end::Body;
use whim_journey::fuzz::thread::{Asking, ThreadImage};

/// What home and a host say to each other, as far as it matters here.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Prepare,
    Prepared,
    Image(Vec<ThreadImage>),
    Ready,
    Commit,
    Started,
    Acknowledged,
    Asks {
        thread: usize,
        asking: Asking,
    },
    /// `done`: it had its effect; otherwise it is to be made again.
    Reply {
        thread: usize,
        sequence: u64,
        done: bool,
    },
    Freeze,
    Onward(u32),
    Failed,
    Resume,
    Discard,
    Heartbeat,
}

pub(super) type Frame = end::Frame<Message>;

/// One end of a line.
pub(super) type Line = end::Line<Message>;
