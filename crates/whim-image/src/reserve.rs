//! Which addresses home takes for itself in a process that is away: its own code, the attic, and the deputy's deck.
//! The host keeps the same range free.

use crate::maps::{self, MapEntry, USER_BEGIN};
use whim_model::{Range, USER_END};

/// The range begins and ends at multiples of this, in bytes: a guest's filter compares the high halves of addresses.
pub const ALIGNMENT: u64 = 4 << 30;
/// What is taken where there is plenty, and the distance to what is mapped: so far below the range calls are trapped.
const TEBIBYTE: u64 = 1 << 40;
/// The attic keeps this distance around each mapping.
const AROUND: u64 = 2 << 20;
/// For deck and code, and for files that are mapped while it is away.
const MARGIN: u64 = 12 << 30;

/// How much home needs at least, of a process with these mappings: its mappings of files wait there.
#[must_use]
pub fn needed(entries: &[MapEntry]) -> u64 {
    let files = entries.iter().filter(|entry| entry.is_file());
    let bytes = files.fold(MARGIN, |sum: u64, entry| {
        sum.saturating_add(entry.range.len())
            .saturating_add(2 * AROUND)
    });
    bytes
        .checked_next_multiple_of(ALIGNMENT)
        .unwrap_or(u64::MAX)
}

/// A range for home that no mapping touches, if there is one. `entries` ascend.
#[must_use]
pub fn choose(entries: &[MapEntry]) -> Option<Range> {
    remote(entries).or_else(|| within_hole(entries))
}

/// The search begins at 32 TiB, above the places that Go, Java and sanitizers like, and keeps away from everything.
fn remote(entries: &[MapEntry]) -> Option<Range> {
    let all = entries.iter().map(|entry| entry.range.len());
    let bytes = all.fold(TEBIBYTE, u64::saturating_add);
    let length = bytes.checked_next_multiple_of(TEBIBYTE)?;
    (32..112).map(|start| start * TEBIBYTE).find_map(|start| {
        let wide = Range {
            start: start - TEBIBYTE,
            end: start.checked_add(length)?.checked_add(TEBIBYTE)?,
        };
        let free = wide.end <= USER_END && !entries.iter().any(|entry| entry.range.overlaps(wide));
        free.then_some(Range {
            start,
            end: start + length,
        })
    })
}

/// A piece of the largest hole's lower half, of which at least a half is left to the program where home's needs allow
/// it. The middle is where a stopped process is given code and memory for a moment.
fn within_hole(entries: &[MapEntry]) -> Option<Range> {
    let within = Range {
        start: USER_BEGIN,
        end: USER_END,
    };
    let hole = maps::free_ranges(entries, within).max_by_key(|hole| hole.len())?;
    let lower = (hole.len() / 2).checked_sub(ALIGNMENT)?;
    let half = (lower / 2).min(TEBIBYTE) & !(ALIGNMENT - 1);
    let length = half.max(needed(entries));
    let spare = lower.checked_sub(length)?;
    let start = (hole.start + spare / 2).next_multiple_of(ALIGNMENT);
    let found = Range {
        start,
        end: start + length,
    };
    (found.end <= hole.start + lower).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(lines: &str) -> Vec<MapEntry> {
        maps::parse(1, lines.as_bytes()).expect("mappings")
    }

    fn is_free(range: Range, entries: &[MapEntry]) -> bool {
        !entries.iter().any(|entry| entry.range.overlaps(range))
    }

    #[test]
    fn the_range_keeps_away_from_mappings() {
        let taken = entries("210000000000-210000001000 rw-p 0 00:00 0\n");
        let chosen = choose(&taken).expect("free");
        assert!(chosen.start >= 35 << 40, "{chosen:x?}");
        assert_eq!(chosen.start % TEBIBYTE, 0);
    }

    #[test]
    fn of_a_full_address_space_home_takes_a_piece_of_what_is_left() {
        let taken = entries(
            "100000-510000000000 ---p 0 00:00 0\n\
             512000000000-7ffffffff000 ---p 0 00:00 0\n",
        );
        let chosen = choose(&taken).expect("a hole of 128 GiB");
        assert!(is_free(chosen, &taken), "{chosen:x?}");
        assert_eq!(chosen.len(), 28 << 30);
        assert_eq!(chosen.start, (0x51 << 40) + (16 << 30));
        let within = Range {
            start: USER_BEGIN,
            end: USER_END,
        };
        let injected = maps::find_free(&taken, within, 1 << 20, 4096).expect("free");
        assert!(!injected.overlaps(chosen), "{injected:x?}");
    }

    #[test]
    fn a_hole_without_room_for_the_files_is_none() {
        let hole = |bytes: u64| {
            let end = (0x51_u64 << 40) + bytes;
            entries(&format!(
                "100000-500000000000 ---p 0 00:00 0\n\
                 500000000000-510000000000 r--p 0 08:01 3 /large\n\
                 {end:x}-7ffffffff000 ---p 0 00:00 0\n"
            ))
        };
        assert_eq!(choose(&hole(1 << 40)), None);
        assert!(choose(&hole(3 << 40)).is_some());
        let full = entries("10000-7ffffffff000 rw-p 0 00:00 0\n");
        assert_eq!(choose(&full), None);
        assert_eq!(needed(&full), MARGIN);
    }
}
