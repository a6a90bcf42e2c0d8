//! Images that are written to files.

use crate::assemble::Image;
use crate::blocks::{Block, Grid, Tile};
use crate::execute::Sink;
use crate::graph::{Failure, Part, Shape, cut_samples};
use crate::input::causes;
use crate::parameter::Values;
use pipt_raster::{Info, Sample, SampleType, Samples, Size, each, of_type};
use pipt_tiff::design::{Big, Compression, Design, Interleave, Predict, Reduce, WriteOptions};
use pipt_tiff::writer::{self, Finished, Writer};
use pipt_tiff::{Scale, Tag, TiffError};
use std::fmt;
use std::path::{Path, PathBuf};

/// Levels of compression, if none is given; Deflate's go to 12.
const ZSTD: i32 = 3;
const DEFLATE: i32 = 6;
const DEFLATE_MOST: i32 = 12;

/// Why a file cannot be written.
#[derive(Debug)]
pub enum OutputError {
    /// It is there already.
    Exists(PathBuf),
    /// There is something else under its name: a directory, a device.
    NoFile(PathBuf),
    /// A text cannot be written.
    Text(PathBuf, std::io::Error),
    Tiff(PathBuf, Box<TiffError>),
    /// What an interrupted run has left cannot be removed.
    Part(PathBuf, std::io::Error),
    /// Pixels may have no data, and no number of the type stands for that.
    NoNodata(PathBuf, SampleType),
    /// `scale` wants numbers whose bounds are known.
    NoBounds(PathBuf),
}

impl fmt::Display for OutputError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => write!(
                to,
                "{} is there already: give another name, or --overwrite",
                path.display()
            ),
            Self::NoFile(path) => write!(
                to,
                "{} is a directory or a device, and no file: give another name",
                path.display()
            ),
            Self::Text(path, error) => write!(
                to,
                "{} cannot be written: {error}; look whether its directory is there, with room on its disk",
                path.display()
            ),
            Self::Tiff(path, error) => {
                write!(to, "{}: {}", path.display(), causes(error.as_ref()))
            }
            Self::Part(path, error) => {
                write!(to, "{} cannot be removed: {error}", path.display())
            }
            Self::NoNodata(path, kind) => write!(
                to,
                "{}: some of its pixels would have no data, and no number stands for that: give nodata= for what \
                 is read, a number of the type {kind}",
                path.display()
            ),
            Self::NoBounds(path) => write!(
                to,
                "{}: scale= is for texture features, between whose bounds it divides; Haralick correlations after OTB \
                 and ITK have none",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OutputError {}

/// How files are taken that are there, and whether work can go on after it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    pub overwrite: bool,
    pub resume: bool,
    pub threads: usize,
    /// Of what is done: work goes on only where the same was begun.
    pub identity: u64,
    /// The file has some of the tiles alone.
    pub sparse: bool,
}

/// What a file will be, and how its tiles are made: this needs no file, and can be done anywhere.
#[derive(Clone)]
pub struct Form {
    design: Design,
    path: PathBuf,
    kind: SampleType,
    /// What stands for no data.
    nodata: f64,
    scales: Option<Vec<Scale>>,
}

impl Form {
    /// # Errors
    ///
    /// No such file can be.
    pub fn new(
        path: &Path,
        shape: &Shape,
        image: &Image,
        values: &Values,
        manner: Manner,
    ) -> Result<Self, OutputError> {
        let of = |error| OutputError::Tiff(path.to_owned(), Box::new(error));
        let (kind, nodata, scales) = stored(path, shape, image, values)?;
        let tile = tile(values);
        let info = Info {
            size: shape.size,
            bands: u32::try_from(shape.bands.len()).unwrap_or(u32::MAX),
            kind,
            nodata,
            names: match shape.bands.iter().any(|name| !name.is_empty()) {
                true => shape.bands.clone(),
                false => Vec::new(),
            },
            grain: Size::new(tile, tile),
        };
        let mut options = options(values, image.tags.clone());
        options.threads = manner.threads;
        options.identity = manner.identity;
        options.sparse = manner.sparse;
        options.scales = scales.clone().unwrap_or_else(|| image.scales.clone());
        Ok(Self {
            design: Design::new(&info, options).map_err(of)?,
            path: path.to_owned(),
            kind,
            nodata: nodata.unwrap_or(0.0),
            scales,
        })
    }

