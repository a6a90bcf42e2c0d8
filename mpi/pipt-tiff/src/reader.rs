//! Reads parts of an image.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use pipt_raster::{Info, Rect, Sample, Samples, Size, Source};

use crate::at::ReadAt;
use crate::cache::Cache;
use crate::codec::Shape;
use crate::directory::{self, Directory, Header};
use crate::error::TiffError;
use crate::layout::{Complex, Layout, Narrow};
use crate::metadata::{self, Scale};
use crate::tag::{CARRIED, Tag, number as n};
use crate::unpack;

/// Larger chunks than this are not taken if the caller does not say otherwise, bytes decoded.
pub const CHUNK_BYTES: u64 = 1 << 30;

/// How to read a file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Which of the directories, from 0.
    pub page: usize,
    /// What to make of floats of 16 and 24 bits.
    pub narrow: Narrow,
    /// What to make of complex numbers.
    pub complex: Complex,
    /// Decoded chunks that are kept, in bytes; 0 keeps none.
    pub cache_bytes: usize,
    /// The largest chunk that is decoded, in bytes. Reading takes up to three times this for each thread,
    /// and the samples that it gives.
    pub chunk_bytes: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            page: 0,
            narrow: Narrow::Refuse,
            complex: Complex::Refuse,
            cache_bytes: 0,
            chunk_bytes: CHUNK_BYTES,
        }
    }
}

/// One image of a TIFF file. Many threads may read from it at once.
pub struct Tiff {
    from: Arc<dyn ReadAt>,
    header: Header,
    pages: Arc<[u64]>,
    directory: Directory,
    layout: Layout,
    info: Info,
    options: ReadOptions,
    cache: Cache,
}

impl std::fmt::Debug for Tiff {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut to = to.debug_struct("Tiff");
        to.field("header", &self.header);
        to.field("info", &self.info).finish_non_exhaustive()
    }
}

impl Tiff {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no TIFF, has no such page, is damaged, or is of a flavour that is not
    /// read.
    pub fn open(path: &Path, options: ReadOptions) -> Result<Self, TiffError> {
        let file = File::open(path);
        let file = file.map_err(TiffError::io(format!("open {}", path.display())))?;
        Self::of(Arc::new(file), options)
    }

