//! The library and its functions.

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_char, c_double, c_int, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;

/// Names of the library: Debian 12 has .32, Ubuntu 24.04 .34, Debian 13 .36; .30 is GDAL 3.4. Newer ones
/// are tried first; the last is there where one builds against it.
const NUMBERS: std::ops::RangeInclusive<u32> = 28..=45;
const UNNUMBERED: &str = "libgdal.so";

pub(crate) type Handle = *mut c_void;

/// `CPLErr` from which on a call has failed.
pub(crate) const FAILURE: c_int = 3;
/// `GDAL_OF_RASTER | GDAL_OF_VERBOSE_ERROR`.
pub(crate) const OPEN_RASTER: c_uint = 0x02 | 0x40;
/// `GF_Read`.
pub(crate) const READ: c_int = 0;

/// Defines the table of functions and how it is filled.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are called.
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($field: {
                        // JUSTIFICATION: a function of a library that is opened at run time has no type
                        // but the one that we say.
                        // SAFETY: the types are those of GDAL's headers; the pointer lives as long as the
                        // library, which is never closed (`Gdal::get` keeps it).
                        *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
                    },)*
                })
            }
        }
    };
}

functions! {
    all_register = "GDALAllRegister": fn();
    version_info = "GDALVersionInfo": fn(*const c_char) -> *const c_char;
    open = "GDALOpenEx": fn(*const c_char, c_uint, *const *const c_char, *const *const c_char, *const *const c_char) -> Handle;
    close = "GDALClose": fn(Handle);
    width = "GDALGetRasterXSize": fn(Handle) -> c_int;
    height = "GDALGetRasterYSize": fn(Handle) -> c_int;
    bands = "GDALGetRasterCount": fn(Handle) -> c_int;
    band = "GDALGetRasterBand": fn(Handle, c_int) -> Handle;
    band_type = "GDALGetRasterDataType": fn(Handle) -> c_int;
    type_name = "GDALGetDataTypeName": fn(c_int) -> *const c_char;
    block_size = "GDALGetBlockSize": fn(Handle, *mut c_int, *mut c_int);
    nodata = "GDALGetRasterNoDataValue": fn(Handle, *mut c_int) -> c_double;
    description = "GDALGetDescription": fn(Handle) -> *const c_char;
    raster_io = "GDALRasterIO": fn(Handle, c_int, c_int, c_int, c_int, c_int, *mut c_void, c_int, c_int, c_int, c_int, c_int) -> c_int;
    projection = "GDALGetProjectionRef": fn(Handle) -> *const c_char;
    geo_transform = "GDALGetGeoTransform": fn(Handle, *mut c_double) -> c_int;
    set_projection = "GDALSetProjection": fn(Handle, *const c_char) -> c_int;
    set_geo_transform = "GDALSetGeoTransform": fn(Handle, *const c_double) -> c_int;
    driver = "GDALGetDriverByName": fn(*const c_char) -> Handle;
    create = "GDALCreate": fn(Handle, *const c_char, c_int, c_int, c_int, c_int, *const *const c_char) -> Handle;
    memory_file = "VSIGetMemFileBuffer": fn(*const c_char, *mut u64, c_int) -> *mut u8;
    free = "VSIFree": fn(*mut c_void);
    push_handler = "CPLPushErrorHandler": fn(unsafe extern "C" fn(c_int, c_int, *const c_char));
    pop_handler = "CPLPopErrorHandler": fn();
    quiet = "CPLQuietErrorHandler": fn(c_int, c_int, *const c_char);
    reset_error = "CPLErrorReset": fn();
    last_error = "CPLGetLastErrorMsg": fn() -> *const c_char;
}

/// An opened GDAL.
pub struct Gdal {
    pub(crate) functions: Functions,
    /// Its functions are where it is.
    _library: Library,
    name: String,
}

/// GDAL cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "This image needs GDAL, and its library cannot be opened ({}): install the package libgdal32 \
             (Debian 12), libgdal34t64 (Ubuntu 24.04) or libgdal36 (Debian 13), or another one's libgdal",
            self.0
        )
    }
}

impl std::error::Error for LoadError {}

impl Gdal {
    /// The library, opened once and never closed.
    ///
    /// # Errors
    ///
    /// It is not installed, or it is another one than it is taken for.
    pub fn get() -> Result<&'static Self, LoadError> {
        static GDAL: OnceLock<Result<Gdal, LoadError>> = OnceLock::new();
        GDAL.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, LoadError> {
        let numbered = NUMBERS.rev().map(|number| format!("libgdal.so.{number}"));
        Self::first(numbered.chain([UNNUMBERED.to_owned()]))
    }

    fn first(names: impl Iterator<Item = String>) -> Result<Self, LoadError> {
        let mut said = String::new();
        for name in names {
            // JUSTIFICATION: there is no other way to use a library that may not be installed.
            // SAFETY: what runs when it is opened are the initialisers of a library of the distribution,
            // found by name in the directories of the dynamic linker.
            let opened = unsafe { Library::new(&name) };
            let opened = opened.and_then(|library| Ok((Functions::of(&library)?, library)));
            match opened {
                Ok((functions, library)) => {
                    // JUSTIFICATION: a call of C.
                    // SAFETY: it takes nothing, and is called once, by the thread that opens the library.
                    unsafe { (functions.all_register)() };
                    return Ok(Self {
                        functions,
                        _library: library,
                        name,
                    });
                }
                Err(error) => said = with_cause(&error),
            }
        }
        Err(LoadError(said))
    }

    /// The name under which the library was found.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version, as `3.6.2`.
    #[must_use]
    pub fn version(&self) -> String {
        // JUSTIFICATION: a call of C.
        // SAFETY: the word is one that it knows, and it gives a text that lives as long as the library.
        unsafe { text((self.functions.version_info)(c"RELEASE_NAME".as_ptr())) }
    }
}

/// What failed, and what the dynamic linker says of it.
fn with_cause(error: &libloading::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A text of C's, or nothing.
///
/// # Safety
///
/// It is null, or ends with a zero and stays as it is during the call.
pub(crate) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // JUSTIFICATION: texts of C are pointers.
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_named_with_its_package() {
        let Err(refused) = Gdal::first(["libgdal.so.0".to_owned()].into_iter()) else {
            panic!("there is no such library");
        };
        let said = refused.to_string();
        assert!(
            said.contains("libgdal.so.0") && said.contains("libgdal32"),
            "{said}"
        );
    }

    #[test]
    fn another_library_is_not_taken_for_it() {
        let Err(refused) = Gdal::first(["libc.so.6".to_owned()].into_iter()) else {
            panic!("this is another one");
        };
        assert!(refused.to_string().contains("GDALAllRegister"), "{refused}");
    }
}
