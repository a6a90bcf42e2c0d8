//! From a job to images that can be computed.

mod edges;
mod geometry;
mod given;
mod histogram;
mod look;
mod means;
mod orders;
mod points;
mod quantisers;
mod textures;
mod thresholds;
mod user;

use crate::execute::ExecuteError;
use crate::graph::{Graph, GraphError, Shape};
use crate::input::{Input, InputError, Wanted};
use crate::job::{From, Job};
use crate::kernel::KernelsError;
use crate::operation::{Edge, Noise};
use crate::parameter::Values;
use crate::ranks::{Team, TeamError};
use crate::routine::{Family, Routine};
use crate::stop::{Stop, Stoppable};
use pipt_raster::{Rect, SampleType, Size};
use pipt_simd::noise::{self, NoiseError};
use pipt_simd::rank::RankError;
use pipt_simd::{Level, texture};
use pipt_tiff::{Scale, Tag};
use std::fmt;

/// What a job needs of where it runs.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Ends passes over whole images.
    pub stop: &'a Stop,
    /// The file that `foreach` has come to.
    pub file: Option<&'a str>,
    /// Left, upper, right and lower end of the part of the images that is wanted.
    pub part: Option<[f64; 4]>,
    pub threads: usize,
    /// Bytes.
    pub memory: u64,
    pub level: Level,
    /// The ranks that look through images together.
    pub team: Option<&'a Team<'a>>,
}

/// The images of a job.
#[derive(Default)]
pub struct Assembled {
    pub graph: Graph,
    /// Of each image of the job.
    pub images: Vec<Image>,
    /// Grey levels and tables that are to be kept: the name of the file, as the job has it, and its text.
    pub texts: Vec<(String, String)>,
}

/// An image of a job, and what it has from the file that it is made of.
#[derive(Clone, Debug)]
pub struct Image {
    /// Of the graph.
    pub node: usize,
    pub tags: Vec<Tag>,
    /// Which part of the file's image it is, and how large that one is.
    pub part: (Rect, Size),
    /// The numbers of its bands, as noise counts them.
    bands: Vec<u32>,
    /// Whether some of its pixels may have no data, though no number stands for that in the file.
    pub has_holes: bool,
    /// What the samples of each band stand for; empty: themselves. Order statistics and noise leave it as it is.
    pub scales: Vec<Scale>,
    /// Of each band, between which numbers its samples can be, where that is known.
    pub bounds: Vec<Option<(f64, f64)>>,
}

/// Why a job cannot be done.
#[derive(Debug)]
pub enum AssembleError {
    Input(InputError),
    Graph(GraphError),
    Rank(RankError),
    Noise(NoiseError),
    Texture(texture::TextureError),
    Levels(texture::QuantiseError),
    /// The image could not be looked through for its range.
    Survey(ExecuteError),
    /// The file of thresholds, and what is wrong.
    Thresholds(String, String),
    /// All numbers of a type of floats are no range.
    NoRange,
    /// Floats have no bits of which something can be made.
    Bits(SampleType),
    /// The lower limit is above the upper one.
    Limits(f64, f64),
    /// The lower threshold of lines is above the higher one.
    Hysteresis(f64, f64),
    /// A kernel that cannot be: how it begins, and what is wrong.
    Kernel(String, String),
    User(KernelsError),
    /// What cannot be cut out or resampled.
    Geometry(String),
    /// The ranks of the job do not go on together.
    Team(TeamError),
}

