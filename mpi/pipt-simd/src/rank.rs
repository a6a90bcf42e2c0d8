//! Order statistics and trimmed means over windows: any rank, median, minimum, maximum, alpha-trimmed mean.
//!
//! The order of samples is that of [`Sample::key`]: numbers by value, and of floats -0 before +0. A NaN is no
//! value: it counts as invalid, as does a sample that the mask leaves out. Every result is a pure function of
//! the valid values in its window, exact until one last rounding, so it has the same bits on every
//! instruction set, and however an image is cut into parts.
//!
//! Several methods do the work, and nobody sees from the result which one did:
//! * minimum and maximum: running extremes (van Herk 1992; Gil and Werman 1993), see `extreme`;
//! * windows without invalid samples: merging networks that neighbouring windows share, on whole rows of
//!   pixels at once (Batcher 1968; the sharing is that of Adams 2021), see `network`; wide samples are known
//!   by ranks of two bytes there where that is faster, see `ranked`;
//! * bytes in larger windows, and trimmed means of bytes: histograms of columns (Perreault and Hébert 2007),
//!   see `histogram`;
//! * all else: the ranks of a block's samples in bitsets that move with the window, see `block`.

mod block;
mod exact;
mod extreme;
mod histogram;
mod lanes;
mod network;
mod pad;
mod plan;
mod plane;
mod ranked;

use std::fmt;

pub use pad::{Padding, pad};
pub use plane::{Plane, PlaneMut};

use crate::Level;
use pipt_raster::Sample;
use pipt_raster::rect::Halo;

/// The most rows or columns of a window.
pub const MOST_ACROSS: u32 = 255;

/// The pixels whose values an operation looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// So many columns and rows around the pixel, 1 to [`MOST_ACROSS`] of each. Of an even number there is
    /// one more to the left, or above, than to the right, or below, as in SciPy.
    Rectangle { width: u32, height: u32 },
    /// The row and the column through the pixel, so many pixels (0 to 127) to each of the four sides.
    Cross { arm: u32 },
}

impl Window {
    #[must_use]
    pub const fn square(size: u32) -> Self {
        Self::Rectangle {
            width: size,
            height: size,
        }
    }

    /// Columns and rows of the rectangle around it.
    #[must_use]
    pub const fn extent(self) -> (u32, u32) {
        match self {
            Self::Rectangle { width, height } => (width, height),
            Self::Cross { arm } => (
                arm.saturating_mul(2).saturating_add(1),
                arm.saturating_mul(2).saturating_add(1),
            ),
        }
    }

    /// Pixels in it.
    #[must_use]
    pub const fn pixels(self) -> u32 {
        match self {
            Self::Rectangle { width, height } => width.saturating_mul(height),
            Self::Cross { arm } => arm.saturating_mul(4).saturating_add(1),
        }
    }

    /// What it needs around a pixel.
    #[must_use]
    pub const fn halo(self) -> Halo {
        let (width, height) = self.extent();
        Halo {
            left: width / 2,
            right: width.saturating_sub(1) / 2,
            above: height / 2,
            below: height.saturating_sub(1) / 2,
        }
    }
}

/// What the median of an even number of values is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Even {
    /// The lower one of the two in the middle: always a value that is there.
    #[default]
    Lower,
    /// Their mean.
    Mean,
}

/// How many values a trimmed mean leaves out at each end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trim {
    /// So many of a whole window; of `m` valid values in a window of `n`, `count * m / n`, rounded down.
    Count(u32),
    /// This part, 0 or more and less than a half, of the valid values, rounded down (as SciPy's
    /// `trim_mean`).
    Fraction(f64),
}

/// What is taken of the values in a window, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Minimum,
    Maximum,
    Median(Even),
    /// The value with so many before it, 0 the smallest. Of `m` valid values in a window of `n` it is the
    /// one with `rank * (m - 1) / (n - 1)` before it, rounded down: the minimum, the (lower) median and the
    /// maximum stay what they are.
    Rank(u32),
    /// The mean of the values without those at both ends.
    ///
    /// Their exact sum is rounded once to `f64` (ties to even), divided, and rounded to the type of the
    /// result as [`Sample::of_f64`] does. Means of 64-bit integers that are given in their own type are
    /// rounded only once, ties to even. Where all values are the same the mean is that value; a mean that is
    /// zero otherwise is +0. If infinities are left in, the mean is theirs, and NaN where both are.
    TrimmedMean(Trim),
}

/// A window, an operation, and what they need to run, made once for an image.
///
/// # Memory
///
/// [`RankFilter::scratch_bytes`] says how much one call of [`RankFilter::apply`] takes at most.
#[derive(Debug)]
pub struct RankFilter {
    window: Window,
    fill: bool,
    kept: plan::Kept,
    programs: network::Programs,
}

