//! What a file that is written will be: its tiles, how they are encoded, and its directories.
//!
//! The directories lie at the front. Their length depends on the numbers of tiles and bands alone, so that
//! their room is known before any tile is, and a reader over a network finds all of them in its first
//! request. This is not the whole of the layout that is called cloud-optimised: there the smallest overview
//! lies before the larger ones and the image itself last, which cannot be written without a second copy,
//! because overviews are made of the image.

use pipt_raster::{Info, Rect, SampleType, Size};

use crate::encode::{self, Tile};
use crate::error::TiffError;
use crate::layout::{MAX_CHUNKS, Predictor};
use crate::metadata::{self, Scale};
use crate::tag::{FieldType, Tag, number as n};

/// Larger tiles are not written, bytes.
pub const MAX_TILE_BYTES: u64 = 1 << 30;

/// How tiles are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    /// Level 1 to 12.
    Deflate(i32),
    /// Level 1 to 22.
    Zstd(i32),
    Lzw,
}

/// Where the samples of a pixel's bands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// Each band has tiles of its own: it can be written and read without the others.
    Planar,
    /// One beside the other.
    Chunky,
}

/// Choice of the predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predict {
    /// None where nothing is compressed, else differences; of floats those of their bytes.
    Auto,
    Is(Predictor),
}

/// Choice of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Big {
    /// BigTIFF, if the file may become larger than 4 GiB.
    Auto,
    Always,
    Never,
}

/// How a smaller image is made of a larger one, two by two pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The upper left pixel of each four.
    Nearest,
    /// The mean of those of the four that have data, rounded to even. It is computed in `f64`, which holds
    /// integers of 64 bits only up to 2^53.
    Average,
}

/// How to write a file.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Multiples of 16.
    pub tile: Size,
    pub compression: Compression,
    pub predict: Predict,
    pub interleave: Interleave,
    pub big: Big,
    /// Smaller copies of the image behind it, each half as large as the one before, down to one tile.
    pub overviews: Option<Reduce>,
    /// Meaning of the samples: 1 for grey (0 is black) and for features, 2 for red, green and blue.
    pub photometric: u16,
    /// Of each band, what its samples stand for; empty: themselves.
    pub scales: Vec<Scale>,
    /// Further tags; those that this crate writes by itself are refused.
    pub tags: Vec<Tag>,
    /// Encoded tiles that may wait for those before them.
    pub waiting: u64,
    /// Threads that make the overviews.
    pub threads: usize,
    /// Keeps a journal, and the file when it is not finished, so that it can be taken up again.
    pub resumable: bool,
    /// The file has some of its tiles alone, in the order in which they come: others are in other files. It has no
    /// overviews.
    pub sparse: bool,
    /// Tells jobs apart that write the same kind of file: a file is only resumed by its own.
    pub identity: u64,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            tile: Size::new(512, 512),
            compression: Compression::Zstd(3),
            predict: Predict::Auto,
            interleave: Interleave::Planar,
            big: Big::Auto,
            overviews: None,
            photometric: 1,
            scales: Vec::new(),
            tags: Vec::new(),
            waiting: 64,
            threads: 1,
            resumable: false,
            sparse: false,
            identity: 0,
        }
    }
}

/// The image, or one of its overviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub size: Size,
    /// Tiles across and down.
    pub across: u64,
    pub down: u64,
    /// The number of its first tile.
    pub first: u64,
}

/// What a file will be.
///
/// Tiles are numbered in the order in which they lie in the file: by level, row, column, and last, if each
/// band has its own, by band: what computes all bands of a place can give them one after the other.
#[derive(Clone, Debug)]
pub struct Design {
    info: Info,
    pub(crate) options: WriteOptions,
    pub(crate) levels: Vec<Level>,
    pub(crate) predictor: Predictor,
    tags: Vec<Tag>,
    big: bool,
}

/// One tile of a file that will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileAt {
    /// 0 is the image itself.
    pub level: usize,
    /// The band; 0, if tiles hold all of them.
    pub band: u32,
    /// Which part of the level it is; tiles at the right and lower edge are cut there.
    pub rect: Rect,
}

fn design(problem: impl Into<String>) -> TiffError {
    TiffError::Design {
        problem: problem.into(),
    }
}

