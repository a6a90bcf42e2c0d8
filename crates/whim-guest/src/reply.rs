//! What home answers to a call of the guest's, and where it goes.

use crate::guest::{Guest, Place};
use whim_model::MappingId;

/// Home's answer to something a thread waits for.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub tid: i32,
    pub sequence: u64,
    pub result: i64,
    /// How many bytes of the tail belong to each region.
    pub outputs: Vec<u32>,
    pub mapping: Option<MappingId>,
    pub tail: Vec<u8>,
}

impl Guest {
    /// Writes what the call has written at home, to those regions `which` it is to be. Returns the first that home has
    /// written to.
    pub(crate) fn write_outputs(
        &mut self,
        regions: &[Place],
        reply: &Reply,
        which: impl Fn(&Place) -> bool,
    ) -> Option<(u64, Vec<u8>)> {
        let mut tail = reply.tail.as_slice();
        let mut first = None;
        for (place, output) in regions.iter().zip(&reply.outputs) {
            let count = usize::try_from(*output)
                .unwrap_or(usize::MAX)
                .min(tail.len());
            let (bytes, rest) = tail.split_at(count);
            tail = rest;
            if bytes.len() as u64 > place.length {
                tracing::warn!("home sends more than the call can have written");
                continue;
            }
            if bytes.is_empty() || !which(place) {
                continue;
            }
            first.get_or_insert((place.address, bytes.to_vec()));
            // The guest may have unmapped it meanwhile, in another thread.
            let _ = self.memory.write(place.address, bytes);
        }
        first
    }
}
