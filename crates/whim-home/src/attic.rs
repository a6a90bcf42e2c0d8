//! The attic: where the deputy keeps the private file mappings of the process while it is away.
//!
//! Anonymous memory is given back to home altogether (its contents have travelled). A file mapping
//! moves as it is, by `mremap`, and its private copies are dropped, so that it shows the file again:
//! exactly what a page that the guest never had, or gave up by MADV_DONTNEED, must show.

use std::collections::{BTreeMap, BTreeSet};
use whim_model::{Backing, Mapping, MappingId, PAGE_SIZE, Protection, Range};
use whim_sys::watched::Watch;

/// The most mappings of files that the deputy keeps.
const KEPT_MAX: usize = 1 << 18;
/// Space between two mappings in the attic, so that they never merge. Large ones begin at multiples of it.
const GAP: u64 = 1 << 21;

/// One mapping in the attic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub address: u64,
    pub length: u64,
    pub protection: Protection,
    pub locked: bool,
    /// Which mapping it is a part, or a prolongation, of, and where it begins in that.
    root: (MappingId, u64),
    /// Changes of its file are told of by this.
    watch: Option<Watch>,
    /// The guest has asked for pages since it was told of a change.
    asked: bool,
    /// How many bytes its file had when the guest was told of a change.
    told: u64,
}

/// All mappings in the attic, by the number under which guest and home know them.
#[derive(Debug, Default)]
pub struct Attic {
    kept: BTreeMap<MappingId, Kept>,
    next_address: u64,
    next_id: u32,
    start: u64,
    end: u64,
    /// Watches of mappings that are gone, which no other mapping needs.
    unneeded: Vec<Watch>,
}

/// How one file mapping comes into the attic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storing {
    pub id: MappingId,
    pub from: Range,
    pub to: u64,
}

impl Attic {
    /// An empty attic in `range`.
    #[must_use]
    pub fn new(range: Range) -> Self {
        Self {
            kept: BTreeMap::new(),
            next_address: range.start,
            next_id: 0,
            start: range.start,
            end: range.end,
            unneeded: Vec::new(),
        }
    }

    /// Takes in the file mappings of an image (whose `Backing::File` offsets are 0), in order.
    /// None when they do not fit.
    pub fn store_all(&mut self, mappings: &[Mapping]) -> Option<Vec<Storing>> {
        let mut storings = Vec::new();
        for mapping in mappings {
            let Backing::File { id, .. } = mapping.backing else {
                continue;
            };
            let to = self.allocate(mapping.len())?;
            self.next_id = self.next_id.max(id.0 + 1);
            let kept = Kept {
                address: to,
                length: mapping.len(),
                protection: mapping.protection,
                locked: mapping.flags.locked,
                root: (id, 0),
                watch: None,
                asked: false,
                told: mapping.len(),
            };
            self.kept.insert(id, kept);
            storings.push(Storing {
                id,
                from: Range {
                    start: mapping.start,
                    end: mapping.end,
                },
                to,
            });
        }
        Some(storings)
    }

    /// Reserves a place for a file that the guest maps while away.
    pub fn prepare(&mut self, length: u64, protection: Protection) -> Option<(MappingId, u64)> {
        let id = MappingId(self.next_id);
        let root = (id, 0);
        self.keep(length, protection, root, None)
    }

    fn keep(
        &mut self,
        length: u64,
        protection: Protection,
        root: (MappingId, u64),
        watch: Option<Watch>,
    ) -> Option<(MappingId, u64)> {
        let next_id = self.next_id.checked_add(1)?;
        let address = self.allocate(length)?;
        let id = MappingId(self.next_id);
        self.next_id = next_id;
        let kept = Kept {
            address,
            length,
            protection,
            locked: false,
            root,
            watch,
            asked: false,
            told: length,
        };
        self.kept.insert(id, kept);
        Some((id, address))
    }

    /// Reserves a place for one more mapping of a file, `length` bytes from `offset` of another one
    /// on. That one need not be so long.
    pub fn prepare_more(
        &mut self,
        (of, offset): (MappingId, u64),
        length: u64,
    ) -> Option<(MappingId, u64)> {
        let Kept {
            protection,
            root: (root, before),
            watch,
            ..
        } = *self.kept.get(&of)?;
        let root = (root, before.checked_add(offset)?);
        self.keep(length, protection, root, watch)
    }

