//! What is done for a rectangle, row by row.

use pipt_raster::rect::Halo;

use super::bins::{self, Asked, Bins, ENCODE_U8, ENCODE_U16, Encode};
use super::finish::{self, Arithmetic, Brief, Finish, Real, Scratch};
use super::histogram::{Codes, Histogram, Kind, MOST_BINS, Numbering, Slots};
use super::image::{Geometry, Grey, Grid, LevelImage, Levels, PairRow};
use super::inverse::Inverses;
use super::logarithms::{Logarithms, Precision};
use super::matches::{self, Matches, Planes};
use super::maximal::Maximal;
use super::moments::{self, Columns, Step, Wanted};
use super::parameters::{Combine, Feature, Offset, Pairs, Parameters, TextureError};
use super::quantities::{Margin, Quantities, Quantity};
use super::rows::{self, Rows};
use crate::Level;

/// Rows that codes are made of at a time. More of them need more scratch, fewer are made again more often:
/// a band of a window of w has w - 1 rows of its successor.
const BAND: usize = 32;

/// Windows of so many pixels a side, of few levels, are compared faster than their codes are counted.
const MOST_COMPARED: usize = 5;

/// Parameters that were looked at, and what follows from them.
pub struct Plan {
    pub(super) parameters: Parameters,
    halo: Halo,
    pub(super) geometry: Vec<Geometry>,
    pub(super) quantities: Quantities,
    pub(super) logarithms: Logarithms,
    /// Bits after the point of fixed-point terms.
    fraction: u32,
    inverses: Inverses,
    /// Whether products of sums may not be exact as floats.
    pub(super) wide: bool,
    /// Whether an instruction set may count pairs by comparing them instead of in a histogram.
    comparable: bool,
    /// Whether an instruction set may make all numbers of windows from the counts of their codes.
    countable: bool,
    /// Whether 32-bit numbers are enough to finish features in.
    brief: bool,
}

impl Plan {
    /// # Errors
    ///
    /// The parameters name no feature, or what cannot be computed.
    pub fn new(parameters: &Parameters) -> Result<Self, TextureError> {
        let window = parameters.window;
        if window.is_multiple_of(2) || !(3..=Parameters::MOST_WINDOW).contains(&window) {
            return Err(TextureError::Window(window));
        }
        if !(2..=Parameters::MOST_LEVELS).contains(&parameters.levels) {
            return Err(TextureError::Levels(parameters.levels));
        }
        let count = parameters.offsets.len();
        if !(1..=Parameters::MOST_OFFSETS).contains(&count) {
            return Err(TextureError::Offsets(count));
        }
        if parameters.features.is_empty() {
            return Err(TextureError::NoFeature);
        }
        let halo = halo_of(parameters);
        let geometry = parameters.offsets.iter();
        let geometry = geometry.map(|offset| geometry_of(*offset, parameters, halo));
        let geometry = geometry.collect::<Result<Vec<_>, _>>()?;
        let most_pairs = window * window * count;
        // Not more than 63 x 63 x 8 pairs, of which a margin counts two levels each.
        let most_count = u16::try_from(2 * most_pairs).unwrap_or(u16::MAX);
        let bits = usize::BITS - (window * window).leading_zeros();
        let quantities = Quantities::of(parameters, most_pairs)?;
        let countable = is_countable(parameters, &geometry, &quantities);
        let comparable = is_comparable(parameters, &geometry);
        let precision = match (countable, has_differences(parameters)) {
            (true, true) => Precision::Fine,
            (true, false) => Precision::Bytes,
            _ if comparable => Precision::Bytes,
            _ => Precision::Most,
        };
        let pairs = geometry.iter().map(Geometry::pairs).max().unwrap_or(0);
        let fraction = u32::BITS - bits;
        Ok(Self {
            parameters: parameters.clone(),
            halo,
            geometry,
            inverses: Inverses::new(parameters.levels, fraction, quantities.all_moments()),
            quantities,
            logarithms: Logarithms::new(most_count, precision),
            fraction,
            wide: parameters.levels > 256,
            comparable,
            countable,
            brief: comparable && finish::is_enough(parameters, pairs),
        })
    }

