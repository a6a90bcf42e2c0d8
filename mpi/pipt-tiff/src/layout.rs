//! How an image lies in its file: samples, chunks, and where each chunk is.

use pipt_raster::{SampleType, Size};

use crate::codec::Codec;
use crate::directory::{Directory, Header, Order};
use crate::error::{CHOOSE, TiffError};
use crate::tag::number as n;

/// More chunks than this are not taken: 64 TiB of 1 MiB each.
pub const MAX_CHUNKS: u64 = 1 << 26;

/// Uncompressed strips larger than this are read in parts, bytes.
const PART_BYTES: u64 = 1 << 22;

/// What to make of floats of 16 and 24 bits, which no machine type of ours holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Narrow {
    #[default]
    Refuse,
    /// Widens them to 32 bits, which changes no value.
    Widen,
}

/// What to make of complex numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Complex {
    #[default]
    Refuse,
    Magnitude,
    Real,
    Imaginary,
}

/// Samples as a file holds them, by their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    Unsigned(u32),
    Signed(u32),
    Float(u32),
    /// Pairs of floats; the bits are those of a pair.
    Complex(u32, Complex),
    /// Pairs of integers with a sign.
    ComplexInteger(u32, Complex),
}

impl Stored {
    /// Bits of a sample.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Unsigned(bits) | Self::Signed(bits) | Self::Float(bits) => bits,
            Self::Complex(bits, _) | Self::ComplexInteger(bits, _) => bits,
        }
    }

    /// What they are read as: the narrowest type that holds them.
    #[must_use]
    pub const fn kind(self) -> SampleType {
        match self {
            Self::Unsigned(..=8) => SampleType::U8,
            Self::Unsigned(..=16) => SampleType::U16,
            Self::Unsigned(..=32) => SampleType::U32,
            Self::Unsigned(_) => SampleType::U64,
            Self::Signed(..=8) => SampleType::I8,
            Self::Signed(..=16) => SampleType::I16,
            Self::Signed(..=32) => SampleType::I32,
            Self::Signed(_) => SampleType::I64,
            Self::Float(..=32) | Self::Complex(..=64, _) | Self::ComplexInteger(..=32, _) => {
                SampleType::F32
            }
            Self::Float(_) | Self::Complex(..) | Self::ComplexInteger(..) => SampleType::F64,
        }
    }
}

/// What was done to the samples before they were compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    None,
    /// Each sample is the difference to the one before in its row and band.
    Horizontal,
    /// Bytes of floats, sorted by their weight, and differences of those.
    Float,
}

/// How an image lies in its file.
#[derive(Clone, Debug)]
pub struct Layout {
    pub size: Size,
    pub bands: u32,
    /// Each band has chunks of its own.
    pub planar: bool,
    /// Chunks are tiles, which are all of one size; the lowest strip ends with the image.
    pub tiled: bool,
    pub chunk: Size,
    /// Chunks across and down.
    pub across: u64,
    pub down: u64,
    pub stored: Stored,
    pub order: Order,
    pub codec: Codec,
    pub predictor: Predictor,
    /// The first pixel of a byte is its lowest bit.
    pub reversed: bool,
    pub photometric: Option<u64>,
    offsets: Vec<u64>,
    counts: Vec<u64>,
    /// Rows of a strip as the file has it, of which chunks are parts.
    strip_rows: u64,
}

/// Where the bytes of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    /// Bytes from there that are the chunk's; none if it is not in the file.
    pub length: u64,
}

