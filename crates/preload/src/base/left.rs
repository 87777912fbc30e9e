//! What is left to the kernel for good: all paths, or every file.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The process does what this library can't see (`io_uring`): everything is the kernel's at once.
static ALL: AtomicBool = AtomicBool::new(false);
/// All that was open before is the kernel's too.
static ALL_ARE: AtomicBool = AtomicBool::new(false);
/// The kernel closes numbers and gives them out that no call here tells of (`io_uring`).
static NUMBERS: AtomicBool = AtomicBool::new(false);
/// None that was the kernel's before is known here any more.
static NUMBERS_ARE: AtomicBool = AtomicBool::new(false);
/// Paths mean something else here than where the mounts were named.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
/// Calls under way after which paths may mean something else.
static LEAVING: AtomicU32 = AtomicU32::new(0);

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

/// Whether every file has to be the kernel's from the start.
pub(crate) fn needs_all() -> bool {
    ALL.load(Ordering::Relaxed)
}

/// Has every file be the kernel's from the start, from now on.
pub(crate) fn leave_files() {
    ALL.store(true, Ordering::Relaxed);
}

/// Whether every file is the kernel's, those too that were open before that was to be.
pub(crate) fn has_all_files() -> bool {
    ALL_ARE.load(Ordering::Acquire)
}

/// Every file is the kernel's by now.
pub(crate) fn all_are_left() {
    ALL_ARE.store(true, Ordering::Release);
}

/// Whether no number that the kernel has a file for may be known here.
pub(crate) fn needs_numbers() -> bool {
    NUMBERS.load(Ordering::SeqCst)
}

/// Leaves all numbers to the kernel from now on.
pub(crate) fn leave_numbers() {
    NUMBERS.store(true, Ordering::SeqCst);
}

/// Whether those that were known are left to it too.
pub(crate) fn has_all_numbers() -> bool {
    NUMBERS_ARE.load(Ordering::Acquire)
}

/// They are by now.
pub(crate) fn all_numbers_are_left() {
    NUMBERS_ARE.store(true, Ordering::Release);
}
