//! What a stopped process has told of itself that keeps it where it is.

use crate::stay::StayReason;

/// What the process has told that is not carried.
pub(crate) struct Told {
    pub has_segments: bool,
    pub may_use_tiles: bool,
    /// What it has mapped before could not be mapped again.
    pub denies_write_execute: bool,
    /// In one of its threads.
    pub denies_time_stamps: bool,
}

impl Told {
    pub(crate) fn reason(&self) -> Option<StayReason> {
        let all = [
            (self.has_segments, StayReason::Segments),
            (self.may_use_tiles, StayReason::Tiles),
            (self.denies_write_execute, StayReason::DeniesWriteExecute),
            (self.denies_time_stamps, StayReason::DeniesTimeStamps),
        ];
        let mut found = all.into_iter().filter(|(has, _)| *has);
        found.next().map(|(_, reason)| reason)
    }
}
