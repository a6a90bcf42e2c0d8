//! Random numbers of the normal distribution, by the method of Box and Muller, and of Laplace's.
//!
//! All is made of additions, multiplications, divisions and square roots, which IEEE 754 rounds in one way,
//! in a fixed order: the libraries of systems differ in the last digits of a logarithm, this does not.

use super::philox::{GROUP, LANES, Stream, Words, of_group};
use crate::for_each_level;

type Floats = [f32; LANES];

for_each_level! {
    /// The bits of normal `f32`s for the pixels from this group on; there are whole groups of them.
    pub(super) fn normals(stream: Stream, group: u64, bits: &mut [u32]) = fill;
}

#[inline(always)]
fn fill(stream: Stream, group: u64, bits: &mut [u32]) {
    for (group, bits) in (group..).zip(bits.chunks_exact_mut(GROUP)) {
        let [a, b, c, d] = of_group(stream, group);
        let [first, second] = pair(&a, &b);
        let [third, fourth] = pair(&c, &d);
        let all = [first, second, third, fourth];
        for (bits, normal) in bits.iter_mut().zip(all.as_flattened()) {
            *bits = normal.to_bits();
        }
    }
}

for_each_level! {
    /// The bits of `f32`s of Laplace's distribution with the mean 0 and the standard deviation 1.
    pub(super) fn laplaces(stream: Stream, group: u64, bits: &mut [u32]) = fill_laplaces;
}

#[inline(always)]
fn fill_laplaces(stream: Stream, group: u64, bits: &mut [u32]) {
    for (group, bits) in (group..).zip(bits.chunks_exact_mut(GROUP)) {
        let words = of_group(stream, group);
        for (bits, word) in bits.iter_mut().zip(words.as_flattened()) {
            let distance = logarithm(unit(*word)) * -std::f32::consts::FRAC_1_SQRT_2;
            // `unit` does not use the lowest bit. Of -0 only the lowest 31 bits are taken.
            *bits = (distance.to_bits() & 0x7fff_ffff) | word << 31;
        }
    }
}

/// Two independent normal numbers of two random words, in each lane.
#[inline(always)]
pub(super) fn pair(radius: &Words, angle: &Words) -> [Floats; 2] {
    let mut pair = [[0.0; LANES]; 2];
    let [first, second] = &mut pair;
    for lane in 0..LANES {
        let radius = (-2.0 * logarithm(unit(radius[lane]))).sqrt();
        let (sine, cosine) = sine_and_cosine(angle[lane]);
        first[lane] = radius * cosine;
        second[lane] = radius * sine;
    }
    pair
}

/// A number above 0, at least 2^-32, and at most 1.
#[allow(clippy::cast_precision_loss, reason = "the nearest one is meant")]
#[inline(always)]
fn unit(word: u32) -> f32 {
    // 31 bits are converted as a signed number, which every instruction set can do.
    (word >> 1).cast_signed() as f32 * (1.0 / 2_147_483_648.0) + 1.0 / 4_294_967_296.0
}

/// The natural logarithm of a normal number from 0 to 1, at most 0. With `s = (m - 1) / (m + 1)`, where `m` is
/// the number between 1 and 2, or between 1/2 and 1, the logarithm of `m` is `2 (s + s^3/3 + s^5/5 + ..)`.
#[allow(clippy::cast_precision_loss, reason = "an exponent is small")]
#[inline(always)]
fn logarithm(value: f32) -> f32 {
    // The fraction is brought between the square roots of 1/2 and 2, so |s| is below 0.1716: the first term
    // left out is 2 s^11 / 11, 7e-10.
    const ROOT_OF_HALF: u32 = 0x3f35_04f3;
    let above = value.to_bits().wrapping_sub(ROOT_OF_HALF).cast_signed();
    let exponent = above >> 23;
    let fraction = f32::from_bits((above & 0x007f_ffff).cast_unsigned() + ROOT_OF_HALF);
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let series = square * (1.0 / 9.0) + 1.0 / 7.0;
    let series = series * square + 1.0 / 5.0;
    let series = series * square + 1.0 / 3.0;
    let series = series * square * s + s;
    exponent as f32 * std::f32::consts::LN_2 + (series + series)
}

/// Of an angle, 2^32 being a whole turn. The top bits are the nearest quarter; the rest is within an eighth
/// of a turn of it, and Taylor's series are cut where the next term is below 3e-8.
#[allow(clippy::cast_precision_loss, reason = "the nearest one is meant")]
#[inline(always)]
fn sine_and_cosine(angle: u32) -> (f32, f32) {
    const STEP: f32 = std::f32::consts::FRAC_PI_2 / 1_073_741_824.0;
    let quarter = angle.wrapping_add(1 << 29) >> 30;
    let x = angle.wrapping_sub(quarter << 30).cast_signed() as f32 * STEP;
    let square = x * x;
    let sine = square * (1.0 / 362_880.0) - 1.0 / 5_040.0;
    let sine = sine * square + 1.0 / 120.0;
    let sine = sine * square - 1.0 / 6.0;
    let sine = sine * square * x + x;
    let cosine = square * (1.0 / 40_320.0) - 1.0 / 720.0;
    let cosine = cosine * square + 1.0 / 24.0;
    let cosine = cosine * square - 0.5;
    let cosine = cosine * square + 1.0;
    let odd = (quarter & 1).wrapping_neg();
    let (a, b) = (sine.to_bits(), cosine.to_bits());
    let (sine, cosine) = ((a & !odd) | (b & odd), (b & !odd) | (a & odd));
    let (below, left) = ((quarter & 2) << 30, (quarter.wrapping_add(1) & 2) << 30);
    (f32::from_bits(sine ^ below), f32::from_bits(cosine ^ left))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words at the ends, and all over the range.
    fn words() -> impl Iterator<Item = u32> {
        let ends = (0..2000).flat_map(|word| [word, u32::MAX - word, (1 << 31) - 1000 + word]);
        ends.chain((0..2_000_000).map(|word: u32| word.wrapping_mul(2_654_435_761)))
    }

    #[test]
    fn logarithms_are_right_to_two_units_of_the_last_place() {
        for word in words() {
            let (value, exact) = (unit(word), f64::from(unit(word)).ln());
            let error = (f64::from(logarithm(value)) - exact).abs();
            assert!(error <= 2.4e-7 * exact.abs() + 6e-8, "{value}: {error}");
            assert!(logarithm(value) <= 0.0, "{value}");
        }
    }

    #[test]
    fn sines_and_cosines_are_right_to_seven_digits() {
        for word in words() {
            let (sine, cosine) = sine_and_cosine(word);
            let angle = f64::from(word) * std::f64::consts::TAU / 4_294_967_296.0;
            for (given, exact) in [(sine, angle.sin()), (cosine, angle.cos())] {
                assert!(
                    (f64::from(given) - exact).abs() < 1.6e-7,
                    "{word}: {given} {exact}"
                );
            }
        }
    }

    #[test]
    fn no_word_gives_what_is_no_number() {
        for word in [0, 1, 2, 1 << 31, u32::MAX - 1, u32::MAX] {
            for normal in pair(&[word; LANES], &[word.rotate_left(7); LANES]).as_flattened() {
                assert!(normal.abs() < 6.7, "{word} {normal}");
            }
        }
    }
}
