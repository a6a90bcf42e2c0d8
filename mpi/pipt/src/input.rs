//! Images that are read from files.

use crate::graph::{Failure, Part, Reading, Shape};
use crate::place::{self, Affine};
use pipt_gdal::{Dataset, GdalError, LoadError};
use pipt_raster::{Info, Rect, Sample, Samples, Size, Source, each};
use pipt_tiff::tag::Tag;
use pipt_tiff::{ReadOptions, Scale, Tiff, TiffError};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// An opened file: our own reader where it knows the flavour, else GDAL's.
pub enum File {
    Tiff(Box<Tiff>),
    Gdal(Dataset),
}

/// What is to be read of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Of a file with several images, from 0.
    pub page: usize,
    /// From 0, in this order; None: all.
    pub bands: Option<Vec<u32>>,
    /// Instead of what the file says.
    pub nodata: Option<f64>,
    /// Left, upper, right and lower end of a part.
    pub part: Option<[f64; 4]>,
    /// Decoded samples that are kept, in bytes.
    pub cache: usize,
}

/// An image of a file.
pub struct Input {
    file: Arc<File>,
    name: String,
    bands: Vec<u32>,
    nodata: Option<f64>,
    part: Rect,
    mask: Option<Box<Input>>,
}

/// Why an image cannot be read.
#[derive(Debug)]
pub enum InputError {
    Tiff(String, Box<TiffError>),
    /// Neither our own reader nor GDAL's takes it.
    Neither(String, Box<TiffError>, Box<GdalError>),
    Gdal(GdalError),
    /// What is no file that our own reader takes, and why GDAL's is not there to be asked.
    NoGdal(String, LoadError),
    /// The file, the band that was asked for, from 1, and how many there are.
    NoBand(String, u32, u32),
    /// GDAL has other names for further images of a file.
    NoPage(String, usize),
    /// Nothing of the part lies in the image.
    NoPart(String, Size),
    /// The mask, its size, and the image's.
    MaskSize(String, Size, Size),
}

impl fmt::Display for InputError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tiff(name, error) => write!(to, "{name}: {}", causes(error.as_ref())),
            Self::Neither(name, tiff, gdal) => {
                write!(to, "{name}: {}; and {gdal}", causes(tiff.as_ref()))
            }
            Self::Gdal(error) => write!(to, "{error}"),
            Self::NoGdal(name, error) => match Path::new(name).exists() {
                true => write!(to, "{name} is no TIFF file. {error}"),
                false => write!(
                    to,
                    "There is no file {name}; or if it is an image that GDAL knows by this name: {error}"
                ),
            },
            Self::NoBand(name, band, bands) => {
                write!(to, "{name} has no band {band}: it has {bands}, from 1")
            }
            Self::NoPage(name, page) => write!(
                to,
                "{name} has no page {page} here: name the image as GDAL does (gdalinfo shows its \"subdatasets\")"
            ),
            Self::NoPart(name, size) => write!(
                to,
                "Nothing of {name}, which is {size}, lies in the part that is wanted: `pipt info` shows where \
                 it lies"
            ),
            Self::MaskSize(name, mask, image) => {
                write!(to, "The mask {name} is {mask}, and the image {image}")
            }
        }
    }
}

impl std::error::Error for InputError {}

/// An error with all that has led to it.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", causes(cause)),
        None => error.to_string(),
    }
}

impl File {
    /// # Errors
    ///
    /// Nobody can read it.
    pub fn open(name: &str, wanted: &Wanted) -> Result<Self, InputError> {
        let options = ReadOptions {
            page: wanted.page,
            cache_bytes: wanted.cache,
            ..ReadOptions::default()
        };
        // GDAL's own names are no files.
        let is_file = Path::new(name).is_file();
        match is_file.then(|| Tiff::open(Path::new(name), options)) {
            Some(Ok(tiff)) => Ok(Self::Tiff(Box::new(tiff))),
            Some(Err(error @ (TiffError::NotTiff { .. } | TiffError::Refused { .. }))) => {
                let opened = Self::by_gdal(name, wanted.page);
                opened.map_err(|gdal| match (error, gdal) {
                    // What GDAL says of it says it all.
                    (TiffError::NotTiff { .. }, other) => other,
                    (tiff, InputError::Gdal(gdal)) => {
                        InputError::Neither(name.to_owned(), Box::new(tiff), Box::new(gdal))
                    }
                    (_, other) => other,
                })
            }
            Some(Err(error)) => Err(InputError::Tiff(name.to_owned(), Box::new(error))),
            None => Self::by_gdal(name, wanted.page),
        }
    }

    fn by_gdal(name: &str, page: usize) -> Result<Self, InputError> {
        if page > 0 {
            return Err(InputError::NoPage(name.to_owned(), page));
        }
        let opened = Dataset::open(name).map(Self::Gdal);
        opened.map_err(|error| match error {
            GdalError::Load(error) => InputError::NoGdal(name.to_owned(), error),
            error => InputError::Gdal(error),
        })
    }

    #[must_use]
    pub fn info(&self) -> &Info {
        match self {
            Self::Tiff(tiff) => tiff.info(),
            Self::Gdal(dataset) => dataset.info(),
        }
    }

    /// The tags that an image that is made of this one should have too.
    #[must_use]
    pub fn tags(&self) -> Vec<Tag> {
        match self {
            Self::Tiff(tiff) => tiff.carried_tags(),
            Self::Gdal(dataset) => {
                let place = dataset.place().map(|bytes| {
                    let small = Tiff::of(Arc::new(bytes), ReadOptions::default());
                    small.map(|small| small.carried_tags()).unwrap_or_default()
                });
                place.unwrap_or_default()
            }
        }
    }

