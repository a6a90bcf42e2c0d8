//! What was said of the program's memory is said again at home, before its pages come.

use crate::convert::Original;
use crate::deputy::Deputy;
use crate::homeward::error::HomewardError;
use whim_image::remarks::{bind, name};
use whim_model::{Backing, MemoryPolicy, ProcessImage, Range, Remark, Syscall};
use whim_sys::resident::DATA_LENGTH;

/// Room in the deck for the nodes of one remark, and for its name with a NUL.
const ROOM: usize = 8 + Remark::NAME_MAX + 1;
const AT_ONCE: usize = DATA_LENGTH / ROOM;

/// Sets policies and names. The kernel may refuse what it does not have: a node that only the host had (no
/// program is told there of others than home's), names.
///
/// # Errors
/// The deputy is lost.
pub(crate) fn restore(
    deputy: &mut Deputy,
    seat: usize,
    image: &ProcessImage,
    original: &Original,
) -> Result<(), HomewardError> {
    deputy.run(seat, &unbound(image, original))?;
    let base = deputy.address(deputy.deck().data_offset());
    for some in image.remarks.chunks(AT_ONCE) {
        let mut list = Vec::new();
        for (at, remark) in (0..).step_by(ROOM).zip(some) {
            let (nodes, text) = (base + at as u64, base + at as u64 + 8);
            let deck = deputy.deck();
            deck.write_data(at, &remark.policy.nodes.to_le_bytes());
            deck.write_data(at + 8, &[remark.name.as_slice(), &[0]].concat());
            if remark.policy != MemoryPolicy::default() {
                list.push(bind(remark.range, remark.policy, nodes));
            }
            if !remark.name.is_empty() {
                list.push(name(remark.range, text));
            }
        }
        deputy.run(seat, &list)?;
    }
    Ok(())
}

/// Mappings of files have waited here with their policies: those that had one when they left get the
/// default one first.
fn unbound(image: &ProcessImage, original: &Original) -> Vec<Syscall> {
    let none = MemoryPolicy::default();
    let files = image
        .mappings
        .iter()
        .filter(|mapping| original.has_policies && matches!(mapping.backing, Backing::File { .. }));
    let range = |mapping: &whim_model::Mapping| Range {
        start: mapping.start,
        end: mapping.end,
    };
    files.map(|mapping| bind(range(mapping), none, 0)).collect()
}
