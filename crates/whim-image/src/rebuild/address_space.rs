//! The list of calls that turns the blank address space into the image's.

use super::stub::Place;
use super::{RebuildError, is_kernel_name};
use crate::mapping::{advise, flag, map};
use crate::vdso::Proxy;
use whim_model::{
    Backing, MADV_GUARD_INSTALL, Mapping, PAGE_SIZE, ProcessImage, Protection, Range, Syscall,
    USER_END,
};
use whim_sys::procmap::Entry;

/// Distance between temporary places of the kernel's mappings.
const TEMPORARY_STEP: u64 = 1 << 24;

/// A stack is at least this long here, if its limit and its neighbours allow it.
pub const STACK_ROOM: u64 = 8 << 20;
/// The kernel keeps this distance below a stack free.
const STACK_GUARD: u64 = 1 << 20;

/// An operation, and its name for the error if its failure matters.
pub(super) type Step = (Syscall, Option<&'static str>);

/// Where one of the kernel's own mappings is, and where the image wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    from: u64,
    to: u64,
    length: u64,
}

/// Pairs this kernel's own mappings with the image's, by name.
pub(super) fn kernel_moves(
    image: &ProcessImage,
    here: &[Entry],
) -> Result<Vec<Move>, RebuildError> {
    let mut moves = Vec::new();
    for mapping in &image.mappings {
        let Backing::Kernel { name } = &mapping.backing else {
            continue;
        };
        if !is_kernel_name(name) {
            return Err(RebuildError::Unsound(format!(
                "a kernel mapping {name:.20}"
            )));
        }
        let found = here
            .iter()
            .find(|entry| entry.name == *name && entry.end - entry.start == mapping.len());
        let Some(entry) = found else {
            return Err(RebuildError::KernelMapping { name: name.clone() });
        };
        moves.push(Move {
            from: entry.start,
            to: mapping.start,
            length: mapping.len(),
        });
    }
    Ok(moves)
}

fn unmap(start: u64, end: u64) -> Option<Step> {
    let operation = Syscall::new(libc::SYS_munmap, &[start, end - start]);
    (end > start).then_some((operation, Some("munmap")))
}

fn relocate(from: u64, to: u64, length: u64) -> Step {
    let how = flag(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let operation = Syscall::new(libc::SYS_mremap, &[from, length, length, how, to]);
    (operation, Some("Moving the vDSO"))
}

/// Where the kernel's mappings wait that lie in the reserved range: a blank process has nothing there, and the
/// range begins above.
const ASIDE: u64 = 1 << 30;

/// Takes what is to be moved out of the reserved range, which is mapped anew before the moves. The chances of this
/// kernel's layout can lay it there, if a program leaves little but such places free.
pub(super) fn make_way(moves: &mut [Move], reserved: Range) -> Vec<Step> {
    let mut list = Vec::new();
    for (each, aside) in moves.iter_mut().zip((ASIDE..).step_by(1 << 24)) {
        let range = Range {
            start: each.from,
            end: each.from + each.length,
        };
        if range.overlaps(reserved) {
            list.push(relocate(each.from, aside, each.length));
            each.from = aside;
        }
    }
    list
}

/// Unmaps what the blank process had outside of the reserved range; sealed mappings stay.
fn clear(reserved: Range, sealed: &[Range]) -> Vec<Step> {
    let mut keep: Vec<Range> = sealed.to_vec();
    keep.push(reserved);
    keep.sort_by_key(|range| range.start);
    let mut list = Vec::with_capacity(keep.len() + 1);
    let mut at = 0;
    for range in keep {
        list.extend(unmap(at, range.start));
        at = at.max(range.end);
    }
    list.extend(unmap(at, USER_END));
    list
}

/// Makes room for a copy of home's vDSO, which is still to be written, and maps inaccessible memory
/// where its data was.
pub(super) fn proxy_steps(proxy: &Proxy) -> Vec<Step> {
    let anonymous = |range: Range, protection: u8| Mapping {
        start: range.start,
        end: range.end,
        protection: Protection(protection),
        flags: whim_model::MappingFlags::default(),
        backing: Backing::Anonymous,
    };
    let (code, _) = proxy.contents();
    let code = anonymous(code, Protection::READ | Protection::WRITE);
    let data = proxy.data().iter().map(|range| anonymous(*range, 0));
    let mappings = data.chain([code]);
    mappings
        .map(|mapping| mapped(&mapping, mapping.end))
        .collect()
}

/// All operations between the stub in the reserved range and the image's mappings. `sealed` are
/// mappings of the blank process that cannot be unmapped.
pub(super) fn operations(
    image: &ProcessImage,
    moves: &[Move],
    sealed: &[Range],
    place: Place,
) -> Vec<Step> {
    let reserved = image.reserved;
    let mut list = Vec::with_capacity(image.mappings.len() * 2 + 16);
    let mut temporary = reserved.start;
    for each in moves {
        debug_assert!(temporary + each.length < place.code);
        list.push(relocate(each.from, temporary, each.length));
        temporary += TEMPORARY_STEP;
    }
    list.extend(clear(reserved, sealed));
    for (each, at) in moves.iter().zip((reserved.start..).step_by(1 << 24)) {
        list.push(relocate(at, each.to, each.length));
    }
    if temporary > reserved.start {
        // The moves have torn holes into the reserved range.
        let hole = Mapping {
            start: reserved.start,
            end: temporary,
            protection: whim_model::Protection(0),
            flags: whim_model::MappingFlags {
                no_reserve: true,
                ..whim_model::MappingFlags::default()
            },
            backing: Backing::Anonymous,
        };
        list.push(mapped(&hole, hole.end));
    }
    list.extend(mapping_steps(&with_room(image)));
    list.extend(image.guards.iter().map(|guard| {
        let advice = u64::from(MADV_GUARD_INSTALL);
        let operation = Syscall::new(libc::SYS_madvise, &[guard.start, guard.len(), advice]);
        (operation, Some("Installing guard pages"))
    }));
    list.extend(lock_steps(&image.mappings));
    list
}

/// Comes after the guards, because the kernel does not install guards in locked memory.
fn lock_steps(mappings: &[Mapping]) -> impl Iterator<Item = Step> {
    let locked = mappings.iter().filter(|mapping| {
        mapping.flags.locked && !matches!(mapping.backing, Backing::Kernel { .. })
    });
    locked.map(|mapping| {
        // Locked without being filled: the contents come later.
        let arguments = [mapping.start, mapping.len(), 1];
        (Syscall::new(libc::SYS_mlock2, &arguments), None)
    })
}

/// The mappings, with room below the stack. Here the stack grows only by the program's own
/// accesses, not when home's answer is written into a part that was never touched.
pub(super) fn with_room(image: &ProcessImage) -> Vec<Mapping> {
    let limit = image
        .limits
        .iter()
        .find(|limit| limit.resource == libc::RLIMIT_STACK);
    let length = limit.map_or(STACK_ROOM, |limit| limit.soft.min(STACK_ROOM));
    let mut mappings = image.mappings.clone();
    let mut below = 0;
    for mapping in &mut mappings {
        if mapping.flags.grows_down {
            if image.reserved.end <= mapping.start {
                below = below.max(image.reserved.end);
            }
            let room = mapping.end.saturating_sub(length) & !(PAGE_SIZE - 1);
            mapping.start = mapping.start.min(room.max(below + STACK_GUARD));
        }
        below = mapping.end;
    }
    mappings
}

/// The bytes by which the mappings are longer than the image has them.
pub(super) fn room(image: &ProcessImage) -> u64 {
    let longer = with_room(image).into_iter().zip(&image.mappings);
    longer
        .map(|(with, without)| without.start - with.start)
        .sum()
}

fn mapped(mapping: &Mapping, end: u64) -> Step {
    (map(mapping, end), Some("Mapping memory"))
}

fn like(one: &Mapping, other: &Mapping) -> bool {
    one.protection == other.protection && one.flags == other.flags && one.end == other.start
}

/// One `mmap` per run of alike neighbours, and right behind it the advice, which must come before
/// the pages.
fn mapping_steps(mappings: &[Mapping]) -> Vec<Step> {
    let mut list = Vec::new();
    let mut rest: &[Mapping] = mappings;
    while let Some(first) = rest.first() {
        if matches!(first.backing, Backing::Kernel { .. }) {
            rest = &rest[1..];
            continue;
        }
        let mut count = 1;
        while count < rest.len()
            && like(&rest[count - 1], &rest[count])
            && !matches!(rest[count].backing, Backing::Kernel { .. })
        {
            count += 1;
        }
        let end = rest[count - 1].end;
        list.push(mapped(first, end));
        list.extend(advise(first, end).map(|call| (call, None)));
        rest = &rest[count..];
    }
    list
}

/// Ranges of file mappings, neighbours joined.
pub(super) fn file_ranges(mappings: &[Mapping]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for mapping in mappings {
        if !matches!(mapping.backing, Backing::File { .. }) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == mapping.start => last.end = mapping.end,
            _ => ranges.push(Range {
                start: mapping.start,
                end: mapping.end,
            }),
        }
    }
    ranges
}

