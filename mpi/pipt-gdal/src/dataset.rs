//! One image that GDAL has opened.

use crate::functions::{FAILURE, Gdal, Handle, LoadError, OPEN_RASTER, READ, text};
use pipt_raster::{Info, Rect, SampleType, Samples, Size, Source, each};
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Bands that an image may have here.
const BANDS_MAX: c_int = 65_536;
/// Where a small file lies while it is made; by its name alone it is told from others in memory.
const SCRATCH: &std::ffi::CStr = c"/vsimem/pipt-place.tif";

/// `GDALDataType`s, and what they are here.
const TYPES: [(c_int, SampleType); 10] = [
    (1, SampleType::U8),
    (2, SampleType::U16),
    (3, SampleType::I16),
    (4, SampleType::U32),
    (5, SampleType::I32),
    (6, SampleType::F32),
    (7, SampleType::F64),
    (12, SampleType::U64),
    (13, SampleType::I64),
    (14, SampleType::I8),
];
/// 16-bit floats (GDAL 3.11), which are read as `f32`.
const HALF: c_int = 15;

/// An image that GDAL has opened. Its handles serve one thread at a time, so reads wait for each other.
pub struct Dataset {
    gdal: &'static Gdal,
    handle: Mutex<Owned>,
    name: String,
    info: Info,
}

/// A data set's handle.
struct Owned(Handle);

// JUSTIFICATION: a pointer of C is not taken for something that another thread may have.
// SAFETY: GDAL lets any thread use a data set as long as one does at a time, and it is behind a lock.
unsafe impl Send for Owned {}

/// Why an image cannot be read by GDAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GdalError {
    Load(LoadError),
    /// A name with a zero in it.
    Name(String),
    /// The name, and what GDAL says.
    Open(String, String),
    /// The name, and what it has that is not read here.
    Refused(String, String),
    /// The name, the part, the band from 1, and what GDAL says.
    Read(String, Rect, u32, String),
}

impl fmt::Display for GdalError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(to, "{error}"),
            Self::Name(name) => write!(to, "{name:?} is no name: there is a zero in it"),
            Self::Open(name, said) if said.is_empty() => write!(to, "GDAL cannot open {name}"),
            Self::Open(name, said) => write!(to, "GDAL cannot open {name}: {said}"),
            Self::Refused(name, what) => write!(to, "{name} is not read: {what}"),
            Self::Read(name, rect, band, said) => {
                write!(
                    to,
                    "GDAL cannot read {rect} of band {band} of {name}: {said}"
                )
            }
        }
    }
}

impl std::error::Error for GdalError {}

impl Dataset {
    /// Opens an image by a name of GDAL's.
    ///
    /// # Errors
    ///
    /// GDAL is not installed, or does not take it for an image, or its samples are of a type that there is
    /// not here.
    pub fn open(name: &str) -> Result<Self, GdalError> {
        let gdal = Gdal::get().map_err(GdalError::Load)?;
        let path = CString::new(name).map_err(|_| GdalError::Name(name.to_owned()))?;
        let (handle, said) = quietly(gdal, || {
            // JUSTIFICATION: a call of C.
            // SAFETY: the name ends with a zero and outlives the call; no list has to be given.
            unsafe {
                (gdal.functions.open)(
                    path.as_ptr(),
                    OPEN_RASTER,
                    ptr::null(),
                    ptr::null(),
                    ptr::null(),
                )
            }
        });
        if handle.is_null() {
            return Err(GdalError::Open(name.to_owned(), said));
        }
        let mut dataset = Self {
            gdal,
            handle: Mutex::new(Owned(handle)),
            name: name.to_owned(),
            info: Info {
                size: Size::new(0, 0),
                bands: 0,
                kind: SampleType::U8,
                nodata: None,
                names: Vec::new(),
                grain: Size::new(1, 1),
            },
        };
        dataset.info = dataset.look()?;
        Ok(dataset)
    }

    /// The version of the library that reads it, as `3.6.2`.
    #[must_use]
    pub fn version(&self) -> String {
        self.gdal.version()
    }

