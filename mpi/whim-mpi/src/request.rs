//! What goes on in an MPI.

use crate::constants;
use crate::error::{MpiError, checked};
use mpi_sys as c;
use std::ffi::c_int;
use std::thread;
use std::time::Duration;

/// Pauses between two looks, at first and at last.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// Something that goes on. What it reads and writes stays where it is until it is done; if this is dropped before,
/// it is never told, and that memory may not be used again.
pub struct Request {
    handle: c::MPI_Request,
    /// What it needs besides the caller's memory.
    kept: Kept,
}

/// Memory that a request uses, and that is given back when it is done.
#[derive(Default)]
pub struct Kept {
    pub counts: Vec<c_int>,
    pub places: Vec<c_int>,
    pub numbers: Box<[u64; 2]>,
}

impl Request {
    /// Starts what gives a request.
    pub fn start(
        kept: Kept,
        start: impl FnOnce(&mut Kept, *mut c::MPI_Request) -> c_int,
    ) -> Result<Self, MpiError> {
        let mut request = Self {
            handle: constants::request_null(),
            kept,
        };
        let handle = &raw mut request.handle;
        let code = start(&mut request.kept, handle);
        checked(code)?;
        Ok(request)
    }

    /// Whether it is done; never waits.
    pub fn is_done(&mut self) -> Result<bool, MpiError> {
        let mut done = 0;
        // JUSTIFICATION: a call of C.
        // SAFETY: the request goes on, or is null, which is always done.
        checked(unsafe {
            c::MPI_Test(&raw mut self.handle, &raw mut done, constants::no_status())
        })?;
        Ok(done != 0)
    }

    /// Waits for it, and leaves the processor to others meanwhile.
    pub fn finish(&mut self) -> Result<(), MpiError> {
        let mut pause = PAUSE_MIN;
        while !self.is_done()? {
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // MPI sets it to null when it is done.
        if self.handle != constants::request_null() {
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}
