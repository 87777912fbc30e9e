//! What `novale run --report` is told: of each call on a mount's file whether it was served here, and why
//! not ([`novale_posix::report`]).
//!
//! The decisions stay where they are. After each call it is asked whether it was about a file of a mount,
//! and, of one that the kernel makes, what the process and the file are like. What can't be seen so
//! is noted where it is decided ([`because`]). Without a report all this is one look at a pointer.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use novale_posix::report::{BYTES, Counters, Event, WORDS, Why};

use crate::base::guard;
use crate::base::sys::sys;
use crate::base::thread::current;

/// The report's memory; null without one.
static COUNTERS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Takes the report that is named, by a path of `novale run`'s. When that has ended the path may lead to what anybody
/// has opened: it counts where it is this user's, and can be made no shorter, which would end who counts in it.
#[cold]
pub(crate) fn begin(path: &[u8]) {
    let path = [path, b"\0"].concat();
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let fd = sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    if fd < 0 {
        return;
    }
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    sys!(libc::SYS_fstat, fd, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let seals = sys!(libc::SYS_fcntl, fd, libc::F_GET_SEALS);
    let is_sealed = seals > 0 && seals & i64::from(libc::F_SEAL_SHRINK) != 0;
    let is_own = i64::from(found.st_uid) == sys!(libc::SYS_geteuid);
    let is_report = found.st_size == BYTES as i64 && is_sealed && is_own;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let mapped = if is_report {
        sys!(libc::SYS_mmap, 0, BYTES, access, libc::MAP_SHARED, fd, 0)
    } else {
        -1
    };
    sys!(libc::SYS_close, fd);
    let Ok(at) = u64::try_from(mapped) else { return };
    COUNTERS.store(at as *mut AtomicU64, Ordering::Release);
    if counters().is_none() {
        COUNTERS.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Whether there is a report.
#[inline]
pub(crate) fn is_on() -> bool {
    !COUNTERS.load(Ordering::Relaxed).is_null()
}

/// The report.
pub(crate) fn counters() -> Option<Counters<'static>> {
    let at = COUNTERS.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    // SAFETY: a mapping of so many words, for as long as the program runs; any bits are valid.
    Counters::new(unsafe { std::slice::from_raw_parts(at, WORDS) })
}

/// Something has happened to the process as a whole.
pub(crate) fn event(event: Event) {
    if let Some(counters) = counters() {
        counters.event(event);
    }
}

/// A program is started that does not load this library. Takes no memory.
pub(crate) fn program(path: u64) {
    let Some(counters) = counters() else { return };
    let mut room = [0; 128];
    let mut len = 0;
    for (at, to) in (path..).zip(&mut room) {
        match guard::load::<u8>(at) {
            None | Some(0) => break,
            Some(byte) => *to = byte,
        }
        len += 1;
    }
    counters.program(room.get(..len).unwrap_or_default());
}

/// Notes why the kernel makes the calling thread's call, or a part of it.
pub(crate) fn because(why: Why) {
    if is_on() {
        current().why.store(why as u32 + 1, Ordering::Relaxed);
    }
}

/// The same where nothing was noted yet.
pub(crate) fn because_at_least(why: Why) {
    if is_on() && current().why.load(Ordering::Relaxed) == 0 {
        because(why);
    }
}

/// What was noted since the call began, and no more.
pub(crate) fn noted() -> Option<Why> {
    let noted = current().why.swap(0, Ordering::Relaxed).checked_sub(1)?;
    Why::ALL.get(usize::try_from(noted).ok()?).copied()
}
