//! What the guest has said of its memory beside what its mappings show.

use crate::capture::State;
use crate::error::GuestError;
use crate::guest::Guest;
use std::collections::BTreeMap;
use whim_image::maps::MapEntry;
use whim_image::rebuild::runner::LIST_MAX;
use whim_image::remarks::{self, STORED_POLICY};
use whim_model::{Range, Remark, Syscall};

/// Mappings with a policy that are asked which at once, by the room for their answers.
const WITH_POLICY: usize = 4096;

impl Guest {
    /// Notes a call that runs here, if it gives memory a policy. All of these are reported: who has none need
    /// not be asked for the policy of each mapping.
    pub(crate) fn note_policy(&mut self, call: &Syscall) {
        let sets = whim_calls::effect(call.number) == whim_calls::Effect::Binds;
        self.binds |= sets && call.args[2] & 0xffff_ffff != 0;
    }

    /// The remarks on its memory. `leader`: the state of its first thread, which is asked.
    pub(crate) fn remarks(
        &mut self,
        leader: &State,
        entries: &[MapEntry],
    ) -> Result<Vec<Remark>, GuestError> {
        let reserved = self.origin.reserved;
        let own = |entry: &&MapEntry| !entry.is_kernel() && !entry.range.overlaps(reserved);
        let asked = entries.iter().filter(|entry| self.binds && own(entry));
        let starts: Vec<u64> = asked.map(|entry| entry.range.start).collect();
        let mut with_policy = Vec::new();
        for starts in starts.chunks(LIST_MAX) {
            let asked: Vec<_> = (0..).step_by(4).zip(starts).collect();
            let ask = |(at, start): &(u64, &u64), base: u64| remarks::ask_mode(**start, base + at);
            let (bytes, results) = self.asked(leader, &asked, ask, 4)?;
            let modes = bytes.chunks_exact(4).zip(&results).zip(starts);
            let has_one = |((mode, result), _): &((&[u8], &i64), &u64)| {
                **result == 0 && mode.iter().any(|byte| *byte != 0)
            };
            with_policy.extend(modes.filter(has_one).map(|(_, start)| *start));
        }
        let mut policies = BTreeMap::new();
        for starts in with_policy.chunks(WITH_POLICY) {
            let asked: Vec<_> = (0..).step_by(STORED_POLICY).zip(starts).collect();
            let ask = |(at, start): &(u64, &u64), base: u64| remarks::ask(**start, base + at);
            let (bytes, _) = self.asked(leader, &asked, ask, STORED_POLICY)?;
            for (stored, start) in bytes.chunks_exact(STORED_POLICY).zip(starts) {
                // Nodes of which no image can tell a program names at home alone.
                policies.insert(*start, remarks::policy(stored).unwrap_or_default());
            }
        }
        let policy = |start| policies.get(&start).copied().unwrap_or_default();
        let found = remarks::all(entries.iter().filter(own), policy);
        Ok(with_names(found, entries, &self.origin.remarks))
    }

    /// Makes calls of the leader that store `size` bytes each.
    fn asked<T>(
        &mut self,
        leader: &State,
        asked: &[T],
        ask: impl Fn(&T, u64) -> Syscall,
        size: usize,
    ) -> Result<(Vec<u8>, Vec<i64>), GuestError> {
        let mut bytes = vec![0; asked.len() * size];
        let mut arguments = self.runner.arguments();
        let base = arguments.add(&bytes);
        self.runner.store(&arguments)?;
        let calls = asked.iter().map(|one| ask(one, base)).collect();
        let leaders = [self.host_tid];
        let results = self.run_lists(&leaders, std::slice::from_ref(leader), calls, Vec::new())?;
        self.runner.read(base, &mut bytes)?;
        Ok((bytes, results.into_iter().next().unwrap_or_default()))
    }
}

/// The same remarks with the names that the memory came with, if this kernel shows none: then it cannot have
/// taken them.
fn with_names(found: Vec<Remark>, entries: &[MapEntry], origin: &[Remark]) -> Vec<Remark> {
    let named = |remark: &&Remark| !remark.name.is_empty();
    if found.iter().any(|remark| named(&remark)) || !origin.iter().any(|remark| named(&remark)) {
        return found;
    }
    let mut all: BTreeMap<u64, Remark> = BTreeMap::new();
    all.extend(found.into_iter().map(|one| (one.range.start, one)));
    for before in origin.iter().filter(named) {
        let (from, to) = (before.range.start, before.range.end);
        let first = entries.partition_point(|entry| entry.range.end <= from);
        let over = entries[first..].iter();
        let over = over.take_while(|entry| entry.range.start < to);
        for entry in over.filter(|entry| !entry.is_file()) {
            let range = Range {
                start: from.max(entry.range.start),
                end: to.min(entry.range.end),
            };
            // Where a policy was set for more than this the memory keeps that alone.
            let place = all.entry(entry.range.start.max(from));
            let place = place.or_insert_with(|| Remark {
                range,
                ..Remark::default()
            });
            if place.range == range {
                place.name.clone_from(&before.name);
            }
        }
    }
    let mut end = 0;
    let mut all: Vec<Remark> = all.into_values().collect();
    all.retain(|remark| {
        let behind = end <= remark.range.start;
        end = end.max(remark.range.end);
        behind
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_model::MemoryPolicy;

    fn remark(start: u64, name: &str) -> Remark {
        Remark {
            range: Range {
                start,
                end: start + 0x1000,
            },
            policy: MemoryPolicy::default(),
            name: name.into(),
        }
    }

    #[test]
    fn names_are_carried_on_where_the_kernel_has_none() {
        let text =
            "1000-2000 rw-p 0 00:00 0 \n4000-6000 rw-p 0 00:00 0 \n7000-8000 r--p 0 08:01 7 /x\n";
        let entries = whim_image::maps::parse(1, text.as_bytes()).expect("lines");
        let came = [
            remark(0x1000, "a"),
            remark(0x3000, "gone"),
            remark(0x5000, "b"),
            remark(0x7000, "of memory that a file has replaced"),
        ];
        let policy = MemoryPolicy { mode: 2, nodes: 1 };
        let mut bound = remark(0x1000, "");
        bound.policy = policy;
        let found = with_names(vec![bound], &entries, &came);
        let told = |one: &Remark| (one.range.start, one.range.end, one.policy, one.name.clone());
        let told: Vec<_> = found.iter().map(told).collect();
        let none = MemoryPolicy::default();
        assert_eq!(
            told,
            [
                (0x1000, 0x2000, policy, b"a".to_vec()),
                (0x5000, 0x6000, none, b"b".to_vec())
            ]
        );
        // One that it shows: it has names, and what it does not show any more has been taken away.
        let shown = vec![remark(0x4000, "c")];
        assert_eq!(with_names(shown.clone(), &entries, &came), shown);
    }
}