impl Layout {
    /// # Errors
    ///
    /// Tags are missing or contradict each other, the image is of a flavour that is not read, or exceeds a
    /// limit.
    pub fn of(
        directory: &Directory,
        header: Header,
        narrow: Narrow,
        complex: Complex,
        chunk_bytes: u64,
    ) -> Result<Self, TiffError> {
        let photometric = directory.number(n::PHOTOMETRIC)?;
        let bands = match directory.number(n::SAMPLES_PER_PIXEL)? {
            None => 1,
            Some(bands) => u32::try_from(bands.max(1))
                .ok()
                .filter(|bands| *bands <= u32::from(u16::MAX))
                .ok_or_else(|| directory.bad(n::SAMPLES_PER_PIXEL, "more than 65535 bands"))?,
        };
        let stored = stored(directory, narrow, complex)?;
        let codec = Codec::of(directory)?;
        let planar = directory.number(n::PLANAR_CONFIGURATION)? == Some(2) && bands > 1;
        let mut layout = Self {
            size: Size::new(
                directory.needed(n::IMAGE_WIDTH)?,
                directory.needed(n::IMAGE_LENGTH)?,
            ),
            bands,
            planar,
            tiled: directory.tag(n::TILE_WIDTH).is_some(),
            chunk: Size::new(0, 0),
            across: 0,
            down: 0,
            stored,
            order: header.order,
            predictor: predictor(directory, stored, &codec)?,
            codec,
            reversed: directory.number(n::FILL_ORDER)? == Some(2),
            photometric,
            offsets: Vec::new(),
            counts: Vec::new(),
            strip_rows: 0,
        };
        layout.refuse(directory)?;
        layout.divide(directory, chunk_bytes)?;
        layout.places(directory)?;
        layout.split();
        Ok(layout)
    }

    /// Flavours whose samples would come out as something else than the numbers of the image.
    fn refuse(&self, directory: &Directory) -> Result<(), TiffError> {
        let refused = |flavour: String| Err(TiffError::refused(directory.page, flavour));
        if directory.number(n::IMAGE_DEPTH)?.unwrap_or(1) > 1 {
            return refused("a volume (ImageDepth above 1)".to_owned());
        }
        let jpeg = matches!(self.codec, Codec::Jpeg { .. });
        // Without the tag it is 2 x 2. Where there is no chroma the tag means nothing, though some files have it, and
        // in JPEG the streams say it.
        let has_chroma = self.photometric == Some(6) && self.bands > 1;
        let subsampled = has_chroma && (self.planar || !jpeg) && {
            let by = directory.numbers(n::YCBCR_SUBSAMPLING)?;
            by.is_none_or(|by| by.iter().any(|by| *by != 1))
        };
        if subsampled && self.planar {
            return refused("YCbCr with subsampled chroma in planes".to_owned());
        }
        if subsampled {
            return refused("YCbCr with subsampled chroma, not in JPEG".to_owned());
        }
        let bits = self.stored.bits();
        let bytes = self.stored == Stored::Unsigned(8);
        let bands = self.bands_of_chunk();
        match self.codec {
            Codec::Jpeg { .. } if !bytes => refused(format!("JPEG with {bits} bits per sample")),
            Codec::Jpeg { .. } if ![1, 3, 4].contains(&bands) => {
                refused(format!("JPEG with {bands} bands"))
            }
            Codec::WebP if !bytes || !(3..=4).contains(&bands) => {
                refused(format!("WebP with {bands} bands of {bits} bits"))
            }
            Codec::Fax(_) if self.stored != Stored::Unsigned(1) || bands != 1 => refused(format!(
                "CCITT compression with {bands} bands of {bits} bits"
            )),
            _ => Ok(()),
        }
    }

    /// Bands that lie in one chunk, one beside the other.
    #[must_use]
    pub fn bands_of_chunk(&self) -> u32 {
        if self.planar { 1 } else { self.bands }
    }