const _: () = assert!(TEMPORARY_STEP == 1 << 24 && TEMPORARY_STEP.is_multiple_of(PAGE_SIZE));

#[cfg(test)]
mod tests {
    use super::*;
    use whim_model::{MappingFlags, MappingId, Protection};

    fn mapping(start: u64, end: u64, protection: u8, file: Option<u32>) -> Mapping {
        Mapping {
            start,
            end,
            protection: Protection(protection),
            flags: MappingFlags::default(),
            backing: file.map_or(Backing::Anonymous, |id| Backing::File {
                id: MappingId(id),
                offset: 0,
            }),
        }
    }

    #[test]
    fn what_lies_in_the_reserved_range_waits_aside() {
        let reserved = Range {
            start: 8 << 30,
            end: 16 << 30,
        };
        let of = |from| Move {
            from,
            to: 0x5000,
            length: 0x2000,
        };
        let mut moves = [of(0x7000), of((16 << 30) - 0x1000), of(16 << 30)];
        let list = make_way(&mut moves, reserved);
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].0.args[..2], [(16 << 30) - 0x1000, 0x2000]);
        assert_eq!(moves[1].from, list[0].0.args[4]);
        assert!(moves[1].from < reserved.start);
        assert_eq!((moves[0].from, moves[2].from), (0x7000, 16 << 30));
    }

    #[test]
    fn alike_neighbours_are_mapped_at_once() {
        let mappings = [
            mapping(0x1000, 0x2000, 3, None),
            mapping(0x2000, 0x3000, 3, Some(1)),
            mapping(0x3000, 0x4000, 5, Some(2)),
            mapping(0x9000, 0xa000, 5, None),
        ];
        let steps = mapping_steps(&mappings);
        let places: Vec<(u64, u64)> = steps.iter().map(|(o, _)| (o.args[0], o.args[1])).collect();
        assert_eq!(
            places,
            [(0x1000, 0x2000), (0x3000, 0x1000), (0x9000, 0x1000)]
        );
        let files = file_ranges(&mappings);
        assert_eq!(
            files,
            [Range {
                start: 0x2000,
                end: 0x4000
            }]
        );
    }
}
