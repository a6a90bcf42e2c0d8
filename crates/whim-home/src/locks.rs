//! Locks of memory, and merging of equal pages: what of its mappings the program says at home alone, and home
//! says again when it is back.

use crate::convert::Original;
use crate::homeward::error::HomewardError;
use crate::numbers::OwnTid;
use crate::server::Server;
use whim_image::mapping::flag;
use whim_model::{Backing, Mapping, ProcessImage, Range, Syscall};

/// Locks memory again that was locked, whether or not its host could lock it. Programs lock and
/// unlock at home alone, so what was locked at the departure and is still mapped stays locked.
fn lock_operations(image: &ProcessImage, original: &Original) -> Vec<Syscall> {
    let lock = |start: u64, end: u64, on_fault: bool| {
        let flags = u64::from(on_fault);
        Syscall::new(libc::SYS_mlock2, &[start, end - start, flags])
    };
    let locked = of_home(original, |mapping| mapping.flags.locked);
    let mut operations = Vec::new();
    let future_on_fault = future_on_fault(original);
    for mapping in &image.mappings {
        if matches!(mapping.backing, Backing::Kernel { .. }) {
            continue;
        }
        // A guest's stack has untouched room below it, which would count if it were locked.
        if !mapping.flags.grows_down {
            if mapping.flags.locked {
                // The guest's own locks are always on fault, because contents were still on their way.
                operations.push(lock(mapping.start, mapping.end, true));
            }
            let before = &original.mappings;
            // Trap: locks-of-what-was-free
            let made_away = original.locks_future.then(|| fresh(mapping, before));
            for range in made_away.into_iter().flatten() {
                operations.push(lock(range.start, range.end, future_on_fault));
            }
        }
        for (range, before) in common(mapping, &locked) {
            let on_fault = before.flags.locked_on_fault;
            operations.push(lock(range.start, range.end, on_fault));
        }
    }
    operations
}

fn future_on_fault(original: &Original) -> bool {
    let mut mappings = original.mappings.iter();
    mappings.any(|mapping| mapping.flags.locked && mapping.flags.locked_on_fault)
}

/// The call by which the process locks what it maps from now on, if it had made that. Whoever makes it for
/// the process maps nothing there afterwards: that would be locked, and may be too much.
#[must_use]
pub(crate) fn future(original: &Original) -> Option<Syscall> {
    const MCL_FUTURE: u64 = 2;
    const MCL_ONFAULT: u64 = 4;
    let on_fault = future_on_fault(original);
    let how = MCL_FUTURE | if on_fault { MCL_ONFAULT } else { 0 };
    let call = Syscall::new(libc::SYS_mlockall, &[how]);
    original.locks_future.then_some(call)
}

/// Lets the kernel merge equal pages again where it might before. Programs say that at home alone.
fn merge_operations(image: &ProcessImage, original: &Original) -> Vec<Syscall> {
    let kept = of_home(original, |mapping| mapping.flags.mergeable);
    let how = flag(libc::MADV_MERGEABLE);
    let mappings = image.mappings.iter();
    mappings
        .flat_map(|mapping| common(mapping, &kept))
        .map(|(range, _)| Syscall::new(libc::SYS_madvise, &[range.start, range.len(), how]))
        .collect()
}

/// The mappings at the departure that had something.
fn of_home(original: &Original, had: impl Fn(&Mapping) -> bool) -> Vec<&Mapping> {
    let mappings = original.mappings.iter();
    mappings.filter(|mapping| had(mapping)).collect()
}

/// What a mapping has in common with each of these, which ascend.
fn common<'a>(
    mapping: &Mapping,
    kept: &'a [&'a Mapping],
) -> impl Iterator<Item = (Range, &'a Mapping)> + use<'a> {
    let (start, end) = (mapping.start, mapping.end);
    let first = kept.partition_point(|before| before.end <= start);
    let over = kept[first..].iter();
    over.take_while(move |before| before.start < end)
        .map(move |before| {
            let range = Range {
                start: start.max(before.start),
                end: end.min(before.end),
            };
            (range, *before)
        })
}

/// What of a mapping no mapping was at the departure; those ascend.
fn fresh(mapping: &Mapping, before: &[Mapping]) -> Vec<Range> {
    let mut found = Vec::new();
    let mut at = mapping.start;
    let first = before.partition_point(|one| one.end <= mapping.start);
    let over = before[first..].iter();
    let over = over.take_while(|one| one.start < mapping.end);
    for (start, end) in over
        .map(|one| (one.start, one.end))
        .chain([(mapping.end, mapping.end)])
    {
        if at < start {
            found.push(Range {
                start: at,
                end: start,
            });
        }
        at = at.max(end);
    }
    found
}

/// Locks, and what else of the mappings home alone keeps.
///
/// # Errors
/// The deputy is lost. A lock that is refused (a limit that was lowered meanwhile) costs speed.
pub(crate) fn restore(
    server: &mut Server,
    image: &ProcessImage,
    original: &Original,
) -> Result<(), HomewardError> {
    let seat = server
        .deputy
        .seat_of(OwnTid::of_leader(image))
        .ok_or(HomewardError::Ended)?;
    let mut operations = merge_operations(image, original);
    operations.extend(lock_operations(image, original));
    server.deputy.run(seat, &operations)?;
    Ok(())
}
