//! Images that are computed from others, in parts.
//!
//! Each image of a job is a node: it is read, or an operation makes it of one or several others. A part of a node
//! asks for a part of what it is made of, usually larger by what the operation looks at around each pixel; so a
//! chain of operations needs no image in between, and memory for some parts alone.

use pipt_raster::rect::Halo;
use pipt_raster::{Rect, SampleType, Samples, Size, each};
use pipt_simd::Level;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Samples of a rectangle, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub samples: Samples,
    /// Of each sample whether there is data; None: all are there.
    pub there: Option<Vec<bool>>,
}

/// What is known of an image that can be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub size: Size,
    pub kind: SampleType,
    /// The names of its bands.
    pub bands: Vec<String>,
    pub nodata: Option<f64>,
}

/// What an operation is given: a part of a band, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    pub band: u32,
    pub part: &'a Part,
    /// The same part of the other images, in their order.
    pub others: &'a [&'a Part],
    /// Where the part lies: what was wanted and the halo around it, cut at the edges of the image.
    pub rect: Rect,
    /// What is to be computed.
    pub wanted: Rect,
    /// Of the whole image that the part is of.
    pub size: Size,
    pub level: Level,
}

/// Something that is done to each band of an image, or to those of several images together: an image of one band
/// goes with each band of the first.
pub trait Operation: Send + Sync {
    /// What it looks at around each pixel.
    fn halo(&self) -> Halo;

    /// The part of an image of this size that it makes a part of; another one than the halo says where pixels change
    /// their places.
    fn region(&self, wanted: Rect, of: Size) -> Rect {
        wanted.grown(self.halo(), of)
    }

    /// The largest part that it makes a part of this size of.
    fn reach(&self, wanted: Size) -> Size {
        wanted.grown(self.halo())
    }

    /// Bands that it makes of one.
    fn outputs(&self) -> usize;

    /// Bytes that it needs beside what it is given and gives, for so large a part of samples of this type.
    fn scratch(&self, wanted: Size, kind: SampleType) -> u64;

    /// The bands that it makes of one, of what is wanted.
    ///
    /// # Errors
    ///
    /// What it is given is nothing that it was made for.
    fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure>;
}

/// Reads bands of an image that is kept somewhere.
pub trait Reading: Send + Sync {
    /// # Errors
    ///
    /// It cannot be read.
    fn part(&self, band: u32, rect: Rect) -> Result<Part, Failure>;
}

/// Why a part cannot be computed.
pub type Failure = Box<dyn Error + Send + Sync>;

enum Origin {
    Reading(Box<dyn Reading>),
    Operation {
        inputs: Vec<usize>,
        operation: Box<dyn Operation>,
    },
}

struct Node {
    shape: Shape,
    origin: Origin,
}

/// The images of a job.
#[derive(Default)]
pub struct Graph {
    nodes: Vec<Node>,
}

/// There is no such node, or its shape does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphError {
    NoInput(usize),
    /// An operation makes so many bands of those of its input, and this many have names.
    Bands(usize, usize),
    /// Images that are to be taken together.
    Sizes(Size, Size),
    /// The same, and how many bands they have.
    Together(usize, usize),
}

impl fmt::Display for GraphError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInput(node) => write!(to, "There is no image {node} to compute another one of"),
            Self::Bands(made, named) => {
                write!(to, "{made} bands are made, and {named} have names")
            }
            Self::Sizes(one, other) => write!(
                to,
                "An image of {one} pixels and one of {other} cannot be taken together: cut or resample one of them"
            ),
            Self::Together(one, other) => write!(
                to,
                "An image of {one} bands and one of {other} cannot be taken together: the second has as many, or one"
            ),
        }
    }
}

impl Error for GraphError {}

impl Graph {
    /// Adds an image that is read; gives its number.
    pub fn read(&mut self, shape: Shape, reading: Box<dyn Reading>) -> usize {
        self.nodes.push(Node {
            shape,
            origin: Origin::Reading(reading),
        });
        self.nodes.len() - 1
    }

