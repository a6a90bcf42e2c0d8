//! What home and guest supervisors say to each other.
//!
//! A `ToGuest` or `ToHome` frame is the postcard form of one message, followed by the message's
//! *tail*: raw bytes (inputs of a call, outputs of a reply) that no serializer copies. A tail that
//! does not fit its frame is preceded by [`Kind::Data`](crate::frame::Kind) frames: `i32 tid`,
//! then bytes that belong in front of the tail of that thread's next message.
//!
//! # The way out (and onward, where the guest being left plays the source)
//! ```text
//! home                                   host
//!  | Hello (call channel, page channel)   |
//!  | Ping                               ->|
//!  |<- Pong (some times)                  |  how far its clocks are from home's
//!  | Prepare                            ->|  sandbox, blank process, clock offsets
//!  |<- Prepared                           |
//!  | freeze, capture                      |
//!  | Image*, Pages*, Complete           ->|  rebuild
//!  |<- Ready                              |
//!  | journal; Commit                    ->|  threads run, forward nothing
//!  |<- Started                            |
//!  | Acknowledged                       ->|  calls flow
//!  | convert the original                 |
//! ```
//! # The way home
//! ```text
//!  | Freeze { home }                    ->|  stop all threads
//!  |<- Image*, Pages*, Complete           |  guest stays frozen
//!  | restore the original                 |
//!  | Discard                            ->|  guest ends
//! ```

use crate::frame::FRAME_PAYLOAD_MAX;
use crate::job::Phase;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use whim_model::{Clocks, CpuTime, MappingId, ProcessImage};

/// Bytes of tail that one frame carries at most; the rest goes before it in `Data` frames.
pub const TAIL_IN_FRAME_MAX: usize = FRAME_PAYLOAD_MAX - (64 << 10);
/// Bytes of tail of one message, over all its frames.
pub const TAIL_MAX: usize = 34 << 20;
/// Regions of one call (a vector of 1,024 pieces, and the vectors themselves).
pub const REGIONS_MAX: usize = 4096;

/// Bytes of a program's arguments and environment that home is told of when they change.
pub const TITLE_MAX: usize = 16 << 10;

/// Threads whose tails may be on their way in pieces at the same time.
pub const TAILS_MAX: usize = 64;

/// The result of a mapping that may never be made executable.
pub const MAPPED_WITHOUT_EXECUTION: i64 = 1;
/// Mappings that the guest gives back to home in one message.
pub const RELEASED_MAX: usize = 64;

/// What a new connection between supervisors is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelRole {
    /// Home's connection for calls, replies, signals and control.
    Calls,
    /// Home's connection on which the guest fetches pages.
    Pages,
    /// The guest being left sends its image to the next host.
    Source,
}

/// First message on every connection, sent by the side that connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub journey: String,
    pub epoch: u32,
    pub version_min: u16,
    pub version_max: u16,
    pub role: ChannelRole,
    /// Set on a connection that takes the place of a lost one.
    pub resume: Option<Resume>,
}

/// What the dialing side asks on a new connection (see [`crate::session`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// Rises with each question of a session.
    pub attempt: u32,
    /// Frames received so far.
    pub received: u64,
}

/// Which way a region's bytes go, as in `whim_calls::Direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireDirection {
    In,
    Out,
    InOut,
    /// Placed like an input, and protected from writes while the call runs.
    Protected,
}

/// How much of a region comes back, as in `whim_calls::Returned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireReturned {
    Nothing,
    Whole,
    WholeAlways,
    Changed,
    ByResult { skip: u64 },
    ByResultTimes { unit: u64 },
}

/// One buffer of a forwarded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireRegion {
    pub address: u64,
    pub length: u64,
    pub direction: WireDirection,
    pub returned: WireReturned,
    /// Bytes of the tail that belong to this region (<= `length`; 0 for `Out`).
    pub data_length: u64,
}

