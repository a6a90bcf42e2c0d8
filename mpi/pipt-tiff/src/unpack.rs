//! From the bytes of a decoded chunk to samples.

use pipt_raster::Samples;

use crate::directory::Order;
use crate::layout::{Complex, Layout, Predictor, Stored};

/// Makes samples of the bytes of a chunk, which are as many as its rows need. The bands that a chunk holds
/// stay one beside the other.
pub(crate) fn samples(layout: &Layout, bytes: Vec<u8>) -> Samples {
    let columns = layout.chunk.width as usize;
    let bands = layout.bands_of_chunk() as usize;
    let row = columns * bands;
    match layout.stored {
        Stored::Unsigned(bits) => unsigned(layout, bytes, bits, row, bands),
        Stored::Signed(bits) => signed(unsigned(layout, bytes, bits, row, bands), bits),
        Stored::Float(bits) => floats(layout, bytes, bits, row, bands),
        Stored::Complex(bits, part) => {
            let bits = bits / 2;
            complex(float_words(&bytes, bits, layout.order), part)
        }
        Stored::ComplexInteger(bits, part) => {
            let words = unsigned(layout, bytes, bits / 2, 2 * row, 2 * bands);
            complex(integers(signed(words, bits / 2)), part)
        }
    }
}

macro_rules! words {
    ($name:ident $type:ident $bytes:literal) => {
        fn $name(bytes: &[u8], order: Order) -> Vec<$type> {
            let words = bytes.as_chunks::<$bytes>().0.iter();
            match order {
                Order::Little => words.map(|word| $type::from_le_bytes(*word)).collect(),
                Order::Big => words.map(|word| $type::from_be_bytes(*word)).collect(),
            }
        }
    };
}

words!(words16 u16 2);
words!(words32 u32 4);
words!(words64 u64 8);

/// Undoes differences: adds to each number of a row the one before it in its band.
macro_rules! summed {
    ($words:expr, $row:expr, $bands:expr) => {{
        let mut words = $words;
        for row in words.chunks_mut($row.max(1)) {
            if $bands == 1 {
                let mut sum = 0;
                for word in row {
                    sum = word.wrapping_add(sum);
                    *word = sum;
                }
                continue;
            }
            for at in $bands..row.len() {
                row[at] = row[at].wrapping_add(row[at - $bands]);
            }
        }
        words
    }};
}

fn unsigned(layout: &Layout, bytes: Vec<u8>, bits: u32, row: usize, bands: usize) -> Samples {
    let sum = layout.predictor == Predictor::Horizontal;
    let order = layout.order;
    match (bits, sum) {
        (8, false) => bytes.into(),
        (8, true) => summed!(bytes, row, bands).into(),
        (16, false) => words16(&bytes, order).into(),
        (16, true) => summed!(words16(&bytes, order), row, bands).into(),
        (32, false) => words32(&bytes, order).into(),
        (32, true) => summed!(words32(&bytes, order), row, bands).into(),
        (64, false) => words64(&bytes, order).into(),
        (64, true) => summed!(words64(&bytes, order), row, bands).into(),
        _ => packed(&bytes, bits, row),
    }
}

/// Samples of other widths lie in a row without gaps, the highest bit first in both orders of bytes.
fn packed(bytes: &[u8], bits: u32, row: usize) -> Samples {
    let row_bytes = (row * bits as usize).div_ceil(8).max(1);
    macro_rules! widened {
        ($type:ident) => {{
            let mut out: Vec<$type> = Vec::with_capacity(bytes.len() / row_bytes * row);
            for bytes in bytes.chunks_exact(row_bytes) {
                let mut bytes = bytes.iter();
                let (mut held, mut have) = (0_u128, 0_u32);
                for _ in 0..row {
                    while have < bits {
                        held = held << 8 | u128::from(bytes.next().copied().unwrap_or(0));
                        have += 8;
                    }
                    have -= bits;
                    let value = held >> have & ((1 << bits) - 1);
                    out.push($type::try_from(value).unwrap_or($type::MAX));
                }
            }
            out.into()
        }};
    }
    match bits {
        1 => bits_of::<1>(bytes, row, row_bytes),
        2 => bits_of::<2>(bytes, row, row_bytes),
        4 => bits_of::<4>(bytes, row, row_bytes),
        0..=8 => widened!(u8),
        9..=16 => widened!(u16),
        17..=32 => widened!(u32),
        _ => widened!(u64),
    }
}

