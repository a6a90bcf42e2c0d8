//! What is found from a whole image, and what its samples become by that.

use super::look::{Look, TILE, grid, through};
use super::quantisers::{extents, numbers, numbers_of, ranked};
use super::{AssembleError, Assembled, Image, Setting};
use crate::blocks::{Block, Grid};
use crate::execute::Sink;
use crate::graph::{Failure, Graph, Part, cut};
use crate::job::WRITE_TABLE;
use crate::operation::{Mapping, Rule, SquaredDifference};
use crate::parameter::{Value, Values};
use crate::routine::Routine;
use crate::survey::{Bins, Counts, Extent, Moments, Ranks};
use pipt_raster::SampleType;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

impl Assembled {
    pub(super) fn histogram(
        &mut self,
        routine: &Routine,
        images: &[Image],
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let of = images[0].clone();
        let kind = self.graph.shape(of.node).kind;
        let rules = match routine.name {
            "Histogram" => {
                let text = table(&self.graph, of.node, values, setting)?;
                return Ok(self.told(of, values, text));
            }
            "Stats" => {
                let text = self.stats(images, values, setting)?;
                return Ok(self.told(of, values, text));
            }
            "ContrastStretch" => stretch(&self.graph, of.node, values, setting)?,
            "HistMatch" => self.matched(images, values, setting)?,
            _ => {
                let to = range(values, "result", kind);
                let counts = counts(&self.graph, of.node, values, setting)?;
                let rule = |counts: &Counts| Rule::Table(counts.bins, counts.equalised(to));
                counts.iter().map(rule).collect()
            }
        };
        let shape = self.graph.shape(of.node).clone();
        // Samples no longer stand for what they stood for.
        let of = Image {
            scales: Vec::new(),
            bounds: vec![None; shape.bands.len()],
            ..of
        };
        self.same(of, shape, Box::new(Mapping(rules)))
    }

    fn told(&mut self, of: Image, values: &Values, text: String) -> Image {
        if let Some(name) = values.word(WRITE_TABLE) {
            self.texts.push((name.to_owned(), text));
        }
        of
    }

