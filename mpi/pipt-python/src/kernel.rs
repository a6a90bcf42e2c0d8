//! Kernels of Python: functions on arrays, and compiled ones by their address or library.

use crate::array::{kind, name};
use crate::errors;
use pipt::graph::Failure;
use pipt::kernel::{self as engine, Kernel, Made, Window};
use pipt_load::kernel::{About, Compiled, Run};
use pipt_raster::{SampleType, Samples, each};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The package's adapter of a function: `(samples, there, type, rows, columns, halo, band, parameters)` to
/// `(samples, there or None)`, in bytes.
struct Called {
    adapter: Py<PyAny>,
    halo: (u32, u32),
    bands: Vec<String>,
    takes: Option<SampleType>,
    gives: Option<SampleType>,
}

fn samples(kind: SampleType, bytes: &[u8]) -> Samples {
    macro_rules! of {
        ($($kind:ident $type:ident)*) => {
            match kind {
                $(SampleType::$kind => {
                    let (all, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
                    all.iter().map(|one| $type::from_ne_bytes(*one)).collect::<Vec<_>>().into()
                })*
            }
        };
    }
    of!(U8 u8 U16 u16 U32 u32 U64 u64 I8 i8 I16 i16 I32 i32 I64 i64 F32 f32 F64 f64)
}

impl Called {
    fn call(&self, py: Python<'_>, window: &Window<'_>) -> PyResult<Vec<Made>> {
        let bytes: Vec<u8> = each!(window.samples, values => {
            values.iter().flat_map(|value| value.to_ne_bytes()).collect()
        });
        let there: Vec<u8> = window.there.iter().map(|there| u8::from(*there)).collect();
        let kind = window.samples.kind();
        let (rows, columns) = (window.wanted.height, window.wanted.width);
        let given = (
            PyBytes::new(py, &bytes),
            PyBytes::new(py, &there),
            name(kind),
            (rows, columns),
            window.halo,
            window.band,
            window.parameters.to_vec(),
            (name(Kernel::gives(self, kind)), self.bands.len()),
        );
        let made = self.adapter.bind(py).call1(given)?;
        let (made, there): (Vec<u8>, Option<Vec<u8>>) = made.extract()?;
        let gives = Kernel::gives(self, kind);
        let pixels = rows as usize * columns as usize;
        let band = |number: usize| {
            let from = number * pixels..(number + 1) * pixels;
            let bytes = from.start * gives.bytes()..from.end * gives.bytes();
            let there = there
                .as_ref()
                .map(|there| there.get(from.clone()).unwrap_or_default());
            Made {
                samples: samples(gives, made.get(bytes).unwrap_or_default()),
                there: there.map(|there| there.iter().map(|there| *there != 0).collect()),
            }
        };
        Ok((0..self.bands.len()).map(band).collect())
    }
}

impl Kernel for Called {
    fn halo(&self) -> (u32, u32) {
        self.halo
    }

    fn bands(&self) -> Vec<String> {
        self.bands.clone()
    }

    fn takes(&self) -> Option<SampleType> {
        self.takes
    }

    fn gives(&self, image: SampleType) -> SampleType {
        self.gives.or(self.takes).unwrap_or(image)
    }

    fn run(&self, window: &Window<'_>) -> Result<Vec<Made>, Failure> {
        Python::attach(|py| self.call(py, window)).map_err(|error| Box::new(error) as Failure)
    }
}

fn types(takes: Option<&str>, gives: Option<&str>) -> PyResult<[Option<SampleType>; 2]> {
    Ok([takes.map(kind).transpose()?, gives.map(kind).transpose()?])
}

/// Gives a function a name.
#[pyfunction]
pub(crate) fn register(
    name: &str,
    adapter: Py<PyAny>,
    halo: (u32, u32),
    bands: Vec<String>,
    takes: Option<&str>,
    gives: Option<&str>,
) -> PyResult<()> {
    let [takes, gives] = types(takes, gives)?;
    let kernel = Called {
        adapter,
        halo,
        bands,
        takes,
        gives,
    };
    engine::register(name, Arc::new(kernel)).map_err(errors::value)
}

/// Gives a kernel in a library, `PATH.so:SYMBOL`, a name.
#[pyfunction]
pub(crate) fn register_compiled(name: &str, library: &str) -> PyResult<()> {
    let kernel = engine::of(library).map_err(errors::value)?;
    engine::register(name, kernel).map_err(errors::value)
}

/// A compiled function, and the object that keeps it in memory.
struct InMemory {
    compiled: Compiled,
    _owner: Py<PyAny>,
}

impl Kernel for InMemory {
    fn halo(&self) -> (u32, u32) {
        self.compiled.halo()
    }

    fn bands(&self) -> Vec<String> {
        self.compiled.bands()
    }

    fn takes(&self) -> Option<SampleType> {
        self.compiled.takes()
    }

    fn gives(&self, image: SampleType) -> SampleType {
        Kernel::gives(&self.compiled, image)
    }

    fn run(&self, window: &Window<'_>) -> Result<Vec<Made>, Failure> {
        self.compiled.run(window)
    }
}

/// Gives a function at an address, of the header's type, a name; `owner` keeps it in memory.
#[pyfunction]
#[allow(
    clippy::too_many_arguments,
    reason = "each is one of Python's keywords"
)]
pub(crate) fn register_address(
    name: &str,
    address: usize,
    owner: Py<PyAny>,
    halo: (u32, u32),
    bands: u32,
    takes: Option<&str>,
    gives: Option<&str>,
) -> PyResult<()> {
    if address == 0 {
        return Err(errors::value("A function has no address 0"));
    }
    let [takes, gives] = types(takes, gives)?;
    let about = About {
        halo,
        bands,
        takes,
        gives,
    };
    // JUSTIFICATION: a compiler at run time gives an address.
    // SAFETY: it is not null, and who registers it promises that a function of this type is there.
    let run: Run = unsafe { std::mem::transmute::<usize, Run>(address) };
    // JUSTIFICATION: the same.
    // SAFETY: the function is as its user says; the owner, which lives as long, keeps it in memory.
    let compiled = unsafe { Compiled::in_memory(name, about, run) };
    let kernel = InMemory {
        compiled,
        _owner: owner,
    };
    engine::register(name, Arc::new(kernel)).map_err(errors::value)
}

/// The names that kernels have.
#[pyfunction]
pub(crate) fn kernels() -> Vec<String> {
    engine::names()
}
