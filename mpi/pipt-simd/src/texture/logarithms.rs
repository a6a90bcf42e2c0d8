//! Logarithms as integers, so that sums of them have no order.

/// `c log2 c` of each count, and its growth.
pub(super) struct Logarithms {
    /// `log2 c`, by the same rounding.
    pub of: Vec<f64>,
    /// By how much `c log2 c` grows from `c - 1` to `c`, times `2^fraction`.
    pub growth: Vec<u64>,
    /// Bits after the point: as many as let the largest sum be below 2^53. For windows of 63 that is 32,
    /// and an entropy is wrong by 2^-33 at most.
    pub fraction: u32,
}

impl Logarithms {
    /// Of counts up to `most`.
    #[allow(clippy::cast_possible_truncation, reason = "sums are below 2^53")]
    #[allow(clippy::cast_sign_loss, reason = "counts are at least 1")]
    pub(super) fn new(most: u16) -> Self {
        let largest = u32::from(most).max(2) * 16;
        let fraction = 53 - (u32::BITS - largest.leading_zeros());
        let scale = power_of_two(fraction);
        let weighed = |count: u16| {
            let count = f64::from(count.max(1));
            (count * count.log2() * scale).round()
        };
        let growth = |count: u16| (weighed(count) - weighed(count.saturating_sub(1))) as u64;
        // In the order in which features divide sums: so a single bin's entropy is 0.
        let of = |count: u16| weighed(count) * (1.0 / scale) * (1.0 / f64::from(count.max(1)));
        Self {
            of: (0..=most).map(of).collect(),
            growth: (0..=most).map(growth).collect(),
            fraction,
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
