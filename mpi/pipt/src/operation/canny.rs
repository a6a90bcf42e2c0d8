//! Edges one pixel wide (J. Canny, "A Computational Approach to Edge Detection", IEEE Transactions on Pattern Analysis and
//! Machine Intelligence 8, 1986): of both gradients the classes of pixels, and of these what hangs together.

use crate::blocks::Grid;
use crate::graph::{Failure, Given, Operation, Part, cut_samples};
use crate::survey::hysteresis::{STRONG, Strong, WEAK, regions};
use pipt_raster::rect::Halo;
use pipt_raster::{Rect, SampleType, Samples, Size};
use std::f64::consts::SQRT_2;
use std::sync::Arc;

/// Of the gradients across and down: pixels whose gradient is longer than that of both neighbours in its direction, of
/// four, are weak or strong if it is above the limits. Of two as long as each other the right or lower one is left out,
/// as in OpenCV.
pub struct Thin {
    pub low: f64,
    pub high: f64,
}

/// Both gradients of a part.
struct Gradients<'a> {
    across: &'a [f64],
    down: &'a [f64],
    /// The squares of their lengths; 0 where there is no data.
    squares: Vec<f64>,
    rect: Rect,
}

impl Gradients<'_> {
    /// The square of the length beside a pixel; 0 beyond the edge of the image.
    fn beside(&self, (x, y): (u32, u32), (dx, dy): (i32, i32)) -> f64 {
        let (x, y) = (x.checked_add_signed(dx), y.checked_add_signed(dy));
        match (x, y) {
            (Some(x), Some(y)) if x < self.rect.width && y < self.rect.height => {
                self.squares[self.place((x, y))]
            }
            _ => 0.0,
        }
    }

    fn place(&self, (x, y): (u32, u32)) -> usize {
        y as usize * self.rect.width as usize + x as usize
    }

    /// Whether a pixel's gradient is the longest in its direction.
    fn is_crest(&self, at: (u32, u32)) -> bool {
        let place = self.place(at);
        let (own, across, down) = (self.squares[place], self.across[place], self.down[place]);
        // The tangents of an eighth of half a turn and of three.
        let (x, y) = (across.abs() * (SQRT_2 - 1.0), across.abs() * (SQRT_2 + 1.0));
        let slope = down.abs();
        if slope < x {
            own > self.beside(at, (-1, 0)) && own >= self.beside(at, (1, 0))
        } else if slope > y {
            own > self.beside(at, (0, -1)) && own >= self.beside(at, (0, 1))
        } else {
            let side = if (across < 0.0) == (down < 0.0) {
                1
            } else {
                -1
            };
            own > self.beside(at, (-side, -1)) && own > self.beside(at, (side, 1))
        }
    }
}

impl Operation for Thin {
    fn halo(&self) -> Halo {
        Halo::even(1)
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, wanted: Size, _: SampleType) -> u64 {
        wanted.grown(self.halo()).pixels() * 8 + wanted.pixels()
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let down = given.others.first().ok_or("One gradient is missing")?;
        let (Samples::F64(across), Samples::F64(down)) = (&given.part.samples, &down.samples)
        else {
            return Err("Gradients are 64-bit floats".into());
        };
        let there = given.part.there.as_deref();
        let is_there = |place: usize| there.is_none_or(|there| there[place]);
        let both = across.iter().zip(down).enumerate();
        let squares = both.map(|(place, (x, y))| if is_there(place) { x * x + y * y } else { 0.0 });
        let gradients = Gradients {
            squares: squares.collect(),
            across,
            down,
            rect: given.rect,
        };
        let (low, high) = (self.low * self.low, self.high * self.high);
        let (wanted, rect) = (given.wanted, given.rect);
        let class = |at| {
            let own = gradients.squares[gradients.place(at)];
            match own > low && gradients.is_crest(at) {
                true if own > high => STRONG,
                true => WEAK,
                false => 0,
            }
        };
        let classes = pixels(wanted, rect).map(class).collect::<Vec<u8>>();
        let there = there.map(|_| {
            let places = pixels(wanted, rect).map(|at| is_there(gradients.place(at)));
            places.collect()
        });
        Ok(vec![Part {
            samples: classes.into(),
            there,
        }])
    }
}

/// The pixels of a part of a rectangle, counted from the rectangle's corner.
fn pixels(part: Rect, of: Rect) -> impl Iterator<Item = (u32, u32)> {
    let (left, above) = (part.x - of.x, part.y - of.y);
    let rows = above..above + part.height;
    rows.flat_map(move |y| (left..left + part.width).map(move |x| (x, y)))
}

/// Of classes: 1 where a weak or strong pixel hangs together with a strong one, at a side or a corner, else 0.
pub struct Hysteresis {
    /// The tiles in which the image was looked through.
    pub grid: Grid,
    /// Of each band.
    pub strong: Arc<Vec<Strong>>,
}

impl Operation for Hysteresis {
    fn halo(&self) -> Halo {
        Halo::default()
    }

    /// Whole tiles: the numbers of their regions are those of the look.
    fn region(&self, wanted: Rect, of: Size) -> Rect {
        let tile = self.grid.tile;
        let (x, y) = (wanted.x / tile * tile, wanted.y / tile * tile);
        let ends = |begin: u32, length: u32, all: u32| {
            let end = begin.saturating_add(length).div_ceil(tile);
            end.saturating_mul(tile).min(all)
        };
        let right = ends(wanted.x, wanted.width, of.width);
        let below = ends(wanted.y, wanted.height, of.height);
        Rect::new(x, y, right - x, below - y)
    }

    fn reach(&self, wanted: Size) -> Size {
        let tile = self.grid.tile;
        let side = |length: u32| (length.div_ceil(tile).saturating_add(1)).saturating_mul(tile);
        Size::new(side(wanted.width), side(wanted.height))
    }

    fn outputs(&self) -> usize {
        1
    }

    fn scratch(&self, _: Size, _: SampleType) -> u64 {
        // A tile's classes, the numbers of its regions, and sets.
        u64::from(self.grid.tile) * u64::from(self.grid.tile) * (1 + 4 + 8)
    }

    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
        let strong = self.strong.get(given.band as usize);
        let strong = strong.ok_or("There is no such band")?;
        let wanted = given.wanted;
        let mut results = vec![0_u8; wanted.width as usize * wanted.height as usize];
        for block in self.grid.blocks(1) {
            let common = block.rect.intersection(wanted);
            if common.is_empty() {
                continue;
            }
            let tile = cut_samples(&given.part.samples, given.rect, block.rect);
            let Samples::U8(classes) = tile else {
                return Err("Classes are bytes".into());
            };
            let numbers = regions(block.rect.size(), &classes).numbers;
            let bits = usize::try_from(block.first)
                .ok()
                .and_then(|turn| strong.get(turn));
            let bits = bits.ok_or("There is no such tile")?;
            for (to, from) in pixels(common, wanted).zip(pixels(common, block.rect)) {
                let number = numbers[from.1 as usize * block.rect.width as usize + from.0 as usize];
                let place = to.1 as usize * wanted.width as usize + to.0 as usize;
                results[place] = u8::from(bits.has(number));
            }
        }
        let there = given.part.there.as_ref();
        let width = given.rect.width as usize;
        let there = there.map(|there| {
            let places = pixels(wanted, given.rect).map(|(x, y)| y as usize * width + x as usize);
            places.map(|place| there[place]).collect()
        });
        Ok(vec![Part {
            samples: results.into(),
            there,
        }])
    }
}