/// What a filter reads.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a, T> {
    /// The pixels of the result and the window's halo around them.
    pub samples: Plane<'a, T>,
    /// Of the same size: which samples are values. Without it all are that are not NaN.
    pub valid: Option<Plane<'a, bool>>,
}

/// Where a filter writes.
#[derive(Debug)]
pub struct Output<'a, O> {
    /// What has no valid value becomes NaN, or 0 where the type has none.
    pub samples: PlaneMut<'a, O>,
    /// Of the same size: which pixels have a value.
    pub valid: Option<PlaneMut<'a, bool>>,
}

/// A filter cannot be made or applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RankError {
    WindowSize(Window),
    RankTooLarge {
        rank: u32,
        pixels: u32,
    },
    TrimCount {
        count: u32,
        pixels: u32,
    },
    TrimFraction(f64),
    /// A plane of this many columns, rows and samples from row to row has too few samples.
    Short {
        width: usize,
        height: usize,
        stride: usize,
        samples: usize,
    },
    /// The second size does not fit the first one.
    Sizes {
        what: &'static str,
        wanted: (usize, usize),
        got: (usize, usize),
    },
    /// There is nothing to reflect or repeat.
    NothingToPad,
}

impl fmt::Display for RankError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowSize(window) => write!(
                to,
                "A window has 1 to {MOST_ACROSS} columns and rows, or arms of 0 to {} pixels: {window:?} is none",
                MOST_ACROSS / 2
            ),
            Self::RankTooLarge { rank, pixels } => write!(
                to,
                "There is no rank {rank} in a window of {pixels} pixels: give one from 0 to {}",
                pixels.saturating_sub(1)
            ),
            Self::TrimCount { count, pixels } => write!(
                to,
                "Nothing is left of {pixels} pixels without {count} at each end: give at most {}",
                pixels.saturating_sub(1) / 2
            ),
            Self::TrimFraction(fraction) => write!(
                to,
                "{fraction} cannot be left out at each end: give 0 or more, and less than 0.5"
            ),
            Self::Short {
                width,
                height,
                stride,
                samples,
            } => write!(
                to,
                "{samples} samples are too few for {height} rows of {width}, each {stride} after the last: \
                 give more, or a stride of at least the width"
            ),
            Self::Sizes { what, wanted, got } => write!(
                to,
                "The {what} has {} x {} pixels where {} x {} are needed",
                got.0, got.1, wanted.0, wanted.1
            ),
            Self::NothingToPad => write!(
                to,
                "An image without pixels can be padded with a constant only"
            ),
        }
    }
}

impl std::error::Error for RankError {}

impl RankFilter {
    /// With `fill`, a pixel that is invalid itself gets the result of the valid ones around it; without, it
    /// stays invalid.
    ///
    /// # Errors
    ///
    /// The window is too large or empty, or the operation wants values that it does not have.
    pub fn new(window: Window, operation: Operation, fill: bool) -> Result<Self, RankError> {
        let (width, height) = window.extent();
        if !(1..=MOST_ACROSS).contains(&width) || !(1..=MOST_ACROSS).contains(&height) {
            return Err(RankError::WindowSize(window));
        }
        Ok(Self {
            window,
            fill,
            kept: plan::Kept::new(operation, window.pixels())?,
            programs: network::Programs::default(),
        })
    }

    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// How much larger the input is than the output.
    #[must_use]
    pub const fn halo(&self) -> Halo {
        self.window.halo()
    }

    /// At most so many bytes are taken while [`Self::apply`] runs, whatever the size of the image.
    #[must_use]
    pub fn scratch_bytes<T: Sample>(&self) -> usize {
        block::bytes(self.window)
            + self.programs.bytes::<T>(self.window, &self.kept)
            + extreme::bytes(self.window)
            + histogram::bytes(self.window)
            + if T::TYPE.bytes() < 4 {
                0
            } else {
                ranked::BYTES
            }
    }

    /// Filters: each pixel of `output` is made of the window that begins at the same place of `input`, which
    /// has the [`Self::halo`] in addition.
    ///
    /// Results are of the samples' own type, or any other: an order statistic is then converted as
    /// `O::of_f64(sample.to_f64())` does.
    ///
    /// # Errors
    ///
    /// The sizes of input and output do not fit each other and the window.
    pub fn apply<T: Sample, O: Sample>(
        &self,
        level: Level,
        input: Input<'_, T>,
        mut output: Output<'_, O>,
    ) -> Result<(), RankError> {
        self.fits(&input, &output)?;
        let (width, height) = output.samples.size();
        let mut tools = Tools::new(self, level);
        let rows = if self.is_counted::<T>(level) {
            histogram::ROWS
        } else {
            TILE.1
        };
        for y in (0..height).step_by(rows) {
            for x in (0..width).step_by(TILE.0) {
                let size = (TILE.0.min(width - x), rows.min(height - y));
                self.tile(&mut tools, &input, &mut output, (x, y), size)?;
            }
        }
        Ok(())
    }