    /// What the samples of each band stand for, where a TIFF file says so; empty: themselves. They are
    /// worked on as they are.
    #[must_use]
    pub fn scales(&self) -> Vec<Scale> {
        match self {
            Self::Tiff(tiff) => tiff.scales(),
            Self::Gdal(_) => Vec::new(),
        }
    }

    /// `name` is the file's, for messages.
    fn read(&self, band: u32, rect: Rect, name: &str) -> Result<Samples, InputError> {
        match self {
            Self::Tiff(tiff) => {
                let read = tiff.read(band, rect);
                read.map_err(|error| InputError::Tiff(name.to_owned(), Box::new(error)))
            }
            Self::Gdal(dataset) => dataset.read(band, rect).map_err(InputError::Gdal),
        }
    }
}

impl Input {
    /// # Errors
    ///
    /// The file cannot be read, or it has not what is wanted of it.
    pub fn open(name: &str, wanted: &Wanted) -> Result<Self, InputError> {
        let file = File::open(name, wanted)?;
        let info = file.info();
        let bands = match &wanted.bands {
            Some(bands) => bands.clone(),
            None => (0..info.bands).collect(),
        };
        if let Some(band) = bands.iter().find(|band| **band >= info.bands) {
            return Err(InputError::NoBand(name.to_owned(), band + 1, info.bands));
        }
        let part = match wanted.part {
            None => info.size.rect(),
            Some(corners) => {
                let place = Affine::of(&file.tags());
                place::part(corners, place, info.size)
                    .ok_or_else(|| InputError::NoPart(name.to_owned(), info.size))?
            }
        };
        Ok(Self {
            nodata: wanted.nodata.or(info.nodata),
            file: Arc::new(file),
            name: name.to_owned(),
            bands,
            part,
            mask: None,
        })
    }

    /// Takes data off where the first band of another image is 0 or has no data.
    ///
    /// # Errors
    ///
    /// It is of another size.
    pub fn masked(mut self, mut mask: Self) -> Result<Self, InputError> {
        let (is, wanted) = (mask.file.info().size, self.file.info().size);
        if is != wanted {
            return Err(InputError::MaskSize(mask.name, is, wanted));
        }
        mask.part = self.part;
        self.mask = Some(Box::new(mask));
        Ok(self)
    }

    #[must_use]
    pub fn shape(&self) -> Shape {
        let info = self.file.info();
        let name = |band: &u32| {
            let name = info
                .names
                .get(*band as usize)
                .filter(|name| !name.is_empty());
            name.cloned().unwrap_or_else(|| match self.bands.len() {
                1 => String::new(),
                _ => format!("band {}", band + 1),
            })
        };
        Shape {
            size: self.part.size(),
            kind: info.kind,
            bands: self.bands.iter().map(name).collect(),
            nodata: self.nodata,
        }
    }

    /// What the samples of each band stand for; empty: themselves.
    #[must_use]
    pub fn scales(&self) -> Vec<Scale> {
        let all = self.file.scales();
        let own = self
            .bands
            .iter()
            .map(|band| all.get(*band as usize).copied());
        own.collect::<Option<_>>().unwrap_or_default()
    }

    /// Which part of the file's image it is.
    #[must_use]
    pub fn part_of_file(&self) -> (Rect, Size) {
        (self.part, self.file.info().size)
    }

    /// The tags that an image that is made of this one should have too.
    #[must_use]
    pub fn tags(&self) -> Vec<Tag> {
        place::tags_of_part(&self.file.tags(), self.part.x, self.part.y)
    }

    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    fn there(&self, samples: &Samples) -> Option<Vec<bool>> {
        let kind = samples.kind();
        let nodata = self.nodata;
        if nodata.is_none() && !kind.is_float() {
            return None;
        }
        let there = each!(samples, values => there(values, nodata));
        there.contains(&false).then_some(there)
    }
}

/// What is neither NaN nor the number that stands for no data.
fn there<T: Sample>(values: &[T], nodata: Option<f64>) -> Vec<bool> {
    // A number that no sample can be stands for nothing.
    let nodata = nodata.filter(|nodata| T::of_f64(*nodata).to_f64() == *nodata);
    let nodata = nodata.map(T::of_f64);
    values
        .iter()
        .map(|value| !value.is_nan() && Some(*value) != nodata)
        .collect()
}

impl Reading for Input {
    fn part(&self, band: u32, rect: Rect) -> Result<Part, Failure> {
        let number = *self
            .bands
            .get(band as usize)
            .ok_or("There is no such band")?;
        let of_file = Rect {
            x: rect.x + self.part.x,
            y: rect.y + self.part.y,
            ..rect
        };
        let samples = self.file.read(number, of_file, &self.name)?;
        let mut there = self.there(&samples);
        if let Some(mask) = &self.mask {
            let masked = mask.part(0, rect)?;
            let mut is_set = masked
                .samples
                .to_f64()
                .into_iter()
                .map(|value| value != 0.0)
                .collect::<Vec<_>>();
            for other in [&masked.there, &there].into_iter().flatten() {
                for (set, other) in is_set.iter_mut().zip(other) {
                    *set &= other;
                }
            }
            there = is_set.contains(&false).then_some(is_set);
        }
        Ok(Part { samples, there })
    }
}