/// The common widths below a byte.
fn bits_of<const BITS: u32>(bytes: &[u8], row: usize, row_bytes: usize) -> Samples {
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len() / row_bytes * row);
    for bytes in bytes.chunks_exact(row_bytes) {
        let values = bytes.iter().flat_map(|byte| {
            let values = (0..8 / BITS).rev();
            values.map(move |at| byte >> (at * BITS) & ((1 << BITS) - 1))
        });
        out.extend(values.take(row));
    }
    out.into()
}

/// Gives integers their sign, which is the highest of their bits.
fn signed(words: Samples, bits: u32) -> Samples {
    macro_rules! turned {
        ($values:expr, $type:ident) => {{
            let away = $type::BITS.saturating_sub(bits);
            let signed = |value: $type| (value << away).cast_signed() >> away;
            $values.into_iter().map(signed).collect::<Vec<_>>().into()
        }};
    }
    match words {
        Samples::U8(values) => turned!(values, u8),
        Samples::U16(values) => turned!(values, u16),
        Samples::U32(values) => turned!(values, u32),
        Samples::U64(values) => turned!(values, u64),
        other => other,
    }
}

fn floats(layout: &Layout, bytes: Vec<u8>, bits: u32, row: usize, bands: usize) -> Samples {
    match layout.predictor {
        Predictor::None => float_words(&bytes, bits, layout.order),
        Predictor::Horizontal => match unsigned(layout, bytes, bits, row, bands) {
            Samples::U16(words) => half_words(&words),
            Samples::U32(words) => words
                .into_iter()
                .map(f32::from_bits)
                .collect::<Vec<_>>()
                .into(),
            Samples::U64(words) => words
                .into_iter()
                .map(f64::from_bits)
                .collect::<Vec<_>>()
                .into(),
            other => other,
        },
        Predictor::Float => {
            let bytes = summed!(bytes, (row * bits as usize / 8), bands);
            match bits {
                16 => half_words(&unsorted(&bytes, row, u16::from_be_bytes)),
                32 => unsorted(&bytes, row, f32::from_be_bytes).into(),
                _ => unsorted(&bytes, row, f64::from_be_bytes).into(),
            }
        }
    }
}

/// The floats of rows of bytes that are sorted by their weight, the highest first, in both orders of bytes
/// (Adobe Photoshop TIFF Technical Note 3).
fn unsorted<T, const WIDTH: usize>(
    bytes: &[u8],
    row: usize,
    word: impl Fn([u8; WIDTH]) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(bytes.len() / WIDTH);
    for bytes in bytes.chunks_exact((row * WIDTH).max(1)) {
        let planes: [&[u8]; WIDTH] =
            std::array::from_fn(|weight| &bytes[weight * row..(weight + 1) * row]);
        let float = |at: usize| word(std::array::from_fn(|weight| planes[weight][at]));
        out.extend((0..row).map(float));
    }
    out
}

fn float_words(bytes: &[u8], bits: u32, order: Order) -> Samples {
    match bits {
        16 => half_words(&words16(bytes, order)),
        24 => {
            let words = bytes.as_chunks::<3>().0.iter();
            let number = |[a, b, c]: &[u8; 3]| match order {
                Order::Little => u32::from_le_bytes([*a, *b, *c, 0]),
                Order::Big => u32::from_be_bytes([0, *a, *b, *c]),
            };
            words
                .map(|word| widened(number(word), 7, 16))
                .collect::<Vec<_>>()
                .into()
        }
        32 => {
            let words = words32(bytes, order).into_iter();
            words.map(f32::from_bits).collect::<Vec<_>>().into()
        }
        _ => {
            let words = words64(bytes, order).into_iter();
            words.map(f64::from_bits).collect::<Vec<_>>().into()
        }
    }
}