    /// The margins that an image has to have around the pixels that results are wanted for: half a window,
    /// and with [`Pairs::Reach`] what the offsets reach beyond it.
    #[must_use]
    pub const fn halo(&self) -> Halo {
        self.halo
    }

    /// Names of the outputs, in their order: the features', and with [`Combine::Separate`] those of the
    /// first offset, then those of the second one, and so on, each with its offset.
    #[must_use]
    pub fn outputs(&self) -> Vec<String> {
        let features = &self.parameters.features;
        if self.parameters.combine != Combine::Separate {
            return features.iter().map(|feature| feature.name()).collect();
        }
        let offsets = self.parameters.offsets.iter();
        let names = offsets.flat_map(|offset| {
            features
                .iter()
                .map(move |feature| format!("{}({offset})", feature.name()))
        });
        names.collect()
    }

    /// About how much memory a call of [`run`](Self::run) allocates for a rectangle of that width.
    #[must_use]
    pub fn scratch_bytes(&self, width: usize) -> usize {
        let window = self.parameters.window;
        let length = width + window;
        let wanted = self.wanted(true);
        let columns = Columns::bytes(&wanted, width, window) * self.geometry.len();
        let margins = self.quantities.margins();
        let codes = margins
            .iter()
            .map(|(margin, _)| self.code_bytes(*margin, length));
        let compared = self.geometry.iter().filter(|_| self.comparable).map(|of| {
            Planes::bytes(length, BAND + window, of.rows)
                + Matches::bytes(width, of.columns, of.rows)
        });
        let mut moments = 0;
        let mut histograms = codes.sum::<usize>() + compared.sum::<usize>();
        if self.countable {
            moments = wanted.len();
            let numbers = 2 * (self.quantities.rows() + moments);
            let bins = Bins::bytes(numbers, &self.geometry, (width, BAND));
            histograms = histograms.max(bins);
        }
        let rows = rows::bytes(self.quantities.rows() + moments + 1, width) * self.together();
        let scratch = finish::scratch_bytes(self);
        columns + histograms + rows + scratch + 4 * self.logarithms.of.len()
    }

    /// Memory for the histogram of a margin.
    fn code_bytes(&self, margin: Margin, length: usize) -> usize {
        let (levels, offsets) = (self.parameters.levels, self.geometry.len());
        let pairs = length * (BAND + self.parameters.window) * offsets;
        let kinds = margin.kinds(self.parameters.symmetric);
        let bins = kinds.iter().map(|kind| {
            if kind.codes(levels) <= MOST_BINS {
                2 * usize::try_from(kind.codes(levels)).unwrap_or(usize::MAX)
            } else {
                2 * pairs * 8
            }
        });
        bins.sum::<usize>() + kinds.len() * pairs * 4
    }

    /// Computes every output for every pixel of a rectangle: each of `outputs` has `width` x `height` values,
    /// row by row. A pixel without any valid pair is NaN.
    ///
    /// The same pixels give the same bits, whatever the rectangle, its neighbours in the call, the level
    /// and the thread are.
    ///
    /// # Errors
    ///
    /// The image is smaller than its rectangle with its margins, a level of it is too large, or the outputs
    /// are not as many or as large as they have to be.
    pub fn run(
        &self,
        level: Level,
        image: &LevelImage<'_>,
        outputs: &mut [&mut [f32]],
    ) -> Result<(), TextureError> {
        image.check(self.halo, self.parameters.levels)?;
        let pixels = image.width.checked_mul(image.height);
        let pixels = pixels.ok_or(TextureError::Size(image.width, image.height))?;
        let wanted = match self.parameters.combine {
            Combine::Separate => self.parameters.features.len() * self.geometry.len(),
            Combine::Mean | Combine::Sum => self.parameters.features.len(),
        };
        if outputs.len() != wanted {
            return Err(TextureError::Outputs(outputs.len(), wanted));
        }
        if let Some(output) = outputs.iter().find(|output| output.len() != pixels) {
            return Err(TextureError::Output(output.len(), pixels));
        }
        if pixels == 0 {
            return Ok(());
        }
        let (mask, stride) = (image.mask, image.stride);
        let size = (image.width, image.height);
        match image.levels {
            Levels::U8(levels) => {
                let grid = Grid {
                    levels,
                    mask,
                    stride,
                };
                let reading = Reading {
                    slide: moments::slide_u8,
                    encode: ENCODE_U8,
                };
                self.run_all(level, grid, size, reading, outputs);
            }
            Levels::U16(levels) => {
                let grid = Grid {
                    levels,
                    mask,
                    stride,
                };
                let reading = Reading {
                    slide: moments::slide_u16,
                    encode: ENCODE_U16,
                };
                self.run_all(level, grid, size, reading, outputs);
            }
        }
        Ok(())
    }

