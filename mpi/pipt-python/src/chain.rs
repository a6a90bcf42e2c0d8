//! Images and routines one behind the other, of which parts are computed into arrays.

use crate::array::{Array, Source, name};
use crate::{errors, interrupt};
use pipt::assemble::{AssembleError, Assembled, Setting};
use pipt::compute::{self, Means};
use pipt::graph::{Failure, Part};
use pipt::job::{INPUT, bands};
use pipt::parameter::Values;
use pipt::routine::Routine;
use pipt::stop::Stop;
use pipt::{output, routine};
use pipt_raster::{Rect, Sample, SampleType, each};
use pipt_simd::Level;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList};
use std::path::Path;
use std::thread;

/// Names and values, as a batch file has them.
pub(crate) type Settings = Vec<(String, String)>;

/// A step as Python gives it: `("array", array, mask, nodata)`, `("file", path, settings)`, or
/// `("routine", name, places, settings)`.
pub(crate) enum Step {
    Array(Box<Source>),
    File(String, Values, Option<Vec<u32>>),
    Routine(&'static Routine, Vec<usize>, Values),
}

pub(crate) fn values(
    parameters: &[pipt::parameter::Parameter],
    settings: &Settings,
) -> PyResult<Values> {
    let given = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    Values::read(parameters, given).map_err(errors::value)
}

impl Step {
    pub(crate) fn new(step: &Bound<'_, PyAny>, before: usize) -> PyResult<Self> {
        let what: String = step.get_item(0)?.extract()?;
        match what.as_str() {
            "array" => {
                let array = Array::new(&step.get_item(1)?, false)?;
                let mask = step.get_item(2)?;
                let mask = (!mask.is_none())
                    .then(|| Array::new(&mask, false))
                    .transpose()?;
                let fits = |mask: &Array| {
                    (mask.size, mask.bands, mask.kind) == (array.size, array.bands, SampleType::U8)
                };
                if !mask.as_ref().is_none_or(fits) {
                    return Err(errors::value("The mask has another shape than the array"));
                }
                let nodata = step.get_item(3)?.extract()?;
                Ok(Self::Array(Box::new(Source {
                    array,
                    mask,
                    nodata,
                })))
            }
            "file" => {
                let values = values(INPUT, &step.get_item(2)?.extract()?)?;
                let bands = values.word("bands").map(bands).transpose();
                Ok(Self::File(
                    step.get_item(1)?.extract()?,
                    values,
                    bands.map_err(errors::value)?,
                ))
            }
            _ => Self::routine(step, before),
        }
    }

    fn routine(step: &Bound<'_, PyAny>, before: usize) -> PyResult<Self> {
        let name: String = step.get_item(1)?.extract()?;
        let routine = routine::of(&name).ok_or_else(|| {
            let like = routine::like(&name);
            let like = like.first().map(|like| format!(": is {like} meant?"));
            errors::value(format!(
                "There is no routine '{name}'{}",
                like.unwrap_or_default()
            ))
        })?;
        let images: Vec<usize> = step.get_item(2)?.extract()?;
        let most = routine.images + routine.optional;
        if !(routine.images..=most).contains(&images.len()) {
            let many = match routine.images == most {
                true => format!("{most}"),
                false => format!("{} to {most}", routine.images),
            };
            let taken = images.len();
            return Err(errors::value(format!(
                "{name} takes {many} images, not {taken}"
            )));
        }
        if images.iter().any(|image| *image >= before) {
            return Err(errors::value("An image is taken that is not there yet"));
        }
        let values = values(routine.parameters, &step.get_item(3)?.extract()?)?;
        Ok(Self::Routine(routine, images, values))
    }