    /// Adds an image that is made of some that are there; gives its number.
    ///
    /// # Errors
    ///
    /// One is not there, they do not go together, or the shape has not as many bands as the operation makes.
    pub fn make(
        &mut self,
        inputs: &[usize],
        shape: Shape,
        operation: Box<dyn Operation>,
    ) -> Result<usize, GraphError> {
        let of = |input: &usize| self.nodes.get(*input).ok_or(GraphError::NoInput(*input));
        let shapes = inputs.iter().map(|input| Ok(&of(input)?.shape));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let (first, others) = shapes.split_first().ok_or(GraphError::NoInput(0))?;
        for other in others {
            let bands = (first.bands.len(), other.bands.len());
            if other.size != first.size {
                return Err(GraphError::Sizes(first.size, other.size));
            }
            if bands.1 != bands.0 && bands.1 != 1 {
                return Err(GraphError::Together(bands.0, bands.1));
            }
        }
        let made = first.bands.len() * operation.outputs();
        if made != shape.bands.len() {
            return Err(GraphError::Bands(made, shape.bands.len()));
        }
        self.nodes.push(Node {
            shape,
            origin: Origin::Operation {
                inputs: inputs.to_vec(),
                operation,
            },
        });
        Ok(self.nodes.len() - 1)
    }

    #[must_use]
    pub fn shape(&self, node: usize) -> &Shape {
        &self.nodes[node].shape
    }

    /// What has to be known of each node for the same of these to be computed: `of` says it of an operation's input,
    /// the image's number and what is wanted of what is made of it.
    fn reached<T: Copy>(
        &self,
        wanted: &[usize],
        known: T,
        of: impl Fn(&dyn Operation, usize, T) -> T,
        both: impl Fn(T, T) -> T,
    ) -> Vec<Option<T>> {
        let mut reached: Vec<Option<T>> = vec![None; self.nodes.len()];
        for node in wanted {
            reached[*node] = Some(known);
        }
        for (number, node) in self.nodes.iter().enumerate().rev() {
            let (Some(own), Origin::Operation { inputs, operation }) =
                (reached[number], &node.origin)
            else {
                continue;
            };
            for input in inputs {
                let more = of(operation.as_ref(), *input, own);
                reached[*input] = Some(reached[*input].map_or(more, |known| both(known, more)));
            }
        }
        reached
    }

    /// Computes a rectangle of these nodes together, with what they have in common computed once.
    #[must_use]
    pub fn at(&self, wanted: &[usize], rect: Rect, level: Level) -> At<'_> {
        let region = |operation: &dyn Operation, input: usize, wanted| {
            operation.region(wanted, self.nodes[input].shape.size)
        };
        At {
            graph: self,
            rects: self.reached(wanted, rect, region, Rect::around),
            rect,
            level,
            known: BTreeMap::new(),
        }
    }

    /// Bytes that a rectangle of these nodes takes while it is computed, at the most.
    #[must_use]
    pub fn memory(&self, wanted: &[usize], size: Size) -> u64 {
        let reach = |operation: &dyn Operation, _: usize, wanted| operation.reach(wanted);
        let sizes = self.reached(wanted, size, reach, larger);
        let mut bytes = 0;
        for (node, size) in self.nodes.iter().zip(sizes) {
            let Some(size) = size else {
                continue;
            };
            // One for the sample, and one for whether it is there.
            let sample = node.shape.kind.bytes() as u64 + 1;
            bytes += match &node.origin {
                Origin::Reading(_) => size.pixels() * sample,
                Origin::Operation { inputs, operation } => {
                    let made = size.pixels() * sample * operation.outputs() as u64;
                    let kinds = inputs.iter().map(|input| self.nodes[*input].shape.kind);
                    let scratch = kinds.map(|kind| operation.scratch(size, kind));
                    made + scratch.max().unwrap_or(0)
                }
            };
        }
        bytes
    }
}

fn larger(a: Size, b: Size) -> Size {
    Size::new(a.width.max(b.width), a.height.max(b.height))
}

/// A rectangle of some nodes, being computed.
pub struct At<'a> {
    graph: &'a Graph,
    /// Of each node what is needed of it.
    rects: Vec<Option<Rect>>,
    rect: Rect,
    level: Level,
    /// Of a node and a band of what it is made of: all bands that are made of that one, with the halo that
    /// others need.
    known: BTreeMap<(usize, u32), Arc<Vec<Part>>>,
}