    /// Whether what is at these two places of two mappings is so many bytes apart in one mapping of
    /// the original.
    #[must_use]
    pub fn are_one(
        &self,
        (first, offset): (MappingId, u64),
        (last, further): (MappingId, u64),
        apart: u64,
    ) -> bool {
        let place = |id: MappingId, offset: u64| {
            let (root, before) = self.kept.get(&id)?.root;
            Some((root, before.checked_add(offset)?))
        };
        let begins = place(first, offset);
        let ends = begins.and_then(|(root, at)| Some((root, at.checked_add(apart)?)));
        ends.is_some() && ends == place(last, further)
    }

    #[must_use]
    pub fn has(&self, id: MappingId) -> bool {
        self.kept.contains_key(&id)
    }

    /// Undoes [`prepare`](Self::prepare) when the mapping failed, or when it is not needed any more.
    /// Returns what has to be unmapped.
    pub fn withdraw(&mut self, id: MappingId) -> Option<Kept> {
        let kept = self.kept.remove(&id)?;
        if let Some(watch) = kept.watch
            && !self.kept.values().any(|other| other.watch == kept.watch)
        {
            self.unneeded.push(watch);
        }
        Some(kept)
    }

    /// Notes by what changes of a mapping's file are told of.
    pub fn set_watch(&mut self, id: MappingId, watch: Watch) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.watch = Some(watch);
        }
    }

    /// The mappings of files that these watches tell of.
    #[must_use]
    pub fn of_watches(&self, watches: &BTreeSet<Watch>) -> Vec<MappingId> {
        let told = |kept: &Kept| kept.watch.is_some_and(|watch| watches.contains(&watch));
        let found = self.kept.iter().filter(|(_, kept)| told(kept));
        found.map(|(id, _)| *id).collect()
    }

    /// The guest asks for pages of a mapping.
    pub fn note_asked(&mut self, id: MappingId) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.asked = true;
        }
    }

    /// Whether the guest is to be told of a change of a mapping's file, which has so many bytes now. If it has
    /// asked for no page since it was told last, it has none that is not the program's own, and those are lost by
    /// a truncation alone; but it may know of pages that were not there, and are now.
    #[must_use]
    pub fn tells(&mut self, id: MappingId, backed: u64) -> bool {
        let Some(kept) = self.kept.get_mut(&id) else {
            return false;
        };
        let as_long = backed == std::mem::replace(&mut kept.told, backed);
        // Trap: thousands-of-mappings-of-a-busy-file
        std::mem::take(&mut kept.asked) || !as_long
    }

    /// The guest is elsewhere now, and may have brought pages along that a truncation has taken.
    pub fn forget_told(&mut self) {
        for kept in self.kept.values_mut() {
            kept.told = kept.length;
        }
    }

    /// Watches that no mapping needs any more. One that was given up may be needed again: what gives back the last
    /// mapping of a file may be the request that maps it anew.
    pub fn take_unneeded(&mut self) -> Vec<Watch> {
        let mut unneeded = std::mem::take(&mut self.unneeded);
        if unneeded.is_empty() {
            return unneeded;
        }
        let needed: BTreeSet<Watch> = self.kept.values().filter_map(|kept| kept.watch).collect();
        unneeded.retain(|watch| !needed.contains(watch));
        unneeded
    }

    /// All that is kept.
    pub fn all(&self) -> impl Iterator<Item = (MappingId, &Kept)> {
        self.kept.iter().map(|(id, kept)| (*id, kept))
    }

    fn allocate(&mut self, length: u64) -> Option<u64> {
        if self.kept.len() >= KEPT_MAX {
            return None;
        }
        let (address, after) = fit(self.next_address, length)?;
        if after > self.end {
            return self.gap(length);
        }
        self.next_address = after;
        Some(address)
    }

    /// Room that mappings have left which are gone.
    fn gap(&self, length: u64) -> Option<u64> {
        let taken = self.kept.values();
        let mut taken: Vec<(u64, u64)> = taken.map(|kept| (kept.address, kept.length)).collect();
        taken.sort_unstable();
        let mut at = self.start;
        for (start, taken) in taken {
            let (address, after) = fit(at, length)?;
            if after <= start {
                return Some(address);
            }
            at = at.max(start.checked_add(taken)?.checked_add(spacing(taken))?);
        }
        let (address, after) = fit(at, length)?;
        (after <= self.end).then_some(address)
    }

    /// Address in the deputy of `length` bytes at `offset` of mapping `id`; None if outside.
    #[must_use]
    pub fn locate(&self, id: MappingId, offset: u64, length: u64) -> Option<u64> {
        let kept = self.kept.get(&id)?;
        let end = offset.checked_add(length)?;
        // Added only after this check, because a host may name any offset.
        (end <= kept.length).then(|| kept.address + offset)
    }

    /// The most mappings that the kept ones become while these pieces are taken out one by one: each piece
    /// that is taken counts as one, and so does what is left between them.
    #[must_use]
    pub fn mappings_without(&self, mappings: &[Mapping]) -> u64 {
        let mut taken: BTreeMap<MappingId, Vec<(u64, u64)>> = BTreeMap::new();
        for mapping in mappings {
            if let Backing::File { id, offset } = mapping.backing {
                taken.entry(id).or_default().push((offset, mapping.len()));
            }
        }
        let count = |(id, kept): (&MappingId, &Kept)| {
            let Some(pieces) = taken.get_mut(id) else {
                return 1;
            };
            pieces.sort_unstable();
            if pieces.as_slice() == [(0, kept.length)] {
                return 1;
            }
            let mut end = 0;
            let mut gaps = 0;
            for (offset, length) in pieces.iter() {
                gaps += u64::from(*offset > end);
                end = end.max(offset.saturating_add(*length));
            }
            // One more for the rest, which is there until the last piece is taken.
            pieces.len() as u64 + gaps + 1
        };
        self.kept.iter().map(count).sum()
    }

    #[must_use]
    pub fn get(&self, id: MappingId) -> Option<&Kept> {
        self.kept.get(&id)
    }
}

