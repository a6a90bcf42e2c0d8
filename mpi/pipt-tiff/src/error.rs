//! What can go wrong with a TIFF file.

use std::io;
use std::path::PathBuf;

use pipt_raster::{Rect, Size};

/// Reading or writing failed.
#[derive(Debug, thiserror::Error)]
pub enum TiffError {
    #[error("Cannot {doing}: look whether the file is there and its disk in order")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "This is no TIFF file: it begins with the bytes {begins:02x?}, not with II or MM and 42 or 43; \
         look whether it is the right file"
    )]
    NotTiff { begins: Vec<u8> },
    #[error(
        "{what} would lie at the bytes {offset}..{end} of the file, which has {size}: it is cut short or \
         damaged; fetch it again"
    )]
    Beyond {
        what: String,
        offset: u64,
        end: u64,
        size: u64,
    },
    #[error(
        "{what} would be {is}, and no more than {most} is taken: raise the limit if you trust the file"
    )]
    Limit { what: String, is: u64, most: u64 },
    #[error(
        "Directory {directory}, tag {tag} ({name}): {problem}; the file is damaged: write it anew"
    )]
    Tag {
        directory: usize,
        tag: u16,
        name: &'static str,
        problem: String,
    },
    #[error(
        "There is no directory {page} in the file: it has {pages}, counted from 0; ask for one of these, or \
         fetch the file again if it should have more"
    )]
    NoPage { page: usize, pages: usize },
    #[error("Directory {directory} has {flavour}, which is not read here: {instead}")]
    Refused {
        directory: usize,
        flavour: String,
        instead: &'static str,
    },
    #[error(
        "Directory {directory}, chunk {chunk} ({codec}) cannot be decoded: {problem}; the file is damaged: \
         fetch it again"
    )]
    Chunk {
        directory: usize,
        chunk: u64,
        codec: &'static str,
        problem: String,
    },
    #[error(
        "There are no bands {first}..{end} in the rectangle {rect}: the image has {bands} bands and {size} \
         pixels; ask for what lies within it"
    )]
    Outside {
        first: u32,
        end: u64,
        rect: Rect,
        bands: u32,
        size: Size,
    },
    #[error("Such a file cannot be written: {problem}")]
    Design { problem: String },
    #[error("Tile {tile} cannot be written: {problem}")]
    Tile { tile: u64, problem: String },
    #[error(
        "{} is there already, from a run that was interrupted or still goes on: resume it, or delete it",
        path.display()
    )]
    Exists { path: PathBuf },
    #[error(
        "{} cannot be resumed: {problem}; delete it and its journal, and begin anew",
        path.display()
    )]
    Resume { path: PathBuf, problem: String },
    #[error(
        "{missing} tiles of {tiles} were not given, tile {first} first: the file is not finished"
    )]
    Missing {
        missing: u64,
        tiles: u64,
        first: u64,
    },
    #[error("Writing was given up: {why}")]
    GivenUp { why: String },
}

/// What to do with a flavour that another reader may know.
pub(crate) const OTHER_READER: &str = "a reader on top of GDAL may read it, or convert it to Deflate first, \
                                       as by `gdal_translate -co COMPRESS=DEFLATE`";

/// What to do where the caller has to choose.
pub(crate) const CHOOSE: &str = "choose what it is to be converted to in the options of the reader";

impl TiffError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |source| Self::Io { doing, source }
    }

    pub(crate) fn refused(directory: usize, flavour: impl Into<String>) -> Self {
        Self::Refused {
            directory,
            flavour: flavour.into(),
            instead: OTHER_READER,
        }
    }
}
