//! Haralick's maximal correlation coefficient.
//!
//! With `B = P(i, j) / sqrt(p(i) q(j))` of the matrix `P` and its margins `p` and `q`, the matrix of
//! Haralick's definition has the same eigenvalues as `B B'`. The largest is 1, and what is wanted is the root
//! of the second. `B B'` is made tridiagonal by Householder's reflections, and its second eigenvalue is found
//! by bisection with Sturm's count of sign changes (Golub and Van Loan, Matrix Computations, 8.3 and 8.4).

use super::image::{Geometry, Grey, Grid};

/// Scratch for one window.
#[derive(Default)]
pub(super) struct Maximal {
    pairs: Vec<(u32, u32)>,
    firsts: Vec<u32>,
    seconds: Vec<u32>,
}

impl Maximal {
    /// A row of windows.
    pub(super) fn run<L: Grey>(
        &mut self,
        grid: &Grid<'_, L>,
        geometry: &[Geometry],
        y: usize,
        symmetric: bool,
        to: &mut [f64],
    ) {
        let width = to.len();
        for (x, to) in to.iter_mut().enumerate() {
            self.pairs.clear();
            for of in geometry {
                for row in y..y + of.rows {
                    let row = of.row(grid, row, width);
                    for at in x..x + of.columns {
                        let valid = row.valid.is_none_or(|(a, b)| a[at] != 0 && b[at] != 0);
                        if valid {
                            let pair = (row.first[at].into(), row.second[at].into());
                            self.pairs.push(pair);
                            if symmetric {
                                self.pairs.push((pair.1, pair.0));
                            }
                        }
                    }
                }
            }
            *to = self.coefficient();
        }
    }

    fn coefficient(&mut self) -> f64 {
        let distinct = |levels: &mut Vec<u32>, of: &mut dyn Iterator<Item = u32>| {
            levels.clear();
            levels.extend(of);
            levels.sort_unstable();
            levels.dedup();
        };
        distinct(&mut self.firsts, &mut self.pairs.iter().map(|pair| pair.0));
        distinct(&mut self.seconds, &mut self.pairs.iter().map(|pair| pair.1));
        let (rows, columns) = (self.firsts.len(), self.seconds.len());
        if rows < 2 || columns < 2 {
            return 0.0;
        }
        let mut matrix = vec![0.0; rows * columns];
        let (mut of_row, mut of_column) = (vec![0.0; rows], vec![0.0; columns]);
        for (first, second) in &self.pairs {
            let row = self.firsts.partition_point(|level| level < first);
            let column = self.seconds.partition_point(|level| level < second);
            matrix[row * columns + column] += 1.0;
            of_row[row] += 1.0;
            of_column[column] += 1.0;
        }
        for row in 0..rows {
            for column in 0..columns {
                let margins: f64 = of_row[row] * of_column[column];
                matrix[row * columns + column] /= margins.sqrt();
            }
        }
        let mut square = vec![0.0; rows * rows];
        for a in 0..rows {
            for b in 0..rows {
                let (a_row, b_row) = (
                    &matrix[a * columns..(a + 1) * columns],
                    &matrix[b * columns..(b + 1) * columns],
                );
                square[a * rows + b] = a_row.iter().zip(b_row).map(|(a, b)| a * b).sum();
            }
        }
        let (diagonal, beside) = tridiagonal(&mut square, rows);
        second_largest(&diagonal, &beside).max(0.0).sqrt()
    }
}

/// The diagonal and the one beside it of a tridiagonal matrix with the eigenvalues of a symmetric one.
fn tridiagonal(matrix: &mut [f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut beside = vec![0.0; size - 1];
    for step in 0..size.saturating_sub(2) {
        let below = step + 1..size;
        let norm = below
            .clone()
            .map(|row| matrix[row * size + step].powi(2))
            .sum::<f64>()
            .sqrt();
        if norm == 0.0 {
            continue;
        }
        let first = matrix[(step + 1) * size + step];
        let reflected = if first > 0.0 { -norm } else { norm };
        beside[step] = reflected;
        let mut vector: Vec<f64> = below.clone().map(|row| matrix[row * size + step]).collect();
        vector[0] -= reflected;
        let length = vector.iter().map(|value| value * value).sum::<f64>();
        if length == 0.0 {
            continue;
        }
        // A' = A - v w' - w v' with p = 2 A v / v'v and w = p - (p'v / v'v) v.
        let product = |row: usize| {
            let row = &matrix[row * size + step + 1..(row + 1) * size];
            2.0 / length * row.iter().zip(&vector).map(|(a, b)| a * b).sum::<f64>()
        };
        let mut other: Vec<f64> = below.clone().map(product).collect();
        let share = other.iter().zip(&vector).map(|(a, b)| a * b).sum::<f64>() / length;
        for (other, value) in other.iter_mut().zip(&vector) {
            *other -= share * value;
        }
        for row in below.clone() {
            for column in below.clone() {
                let (a, b) = (row - step - 1, column - step - 1);
                matrix[row * size + column] -= vector[a] * other[b] + other[a] * vector[b];
            }
        }
    }
    beside[size - 2] = matrix[(size - 1) * size + size - 2];
    let diagonal = (0..size).map(|row| matrix[row * size + row]).collect();
    (diagonal, beside)
}

/// All eigenvalues are between 0 and 1.
fn second_largest(diagonal: &[f64], beside: &[f64]) -> f64 {
    let above = |value: f64| {
        let mut count = 0;
        let mut pivot = 1.0;
        for (row, entry) in diagonal.iter().enumerate() {
            let before = if row == 0 {
                0.0
            } else {
                beside[row - 1] * beside[row - 1] / pivot
            };
            pivot = entry - value - before;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += usize::from(pivot > 0.0);
        }
        count
    };
    let (mut low, mut high) = (-0.01, 1.01);
    for _ in 0..52 {
        let middle = f64::midpoint(low, high);
        if above(middle) >= 2 {
            low = middle
        } else {
            high = middle
        }
    }
    f64::midpoint(low, high)
}