/// What is left free behind a mapping of so many bytes. Small ones stand close together: each on a page
/// table of its own, 60,000 of them would take 240 MB of home's memory.
fn spacing(length: u64) -> u64 {
    if length < GAP { PAGE_SIZE } else { GAP }
}

/// The first place from `from` on for a mapping of so many bytes, and where the next one may begin.
fn fit(from: u64, length: u64) -> Option<(u64, u64)> {
    let spacing = spacing(length);
    let address = from.checked_next_multiple_of(spacing)?;
    Some((address, address.checked_add(length)?.checked_add(spacing)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_model::MappingFlags;

    fn file(start: u64, end: u64, id: u32) -> Mapping {
        Mapping {
            start,
            end,
            protection: Protection(5),
            flags: MappingFlags::default(),
            backing: Backing::File {
                id: MappingId(id),
                offset: 0,
            },
        }
    }

    #[test]
    fn a_guest_that_has_no_page_of_a_file_is_not_told_of_its_changes() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 2 << 40,
        });
        attic.store_all(&[file(0x1000, 0x5000, 0)]).expect("fits");
        let id = MappingId(0);
        assert!(!attic.tells(id, 0x4000), "it has nothing");
        attic.note_asked(id);
        assert!(attic.tells(id, 0x4000));
        assert!(!attic.tells(id, 0x4000), "it has dropped what it had");
        assert!(attic.tells(id, 0x2000), "a truncation takes its own pages");
        assert!(!attic.tells(id, 0x2000));
        assert!(attic.tells(id, 0x4000), "a page that was refused is there");
        assert!(attic.tells(id, 0x3000));
        attic.forget_told();
        assert!(
            attic.tells(id, 0x3000),
            "another host does not know of that"
        );
        assert!(!attic.tells(MappingId(7), 0));
    }

    #[test]
    fn a_file_that_is_mapped_again_is_watched_on() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 2 << 40,
        });
        let notices = nix::sys::inotify::Inotify::init(nix::sys::inotify::InitFlags::IN_CLOEXEC);
        let notices = notices.expect("inotify");
        let what = nix::sys::inotify::AddWatchFlags::IN_MODIFY;
        let descriptor = notices.add_watch("/", what).expect("a watch");
        let watch = Watch::Noticed(descriptor);
        let (first, _) = attic.prepare(0x1000, Protection(1)).expect("fits");
        attic.set_watch(first, watch);
        // One request gives back the last mapping of a file, and maps that file.
        assert!(attic.withdraw(first).is_some());
        let (second, _) = attic.prepare(0x1000, Protection(1)).expect("fits");
        attic.set_watch(second, watch);
        assert!(attic.take_unneeded().is_empty());
        assert!(attic.withdraw(second).is_some());
        assert_eq!(attic.take_unneeded(), [watch]);
        assert!(attic.take_unneeded().is_empty());
    }

    #[test]
    fn mappings_are_found_again_by_number_and_offset() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 2 << 40,
        });
        let storings = attic
            .store_all(&[file(0x1000, 0x3000, 0), file(0x3000, 0x4000, 1)])
            .expect("fits");
        assert_eq!(storings.len(), 2);
        assert_eq!(
            attic.locate(MappingId(0), 0x1000, 0x1000),
            Some(storings[0].to + 0x1000)
        );
        assert_eq!(attic.locate(MappingId(0), 0x1000, 0x1001), None);
        assert_eq!(attic.locate(MappingId(0), u64::MAX, 2), None);
        assert_eq!(attic.locate(MappingId(7), 0, 1), None);
        let (id, address) = attic.prepare(0x1000, Protection(1)).expect("fits");
        assert_eq!(id, MappingId(2));
        assert!(address > storings[1].to);
    }

    #[test]
    fn what_is_left_of_mappings_counts_as_well() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 2 << 40,
        });
        let whole = [file(0x1000, 0x9000, 0), file(0x9000, 0xa000, 1)];
        attic.store_all(&whole).expect("fits");
        assert_eq!(attic.mappings_without(&[]), 2);
        assert_eq!(attic.mappings_without(&whole), 2);
        let piece = |offset| Mapping {
            backing: Backing::File {
                id: MappingId(0),
                offset,
            },
            ..file(0x1000, 0x2000, 0)
        };
        // Two of eight pages: what is before, between and behind them stays.
        let pieces = [piece(0x5000), piece(0x2000)];
        assert_eq!(attic.mappings_without(&pieces), 1 + 2 + 2 + 1);
        let all: Vec<Mapping> = (0..8).map(|page| piece(page * 0x1000)).collect();
        assert_eq!(attic.mappings_without(&all), 1 + 8 + 1);
    }

    #[test]
    fn parts_of_one_mapping_are_known_whatever_shows_them() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 2 << 40,
        });
        let whole = [file(0x1000, 0x9000, 0), file(0x9000, 0xa000, 1)];
        attic.store_all(&whole).expect("fits");
        let first = MappingId(0);
        let (more, _) = attic.prepare_more((first, 0x2000), 0x8000).expect("fits");
        let (most, _) = attic.prepare_more((more, 0x1000), 0x1000).expect("fits");
        assert!(attic.are_one((first, 0), (first, 0x1000), 0x1000));
        assert!(attic.are_one((first, 0), (more, 0x6000), 0x8000));
        assert!(attic.are_one((first, 0x1000), (most, 0), 0x2000));
        assert!(!attic.are_one((first, 0), (more, 0x6000), 0x6000));
        assert!(!attic.are_one((first, 0), (MappingId(1), 0), 0x8000));
        assert!(!attic.are_one((first, 0), (MappingId(9), 0), 0));
        // A host may name any offset.
        assert!(!attic.are_one((first, u64::MAX), (more, u64::MAX), 1));
        assert_eq!(attic.prepare_more((MappingId(9), 0), 0x1000), None);
        assert_eq!(attic.prepare_more((more, u64::MAX), 0x1000), None);
    }

    #[test]
    fn room_is_used_again() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: (1 << 40) + 4 * 2 * PAGE_SIZE,
        });
        let mut make = || attic.prepare(0x1000, Protection(1));
        let ids: Vec<_> = std::iter::from_fn(&mut make).collect();
        assert_eq!(ids.len(), 4);
        let (id, address) = ids[1];
        let kept = attic.withdraw(id).expect("it is there");
        assert_eq!((kept.address, kept.length), (address, 0x1000));
        assert!(attic.withdraw(id).is_none());
        let (again, place) = attic.prepare(0x1000, Protection(1)).expect("room again");
        assert_eq!(place, address);
        assert!(ids.iter().all(|(id, _)| *id != again), "a new number");
        assert!(attic.prepare(0x1000, Protection(1)).is_none());
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: 100 << 40,
        });
        let mut make = || attic.prepare(0x1000, Protection(1));
        let made = std::iter::from_fn(&mut make).take(KEPT_MAX + 1).count();
        assert_eq!(made, KEPT_MAX);
        let first = MappingId(0);
        assert_eq!(attic.prepare_more((first, 0), 0x1000), None);
        attic.withdraw(first).expect("it is there");
        assert!(attic.prepare(0x1000, Protection(1)).is_some());
    }

    #[test]
    fn a_full_attic_says_so() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: (1 << 40) + (1 << 22),
        });
        assert!(attic.prepare(1 << 22, Protection(1)).is_none());
    }
}