impl Design {
    /// Of an image of `info`'s size, bands, type, names and value for no data.
    ///
    /// # Errors
    ///
    /// The options do not fit together, or a limit is exceeded.
    pub fn new(info: &Info, options: WriteOptions) -> Result<Self, TiffError> {
        check(info, &options)?;
        let planes = match options.interleave {
            Interleave::Planar => u64::from(info.bands),
            Interleave::Chunky => 1,
        };
        let (mut levels, mut first, mut size) = (Vec::new(), 0, info.size);
        loop {
            let across = u64::from(size.width.div_ceil(options.tile.width));
            let down = u64::from(size.height.div_ceil(options.tile.height));
            levels.push(Level {
                size,
                across,
                down,
                first,
            });
            let tiles = across.saturating_mul(down).saturating_mul(planes);
            first = first.saturating_add(tiles);
            if first > MAX_CHUNKS {
                return Err(TiffError::Limit {
                    what: "The number of tiles".to_owned(),
                    is: first,
                    most: MAX_CHUNKS,
                });
            }
            if options.overviews.is_none() || across * down == 1 {
                break;
            }
            size = Size::new(size.width.div_ceil(2), size.height.div_ceil(2));
        }
        let mut design = Self {
            predictor: predictor(info.kind, &options)?,
            tags: tags(info, &options)?,
            info: info.clone(),
            options,
            levels,
            big: true,
        };
        let most = design.begin() + design.tiles() * design.most_of_a_tile();
        let fits = most <= u64::from(u32::MAX);
        design.big = match design.options.big {
            Big::Auto => !fits,
            Big::Always => true,
            Big::Never if fits => false,
            Big::Never => {
                return Err(TiffError::Design {
                    problem: format!("it may have {most} bytes, which needs a BigTIFF"),
                });
            }
        };
        Ok(design)
    }

    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    #[must_use]
    pub fn is_big(&self) -> bool {
        self.big
    }

    /// The image and its overviews.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Planes of tiles: bands, if each has its own.
    #[must_use]
    pub fn planes(&self) -> u64 {
        match self.options.interleave {
            Interleave::Planar => self.info.bands.into(),
            Interleave::Chunky => 1,
        }
    }

    /// All tiles, with those of overviews.
    #[must_use]
    pub fn tiles(&self) -> u64 {
        let last = self.levels.last();
        last.map_or(0, |level| level.first + self.tiles_of(level))
    }

    fn tiles_of(&self, level: &Level) -> u64 {
        level.across * level.down * self.planes()
    }

    /// The tiles that the caller gives: those of the image itself.
    #[must_use]
    pub fn tiles_to_give(&self) -> u64 {
        self.levels.first().map_or(0, |level| self.tiles_of(level))
    }

    /// Which part of the image a tile is.
    #[must_use]
    pub fn tile(&self, number: u64) -> Option<TileAt> {
        if number >= self.tiles() {
            return None;
        }
        let after = self.levels.partition_point(|level| level.first <= number);
        let level = self.levels.get(after - 1)?;
        let (place, plane) = (
            (number - level.first) / self.planes(),
            (number - level.first) % self.planes(),
        );
        let (row, column) = (place / level.across, place % level.across);
        let tile = self.options.tile;
        let begin = |at: u64, extent: u32| u32::try_from(at * u64::from(extent)).ok();
        let (x, y) = (begin(column, tile.width)?, begin(row, tile.height)?);
        Some(TileAt {
            level: after - 1,
            band: u32::try_from(plane).ok()?,
            rect: Rect::new(
                x,
                y,
                tile.width.min(level.size.width - x),
                tile.height.min(level.size.height - y),
            ),
        })
    }

    /// Bands of one tile.
    #[must_use]
    pub fn bands_of_tile(&self) -> u32 {
        match self.options.interleave {
            Interleave::Planar => 1,
            Interleave::Chunky => self.info.bands,
        }
    }

    /// Bytes of a tile before it is compressed.
    #[must_use]
    pub fn tile_bytes(&self) -> u64 {
        let sample = self.info.kind.bytes() as u64;
        self.options.tile.pixels() * u64::from(self.bands_of_tile()) * sample
    }

