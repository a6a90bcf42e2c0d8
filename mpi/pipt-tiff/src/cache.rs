//! Decoded chunks that are kept for a while, so that rectangles beside each other do not decode them twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pipt_raster::Samples;

/// Holds at most so many bytes of samples; what was not used for the longest time goes first.
#[derive(Debug)]
pub(crate) struct Cache {
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Chunks by their number, with the time of their last use.
    chunks: BTreeMap<u64, (u64, Arc<Samples>)>,
    /// Chunks by the time of their last use.
    uses: BTreeMap<u64, u64>,
    bytes: usize,
    time: u64,
}

fn bytes(samples: &Samples) -> usize {
    samples.len() * samples.kind().bytes()
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, chunk: u64) -> Option<Arc<Samples>> {
        if self.limit == 0 {
            return None;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = &mut *held;
        held.time += 1;
        let (used, samples) = held.chunks.get_mut(&chunk)?;
        held.uses.remove(used);
        held.uses.insert(held.time, chunk);
        *used = held.time;
        Some(Arc::clone(samples))
    }

    pub(crate) fn put(&self, chunk: u64, samples: &Arc<Samples>) {
        let size = bytes(samples);
        if size > self.limit {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = &mut *held;
        // Two threads may have decoded the same chunk: the first one's is kept.
        if held.chunks.contains_key(&chunk) {
            return;
        }
        held.time += 1;
        held.bytes += size;
        held.uses.insert(held.time, chunk);
        held.chunks.insert(chunk, (held.time, Arc::clone(samples)));
        while held.bytes > self.limit {
            let Some((_, oldest)) = held.uses.pop_first() else {
                return;
            };
            if let Some((_, samples)) = held.chunks.remove(&oldest) {
                held.bytes -= bytes(&samples);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_goes_first() {
        let cache = Cache::new(10);
        let chunk = |value: u8| Arc::new(Samples::U8(vec![value; 4]));
        cache.put(1, &chunk(1));
        cache.put(2, &chunk(2));
        assert!(cache.get(1).is_some());
        cache.put(3, &chunk(3));
        assert!(cache.get(2).is_none() && cache.get(1).is_some() && cache.get(3).is_some());
        cache.put(4, &Arc::new(Samples::U8(vec![0; 11])));
        assert!(cache.get(4).is_none());
        assert!(cache.held.lock().expect("whole").bytes <= 10);
    }

    #[test]
    fn no_bytes_are_no_cache() {
        let cache = Cache::new(0);
        cache.put(1, &Arc::new(Samples::U8(vec![1])));
        assert!(cache.get(1).is_none());
    }
}