    fn matched(
        &self,
        images: &[Image],
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Vec<Rule>, AssembleError> {
        let of = counts(&self.graph, images[0].node, values, setting)?;
        let others = counts(&self.graph, images[1].node, values, setting)?;
        if others.len() != of.len() && others.len() != 1 {
            return Err(AssembleError::Graph(crate::graph::GraphError::Together(
                of.len(),
                others.len(),
            )));
        }
        let both = of.iter().zip(others.iter().cycle());
        let rule =
            |(counts, other): (&Counts, &Counts)| Rule::Table(counts.bins, counts.matched(other));
        Ok(both.map(rule).collect())
    }

    /// A line for each band.
    fn stats(
        &mut self,
        images: &[Image],
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<String, AssembleError> {
        let node = images[0].node;
        let extents = extents(&self.graph, node, setting)?;
        let moments = moments(&self.graph, node, setting)?;
        let shape = self.graph.shape(node).clone();
        let mut text = "band,count,missing,least,greatest,mean,deviation".to_owned();
        let squares = match images.get(1) {
            None => None,
            Some(other) => {
                text.push_str(",mean_squared_difference,peak_signal_to_noise_db");
                let other = self.other(
                    &[&images[0], other],
                    SampleType::F64,
                    Box::new(SquaredDifference),
                )?;
                Some(self::moments(&self.graph, other.node, setting)?)
            }
        };
        text.push('\n');
        let peak = values
            .number("peak")
            .or(numbers_of(shape.kind).map(|(_, most)| most));
        for (band, (extent, moments)) in extents.iter().zip(&moments).enumerate() {
            let Extent {
                least, greatest, ..
            } = *extent;
            let (least, greatest) = (least.unwrap_or(f64::NAN), greatest.unwrap_or(f64::NAN));
            let (count, deviation) = (moments.count, moments.deviation());
            let mean = if count == 0 { f64::NAN } else { moments.mean };
            let missing = shape.size.pixels() - count;
            let _ = write!(
                text,
                "{},{count},{missing},{least},{greatest},{mean},{deviation}",
                band + 1
            );
            if let Some(squares) = squares.as_ref().map(|squares| squares[band]) {
                let mean = if squares.count == 0 {
                    f64::NAN
                } else {
                    squares.mean
                };
                let peak = peak.unwrap_or(1.0);
                let _ = write!(text, ",{mean},{}", 10.0 * (peak * peak / mean).log10());
            }
            text.push('\n');
        }
        Ok(text)
    }
}

/// From which number to which: those given by this parameter, or all of the type.
pub(super) fn range(values: &Values, name: &str, kind: SampleType) -> (f64, f64) {
    let numbers = || numbers_of(kind).unwrap_or((0.0, 1.0));
    values.range(name).unwrap_or_else(numbers)
}

/// How often samples are, of each band.
fn counts(
    graph: &Graph,
    node: usize,
    values: &Values,
    setting: &Setting<'_>,
) -> Result<Vec<Counts>, AssembleError> {
    let shape = graph.shape(node);
    let bins = match Bins::numbers(shape.kind) {
        Some(bins) => vec![bins; shape.bands.len()],
        None => {
            let extents = extents(graph, node, setting)?;
            extents.iter().map(|extent| steps(extent, values)).collect()
        }
    };
    counted(graph, node, bins, setting)
}

fn steps(extent: &Extent, values: &Values) -> Bins {
    let (least, most) = extent.least.zip(extent.greatest).unwrap_or((0.0, 1.0));
    let count = values
        .whole("bins")
        .and_then(|bins| usize::try_from(bins).ok());
    Bins::Steps {
        least,
        // One number alone is in the first step.
        most: if least < most { most } else { least + 1.0 },
        count: count.unwrap_or(1 << 16),
    }
}

fn counted(
    graph: &Graph,
    node: usize,
    bins: Vec<Bins>,
    setting: &Setting<'_>,
) -> Result<Vec<Counts>, AssembleError> {
    let look = Look {
        all: Mutex::new(bins.into_iter().map(Counts::new).collect()),
        fresh: |counts: &Counts| Counts::new(counts.bins),
        take: |counts: &mut Counts, part: &Part| counts.take(&part.samples, part.there.as_deref()),
        join: |all: &mut Counts, one: &Counts| all.join(one),
    };
    look.through(graph, node, setting)?;
    Ok(look
        .all
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

/// A line for each band and step.
fn table(
    graph: &Graph,
    node: usize,
    values: &Values,
    setting: &Setting<'_>,
) -> Result<String, AssembleError> {
    let shape = graph.shape(node);
    let count = values
        .whole("bins")
        .and_then(|bins| usize::try_from(bins).ok());
    let count = count.unwrap_or(256);
    let of = |(least, most): (f64, f64)| Bins::Steps { least, most, count };
    let bins = match values.get("range") {
        Some(Value::Range(least, most)) => vec![of((*least, *most)); shape.bands.len()],
        Some(Value::Word(word)) if word == "type" => {
            let range = numbers_of(shape.kind).ok_or(AssembleError::NoRange)?;
            vec![of(range); shape.bands.len()]
        }
        _ => {
            let extents = extents(graph, node, setting)?;
            extents.iter().map(|extent| steps(extent, values)).collect()
        }
    };
    let mut text = "band,from,to,count\n".to_owned();
    for (band, counts) in (1..).zip(counted(graph, node, bins, setting)?) {
        for (bin, count) in counts.counts.iter().enumerate() {
            let (from, to) = (counts.bins.border(bin), counts.bins.border(bin + 1));
            let _ = writeln!(text, "{band},{from},{to},{count}");
        }
    }
    Ok(text)
}

fn stretch(
    graph: &Graph,
    node: usize,
    values: &Values,
    setting: &Setting<'_>,
) -> Result<Vec<Rule>, AssembleError> {
    let shape = graph.shape(node);
    let to = range(values, "result", shape.kind);
    let rule = |from: (f64, f64)| Rule::Line { from, to };
    if let Some(Value::Range(least, most)) = values.get("range") {
        return Ok((0..shape.bands.len())
            .map(|_| rule((*least, *most)))
            .collect());
    }
    let extents = extents(graph, node, setting)?;
    let percent = values.number("percent").unwrap_or(0.0);
    if percent == 0.0 {
        let of = |extent: &Extent| rule(extent.least.zip(extent.greatest).unwrap_or((0.0, 1.0)));
        return Ok(extents.iter().map(of).collect());
    }
    let ranks = extents.iter().map(|extent| {
        let last = extent.count.saturating_sub(1);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of all pixels"
        )]
        let below = (percent / 100.0 * last as f64) as u64;
        Ranks::new(shape.kind.bytes(), &[below, last - below.min(last)])
    });
    let found = ranked(graph, node, ranks.collect(), setting)?;
    let of = |ranks: &Ranks| {
        let mut found = numbers(shape.kind, ranks);
        rule((found.next().unwrap_or(0.0), found.next().unwrap_or(1.0)))
    };
    Ok(found.iter().map(of).collect())
}

/// Moments of each band: those of tiles, joined in the order of these, so that no digit depends on threads and blocks.
pub(super) fn moments(
    graph: &Graph,
    node: usize,
    setting: &Setting<'_>,
) -> Result<Vec<Moments>, AssembleError> {
    let measure = Measure {
        grid: grid(graph, node, TILE),
        tiles: Mutex::default(),
    };
    through(graph, measure.grid, node, setting, &measure)?;
    let mut all = vec![Moments::default(); graph.shape(node).bands.len()];
    let tiles = measure
        .tiles
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for bands in tiles.values() {
        let both = all.iter_mut().zip(bands);
        both.for_each(|(all, one)| all.join(one));
    }
    Ok(all)
}

struct Measure {
    grid: Grid,
    /// Of each tile and band.
    tiles: Mutex<BTreeMap<u64, Vec<Moments>>>,
}

impl Sink for Measure {
    /// Of each tile of the block.
    type Ready = Vec<Moments>;

    fn ready(&self, _: usize, _: u32, block: &Block, part: Part) -> Result<Vec<Moments>, Failure> {
        let tiles = self.grid.tiles(block).map(|tile| {
            let part = cut(&part, block.rect, tile.rect);
            Moments::of(&part.samples, part.there.as_deref())
        });
        Ok(tiles.collect())
    }

    fn keep(&self, block: &Block, ready: Vec<Vec<Moments>>) -> Result<(), Failure> {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, tile) in self.grid.tiles(block).enumerate() {
            let bands = ready.iter().map(|band| band[place]);
            tiles.insert(tile.turn, bands.collect());
        }
        Ok(())
    }
}