    /// No encoded tile is larger. LZW has the worst case: 12 bits for a byte.
    #[must_use]
    pub fn most_of_a_tile(&self) -> u64 {
        let bytes = self.tile_bytes();
        match self.options.compression {
            Compression::None => bytes,
            _ => bytes + bytes / 2 + 1024,
        }
    }

    /// Encodes a tile: the same samples give the same bytes, on every machine. `bands` are the samples of
    /// the tile's rectangle ([`Self::tile`]): of its band, or of all bands if tiles hold all of them.
    ///
    /// # Errors
    ///
    /// There is no such tile, or the samples are not as many, or not of the type, that it needs.
    pub fn encode_tile(
        &self,
        number: u64,
        bands: &[pipt_raster::Samples],
    ) -> Result<Vec<u8>, TiffError> {
        let bad = |problem: String| TiffError::Tile {
            tile: number,
            problem,
        };
        let at = self.tile(number);
        let at = at.ok_or_else(|| bad(format!("the file has {} tiles", self.tiles())))?;
        if bands.len() != self.bands_of_tile() as usize {
            let (has, needs) = (bands.len(), self.bands_of_tile());
            return Err(bad(format!("{has} bands were given, and it has {needs}")));
        }
        for band in bands {
            let (has, needs) = (band.len() as u64, at.rect.pixels());
            if band.kind() != self.info.kind || has != needs {
                let (kind, wanted) = (band.kind(), self.info.kind);
                return Err(bad(format!(
                    "{has} samples of the type {kind} were given, and it has {needs} of {wanted}"
                )));
            }
        }
        let tile = Tile {
            size: self.options.tile,
            part: at.rect.size(),
            predictor: self.predictor,
            compression: self.options.compression,
        };
        encode::tile(tile, bands).map_err(bad)
    }

    /// Where a tile of an uncompressed file lies, so that anyone can write it: its first byte. All are
    /// [`Self::tile_bytes`] long.
    #[must_use]
    pub fn fixed_place(&self, number: u64) -> Option<u64> {
        let fixed = self.options.compression == Compression::None && number < self.tiles();
        fixed.then(|| self.begin() + number * self.tile_bytes())
    }

    /// Where the first tile begins.
    #[must_use]
    pub fn begin(&self) -> u64 {
        let none = |_| (0, 0);
        (self.front(none).len() as u64).next_multiple_of(16)
    }

    /// The header and all directories. `place` tells where the tile of a number begins, and how long it is.
    pub fn front(&self, place: impl Fn(u64) -> (u64, u64)) -> Vec<u8> {
        let mut front = match self.big {
            true => [&b"II"[..], &[43, 0, 8, 0, 0, 0], &16_u64.to_le_bytes()].concat(),
            false => [&b"II"[..], &[42, 0], &8_u32.to_le_bytes()].concat(),
        };
        for number in 0..self.levels.len() {
            let tags = self.tags_of(number, &place);
            let is_last = number + 1 == self.levels.len();
            append(&mut front, &tags, self.big, is_last);
        }
        front
    }

    fn tags_of(&self, number: usize, place: &impl Fn(u64) -> (u64, u64)) -> Vec<Tag> {
        let level = self.levels[number];
        let planes = self.planes();
        let of_plane = level.across * level.down;
        // A file has all tiles of a plane before those of the next one.
        let order = (0..planes)
            .flat_map(|plane| (0..of_plane).map(move |tile| level.first + tile * planes + plane));
        let (offsets, lengths): (Vec<u64>, Vec<u64>) = order.map(place).unzip();
        let low = |values: Vec<u64>| -> Vec<u32> {
            let values = values.into_iter();
            values
                .map(|value| u32::try_from(value).unwrap_or(u32::MAX))
                .collect()
        };
        let mut tags = vec![
            Tag::longs(n::NEW_SUBFILE_TYPE, &[u32::from(number > 0)]),
            Tag::longs(n::IMAGE_WIDTH, &[level.size.width]),
            Tag::longs(n::IMAGE_LENGTH, &[level.size.height]),
            match self.big {
                true => Tag::longs8(n::TILE_OFFSETS, &offsets),
                false => Tag::longs(n::TILE_OFFSETS, &low(offsets)),
            },
            Tag::longs(n::TILE_BYTE_COUNTS, &low(lengths)),
        ];
        let format = self.format_tags();
        tags.extend(format);
        let of_all = |tag: &&Tag| number == 0 || tag.number == n::GDAL_NODATA;
        tags.extend(self.tags.iter().filter(of_all).cloned());
        tags.sort_by_key(|tag| tag.number);
        tags
    }