impl fmt::Display for AssembleError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => write!(to, "{error}"),
            Self::Graph(error) => write!(to, "{error}"),
            Self::Rank(error) => write!(to, "{error}"),
            Self::Noise(error) => write!(to, "{error}"),
            Self::Texture(error) => write!(to, "{error}"),
            Self::Levels(error) => write!(to, "{error}"),
            Self::Survey(error) => write!(to, "The range of the image is not known: {error}"),
            Self::Thresholds(name, what) => write!(to, "The thresholds in {name} {what}"),
            Self::Bits(kind) => write!(
                to,
                "Bits are combined of whole numbers, and not of {kind}: make such numbers by Quantise, or leave type= out"
            ),
            Self::Limits(least, most) => write!(
                to,
                "least={least} is above most={most}: nothing lies between them"
            ),
            Self::Hysteresis(low, high) => write!(
                to,
                "low={low} is above high={high}: lines that begin would not go on"
            ),
            Self::Kernel(given, what) => write!(to, "kernel={given} cannot be: {what}"),
            Self::User(error) => write!(to, "{error}"),
            Self::Geometry(what) => write!(to, "{what}"),
            Self::Team(error) => write!(to, "{error}"),
            Self::NoRange => write!(
                to,
                "range=type is for whole numbers: give LEAST:MOST, minmax or quantiles for floats"
            ),
        }
    }
}

impl std::error::Error for AssembleError {}

/// Opens what a job reads, looks through it where that is needed, and puts its images together.
///
/// # Errors
///
/// A file cannot be read, or a routine cannot do what it is asked to.
pub fn assemble(job: &Job, setting: &Setting<'_>) -> Result<Assembled, AssembleError> {
    let mut all = Assembled::default();
    for image in &job.images {
        let next = match &image.from {
            From::File(input) => {
                let path = input.path.as_deref().or(setting.file).unwrap_or_default();
                all.read(path, &input.values, input.bands.as_deref(), setting)?
            }
            From::Routine {
                routine,
                images,
                values,
            } => all.make(routine, images, values, setting)?,
        };
        all.images.push(next);
    }
    Ok(all)
}

impl Assembled {
    fn read(
        &mut self,
        path: &str,
        values: &Values,
        bands: Option<&[u32]>,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        // An eighth of the memory for what is decoded and may be asked for again.
        let cache = usize::try_from(setting.memory / 8).unwrap_or(usize::MAX);
        let page = values
            .whole("page")
            .and_then(|page| usize::try_from(page).ok());
        let wanted = Wanted {
            page: page.unwrap_or(0),
            bands: bands.map(<[u32]>::to_vec),
            nodata: values.number("nodata"),
            part: setting.part,
            cache,
        };
        let mut input = Input::open(path, &wanted).map_err(AssembleError::Input)?;
        if let Some(mask) = values.word("mask") {
            let mask = Input::open(mask, &Wanted::default()).map_err(AssembleError::Input)?;
            input = input.masked(mask).map_err(AssembleError::Input)?;
        }
        let shape = input.shape();
        let count = u32::try_from(shape.bands.len()).unwrap_or(u32::MAX);
        let (tags, part, scales) = (input.tags(), input.part_of_file(), input.scales());
        let reading = Stoppable {
            reading: input,
            stop: setting.stop.clone(),
        };
        let bands = bands.map_or_else(|| (0..count).collect(), <[u32]>::to_vec);
        Ok(Image {
            bounds: vec![None; shape.bands.len()],
            node: self.graph.read(shape, Box::new(reading)),
            tags,
            part,
            bands,
            has_holes: values.word("mask").is_some(),
            scales,
        })
    }

    fn make(
        &mut self,
        routine: &Routine,
        images: &[usize],
        values: &Values,
        setting: &Setting<'_>,
    ) -> Result<Image, AssembleError> {
        let first = images.first().copied().unwrap_or_default();
        let of = self.images[first].clone();
        let shape = self.graph.shape(of.node).clone();
        match routine.family {
            Family::Texture => self.texture(routine, &of, values, setting),
            Family::Order | Family::Morphology => {
                let has_holes = of.has_holes || edge(values) == Edge::Nodata;
                let mut of = Image { has_holes, ..of };
                for order in orders::orders(routine, values)? {
                    of = self.same(of, shape.clone(), Box::new(order))?;
                }
                Ok(of)
            }
            Family::Means => self.means(routine, &of, values, setting),
            Family::Edges => self.edges(routine, &of, values, setting),
            Family::Points => {
                let images = images.iter().map(|image| self.images[*image].clone());
                let images: Vec<Image> = images.collect();
                self.points(routine, &images, values)
            }
            Family::Histogram => {
                let images: Vec<Image> = images
                    .iter()
                    .map(|image| self.images[*image].clone())
                    .collect();
                self.histogram(routine, &images, values, setting)
            }
            Family::User => self.user(&of, values),
            Family::Geometry => self.geometry(routine, &of, values, setting),
            Family::Noise => {
                let seed = values.whole("seed").unwrap_or(0);
                let noise = Noise::new(noise(routine, values), seed, of.part, of.bands.clone());
                let noise = noise.map_err(AssembleError::Noise)?;
                self.same(of, shape, Box::new(noise))
            }
        }
    }