    fn run_all<L: Grey>(
        &self,
        level: Level,
        grid: Grid<'_, L>,
        size: (usize, usize),
        reading: Reading<L>,
        outputs: &mut [&mut [f32]],
    ) {
        if self.brief {
            Run::<L, Brief>::new(self, level, grid, size).all(reading, outputs);
        } else {
            Run::<L, Real>::new(self, level, grid, size).all(reading, outputs);
        }
    }

    /// How many times offsets are counted together.
    fn together(&self) -> usize {
        match self.parameters.combine {
            Combine::Separate | Combine::Mean => self.geometry.len(),
            Combine::Sum => 1,
        }
    }

    /// What counts the codes for rows of so many windows, of which a band has so many.
    fn bins(&self, wanted: &[Wanted], size: (usize, usize)) -> Bins {
        let asked = Asked {
            levels: self.parameters.levels,
            symmetric: self.parameters.symmetric,
            quantities: &self.quantities,
            wanted,
            first_row: self.quantities.rows(),
            fraction: self.fraction,
            fine: has_differences(&self.parameters),
        };
        Bins::new(&asked, &self.geometry, self.together(), size)
    }

    fn wanted(&self, masked: bool) -> Vec<Wanted> {
        let pairs = self.parameters.window * self.parameters.window;
        self.quantities
            .wanted(self.parameters.levels, self.fraction, pairs, masked)
    }

    /// Whether this instruction set compares pairs with each other instead of counting them in a histogram.
    fn is_compared(&self, level: Level, margin: Margin) -> bool {
        let (levels, window) = (self.parameters.levels, self.parameters.window);
        margin == Margin::Joint && self.comparable && matches::is_fast(level, levels, window)
    }

    /// Whether this instruction set counts codes for all that is not a moment. Results do not show it; tests ask.
    #[doc(hidden)]
    #[must_use]
    pub fn is_counted(&self, level: Level) -> bool {
        let margins = self.quantities.margins();
        let alone = margins.iter().all(|(margin, _)| *margin == Margin::Joint);
        // Windows of so few pairs are compared faster, unless it has to be done for the offsets of a sum together.
        let compared = level >= Level::Avx512
            && alone
            && self.comparable
            && self.together() == self.geometry.len()
            && self.parameters.window <= MOST_COMPARED;
        self.countable && bins::is_fast(level) && !compared
    }

    /// Whether moments are made of counts of codes too: of those of several offsets at once.
    fn has_moments_counted(&self) -> bool {
        self.together() < self.geometry.len()
    }

    /// Whether all is finished in 32-bit numbers. Results do not show it; tests ask.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_brief(&self) -> bool {
        self.brief
    }

    /// What a fixed-point sum is multiplied by.
    pub(super) fn fixed_unit(&self) -> f64 {
        1.0 / f64::from(1_u32 << self.fraction)
    }
}

/// Whether there is a difference of entropies.
fn has_differences(parameters: &Parameters) -> bool {
    let exact = [Feature::InformationMeasure1, Feature::InformationMeasure2];
    exact
        .iter()
        .any(|feature| parameters.features.contains(feature))
}