    fn look(&self) -> Result<Info, GdalError> {
        let refused = |what: String| GdalError::Refused(self.name.clone(), what);
        let functions = &self.gdal.functions;
        let owned = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // JUSTIFICATION: calls of C.
        // SAFETY: the handle is open, and behind its lock.
        let (width, height, bands) = unsafe {
            (
                (functions.width)(owned.0),
                (functions.height)(owned.0),
                (functions.bands)(owned.0),
            )
        };
        if !(1..=BANDS_MAX).contains(&bands) {
            return Err(refused(format!(
                "it has {bands} bands, and 1 to {BANDS_MAX} can be"
            )));
        }
        let side = |pixels: c_int| u32::try_from(pixels).ok().filter(|pixels| *pixels > 0);
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return Err(refused(format!("its size is {width} x {height}")));
        };
        let mut names = Vec::new();
        let mut first: Option<(SampleType, Option<f64>, Size)> = None;
        for number in 1..=bands {
            // JUSTIFICATION: a call of C.
            // SAFETY: as above, and the band is one of its.
            let band = unsafe { (functions.band)(owned.0, number) };
            let (kind, nodata, grain, name) = self.band(band).map_err(&refused)?;
            let (of_all, ..) = *first.get_or_insert((kind, nodata, grain));
            if of_all != kind {
                return Err(refused(format!(
                    "its bands are of several types ({of_all}, {kind}): extract those of one type"
                )));
            }
            names.push(name);
        }
        let (kind, nodata, grain) = first.expect("it has a band");
        let is_named = names.iter().any(|name| !name.is_empty());
        Ok(Info {
            size: Size::new(width, height),
            bands: bands.unsigned_abs(),
            kind,
            nodata,
            names: if is_named { names } else { Vec::new() },
            grain,
        })
    }

    fn band(&self, band: Handle) -> Result<(SampleType, Option<f64>, Size, String), String> {
        let functions = &self.gdal.functions;
        if band.is_null() {
            return Err("a band is missing".to_owned());
        }
        let (mut across, mut down, mut has) = (1, 1, 0);
        // JUSTIFICATION: calls of C.
        // SAFETY: the band is one of an open data set behind its lock, and pointers are to our own
        // variables; texts are copied before anything else is called.
        let (kind, nodata, name, type_name) = unsafe {
            (functions.block_size)(band, &raw mut across, &raw mut down);
            let kind = (functions.band_type)(band);
            (
                kind,
                (functions.nodata)(band, &raw mut has),
                text((functions.description)(band)),
                text((functions.type_name)(kind)),
            )
        };
        let known = TYPES.into_iter().chain([(HALF, SampleType::F32)]);
        let kind = known
            .into_iter()
            .find(|(code, _)| *code == kind)
            .map(|(_, kind)| kind);
        let kind = kind.ok_or_else(|| format!("samples of the type {type_name} are not"))?;
        let grain = Size::new(across.unsigned_abs().max(1), down.unsigned_abs().max(1));
        Ok((kind, (has != 0).then_some(nodata), grain, name))
    }

    /// The bytes of a small `GeoTIFF` file that lies where this image lies: its tags are what another one
    /// needs to lie there too. None where GDAL knows no place, or cannot make the file.
    #[must_use]
    pub fn place(&self) -> Option<Vec<u8>> {
        // The scratch file has one name.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let functions = &self.gdal.functions;
        let owned = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut transform = [0.0; 6];
        let (bytes, _) = quietly(self.gdal, || {
            // JUSTIFICATION: calls of C.
            // SAFETY: the handle is open and behind its lock; texts end with a zero; the transform has the
            // six numbers that are read and written; the new data set is closed before its bytes are
            // taken, which `seized` copies and frees.
            unsafe {
                let projection = (functions.projection)(owned.0);
                let placed = (functions.geo_transform)(owned.0, transform.as_mut_ptr()) < FAILURE;
                let driver = (functions.driver)(c"GTiff".as_ptr());
                if driver.is_null() || (!placed && text(projection).is_empty()) {
                    return None;
                }
                let file = (functions.create)(driver, SCRATCH.as_ptr(), 1, 1, 1, 1, ptr::null());
                if file.is_null() {
                    return None;
                }
                let done =
                    !placed || (functions.set_geo_transform)(file, transform.as_ptr()) < FAILURE;
                let done = done && (functions.set_projection)(file, projection) < FAILURE;
                (functions.close)(file);
                seized(self.gdal).filter(|_| done)
            }
        });
        bytes
    }
}

