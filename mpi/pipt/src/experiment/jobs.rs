//! The images of the experiment, and a batch file for each routine.

use super::error::ExperimentError;
use super::programs::Programs;
use super::record::Picture;
use super::watch::{Watch, done};
use super::{IMAGES_MAX, Livecd, SMALL_SIDE};
use crate::input::{File, Wanted};
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pixels to a side of the tiles of results: a rank computes whole rows of them, and small ones can be shared equally.
const TILE: u32 = 64;
const KINDS: [&str; 5] = ["tif", "tiff", "png", "jpg", "jpeg"];

/// The images of a directory, sorted by their names.
///
/// # Errors
///
/// There are none or too many, or a name cannot stand in a batch file.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>, ExperimentError> {
    let failed = |error| ExperimentError::file("read", directory, error);
    let mut images = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let is_image = kind.is_some_and(|kind| KINDS.contains(&kind.to_lowercase().as_str()));
        if is_image && path.is_file() {
            images.push(path);
        }
    }
    if images.is_empty() || images.len() > IMAGES_MAX {
        return Err(ExperimentError::Images(directory.to_owned(), images.len()));
    }
    images.sort();
    let mut names = HashSet::new();
    for path in &images {
        let name = stem(path);
        // What a batch file or a pattern of names takes for something else.
        let is_odd = |c: char| c.is_control() || "\"#{}[]*?".contains(c);
        if path.to_str().is_none_or(|path| path.contains(is_odd)) {
            return Err(ExperimentError::Name(path.clone()));
        }
        if !names.insert(name.clone()) {
            return Err(ExperimentError::Same(name));
        }
    }
    Ok(images)
}

/// A file's name without what stands after its last point.
pub(super) fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A batch file that makes TIFF files of an image, of no more than so many pixels to a side from its upper left corner.
#[must_use]
pub fn copy(image: &Path, to: &Path, (width, height): (u32, u32)) -> String {
    format!(
        "in \"{}\" as whole\npart = Crop whole x=0 y=0 width={width} height={height}\nwrite part \"{}\" compress=none\n",
        image.display(),
        to.display()
    )
}

/// Copies all images as TIFF files into `images` below the directory `work`, cut where the small form is asked for.
///
/// # Errors
///
/// One cannot be read or copied, or a signal has come.
pub fn prepare(
    asked: &Livecd,
    work: &Path,
    programs: &Programs,
    watch: &Watch,
) -> Result<Vec<Picture>, ExperimentError> {
    // Nodes have directories of their own; a batch file has whole names.
    let directory = asked.images.canonicalize();
    let directory =
        directory.map_err(|error| ExperimentError::file("read", &asked.images, error))?;
    let place = work.join("images");
    fs::create_dir(&place).map_err(|error| ExperimentError::file("made", &place, error))?;
    let mut pictures = Vec::new();
    for path in list(&directory)? {
        let name = stem(&path);
        let file = File::open(&path.to_string_lossy(), &Wanted::default());
        let info = file.map_err(ExperimentError::Image)?.info().clone();
        let side = if asked.small { SMALL_SIDE } else { u32::MAX };
        let (width, height) = (info.size.width.min(side), info.size.height.min(side));
        let to = place.join(format!("{name}.tif"));
        let job = work.join("copy.txt");
        write(&job, &copy(&path, &to, (width, height)))?;
        let mut command = Command::new(&programs.pipt);
        command.arg("run").arg(&job).arg("--quiet");
        done(
            command,
            &format!("The copy of {}", path.display()),
            &work.join("copy"),
            watch,
        )?;
        let bytes = fs::metadata(&to).map_err(|error| ExperimentError::file("read", &to, error))?;
        pictures.push(Picture {
            image: name,
            width,
            height,
            bands: info.bands,
            kind: info.kind.name().to_owned(),
            bytes: bytes.len(),
        });
    }
    Ok(pictures)
}

/// The batch file of a routine, for all images below `work`, with its results in the directory `to`.
#[must_use]
pub fn job(asked: &Livecd, routine: &str, work: &Path, to: &Path) -> String {
    let mut text = format!(
        "foreach \"{}/images/*.tif\" as scene\nin scene\nresult = {routine} scene",
        work.display()
    );
    let _written = match routine {
        name if name.starts_with("CoOccur") => {
            write!(text, " window={} levels={}", asked.window, asked.levels)
        }
        name if name.contains("Median") || name.starts_with("ATrimmed") => {
            write!(text, " size={}", asked.window)
        }
        _ => Ok(()),
    };
    let _written = write!(
        text,
        "\nwrite result \"{}/{{scene}}.tif\" compress=zstd tile={TILE}\n",
        to.display()
    );
    text
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), ExperimentError> {
    fs::write(path, text).map_err(|error| ExperimentError::file("written", path, error))
}