/// Comparing counts pairs in bytes, and takes their levels as bytes. Its logarithms are too coarse for
/// differences of entropies.
fn is_comparable(parameters: &Parameters, geometry: &[Geometry]) -> bool {
    let total: usize = geometry.iter().map(Geometry::pairs).sum();
    let fits = |of: &Geometry| of.columns.max(of.rows) <= matches::MOST_SIDE;
    parameters.symmetric
        && parameters.levels <= 256
        && !has_differences(parameters)
        && geometry.iter().all(fits)
        && (parameters.combine != Combine::Sum || total <= matches::MOST_PAIRS)
}

/// Without any histogram, running sums are enough.
fn is_countable(parameters: &Parameters, geometry: &[Geometry], quantities: &Quantities) -> bool {
    let margins = quantities.margins();
    let twice = |(margin, slots): &(Margin, Slots)| {
        *margin == Margin::First && parameters.symmetric && slots.log.is_some()
    };
    !margins.is_empty() && bins::can_count(parameters, geometry, margins.iter().any(twice))
}

fn halo_of(parameters: &Parameters) -> Halo {
    let half = u32::try_from(parameters.window / 2).unwrap_or(0);
    let reach = |of: fn(&Offset) -> i32| {
        let all = parameters.offsets.iter().map(of);
        let most = all.max().unwrap_or(0).max(0).unsigned_abs();
        match parameters.pairs {
            Pairs::Inside => half,
            Pairs::Reach => half.saturating_add(most),
        }
    };
    Halo {
        left: reach(|offset| offset.dx.saturating_neg()),
        right: reach(|offset| offset.dx),
        above: reach(|offset| offset.dy.saturating_neg()),
        below: reach(|offset| offset.dy),
    }
}

fn geometry_of(
    offset: Offset,
    parameters: &Parameters,
    halo: Halo,
) -> Result<Geometry, TextureError> {
    let window = parameters.window;
    let refused = TextureError::Offset(offset, window);
    let whole = |pixels: u32| usize::try_from(pixels).map_err(|_| refused.clone());
    let (along, down) = (
        whole(offset.dx.unsigned_abs())?,
        whole(offset.dy.unsigned_abs())?,
    );
    if (along == 0 && down == 0) || along >= window || down >= window {
        return Err(refused);
    }
    // The first window's upper left corner, in the padded image.
    let (left, above) = (
        whole(halo.left)? - window / 2,
        whole(halo.above)? - window / 2,
    );
    let axis = |corner: usize, by: i32, distance: usize| {
        let inside = parameters.pairs == Pairs::Inside;
        let first = if inside && by < 0 {
            corner + distance
        } else {
            corner
        };
        let second = if by < 0 {
            first - distance
        } else {
            first + distance
        };
        (
            first,
            second,
            if inside { window - distance } else { window },
        )
    };
    let (first_x, second_x, columns) = axis(left, offset.dx, along);
    let (first_y, second_y, rows) = axis(above, offset.dy, down);
    Ok(Geometry::new(
        (first_x, first_y),
        (second_x, second_y),
        columns,
        rows,
    ))
}

