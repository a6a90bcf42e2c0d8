//! Features as their definitions say, matrix by matrix.

use std::collections::BTreeMap;

use super::*;

/// An image in memory, with what lies around it: levels, and where they are valid.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub width: usize,
    pub levels: Vec<u32>,
    pub valid: Option<Vec<bool>>,
}

type Matrix = BTreeMap<(u32, u32), f64>;

impl Picture {
    fn at(&self, x: i64, y: i64) -> Option<u32> {
        let place =
            usize::try_from(y).expect("inside") * self.width + usize::try_from(x).expect("inside");
        let valid = self.valid.as_ref().is_none_or(|valid| valid[place]);
        valid.then_some(self.levels[place])
    }

    /// Counts of the pairs of the window around a pixel.
    fn counts(&self, parameters: &Parameters, offsets: &[Offset], x: usize, y: usize) -> Matrix {
        let half = i64::try_from(parameters.window / 2).expect("small");
        let (x, y) = (
            i64::try_from(x).expect("small"),
            i64::try_from(y).expect("small"),
        );
        let mut matrix = Matrix::new();
        for offset in offsets {
            for b in y - half..=y + half {
                for a in x - half..=x + half {
                    let (c, d) = (a + i64::from(offset.dx), b + i64::from(offset.dy));
                    let inside = (c - x).abs() <= half && (d - y).abs() <= half;
                    if parameters.pairs == Pairs::Inside && !inside {
                        continue;
                    }
                    if let (Some(first), Some(second)) = (self.at(a, b), self.at(c, d)) {
                        *matrix.entry((first, second)).or_default() += 1.0;
                        if parameters.symmetric {
                            *matrix.entry((second, first)).or_default() += 1.0;
                        }
                    }
                }
            }
        }
        matrix
    }

    /// Every output of a pixel.
    pub(super) fn pixel(&self, parameters: &Parameters, x: usize, y: usize) -> Vec<f64> {
        let of = |offsets: &[Offset]| -> Option<Vec<f64>> {
            let matrix = self.counts(parameters, offsets, x, y);
            (!matrix.is_empty()).then(|| {
                let all = Probabilities::new(&matrix, parameters);
                let features = parameters.features.iter();
                features.map(|feature| all.value(*feature)).collect()
            })
        };
        let none = || vec![f64::NAN; parameters.features.len()];
        let each = parameters.offsets.iter().map(|offset| of(&[*offset]));
        match parameters.combine {
            Combine::Separate => each
                .flat_map(|values| values.unwrap_or_else(none))
                .collect(),
            Combine::Sum => of(&parameters.offsets).unwrap_or_else(none),
            Combine::Mean => {
                let each: Vec<Vec<f64>> = each.flatten().collect();
                let mean = |slot: usize| {
                    let sum: f64 = each.iter().map(|values| values[slot]).sum();
                    #[allow(clippy::cast_precision_loss)]
                    let count = each.len() as f64;
                    sum / count
                };
                (0..parameters.features.len()).map(mean).collect()
            }
        }
    }
}

fn entropy<'a>(all: impl Iterator<Item = &'a f64>, unit: f64) -> f64 {
    -all.map(|p| p * p.log2() * unit).sum::<f64>()
}

fn gathered(matrix: &Matrix, of: impl Fn(u32, u32) -> u32) -> BTreeMap<u32, f64> {
    let mut all = BTreeMap::new();
    for ((i, j), p) in matrix {
        *all.entry(of(*i, *j)).or_default() += p;
    }
    all
}

/// A matrix of probabilities, and what more than one feature asks of it.
struct Probabilities<'a> {
    parameters: &'a Parameters,
    counts: &'a Matrix,
    matrix: Matrix,
    of_i: BTreeMap<u32, f64>,
    of_j: BTreeMap<u32, f64>,
    mean_i: f64,
    mean_j: f64,
    var_i: f64,
    var_j: f64,
}

