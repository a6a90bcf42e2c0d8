//! Checks an image before anything is done with it, because home may lie.

use super::{RebuildError, SIGNALS, threads};
use crate::maps::MAPPINGS_MAX;
use crate::reserve;
use crate::vdso;
use whim_calls::judge::Filters;
use whim_model::{Backing, Mapping, PAGE_SIZE, ProcessImage, Range, USER_END};
use whim_sys::ptrace::XSTATE_MAX;

/// Highest offset in a file's mapping: no mapping is longer than a half of the address space.
const OFFSET_MAX: u64 = 1 << 47;

/// Refuses what no process has, before anything is done with it.
///
/// # Errors
/// The first fault found.
pub fn check_image(image: &ProcessImage) -> Result<(), RebuildError> {
    let unsound = |what: String| Err(RebuildError::Unsound(what));
    let reserved = image.reserved;
    if reserved.is_empty() || !(reserved.start | reserved.end).is_multiple_of(reserve::ALIGNMENT) {
        return unsound(format!("reserved range {reserved:x?}"));
    }
    if reserved.end > USER_END {
        return unsound(format!("reserved range {reserved:x?}"));
    }
    if image.mappings.len() > MAPPINGS_MAX {
        return unsound(format!("{} mappings", image.mappings.len()));
    }
    let mut at = 0;
    for mapping in &image.mappings {
        let range = Range {
            start: mapping.start,
            end: mapping.end,
        };
        let aligned = (mapping.start | mapping.end).is_multiple_of(PAGE_SIZE);
        if !aligned || mapping.start < at || range.is_empty() || mapping.end > USER_END {
            return unsound(format!("mapping {range:x?}"));
        }
        if range.overlaps(reserved) || mapping.protection.0 & !7 != 0 {
            return unsound(format!("mapping {range:x?}"));
        }
        if !has_sound_offset(mapping) {
            return unsound(format!("the offset of the mapping {range:x?}"));
        }
        at = mapping.end;
    }
    if !image.has_sound_guards() {
        return unsound("guard pages outside of its mappings".into());
    }
    if !image.has_sound_remarks(reserved) || image.denies_memory & !3 != 0 {
        return unsound("remarks on memory that no kernel takes".into());
    }
    if let Err(unfit) = Filters::of(&image.filters) {
        let why = unfit.why();
        return unsound(format!("its seccomp filter {why}"));
    }
    match image.threads.first() {
        Some(leader) if leader.tid == image.pid => {}
        _ => return unsound("the leader is not the first thread".into()),
    }
    if image.threads.len() > threads::THREADS_MAX {
        return unsound(format!("{} threads", image.threads.len()));
    }
    if let Some(thread) = image.threads.iter().find(|t| t.xstate.len() > XSTATE_MAX) {
        let length = thread.xstate.len();
        return unsound(format!("vector registers of {length} bytes"));
    }
    if image.vdso.len() > vdso::LENGTH_MAX {
        return unsound(format!("a vDSO of {} bytes", image.vdso.len()));
    }
    if image.actions.len() != SIGNALS {
        return unsound(format!("{} signal actions", image.actions.len()));
    }
    Ok(())
}

/// Pages of files are counted from the beginning of their mapping at home: no sum may wrap.
fn has_sound_offset(mapping: &Mapping) -> bool {
    let Backing::File { offset, .. } = mapping.backing else {
        return true;
    };
    offset.is_multiple_of(PAGE_SIZE) && offset <= OFFSET_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;
    use whim_model::{
        MappingFlags, MappingId, MemoryPolicy, Protection, Remark, SignalAction, ThreadImage,
    };

    fn thread(number: usize) -> ThreadImage {
        fuzz::thread(i32::try_from(number).expect("small"))
    }

    fn mapping(start: u64, offset: u64) -> Mapping {
        let id = MappingId(1);
        Mapping {
            start,
            end: start + PAGE_SIZE,
            protection: Protection(1),
            flags: MappingFlags::default(),
            backing: Backing::File { id, offset },
        }
    }

    /// With as much of everything as there may be.
    fn largest() -> ProcessImage {
        let mut threads: Vec<_> = (1..=threads::THREADS_MAX).map(thread).collect();
        threads[0].xstate = vec![0; XSTATE_MAX];
        let mut mappings: Vec<_> = (1..MAPPINGS_MAX as u64)
            .map(|number| mapping(number * PAGE_SIZE, 0))
            .collect();
        mappings.push(mapping(USER_END - PAGE_SIZE, OFFSET_MAX));
        let remark = Remark {
            range: Range {
                start: PAGE_SIZE,
                end: 3 * PAGE_SIZE,
            },
            policy: MemoryPolicy { mode: 2, nodes: 1 },
            name: vec![b'x'; Remark::NAME_MAX],
        };
        ProcessImage {
            threads,
            mappings,
            reserved: Range {
                start: 16 << 40,
                end: 48 << 40,
            },
            vdso: vec![0; vdso::LENGTH_MAX],
            denies_memory: 3,
            locks_future: false,
            remarks: vec![remark],
            ..fuzz::smallest()
        }
    }

    #[test]
    fn images_are_taken_up_to_their_limits() {
        let largest = largest();
        check_image(&largest).expect("at its limits");
        let above: [fn(&mut ProcessImage); 11] = [
            |image| image.filters = vec![vec![]],
            |image| image.denies_memory = 4,
            |image| image.remarks[0].name.push(b'x'),
            |image| image.remarks[0].name[1] = 0,
            |image| image.remarks[0].range = image.reserved,
            |image| image.threads.push(thread(threads::THREADS_MAX + 1)),
            |image| image.threads[0].xstate.push(0),
            |image| image.mappings.insert(0, mapping(0, 0)),
            |image| {
                let last = image.mappings.len() - 1;
                image.mappings[last].backing = Backing::File {
                    id: MappingId(1),
                    offset: OFFSET_MAX + PAGE_SIZE,
                };
            },
            |image| image.vdso.push(0),
            |image| image.actions.push(SignalAction::default()),
        ];
        for (number, change) in above.iter().enumerate() {
            let mut image = largest.clone();
            change(&mut image);
            let error = check_image(&image).expect_err("one above");
            assert!(
                matches!(error, RebuildError::Unsound(_)),
                "{number}: {error}"
            );
        }
    }
}
