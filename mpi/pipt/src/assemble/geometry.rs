//! What routines that put pixels in other places ask for.

use super::{AssembleError, Assembled, Image, Setting};
use crate::graph::{Operation, Shape};
use crate::operation::{Crop, Method, Resample, Turn};
use crate::parameter::Values;
use crate::place;
use crate::routine::Routine;
use pipt_raster::{Rect, Size};

/// No side of an image is longer.
const SIDE_MAX: f64 = 2_147_483_647.0;

impl Assembled {
    pub(super) fn geometry(
        &mut self,
        routine: &Routine,
        of: &Image,
        values: &Values,
        _: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let size = self.graph.shape(of.node).size;
        match routine.name {
            "Crop" => {
                let rect = part(values, size)?;
                let image = Image {
                    tags: place::tags_of_part(&of.tags, rect.x, rect.y),
                    part: (moved(of.part.0, rect), of.part.1),
                    ..of.clone()
                };
                self.elsewhere(image, rect.size(), Box::new(Crop(rect)))
            }
            "FlipRotate90" => {
                let turn = values.word("how").and_then(Turn::of);
                let turn = turn.ok_or(AssembleError::Geometry("how= is missing".to_owned()))?;
                let corners = turn.corners(size);
                let made = turn.size(size);
                self.elsewhere(replaced(of, corners, made), made, Box::new(turn))
            }
            _ => {
                let to = new_size(values, size)?;
                let method = values.word("method").and_then(Method::of);
                let method = method.unwrap_or(Method::Cubic);
                let step = |from: u32, to: u32| f64::from(from) / f64::from(to);
                let corners = [
                    (0.0, 0.0),
                    (step(size.width, to.width), 0.0),
                    (0.0, step(size.height, to.height)),
                ];
                let resample = Resample::new(method, size, to);
                self.elsewhere(replaced(of, corners, to), to, Box::new(resample))
            }
        }
    }

    /// Adds an image of the same bands in another size.
    fn elsewhere(
        &mut self,
        image: Image,
        size: Size,
        operation: Box<dyn Operation>,
    ) -> Result<Image, AssembleError> {
        let shape = self.graph.shape(image.node).clone();
        self.same(image, Shape { size, ..shape }, operation)
    }
}

/// Noise counts the pixels of an image that is not a part of a file's as they are.
fn replaced(of: &Image, corners: [(f64, f64); 3], size: Size) -> Image {
    Image {
        tags: place::tags_of_moved(&of.tags, corners),
        part: (size.rect(), size),
        ..of.clone()
    }
}

fn moved(part: Rect, rect: Rect) -> Rect {
    Rect {
        x: part.x + rect.x,
        y: part.y + rect.y,
        ..rect
    }
}

fn side(values: &Values, name: &str) -> Option<u32> {
    values.whole(name).and_then(|side| u32::try_from(side).ok())
}

fn part(values: &Values, size: Size) -> Result<Rect, AssembleError> {
    let (x, y) = (
        side(values, "x").unwrap_or(0),
        side(values, "y").unwrap_or(0),
    );
    let rest = |begin: u32, all: u32| all.saturating_sub(begin);
    let rect = Rect {
        x,
        y,
        width: side(values, "width").unwrap_or(rest(x, size.width)),
        height: side(values, "height").unwrap_or(rest(y, size.height)),
    };
    if rect.is_empty() || !rect.is_within(size) {
        return Err(AssembleError::Geometry(format!(
            "Crop: {rect} is not within an image of {size} pixels: give another part"
        )));
    }
    Ok(rect)
}

fn new_size(values: &Values, size: Size) -> Result<Size, AssembleError> {
    let wrong = |what: &str| Err(AssembleError::Geometry(format!("Resample: {what}")));
    let (width, height) = (side(values, "width"), side(values, "height"));
    let times = |length: u32, by: f64| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is within these"
        )]
        let times = (f64::from(length) * by).round().clamp(1.0, SIDE_MAX) as u32;
        times
    };
    let step = |to: u32, from: u32| f64::from(to) / f64::from(from);
    match (width, height, values.number("factor")) {
        (None, None, Some(by)) => Ok(Size::new(times(size.width, by), times(size.height, by))),
        (Some(width), Some(height), None) => Ok(Size::new(width, height)),
        (Some(width), None, None) => {
            let height = times(size.height, step(width, size.width));
            Ok(Size::new(width, height))
        }
        (None, Some(height), None) => {
            let width = times(size.width, step(height, size.height));
            Ok(Size::new(width, height))
        }
        (None, None, None) => wrong("how large? Give width=, height= or both, or factor="),
        _ => wrong("factor= stands for width= and height=: give it or them"),
    }
}
