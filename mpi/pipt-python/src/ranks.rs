//! Ranks whose messages a communicator of mpi4py carries, so that this module links no MPI.

use pipt::graph::Failure;
use pipt::ranks::Ranks;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Messages of the engine have this tag, in a communicator of their own.
const TAG: u32 = 1;

/// A duplicate of a communicator. It stays with one thread.
pub(crate) struct PythonRanks {
    communicator: Py<PyAny>,
    rank: usize,
    size: usize,
    /// What is being sent.
    sending: RefCell<VecDeque<Py<PyAny>>>,
}

impl PythonRanks {
    /// # Errors
    ///
    /// It is no communicator.
    pub(crate) fn new(communicator: Py<PyAny>) -> PyResult<Self> {
        Python::attach(|py| {
            let own = communicator.bind(py);
            Ok(Self {
                rank: own.call_method0("Get_rank")?.extract()?,
                size: own.call_method0("Get_size")?.extract()?,
                communicator,
                sending: RefCell::default(),
            })
        })
    }

    /// Forgets what has been sent.
    fn look(&self, py: Python<'_>) -> PyResult<()> {
        let mut sending = self.sending.borrow_mut();
        let mut going = VecDeque::new();
        for request in sending.drain(..) {
            let is_done: bool = request.call_method0(py, "Test")?.extract(py)?;
            if !is_done {
                going.push_back(request);
            }
        }
        *sending = going;
        Ok(())
    }
}

impl Drop for PythonRanks {
    fn drop(&mut self) {
        Python::attach(|py| {
            for request in self.sending.borrow_mut().drain(..) {
                let _sent = request.call_method0(py, "Wait");
            }
        });
    }
}

impl Ranks for PythonRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), Failure> {
        let sent = Python::attach(|py| {
            self.look(py)?;
            let message = PyBytes::new(py, bytes);
            let request = self
                .communicator
                .call_method1(py, "isend", (message, to, TAG))?;
            self.sending.borrow_mut().push_back(request);
            Ok::<_, PyErr>(())
        });
        Ok(sent?)
    }

    fn poll(&self) -> Result<Option<(usize, Vec<u8>)>, Failure> {
        let found = Python::attach(|py| {
            self.look(py)?;
            let mpi = py.import("mpi4py.MPI")?;
            let status = mpi.getattr("Status")?.call0()?;
            let any = (mpi.getattr("ANY_SOURCE")?, TAG, &status);
            let message = self.communicator.bind(py).call_method1("improbe", any)?;
            if message.is_none() {
                return Ok(None);
            }
            let from: usize = status.call_method0("Get_source")?.extract()?;
            let bytes: Vec<u8> = message.call_method0("recv")?.extract()?;
            Ok::<_, PyErr>(Some((from, bytes)))
        });
        Ok(found?)
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let gathered = Python::attach(|py| {
            let own = PyBytes::new(py, bytes);
            let all = self
                .communicator
                .bind(py)
                .call_method1("allgather", (own,))?;
            let all = all.cast::<PyList>().map_err(PyErr::from)?.iter();
            all.map(|one| one.extract::<Vec<u8>>())
                .collect::<PyResult<_>>()
        });
        Ok(gathered?)
    }
}