    /// Bytes of a row of a chunk, uncompressed.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        let bits = u64::from(self.stored.bits()) * u64::from(self.bands_of_chunk());
        // 128 bits x 65535 bands x 2^32 columns stay below 2^64.
        (bits * u64::from(self.chunk.width)).div_ceil(8)
    }

    fn divide(&mut self, directory: &Directory, chunk_bytes: u64) -> Result<(), TiffError> {
        let size = self.size;
        self.chunk = if self.tiled {
            let (width, height) = (n::TILE_WIDTH, n::TILE_LENGTH);
            Size::new(directory.needed(width)?, directory.needed(height)?)
        } else {
            let rows = directory
                .number(n::ROWS_PER_STRIP)?
                .filter(|rows| *rows > 0);
            let rows = u32::try_from(rows.unwrap_or(u64::MAX)).unwrap_or(u32::MAX);
            Size::new(size.width, rows.min(size.height))
        };
        self.across = u64::from(size.width.div_ceil(self.chunk.width));
        self.down = u64::from(size.height.div_ceil(self.chunk.height));
        self.strip_rows = self.chunk.height.into();
        let limit = |what: &str, is: u64, most: u64| {
            let what = format!("{what} of directory {}", directory.page);
            match is > most {
                true => Err(TiffError::Limit { what, is, most }),
                false => Ok(()),
            }
        };
        limit("The number of chunks", self.chunks(), MAX_CHUNKS)?;
        // Samples of odd widths become wider than they are in the file.
        let wide = self
            .row_samples()
            .saturating_mul(self.stored.kind().bytes() as u64);
        let wide = wide.max(self.row_bytes());
        limit("The bytes of a row", wide, chunk_bytes)?;
        if self.codec != Codec::None || self.tiled {
            let bytes = wide.saturating_mul(self.chunk.height.into());
            limit("The bytes of a chunk", bytes, chunk_bytes)?;
        }
        Ok(())
    }

    fn row_samples(&self) -> u64 {
        u64::from(self.chunk.width) * u64::from(self.bands_of_chunk())
    }

    /// All chunks, of all planes.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        let planes = if self.planar { self.bands.into() } else { 1 };
        self.across.saturating_mul(self.down).saturating_mul(planes)
    }

    fn places(&mut self, directory: &Directory) -> Result<(), TiffError> {
        // Old files have tiles under the tags of strips.
        let tags = match (self.tiled, directory.tag(n::TILE_OFFSETS).is_some()) {
            (true, true) => (n::TILE_OFFSETS, n::TILE_BYTE_COUNTS),
            _ => (n::STRIP_OFFSETS, n::STRIP_BYTE_COUNTS),
        };
        let chunks = usize::try_from(self.chunks()).unwrap_or(usize::MAX);
        let offsets = directory.numbers(tags.0)?;
        let mut offsets = offsets.ok_or_else(|| directory.bad(tags.0, "it is missing"))?;
        if offsets.len() < chunks {
            let problem = format!("it has {} values for {chunks} chunks", offsets.len());
            return Err(directory.bad(tags.0, problem));
        }
        offsets.truncate(chunks);
        // Without lengths a chunk ends where it must when it is not compressed, and else where the next
        // one begins, or the file ends.
        let counts = match directory.numbers(tags.1) {
            Ok(Some(counts)) if counts.len() >= chunks => counts,
            _ => Vec::new(),
        };
        let known = counts.iter().any(|count| *count > 0);
        self.counts = match (known, &self.codec) {
            (true, _) => counts.into_iter().take(chunks).collect(),
            (false, Codec::None) => offsets
                .iter()
                .map(|at| if *at == 0 { 0 } else { u64::MAX })
                .collect(),
            (false, _) => {
                let mut sorted = offsets.clone();
                sorted.sort_unstable();
                let next = |at: u64| sorted[sorted.partition_point(|is| *is <= at)..].first();
                let until = |at: &u64| next(*at).map_or(u64::MAX, |next| next - at);
                let count = |at: &u64| if *at == 0 { 0 } else { until(at) };
                offsets.iter().map(count).collect()
            }
        };
        self.offsets = offsets;
        Ok(())
    }

    /// Makes chunks of parts of uncompressed strips, so that none is larger than needed: many writers put
    /// the whole image into one.
    fn split(&mut self) {
        if self.tiled || self.codec != Codec::None {
            return;
        }
        let (row, rows) = (self.row_bytes().max(1), self.chunk.height);
        let most = u32::try_from(PART_BYTES / row).unwrap_or(u32::MAX).max(1);
        if rows <= most {
            return;
        }
        // Parts of several strips must end with their strip; of the only one they need not.
        let rows = match self.down {
            1 => most,
            _ => (1..=most).rev().find(|part| rows % part == 0).unwrap_or(1),
        };
        self.chunk.height = rows;
        self.down = self.size.height.div_ceil(rows).into();
    }

    /// Rows of a chunk that the file holds.
    #[must_use]
    pub fn rows(&self, chunk: u64) -> u32 {
        if self.tiled {
            return self.chunk.height;
        }
        let top = (chunk % self.down) * u64::from(self.chunk.height);
        let left = u64::from(self.size.height).saturating_sub(top);
        u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(self.chunk.height)
    }

    /// Where a chunk is in the file.
    #[must_use]
    pub fn place(&self, chunk: u64) -> Place {
        let at = |values: &[u64], chunk: u64| {
            let value = usize::try_from(chunk)
                .ok()
                .and_then(|chunk| values.get(chunk));
            value.copied().unwrap_or(0)
        };
        if self.tiled || u64::from(self.chunk.height) == self.strip_rows {
            let (offset, length) = (at(&self.offsets, chunk), at(&self.counts, chunk));
            return Place { offset, length };
        }
        let strips = u64::from(self.size.height).div_ceil(self.strip_rows);
        let (plane, part) = (chunk / self.down, chunk % self.down);
        let top = part * u64::from(self.chunk.height);
        let strip = plane * strips + top / self.strip_rows;
        let skipped = top % self.strip_rows * self.row_bytes();
        let (offset, length) = (at(&self.offsets, strip), at(&self.counts, strip));
        Place {
            offset: offset.saturating_add(if length == 0 { 0 } else { skipped }),
            length: length.saturating_sub(skipped),
        }
    }
}