type Slide<L> = fn(Level, &mut Columns, Step<'_>, PairRow<'_, L>, Option<PairRow<'_, L>>);

/// How levels of a type are read.
#[derive(Clone, Copy)]
struct Reading<L> {
    slide: Slide<L>,
    encode: Encode<L>,
}

/// A histogram's codes: of each offset, or of all of them together.
struct Counted {
    margin: Margin,
    slots: Slots,
    numbering: Numbering,
    /// Those of an offset follow each other.
    codes: Vec<Codes>,
    histogram: Histogram,
    /// Instead of codes, where comparing is faster: of each offset.
    planes: Vec<Planes>,
    matches: Vec<Matches>,
}

impl Counted {
    /// For rows of so many windows, of which a band has so many.
    fn new(
        plan: &Plan,
        level: Level,
        (margin, slots): (Margin, Slots),
        (width, band): (usize, usize),
    ) -> Self {
        let kinds = margin.kinds(plan.parameters.symmetric);
        let size = |of: &Geometry| (width + of.columns - 1, band + of.rows - 1);
        let compared = plan.is_compared(level, margin);
        let planes = plan.geometry.iter().filter(|_| compared).map(|of| {
            let pairs = (of.columns, of.rows);
            Planes::new(plan.parameters.levels, size(of), pairs)
        });
        let compare = plan.geometry.iter().filter(|_| compared);
        let compare = compare.map(|of| Matches::new(width, of.columns, of.rows));
        let codes = plan.geometry.iter().filter(|_| !compared).flat_map(|of| {
            let (length, rows) = size(of);
            let code = move |kind: &Kind| Codes::new(*kind, length, rows, of.columns, of.rows);
            kinds.iter().map(code)
        });
        Self {
            margin,
            slots,
            numbering: Numbering::same(kinds[0], plan.parameters.levels),
            codes: codes.collect(),
            histogram: Histogram::default(),
            planes: planes.collect(),
            matches: compare.collect(),
        }
    }
}

/// A call.
struct Run<'a, L, A: Arithmetic> {
    plan: &'a Plan,
    level: Level,
    grid: Grid<'a, L>,
    width: usize,
    height: usize,
    wanted: Vec<Wanted>,
    columns: Vec<Columns>,
    counted: Vec<Counted>,
    /// Instead of histograms, and of columns where there are none.
    bins: Option<Bins>,
    /// With one row of windows of each offset, or of all of them together.
    maximal: Option<(Maximal, Vec<Rows<f64>>)>,
    /// What was counted, of the same.
    rows: Vec<Rows<A::Sum>>,
    scratch: Scratch<A>,
}

impl<'a, L: Grey, A: Arithmetic> Run<'a, L, A> {
    fn new(
        plan: &'a Plan,
        level: Level,
        grid: Grid<'a, L>,
        (width, height): (usize, usize),
    ) -> Self {
        let wanted = plan.wanted(grid.mask.is_some());
        let size = (width, BAND.min(height));
        let histograms = !plan.is_counted(level);
        let summed = histograms || !plan.has_moments_counted();
        let moments: &[Wanted] = if summed { &[] } else { &wanted };
        let rows = plan.quantities.rows() + moments.len();
        let bins = (!histograms).then(|| plan.bins(moments, size));
        let columns = plan.geometry.iter().filter(|_| summed);
        let columns = columns.map(|of| Columns::new(&wanted, width, of.columns));
        let margins = plan.quantities.margins().into_iter();
        let counted = margins.filter(|_| histograms);
        let counted =
            counted.map(|(margin, slots)| Counted::new(plan, level, (margin, slots), size));
        let maximal = plan.quantities.has(Quantity::MaximalCorrelation);
        Self {
            level,
            grid,
            width,
            height,
            columns: columns.collect(),
            counted: counted.collect(),
            bins,
            maximal: maximal.then(|| {
                let rows = (0..plan.together()).map(|_| Rows::new(1, width));
                (Maximal::default(), rows.collect())
            }),
            rows: (0..plan.together())
                .map(|_| Rows::new(rows, width))
                .collect(),
            scratch: Scratch::new(plan),
            wanted,
            plan,
        }
    }

    fn all(&mut self, reading: Reading<L>, outputs: &mut [&mut [f32]]) {
        let plan = self.plan;
        let offsets = plan.geometry.len();
        for y in 0..self.height {
            if y % BAND == 0 {
                self.fill(y, reading.encode);
            }
            for offset in 0..self.columns.len() {
                self.slide(offset, y, reading.slide);
            }
            if plan.parameters.combine == Combine::Sum {
                self.count(0..offsets, y % BAND, y);
            } else {
                for offset in 0..offsets {
                    self.count(offset..offset + 1, y % BAND, y);
                }
            }
            let all = Finish {
                plan,
                wanted: &self.wanted,
                columns: &self.columns,
                rows: &self.rows,
                maximal: self.maximal.as_ref().map_or(&[], |(_, rows)| &rows[..]),
                masked: self.grid.mask.is_some(),
                width: self.width,
            };
            A::finish(self.level, &all, &mut self.scratch, y, outputs);
        }
    }

