//! The library for one MPI, and its table of functions.

use crate::error::LoadError;
use crate::launch::{Family, Launch};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::error::Error;
use std::path::{Path, PathBuf};
use whim_mpi::abi;

/// The variable that names the library's path.
const PATH: &str = "PIPT_MPI_LIBRARY";
/// Bytes of a sentence that a library gives: more than the longest of an MPI (`MPI_MAX_ERROR_STRING`).
const SENTENCE_BYTES: usize = 4096;

/// Where the libraries of a program are: beside it, as it is built, and in `lib/pipt` beside `bin`, as it is
/// installed.
#[must_use]
pub fn places(program: &Path) -> Vec<PathBuf> {
    let beside = program.parent();
    let installed = beside
        .and_then(Path::parent)
        .map(|prefix| prefix.join("lib/pipt"));
    beside
        .map(Path::to_owned)
        .into_iter()
        .chain(installed)
        .collect()
}

/// A library that is open, and never closed: an MPI leaves threads and handlers behind.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub table: &'static abi::Table,
}

/// Calls a function of the table with a place for its sentence behind the other arguments.
macro_rules! call {
    ($functions:expr, $what:expr, $name:ident($($argument:expr),*)) => {{
        let mut sentence = $crate::library::Sentence::new();
        let mut text = sentence.text();
        let code = ($functions.table.$name)($($argument,)* &raw mut text);
        let length = text.length;
        sentence.outcome(code, length, || $what)
    }};
}
pub(crate) use call;

/// A place for what a function says.
pub(crate) struct Sentence(Vec<u8>);

impl Sentence {
    pub(crate) fn new() -> Self {
        Self(vec![0; SENTENCE_BYTES])
    }

    pub(crate) fn text(&mut self) -> abi::Text {
        abi::Text {
            bytes: self.0.as_mut_ptr(),
            capacity: SENTENCE_BYTES as u64,
            length: 0,
        }
    }

    fn read(&self, length: u64) -> String {
        let length = usize::try_from(length).unwrap_or(0).min(self.0.len());
        String::from_utf8_lossy(&self.0[..length]).into_owned()
    }

    /// What a function's code means.
    pub(crate) fn outcome(
        &self,
        code: i32,
        length: u64,
        what: impl FnOnce() -> String,
    ) -> Result<(), LoadError> {
        if code == abi::DONE {
            return Ok(());
        }
        Err(LoadError::Mpi(what(), self.read(length)))
    }
}

impl Functions {
    /// Opens the library for a launcher: that of the variable, or the first one in the directories.
    pub(crate) fn open(launch: &Launch, directories: &[PathBuf]) -> Result<Self, LoadError> {
        let named = std::env::var_os(PATH).filter(|path| !path.is_empty());
        let path = match named {
            Some(path) => PathBuf::from(path),
            None => directories
                .iter()
                .map(|directory| directory.join(launch.family.library()))
                .find(|path| path.exists())
                .ok_or_else(|| LoadError::Missing(launch.family, directories.to_vec()))?,
        };
        let functions = Self::load(&path)?;
        match functions.family() {
            Some(family) if family == launch.family => Ok(functions),
            _ => Err(LoadError::Family(path, functions.name(), launch.family)),
        }
    }

    fn load(path: &Path) -> Result<Self, LoadError> {
        let failed =
            |error: libloading::Error| LoadError::Open(path.to_owned(), with_cause(&error));
        // Parts of an MPI are opened by the MPI itself, and look for its functions among those of the process.
        // JUSTIFICATION: there is no other way to use a library that may not be installed.
        // SAFETY: what runs when it is opened are the initialisers of our own library and of the
        // distribution's MPI.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(failed)?;
        // JUSTIFICATION: a function of a library that is opened at run time has no type but the one that we
        // say.
        // SAFETY: a library that exports this name exports it with this type; it is never closed (below).
        let entry = unsafe { library.get::<abi::Entry>(abi::ENTRY) };
        let entry = *entry.map_err(failed)?;
        std::mem::forget(library);
        // JUSTIFICATION: a call of C.
        // SAFETY: it takes a number, and gives null or a table that lives as long as the library.
        let table = unsafe { entry(abi::VERSION).as_ref() };
        let version = || LoadError::Version(path.to_owned(), abi::VERSION);
        let table = table.filter(|table| table.version == abi::VERSION);
        Ok(Self {
            table: table.ok_or_else(version)?,
        })
    }

    /// The family of the MPI that the library is built for, if it is one that is known here.
    fn family(&self) -> Option<Family> {
        // JUSTIFICATION: a call of C.
        // SAFETY: it takes nothing, and may be called before the MPI is started.
        match unsafe { (self.table.family)() } {
            abi::MPICH => Some(Family::Mpich),
            abi::OPEN_MPI => Some(Family::OpenMpi),
            _ => None,
        }
    }

    /// What that MPI calls itself.
    pub(crate) fn name(&self) -> String {
        let mut sentence = Sentence::new();
        let mut text = sentence.text();
        // JUSTIFICATION: a call of C.
        // SAFETY: the text has a place for as many bytes as it says; it may be called before the MPI is
        // started.
        unsafe { (self.table.name)(&raw mut text) };
        let length = text.length;
        sentence.read(length)
    }
}

/// What failed, and what the dynamic linker says of it.
pub(crate) fn with_cause(error: &libloading::Error) -> String {
    match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LAUNCH: Launch = Launch {
        family: Family::Mpich,
        size: 2,
        rank: 0,
    };

    #[test]
    fn a_library_that_is_missing_is_named_with_what_builds_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let places = [directory.path().to_owned()];
        let Err(error) = Functions::open(&LAUNCH, &places) else {
            panic!("there is none");
        };
        let said = error.to_string();
        assert!(said.contains("libwhim_mpi_mpich.so"), "{said}");
        assert!(said.contains("make pipt-mpi"), "{said}");
    }

    #[test]
    fn libraries_are_beside_the_program_and_where_they_are_installed() {
        let found = places(Path::new("/usr/local/bin/pipt"));
        let wanted = ["/usr/local/bin", "/usr/local/lib/pipt"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_no_library_of_ours_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(LAUNCH.family.library());
        fs::write(&path, "text").expect("a file");
        let Err(error) = Functions::open(&LAUNCH, &[directory.path().to_owned()]) else {
            panic!("this is none");
        };
        let said = error.to_string();
        assert!(said.contains("cannot be opened"), "{said}");
        let Err(error) = Functions::load(Path::new("libc.so.6")) else {
            panic!("this is another one");
        };
        assert!(error.to_string().contains("whim_mpi_table"), "{error}");
    }
}
