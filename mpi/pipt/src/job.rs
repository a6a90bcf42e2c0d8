//! The batch file: which images are read, what is done with them, and what is written.
//!
//! ```text
//! # One statement a line. Names stand for images; a # begins a comment.
//! foreach scenes/*.tif as scene     # at most once and first: all that follows, for each of these files
//! in scene                          # or: in path/to/file.tif as NAME page=0 bands=1,3-5 nodata=0 mask=clouds
//! calm = SquareMedian scene size=15
//! rough = CoOccurEntropy calm window=9 levels=64
//! write rough results/{scene}-entropy.tif compress=zstd tile=512
//! ```
//!
//! A file is read as a whole before anything is done, and all that is wrong is said at once, by line.

mod line;
mod parse;

pub use parse::{INPUT, OUTPUT, bands, parse};

use crate::parameter::Values;
use crate::routine::Routine;
use std::fmt;

/// A batch file has at most so many bytes, and a job so many statements.
pub const BYTES_MAX: usize = 1 << 20;
pub const STATEMENTS_MAX: usize = 1000;

/// The parameter of texture routines that names a file which is written.
pub const WRITE_THRESHOLDS: &str = "write-thresholds";

/// The parameter of routines that write what they find as a table.
pub const WRITE_TABLE: &str = "write-table";

/// The files that a routine writes by itself.
fn written(values: &Values) -> impl Iterator<Item = &str> {
    let names = [WRITE_THRESHOLDS, WRITE_TABLE].into_iter();
    names.filter_map(|name| values.word(name))
}

/// A batch file, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    pub foreach: Option<Foreach>,
    /// In their order: each takes only images that are named before.
    pub images: Vec<Image>,
    pub writes: Vec<Write>,
}

impl Job {
    /// The names of all files that are written: of images, thresholds of their grey levels, and tables.
    pub fn writes(&self) -> impl Iterator<Item = &str> {
        let texts = self.images.iter().flat_map(|image| match &image.from {
            From::Routine { values, .. } => written(values).collect::<Vec<_>>(),
            From::File(_) => Vec::new(),
        });
        let images = self.writes.iter().map(|write| write.path.as_str());
        images.chain(texts)
    }

    /// The names of all files that are read, but that of `foreach`.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        self.images
            .iter()
            .flat_map(|image| match &image.from {
                From::File(input) => [input.path.as_deref(), input.values.word("mask")],
                From::Routine { values, .. } => [values.word("thresholds"), None],
            })
            .flatten()
    }
}

/// All of it, for each of several files.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreach {
    /// Files, with `*` and `?`.
    pub pattern: String,
    /// What stands for one of them, and in braces for its name without directory and extension.
    pub name: String,
}

impl Foreach {
    /// What stands for the name of a file within the names of those that are written.
    #[must_use]
    pub fn in_names(&self) -> String {
        format!("{{{}}}", self.name)
    }
}

/// An image with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    pub name: String,
    /// Of the batch file, from 1.
    pub line: usize,
    pub from: From,
}

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum From {
    File(Input),
    Routine {
        routine: &'static Routine,
        /// Places of the images that it is made of, in [`Job::images`].
        images: Vec<usize>,
        values: Values,
    },
}

/// A file to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// None: that of `foreach`.
    pub path: Option<String>,
    /// `page`, `bands`, `nodata`, `mask`.
    pub values: Values,
    /// From 0; None: all.
    pub bands: Option<Vec<u32>>,
}

/// An image to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub line: usize,
    /// Place in [`Job::images`].
    pub image: usize,
    pub path: String,
    pub values: Values,
}

/// What is wrong with a batch file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1; 0: the file as a whole.
    pub line: usize,
    pub what: String,
}

/// All that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// One, of a job that is in no file.
    #[must_use]
    pub fn one(what: String) -> Self {
        Self(vec![Fault { line: 0, what }])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(to)?;
            }
            match fault.line {
                0 => write!(to, "{}", fault.what)?,
                line => write!(to, "Line {line}: {}", fault.what)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