impl<'a> Probabilities<'a> {
    fn new(counts: &'a Matrix, parameters: &'a Parameters) -> Self {
        let total: f64 = counts.values().sum();
        let matrix = counts.iter().map(|(pair, count)| (*pair, count / total));
        let matrix: Matrix = matrix.collect();
        let mut all = Self {
            parameters,
            counts,
            of_i: gathered(&matrix, |i, _| i),
            of_j: gathered(&matrix, |_, j| j),
            matrix,
            mean_i: 0.0,
            mean_j: 0.0,
            var_i: 0.0,
            var_j: 0.0,
        };
        (all.mean_i, all.mean_j) = (all.sum(|i, _| i), all.sum(|_, j| j));
        all.var_i = all.sum(|i, _| (i - all.mean_i).powi(2));
        all.var_j = all.sum(|_, j| (j - all.mean_j).powi(2));
        all
    }

    /// What is expected of a pair of levels.
    fn sum(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let matrix = self.matrix.iter();
        let terms = matrix.map(|((i, j), p)| of(f64::from(*i), f64::from(*j)) * p);
        terms.sum()
    }

    fn value(&self, feature: Feature) -> f64 {
        let power = |exponent: u32| i32::try_from(exponent).expect("small");
        match feature {
            Feature::Max => self.matrix.values().fold(0.0, |a, b| f64::max(a, *b)),
            Feature::Energy => self.matrix.values().map(|p| p * p).sum(),
            Feature::Contrast { exponent } => self.sum(|i, j| (i - j).abs().powi(power(exponent))),
            Feature::InverseDifferenceMoment => self.sum(|i, j| 1.0 / (1.0 + (i - j).powi(2))),
            Feature::InverseMoment { exponent } => self.sum(|i, j| {
                if i == j {
                    0.0
                } else {
                    1.0 / (i - j).abs().powi(power(exponent))
                }
            }),
            Feature::Homogeneity => self.sum(|i, j| 1.0 / (1.0 + (i - j).abs())),
            Feature::FirstCluster { exponent } => {
                self.sum(|i, j| ((i - self.mean_i) + (j - self.mean_i)).powi(power(exponent)))
            }
            Feature::Cluster { exponent } => {
                self.sum(|i, j| (i + j - self.mean_i - self.mean_j).powi(power(exponent)))
            }
            Feature::Variance => self.var_i,
            Feature::SumAverage => self.sum(|i, j| i + j),
            Feature::SumVariance => self.sum(|i, j| (i + j - self.mean_i - self.mean_j).powi(2)),
            Feature::DifferenceVariance => {
                let mean = self.sum(|i, j| (i - j).abs());
                self.sum(|i, j| ((i - j).abs() - mean).powi(2))
            }
            Feature::MaximalCorrelation => maximal(&self.matrix, &self.of_i, &self.of_j),
            Feature::Correlation
            | Feature::CorrelationByVariance
            | Feature::HaralickCorrelation
            | Feature::FirstCorrelation
            | Feature::FirstHaralickCorrelation => self.correlation(feature),
            _ => self.information(feature),
        }
    }

    fn correlation(&self, feature: Feature) -> f64 {
        // Whether there is but one level, which the sums below would miss by rounding.
        let flat = self.of_i.len() < 2 || self.of_j.len() < 2;
        let otherwise = f64::from(self.parameters.flat_correlation);
        let covariance = || self.sum(|i, j| (i - self.mean_i) * (j - self.mean_j));
        match feature {
            Feature::Correlation if flat => otherwise,
            Feature::Correlation => covariance() / (self.var_i * self.var_j).sqrt(),
            Feature::CorrelationByVariance if flat => otherwise,
            Feature::CorrelationByVariance => covariance() / (self.var_i * self.var_i),
            Feature::FirstCorrelation if self.of_i.len() < 2 => otherwise,
            Feature::FirstCorrelation => {
                self.sum(|i, j| (i - self.mean_i) * (j - self.mean_i)) / (self.var_i * self.var_i)
            }
            Feature::HaralickCorrelation => {
                let levels = f64::from(self.parameters.levels);
                let mean = 1.0 / levels;
                let margin = 0..self.parameters.levels;
                let margin = margin.map(|i| self.of_i.get(&i).copied().unwrap_or(0.0));
                let variance = margin.map(|p| (p - mean).powi(2)).sum::<f64>() / levels;
                if variance < 1e-15 {
                    return otherwise;
                }
                (self.sum(|i, j| (i - 1.0) * (j - 1.0)) - mean * mean) / variance
            }
            Feature::FirstHaralickCorrelation => self.first_haralick(),
            other => unreachable!("{other:?} is no correlation"),
        }
    }

