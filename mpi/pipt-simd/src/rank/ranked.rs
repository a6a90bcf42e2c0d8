//! Wide samples as ranks of two bytes: a block of at most 65536 of them is sorted, and the networks compare
//! ranks, two or four times as many at once as samples.

use super::network::Program;
use super::{Input, Output, Plane, PlaneMut, RankError, Tools, convert};
use pipt_raster::Sample;

/// Samples of a block that is sorted: none has a rank that does not fit into two bytes.
const MOST: usize = 1 << 16;

/// Bytes at most, beside those of the sorted block, which are [`MOST`] times 60.
pub(super) const BYTES: usize = MOST * (2 + 2 + 60);

#[derive(Default)]
pub(super) struct Scratch {
    ranks: Vec<u16>,
    results: Vec<u16>,
}

/// Filters a part of an image in which all samples are valid, for one rank.
pub(super) fn filter<T: Sample, O: Sample>(
    tools: &mut Tools,
    (program, extent): (&Program, (usize, usize)),
    input: &Input<'_, T>,
    output: &mut Output<'_, O>,
    at: (usize, usize),
    size: (usize, usize),
) -> Result<(), RankError> {
    let high = size.1 + extent.1 - 1;
    let most = (MOST / high).saturating_sub(extent.0 - 1).max(1);
    // Parts of equal width.
    let across = size.0.div_ceil(size.0.div_ceil(most));
    for x in (0..size.0).step_by(across) {
        let width = across.min(size.0 - x);
        let wide = width + extent.0 - 1;
        let (ranks, keys) = tools.block.ordered(&input.part((x, 0), (wide, high)));
        let Scratch {
            ranks: narrow,
            results,
        } = &mut tools.ranked;
        narrow.clear();
        #[allow(
            clippy::cast_possible_truncation,
            reason = "there are not more samples"
        )]
        narrow.extend(ranks.iter().map(|rank| *rank as u16));
        results.resize(width * size.1, 0);
        let mut found = Output {
            samples: PlaneMut::new(results, width, size.1, width)?,
            valid: None,
        };
        let narrow = Plane::new(narrow, wide, high, wide)?;
        let lanes = &mut tools.lanes;
        program.filter(
            tools.level,
            lanes,
            narrow,
            &mut found,
            (0, 0),
            (width, size.1),
        );
        for (y, found) in results.chunks_exact(width).enumerate() {
            let row = &mut output.samples.row_mut(at.1 + y)[at.0 + x..][..width];
            for (sample, rank) in row.iter_mut().zip(found) {
                *sample = convert::<T, O>(keys[usize::from(*rank)]);
            }
        }
    }
    Ok(())
}
