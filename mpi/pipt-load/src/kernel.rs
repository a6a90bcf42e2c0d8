//! Kernels of users in shared libraries, as `mpi/pipt-kernel.h` describes them.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use pipt_raster::{SampleType, Samples, each};
use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};

/// Of the header.
pub const VERSION: u32 = 1;
/// Numbers that say what a kernel is given.
pub const SHAPE: usize = 12;

/// The function of a kernel.
pub type Run = unsafe extern "C" fn(
    samples: *const c_void,
    there: *const u8,
    out: *mut c_void,
    out_there: *mut u8,
    shape: *const i64,
    parameters: *const f64,
) -> i32;

/// What a library exports.
#[repr(C)]
#[derive(Clone, Copy)]
struct Exported {
    version: u32,
    halo_across: u32,
    halo_down: u32,
    bands: u32,
    takes: i32,
    gives: i32,
    run: Option<Run>,
}

/// What a kernel says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Columns on each side, and rows above and below.
    pub halo: (u32, u32),
    /// That it makes of one.
    pub bands: u32,
    /// Types of samples; None: as the image has them.
    pub takes: Option<SampleType>,
    pub gives: Option<SampleType>,
}

/// Why a kernel cannot be had, or has not done its work.
#[derive(Debug)]
pub enum KernelError {
    Open(PathBuf, String),
    Symbol(PathBuf, String, String),
    /// The symbol, and the version that it has.
    Version(String, u32),
    /// It has no function, or a type that there is not.
    Wrong(String, &'static str),
    /// It gave this number.
    Failed(String, i32),
    /// There are not as many samples as its shape says.
    Shape(String),
}

impl fmt::Display for KernelError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, what) => write!(
                to,
                "The library {} of kernels cannot be opened: {what}; compile it by `cc -shared -fPIC`",
                path.display()
            ),
            Self::Symbol(path, symbol, what) => write!(
                to,
                "{} exports no `const struct pipt_kernel {symbol}`: {what}",
                path.display()
            ),
            Self::Version(symbol, version) => write!(
                to,
                "The kernel {symbol} is of version {version} of pipt-kernel.h, and this program of version {VERSION}: \
                 compile it with this program's header"
            ),
            Self::Wrong(symbol, what) => write!(to, "The kernel {symbol} has no valid `{what}`"),
            Self::Failed(symbol, code) => write!(
                to,
                "The kernel {symbol} could not compute a part of the image: it gave {code}"
            ),
            Self::Shape(symbol) => write!(
                to,
                "The kernel {symbol} was to be given other samples than its halo and bands say"
            ),
        }
    }
}

impl std::error::Error for KernelError {}

/// The types in the order of the header's numbers.
const TYPES: [SampleType; 10] = [
    SampleType::U8,
    SampleType::U16,
    SampleType::U32,
    SampleType::U64,
    SampleType::I8,
    SampleType::I16,
    SampleType::I32,
    SampleType::I64,
    SampleType::F32,
    SampleType::F64,
];

/// The header's number of a type.
#[must_use]
pub fn number(kind: SampleType) -> i32 {
    let place = TYPES.iter().position(|one| *one == kind);
    place
        .and_then(|place| i32::try_from(place).ok())
        .unwrap_or(-1)
}

/// A kernel that is compiled, and never closed.
#[derive(Clone, Debug)]
pub struct Compiled {
    name: String,
    about: About,
    run: Run,
}

