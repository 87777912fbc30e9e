//! Locks of what holds whatever a thread was doing when it panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also where a thread that had it panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
