//! What home and a host say to each other, and the production's sessions over which they do.

use whim_journey::fuzz::end;
pub use whim_journey::fuzz::end::{Body, ThreadImage};

/// What home and a host say to each other, as far as it matters here.
#[derive(Clone, Debug)]
pub enum Message {
    Prepare,
    Prepared,
    Image(Vec<ThreadImage>),
    Ready,
    Commit,
    Started,
    Acknowledged,
    Call {
        thread: usize,
        sequence: u64,
        serial: u64,
    },
    Await {
        thread: usize,
        sequence: u64,
        awaited: u64,
    },
    /// Anything else that has an effect: it is done and answered at once.
    Other {
        thread: usize,
        sequence: u64,
        serial: u64,
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

pub type Frame = end::Frame<Message>;

/// One end of a line.
pub type Line = end::Line<Message>;