    fn fits<T, O>(&self, input: &Input<'_, T>, output: &Output<'_, O>) -> Result<(), RankError> {
        let size = output.samples.size();
        let (columns, rows) = self.window.extent();
        let wanted = (
            size.0.saturating_add(columns as usize - 1),
            size.1.saturating_add(rows as usize - 1),
        );
        let check = |what, wanted, got| {
            if wanted == got {
                Ok(())
            } else {
                Err(RankError::Sizes { what, wanted, got })
            }
        };
        check("input", wanted, input.samples.size())?;
        if let Some(valid) = input.valid {
            check("input's mask", wanted, valid.size())?;
        }
        if let Some(valid) = &output.valid {
            check("output's mask", size, valid.size())?;
        }
        Ok(())
    }

    /// Whether histograms are the fastest method for samples that are all valid.
    fn is_counted<T: Sample>(&self, level: Level) -> bool {
        T::TYPE.bytes() == 1
            && matches!(self.window, Window::Rectangle { .. })
            && self.kept.extreme().is_none()
            && self
                .programs
                .get::<T>(self.window, &self.kept, level)
                .is_none()
    }

    fn tile<T: Sample, O: Sample>(
        &self,
        tools: &mut Tools,
        input: &Input<'_, T>,
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) -> Result<(), RankError> {
        let (columns, rows) = self.window.extent();
        let footprint = (size.0 + columns as usize - 1, size.1 + rows as usize - 1);
        let part = input.part(at, footprint);
        if part.all_valid() && self.whole(tools, &part, output, at, size)? {
            set_valid(output, at, size);
            return Ok(());
        }
        tools.block.filter(self, &part, output, at, size);
        Ok(())
    }

    /// Filters a part in which all samples are valid, if there is a faster method than that for all parts.
    fn whole<T: Sample, O: Sample>(
        &self,
        tools: &mut Tools,
        part: &Input<'_, T>,
        output: &mut Output<'_, O>,
        at: (usize, usize),
        size: (usize, usize),
    ) -> Result<bool, RankError> {
        let (window, kept, level) = (self.window, &self.kept, tools.level);
        if let Some(end) = kept.extreme() {
            extreme::filter(level, window, end, part.samples, output, at, size);
        } else if let Some(program) = self.programs.of_ranks::<T>(window, kept, level) {
            let (columns, rows) = window.extent();
            let program = (program, (columns as usize, rows as usize));
            ranked::filter(tools, program, part, output, at, size)?;
        } else if let Some(program) = self.programs.get::<T>(window, kept, level) {
            program.filter(level, &mut tools.lanes, part.samples, output, at, size);
        } else if self.is_counted::<T>(level) {
            let tool = (level, &mut tools.histograms);
            histogram::filter(tool, (window, kept), part.samples, output, at, size);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Pixels of a result that are looked at together: whether one of their windows has an invalid sample
/// decides about the method, and so about the time, but not about the result.
const TILE: (usize, usize) = (1024, 64);

/// Scratch of the methods.
struct Tools {
    level: Level,
    block: block::Engine,
    lanes: lanes::Scratch,
    histograms: histogram::Scratch,
    ranked: ranked::Scratch,
}

impl Tools {
    fn new(filter: &RankFilter, level: Level) -> Self {
        Self {
            level,
            block: block::Engine::new(filter.window, level),
            lanes: lanes::Scratch::default(),
            histograms: histogram::Scratch::default(),
            ranked: ranked::Scratch::default(),
        }
    }
}

impl<T: Sample> Input<'_, T> {
    fn part(&self, at: (usize, usize), size: (usize, usize)) -> Self {
        Self {
            samples: self.samples.part(at, size),
            valid: self.valid.map(|valid| valid.part(at, size)),
        }
    }

    fn all_valid(&self) -> bool {
        let rows = self.samples.size().1;
        // Each row is looked at without a way out in it, so that the compiler makes SIMD of it.
        let marked = self.valid.is_none_or(|valid| {
            (0..rows).all(|y| valid.row(y).iter().fold(true, |all, one| all & one))
        });
        let number = |y| {
            let row = self.samples.row(y);
            !row.iter().fold(false, |any, one| any | one.is_nan())
        };
        marked && (!T::TYPE.is_float() || (0..rows).all(number))
    }
}

fn set_valid<O>(output: &mut Output<'_, O>, at: (usize, usize), size: (usize, usize)) {
    if let Some(valid) = &mut output.valid {
        for y in at.1..at.1 + size.1 {
            valid.row_mut(y)[at.0..at.0 + size.0].fill(true);
        }
    }
}

/// What stands for no value.
fn nothing<O: Sample>() -> O {
    O::of_f64(f64::NAN)
}

/// The sample of a key of `T`, in another type.
fn convert<T: Sample, O: Sample>(key: u64) -> O {
    if T::TYPE == O::TYPE {
        O::of_key(key)
    } else {
        O::of_f64(T::of_key(key).to_f64())
    }
}
