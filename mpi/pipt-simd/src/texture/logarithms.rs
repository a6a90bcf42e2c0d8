//! Logarithms as integers, so that sums of them have no order.

/// `c log2 c` of each count, and its growth.
pub(super) struct Logarithms {
    /// `log2 c`, by the same rounding.
    pub of: Vec<f64>,
    /// By how much `c log2 c` grows from `c - 1` to `c`, times `2^fraction`.
    pub growth: Vec<u64>,
    /// Bits after the point.
    pub fraction: u32,
    /// The three bytes of `log2 c` of each count that is one byte.
    pub bytes: [[u8; 256]; 3],
    /// The same of small counts, whole.
    pub few: [u32; FEW],
    /// The bytes of `c log2 c` of the same counts.
    pub weighed: Vec<[u8; 256]>,
    /// The same as integers, of [`Precision::Bytes`].
    pub whole: Vec<u32>,
}

/// How many counts are small.
pub(super) const FEW: usize = 32;

/// How many bits logarithms have after the point. It is a plan's, so that all instruction sets give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// As many as let the largest sum be below 2^53. For windows of 63 that is 32, and an entropy is wrong by
    /// 2^-33 at most.
    Most,
    /// As many as let logarithms of small counts be three bytes, and their products with counts four. An
    /// entropy is wrong by 2^-22 at most.
    Bytes,
    /// As many as let these products be six bytes, for differences of entropies.
    Fine,
}

/// Bits after the point of logarithms of three bytes: `log2 255` is below 8.
const BYTES_FRACTION: u32 = 21;

/// Bits after the point of products of six bytes: `255 log2 255` is below 2^11.
const FINE_FRACTION: u32 = 37;

impl Logarithms {
    /// Of counts up to `most`.
    pub(super) fn new(most: u16, precision: Precision) -> Self {
        let largest = u32::from(most).max(2) * 16;
        let fraction = match precision {
            Precision::Most => 53 - (u32::BITS - largest.leading_zeros()),
            Precision::Bytes => BYTES_FRACTION,
            Precision::Fine => FINE_FRACTION,
        };
        let scale = power_of_two(fraction);
        let weighed = |count: u16| {
            let real = f64::from(count.max(1));
            if precision == Precision::Bytes {
                real * logarithm(count)
            } else {
                (real * real.log2() * scale).round()
            }
        };
        #[allow(clippy::cast_possible_truncation, reason = "sums are below 2^53")]
        #[allow(clippy::cast_sign_loss, reason = "counts are at least 1")]
        let growth = |count: u16| (weighed(count) - weighed(count.saturating_sub(1))) as u64;
        // In the order in which features divide sums: so a single bin's entropy is 0.
        let of = |count: u16| weighed(count) * (1.0 / scale) * (1.0 / f64::from(count.max(1)));
        let weighed_bytes = match precision {
            Precision::Most => Vec::new(),
            Precision::Bytes => byte_tables::<4>(weighed).to_vec(),
            Precision::Fine => byte_tables::<6>(weighed).to_vec(),
        };
        let whole = |count: usize| {
            let mut bytes = [0; 4];
            let tables = bytes.iter_mut().zip(&weighed_bytes);
            tables.for_each(|(byte, table)| *byte = table[count]);
            u32::from_le_bytes(bytes)
        };
        let bytes: [_; 3] = byte_tables(logarithm);
        let few = |count: usize| {
            let [low, middle, high] = bytes.each_ref().map(|table| table[count]);
            u32::from_le_bytes([low, middle, high, 0])
        };
        Self {
            few: std::array::from_fn(few),
            whole: (0..256).map(whole).collect(),
            of: (0..=most).map(of).collect(),
            growth: (0..=most).map(growth).collect(),
            fraction,
            bytes,
            weighed: weighed_bytes,
        }
    }

    /// What a sum of growths is multiplied by to have bits.
    pub(super) fn unit(&self) -> f64 {
        1.0 / power_of_two(self.fraction)
    }
}

fn power_of_two(exponent: u32) -> f64 {
    f64::from_bits(u64::from(1023 + exponent) << 52)
}

/// `log2 c` times `2^BYTES_FRACTION`, an integer.
fn logarithm(count: u16) -> f64 {
    (f64::from(count.max(1)).log2() * power_of_two(BYTES_FRACTION)).round()
}

/// The bytes of integers of each count that is one byte.
#[allow(
    clippy::cast_possible_truncation,
    reason = "255 log2 255 is below 2^11"
)]
#[allow(clippy::cast_sign_loss, reason = "and not negative")]
fn byte_tables<const BYTES: usize>(of: impl Fn(u16) -> f64) -> [[u8; 256]; BYTES] {
    let mut tables = [[0; 256]; BYTES];
    for count in 0..=u8::MAX {
        let bytes = (of(count.into()) as u64).to_le_bytes();
        for (table, byte) in tables.iter_mut().zip(bytes) {
            table[usize::from(count)] = byte;
        }
    }
    tables
}
