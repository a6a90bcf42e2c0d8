//! What a stopped process reports about itself that keeps it where it is.

use crate::stay::StayReason;

/// What the process reports about itself that an image does not carry.
#[derive(Default)]
pub(crate) struct Told {
    pub has_segments: bool,
    pub may_use_tiles: bool,
    /// At least one of its threads does.
    pub denies_cpuid: bool,
    pub restricts_speculation: bool,
    pub chooses_neighbours: bool,
    pub names_many_nodes: bool,
}

impl Told {
    pub(crate) fn reason(&self) -> Option<StayReason> {
        let all = [
            (self.has_segments, StayReason::Segments),
            (self.may_use_tiles, StayReason::Tiles),
            (self.denies_cpuid, StayReason::DeniesCpuid),
            (self.restricts_speculation, StayReason::RestrictsSpeculation),
            (self.chooses_neighbours, StayReason::ChoosesNeighbours),
            (self.names_many_nodes, StayReason::ManyNodes),
        ];
        let mut found = all.into_iter().filter(|(has, _)| *has);
        found.next().map(|(_, reason)| reason)
    }
}