impl At<'_> {
    /// A band of a node, in the rectangle.
    ///
    /// # Errors
    ///
    /// Something cannot be read or computed.
    pub fn band(&mut self, node: usize, band: u32) -> Result<Part, Failure> {
        let (parts, place) = self.made(node, band)?;
        Ok(cut(&parts[place], self.needed(node), self.rect))
    }

    /// Forgets what was computed of a band of a node: nobody asks for it any more.
    pub fn forget(&mut self, node: usize, band: u32) {
        let (from, _) = self.place(node, band);
        self.known.remove(&(node, from));
    }

    fn needed(&self, node: usize) -> Rect {
        self.rects[node].unwrap_or(self.rect)
    }

    /// The band that a band is made of, and its place among those that are made of that.
    fn place(&self, node: usize, band: u32) -> (u32, usize) {
        match &self.graph.nodes[node].origin {
            Origin::Reading(_) => (band, 0),
            Origin::Operation { operation, .. } => {
                let outputs = u32::try_from(operation.outputs())
                    .unwrap_or(u32::MAX)
                    .max(1);
                (band / outputs, (band % outputs) as usize)
            }
        }
    }

    fn made(&mut self, node: usize, band: u32) -> Result<(Arc<Vec<Part>>, usize), Failure> {
        let (from, place) = self.place(node, band);
        if let Some(parts) = self.known.get(&(node, from)) {
            return Ok((Arc::clone(parts), place));
        }
        let parts = match &self.graph.nodes[node].origin {
            Origin::Reading(reading) => vec![reading.part(from, self.needed(node))?],
            Origin::Operation { inputs, operation } => {
                self.run(node, from, inputs, operation.as_ref())?
            }
        };
        let parts = Arc::new(parts);
        self.known.insert((node, from), Arc::clone(&parts));
        Ok((parts, place))
    }

    fn run(
        &mut self,
        node: usize,
        band: u32,
        inputs: &[usize],
        operation: &dyn Operation,
    ) -> Result<Vec<Part>, Failure> {
        let wanted = self.needed(node);
        let mut parts = Vec::new();
        let (mut rect, mut size) = (wanted, self.graph.nodes[node].shape.size);
        for (order, input) in inputs.iter().enumerate() {
            let shape = &self.graph.nodes[*input].shape;
            let of = if shape.bands.len() > 1 { band } else { 0 };
            let (given, place) = self.made(*input, of)?;
            let (whole, own) = (self.needed(*input), operation.region(wanted, shape.size));
            if order == 0 {
                (rect, size) = (own, shape.size);
            }
            // Usually it is all of it; another operation may look further.
            let part = (own != whole).then(|| cut(&given[place], whole, own));
            parts.push((given, place, part));
        }
        let parts = parts.iter();
        let parts = parts.map(|(given, place, part)| part.as_ref().unwrap_or(&given[*place]));
        let parts: Vec<&Part> = parts.collect();
        let (part, others) = parts.split_first().ok_or("It is made of nothing")?;
        operation.run(&Given {
            band,
            part,
            others,
            rect,
            wanted,
            size,
            level: self.level,
        })
    }
}

/// Part of a part: `wanted` lies within `whole`.
#[must_use]
pub fn cut(part: &Part, whole: Rect, wanted: Rect) -> Part {
    if whole == wanted {
        return part.clone();
    }
    let samples = cut_samples(&part.samples, whole, wanted);
    let there = part.there.as_ref().map(|there| rows(there, whole, wanted));
    Part { samples, there }
}

/// The samples of a part: `wanted` lies within `whole`.
#[must_use]
pub fn cut_samples(samples: &Samples, whole: Rect, wanted: Rect) -> Samples {
    each!(samples, values => rows(values, whole, wanted).into())
}

