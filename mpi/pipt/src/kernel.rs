//! Kernels of users: what is computed of each pixel's window by code that is not the engine's.
//!
//! A kernel says how far it looks around a pixel, and computes rectangles of pixels; the engine reads, divides, puts
//! what lies beyond the edges around, and knows what has no data. A kernel that is registered by a name is run by
//! `b = User a kernel=NAME` in batch files; one that is compiled is run from its library without being registered, by
//! `kernel=PATH.so:SYMBOL` (`mpi/pipt-kernel.h`).

use crate::graph::Failure;
use pipt_load::kernel::{Compiled, KernelError, SHAPE};
use pipt_raster::{Rect, SampleType, Samples, Size};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Pixels that a kernel may look at on one side.
pub const HALO_MAX: u32 = 1024;
/// Bands that a kernel may make of one.
pub const BANDS_MAX: usize = 256;
/// Bytes of a name.
const NAME_MAX: usize = 100;
/// Kernels that may have names.
const KERNELS_MAX: usize = 10_000;

/// A rectangle of pixels with all that a kernel looks at around it.
#[derive(Debug)]
pub struct Window<'a> {
    /// `width + 2 * across` columns of `height + 2 * down` rows. What is not there is NaN among floats, and else 0.
    pub samples: &'a Samples,
    /// Of each of these whether it is there.
    pub there: &'a [bool],
    /// The halo: columns on the left and on the right, rows above and below.
    pub halo: (u32, u32),
    /// The pixels that are to be computed, within the whole image.
    pub wanted: Rect,
    /// Of the whole image.
    pub size: Size,
    /// From 0.
    pub band: u32,
    /// As the batch file has them.
    pub parameters: &'a [f64],
}

/// What a kernel makes of a window: `width * height` samples, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub samples: Samples,
    /// Of each whether there is data; None: where there was in the middle of its window.
    pub there: Option<Vec<bool>>,
}

/// Code of a user that computes pixels of their windows. It has to give the same for a pixel whatever rectangle that
/// is computed in: then results do not depend on blocks, threads and ranks.
pub trait Kernel: Send + Sync {
    /// Columns that it looks at on the left and on the right, and rows above and below.
    fn halo(&self) -> (u32, u32);

    /// What it makes of a band: names, of which a single one may be empty.
    fn bands(&self) -> Vec<String> {
        vec![String::new()]
    }

    /// The type of samples that it takes, to which others are converted; None: any.
    fn takes(&self) -> Option<SampleType> {
        None
    }

    /// The type of samples that it gives, of those of the image.
    fn gives(&self, image: SampleType) -> SampleType {
        self.takes().unwrap_or(image)
    }

    /// Bytes that it needs beside what it is given and gives, for so many pixels.
    fn scratch(&self, pixels: u64) -> u64 {
        let _ = pixels;
        0
    }

    /// The bands that it makes of a window, in the order of their names.
    ///
    /// # Errors
    ///
    /// It cannot compute that; the work ends with its sentence.
    fn run(&self, window: &Window<'_>) -> Result<Vec<Made>, Failure>;
}

/// Why a kernel cannot be had.
#[derive(Debug)]
pub enum KernelsError {
    Name(String),
    Many,
    Halo(String, u32, u32),
    Bands(String, usize),
    /// The name, and those that there are.
    Unknown(String, Vec<String>),
    /// No such file.
    Missing(PathBuf),
    Library(KernelError),
}

impl fmt::Display for KernelsError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                to,
                "'{name}' cannot be the name of a kernel: it is a letter, then letters, digits, '_', '-' and '.', up to \
                 {NAME_MAX} bytes"
            ),
            Self::Many => write!(to, "More than {KERNELS_MAX} kernels cannot have names"),
            Self::Halo(name, across, down) => write!(
                to,
                "The kernel {name} looks at {across} columns and {down} rows around a pixel: at most {HALO_MAX} can be"
            ),
            Self::Bands(name, bands) => write!(
                to,
                "The kernel {name} makes {bands} bands of one: from 1 to {BANDS_MAX} can be"
            ),
            Self::Unknown(name, all) if all.is_empty() => write!(
                to,
                "No kernel is called '{name}', and none is registered: give PATH.so:SYMBOL for one in a library, or \
                 register it before the job is run"
            ),
            Self::Unknown(name, all) => write!(
                to,
                "No kernel is called '{name}': there are {}; give PATH.so:SYMBOL for one in a library",
                all.join(", ")
            ),
            Self::Missing(path) => write!(
                to,
                "There is no library {} of kernels: name its file, relative to where the work is started",
                path.display()
            ),
            Self::Library(error) => write!(to, "{error}"),
        }
    }
}

impl std::error::Error for KernelsError {}

