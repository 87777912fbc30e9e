//! How often this process has been made by a fork, as far as it has the library.
//!
//! A child has its parent's memory but is not the client that the arena knows: what it did there would
//! be taken for its parent's, and its death for nobody's.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which a child of any thread may do. Where there
        // is no memory for it, forks go unnoticed, as the header warns that they may.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// The number of forks between the first process that watched and this one.
pub(crate) fn count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}