    #[must_use]
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// What the samples of each band stand for, if they are scaled for this file.
    #[must_use]
    pub fn scales(&self) -> Option<&[Scale]> {
        self.scales.as_deref()
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tiles of a band of a block, encoded, in their order.
    ///
    /// # Errors
    ///
    /// They are not what the file has.
    pub fn encode(
        &self,
        grid: Grid,
        block: &Block,
        band: u32,
        part: &Part,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let samples = self.samples(band, part);
        let encode = |tile: Tile| {
            let number = tile.turn * self.design.planes() + u64::from(band);
            let cut = cut_samples(&samples, block.rect, tile.rect);
            Ok(self.design.encode_tile(number, &[cut])?)
        };
        grid.tiles(block).map(encode).collect()
    }

    /// The samples as the file has them.
    fn samples(&self, band: u32, part: &Part) -> Samples {
        match self
            .scales
            .as_ref()
            .and_then(|scales| scales.get(band as usize))
        {
            Some(scale) => {
                let nodata = self.nodata;
                of_type!(self.kind, T => scaled::<T>(part, *scale, nodata).into())
            }
            None => filled(part, self.nodata),
        }
    }
}

/// A file that is being written.
pub struct Output {
    pub form: Form,
    pub writer: Writer,
}

impl Output {
    /// # Errors
    ///
    /// The file cannot be made, or is there already.
    pub fn begin(form: Form, manner: Manner) -> Result<Self, OutputError> {
        let path = form.path();
        let of = |error| OutputError::Tiff(path.to_owned(), Box::new(error));
        let part = writer::part_of(path);
        // One with some tiles alone is finished before the others of its image are.
        let has_name = manner.sparse && path.exists() && writer::journal_of(path).exists();
        let is_begun = part.exists() || has_name;
        if !(manner.resume && has_name) {
            is_free(path, manner.overwrite)?;
        }
        if manner.overwrite && !manner.resume && part.exists() {
            std::fs::remove_file(&part).map_err(|error| OutputError::Part(part.clone(), error))?;
        }
        let design = form.design.clone();
        let writer = match manner.resume && is_begun {
            true => Writer::resume(path, design),
            false => Writer::create(path, design),
        };
        Ok(Self {
            writer: writer.map_err(of)?,
            form,
        })
    }

    /// The first place in the order of tiles that is not written.
    #[must_use]
    pub fn first_missing(&self) -> u64 {
        let design = self.writer.design();
        let missing = (0..design.tiles_to_give()).find(|number| !self.writer.is_done(*number));
        missing.unwrap_or(design.tiles_to_give()) / design.planes()
    }

