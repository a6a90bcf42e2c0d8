//! Work without the interpreter's lock, which Ctrl-C ends.

use pipt::stop::Stop;
use pyo3::prelude::*;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Signals are looked for so often.
const LOOKS: Duration = Duration::from_millis(50);

/// Does work in a thread of its own, so that this one sees signals; one that raises an exception stops the work, and
/// the exception comes when that has ended.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| {
        thread::scope(|scope| {
            let (going, ended) = mpsc::channel::<()>();
            let worker = scope.spawn(move || {
                // It goes with the worker, whose end is so noticed at once.
                let _going = going;
                work()
            });
            let mut interrupted = None;
            while ended.recv_timeout(LOOKS) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    stop.set();
                    interrupted.get_or_insert(error);
                }
            }
            let done = worker
                .join()
                .unwrap_or_else(|fault| std::panic::resume_unwind(fault));
            interrupted.map_or(done, Err)
        })
    })
}