    /// Adds an image of the same bands, whose samples stand for the same.
    fn same(
        &mut self,
        of: Image,
        shape: Shape,
        operation: Box<dyn crate::graph::Operation>,
    ) -> Result<Image, AssembleError> {
        let node = self
            .graph
            .make(&[of.node], shape, operation)
            .map_err(AssembleError::Graph)?;
        Ok(Image { node, ..of })
    }

    /// Adds an image of the same bands in samples of this type, which stand for themselves. Where its type is a float
    /// what has no data is NaN.
    fn other(
        &mut self,
        images: &[&Image],
        kind: SampleType,
        operation: Box<dyn crate::graph::Operation>,
    ) -> Result<Image, AssembleError> {
        let nodata = match kind.is_float() {
            true => Some(f64::NAN),
            false => self.graph.shape(images[0].node).nodata,
        };
        self.typed(images, (kind, nodata), operation)
    }

    /// The same in bytes of small numbers; where pixels may be missing 255 stands for that, as the number of the image
    /// it is made of may be one of these.
    fn flags(
        &mut self,
        images: &[&Image],
        operation: Box<dyn crate::graph::Operation>,
    ) -> Result<Image, AssembleError> {
        let misses = |image: &&Image| {
            let shape = self.graph.shape(image.node);
            image.has_holes || shape.nodata.is_some() || shape.kind.is_float()
        };
        let nodata = images.iter().any(misses).then_some(255.0);
        self.typed(images, (SampleType::U8, nodata), operation)
    }

    fn typed(
        &mut self,
        images: &[&Image],
        (kind, nodata): (SampleType, Option<f64>),
        operation: Box<dyn crate::graph::Operation>,
    ) -> Result<Image, AssembleError> {
        let nodes: Vec<usize> = images.iter().map(|image| image.node).collect();
        let of = images[0];
        let shape = self.graph.shape(of.node).clone();
        let bands = shape.bands.len();
        let shape = Shape {
            kind,
            nodata,
            ..shape
        };
        let node = self.graph.make(&nodes, shape, operation);
        Ok(Image {
            node: node.map_err(AssembleError::Graph)?,
            has_holes: images.iter().any(|image| image.has_holes),
            scales: Vec::new(),
            bounds: vec![None; bands],
            ..of.clone()
        })
    }
}

fn edge(values: &Values) -> Edge {
    match values.word("edge") {
        Some("mirror") => Edge::Mirror,
        Some("replicate") => Edge::Replicate,
        Some("constant") => Edge::Constant(values.number("value").unwrap_or(0.0)),
        Some("shrink") => Edge::Shrink,
        Some("nodata") => Edge::Nodata,
        _ => Edge::Reflect,
    }
}

fn noise(routine: &Routine, values: &Values) -> noise::Noise {
    let number = |name: &str| values.number(name).unwrap_or(0.0);
    let (mean, deviation) = (number("mean"), number("deviation"));
    match routine.name {
        "AddUniform" => noise::Noise::Uniform {
            minimum: number("least"),
            maximum: number("most"),
        },
        "AddBitError" => noise::Noise::BitError {
            probability: number("probability"),
        },
        "AddSaltPepper" => noise::Noise::SaltPepper {
            probability: number("probability"),
            salt: number("salt"),
            ends: values.range("ends"),
        },
        "AddLaplacian" => noise::Noise::Laplacian { mean, deviation },
        "AddSpeckle" => noise::Noise::Speckle { mean, deviation },
        _ => noise::Noise::Gaussian { mean, deviation },
    }
}
