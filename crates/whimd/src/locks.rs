//! How the daemon takes a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, even if a holder panicked: no holder leaves half a change behind, so the value is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