    /// What all levels have in common.
    fn format_tags(&self) -> Vec<Tag> {
        let bands = self.info.bands as usize;
        let kind = self.info.kind;
        let bits = u16::try_from(8 * kind.bytes()).unwrap_or(0);
        let format = match kind {
            SampleType::F32 | SampleType::F64 => 3,
            SampleType::I8 | SampleType::I16 | SampleType::I32 | SampleType::I64 => 2,
            _ => 1,
        };
        let compression = match self.options.compression {
            Compression::None => 1,
            Compression::Deflate(_) => 8,
            Compression::Zstd(_) => 50000,
            Compression::Lzw => 5,
        };
        let predictor = match self.predictor {
            Predictor::None => 1,
            Predictor::Horizontal => 2,
            Predictor::Float => 3,
        };
        let planar = match self.options.interleave {
            Interleave::Planar => 2,
            Interleave::Chunky => 1,
        };
        let Size { width, height } = self.options.tile;
        let mut tags = vec![
            Tag::shorts(n::BITS_PER_SAMPLE, &vec![bits; bands]),
            Tag::shorts(n::COMPRESSION, &[compression]),
            Tag::shorts(n::PHOTOMETRIC, &[self.options.photometric]),
            Tag::shorts(
                n::SAMPLES_PER_PIXEL,
                &[u16::try_from(bands).unwrap_or(u16::MAX)],
            ),
            Tag::shorts(n::PLANAR_CONFIGURATION, &[planar]),
            Tag::shorts(n::PREDICTOR, &[predictor]),
            Tag::longs(n::TILE_WIDTH, &[width]),
            Tag::longs(n::TILE_LENGTH, &[height]),
            Tag::shorts(n::SAMPLE_FORMAT, &vec![format; bands]),
        ];
        let coloured = if self.options.photometric == 2 { 3 } else { 1 };
        if bands > coloured {
            tags.push(Tag::shorts(n::EXTRA_SAMPLES, &vec![0; bands - coloured]));
        }
        tags
    }
}

fn check(info: &Info, options: &WriteOptions) -> Result<(), TiffError> {
    let Size { width, height } = options.tile;
    if width == 0 || height == 0 || width % 16 != 0 || height % 16 != 0 {
        return Err(design(format!(
            "tiles are to be {width} x {height}, and must be multiples of 16"
        )));
    }
    if info.bands == 0 || info.bands > u16::MAX.into() || info.size.pixels() == 0 {
        let (bands, size) = (info.bands, info.size);
        return Err(design(format!(
            "an image of {bands} bands and {size} pixels is none: there are 1 to 65535 bands"
        )));
    }
    let needed = if options.photometric == 2 { 3 } else { 1 };
    if info.bands < needed {
        return Err(design("an image of red, green and blue has three bands"));
    }
    if options.sparse && options.overviews.is_some() {
        return Err(design(
            "overviews need all tiles, and some are in other files: leave overviews out, or write one file",
        ));
    }
    if !options.scales.is_empty() && options.scales.len() != info.bands as usize {
        let (has, bands) = (options.scales.len(), info.bands);
        return Err(design(format!("{has} scales were given for {bands} bands")));
    }
    match options.compression {
        Compression::Deflate(level) if !(1..=12).contains(&level) => Err(design(format!(
            "Deflate has the levels 1 to 12, not {level}"
        ))),
        Compression::Zstd(level) if !(1..=22).contains(&level) => {
            Err(design(format!("ZSTD has the levels 1 to 22, not {level}")))
        }
        _ if options.waiting == 0 || options.threads == 0 => Err(design(
            "one tile must be able to wait, and one thread to work",
        )),
        _ => {
            let bands = match options.interleave {
                Interleave::Planar => 1,
                Interleave::Chunky => u64::from(info.bands),
            };
            let bytes = options
                .tile
                .pixels()
                .saturating_mul(bands * info.kind.bytes() as u64);
            match bytes > MAX_TILE_BYTES {
                true => Err(TiffError::Limit {
                    what: "The bytes of a tile".to_owned(),
                    is: bytes,
                    most: MAX_TILE_BYTES,
                }),
                false => Ok(()),
            }
        }
    }
}