impl From<&whim_calls::Region> for WireRegion {
    fn from(region: &whim_calls::Region) -> Self {
        use whim_calls::{Direction, Returned};
        Self {
            address: region.address,
            length: region.length,
            direction: match region.direction {
                Direction::In => WireDirection::In,
                Direction::Out => WireDirection::Out,
                Direction::InOut => WireDirection::InOut,
                Direction::Protected => WireDirection::Protected,
            },
            returned: match region.returned {
                Returned::Nothing => WireReturned::Nothing,
                Returned::Whole => WireReturned::Whole,
                Returned::WholeAlways => WireReturned::WholeAlways,
                Returned::Changed => WireReturned::Changed,
                Returned::ByResult { skip } => WireReturned::ByResult { skip },
                Returned::ByResultTimes { unit } => WireReturned::ByResultTimes { unit },
            },
            data_length: region.data.len() as u64,
        }
    }
}

/// Kind of disposition that home's kernel must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disposition {
    Default,
    Ignore,
    Caught,
}

/// A forwarded call. The tail holds the regions' data in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRequest {
    pub tid: i32,
    /// Rises by one with each message of this thread. Its upper half is the epoch, so that it rises
    /// over the whole stay away, onward moves included.
    pub sequence: u64,
    pub number: u64,
    pub args: [u64; 6],
    pub may_block: bool,
    /// The number of a call that a signal will interrupt, for which this one looks whether something is ready: if
    /// nothing is, that call has been interrupted.
    pub looks_for: Option<u64>,
    /// Job-control signals that the thread blocks (bit `signal - 1`). Home's kernel considers them
    /// when a background process uses the terminal.
    pub masked: u64,
    pub regions: Vec<WireRegion>,
}

/// Readings of the clocks of two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// The host's clocks at some moment.
    pub host: Clocks,
    /// Home's clocks, read no earlier than that moment.
    pub home: Clocks,
}

/// What a host's kernel, groups and limits allow one guest, besides memory. It is asked before a process is
/// frozen: one that has more stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    pub mappings: u64,
    pub threads: u64,
}

/// Messages of the guest supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHome {
    /// The host's own clocks, when it got `Ping`.
    Pong {
        clocks: Clocks,
    },
    Prepared {
        allowance: Allowance,
    },
    /// The process is rebuilt, from an image and this many bytes of pages.
    Ready {
        bytes: u64,
    },
    Started {
        clocks: Clocks,
    },
    /// Nothing has been started here; home resumes what it has.
    Failed {
        #[serde(with = "crate::job::phase_name")]
        phase: Phase,
        reason: String,
    },
    Call(CallRequest),
    /// A private `mmap` of a file: home maps the file into the attic.
    MapFile {
        tid: i32,
        sequence: u64,
        length: u64,
        protection: u32,
        flags: u32,
        fd: i32,
        offset: u64,
    },
    /// `mremap` is about to make a mapping of a file longer, or to leave a fresh one where it was
    /// (MREMAP_DONTUNMAP). Home makes one more mapping of that file in the attic: `new_length` bytes
    /// from `offset` of `mapping` on, of which `mapping` shows `length`.
    RemapFile {
        tid: i32,
        sequence: u64,
        mapping: MappingId,
        offset: u64,
        length: u64,
        new_length: u64,
        /// What is at the end of the range that `mremap` names: mapping, offset in it, and how far
        /// that is from the beginning of the range. At home one mapping has to show all of it.
        ends: (MappingId, u64, u64),
    },
    /// `rt_sigaction` is about to take effect in the guest.
    Disposition {
        tid: i32,
        sequence: u64,
        signal: u8,
        disposition: Disposition,
        flags: u64,
    },
    /// What became of the thread's call in flight at the moment of a freeze? `awaited` is that
    /// call's sequence number, 0 for the call in which the thread left home.
    Await {
        tid: i32,
        sequence: u64,
        awaited: u64,
    },
    /// Interrupt this thread's call: a handler has to run.
    Cancel {
        tid: i32,
        sequence: u64,
    },
    /// A signal that the guest asked to send to itself is deliverable at home only, or the guest
    /// met something that only home can do. Home answers with `Freeze`.
    GoHome {
        tid: i32,
        reason: String,
    },
    /// A signal stops the process by default. The guest holds its threads until `Continue`; home's
    /// kernel decides whether and how the process is stopped. `continues` is how many SIGCONT the
    /// guest had from home before; a later SIGCONT makes the stop void.
    DefaultStop {
        tid: i32,
        signal: u8,
        info: Vec<u8>,
        continues: u32,
    },
    /// All pages of the image have been sent.
    Complete,
    /// A thread makes another thread. The answer is the number of the deputy thread that home has
    /// made for the new thread, or a negative errno. `flags` are those of `clone` that concern
    /// home's half.
    NewThread {
        tid: i32,
        sequence: u64,
        flags: u64,
    },
    /// The thread has ended (`exit`), its guest half waits for the reply.
    ThreadExit {
        tid: i32,
        sequence: u64,
        code: i32,
    },
    /// `exit_group`; home answers by ending the deputy, and then with `Ended`.
    ProcessExit {
        tid: i32,
        code: i32,
        /// CPU time of the process since it left home.
        cpu_away: CpuTime,
    },
    Heartbeat {
        clocks: Clocks,
        used: Used,
    },
    /// The program has written over its arguments or environment; the tail holds the bytes that now
    /// stand at this address, at most [`TITLE_MAX`].
    Title {
        address: u64,
    },
    /// Mappings of the attic that the guest shows nowhere any more, at most [`RELEASED_MAX`]. It comes before the next
    /// call, which may ask for the room of their files.
    Released {
        mappings: Vec<MappingId>,
    },
}

