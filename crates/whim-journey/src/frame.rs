//! Frames: the unit of everything that two nodes say to each other about one journey.
//!
//! ```text
//! 0        4      6        8       12             16
//! | length | kind | number | epoch | acknowledged | payload (length bytes) ...
//! ```
//! All little-endian. Number and acknowledgement are those of [`crate::session`]; both are 0 where
//! there is no session. `length` is checked against [`FRAME_PAYLOAD_MAX`] before a byte of payload
//! is read. Payloads are postcard where [`Kind`] says so; the others begin with a small fixed
//! header and carry raw bytes (no copy through a serializer).

use crate::session::Stamp;
use thiserror::Error;

/// Length of a frame's header, in bytes.
pub const HEADER_LENGTH: usize = 16;
/// Longest payload of a frame, in bytes: 1 MiB of pages and a page for their header.
pub const FRAME_PAYLOAD_MAX: usize = (1 << 20) + 4096;

/// Version of this protocol; both sides name the range they speak in `Hello`.
pub const PROTOCOL_VERSION: u16 = 11;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// `message::ToGuest`, postcard.
    ToGuest = 1,
    /// `message::ToHome`, postcard.
    ToHome = 2,
    /// Contents of pages: u64 address, then n * 4096 bytes.
    Pages = 3,
    /// Bytes of a tail that is too long for its message: i32 tid, then bytes.
    Data = 4,
    /// `message::PageRequest`, postcard, on the page channel.
    PageRequest = 5,
    /// u64 request id, u32 status (0 or errno), u32 zero, then bytes.
    PageReply = 6,
    /// Piece of the postcard form of a `ProcessImage`: u32 total, u32 offset, bytes.
    Image = 7,
    /// No payload: the frame only acknowledges. It has no number.
    Acknowledgement = 8,
    /// u64: frames received so far. The waiting side's first frame on a connection that takes the
    /// place of a lost one; it has no number.
    Answer = 9,
}

impl Kind {
    fn from_wire(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::ToGuest,
            2 => Self::ToHome,
            3 => Self::Pages,
            4 => Self::Data,
            5 => Self::PageRequest,
            6 => Self::PageReply,
            7 => Self::Image,
            8 => Self::Acknowledgement,
            9 => Self::Answer,
            _ => return None,
        })
    }
}

/// A frame, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// Stay to which it belongs; a frame of an older epoch is refused.
    pub epoch: u32,
    pub stamp: Stamp,
    pub payload: Vec<u8>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    #[error(
        "A frame of {0} bytes is announced, the limit is {FRAME_PAYLOAD_MAX}: the peer is not a supervisor of this version"
    )]
    TooLong(usize),
    #[error("A frame of unknown kind {0} arrived: the peer speaks a newer protocol")]
    UnknownKind(u16),
}

/// A frame's header, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub length: usize,
    pub kind: Kind,
    pub epoch: u32,
    pub stamp: Stamp,
}

impl Header {
    /// Encodes. `length` must not exceed [`FRAME_PAYLOAD_MAX`].
    ///
    /// # Panics
    /// If it does: senders split before they encode.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        assert!(
            self.length <= FRAME_PAYLOAD_MAX,
            "a frame is split before it is encoded"
        );
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.stamp.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stamp.acknowledged.to_le_bytes());
        bytes
    }

    /// Decodes and checks every limit.
    ///
    /// # Errors
    /// Too long, unknown kind.
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, FrameError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let length = word(0) as usize;
        if length > FRAME_PAYLOAD_MAX {
            return Err(FrameError::TooLong(length));
        }
        let number = u16::from_le_bytes([bytes[4], bytes[5]]);
        let kind = Kind::from_wire(number).ok_or(FrameError::UnknownKind(number))?;
        let stamp = Stamp {
            number: u16::from_le_bytes([bytes[6], bytes[7]]),
            acknowledged: word(12),
        };
        Ok(Self {
            length,
            kind,
            epoch: word(8),
            stamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_a_round_trip() {
        let header = Header {
            length: 77,
            kind: Kind::Pages,
            epoch: 9,
            stamp: Stamp {
                number: 3,
                acknowledged: 0x0102_0304,
            },
        };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn limits_are_checked_before_anything_is_read() {
        let mut bytes = Header {
            length: 0,
            kind: Kind::Data,
            epoch: 0,
            stamp: Stamp::default(),
        }
        .encode();
        bytes[3] = 0xff;
        assert!(matches!(
            Header::decode(&bytes),
            Err(FrameError::TooLong(_))
        ));
        let length = |length: usize| {
            let mut bytes = bytes;
            let length = u32::try_from(length).expect("small");
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            Header::decode(&bytes)
        };
        assert!(length(FRAME_PAYLOAD_MAX).is_ok());
        assert!(matches!(
            length(FRAME_PAYLOAD_MAX + 1),
            Err(FrameError::TooLong(_))
        ));
        bytes[3] = 0;
        bytes[4] = 99;
        assert_eq!(Header::decode(&bytes), Err(FrameError::UnknownKind(99)));
    }
}
