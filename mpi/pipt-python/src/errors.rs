//! The engine's errors as exceptions of Python.

use pipt::assemble::AssembleError;
use pipt::execute::ExecuteError;
use pipt::graph::Failure;
use pipt::work::WorkError;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    pipt,
    PiptError,
    PyRuntimeError,
    "Something could not be computed, though what was asked for can be meant."
);

pub(crate) fn value(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// An exception of a kernel or of mpi4py goes through the engine as it is.
pub(crate) fn failure(failure: Failure) -> PyErr {
    match failure.downcast::<PyErr>() {
        Ok(error) => *error,
        Err(other) => PiptError::new_err(ExecuteError::Failed(other).to_string()),
    }
}

pub(crate) fn execute(error: ExecuteError) -> PyErr {
    match error {
        ExecuteError::Failed(failed) => failure(failed),
        other => PiptError::new_err(other.to_string()),
    }
}

pub(crate) fn assemble(error: AssembleError) -> PyErr {
    match error {
        AssembleError::Survey(error) => execute(error),
        AssembleError::Input(error) => PyOSError::new_err(error.to_string()),
        AssembleError::Team(error) => PiptError::new_err(error.to_string()),
        other => value(other),
    }
}

pub(crate) fn work(error: WorkError) -> PyErr {
    match error {
        WorkError::Assemble(error) => assemble(error),
        WorkError::Execute(error) => execute(error),
        WorkError::Output(error) => PyOSError::new_err(error.to_string()),
        error @ (WorkError::Level(_)
        | WorkError::Pattern(..)
        | WorkError::Same(_)
        | WorkError::Read(_)) => value(error),
        other => PiptError::new_err(other.to_string()),
    }
}