    /// Takes the codes of the band that begins with this row.
    fn fill(&mut self, y: usize, encode: Encode<L>) {
        let plan = self.plan;
        let (grid, width) = (self.grid, self.width);
        let levels = plan.parameters.levels;
        let band = BAND.min(self.height - y);
        let rows = |of: &'a Geometry| {
            (y..y + band + of.rows - 1).map(move |row| of.row(&grid, row, width))
        };
        if let Some(bins) = &mut self.bins {
            for (offset, of) in plan.geometry.iter().enumerate() {
                bins.fill((self.level, encode), offset, rows(of));
            }
        }
        for counted in &mut self.counted {
            for (planes, of) in counted.planes.iter_mut().zip(&plan.geometry) {
                planes.fill(rows(of));
            }
            counted.matches.iter_mut().for_each(Matches::begin);
            if !counted.planes.is_empty() {
                continue;
            }
            let kinds = counted.margin.kinds(plan.parameters.symmetric);
            if kinds[0].codes(levels) > MOST_BINS {
                let all = plan.geometry.iter().flat_map(rows);
                let empty = Numbering::same(kinds[0], 2);
                let before = std::mem::replace(&mut counted.numbering, empty).into_codes();
                counted.numbering = Numbering::find(kinds[0], levels, all, before);
            }
            let most = plan.logarithms.of.len() - 1;
            counted.histogram.reserve(counted.numbering.bins(), most);
            for (place, codes) in counted.codes.iter_mut().enumerate() {
                let of = &plan.geometry[place / kinds.len()];
                codes.fill(levels, rows(of), &counted.numbering);
            }
        }
    }

    /// The running sums of an offset.
    fn slide(&mut self, offset: usize, y: usize, slide: Slide<L>) {
        let of = &self.plan.geometry[offset];
        let step = Step {
            wanted: &self.wanted,
            fraction: self.plan.fraction,
            level: self.level,
            inverses: &self.plan.inverses,
        };
        let (grid, width) = (self.grid, self.width);
        let row = |row: usize| of.row(&grid, row, width);
        let columns = &mut self.columns[offset];
        if y == 0 {
            for before in 0..of.rows - 1 {
                slide(self.level, columns, step, row(before), None);
            }
        }
        let old = y.checked_sub(1).map(row);
        slide(self.level, columns, step, row(y + of.rows - 1), old);
    }

    /// The histograms of some offsets together. They go to the rows of the first one.
    fn count(&mut self, offsets: std::ops::Range<usize>, row: usize, y: usize) {
        let plan = self.plan;
        let rows = &mut self.rows[offsets.start];
        if let Some(bins) = &mut self.bins {
            let counter = (offsets.start, row);
            bins.run(self.level, counter, &plan.logarithms.weighed, rows);
        }
        for counted in &mut self.counted {
            if !counted.planes.is_empty() {
                let height = BAND.min(self.height - (y - row));
                let among = &counted.planes[offsets.clone()];
                let matches = counted.matches[offsets.clone()].iter_mut();
                for (order, (matches, planes)) in matches.zip(among).enumerate() {
                    let to = (counted.slots, &mut *rows, order > 0);
                    let band = (row, height);
                    matches.run(self.level, (planes, among), band, &plan.logarithms, to);
                }
                continue;
            }
            let growth = &plan.logarithms.growth;
            let kinds = counted.margin.kinds(plan.parameters.symmetric).len();
            let codes = &counted.codes[offsets.start * kinds..offsets.end * kinds];
            let number = (&counted.numbering, &growth[..]);
            let slots = counted.slots;
            counted.histogram.run(codes, number, row, slots, rows);
        }
        if let Some((maximal, rows)) = &mut self.maximal {
            let to = rows[offsets.start].row_mut(0);
            let symmetric = plan.parameters.symmetric;
            maximal.run(&self.grid, &plan.geometry[offsets], y, symmetric, to);
        }
    }
}
