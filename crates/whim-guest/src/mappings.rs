//! The guest's address space as the image has it.

use crate::guest::Guest;
use crate::table::Table;
use whim_image::maps::{FlagTable, MapEntry};
use whim_image::vdso::Proxy;
use whim_model::{Backing, Mapping, MappingFlags, Protection};

impl Guest {
    /// The guest's mappings, with what home knows of them. Where a copy stands for home's vDSO, they
    /// are told as home has them: the kernel's.
    pub(crate) fn mappings(&self, entries: &[MapEntry], flags: &FlagTable) -> Vec<Mapping> {
        let proxy = self.standing_proxy(entries);
        let table = self.shared.table();
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.range.overlaps(self.origin.reserved) {
                continue;
            }
            // With a copy, what is the host's kernel's own could not be taken away.
            if proxy.is_some_and(|proxy| proxy.covers(entry.range) || entry.is_kernel()) {
                continue;
            }
            found.extend(pieces(entry, flags.of(entry.range).flags, &table));
        }
        if proxy.is_some() {
            found.extend(self.origin.kernel.iter().cloned());
            found.sort_by_key(|mapping| mapping.start);
        }
        found
    }

    /// The copy of home's vDSO, unless the program has taken it away.
    fn standing_proxy(&self, entries: &[MapEntry]) -> Option<&Proxy> {
        let proxy = self.proxy.as_ref()?;
        let (code, _) = proxy.contents();
        let stands = entries.iter().any(|entry| entry.range.contains(code.start));
        stands.then_some(proxy)
    }
}

/// One mapping, cut where the files change that home keeps for it.
fn pieces(entry: &MapEntry, flags: MappingFlags, table: &Table) -> Vec<Mapping> {
    let mut found = Vec::new();
    let protection: Protection = entry.protection;
    let mut add = |start: u64, end: u64, backing: Backing| {
        if start < end {
            found.push(Mapping {
                start,
                end,
                protection,
                flags,
                backing,
            });
        }
    };
    if entry.is_kernel() {
        let name = entry.name.clone();
        add(entry.range.start, entry.range.end, Backing::Kernel { name });
        return found;
    }
    let mut at = entry.range.start;
    for piece in table.overlapping(entry.range) {
        add(at, piece.start, Backing::Anonymous);
        let backing = Backing::File {
            id: piece.mapping,
            offset: piece.offset,
        };
        add(piece.start, piece.end, backing);
        at = piece.end;
    }
    add(at, entry.range.end, Backing::Anonymous);
    found
}