/// What a guest uses. Zeros mean nothing: while it is being sent, nobody counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time of the process since it left home.
    pub cpu_away: CpuTime,
    /// Nanoseconds for which its threads of now have run or waited for a CPU of this host.
    pub busy_ns: u64,
    /// For a guest on its way in: how much of it has arrived so far.
    pub resident_bytes: u64,
}

/// Messages of the home supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuest {
    /// Answered at once, even before a guest is here.
    Ping,
    Prepare {
        /// As home's node knows the process.
        pid: i32,
        /// As it knows itself: in its own pid namespace.
        own_pid: i32,
        /// Its real user id, as it sees it itself.
        uid: u32,
        threads: u32,
        resident_bytes: u64,
        clocks: ClockPair,
        lease_ms: Option<u64>,
    },
    /// All pages of the image have been sent. `clocks`: home's now.
    Complete {
        clocks: Clocks,
    },
    Commit {
        clocks: Clocks,
    },
    Acknowledged,
    /// Result of a call; the tail holds the outputs, `outputs[i]` bytes for region `i`. Of a new mapping of a file
    /// it is 0 or [`MAPPED_WITHOUT_EXECUTION`].
    Reply {
        tid: i32,
        sequence: u64,
        result: i64,
        outputs: Vec<u32>,
        mapping: Option<MappingId>,
    },
    /// The file of a mapping of the attic has changed, or may have: pages that the guest fetched, and
    /// the program has not written, are to be fetched anew. Behind `backed` bytes of the mapping the
    /// file ends.
    FileChanged {
        mapping: MappingId,
        backed: u64,
    },
    /// Deliver a signal; `info` is the raw `siginfo_t` (128 bytes).
    Signal {
        tid: Option<i32>,
        signal: u8,
        info: Vec<u8>,
    },
    /// Group stop at home: hold all threads, until `Continue`. (A guest may get `Continue` without
    /// it, and `Stop` when it holds its threads already.)
    Stop,
    Continue,
    /// Freeze and send the image home.
    Freeze,
    /// Freeze and send the image to another host (addresses tried in order).
    Onward {
        addresses: Vec<String>,
        server_name: String,
        node: String,
        epoch: u32,
        /// What that host allows: a guest that has more goes on where it is.
        allowance: Allowance,
    },
    /// The move failed before its commit: go on.
    Resume,
    /// The guest is not needed any more: end it, and yourself.
    Discard,
    /// The process has ended at home.
    Ended,
    Heartbeat {
        clocks: Clocks,
    },
    /// A thread's share of the CPU has changed: its new scheduling policy and niceness.
    Priority {
        tid: i32,
        policy: u8,
        nice: i8,
    },
    /// The process's control group at home is frozen, or not any more: as long as it is, all threads
    /// are held, whatever job control says.
    Frozen {
        frozen: bool,
    },
}