/// The bytes of the scratch file, which is no more.
///
/// # Safety
///
/// No data set has it open.
unsafe fn seized(gdal: &Gdal) -> Option<Vec<u8>> {
    let mut length = 0;
    // JUSTIFICATION: a call of C.
    // SAFETY: the name ends with a zero; the length is our own variable; nobody has the file open.
    let bytes = unsafe { (gdal.functions.memory_file)(SCRATCH.as_ptr(), &raw mut length, 1) };
    if bytes.is_null() {
        return None;
    }
    let length = usize::try_from(length).ok()?;
    // JUSTIFICATION: bytes of C are a pointer and a length.
    // SAFETY: both are of the file, which was given to us with the call above.
    let copy = unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec();
    // JUSTIFICATION: a call of C.
    // SAFETY: the bytes were given to us, and are not used any more.
    unsafe { (gdal.functions.free)(bytes.cast::<c_void>()) };
    Some(copy)
}

/// Lets GDAL work without its messages on standard error; gives the last of them.
fn quietly<T>(gdal: &Gdal, work: impl FnOnce() -> T) -> (T, String) {
    let functions = &gdal.functions;
    // JUSTIFICATION: calls of C.
    // SAFETY: handlers are a stack of each thread, and the one that is put on it is taken off below.
    unsafe {
        (functions.push_handler)(functions.quiet);
        (functions.reset_error)();
    }
    let done = work();
    // JUSTIFICATION: as above.
    // SAFETY: the message is copied before anything else is called.
    let said = unsafe {
        let said = text((functions.last_error)());
        (functions.pop_handler)();
        said
    };
    (done, said)
}

impl Source for Dataset {
    type Error = GdalError;

    fn info(&self) -> &Info {
        &self.info
    }

    fn read(&self, band: u32, rect: Rect) -> Result<Samples, GdalError> {
        let failed = |said: &str| {
            GdalError::Read(
                self.name.clone(),
                rect,
                band.saturating_add(1),
                said.to_owned(),
            )
        };
        let pixels = usize::try_from(rect.pixels()).map_err(|_| failed("it is too large"))?;
        if band >= self.info.bands || !rect.is_within(self.info.size) {
            return Err(failed("it does not lie in the image"));
        }
        let mut samples = Samples::zeros(self.info.kind, pixels);
        if rect.is_empty() {
            return Ok(samples);
        }
        let kind = TYPES.iter().find(|(_, kind)| *kind == self.info.kind);
        let (kind, _) = kind.ok_or_else(|| failed("its type is not known"))?;
        // Sizes came from GDAL, which has them as these.
        let whole = |pixels: u32| c_int::try_from(pixels).unwrap_or(c_int::MAX);
        let (x, y, width, height) = (
            whole(rect.x),
            whole(rect.y),
            whole(rect.width),
            whole(rect.height),
        );
        let owned = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let pointer: *mut c_void = each!(&mut samples, values => values.as_mut_ptr().cast());
        let functions = &self.gdal.functions;
        let (result, said) = quietly(self.gdal, || {
            // JUSTIFICATION: calls of C.
            // SAFETY: the handle is open and behind its lock; the buffer has as many samples of this type
            // as the rectangle, which lies within the image, and nobody else has it.
            unsafe {
                let band = (functions.band)(owned.0, whole(band.saturating_add(1)));
                if band.is_null() {
                    return FAILURE;
                }
                (functions.raster_io)(
                    band, READ, x, y, width, height, pointer, width, height, *kind, 0, 0,
                )
            }
        });
        match result < FAILURE {
            true => Ok(samples),
            false => Err(failed(&said)),
        }
    }
}

