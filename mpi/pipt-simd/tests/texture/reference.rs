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
            let features = parameters.features.iter();
            (!matrix.is_empty()).then(|| {
                features
                    .map(|feature| value(*feature, &matrix, parameters))
                    .collect()
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

pub(super) fn value(feature: Feature, counts: &Matrix, parameters: &Parameters) -> f64 {
    let total: f64 = counts.values().sum();
    let matrix: Matrix = counts
        .iter()
        .map(|(pair, count)| (*pair, count / total))
        .collect();
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let terms = matrix
            .iter()
            .map(|((i, j), p)| of(f64::from(*i), f64::from(*j)) * p);
        terms.sum()
    };
    let (mean_i, mean_j) = (sum(&|i, _| i), sum(&|_, j| j));
    let (of_i, of_j) = (gathered(&matrix, |i, _| i), gathered(&matrix, |_, j| j));
    // Whether there is but one level, which the sums below would miss by rounding.
    let flat = of_i.len() < 2 || of_j.len() < 2;
    let otherwise = f64::from(parameters.flat_correlation);
    let (var_i, var_j) = (
        sum(&|i, _| (i - mean_i).powi(2)),
        sum(&|_, j| (j - mean_j).powi(2)),
    );
    let covariance = sum(&|i, j| (i - mean_i) * (j - mean_j));
    let power = |exponent: u32| i32::try_from(exponent).expect("small");
    let mean_d = sum(&|i, j| (i - j).abs());
    match feature {
        Feature::Max => matrix.values().fold(0.0, |a, b| f64::max(a, *b)),
        Feature::Energy => matrix.values().map(|p| p * p).sum(),
        Feature::Contrast { exponent } => sum(&|i, j| (i - j).abs().powi(power(exponent))),
        Feature::InverseDifferenceMoment => sum(&|i, j| 1.0 / (1.0 + (i - j).powi(2))),
        Feature::InverseMoment { exponent } => sum(&|i, j| {
            if i == j {
                0.0
            } else {
                1.0 / (i - j).abs().powi(power(exponent))
            }
        }),
        Feature::Homogeneity => sum(&|i, j| 1.0 / (1.0 + (i - j).abs())),
        Feature::Correlation if flat => otherwise,
        Feature::Correlation => covariance / (var_i * var_j).sqrt(),
        Feature::CorrelationByVariance if flat => otherwise,
        Feature::CorrelationByVariance => covariance / (var_i * var_i),
        Feature::HaralickCorrelation => {
            let levels = f64::from(parameters.levels);
            let mean = 1.0 / levels;
            let margin = (0..parameters.levels).map(|i| of_i.get(&i).copied().unwrap_or(0.0));
            let variance = margin.map(|p| (p - mean).powi(2)).sum::<f64>() / levels;
            if variance < 1e-15 {
                return otherwise;
            }
            (sum(&|i, j| (i - 1.0) * (j - 1.0)) - mean * mean) / variance
        }
        Feature::FirstCorrelation if of_i.len() < 2 => otherwise,
        Feature::FirstCorrelation => sum(&|i, j| (i - mean_i) * (j - mean_i)) / (var_i * var_i),
        Feature::FirstHaralickCorrelation => first_haralick(counts, parameters),
        Feature::FirstCluster { exponent } => {
            sum(&|i, j| ((i - mean_i) + (j - mean_i)).powi(power(exponent)))
        }
        Feature::Cluster { exponent } => {
            sum(&|i, j| (i + j - mean_i - mean_j).powi(power(exponent)))
        }
        Feature::Variance => var_i,
        Feature::SumAverage => sum(&|i, j| i + j),
        Feature::SumVariance => sum(&|i, j| (i + j - mean_i - mean_j).powi(2)),
        Feature::DifferenceVariance => sum(&|i, j| ((i - j).abs() - mean_d).powi(2)),
        Feature::MaximalCorrelation => maximal(&matrix, &of_i, &of_j),
        _ => information(feature, &matrix, (&of_i, &of_j), parameters.logarithm),
    }
}

/// With as many entries in the margin as there are levels. Its counts are compared, which sums would miss by
/// rounding.
fn first_haralick(counts: &Matrix, parameters: &Parameters) -> f64 {
    let total: f64 = counts.values().sum();
    let levels = f64::from(parameters.levels);
    let margin = gathered(counts, |i, _| i);
    let least = margin.values().fold(f64::INFINITY, |a, b| a.min(*b));
    let is_uniform = margin.values().all(|count| *count <= least);
    if is_uniform && margin.len() == parameters.levels as usize {
        return f64::from(parameters.flat_correlation);
    }
    let mean = 1.0 / levels;
    let here = margin.values().map(|count| (count / total - mean).powi(2));
    #[allow(clippy::cast_precision_loss)]
    let absent = levels - margin.len() as f64;
    let variance = (here.sum::<f64>() + absent * mean * mean) / levels;
    let product = |((i, j), count): (&(u32, u32), &f64)| f64::from(*i) * f64::from(*j) * count;
    let products: f64 = counts.iter().map(product).sum();
    (products / total - mean * mean) / variance
}

/// Features that are made of entropies.
fn information(
    feature: Feature,
    matrix: &Matrix,
    (of_i, of_j): (&BTreeMap<u32, f64>, &BTreeMap<u32, f64>),
    logarithm: Logarithm,
) -> f64 {
    let unit = match logarithm {
        Logarithm::Binary => 1.0,
        Logarithm::Natural => std::f64::consts::LN_2,
    };
    let (joint, first, second) = (
        entropy(matrix.values(), unit),
        entropy(of_i.values(), unit),
        entropy(of_j.values(), unit),
    );
    match feature {
        Feature::Entropy => joint,
        Feature::SumEntropy => entropy(gathered(matrix, |i, j| i + j).values(), unit),
        Feature::DifferenceEntropy => entropy(gathered(matrix, u32::abs_diff).values(), unit),
        Feature::InformationMeasure1 if first == 0.0 && second == 0.0 => 0.0,
        Feature::InformationMeasure1 => (joint - first - second) / first.max(second),
        Feature::InformationMeasure2 => (1.0 - (-2.0 * (first + second - joint)).exp())
            .max(0.0)
            .sqrt(),
        other => unreachable!("{other:?} is made of no entropy"),
    }
}

/// Haralick's matrix itself, its largest eigenvector taken away, and the largest that is left by squaring.
fn maximal(matrix: &Matrix, of_i: &BTreeMap<u32, f64>, of_j: &BTreeMap<u32, f64>) -> f64 {
    let levels: Vec<u32> = of_i.keys().copied().collect();
    let size = levels.len();
    let p = |i: u32, j: u32| matrix.get(&(i, j)).copied().unwrap_or(0.0);
    let mut square = vec![vec![0.0; size]; size];
    for a in 0..size {
        for b in 0..size {
            let (i, k) = (levels[a], levels[b]);
            let roots = (of_i[&i] * of_i[&k]).sqrt();
            let sum: f64 = of_j.iter().map(|(j, q)| p(i, *j) * p(k, *j) / q).sum();
            square[a][b] = sum / roots - roots;
        }
    }
    // Powers of the matrix, each scaled to a trace of 1: the eigenvalue is the limit of trace ratios.
    let trace = |m: &[Vec<f64>]| (0..size).map(|a| m[a][a]).sum::<f64>();
    let times = |m: &[Vec<f64>], n: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let entry = |a: usize, b: usize| (0..size).map(|c| m[a][c] * n[c][b]).sum();
        (0..size)
            .map(|a| (0..size).map(|b| entry(a, b)).collect())
            .collect()
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
