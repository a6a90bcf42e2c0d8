//! The guest's address space, as an image describes it.

use crate::error::GuestError;
use crate::guest::Guest;
use crate::table::Table;
use whim_image::maps::{self, FlagTable, MapEntry};
use whim_image::vdso::Proxy;
use whim_model::{Backing, Mapping, MappingFlags, Protection};
use whim_sys::pagemap::Pagemap;

impl Guest {
    /// The mappings as the kernel has them, but that memory which grows downwards begins where it would at
    /// home: here it was given room at once, and what of that was not used does not travel.
    ///
    /// # Errors
    /// The guest ended.
    pub(crate) fn entries(&self) -> Result<Vec<MapEntry>, GuestError> {
        let unreadable = |source| GuestError::Unreadable {
            what: "mappings",
            source,
        };
        let entries = maps::read(self.host_tid);
        let mut entries = entries.map_err(|error| unreadable(std::io::Error::other(error)))?;
        for came in &self.origin.growing {
            let at = entries.partition_point(|entry| entry.range.end <= came.start);
            let Some(entry) = entries.get_mut(at) else {
                continue;
            };
            let has_room = entry.range.start < came.start && !entry.is_file();
            if has_room {
                let pages = Pagemap::open(self.host_tid).map_err(unreadable)?;
                let used = pages.runs(entry.range.start, came.start);
                let used = used.map_err(unreadable)?;
                // Trap: room-comes-home
                entry.range.start = used.first().map_or(came.start, |run| run.start);
            }
        }
        Ok(entries)
    }

    /// The guest's mappings, with the files that home keeps for them. If a copy stands in for
    /// home's vDSO, the kernel's mappings are given as home has them.
    pub(crate) fn mappings(&self, entries: &[MapEntry], flags: &FlagTable) -> Vec<Mapping> {
        let proxy = self.standing_proxy(entries);
        let table = self.shared.table();
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.range.overlaps(self.origin.reserved) {
                continue;
            }
            // Beside the copy there may be mappings of the host's own kernel that could not be
            // removed.
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

    /// The copy of home's vDSO, unless the program has unmapped it.
    fn standing_proxy(&self, entries: &[MapEntry]) -> Option<&Proxy> {
        let proxy = self.proxy.as_ref()?;
        let (code, _) = proxy.contents();
        let stands = entries.iter().any(|entry| entry.range.contains(code.start));
        stands.then_some(proxy)
    }
}

/// One mapping, cut wherever the file that home keeps for it changes.
fn pieces(entry: &MapEntry, flags: MappingFlags, table: &Table) -> Vec<Mapping> {
    let mut found = Vec::new();
    let protection: Protection = entry.protection;
    let mut add = |start: u64, end: u64, backing: Backing, flags: MappingFlags| {
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
        add(
            entry.range.start,
            entry.range.end,
            Backing::Kernel { name },
            flags,
        );
        return found;
    }
    let mut at = entry.range.start;
    for piece in table.overlapping(entry.range) {
        add(at, piece.start, Backing::Anonymous, flags);
        let backing = Backing::File {
            id: piece.mapping,
            offset: piece.offset,
        };
        let (never_write, never_execute) = table.restrictions(piece.mapping);
        let flags = MappingFlags {
            never_write,
            never_execute,
            ..flags
        };
        add(piece.start, piece.end, backing, flags);
        at = piece.end;
    }
    add(at, entry.range.end, Backing::Anonymous, flags);
    found
}
