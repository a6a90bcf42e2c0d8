//! The clock that speeds are measured by.

use std::error::Error;

/// Nanoseconds of CPU that this thread had. On some machines they come in steps of several milliseconds.
pub(crate) fn cpu_time() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().ok_or("schedstat is empty")?;
    Ok(first.parse()?)
}
