//! Frames out of a stream of bytes. No socket, no clock.

use std::collections::VecDeque;

use whim_journey::frame::{Frame, FrameError, HEADER_LENGTH, Header};

/// The accepting side sends this first. It tells the other side that its certificate was accepted
/// (in TLS 1.3 a client's handshake is over before the server has checked that).
pub(crate) const PREFACE: &[u8; PREFACE_LENGTH] = b"whim/1\r\n";
/// A daemon sends this instead, in the name of a supervisor that has ended.
pub(crate) const PREFACE_GONE: &[u8; PREFACE_LENGTH] = b"gone/1\r\n";
const PREFACE_LENGTH: usize = 8;

/// Why the bytes are no frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InboxError {
    Preface,
    /// The supervisor has ended.
    Gone,
    Frame(FrameError),
}

/// Bytes in, frames out; every length is checked before room is made for it.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The part of the preface that has come; `None`: none is expected, or it is complete.
    preface: Option<Vec<u8>>,
    header: [u8; HEADER_LENGTH],
    header_length: usize,
    current: Option<(Header, Vec<u8>)>,
    ready: VecDeque<Frame>,
    ready_bytes: usize,
    failed: Option<FrameError>,
    broken: bool,
}

impl Inbox {
    /// `preface` says whether the peer is the accepting side, which sends one.
    pub(crate) fn new(preface: bool) -> Self {
        Self {
            preface: preface.then(Vec::new),
            ..Self::default()
        }
    }

    pub(crate) fn preface_missing(&self) -> bool {
        self.preface.is_some()
    }

    /// Bytes of whole frames that nobody has taken yet.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), InboxError> {
        if let Some(preface) = &mut self.preface {
            let (part, rest) = bytes.split_at(bytes.len().min(PREFACE_LENGTH - preface.len()));
            preface.extend_from_slice(part);
            match &preface[..] {
                whole if whole == PREFACE => self.preface = None,
                whole if whole == PREFACE_GONE => return Err(InboxError::Gone),
                part if PREFACE.starts_with(part) || PREFACE_GONE.starts_with(part) => {
                    return Ok(());
                }
                _ => return Err(InboxError::Preface),
            }
            bytes = rest;
        }
        while !self.broken && (!bytes.is_empty() || self.current_is_whole()) {
            bytes = self.step(bytes);
        }
        Ok(())
    }

    fn current_is_whole(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|(header, payload)| payload.len() == header.length)
    }

    /// Consumes the rest of one header, or the rest of one payload.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some((header, payload)) = &mut self.current else {
            let length = bytes.len().min(HEADER_LENGTH - self.header_length);
            let (part, rest) = bytes.split_at(length);
            self.header[self.header_length..][..length].copy_from_slice(part);
            self.header_length += length;
            if self.header_length == HEADER_LENGTH {
                self.header_length = 0;
                match Header::decode(&self.header) {
                    Ok(header) => {
                        self.current = Some((header, Vec::with_capacity(header.length)));
                    }
                    Err(error) => {
                        self.failed = Some(error);
                        self.broken = true;
                    }
                }
            }
            return rest;
        };
        let (part, rest) = bytes.split_at(bytes.len().min(header.length - payload.len()));
        payload.extend_from_slice(part);
        if payload.len() == header.length {
            let (header, payload) = (*header, std::mem::take(payload));
            self.current = None;
            self.ready_bytes += HEADER_LENGTH + payload.len();
            self.ready.push_back(Frame {
                kind: header.kind,
                epoch: header.epoch,
                stamp: header.stamp,
                payload,
            });
        }
        rest
    }

    /// The next whole frame; the frames before a bad one are given out first.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, InboxError> {
        if let Some(frame) = self.ready.pop_front() {
            self.ready_bytes -= HEADER_LENGTH + frame.payload.len();
            return Ok(Some(frame));
        }
        match self.failed.take() {
            Some(error) => Err(InboxError::Frame(error)),
            None => Ok(None),
        }
    }

    /// Whether there was a bad frame; nothing comes after that.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whim_journey::frame::{FRAME_PAYLOAD_MAX, Kind};
    use whim_journey::session::Stamp;

    use super::*;

    fn wire(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        for Frame {
            kind,
            epoch,
            stamp,
            payload,
        } in frames
        {
            let header = Header {
                length: payload.len(),
                kind: *kind,
                epoch: *epoch,
                stamp: *stamp,
            };
            bytes.extend_from_slice(&header.encode());
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    proptest! {
        #[test]
        fn any_cutting_gives_the_same_frames(
            sizes in prop::collection::vec(0usize..700, 0..12),
            cuts in prop::collection::vec(1usize..97, 1..40),
        ) {
            let frames: Vec<Frame> = sizes
                .iter()
                .zip(7u32..)
                .map(|(size, epoch)| Frame { kind: Kind::Data, epoch, stamp: Stamp::default(), payload: vec![9; *size] })
                .collect();
            let bytes = wire(&frames);
            let mut inbox = Inbox::new(true);
            let (mut rest, mut at) = (&bytes[..], 0);
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(cuts[at % cuts.len()]));
                inbox.take(part).expect("taken");
                (rest, at) = (after, at + 1);
            }
            let mut got = Vec::new();
            while let Some(frame) = inbox.next().expect("good frames") {
                got.push(frame);
            }
            prop_assert_eq!(got, frames);
            prop_assert_eq!(inbox.ready_bytes(), 0);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut inbox = Inbox::new(false);
            inbox.take(&bytes).expect("no preface is awaited");
            while let Ok(Some(_)) = inbox.next() {}
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_room_is_made() {
        let good = Frame {
            kind: Kind::ToHome,
            epoch: 1,
            stamp: Stamp::default(),
            payload: vec![1],
        };
        let mut bytes = wire(std::slice::from_ref(&good));
        let mut header = Header {
            length: 0,
            kind: Kind::Data,
            epoch: 1,
            stamp: Stamp::default(),
        }
        .encode();
        let length = u32::try_from(FRAME_PAYLOAD_MAX + 1).expect("fits");
        header[..4].copy_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(&[0; 100]);
        let mut inbox = Inbox::new(true);
        inbox.take(&bytes).expect("taken");
        assert_eq!(inbox.next(), Ok(Some(good)));
        assert_eq!(
            inbox.next(),
            Err(InboxError::Frame(FrameError::TooLong(
                FRAME_PAYLOAD_MAX + 1
            )))
        );
        assert!(inbox.is_broken());
        assert_eq!(inbox.next(), Ok(None));
    }

    #[test]
    fn another_preface_is_refused() {
        assert_eq!(Inbox::new(true).take(b"HTTP/1.1"), Err(InboxError::Preface));
        assert_eq!(Inbox::new(true).take(b"wham"), Err(InboxError::Preface));
    }

    #[test]
    fn a_farewell_is_understood_in_pieces_and_only_as_a_preface() {
        let mut inbox = Inbox::new(true);
        assert_eq!(inbox.take(&PREFACE_GONE[..3]), Ok(()));
        assert_eq!(inbox.take(&PREFACE_GONE[3..]), Err(InboxError::Gone));
        let mut inbox = Inbox::new(true);
        assert_eq!(inbox.take(PREFACE), Ok(()));
        assert_eq!(inbox.take(PREFACE_GONE), Ok(()));
        assert!(!inbox.preface_missing());
    }
}
