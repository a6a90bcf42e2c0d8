//! Jobs that write files: batch files, and chains of images and routines.

use crate::chain::{Settings, Step, values};
use crate::ranks::PythonRanks;
use crate::{errors, interrupt};
use pipt::command::{How, Work};
use pipt::job::{self, From, Image, Input, Job, OUTPUT, Write};
use pipt::ranks::Ranks;
use pipt::stop::Stop;
use pipt::work;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

/// The most columns that a thread works on at a time: Ctrl-C ends the work behind what is being computed.
const BLOCK: u32 = 512;

fn how(threads: Option<usize>, memory: u64, overwrite: bool, resume: bool) -> How {
    How {
        threads,
        memory,
        tile: Some(BLOCK),
        instructions: None,
        part: None,
        json: false,
        quiet: true,
        overwrite,
        resume,
        percent: false,
        distribution: Default::default(),
        collect: Default::default(),
        stop: Stop::default(),
    }
}

fn done<'py>(
    py: Python<'py>,
    work: &Work,
    comm: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let written = interrupt::run(py, &work.how.stop, || {
        // All that is said to other ranks is said by this thread.
        let ranks = comm.map(PythonRanks::new).transpose()?;
        let ranks = ranks.as_ref().map(|ranks| ranks as &dyn Ranks);
        work::run(work, ranks, &|_, _| {}).map_err(errors::work)
    })?;
    let all = PyList::empty(py);
    for file in written {
        let one = PyDict::new(py);
        one.set_item("path", file.path)?;
        one.set_item("bytes", file.bytes)?;
        one.set_item("pixels", file.pixels)?;
        one.set_item("bands", file.bands)?;
        one.set_item("seconds", file.seconds)?;
        all.append(one)?;
    }
    Ok(all)
}

/// Does what the text of a batch file says; gives what was written.
#[pyfunction]
pub(crate) fn run<'py>(
    py: Python<'py>,
    text: &str,
    threads: Option<usize>,
    memory: u64,
    overwrite: bool,
    resume: bool,
    comm: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let job = job::parse(text).map_err(errors::value)?;
    let how = how(threads, memory, overwrite, resume);
    done(py, &Work { job, how }, comm)
}

/// Writes what the last of these steps makes into a file.
#[pyfunction]
#[allow(
    clippy::too_many_arguments,
    reason = "each is one of Python's keywords"
)]
pub(crate) fn write<'py>(
    py: Python<'py>,
    steps: &Bound<'py, PyList>,
    path: String,
    settings: Settings,
    threads: Option<usize>,
    memory: u64,
    overwrite: bool,
    resume: bool,
    comm: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let values = values(OUTPUT, &settings)?;
    if values.whole("tile").is_some_and(|tile| tile % 16 != 0) {
        return Err(errors::value(
            "tile is a multiple of 16: readers of the format rely on it",
        ));
    }
    let mut images = Vec::new();
    for step in steps.iter() {
        let from = match Step::new(&step, images.len())? {
            Step::Array(_) => {
                return Err(errors::value(
                    "What is written without having been read is an image of files alone: compute the array, and \
                     write it by another package",
                ));
            }
            Step::File(path, values, bands) => From::File(Input {
                path: Some(path),
                values,
                bands,
            }),
            Step::Routine(routine, images, values) => From::Routine {
                routine,
                images,
                values,
            },
        };
        images.push(Image {
            name: format!("image{}", images.len()),
            line: 0,
            from,
        });
    }
    let image = images
        .len()
        .checked_sub(1)
        .ok_or_else(|| errors::value("There is no image"))?;
    let write = Write {
        line: 0,
        image,
        path,
        values,
    };
    let job = Job {
        foreach: None,
        images,
        writes: vec![write],
    };
    let how = how(threads, memory, overwrite, resume);
    done(py, &Work { job, how }, comm)
}
