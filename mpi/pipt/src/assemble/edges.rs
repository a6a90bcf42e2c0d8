//! What routines for edges and sharpening ask for.

use super::means::{bell, smoothing};
use super::points::float_for;
use super::{AssembleError, Assembled, Image, edge};
use crate::operation::{Edge, Edges, Join, Kernel, Mean};
use crate::parameter::Values;
use crate::routine::Routine;

/// A kernel has no longer sides.
const SIDE_MAX: usize = 63;

const SOBEL: [f64; 9] = [-1.0, 0.0, 1.0, -2.0, 0.0, 2.0, -1.0, 0.0, 1.0];
const PREWITT: [f64; 9] = [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0, -1.0, 0.0, 1.0];
const ROBERTS: [[f64; 9]; 2] = [
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0],
];
/// Those around the middle, clockwise from the upper left corner.
const KIRSCH: [f64; 8] = [5.0, 5.0, 5.0, -3.0, -3.0, -3.0, -3.0, -3.0];
/// Where they are.
const AROUND: [usize; 8] = [0, 1, 2, 5, 8, 7, 6, 3];
const LAPLACIAN_4: [f64; 9] = [0.0, 1.0, 0.0, 1.0, -4.0, 1.0, 0.0, 1.0, 0.0];
const LAPLACIAN_8: [f64; 9] = [1.0, 1.0, 1.0, 1.0, -8.0, 1.0, 1.0, 1.0, 1.0];

impl Assembled {
    pub(super) fn edges(
        &mut self,
        routine: &Routine,
        of: &Image,
        values: &Values,
    ) -> Result<Image, AssembleError> {
        let (kernels, join) = match routine.name {
            "UnsharpMask" => {
                let number = |name: &str, default: f64| values.number(name).unwrap_or(default);
                let mean = Mean::Unsharp {
                    kernel: smoothing(values),
                    amount: number("amount", 1.0),
                    threshold: number("threshold", 0.0),
                };
                return self.mean(of, values, mean);
            }
            "Convolve" => (vec![convolved(values)?], Join::Sum),
            "Sobel" => (both_ways(SOBEL), Join::Length),
            "Prewitt" => (both_ways(PREWITT), Join::Length),
            "Roberts" => (ROBERTS.map(small).to_vec(), Join::Length),
            "Kirsch" => ((0..8).map(turned).collect(), Join::Greatest),
            "LaplacianOfGaussian" => {
                let (bell, second) = (bell(values, false), bell(values, true));
                let product = |across: &[f64], down: &[f64]| Kernel::Product {
                    across: across.to_vec(),
                    down: down.to_vec(),
                };
                let kernels = vec![product(&second, &bell), product(&bell, &second)];
                (kernels, Join::Sum)
            }
            _ => {
                let weights = match values.word("neighbours") {
                    Some("8") => LAPLACIAN_8,
                    _ => LAPLACIAN_4,
                };
                (vec![small(weights)], Join::Sum)
            }
        };
        let (edge, kind) = (edge(values), float_for(self.graph.shape(of.node).kind));
        let edges = Edges {
            kernels,
            join,
            edge,
            kind,
        };
        let made = self.other(&[of], kind, Box::new(edges))?;
        let has_holes = made.has_holes || edge == Edge::Nodata;
        Ok(Image { has_holes, ..made })
    }
}

fn small(weights: [f64; 9]) -> Kernel {
    Kernel::Plane {
        columns: 3,
        weights: weights.to_vec(),
    }
}

/// With columns and rows changed.
fn both_ways(weights: [f64; 9]) -> Vec<Kernel> {
    let other = std::array::from_fn(|place| weights[place % 3 * 3 + place / 3]);
    vec![small(weights), small(other)]
}

fn turned(eighths: usize) -> Kernel {
    let mut weights = [0.0; 9];
    for (place, weight) in AROUND.iter().cycle().skip(eighths).zip(KIRSCH) {
        weights[*place] = weight;
    }
    small(weights)
}

/// The kernel that is given, turned round.
fn convolved(values: &Values) -> Result<Kernel, AssembleError> {
    let given = values.word("kernel").unwrap_or_default();
    let wrong = |what: String| AssembleError::Kernel(given.chars().take(80).collect(), what);
    let number = |text: &str| {
        let number = text
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| wrong(format!("'{text}' is no number")))
    };
    let row = |row: &str| {
        row.split(',')
            .take(SIDE_MAX + 1)
            .map(number)
            .collect::<Result<Vec<_>, _>>()
    };
    let rows = given.split('/').take(SIDE_MAX + 1).map(row);
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let columns = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != columns) {
        return Err(wrong("its rows are not as long as each other".to_owned()));
    }
    let is_side = |side: usize| side % 2 == 1 && side <= SIDE_MAX;
    if !is_side(columns) || !is_side(rows.len()) {
        return Err(wrong(format!(
            "it has not an odd number of rows and columns of at most {SIDE_MAX}"
        )));
    }
    let divide = values.number("divide").unwrap_or(1.0);
    if divide == 0.0 {
        return Err(wrong("nothing can be divided by 0".to_owned()));
    }
    let weights = rows
        .into_iter()
        .flatten()
        .rev()
        .map(|weight| weight / divide);
    Ok(Kernel::Plane {
        columns,
        weights: weights.collect(),
    })
}