fn rows<T: Copy>(values: &[T], whole: Rect, wanted: Rect) -> Vec<T> {
    let (right, above) = ((wanted.x - whole.x) as usize, (wanted.y - whole.y) as usize);
    let rows = values
        .chunks_exact((whole.width as usize).max(1))
        .skip(above);
    let rows = rows.take(wanted.height as usize);
    rows.flat_map(|row| &row[right..right + wanted.width as usize])
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SIZE: Size = Size::new(13, 9);

    struct Numbers(Arc<AtomicUsize>);

    fn number(x: u32, y: u32, band: u32) -> u64 {
        u64::from(x * 31 + y * 977 + band * 7) % 101
    }

    impl Reading for Numbers {
        fn part(&self, band: u32, rect: Rect) -> Result<Part, Failure> {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(rect.is_within(SIZE), "{rect}");
            let rows = rect.y..rect.y + rect.height;
            let columns = || rect.x..rect.x + rect.width;
            let all = rows.flat_map(|y| columns().map(move |x| number(x, y, band)));
            Ok(Part {
                samples: all.collect::<Vec<u64>>().into(),
                there: None,
            })
        }
    }

    /// The sum of so many columns to the left, and the pixel itself: two bands.
    struct Sum(u32);

    impl Operation for Sum {
        fn halo(&self) -> Halo {
            Halo {
                left: self.0,
                ..Halo::default()
            }
        }

        fn outputs(&self) -> usize {
            2
        }

        fn scratch(&self, _: Size, _: SampleType) -> u64 {
            0
        }

        fn run(&self, given: &Given<'_>) -> Result<Vec<Part>, Failure> {
            let Samples::U64(values) = &given.part.samples else {
                return Err("other samples".into());
            };
            let at = |x: u32, y: u32| {
                let (row, column) = ((y - given.rect.y) as usize, (x - given.rect.x) as usize);
                values[row * given.rect.width as usize + column]
            };
            let (mut sums, mut same) = (Vec::new(), Vec::new());
            let wanted = given.wanted;
            for y in wanted.y..wanted.y + wanted.height {
                for x in wanted.x..wanted.x + wanted.width {
                    sums.push(
                        (x.saturating_sub(self.0)..=x)
                            .map(|x| at(x, y))
                            .sum::<u64>(),
                    );
                    same.push(at(x, y));
                }
            }
            let part = |samples: Vec<u64>| Part {
                samples: samples.into(),
                there: None,
            };
            Ok(vec![part(sums), part(same)])
        }
    }

    fn shape(bands: usize) -> Shape {
        Shape {
            size: SIZE,
            kind: SampleType::U64,
            bands: vec![String::new(); bands],
            nodata: None,
        }
    }

    /// What is read twice over, and what is made of both.
    fn graph() -> (Graph, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let mut graph = Graph::default();
        graph.read(shape(2), Box::new(Numbers(Arc::clone(&read))));
        graph.make(&[0], shape(4), Box::new(Sum(2))).expect("sums");
        graph
            .make(&[1], shape(8), Box::new(Sum(3)))
            .expect("sums of sums");
        (graph, read)
    }

    fn whole(node: usize, band: u32) -> Vec<u64> {
        let (graph, _) = graph();
        let part = graph
            .at(&[node], SIZE.rect(), Level::Scalar)
            .band(node, band);
        match part.expect("a part").samples {
            Samples::U64(values) => values,
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn parts_are_what_the_whole_is_there(
            x in 0..SIZE.width, y in 0..SIZE.height, width in 1..9u32, height in 1..9u32,
            node in 0..3usize,
        ) {
            let rect = Rect::new(x, y, width, height).intersection(SIZE.rect());
            let (graph, _) = graph();
            let mut at = graph.at(&[0, 1, 2], rect, Level::Scalar);
            for band in 0..u32::try_from(graph.shape(node).bands.len()).expect("few") {
                let all: Samples = rows(&whole(node, band), SIZE.rect(), rect).into();
                prop_assert_eq!(&at.band(node, band).expect("a part").samples, &all);
            }
        }
    }

    #[test]
    fn what_several_need_is_computed_once() {
        let (graph, read) = graph();
        let mut at = graph.at(&[0, 1, 2], Rect::new(5, 2, 4, 4), Level::Scalar);
        for (node, bands) in [(2, 8), (1, 4), (0, 2)] {
            for band in 0..bands {
                at.band(node, band).expect("a part");
            }
        }
        assert_eq!(read.load(Ordering::Relaxed), 2);
        at.forget(0, 1);
        at.band(0, 1).expect("a part");
        assert_eq!(read.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn memory_is_that_of_parts_with_what_lies_around_them() {
        let (graph, _) = graph();
        let size = Size::new(10, 10);
        assert_eq!(graph.memory(&[0], size), 100 * 9);
        assert_eq!(graph.memory(&[2], size), (150 + 2 * 130 + 2 * 100) * 9);
        assert_eq!(graph.memory(&[], size), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (mut graph, _) = graph();
        let refused = graph.make(&[9], shape(1), Box::new(Sum(1)));
        assert_eq!(refused, Err(GraphError::NoInput(9)));
        assert_eq!(
            graph.make(&[0], shape(3), Box::new(Sum(1))),
            Err(GraphError::Bands(4, 3))
        );
    }
}
