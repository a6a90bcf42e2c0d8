//! The part of the Python package `pipt` that is not Python: arrays and files are given to the engine, and what it
//! computes is put into arrays.

mod array;
mod chain;
mod errors;
mod interrupt;
mod jobs;
mod kernel;
mod ranks;
mod table;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PiptError", module.py().get_type::<errors::PiptError>())?;
    module.add_class::<chain::Chain>()?;
    module.add_function(wrap_pyfunction!(table::routines, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::run, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::write, module)?)?;
    module.add_function(wrap_pyfunction!(kernel::register, module)?)?;
    module.add_function(wrap_pyfunction!(kernel::register_compiled, module)?)?;
    module.add_function(wrap_pyfunction!(kernel::register_address, module)?)?;
    module.add_function(wrap_pyfunction!(kernel::kernels, module)?)
}