static REGISTERED: RwLock<BTreeMap<String, Arc<dyn Kernel>>> = RwLock::new(BTreeMap::new());

/// Gives a kernel a name, in place of one that had it.
///
/// # Errors
///
/// It cannot be a name, or it looks too far, or makes too many bands.
pub fn register(name: &str, kernel: Arc<dyn Kernel>) -> Result<(), KernelsError> {
    let begins = name.chars().next().is_some_and(char::is_alphabetic);
    let goes_on = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    if !begins || !name.chars().all(goes_on) || name.len() > NAME_MAX {
        return Err(KernelsError::Name(name.chars().take(NAME_MAX).collect()));
    }
    check(name, kernel.as_ref())?;
    let mut all = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= KERNELS_MAX && !all.contains_key(name) {
        return Err(KernelsError::Many);
    }
    let replaced = all.insert(name.to_owned(), kernel);
    // What goes with it may want to register, too.
    drop(all);
    drop(replaced);
    Ok(())
}

fn check(name: &str, kernel: &dyn Kernel) -> Result<(), KernelsError> {
    let (across, down) = kernel.halo();
    if across > HALO_MAX || down > HALO_MAX {
        return Err(KernelsError::Halo(name.to_owned(), across, down));
    }
    let bands = kernel.bands().len();
    match (1..=BANDS_MAX).contains(&bands) {
        true => Ok(()),
        false => Err(KernelsError::Bands(name.to_owned(), bands)),
    }
}

/// The names that kernels have, in their order.
#[must_use]
pub fn names() -> Vec<String> {
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    all.keys().cloned().collect()
}

/// The kernel of this name, or in a library: `PATH.so:SYMBOL`.
///
/// # Errors
///
/// There is none, or the library cannot be opened.
pub fn of(name: &str) -> Result<Arc<dyn Kernel>, KernelsError> {
    if let Some((path, symbol)) = name.rsplit_once(':') {
        let path = Path::new(path);
        if !path.is_file() {
            return Err(KernelsError::Missing(path.to_owned()));
        }
        let kernel = Compiled::open(path, symbol).map_err(KernelsError::Library)?;
        check(name, &kernel)?;
        return Ok(Arc::new(kernel));
    }
    let all = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let unknown = || KernelsError::Unknown(name.to_owned(), all.keys().cloned().collect());
    all.get(name).cloned().ok_or_else(unknown)
}

impl Kernel for Compiled {
    fn halo(&self) -> (u32, u32) {
        self.about().halo
    }

    fn bands(&self) -> Vec<String> {
        match self.about().bands {
            1 => vec![String::new()],
            bands => (1..=bands).map(|band| format!("result {band}")).collect(),
        }
    }

    fn takes(&self) -> Option<SampleType> {
        self.about().takes
    }

    fn gives(&self, image: SampleType) -> SampleType {
        let about = self.about();
        about.gives.or(about.takes).unwrap_or(image)
    }

    fn run(&self, window: &Window<'_>) -> Result<Vec<Made>, Failure> {
        let (wanted, halo) = (window.wanted, window.halo);
        let bands = self.about().bands as usize;
        let pixels = wanted.width as usize * wanted.height as usize;
        let kind = window.samples.kind();
        let mut samples = Samples::zeros(Kernel::gives(self, kind), bands * pixels);
        // Where there is data in the middle, and so for each band.
        let stride = (wanted.width + 2 * halo.0) as usize;
        let middle = (0..wanted.height as usize).flat_map(|row| {
            let begin = (row + halo.1 as usize) * stride + halo.0 as usize;
            &window.there[begin..begin + wanted.width as usize]
        });
        let mut there: Vec<u8> = middle.map(|there| u8::from(*there)).collect();
        there = there.repeat(bands);
        let shape: [i64; SHAPE] = [
            i64::from(pipt_load::kernel::VERSION),
            wanted.width.into(),
            wanted.height.into(),
            halo.0.into(),
            halo.1.into(),
            pipt_load::kernel::number(kind).into(),
            window.band.into(),
            wanted.x.into(),
            wanted.y.into(),
            window.size.width.into(),
            window.size.height.into(),
            i64::try_from(window.parameters.len())?,
        ];
        self.call(
            (window.samples, window.there),
            (&mut samples, &mut there),
            &shape,
            window.parameters,
        )?;
        let band = |number: usize| {
            let from = number * pixels..(number + 1) * pixels;
            let there = there[from.clone()]
                .iter()
                .map(|there| *there != 0)
                .collect();
            let samples = pipt_raster::each!(&samples, values => values[from].to_vec().into());
            Made {
                samples,
                there: Some(there),
            }
        };
        Ok((0..bands).map(band).collect())
    }
}