    /// # Errors
    ///
    /// Tiles are missing, or the disk does not take it.
    pub fn finish(self) -> Result<Finished, OutputError> {
        self.writer
            .finish()
            .map_err(|error| OutputError::Tiff(self.form.path, Box::new(error)))
    }
}

/// The type of the samples in the file.
#[must_use]
pub fn kind(shape: &Shape, values: &Values) -> SampleType {
    match values.word("scale") {
        None => shape.kind,
        Some("i16") => SampleType::I16,
        Some(_) => SampleType::U16,
    }
}

/// What stands for no data in the file.
fn nodata(path: &Path, shape: &Shape, image: &Image) -> Result<Option<f64>, OutputError> {
    fn is_sample<T: Sample>(value: f64) -> bool {
        T::of_f64(value).to_f64() == value
    }
    let is_float = shape.kind.is_float();
    let fits = |value: &f64| match value.is_nan() {
        true => is_float,
        false => of_type!(shape.kind, T => is_sample::<T>(*value)),
    };
    match shape.nodata.filter(fits) {
        Some(value) => Ok(Some(value)),
        None if is_float => Ok(Some(f64::NAN)),
        None if image.has_holes => Err(OutputError::NoNodata(path.to_owned(), shape.kind)),
        None => Ok(shape.nodata),
    }
}

/// The type of the samples in the file, what stands for no data, and how they are scaled.
type Stored = (SampleType, Option<f64>, Option<Vec<Scale>>);

fn stored(
    path: &Path,
    shape: &Shape,
    image: &Image,
    values: &Values,
) -> Result<Stored, OutputError> {
    // One number is kept for what has no data.
    let (least, most, nodata) = match (values.word("scale"), kind(shape, values)) {
        (None, kind) => return Ok((kind, nodata(path, shape, image)?, None)),
        (_, SampleType::I16) => (-32_767.0, 32_767.0, -32_768.0),
        _ => (0.0, 65_534.0, 65_535.0),
    };
    let scale = |bounds: &Option<(f64, f64)>| {
        let (low, high) = (*bounds)?;
        let step = (high - low) / (most - least);
        Some(Scale {
            offset: low - least * step,
            step,
        })
    };
    let scales: Option<Vec<Scale>> = image.bounds.iter().map(scale).collect();
    let scales = scales.ok_or_else(|| OutputError::NoBounds(path.to_owned()))?;
    Ok((kind(shape, values), Some(nodata), Some(scales)))
}

/// Pixels to a side of a file's tiles.
#[must_use]
pub fn tile(values: &Values) -> u32 {
    let tile = values
        .whole("tile")
        .and_then(|tile| u32::try_from(tile).ok());
    tile.unwrap_or(512)
}

fn options(values: &Values, tags: Vec<Tag>) -> WriteOptions {
    let level = values
        .whole("level")
        .and_then(|level| i32::try_from(level).ok());
    let tile = tile(values);
    WriteOptions {
        tile: Size::new(tile, tile),
        compression: match values.word("compress") {
            Some("none") => Compression::None,
            Some("deflate") => Compression::Deflate(level.unwrap_or(DEFLATE).min(DEFLATE_MOST)),
            Some("lzw") => Compression::Lzw,
            _ => Compression::Zstd(level.unwrap_or(ZSTD)),
        },
        predict: Predict::Auto,
        interleave: Interleave::Planar,
        big: match values.word("bigtiff") {
            Some("yes") => Big::Always,
            Some("no") => Big::Never,
            _ => Big::Auto,
        },
        overviews: values.flag("overviews").then_some(Reduce::Average),
        tags,
        resumable: true,
        ..WriteOptions::default()
    }
}

fn scaled<T: Sample>(part: &Part, scale: Scale, nodata: f64) -> Vec<T> {
    let there = |place: usize| part.there.as_ref().is_none_or(|there| there[place]);
    let values = part.samples.to_f64().into_iter().enumerate();
    values
        .map(|(place, value)| match there(place) && !value.is_nan() {
            true => T::of_f64((value - scale.offset) / scale.step),
            false => T::of_f64(nodata),
        })
        .collect()
}

/// The samples with what stands for no data in the places of those that are not there.
fn filled(part: &Part, nodata: f64) -> Samples {
    fn fill<T: Sample>(values: &[T], there: &[bool], nodata: f64) -> Vec<T> {
        let nodata = T::of_f64(nodata);
        let all = values.iter().zip(there);
        all.map(|(value, there)| if *there { *value } else { nodata })
            .collect()
    }
    match &part.there {
        None => part.samples.clone(),
        Some(there) => each!(&part.samples, values => fill(values, there, nodata).into()),
    }
}

/// Whether a name can be given to a file.
///
/// # Errors
///
/// There is something under it that is not to be overwritten.
pub fn is_free(path: &Path, overwrite: bool) -> Result<(), OutputError> {
    match std::fs::metadata(path) {
        // Its last step would fail after all the work, or put a file in the place of a device.
        Ok(about) if !about.is_file() => Err(OutputError::NoFile(path.to_owned())),
        Ok(_) if !overwrite => Err(OutputError::Exists(path.to_owned())),
        _ => Ok(()),
    }
}

/// Writes a text, or leaves it if it is there already: so may work that goes on after it was interrupted.
///
/// # Errors
///
/// There is another file of this name, or it cannot be written.
pub fn text(path: &Path, text: &str, overwrite: bool) -> Result<(), OutputError> {
    let is_there = std::fs::metadata(path).is_ok_and(|about| about.len() == text.len() as u64)
        && std::fs::read(path).is_ok_and(|has| has == text.as_bytes());
    if is_there {
        return Ok(());
    }
    is_free(path, overwrite)?;
    // Nothing that is half written ever has the name; the directory is the same, so that it can be renamed.
    let part = writer::part_of(path);
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _gone = std::fs::remove_file(&part);
        OutputError::Text(path.to_owned(), error)
    })
}

/// Files that are written together.
pub struct Files {
    pub outputs: Vec<Output>,
    pub grid: Grid,
}

impl Sink for Files {
    /// The tiles of a band, in their order.
    type Ready = Vec<Vec<u8>>;

    fn ready(
        &self,
        image: usize,
        band: u32,
        block: &Block,
        part: Part,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        self.outputs[image]
            .form
            .encode(self.grid, block, band, &part)
    }

    fn keep(&self, block: &Block, ready: Vec<Vec<Vec<u8>>>) -> Result<(), Failure> {
        let forms = self.outputs.iter().map(|output| &output.form);
        for (output, number, bytes) in in_files(forms, self.grid, block, ready)? {
            let writer = &self.outputs[output].writer;
            if !writer.is_done(number) {
                writer.put(number, bytes)?;
            }
        }
        Ok(())
    }
}

/// The tiles of a block, which are there for each band of each output by itself, as they lie in the files: each with
/// its output and its number, the bands of one place together.
///
/// # Errors
///
/// There are fewer than the block has.
pub fn in_files<'a, T>(
    forms: impl Iterator<Item = &'a Form>,
    grid: Grid,
    block: &Block,
    ready: Vec<Vec<T>>,
) -> Result<Vec<(usize, u64, T)>, Failure> {
    let mut bands = ready.into_iter();
    let mut all = Vec::new();
    for (output, form) in forms.enumerate() {
        let planes = form.design().planes();
        let own = bands.by_ref().take(usize::try_from(planes)?);
        let mut own: Vec<_> = own.map(Vec::into_iter).collect();
        for place in grid.tiles(block) {
            for (band, tiles) in (0..).zip(&mut own) {
                let tile = tiles.next().ok_or("A tile is missing")?;
                all.push((output, place.turn * planes + band, tile));
            }
        }
    }
    Ok(all)
}
