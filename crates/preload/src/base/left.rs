//! What is left to the kernel for good: all paths, or every file.

use std::sync::atomic::{AtomicBool, Ordering};

/// The process does what this library can't see (`io_uring`): everything is the kernel's at once.
static ALL: AtomicBool = AtomicBool::new(false);
/// Paths mean something else here than where the mounts were named.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Whether all calls with paths are the kernel's.
pub(crate) fn has_all() -> bool {
    ELSEWHERE.load(Ordering::Relaxed)
}

/// Leaves all paths to the kernel from now on.
pub(crate) fn leave_paths() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Whether every file has to be the kernel's from the start.
pub(crate) fn needs_all() -> bool {
    ALL.load(Ordering::Relaxed)
}

/// Has every file be the kernel's from the start, from now on.
pub(crate) fn leave_files() {
    ALL.store(true, Ordering::Relaxed);
}
