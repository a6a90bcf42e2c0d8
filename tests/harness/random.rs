//! Chance that can be repeated: everything random in a test comes from its seed.

/// A generator (splitmix64); equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw().checked_rem(bound).unwrap_or(0)
    }

    /// One of these, or nothing if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(u64::try_from(from.len()).unwrap_or(u64::MAX));
        from.get(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_seed_repeats_and_bounds_hold() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let value = one.below(10);
            assert!(value < 10);
            assert_eq!(value, two.below(10));
        }
        assert_eq!(one.below(0), 0);
        assert_eq!(one.pick::<u8>(&[]), None);
    }
}
