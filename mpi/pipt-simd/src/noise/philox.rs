//! Philox4x32-10, for groups of pixels.

use crate::for_each_level;

/// Counters whose rounds are made at once.
pub(super) const LANES: usize = 16;
/// Pixels of a group: four words of each counter. Pixel `64 * g + 16 * j + i` has word `j` of counter
/// `16 * g + i`, so that no word has to be moved to another lane.
pub(super) const GROUP: usize = 4 * LANES;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Which random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) seed: u64,
    pub(super) band: u32,
    /// What they are for: different uses get independent ones.
    pub(super) purpose: u32,
}

/// One word of each lane.
pub(super) type Words = [u32; LANES];

for_each_level! {
    /// Random words of the pixels from this group on; there are whole groups of them.
    pub(super) fn words(stream: Stream, group: u64, words: &mut [u32]) = fill;
}

#[inline(always)]
fn fill(stream: Stream, group: u64, words: &mut [u32]) {
    for (group, words) in (group..).zip(words.chunks_exact_mut(GROUP)) {
        let four = of_group(stream, group);
        words.copy_from_slice(four.as_flattened());
    }
}

/// The words of a group of pixels.
#[allow(clippy::cast_possible_truncation, reason = "a number is taken apart")]
#[inline(always)]
pub(super) fn of_group(stream: Stream, group: u64) -> [Words; 4] {
    // At most 2^64 pixels: the low half of a group's first counter ends with four zeros, and has no carry.
    let first = group * LANES as u64;
    let mut counter = [
        [first as u32; LANES],
        [(first >> 32) as u32; LANES],
        [stream.band; LANES],
        [stream.purpose; LANES],
    ];
    for (lane, low) in (0..).zip(&mut counter[0]) {
        *low += lane;
    }
    rounds(counter, [stream.seed as u32, (stream.seed >> 32) as u32])
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "both halves of a product are used"
)]
#[inline(always)]
fn rounds(mut counter: [Words; 4], mut key: [u32; 2]) -> [Words; 4] {
    for _ in 0..10 {
        let [a, b, c, d] = &mut counter;
        for lane in 0..LANES {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(a[lane]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(c[lane]);
            a[lane] = (second >> 32) as u32 ^ b[lane] ^ key[0];
            b[lane] = second as u32;
            c[lane] = (first >> 32) as u32 ^ d[lane] ^ key[1];
            d[lane] = first as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the authors' Random123.
    #[test]
    fn known_answers_are_given() {
        let answers = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, wanted) in answers {
            let given = rounds(counter.map(|word| [word; LANES]), key);
            assert_eq!(given, wanted.map(|word| [word; LANES]));
        }
    }
}