    fn add(self, all: &mut Assembled, setting: &Setting<'_>) -> Result<usize, AssembleError> {
        match self {
            Self::Array(source) => {
                let shape = source.array.shape(source.nodata);
                let has_holes = source.mask.is_some();
                Ok(all.add(shape, *source, has_holes, setting))
            }
            Self::File(path, values, bands) => all.file(&path, &values, bands.as_deref(), setting),
            Self::Routine(routine, images, values) => {
                all.routine(routine, &images, &values, setting)
            }
        }
    }
}

/// Steps, put together; the last one is what is computed.
#[pyclass(frozen)]
pub struct Chain {
    all: Assembled,
    place: usize,
    threads: usize,
    memory: u64,
}

#[pymethods]
impl Chain {
    /// Looks through images where a routine needs that. `overwrite` is for files that routines write beside.
    #[new]
    fn new(
        py: Python<'_>,
        steps: &Bound<'_, PyList>,
        threads: Option<usize>,
        memory: u64,
        overwrite: bool,
    ) -> PyResult<Self> {
        let mut all = Vec::new();
        for step in steps.iter() {
            all.push(Step::new(&step, all.len())?);
        }
        let threads = threads
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
            .max(1);
        let stop = Stop::default();
        let assemble = || {
            let setting = Setting {
                stop: &stop,
                file: None,
                part: None,
                threads,
                memory,
                level: Level::best(),
                team: None,
            };
            let (mut assembled, mut place) = (Assembled::default(), 0);
            for step in all {
                place = step
                    .add(&mut assembled, &setting)
                    .map_err(errors::assemble)?;
            }
            for (path, text) in &assembled.texts {
                let written = output::text(Path::new(path), text, overwrite);
                written.map_err(|error| pyo3::exceptions::PyOSError::new_err(error.to_string()))?;
            }
            Ok((assembled, place))
        };
        let (all, place) = interrupt::run(py, &stop, assemble)?;
        if all.images.is_empty() {
            return Err(errors::value("There is no image"));
        }
        Ok(Self {
            all,
            place,
            threads,
            memory,
        })
    }

    /// Bands, rows, columns.
    #[getter]
    fn shape(&self) -> (usize, u32, u32) {
        let shape = self.all.graph.shape(self.node());
        (shape.bands.len(), shape.size.height, shape.size.width)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        name(self.all.graph.shape(self.node()).kind)
    }

    #[getter]
    fn bands(&self) -> Vec<String> {
        self.all.graph.shape(self.node()).bands.clone()
    }

    #[getter]
    fn nodata(&self) -> Option<f64> {
        self.all.graph.shape(self.node()).nodata
    }

    /// Computes what begins at `x`, `y` and is as large as `out`; `mask` becomes 1 where there is no data.
    fn read(
        &self,
        py: Python<'_>,
        x: u32,
        y: u32,
        out: &Bound<'_, PyAny>,
        mask: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let shape = self.all.graph.shape(self.node());
        let out = Array::new(out, true)?;
        let mask = mask.map(|mask| Array::new(mask, true)).transpose()?;
        let rect = Rect::new(x, y, out.size.width, out.size.height);
        if !rect.is_within(shape.size) || out.bands != shape.bands.len() || out.kind != shape.kind {
            return Err(errors::value("That is no part of the image"));
        }
        let target = Target {
            out,
            mask,
            nodata: shape.nodata,
        };
        let put = |band: u32, at: Rect, part: Part| -> Result<(), Failure> {
            let own = Rect {
                x: at.x - x,
                y: at.y - y,
                ..at
            };
            each!(&part.samples, values => target.put(band, own, values, part.there.as_deref()))
        };
        let means = Means {
            threads: self.threads,
            memory: self.memory,
            level: Level::best(),
            stop: Stop::default(),
        };
        interrupt::run(py, &means.stop, || {
            let done = compute::window(&self.all.graph, self.node(), rect, &means, &put);
            done.map_err(errors::execute)
        })
    }
}

impl Chain {
    fn node(&self) -> usize {
        self.all.images[self.place].node
    }
}

/// Where a part goes.
struct Target {
    out: Array,
    /// Becomes 1 where there is no data.
    mask: Option<Array>,
    nodata: Option<f64>,
}

impl Target {
    fn put<T: Sample>(
        &self,
        band: u32,
        at: Rect,
        values: &[T],
        there: Option<&[bool]>,
    ) -> Result<(), Failure> {
        let Some(there) = there else {
            return self.out.write(band, at, values);
        };
        if let Some(mask) = &self.mask {
            let flags: Vec<u8> = there.iter().map(|there| u8::from(!there)).collect();
            mask.write(band, at, &flags)?;
        }
        let fits = |nodata: &f64| T::of_f64(*nodata).to_f64() == *nodata;
        let none = match (self.nodata.filter(fits), T::TYPE.is_float(), &self.mask) {
            (Some(nodata), ..) => nodata,
            (None, true, _) => f64::NAN,
            (None, false, Some(_)) => 0.0,
            (None, false, None) => {
                return Err(Box::new(errors::value(format!(
                    "Some pixels of the result have no data, and no number of {} stands for that: give nodata=, or a \
                     numpy.ma.MaskedArray",
                    T::TYPE
                ))));
            }
        };
        let filled = values.iter().zip(there);
        let filled = filled.map(|(value, there)| if *there { *value } else { T::of_f64(none) });
        self.out.write(band, at, &filled.collect::<Vec<T>>())
    }
}