    /// The same for bytes from elsewhere.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn of(from: Arc<dyn ReadAt>, options: ReadOptions) -> Result<Self, TiffError> {
        let header = Header::read(&*from)?;
        let pages = directory::pages(&*from, header)?.into();
        Self::page_of(from, header, pages, options)
    }

    /// Opens another page of the same file.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn page(&self, page: usize) -> Result<Self, TiffError> {
        let options = ReadOptions {
            page,
            ..self.options.clone()
        };
        Self::page_of(
            Arc::clone(&self.from),
            self.header,
            Arc::clone(&self.pages),
            options,
        )
    }

    fn page_of(
        from: Arc<dyn ReadAt>,
        header: Header,
        pages: Arc<[u64]>,
        options: ReadOptions,
    ) -> Result<Self, TiffError> {
        let page = options.page;
        let offset = pages.get(page).ok_or(TiffError::NoPage {
            page,
            pages: pages.len(),
        })?;
        let directory = Directory::read(&*from, header, page, *offset)?;
        let layout = Layout::of(
            &directory,
            header,
            options.narrow,
            options.complex,
            options.chunk_bytes,
        )?;
        let info = info(&directory, &layout);
        let cache = Cache::new(options.cache_bytes);
        Ok(Self {
            from,
            header,
            pages,
            directory,
            layout,
            info,
            options,
            cache,
        })
    }

    /// How many images (directories) the file has.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// How the image lies in the file.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All tags, also those that are not known here.
    #[must_use]
    pub fn tags(&self) -> &[Tag] {
        &self.directory.tags
    }

    /// What the samples of each band stand for, as GDAL's metadata say; empty: themselves.
    #[must_use]
    pub fn scales(&self) -> Vec<Scale> {
        let text = self.directory.tag(n::GDAL_METADATA).and_then(Tag::as_text);
        text.map_or_else(Vec::new, |text| metadata::scales(&text, self.info.bands))
    }

    /// The tags that stay true for an image that is made of this one: see [`CARRIED`].
    #[must_use]
    pub fn carried_tags(&self) -> Vec<Tag> {
        // tifffile writes the size of the array into the description, and believes that when it reads.
        let is_size = |tag: &Tag| {
            tag.number == n::IMAGE_DESCRIPTION
                && tag
                    .as_text()
                    .is_some_and(|text| text.starts_with("{\"shape\":"))
        };
        let tags = self.directory.tags.iter();
        tags.filter(|tag| CARRIED.contains(&tag.number) && !is_size(tag))
            .cloned()
            .collect()
    }

    /// The samples of some bands in a rectangle, each band by itself. Chunks that hold several bands are
    /// decoded once for all of them.
    ///
    /// # Errors
    ///
    /// There are no such bands or the rectangle does not lie within the image; the file cannot be read or
    /// is damaged.
    pub fn read_bands(
        &self,
        first: u32,
        count: u32,
        rect: Rect,
    ) -> Result<Vec<Samples>, TiffError> {
        let end = u64::from(first) + u64::from(count);
        if end > self.info.bands.into() || !rect.is_within(self.info.size) {
            return Err(TiffError::Outside {
                first,
                end,
                rect,
                bands: self.info.bands,
                size: self.info.size,
            });
        }
        let pixels = usize::try_from(rect.pixels()).unwrap_or(usize::MAX);
        let zeros = |_| Samples::zeros(self.info.kind, pixels);
        let mut out: Vec<Samples> = (0..count).map(zeros).collect();
        if rect.is_empty() || count == 0 {
            return Ok(out);
        }
        let Size { width, height } = self.layout.chunk;
        let last = |begin: u32, extent: u32| begin + (extent - 1);
        let columns = rect.x / width..=last(rect.x, rect.width) / width;
        for row in rect.y / height..=last(rect.y, rect.height) / height {
            for column in columns.clone() {
                self.read_chunks((column, row), first, rect, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Copies what the chunks at this place of the grid have of a rectangle.
    fn read_chunks(
        &self,
        (column, row): (u32, u32),
        first: u32,
        rect: Rect,
        out: &mut [Samples],
    ) -> Result<(), TiffError> {
        let layout = &self.layout;
        let chunk = u64::from(row) * layout.across + u64::from(column);
        let of_plane = |band: u32| chunk + u64::from(band) * layout.across * layout.down;
        let Size { width, height } = layout.chunk;
        let covers = Rect::new(column * width, row * height, width, height);
        let part = covers.intersection(rect);
        let copy = |samples: &Samples, band: u32, out: &mut Samples| {
            copy(
                samples,
                covers,
                (layout.bands_of_chunk(), band),
                out,
                rect,
                part,
            );
        };
        if layout.planar {
            for (band, out) in (first..).zip(out) {
                copy(&*self.chunk(of_plane(band))?, 0, out);
            }
            return Ok(());
        }
        let samples = self.chunk(chunk)?;
        for (band, out) in (first..).zip(out) {
            copy(&samples, band, out);
        }
        Ok(())
    }

    fn chunk(&self, chunk: u64) -> Result<Arc<Samples>, TiffError> {
        if let Some(samples) = self.cache.get(chunk) {
            return Ok(samples);
        }
        let samples = Arc::new(self.decode(chunk)?);
        self.cache.put(chunk, &samples);
        Ok(samples)
    }

    fn decode(&self, chunk: u64) -> Result<Samples, TiffError> {
        let layout = &self.layout;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let rows = layout.rows(chunk);
        let shape = Shape {
            width: layout.chunk.width,
            rows,
            bands: layout.bands_of_chunk(),
            bytes: size(layout.row_bytes() * u64::from(rows)),
            most: size(layout.row_bytes() * u64::from(layout.chunk.height)),
        };
        let damaged = |problem: String| TiffError::Chunk {
            directory: self.directory.page,
            chunk,
            codec: layout.codec.name(),
            problem,
        };
        let place = layout.place(chunk);
        if place.length == 0 {
            let samples = shape.width as usize * rows as usize * shape.bands as usize;
            return Ok(self.absent(samples));
        }
        // A compressed chunk is at most a little larger than its samples: what a damaged length has more
        // is not read.
        let most = match layout.codec {
            crate::codec::Codec::None => shape.bytes as u64,
            _ => 2 * shape.most as u64 + (1 << 20),
        };
        let file = self.from.size();
        let file = file.map_err(TiffError::io("find the size of the file"))?;
        let left = file.saturating_sub(place.offset);
        let length = place.length.min(most).min(left);
        let mut data = vec![0; size(length)];
        self.from
            .read_exact_at(&mut data, place.offset)
            .map_err(TiffError::io(format!("read chunk {chunk}")))?;
        if layout.reversed && layout.codec.can_be_reversed() {
            data.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
        }
        if let Some(flavour) = layout.codec.foreign(&data) {
            return Err(TiffError::refused(self.directory.page, flavour));
        }
        let bytes = match layout.codec {
            crate::codec::Codec::None => data,
            _ => layout.codec.decode(&data, shape).map_err(damaged)?,
        };
        if bytes.len() != shape.bytes {
            let (has, bytes) = (bytes.len(), shape.bytes);
            return Err(damaged(format!("it has {has} of {bytes} bytes")));
        }
        Ok(unpack::samples(layout, bytes))
    }

    /// A chunk that is not in the file, as in GDAL's sparse files.
    fn absent(&self, samples: usize) -> Samples {
        fn of<T: Sample>(value: f64, samples: usize) -> Vec<T> {
            vec![T::of_f64(value); samples]
        }
        let value = self.info.nodata.unwrap_or(0.0);
        pipt_raster::of_type!(self.info.kind, T => of::<T>(value, samples).into())
    }
}

/// Copies one of the bands of a chunk, as far as it lies in `part`, into the samples of `rect`.
fn copy(
    chunk: &Samples,
    covers: Rect,
    (bands, band): (u32, u32),
    out: &mut Samples,
    rect: Rect,
    part: Rect,
) {
    fn rows<T: Copy>(
        from: &[T],
        to: &mut [T],
        (covers, rect, part): (Rect, Rect, Rect),
        (bands, band): (usize, usize),
    ) {
        let width = part.width as usize;
        for row in part.y..part.y + part.height {
            let source = (row - covers.y) as usize * covers.width as usize;
            let source = (source + (part.x - covers.x) as usize) * bands;
            let target = (row - rect.y) as usize * rect.width as usize;
            let target = target + (part.x - rect.x) as usize;
            let to = &mut to[target..target + width];
            let from = &from[source..source + width * bands];
            match bands {
                1 => to.copy_from_slice(from),
                _ => {
                    let from = from[band..].iter().step_by(bands);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
    let bands = (bands as usize, band as usize);
    macro_rules! same {
        ($($kind:ident)*) => {
            match (chunk, out) {
                $((Samples::$kind(from), Samples::$kind(to)) => {
                    rows(from, to, (covers, rect, part), bands);
                })*
                _ => {}
            }
        };
    }
    same!(U8 U16 U32 U64 I8 I16 I32 I64 F32 F64);
}

fn info(directory: &Directory, layout: &Layout) -> Info {
    let text = |tag: u16| directory.tag(tag).and_then(Tag::as_text);
    let names = text(n::GDAL_METADATA);
    Info {
        size: layout.size,
        bands: layout.bands,
        kind: layout.stored.kind(),
        nodata: text(n::GDAL_NODATA).and_then(|text| metadata::nodata(&text)),
        names: names.map_or_else(Vec::new, |text| metadata::names(&text, layout.bands)),
        grain: Size::new(
            layout.chunk.width.min(layout.size.width),
            layout.chunk.height.min(layout.size.height),
        ),
    }
}

impl Source for Tiff {
    type Error = TiffError;

    fn info(&self) -> &Info {
        &self.info
    }

    fn read(&self, band: u32, rect: Rect) -> Result<Samples, TiffError> {
        let mut bands = self.read_bands(band, 1, rect)?;
        Ok(bands.swap_remove(0))
    }
}
