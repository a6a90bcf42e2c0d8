//! Mean and deviation of samples.

use pipt_raster::{Sample, Samples, each};
use serde::{Deserialize, Serialize};

/// How many samples there are, their mean, and the sum of the squares of their distances from it.
///
/// Parts are joined by the formula of T. Chan, G. Golub and R. LeVeque, "Updating Formulae and a Pairwise Algorithm for
/// Computing Sample Variances", 1979. The result depends on the order in which it is done in its last digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    pub count: u64,
    pub mean: f64,
    pub squares: f64,
}

impl Moments {
    /// Of samples of which `there` says whether they count; NaN never does.
    #[must_use]
    pub fn of(samples: &Samples, there: Option<&[bool]>) -> Self {
        each!(samples, values => {
            let all = || super::counted(values, there).map(Sample::to_f64);
            let (mut count, mut sum) = (0, 0.0);
            for value in all() {
                count += 1;
                sum += value;
            }
            let mean = if count == 0 { 0.0 } else { sum / real(count) };
            let squares = all().map(|value| (value - mean) * (value - mean)).sum();
            Self { count, mean, squares }
        })
    }

    /// Takes up others.
    pub fn join(&mut self, other: &Self) {
        let count = self.count + other.count;
        if other.count == 0 {
            return;
        }
        let (apart, part) = (other.mean - self.mean, real(other.count) / real(count));
        self.mean += apart * part;
        self.squares += other.squares + apart * apart * real(self.count) * part;
        self.count = count;
    }

    /// The standard deviation of all of them, not an estimate for more than these.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (self.squares / real(self.count)).sqrt()
    }
}

#[allow(clippy::cast_precision_loss, reason = "pixels are fewer than 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_moments_of_the_whole() {
        let numbers: Vec<f64> = (0..1000).map(|n| f64::from(n * n % 977) - 300.0).collect();
        let whole = Moments::of(&numbers.clone().into(), None);
        let mut joined = Moments::default();
        for part in numbers.chunks(37) {
            joined.join(&Moments::of(&part.to_vec().into(), None));
        }
        joined.join(&Moments::default());
        assert_eq!(joined.count, whole.count);
        assert!((joined.mean - whole.mean).abs() < 1e-9);
        assert!((joined.deviation() - whole.deviation()).abs() < 1e-9);
        let two = Moments::of(&vec![1_u8, 3, 99].into(), Some(&[true, true, false]));
        assert_eq!((two.count, two.mean, two.deviation()), (2, 2.0, 1.0));
    }
}
