//! A file system in which a thread sleeps that is not inside: who leaves the pool meanwhile frees nothing under it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use novale_core::Fs;
use novale_posix::join::Joined;

use crate::base::sys::sys;
use crate::mounts;
use crate::numbers::words;

/// Looks whether a sleeper has woken, and how long it is waited in between: a tenth of a second and more in all.
const LOOKS: u32 = 2000;
const BETWEEN_NS: i64 = 50_000;

/// The file system of a mount that was joined, for a thread that sleeps by it outside and drops it when it wakes.
pub(crate) fn keep(mount: usize) -> Option<Arc<Fs>> {
    let known = mounts::all().get(mount)?;
    // SAFETY: what stands there was leaked by `join`; the caller is inside, so nobody frees it.
    let joined = unsafe { known.joined.load(Ordering::Acquire).as_ref() };
    joined.map(|joined| joined.fs.clone())
}

/// Frees what a process had joined and has left, as soon as nobody sleeps by it. One that does not wake frees it itself.
pub(super) fn free(joined: Box<Joined>) {
    for _ in 0..LOOKS {
        if Arc::strong_count(&joined.fs) == 1 {
            break;
        }
        joined.fs.wake_for_mappings();
        let between = libc::timespec { tv_sec: 0, tv_nsec: BETWEEN_NS };
        sys!(libc::SYS_nanosleep, &raw const between, 0);
    }
    drop(joined);
}

/// Frees a child's copy of what its parent had joined, so that it has no part of the pool in its memory. The parent's
/// place among the pool's clients stays.
///
/// # Safety
/// It is null, or leaked by the parent, and nobody in this process uses it.
pub(super) unsafe fn free_copy(parents: *mut Joined) {
    if parents.is_null() {
        return;
    }
    // SAFETY: as the caller says.
    let joined = unsafe { Box::from_raw(parents) };
    let descriptors: Vec<i32> = joined.descriptors().collect();
    while Arc::strong_count(&joined.fs) > 1 {
        // SAFETY: of a thread that slept by it in the parent, and is not in the child.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&joined.fs)) };
    }
    drop(joined);
    descriptors.into_iter().for_each(words::forget_internal);
}
