//! What routines for edges and sharpening ask for.

use super::means::{bell, smoothing};
use super::points::float_for;
use super::{AssembleError, Assembled, Image, Setting, edge, look};
use crate::blocks::{Block, Grid, Tile};
use crate::execute::Sink;
use crate::graph::{Failure, Graph, Part, cut_samples};
use crate::operation::{Edge, Edges, Hysteresis, Join, Kernel, Mean, Thin};
use crate::parameter::Values;
use crate::routine::Routine;
use crate::survey::hysteresis::{Joined, Piece, Strong};
use pipt_raster::{SampleType, Samples};
use std::sync::{Arc, Mutex, PoisonError};

/// Pixels to a side of the tiles in which lines are found. What is computed of a tile needs all of it, so smaller ones
/// are for smaller blocks; but more is kept of them.
const LINES: u32 = 256;

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
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let (kernels, join) = match routine.name {
            "Canny" => return self.canny(of, values, setting),
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
            "Sobel" => (both_ways(SOBEL).to_vec(), Join::Length),
            "Prewitt" => (both_ways(PREWITT).to_vec(), Join::Length),
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
        let kind = float_for(self.graph.shape(of.node).kind);
        self.summed(of, kernels, join, (edge(values), kind))
    }

    fn summed(
        &mut self,
        of: &Image,
        kernels: Vec<Kernel>,
        join: Join,
        (edge, kind): (Edge, SampleType),
    ) -> Result<Image, AssembleError> {
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

    /// Smooths, makes gradients and thin lines of them, and looks at how these hang together.
    fn canny(
        &mut self,
        of: &Image,
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let number = |name: &str| values.number(name).unwrap_or(0.0);
        let (low, high) = (number("low"), number("high"));
        if low > high {
            return Err(AssembleError::Hysteresis(low, high));
        }
        // Neighbours are compared, so gradients are not rounded to 32 bits.
        let how = (edge(values), SampleType::F64);
        let mut smooth = of.clone();
        if number("sigma") > 0.0 {
            let bell = bell(values, false);
            let (across, down) = (bell.clone(), bell);
            let kernels = vec![Kernel::Product { across, down }];
            smooth = self.summed(of, kernels, Join::Sum, how)?;
        }
        let [across, down] = both_ways(SOBEL).map(|kernel| vec![kernel]);
        let across = self.summed(&smooth, across, Join::Sum, how)?;
        let down = self.summed(&smooth, down, Join::Sum, how)?;
        let thin = Box::new(Thin { low, high });
        let thin = self.flags(&[&across, &down], thin)?;
        let grid = look::grid(&self.graph, thin.node, LINES);
        let strong = Arc::new(strong(&self.graph, thin.node, setting)?);
        let hysteresis = Box::new(Hysteresis { grid, strong });
        self.flags(&[&thin], hysteresis)
    }
}

/// Which regions of each tile hang together with a strong pixel, of each band.
fn strong(graph: &Graph, node: usize, setting: &Setting<'_>) -> Result<Vec<Strong>, AssembleError> {
    let shape = graph.shape(node);
    let bands = shape.bands.iter().map(|_| Joined::new(shape.size.width));
    let lines = Lines {
        grid: look::grid(graph, node, LINES),
        joined: Mutex::new(bands.collect()),
    };
    look::through(graph, lines.grid, node, setting, &lines)?;
    let joined = lines.joined.into_inner();
    let joined = joined.unwrap_or_else(PoisonError::into_inner);
    Ok(joined.into_iter().map(Joined::strong).collect())
}

/// Joins the lines of all tiles.
struct Lines {
    grid: Grid,
    /// Of each band.
    joined: Mutex<Vec<Joined>>,
}

impl Sink for Lines {
    type Ready = Vec<Piece>;

    fn ready(&self, _: usize, _: u32, block: &Block, part: Part) -> Result<Self::Ready, Failure> {
        let piece = |tile: Tile| match cut_samples(&part.samples, block.rect, tile.rect) {
            Samples::U8(classes) => Ok(Piece::of(tile.rect, &classes)),
            _ => Err("Classes are bytes".into()),
        };
        self.grid.tiles(block).map(piece).collect()
    }

    fn keep(&self, _: &Block, ready: Vec<Self::Ready>) -> Result<(), Failure> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        for (joined, pieces) in joined.iter_mut().zip(&ready) {
            pieces.iter().for_each(|piece| joined.take(piece));
        }
        Ok(())
    }
}

fn small(weights: [f64; 9]) -> Kernel {
    Kernel::Plane {
        columns: 3,
        weights: weights.to_vec(),
    }
}

/// With columns and rows changed.
fn both_ways(weights: [f64; 9]) -> [Kernel; 2] {
    let other = std::array::from_fn(|place| weights[place % 3 * 3 + place / 3]);
    [small(weights), small(other)]
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