fn half_words(words: &[u16]) -> Samples {
    let words = words.iter().map(|word| widened(u32::from(*word), 5, 10));
    words.collect::<Vec<_>>().into()
}

/// A narrow float of a sign and so many bits of exponent and fraction, as IEEE 754 has them, in 32 bits.
fn widened(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f32 {
    let sign = bits >> (exponent_bits + fraction_bits) << 31;
    let highest = (1 << exponent_bits) - 1;
    let exponent = bits >> fraction_bits & highest;
    let fraction = bits & ((1 << fraction_bits) - 1);
    let bias = highest / 2;
    let wide = fraction << (23 - fraction_bits);
    let magnitude = match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => {
            // Below the normal ones; in 32 bits it is a normal one.
            let shift = fraction.leading_zeros() + fraction_bits - 31;
            let exponent = 127 + 1 - bias - shift;
            exponent << 23 | (wide << shift & 0x7f_ffff)
        }
        (exponent, _) if exponent == highest => 0xff << 23 | wide,
        (exponent, _) => (exponent + 127 - bias) << 23 | wide,
    };
    f32::from_bits(sign | magnitude)
}

/// Integers as floats: exactly, since they are of 32 bits at most, and those above 16 become 64 wide.
fn integers(samples: Samples) -> Samples {
    match samples {
        Samples::I8(values) => values.into_iter().map(f32::from).collect::<Vec<_>>().into(),
        Samples::I16(values) => values.into_iter().map(f32::from).collect::<Vec<_>>().into(),
        Samples::I32(values) => values.into_iter().map(f64::from).collect::<Vec<_>>().into(),
        other => other,
    }
}

/// One number of each pair.
fn complex(pairs: Samples, part: Complex) -> Samples {
    macro_rules! part {
        ($values:expr) => {{
            let pairs = $values.as_chunks::<2>().0.iter();
            let of = pairs.map(|[real, imaginary]| match part {
                Complex::Real | Complex::Refuse => *real,
                Complex::Imaginary => *imaginary,
                Complex::Magnitude => real.hypot(*imaginary),
            });
            of.collect::<Vec<_>>().into()
        }};
    }
    match pairs {
        Samples::F32(values) => part!(values),
        Samples::F64(values) => part!(values),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_are_widened_exactly() {
        let half = |bits| widened(bits, 5, 10);
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(0x7bff), 65504.0);
        assert_eq!(half(0x0001), 2.0_f32.powi(-24));
        assert_eq!(half(0x03ff), 2.0_f32.powi(-14) - 2.0_f32.powi(-24));
        assert!(half(0x8000).to_bits() == (-0.0_f32).to_bits());
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
        assert_eq!(widened(0x3f_0000, 7, 16), 1.0);
        assert_eq!(widened(1, 7, 16), 2.0_f32.powi(-78));
    }

    #[test]
    fn samples_of_odd_widths_are_found() {
        assert_eq!(
            packed(&[0b1010_0000, 0xff], 3, 2),
            Samples::U8(vec![5, 0, 7, 7])
        );
        assert_eq!(
            packed(&[0xab, 0xcd, 0xef], 12, 2),
            Samples::U16(vec![0xabc, 0xdef])
        );
        assert_eq!(packed(&[0b1100_0000], 1, 3), Samples::U8(vec![1, 1, 0]));
        assert_eq!(packed(&[1, 2, 3], 24, 1), Samples::U32(vec![0x01_0203]));
        let minus = signed(packed(&[0b1110_1000], 4, 2), 4);
        assert_eq!(minus, Samples::I8(vec![-2, -8]));
    }
}
