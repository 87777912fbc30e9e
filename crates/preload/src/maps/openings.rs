//! What mappings keep open. The kernel's mapping of a file keeps what the descriptor leads to that it was made by, and so
//! the locks that go by that (`flock`, `F_OFD_SETLK`), when all its descriptors are closed. The file's own pages and
//! replicas are no mappings of the kernel's of that file: where there may be such a lock, a descriptor of this library's
//! own stays open as long as they do. To map a page for it in the kernel's way might be to wait for oneself.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering, fence};

use novale_core::Ino;

use crate::base::sys::sys;
use crate::fds::locks;
use crate::fds::table::{self, IN_KERNEL, InUse, LOCKED};
use crate::maps;
use crate::numbers::{self, limits, words};

/// How many descriptions were mapped.
static NUMBERED: AtomicU32 = AtomicU32::new(0);
/// No descriptor is kept.
const NONE: i32 = -1;

/// What parts were mapped by; ends when the last of them does.
pub(crate) struct Opening {
    /// The number of the description ([`table::Description::mapped_as`]), which is another one's when its slot is.
    pub(super) number: u32,
    file: (usize, Ino),
    kept: AtomicI32,
}

impl Opening {
    /// That of a description: the one that parts have already, or a new one.
    pub(crate) fn of(description: &InUse) -> Arc<Self> {
        let number = number_of(description);
        let of_part = || maps::some()?.openings_of(number).next().cloned();
        let file = locks::file_of(description);
        of_part().unwrap_or_else(|| Arc::new(Self { number, file, kept: AtomicI32::new(NONE) }))
    }

    /// One of a number, for a test.
    #[cfg(test)]
    pub(super) fn numbered(number: u32) -> Arc<Self> {
        let file = (0, Ino::ROOT);
        Arc::new(Self { number, file, kept: AtomicI32::new(NONE) })
    }

    /// Keeps what a descriptor leads to. With the table's lock.
    fn keep(&self, fd: i32, description: &InUse) {
        if self.kept.load(Ordering::Relaxed) != NONE {
            return;
        }
        let kept = limits::out_of_the_way(|high| {
            table::with_number(fd, description, |fd| {
                let kept = sys!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, high);
                let kept = i32::try_from(kept).ok().filter(|kept| *kept >= 0);
                kept.inspect(|kept| words::set_internal(*kept))
            })
        });
        self.kept.store(kept.flatten().unwrap_or(NONE), Ordering::Relaxed);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let kept = *self.kept.get_mut();
        // The end of a mapping is not the end of the process' own locks, as a descriptor's is.
        if kept != NONE && !locks::keeps(self.file, kept.cast_unsigned()) {
            words::forget_internal(kept);
            sys!(libc::SYS_close, kept);
            numbers::freed_any();
        }
    }
}

/// All that is kept, each with its file.
pub(crate) fn kept() -> Vec<((usize, Ino), i32)> {
    let Some(maps) = maps::some() else { return Vec::new() };
    let all = maps.openings().map(|by| (by.file, by.kept.load(Ordering::Relaxed)));
    all.filter(|(_, kept)| *kept != NONE).collect()
}

fn number_of(description: &InUse) -> u32 {
    let known = description.mapped_as.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let new = NUMBERED.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    let number = &description.mapped_as;
    let set = number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
    set.map_or_else(|other| other, |_| new)
}

/// Has the parts that a description was mapped by keep what it leads to, where it may be locked: called once it is
/// mapped, and before the kernel locks it.
pub(crate) fn keep(fd: i32, description: &InUse) {
    // Of one thread that maps it and one that is to lock it, one sees what the other has noted before.
    fence(Ordering::SeqCst);
    if !description.is(LOCKED) || !description.is(IN_KERNEL) {
        return;
    }
    let number = description.mapped_as.load(Ordering::Relaxed);
    let Some(maps) = maps::some().filter(|_| number != 0) else { return };
    maps.openings_of(number).for_each(|by| by.keep(fd, description));
}