impl Compiled {
    /// Opens a library, and takes the kernel of this name.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or exports no such kernel.
    pub fn open(path: &Path, symbol: &str) -> Result<Self, KernelError> {
        // A path without a directory would be looked for among the system's libraries.
        let found = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let failed = |error: libloading::Error| {
            KernelError::Open(path.to_owned(), crate::library::with_cause(&error))
        };
        // JUSTIFICATION: code of a user comes at run time.
        // SAFETY: what runs when it is opened is the user's own, as is all that runs in it: the user named it.
        let library = unsafe { Library::open(Some(&found), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(failed)?;
        let missing = |error: libloading::Error| {
            let what = crate::library::with_cause(&error);
            KernelError::Symbol(path.to_owned(), symbol.to_owned(), what)
        };
        // JUSTIFICATION: a symbol of a library that is opened at run time has no type but the one that we say.
        // SAFETY: the header says that what is named is a `struct pipt_kernel`; the library is never closed (below).
        let exported = unsafe { library.get::<*const Exported>(symbol.as_bytes()) };
        let place: *const Exported = *exported.map_err(missing)?;
        std::mem::forget(library);
        // JUSTIFICATION: reading it.
        // SAFETY: not null, and of that type, as the header says; its version is looked at before anything else.
        let exported = unsafe { place.as_ref() };
        let exported = *exported.ok_or_else(|| KernelError::Wrong(symbol.to_owned(), "version"))?;
        Self::of(symbol, exported)
    }

    fn of(symbol: &str, exported: Exported) -> Result<Self, KernelError> {
        if exported.version != VERSION {
            return Err(KernelError::Version(symbol.to_owned(), exported.version));
        }
        let wrong = |what| KernelError::Wrong(symbol.to_owned(), what);
        let kind = |number: i32, what| match number {
            -1 => Ok(None),
            number => {
                let place = usize::try_from(number).ok();
                let kind = place.and_then(|place| TYPES.get(place).copied());
                kind.map(Some).ok_or_else(|| wrong(what))
            }
        };
        Ok(Self {
            about: About {
                halo: (exported.halo_across, exported.halo_down),
                bands: exported.bands,
                takes: kind(exported.takes, "takes")?,
                gives: kind(exported.gives, "gives")?,
            },
            name: symbol.to_owned(),
            run: exported.run.ok_or_else(|| wrong("run"))?,
        })
    }

    /// A kernel whose function is in memory already, as a compiler at run time has made it.
    ///
    /// # Safety
    ///
    /// `run` is such a function as the header describes, it keeps to what `about` says, and it stays where it is as
    /// long as this.
    #[must_use]
    pub unsafe fn in_memory(name: &str, about: About, run: Run) -> Self {
        Self {
            name: name.to_owned(),
            about,
            run,
        }
    }

    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Calls it: samples and whether each is there, places for its results and whether each is there, and the shape of
    /// the header.
    ///
    /// # Errors
    ///
    /// It gives another number than 0, or what it is given is not what its shape says.
    pub fn call(
        &self,
        (samples, there): (&Samples, &[bool]),
        (out, out_there): (&mut Samples, &mut [u8]),
        shape: &[i64; SHAPE],
        parameters: &[f64],
    ) -> Result<(), KernelError> {
        let about = &self.about;
        let side = |number: i64, halo: u32| {
            let wanted = usize::try_from(number).unwrap_or(usize::MAX);
            (wanted, wanted.saturating_add(2 * halo as usize))
        };
        let (width, across) = side(shape[1], about.halo.0);
        let (height, down) = side(shape[2], about.halo.1);
        let (all, made) = (
            across.saturating_mul(down),
            width
                .saturating_mul(height)
                .saturating_mul(about.bands as usize),
        );
        let takes = about.takes.unwrap_or(samples.kind());
        let fits = samples.len() == all
            && there.len() == all
            && out.len() == made
            && out_there.len() == made
            && samples.kind() == takes
            && out.kind() == about.gives.unwrap_or(takes)
            && (shape[3], shape[4]) == (about.halo.0.into(), about.halo.1.into())
            && shape[5] == i64::from(number(takes))
            && usize::try_from(shape[11]) == Ok(parameters.len());
        if !fits {
            return Err(KernelError::Shape(self.name.clone()));
        }
        let from = each!(samples, values => values.as_ptr().cast::<c_void>());
        let to = each!(out, values => values.as_mut_ptr().cast::<c_void>());
        // JUSTIFICATION: a call of C.
        // SAFETY: there are as many samples and flags as the shape says, which was looked at above; a bool is a byte of
        // 0 or 1. That it keeps to them its user has promised.
        let code = unsafe {
            (self.run)(
                from,
                there.as_ptr().cast::<u8>(),
                to,
                out_there.as_mut_ptr(),
                shape.as_ptr(),
                parameters.as_ptr(),
            )
        };
        match code {
            0 => Ok(()),
            code => Err(KernelError::Failed(self.name.clone(), code)),
        }
    }
}