/// What the guest asks for on the page channel (frame kind `PageRequest`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRequest {
    pub request: u64,
    pub mapping: MappingId,
    /// Page aligned, relative to the beginning of the mapping in the attic.
    pub offset: u64,
    /// In bytes, page aligned, at most [`PAGE_REQUEST_MAX`].
    pub length: u32,
}

/// Longest page request, in bytes.
pub const PAGE_REQUEST_MAX: u32 = 1 << 20;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    #[error("A message cannot be decoded ({0}): the peer speaks another version or is hostile")]
    Undecodable(String),
    #[error("The image has {0} bytes, which is more than can be sent")]
    ImageTooLong(usize),
    #[error("A call names {0} regions, the limit is {REGIONS_MAX}")]
    TooManyRegions(usize),
    #[error("A call's buffers hold {0} bytes, the limit is {TAIL_MAX}")]
    TailTooLong(u64),
    #[error("A region of {length} bytes carries {data} bytes of data")]
    DataBeyondRegion { length: u64, data: u64 },
    #[error("A guest gives back {0} mappings at once, the limit is {RELEASED_MAX}")]
    TooManyReleased(usize),
    #[error("Thread {0} sent data without a call")]
    StrayData(i32),
}

/// Encodes a message; its tail follows as further parts of the frame.
///
/// # Errors
/// None in practice: every message is serializable; kept so that no caller unwraps.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, MessageError> {
    postcard::to_stdvec(message).map_err(|e| MessageError::Undecodable(e.to_string()))
}

/// Encodes an image and sends it in pieces, as [`send_encoded`] does.
///
/// # Errors
/// Those of `send`; the image is too long.
pub fn send_image<E: From<MessageError>>(
    image: &ProcessImage,
    send: impl FnMut(&[&[u8]]) -> Result<(), E>,
) -> Result<(), E> {
    send_encoded(&encode(image)?, send)
}

/// Sends an encoded image in pieces. `send` gets the parts of each frame of `Kind::Image`: the length
/// of the whole image and the offset of the piece, both in bytes and as 4 bytes each, and the piece
/// itself.
///
/// # Errors
/// Those of `send`; the image is too long.
pub fn send_encoded<E: From<MessageError>>(
    bytes: &[u8],
    mut send: impl FnMut(&[&[u8]]) -> Result<(), E>,
) -> Result<(), E> {
    let too_long = |_| MessageError::ImageTooLong(bytes.len());
    let total = u32::try_from(bytes.len()).map_err(too_long)?;
    let mut offset = 0u32;
    for piece in bytes.chunks(FRAME_PAYLOAD_MAX - 8) {
        send(&[&total.to_le_bytes(), &offset.to_le_bytes(), piece])?;
        offset += u32::try_from(piece.len()).map_err(too_long)?;
    }
    Ok(())
}

/// Decodes a message; returns it with its tail.
///
/// # Errors
/// [`MessageError::Undecodable`].
pub fn decode<'a, M: Deserialize<'a>>(payload: &'a [u8]) -> Result<(M, &'a [u8]), MessageError> {
    postcard::take_from_bytes(payload).map_err(|e| MessageError::Undecodable(e.to_string()))
}

impl CallRequest {
    /// Checks every number against its limit; to be called before the request is used.
    ///
    /// # Errors
    /// Which limit was exceeded.
    pub fn check(&self) -> Result<(), MessageError> {
        if self.regions.len() > REGIONS_MAX {
            return Err(MessageError::TooManyRegions(self.regions.len()));
        }
        let mut total = 0u64;
        for region in &self.regions {
            if region.data_length > region.length {
                return Err(MessageError::DataBeyondRegion {
                    length: region.length,
                    data: region.data_length,
                });
            }
            total = total.saturating_add(region.length);
        }
        if total > TAIL_MAX as u64 {
            return Err(MessageError::TailTooLong(total));
        }
        Ok(())
    }
}

