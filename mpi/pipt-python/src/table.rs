//! The table of routines, from which the package's functions and stubs are made.

use pipt::parameter::{Kind, Parameter};
use pipt::routine;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn kind(kind: Kind) -> (&'static str, Vec<&'static str>) {
    match kind {
        Kind::Whole(..) | Kind::Odd(..) => ("int", Vec::new()),
        Kind::Number(..) => ("float", Vec::new()),
        Kind::Choice(words) => ("choice", words.to_vec()),
        Kind::YesNo => ("bool", Vec::new()),
        Kind::Offsets => ("offsets", Vec::new()),
        Kind::Words(words) => ("words", words.to_vec()),
        Kind::Range(words) => ("range", words.to_vec()),
        Kind::Numbers => ("numbers", Vec::new()),
        Kind::Text => ("text", Vec::new()),
    }
}

fn parameter<'py>(py: Python<'py>, parameter: &Parameter) -> PyResult<Bound<'py, PyDict>> {
    let one = PyDict::new(py);
    let (kind, words) = kind(parameter.kind);
    one.set_item("name", parameter.name)?;
    one.set_item("kind", kind)?;
    one.set_item("words", words)?;
    one.set_item("is", parameter.kind.to_string())?;
    one.set_item("default", parameter.default)?;
    one.set_item("about", parameter.about)?;
    Ok(one)
}

/// All routines with their parameters.
#[pyfunction]
pub(crate) fn routines(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = PyList::empty(py);
    for routine in routine::listed() {
        let one = PyDict::new(py);
        let parameters: PyResult<Vec<_>> = routine
            .parameters
            .iter()
            .map(|of| parameter(py, of))
            .collect();
        one.set_item("name", routine.name)?;
        one.set_item("family", format!("{:?}", routine.family).to_lowercase())?;
        one.set_item("about", routine.about)?;
        one.set_item("images", routine.images)?;
        one.set_item("optional", routine.optional)?;
        one.set_item("parameters", parameters?)?;
        all.append(one)?;
    }
    Ok(all)
}
