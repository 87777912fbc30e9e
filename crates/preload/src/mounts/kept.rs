//! A file system in which a thread sleeps that is not inside: who leaves the pool meanwhile frees nothing under it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use novale_core::Fs;
use novale_posix::join::Joined;

use crate::base::sys::sys;
use crate::mounts;

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
