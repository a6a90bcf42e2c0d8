//! Why the experiment was not done.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum ExperimentError {
    /// A program or library is not there: its name, and how it is had.
    Missing(String, &'static str),
    NotRoot,
    /// What was done to a file, which one, and why it failed.
    File(&'static str, PathBuf, std::io::Error),
    /// The directory of the report is not empty.
    Taken(PathBuf),
    /// There are no images, or too many: the directory, and how many.
    Images(PathBuf, usize),
    /// A name that no batch file can have.
    Name(PathBuf),
    /// Two images would have one name.
    Same(String),
    Image(crate::input::InputError),
    /// A program could not be started.
    Start(String, std::io::Error),
    /// A program failed: what it was for, how it ended, what it said.
    Failed(String, String, String),
    /// It did not end within so many seconds.
    Late(String, u64),
    /// What a program printed cannot be understood: which, and the line.
    Output(&'static str, String),
    Signals(nix::Error),
    Interrupted,
}

impl ExperimentError {
    pub(super) fn file(what: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::File(what, path.to_owned(), error)
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name, how) => write!(to, "{name} is not there: {how}"),
            Self::NotRoot => write!(
                to,
                "The experiment gives each node of its lab a share of the CPUs, for which it has to be root: use sudo"
            ),
            Self::File(what, path, error) => {
                write!(to, "{} cannot be {what}: {error}", path.display())
            }
            Self::Taken(path) => write!(
                to,
                "{} is there and not empty: give --report the name of a new directory",
                path.display()
            ),
            Self::Images(path, count) => write!(
                to,
                "{} has {count} images of the kinds .tif, .tiff, .png, .jpg and .jpeg, and the experiment takes 1 to \
                 {}: mpi/experiment/images makes fifteen",
                path.display(),
                super::IMAGES_MAX
            ),
            Self::Name(path) => write!(
                to,
                "The name of {} is no UTF-8, or has a quote, a bracket or a control character: rename the file",
                path.display()
            ),
            Self::Same(name) => write!(to, "Two images are called {name}: rename one of them"),
            Self::Image(error) => write!(to, "{error}"),
            Self::Start(name, error) => write!(to, "{name} cannot be started: {error}"),
            Self::Failed(what, how, said) => write!(to, "{what} failed ({how}): {}", said.trim()),
            Self::Late(what, seconds) => {
                write!(to, "{what} did not end within {seconds} s, and was ended")
            }
            Self::Output(what, line) => write!(
                to,
                "What {what} printed cannot be understood (is it of another version?): {line}"
            ),
            Self::Signals(error) => write!(to, "Signals cannot be waited for: {error}"),
            Self::Interrupted => write!(to, "Interrupted; the lab is down"),
        }
    }
}

impl std::error::Error for ExperimentError {}
