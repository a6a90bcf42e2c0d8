//! What ranks tell the manager while they compute, and what it tells them.

use crate::graph::Failure;
use pipt_tiff::writer::Sealed;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A tile of one of the files that are written together, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Tile {
    pub output: u32,
    pub number: u64,
}

/// Of a rank, to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToManager {
    /// It has nothing more to compute soon.
    Ask,
    /// Tiles that are encoded: how long each is, and the sum of its bytes.
    Sealed(Vec<(Tile, u64, u64)>),
    /// Tiles that the rank has written to their places.
    Written(Vec<Tile>),
    /// Tiles that the manager is to write, and how long each is: their bytes follow behind the message, in their order.
    Bytes(Vec<(Tile, u64)>),
    /// It has done all that it had to do, and what it wrote is on the disk.
    Over,
    /// It cannot go on.
    Failed(String),
}

/// Of the manager, to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToRank {
    /// Places among the blocks that are to be computed; none, if there are no more.
    Blocks(Range<u64>),
    /// Where tiles go in their files. None: it is there already, and nobody needs it.
    Places(Vec<(Tile, Option<u64>)>),
    /// All is written.
    End,
    /// Another rank cannot go on: which one, and why.
    Failed(u64, String),
}

/// Both, as one kind of messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    ToManager(ToManager),
    ToRank(ToRank),
}

impl Message {
    /// # Errors
    ///
    /// It cannot be written.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        Ok(postcard::to_allocvec(self)?)
    }

    /// A message that was received, and the bytes of tiles behind it. How long both can be is limited by what carries
    /// them, and lists are no longer than the bytes that they are read of.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(super) fn read(from: usize, bytes: &[u8]) -> Result<(Self, &[u8]), Failure> {
        let (message, tail) = postcard::take_from_bytes(bytes)
            .map_err(|_| format!("Rank {from} said what cannot be read"))?;
        let expected = match &message {
            Self::ToManager(ToManager::Bytes(tiles)) => tiles
                .iter()
                .fold(0_u64, |sum, (_, length)| sum.saturating_add(*length)),
            _ => 0,
        };
        match tail.len() as u64 == expected {
            true => Ok((message, tail)),
            false => Err(format!("Rank {from} said more or less than it announced").into()),
        }
    }
}

/// A tile's seal, as messages have it.
#[must_use]
pub(super) fn sealed(tile: Tile, seal: Sealed) -> (Tile, u64, u64) {
    (tile, seal.length, seal.hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let tile = Tile {
            output: 3,
            number: 1 << 40,
        };
        let all = [
            Message::ToManager(ToManager::Ask),
            Message::ToManager(ToManager::Sealed(vec![sealed(tile, Sealed::of(b"tile"))])),
            Message::ToManager(ToManager::Bytes(vec![(tile, 0)])),
            Message::ToRank(ToRank::Blocks(7..9)),
            Message::ToRank(ToRank::Places(vec![(tile, None), (tile, Some(99))])),
            Message::ToRank(ToRank::Failed(2, "no".to_owned())),
        ];
        for message in all {
            let bytes = message.bytes().expect("written");
            assert_eq!(Message::read(1, &bytes).expect("read").0, message);
            let more = [bytes.as_slice(), &[0]].concat();
            assert!(Message::read(1, &more).is_err());
            for end in 0..bytes.len() {
                assert!(Message::read(1, &bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn tiles_follow_the_message_that_announces_them() {
        let tile = Tile {
            output: 0,
            number: 1,
        };
        let message = Message::ToManager(ToManager::Bytes(vec![(tile, 2), (tile, 1)]));
        let mut bytes = message.bytes().expect("written");
        assert!(Message::read(1, &bytes).is_err());
        bytes.extend([1, 2, 3]);
        let read = Message::read(1, &bytes).expect("read");
        assert_eq!(read, (message, [1, 2, 3].as_slice()));
        let endless = Message::ToManager(ToManager::Bytes(vec![(tile, u64::MAX); 2]));
        assert!(Message::read(1, &endless.bytes().expect("written")).is_err());
    }

    proptest! {
        #[test]
        fn anything_can_be_received(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((message, tail)) = Message::read(0, &bytes) {
                let again = [message.bytes().expect("written").as_slice(), tail].concat();
                prop_assert_eq!(Message::read(0, &again).expect("read"), (message, tail));
            }
        }
    }
}
