//! What a frozen process says of its memory beside what its mappings show.

use crate::capture::CaptureError;
use crate::freeze::{FreezeError, Frozen};
use crate::maps::MapEntry;
use crate::remarks::{self, STORED_POLICY};
use std::collections::BTreeMap;
use whim_model::{Remark, Syscall};

/// Mappings that are asked about before the answers are read: these take a half of the scratch memory.
const AT_ONCE: usize = 8192;
/// Mappings with a policy that are asked which: as above.
const WITH_POLICY: usize = 128;
/// Bytes of a mode.
pub(crate) const MODE: usize = 4;
const _: () = assert!(AT_ONCE * MODE <= 32 << 10 && WITH_POLICY * STORED_POLICY <= 32 << 10);

/// The beginnings of the mappings that may have a policy.
pub(crate) fn starts(entries: &[MapEntry]) -> Vec<u64> {
    let own = entries.iter().filter(|entry| !entry.is_kernel());
    own.map(|entry| entry.range.start).collect()
}

/// The questions whether these mappings have a policy; what they store begins at `into`.
pub(crate) fn ask_modes(starts: &[u64], into: u64) -> impl Iterator<Item = Syscall> {
    let places = (into..).step_by(MODE);
    let asked = starts.iter().zip(places);
    asked.map(|(start, into)| remarks::ask_mode(*start, into))
}

/// Which of these mappings have one.
pub(crate) fn with_policy(
    starts: &[u64],
    stored: &[u8],
    results: &[i64],
) -> impl Iterator<Item = u64> {
    let answers = stored.chunks_exact(MODE).zip(results);
    let answers = starts.iter().zip(answers);
    let has_one = |(_, (mode, result)): &(&u64, (&[u8], &i64))| {
        **result == 0 && mode.iter().any(|byte| *byte != 0)
    };
    answers.filter(has_one).map(|(start, _)| *start)
}

impl Frozen {
    /// The remarks on its memory; `None` if a policy names nodes of which no image can tell. `asked`: how many
    /// mappings have been asked for policies already, and which of them have one.
    pub(crate) fn remarks(
        &mut self,
        entries: &[MapEntry],
        asked: (usize, Vec<u64>),
    ) -> Result<Option<Vec<Remark>>, CaptureError> {
        let (done, mut found) = asked;
        for starts in starts(entries)[done..].chunks(AT_ONCE) {
            let ask = |into| ask_modes(starts, into).collect();
            let (stored, results) = self.asked(ask, starts.len() * MODE)?;
            found.extend(with_policy(starts, &stored, &results));
        }
        let mut policies = BTreeMap::new();
        for starts in found.chunks(WITH_POLICY) {
            let ask = |into: u64| {
                let places = (into..).step_by(STORED_POLICY);
                let asked = starts.iter().zip(places);
                asked
                    .map(|(start, into)| remarks::ask(*start, into))
                    .collect()
            };
            let (stored, _) = self.asked(ask, starts.len() * STORED_POLICY)?;
            for (stored, start) in stored.chunks_exact(STORED_POLICY).zip(starts) {
                let Some(policy) = remarks::policy(stored) else {
                    return Ok(None);
                };
                policies.insert(*start, policy);
            }
        }
        let policy = |start| policies.get(&start).copied().unwrap_or_default();
        let own = entries.iter().filter(|entry| !entry.is_kernel());
        Ok(Some(remarks::all(own, policy)))
    }

    /// Has the leader make calls that store so many bytes in the scratch memory.
    fn asked(
        &mut self,
        ask: impl FnOnce(u64) -> Vec<Syscall>,
        size: usize,
    ) -> Result<(Vec<u8>, Vec<i64>), CaptureError> {
        let scratch = self.scratch()?;
        let leader = self.threads[0].tid();
        let results = self.run(leader, &ask(scratch.start))?;
        let mut stored = vec![0; size];
        self.memory
            .read_exact(scratch.start, &mut stored)
            .map_err(FreezeError::Memory)?;
        Ok((stored, results))
    }
}
