//! This node's own processes: which may move, the journeys that they are on, and every way to move one.

pub(crate) mod attempt;
pub(crate) mod candidacy;
pub(crate) mod candidate;
pub(crate) mod candidates;
pub(crate) mod census;
pub(crate) mod departing;
pub(crate) mod destinations;
pub(crate) mod journeys;
pub(crate) mod moving;
pub(crate) mod notes;
pub(crate) mod room;
pub(crate) mod stay;
pub(crate) mod tally;
pub(crate) mod under_way;
pub(crate) mod watching;