fn predictor(kind: SampleType, options: &WriteOptions) -> Result<Predictor, TiffError> {
    match (options.predict, options.compression) {
        (Predict::Auto, Compression::None) => Ok(Predictor::None),
        (Predict::Auto, _) if kind.is_float() => Ok(Predictor::Float),
        (Predict::Auto, _) => Ok(Predictor::Horizontal),
        (Predict::Is(Predictor::Float), _) if !kind.is_float() => Err(design(format!(
            "{kind} is no float, and has no predictor of floats"
        ))),
        (Predict::Is(Predictor::None), _) => Ok(Predictor::None),
        // libtiff, too, applies predictors only where it compresses.
        (Predict::Is(_), Compression::None) => Err(design(
            "a predictor helps compression alone, and there is none",
        )),
        (Predict::Is(predictor), _) => Ok(predictor),
    }
}

/// The tags that the caller gives, and those of names, scales and no data.
fn tags(info: &Info, options: &WriteOptions) -> Result<Vec<Tag>, TiffError> {
    let own = [
        254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 338, 339,
    ];
    let mut tags = Vec::new();
    for tag in &options.tags {
        let length = tag.count.checked_mul(tag.kind.bytes() as u64);
        if own.contains(&tag.number) || length != Some(tag.bytes.len() as u64) {
            return Err(design(format!(
                "the tag {} is written by this crate itself, or its bytes are not as many as its values",
                tag.number
            )));
        }
        let own = [n::GDAL_METADATA, n::GDAL_NODATA];
        if !own.contains(&tag.number) {
            tags.push(tag.clone());
        }
    }
    let before = options
        .tags
        .iter()
        .find(|tag| tag.number == n::GDAL_METADATA);
    let before = before.and_then(Tag::as_text);
    if let Some(metadata) = metadata::with_bands(before.as_deref(), &info.names, &options.scales) {
        tags.push(Tag::text(n::GDAL_METADATA, &metadata));
    }
    if let Some(nodata) = info.nodata {
        let text = match nodata {
            value if value.is_nan() => "nan".to_owned(),
            value if value != 0.0 && !(1e-5..1e17).contains(&value.abs()) => format!("{value:e}"),
            value => value.to_string(),
        };
        tags.push(Tag::text(n::GDAL_NODATA, &text));
    }
    let kinds = tags.iter().map(|tag| (tag.kind, tag.number));
    for (kind, number) in kinds {
        let wide = matches!(
            kind,
            FieldType::Long8 | FieldType::SignedLong8 | FieldType::Ifd8
        );
        if wide && options.big != Big::Always {
            return Err(design(format!(
                "the tag {number} has values that only a BigTIFF holds: choose that"
            )));
        }
    }
    Ok(tags)
}

/// Appends a directory and the values that do not fit into it.
fn append(front: &mut Vec<u8>, tags: &[Tag], big: bool, is_last: bool) {
    let number = |value: u64, bytes: usize| value.to_le_bytes()[..bytes].to_vec();
    let (count, field) = if big { (8, 8) } else { (2, 4) };
    let entries = front.len() + count + tags.len() * (4 + 2 * field);
    let values_begin = entries + field;
    front.extend(number(tags.len() as u64, count));
    let mut values = Vec::new();
    for tag in tags {
        front.extend(tag.number.to_le_bytes());
        front.extend(tag.kind.code().to_le_bytes());
        front.extend(number(tag.count, field));
        if tag.bytes.len() <= field {
            let mut bytes = tag.bytes.clone();
            bytes.resize(field, 0);
            front.extend(bytes);
        } else {
            front.extend(number((values_begin + values.len()) as u64, field));
            values.extend(&tag.bytes);
            values.resize(values.len().next_multiple_of(8), 0);
        }
    }
    // The next directory begins at a multiple of 8 where this one does.
    let end = (values_begin + values.len()).next_multiple_of(8);
    values.resize(end - values_begin, 0);
    front.extend(number(if is_last { 0 } else { end as u64 }, field));
    front.extend(values);
}
