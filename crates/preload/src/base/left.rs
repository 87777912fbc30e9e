//! What is left to the kernel for good: all paths, every file, or every number.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The process does what this library can't see (`io_uring`): every file is the kernel's at once.
pub(crate) static FILES: LeftForGood = LeftForGood::new();
/// The kernel closes numbers and gives them out that no call here tells of (`io_uring`): none that it has a file for
/// is known here.
pub(crate) static NUMBERS: LeftForGood = LeftForGood::new();
/// Paths mean something else here than where the mounts were named.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
/// Calls under way after which paths may mean something else.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// Things that the kernel is to have: each new one from a moment on, and then those too that there were before.
pub(crate) struct LeftForGood {
    is_begun: AtomicBool,
    is_done: AtomicBool,
}

impl LeftForGood {
    const fn new() -> Self {
        Self { is_begun: AtomicBool::new(false), is_done: AtomicBool::new(false) }
    }

    /// Leaves each new one to the kernel from now on.
    pub(crate) fn begin(&self) {
        self.is_begun.store(true, Ordering::SeqCst);
    }

    /// Whether each new one is the kernel's.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    /// Those that there were are the kernel's by now.
    pub(crate) fn end(&self) {
        self.is_done.store(true, Ordering::Release);
    }

    /// Whether all are the kernel's.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

/// Whether all calls with paths are the kernel's.
pub(crate) fn has_all() -> bool {
    ELSEWHERE.load(Ordering::Relaxed) || LEAVING.load(Ordering::Relaxed) > 0
}

/// A call begins after which paths may mean something else.
pub(crate) fn leaving() {
    LEAVING.fetch_add(1, Ordering::SeqCst);
}

/// It has ended.
pub(crate) fn has_left() {
    LEAVING.fetch_sub(1, Ordering::SeqCst);
}

/// In the child of a fork: whether another thread was making such a call, of which nobody tells here what it did.
pub(crate) fn forget_leaving() -> bool {
    LEAVING.swap(0, Ordering::SeqCst) > 0
}

/// Leaves all paths to the kernel from now on.
pub(crate) fn leave_paths() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}