/// Puts together tails that arrive in several frames.
#[derive(Debug, Default)]
pub struct Tails {
    begun: Vec<(i32, Vec<u8>)>,
}

impl Tails {
    /// Adds the payload of a `Data` frame.
    ///
    /// # Errors
    /// When the frame is too short or the tail grows beyond [`TAIL_MAX`].
    pub fn add(&mut self, payload: &[u8]) -> Result<(), MessageError> {
        let (head, bytes) = payload
            .split_first_chunk::<4>()
            .ok_or_else(|| MessageError::Undecodable("a Data frame without a thread".into()))?;
        let tid = i32::from_le_bytes(*head);
        let position = match self.begun.iter().position(|(owner, _)| *owner == tid) {
            Some(position) => position,
            None if self.begun.len() >= TAILS_MAX => return Err(MessageError::StrayData(tid)),
            None => {
                self.begun.push((tid, Vec::new()));
                self.begun.len() - 1
            }
        };
        let buffer = &mut self.begun[position].1;
        if buffer.len() + bytes.len() > TAIL_MAX {
            return Err(MessageError::TailTooLong(
                (buffer.len() + bytes.len()) as u64,
            ));
        }
        buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The whole tail of this thread's message, whose own frame carries `last`.
    #[must_use]
    pub fn finish(&mut self, tid: i32, last: &[u8]) -> Vec<u8> {
        let begun = self.begun.iter().position(|(owner, _)| *owner == tid);
        let mut tail = begun
            .map(|at| self.begun.swap_remove(at).1)
            .unwrap_or_default();
        tail.extend_from_slice(last);
        tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(regions: Vec<WireRegion>) -> CallRequest {
        CallRequest {
            tid: 1,
            sequence: 1,
            number: 0,
            args: [0; 6],
            may_block: false,
            looks_for: None,
            masked: 0,
            regions,
        }
    }

    fn region(length: u64, data_length: u64) -> WireRegion {
        WireRegion {
            address: 0x1000,
            length,
            direction: WireDirection::In,
            returned: WireReturned::Nothing,
            data_length,
        }
    }

    #[test]
    fn calls_are_taken_up_to_their_limits() {
        let many = |count| call(vec![region(0, 0); count]).check();
        assert_eq!(many(REGIONS_MAX), Ok(()));
        let above = REGIONS_MAX + 1;
        assert_eq!(many(above), Err(MessageError::TooManyRegions(above)));
        let limit = TAIL_MAX as u64;
        let long = |length| call(vec![region(length, 0)]).check();
        assert_eq!(long(limit), Ok(()));
        assert_eq!(long(limit + 1), Err(MessageError::TailTooLong(limit + 1)));
        assert_eq!(call(vec![region(8, 8)]).check(), Ok(()));
        assert!(call(vec![region(8, 9)]).check().is_err());
        let wraps = call(vec![region(u64::MAX, 0); 2]).check();
        assert_eq!(wraps, Err(MessageError::TailTooLong(u64::MAX)));
    }

    #[test]
    fn tails_are_put_together_up_to_their_limits() {
        let mut tails = Tails::default();
        let piece = |tid: i32, length: usize| [&tid.to_le_bytes()[..], &vec![0; length]].concat();
        for tid in (1..).take(TAILS_MAX) {
            tails.add(&piece(tid, 1)).expect("below the limit");
        }
        let error = tails.add(&piece(-1, 1)).expect_err("one thread more");
        assert_eq!(error, MessageError::StrayData(-1));
        tails.add(&piece(1, TAIL_MAX - 1)).expect("at the limit");
        let error = tails.add(&piece(1, 1)).expect_err("one byte more");
        assert_eq!(error, MessageError::TailTooLong(TAIL_MAX as u64 + 1));
        assert_eq!(tails.finish(1, &[]).len(), TAIL_MAX);
        tails.add(&piece(-1, 1)).expect("room again");
    }
}
