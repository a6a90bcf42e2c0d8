//! How much of a process that comes home has arrived, each byte counted once. This shows whether a return
//! gets on ([`whim_journey::recall`]).

use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ReceivedError {
    #[error("The guest sends no pages at {0:#x}")]
    Nothing(u64),
    #[error("The guest sends pages at {address:#x} behind those below {behind:#x}")]
    Disorder { address: u64, behind: u64 },
}

/// The progress of one return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    encoded: u64,
    pages: u64,
    /// Where the last page ends.
    behind: u64,
    room: u64,
}

impl Progress {
    /// No progress yet. Pages count up to `room`, which is what home has memory for when the return begins.
    ///
    /// An image may have mappings of any length, and a guest may have filled much of them since its last
    /// report, so neither can be a bound for an honest guest. But what home has no memory for cannot come
    /// home, so no honest guest is cut for having more. What the host has reported of the guest's memory is
    /// no bound: it is only the host's claim, and older than the freeze.
    #[must_use]
    pub(crate) fn new(room: u64) -> Self {
        Self {
            encoded: 0,
            pages: 0,
            behind: 0,
            room,
        }
    }

    /// Counts bytes of the encoded image, without headers; its length has a limit of its own.
    pub(crate) fn add_piece(&mut self, bytes: usize) {
        self.encoded += bytes as u64;
    }

    /// Counts bytes of pages. A guest sends each page once, in ascending order; frames that are sent again
    /// over another connection are dropped below us. So a page that does not lie behind all others is a lie.
    ///
    /// # Errors
    /// [`ReceivedError`]
    pub(crate) fn add_pages(&mut self, address: u64, bytes: usize) -> Result<(), ReceivedError> {
        let behind = self.behind;
        if bytes == 0 {
            return Err(ReceivedError::Nothing(address));
        }
        if address < behind {
            return Err(ReceivedError::Disorder { address, behind });
        }
        // A range that wraps lies in no mapping; writing it gives an error.
        self.behind = address.saturating_add(bytes as u64);
        self.pages = self.pages.saturating_add(bytes as u64);
        Ok(())
    }

    /// Bytes of pages.
    #[must_use]
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes by which the return has got on.
    #[must_use]
    pub(crate) fn progress(&self) -> u64 {
        self.encoded.saturating_add(self.pages.min(self.room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_once_and_up_to_what_home_has_room_for() {
        let mut received = Progress::new(3 * 4096);
        received.add_piece(1000);
        for address in [0x1000, 0x2000, 0x8000] {
            received.add_pages(address, 4096).expect("behind");
        }
        assert_eq!((received.pages(), received.progress()), (12_288, 13_288));
        for address in [0, 0x1000, 0x8000, 0x8fff] {
            let behind = 0x9000;
            let error = ReceivedError::Disorder { address, behind };
            assert_eq!(received.add_pages(address, 4096), Err(error));
        }
        let nothing = received.add_pages(0x9000, 0);
        assert_eq!(nothing, Err(ReceivedError::Nothing(0x9000)));
        received.add_pages(0x9000, 4096).expect("behind");
        assert_eq!((received.pages(), received.progress()), (16_384, 13_288));
        received.add_pages(u64::MAX - 1, 4096).expect("behind");
        assert!(received.add_pages(u64::MAX - 1, 1).is_err(), "the end");
    }
}
