//! The attic: where the deputy keeps the private file mappings of the process while it is away.
//!
//! Anonymous memory is given back to home altogether (its contents have travelled). A file mapping
//! moves as it is, by `mremap`, and its private copies are dropped, so that it shows the file again:
//! exactly what a page that the guest never had, or gave up by MADV_DONTNEED, must show.

use std::collections::BTreeMap;
use whim_model::{Backing, Mapping, MappingId, Protection, Range};

/// Space between two mappings in the attic, so that they never merge.
const GAP: u64 = 1 << 21;

/// One mapping in the attic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub address: u64,
    pub length: u64,
    pub protection: Protection,
    pub locked: bool,
}

/// All mappings in the attic, by the number under which guest and home know them.
#[derive(Debug, Default)]
pub struct Attic {
    kept: BTreeMap<MappingId, Kept>,
    next_address: u64,
    next_id: u32,
    end: u64,
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
            end: range.end,
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
        let address = self.allocate(length)?;
        let id = MappingId(self.next_id);
        self.next_id += 1;
        self.kept.insert(
            id,
            Kept {
                address,
                length,
                protection,
                locked: false,
            },
        );
        Some((id, address))
    }

    /// Undoes [`prepare`](Self::prepare) when the mapping failed.
    pub fn withdraw(&mut self, id: MappingId) {
        self.kept.remove(&id);
    }

    fn allocate(&mut self, length: u64) -> Option<u64> {
        let address = self.next_address;
        let after = address.checked_add(length)?.checked_add(GAP)?;
        if after > self.end {
            return None;
        }
        self.next_address = after & !(GAP - 1);
        Some(address)
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

/// Chooses a range for attic, slots and code: multiples of 1 TiB that no mapping touches.
///
/// The search begins at 32 TiB, above the places that Go, Java and sanitizers like.
#[must_use]
pub fn choose_reserved(mappings: &[Range], bytes: u64) -> Option<Range> {
    const TEBIBYTE: u64 = 1 << 40;
    let length = bytes.checked_add(TEBIBYTE)?.next_multiple_of(TEBIBYTE);
    (32..112).map(|start| start * TEBIBYTE).find_map(|start| {
        // One more on both sides, so that a call near the range can be distinguished from one that hits it.
        let wide = Range {
            start: start - TEBIBYTE,
            end: start + length + TEBIBYTE,
        };
        let free = !mappings.iter().any(|mapping| mapping.overlaps(wide));
        free.then_some(Range {
            start,
            end: start + length,
        })
    })
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
    fn a_full_attic_says_so() {
        let mut attic = Attic::new(Range {
            start: 1 << 40,
            end: (1 << 40) + (1 << 22),
        });
        assert!(attic.prepare(1 << 22, Protection(1)).is_none());
    }

    #[test]
    fn the_reserved_range_keeps_away_from_mappings() {
        let taken = [Range {
            start: 33 << 40,
            end: (33 << 40) + 4096,
        }];
        let chosen = choose_reserved(&taken, 1 << 30).expect("free");
        assert!(chosen.start >= 35 << 40, "{chosen:x?}");
        assert_eq!(
            choose_reserved(
                &[Range {
                    start: 0,
                    end: u64::MAX
                }],
                1
            ),
            None
        );
    }
}