impl Drop for Dataset {
    fn drop(&mut self) {
        let owned = self
            .handle
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // JUSTIFICATION: a call of C.
        // SAFETY: the handle is open, and nobody has it any more.
        unsafe { (self.gdal.functions.close)(owned.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Nothing to test where there is no GDAL; the suite of the image toolkit installs it.
    fn is_here() -> bool {
        let gdal = Gdal::get();
        if let Err(missing) = &gdal {
            println!("Not tested: {missing}");
        }
        gdal.is_ok()
    }

    /// A portable graymap, of 16 bits where a sample needs them.
    fn graymap(directory: &tempfile::TempDir, width: usize, samples: &[u16], most: u16) -> String {
        let mut bytes = format!("P5 {width} {} {most}\n", samples.len() / width).into_bytes();
        for sample in samples {
            let [high, low] = sample.to_be_bytes();
            bytes.extend(if most > 255 {
                vec![high, low]
            } else {
                vec![low]
            });
        }
        let path = directory.path().join(format!("{most}.pgm"));
        fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    #[test]
    fn parts_of_an_image_are_read() {
        if !is_here() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let samples: Vec<u16> = (0..12).map(|number| number * 1000).collect();
        let image = Dataset::open(&graymap(&directory, 4, &samples, 65_535)).expect("an image");
        let info = image.info();
        assert_eq!(
            (info.size, info.bands, info.kind),
            (Size::new(4, 3), 1, SampleType::U16)
        );
        assert_eq!((info.nodata, info.names.len()), (None, 0));
        let part = image.read(0, Rect::new(1, 1, 2, 2)).expect("a part");
        assert_eq!(part, Samples::U16(vec![5000, 6000, 9000, 10_000]));
        for (band, rect) in [(1, Rect::new(0, 0, 1, 1)), (0, Rect::new(3, 0, 2, 1))] {
            let refused = image.read(band, rect).expect_err("outside").to_string();
            assert!(refused.contains("does not lie in the image"), "{refused}");
        }
        assert!(image.place().is_none(), "a graymap lies nowhere");
        let small = Dataset::open(&graymap(&directory, 2, &[7, 9], 255)).expect("an image");
        let all = small.read(0, Size::new(2, 1).rect()).expect("all");
        assert_eq!(all, Samples::U8(vec![7, 9]));
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_name() {
        if !is_here() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text");
        fs::write(&path, "no image\n").expect("a file");
        for name in [path.display().to_string(), "/nowhere/at/all.tif".to_owned()] {
            let refused = Dataset::open(&name).err().expect("no image").to_string();
            assert!(
                refused.contains("GDAL cannot open") && refused.contains(&name),
                "{refused}"
            );
        }
        assert!(matches!(Dataset::open("a\0b"), Err(GdalError::Name(_))));
    }

    #[test]
    fn many_threads_read_one_image() {
        if !is_here() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let samples: Vec<u16> = (0..10_000).collect();
        let image = Dataset::open(&graymap(&directory, 100, &samples, 65_535)).expect("an image");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let image = &image;
                scope.spawn(move || {
                    for row in (thread..100).step_by(4) {
                        let part = image.read(0, Rect::new(0, row, 100, 1)).expect("a row");
                        let first = u16::try_from(row * 100).expect("small");
                        assert_eq!(part, Samples::U16((first..first + 100).collect()));
                    }
                });
            }
        });
    }

    #[test]
    fn where_an_image_lies_is_told_as_a_geotiff() {
        if !is_here() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let grid = "ncols 2\nnrows 2\nxllcorner 500000\nyllcorner 4000000\ncellsize 10\n\
                    NODATA_value -9999\n1 2\n3 -9999\n";
        let path = directory.path().join("grid.asc");
        fs::write(&path, grid).expect("a file");
        let image = Dataset::open(&path.display().to_string()).expect("an image");
        assert_eq!(image.info().nodata, Some(-9999.0));
        let bytes = image.place().expect("a place");
        assert!(bytes.starts_with(b"II*\0"), "{:?}", &bytes[..8]);
        let number = 10f64.to_le_bytes();
        assert!(
            bytes.windows(8).any(|eight| eight == number),
            "the size of a pixel is in it"
        );
        assert_eq!(image.place(), Some(bytes), "and again");
    }
}
