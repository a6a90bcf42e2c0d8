//! How the daemon takes a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the mutex guards. No holder leaves half a change behind: what a panic interrupted is still a whole value.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