fn stored(directory: &Directory, narrow: Narrow, complex: Complex) -> Result<Stored, TiffError> {
    let refused = |flavour: String| TiffError::refused(directory.page, flavour);
    let choose = |flavour: String| TiffError::Refused {
        directory: directory.page,
        flavour,
        instead: CHOOSE,
    };
    let same = |tag: u16, otherwise: u64, what: &str| {
        let values = directory.numbers(tag)?.unwrap_or(vec![otherwise]);
        match values.iter().all(|value| *value == values[0]) {
            true => Ok(values[0]),
            false => Err(refused(format!("bands of different {what} ({values:?})"))),
        }
    };
    let bits = same(n::BITS_PER_SAMPLE, 1, "widths")?;
    let bits = u32::try_from(bits.max(1)).unwrap_or(u32::MAX);
    let format = same(n::SAMPLE_FORMAT, 1, "types")?;
    match (format, bits) {
        // 4 says that the type is not known.
        (1 | 4, 1..=64) => Ok(Stored::Unsigned(bits)),
        (2, 1..=64) => Ok(Stored::Signed(bits)),
        (3, 32 | 64) => Ok(Stored::Float(bits)),
        (3, 16 | 24) => match narrow {
            Narrow::Refuse => Err(choose(format!("floats of {bits} bits"))),
            Narrow::Widen => Ok(Stored::Float(bits)),
        },
        (6, 32 | 64 | 128) | (5, 16 | 32 | 64) => {
            let of = ["integers", "floats"][usize::from(format == 6)];
            match (complex, format) {
                (Complex::Refuse, _) => Err(choose(format!("complex {of} of {bits} bits"))),
                (_, 6) => Ok(Stored::Complex(bits, complex)),
                _ => Ok(Stored::ComplexInteger(bits, complex)),
            }
        }
        _ => Err(refused(format!(
            "samples of {bits} bits of the format {format}"
        ))),
    }
}

fn predictor(directory: &Directory, stored: Stored, codec: &Codec) -> Result<Predictor, TiffError> {
    let predictor = directory.number(n::PREDICTOR)?.unwrap_or(1);
    // These hold whole images, and no predictor.
    if matches!(codec, Codec::Jpeg { .. } | Codec::WebP | Codec::Fax(_)) {
        return Ok(Predictor::None);
    }
    match (predictor, stored) {
        (0 | 1, _) => Ok(Predictor::None),
        (2, Stored::Unsigned(8 | 16 | 32 | 64) | Stored::Signed(8 | 16 | 32 | 64)) => {
            Ok(Predictor::Horizontal)
        }
        (2, Stored::Float(16 | 32 | 64)) => Ok(Predictor::Horizontal),
        (3, Stored::Float(16 | 32 | 64)) => Ok(Predictor::Float),
        _ => Err(TiffError::refused(
            directory.page,
            format!(
                "the predictor {predictor} for samples of {} bits",
                stored.bits()
            ),
        )),
    }
}
