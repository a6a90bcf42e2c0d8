//! Entry of a fuzz target in `fuzz/`; its corpus is replayed by the tests of this crate.

use whim_model::{Activity, Backing, MappingId, ProcessImage, Range};

use crate::attic::Attic;
use crate::homeward::{check_memory, mapping_operations, resumption};
use crate::server::Finished;

const TIB: u64 = 1 << 40;
const RESERVED: Range = Range {
    start: 32 * TIB,
    end: 33 * TIB,
};

/// An image that comes home and is accepted touches nothing of the supervisor's in the deputy, and
/// its thread goes on somewhere, wherever its registers point.
///
/// The input: the registers of a thread (16 bytes), and changes of an image
/// ([`whim_image::fuzz::image`]).
pub fn homeward(data: &[u8]) {
    let Some((head, changes)) = data.split_at_checked(16) else {
        return;
    };
    let mut image = whim_image::fuzz::image(changes);
    let word = |at: usize| {
        let bytes = head[at..at + 8].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let thread = &mut image.threads[0];
    thread.registers.rip = word(0);
    thread.registers.orig_rax = word(8);
    thread.activity = Activity::AwaitsHome;
    for result in [word(8).cast_signed(), -512, -516, 0] {
        let finished = Finished {
            result,
            number: 1,
            ..Finished::default()
        };
        let found = resumption(thread, Some(finished));
        assert!(found.writes.is_empty());
    }
    assert_eq!(resumption(thread, None).registers.rip, word(0));
    let mut attic = Attic::new(RESERVED);
    for length in [3, 1, 200] {
        attic.prepare(length * 4096, whim_model::Protection(1));
    }
    if check_memory(&image, RESERVED, &[], &attic).is_ok() {
        check(&image, &attic);
    }
}

fn check(image: &ProcessImage, attic: &Attic) {
    let (required, wished) = mapping_operations(image, attic);
    assert!(required.len() <= 2 * image.mappings.len() + image.guards.len());
    assert!(wished.len() <= 5 * image.mappings.len());
    for mapping in &image.mappings {
        let range = Range {
            start: mapping.start,
            end: mapping.end,
        };
        assert!(!range.is_empty() && !range.overlaps(RESERVED) && range.end <= 1 << 47);
        if let Backing::File { id, offset } = mapping.backing {
            let kept = attic.get(id).expect("it is in the attic");
            let end = offset.checked_add(mapping.len());
            assert!(
                end.is_some_and(|end| end <= kept.length),
                "beyond what is kept"
            );
            let from = attic
                .locate(id, offset, mapping.len())
                .expect("it is there");
            assert!(RESERVED.contains(from) && from + mapping.len() <= RESERVED.end);
        }
    }
    assert!(attic.locate(MappingId(9), 0, 1).is_none());
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_returning_images() {
        whim_corpus::replay("homeward", super::homeward);
    }
}