    /// With as many entries in the margin as there are levels. Its counts are compared, which sums would miss by
    /// rounding.
    fn first_haralick(&self) -> f64 {
        let total: f64 = self.counts.values().sum();
        let levels = f64::from(self.parameters.levels);
        let margin = gathered(self.counts, |i, _| i);
        let least = margin.values().fold(f64::INFINITY, |a, b| a.min(*b));
        let is_uniform = margin.values().all(|count| *count <= least);
        if is_uniform && margin.len() == self.parameters.levels as usize {
            return f64::from(self.parameters.flat_correlation);
        }
        let mean = 1.0 / levels;
        let here = margin.values().map(|count| (count / total - mean).powi(2));
        #[allow(clippy::cast_precision_loss)]
        let absent = levels - margin.len() as f64;
        let variance = (here.sum::<f64>() + absent * mean * mean) / levels;
        let product = |((i, j), count): (&(u32, u32), &f64)| f64::from(*i) * f64::from(*j) * count;
        let products: f64 = self.counts.iter().map(product).sum();
        (products / total - mean * mean) / variance
    }

    /// Features that are made of entropies.
    fn information(&self, feature: Feature) -> f64 {
        let unit = match self.parameters.logarithm {
            Logarithm::Binary => 1.0,
            Logarithm::Natural => std::f64::consts::LN_2,
        };
        let gathered = |of: fn(u32, u32) -> u32| entropy(gathered(&self.matrix, of).values(), unit);
        let joint = entropy(self.matrix.values(), unit);
        let margins = [&self.of_i, &self.of_j].map(|margin| entropy(margin.values(), unit));
        let [first, second] = margins;
        match feature {
            Feature::Entropy => joint,
            Feature::SumEntropy => gathered(|i, j| i + j),
            Feature::DifferenceEntropy => gathered(u32::abs_diff),
            Feature::InformationMeasure1 if first == 0.0 && second == 0.0 => 0.0,
            Feature::InformationMeasure1 => (joint - first - second) / first.max(second),
            Feature::InformationMeasure2 => (1.0 - (-2.0 * (first + second - joint)).exp())
                .max(0.0)
                .sqrt(),
            other => unreachable!("{other:?} is made of no entropy"),
        }
    }
}

/// Haralick's matrix itself, its largest eigenvector taken away, and the largest that is left by squaring.
fn maximal(matrix: &Matrix, of_i: &BTreeMap<u32, f64>, of_j: &BTreeMap<u32, f64>) -> f64 {
    let levels: Vec<u32> = of_i.keys().copied().collect();
    let size = levels.len();
    let p = |i: u32, j: u32| matrix.get(&(i, j)).copied().unwrap_or(0.0);
    let row = |i: &u32| -> Vec<f64> { of_j.keys().map(|j| p(*i, *j)).collect() };
    let rows: Vec<Vec<f64>> = levels.iter().map(row).collect();
    let mut square = vec![vec![0.0; size]; size];
    for a in 0..size {
        for b in 0..size {
            let roots = (of_i[&levels[a]] * of_i[&levels[b]]).sqrt();
            let terms = rows[a].iter().zip(&rows[b]).zip(of_j.values());
            let sum: f64 = terms.map(|((p, other), q)| p * other / q).sum();
            square[a][b] = sum / roots - roots;
        }
    }
    // Powers of the matrix, each scaled to a trace of 1: the eigenvalue is the limit of trace ratios.
    let trace = |m: &[Vec<f64>]| (0..size).map(|a| m[a][a]).sum::<f64>();
    // Row by row, which is quicker by much than entry by entry.
    let times = |m: &[Vec<f64>], n: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let row = |factors: &Vec<f64>| {
            let mut row = vec![0.0; size];
            for (factor, other) in factors.iter().zip(n) {
                let entries = row.iter_mut().zip(other);
                entries.for_each(|(entry, other)| *entry += factor * other);
            }
            row
        };
        m.iter().map(row).collect()
    };
    let mut high = square.clone();
    for _ in 0..14 {
        let scale = trace(&high);
        if scale < 1e-13 {
            return 0.0;
        }
        for row in &mut high {
            row.iter_mut().for_each(|entry| *entry /= scale);
        }
        high = times(&high, &high);
    }
    (trace(&times(&high, &square)) / trace(&high))
        .max(0.0)
        .sqrt()
}
