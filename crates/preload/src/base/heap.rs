//! Memory of this library's own: a signal handler that interrupts the program's `malloc` may open
//! a file, which must not need that `malloc`.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dlmalloc::{Allocator, Dlmalloc};

use crate::base::lock::Lock;
use crate::base::sys::sys;

const PAGE: usize = 4096;
/// Bytes of the reserve that one bit stands for.
const UNIT: usize = 64 << 10;
const UNITS: usize = 32;
/// What the allocator is told of such memory, so that it makes no one piece of it and what lies beside it.
const OF_RESERVE: u32 = 2;

/// Memory that the library has from the start, and touches only where the kernel gives no more: a program may
/// have set itself a limit (`RLIMIT_AS`, `RLIMIT_DATA`) that leaves none, and an allocation that fails ends it.
#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; UNITS * UNIT]>,
    /// A bit for each unit that is given out.
    used: AtomicU32,
}

// SAFETY: the bytes are reached through ranges that are given out to one owner each.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve =
    Reserve { bytes: UnsafeCell::new([0; UNITS * UNIT]), used: AtomicU32::new(0) };

impl Reserve {
    fn has(&self, at: *const u8) -> bool {
        (at as usize).wrapping_sub(self.bytes.get() as usize) < UNITS * UNIT
    }

    /// The bits of the units that `[from, to)` of the reserve covers, the first one rounded up.
    fn bits(from: usize, to: usize) -> u32 {
        let (first, end) = (from.div_ceil(UNIT), to.div_ceil(UNIT));
        (first..end.min(UNITS)).fold(0, |bits, unit| bits | 1 << unit)
    }

    /// A range of zeroes; null without one. Its callers have the heap locked.
    fn take(&self, size: usize) -> *mut u8 {
        let used = self.used.load(Ordering::Relaxed);
        let count = size.div_ceil(UNIT);
        let mut starts = 0..(UNITS + 1).saturating_sub(count);
        let free = |start: &usize| Self::bits(start * UNIT, (start + count) * UNIT) & used == 0;
        let Some(start) = starts.find(free) else { return std::ptr::null_mut() };
        self.used.store(used | Self::bits(start * UNIT, start * UNIT + size), Ordering::Relaxed);
        let at = self.bytes.get().cast::<u8>().wrapping_add(start * UNIT);
        // SAFETY: the range lies in the reserve, and is nobody's.
        unsafe { at.write_bytes(0, size) };
        at
    }

    /// Takes back `[at + from, at + to)`.
    fn give(&self, at: *const u8, from: usize, to: usize) {
        let start = (at as usize).wrapping_sub(self.bytes.get() as usize);
        self.used.fetch_and(!Self::bits(start + from, start + to), Ordering::Relaxed);
    }
}

/// Memory from the kernel, in whole pages, or of the reserve.
struct Pages;

// SAFETY: each range is a fresh private mapping of the length that is asked for, and is given back
// whole or by parts as the allocator says.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = sys!(libc::SYS_mmap, 0, size, access, flags, u64::MAX, 0);
        match usize::try_from(at) {
            Ok(at) => (at as *mut u8, size, 0),
            Err(_) => (RESERVE.take(size), size, OF_RESERVE),
        }
    }

    fn remap(&self, at: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        if RESERVE.has(at) {
            return std::ptr::null_mut();
        }
        let flags = if can_move { libc::MREMAP_MAYMOVE } else { 0 };
        let at = sys!(libc::SYS_mremap, at, old, new, flags);
        usize::try_from(at).map_or(std::ptr::null_mut(), |at| at as *mut u8)
    }

    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        if RESERVE.has(at) {
            RESERVE.give(at, new, old);
            return true;
        }
        sys!(libc::SYS_munmap, at.wrapping_add(new), old - new) == 0
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        if RESERVE.has(at) {
            RESERVE.give(at, 0, size);
            return true;
        }
        sys!(libc::SYS_munmap, at, size) == 0
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

/// The allocator of everything in this library.
pub(crate) struct Heap(Lock<Dlmalloc<Pages>>);

impl Heap {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(Dlmalloc::new_with_allocator(Pages)))
    }

    /// Keeps others out while the process forks.
    pub(crate) fn before_fork(&self) {
        self.0.take();
    }

    /// Called in parent and child.
    pub(crate) fn after_fork(&self) {
        self.0.give();
    }
}

// SAFETY: handed on to an allocator that keeps the rules, under a lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`.
        unsafe { self.0.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`.
        unsafe { self.0.lock().free(at, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`.
        unsafe { self.0.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`.
        unsafe { self.0.lock().realloc(at, layout.size(), layout.align(), size) }
    }
}

#[global_allocator]
pub(crate) static HEAP: Heap = Heap::new();

/// Memory of a table, which is reserved when the table is first needed: most programs end without. It stays,
/// but for what [`Reserved::release`] is told of.
#[repr(transparent)]
pub(crate) struct Reserved(AtomicU64);

impl Reserved {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Where it is, if it is there.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at| *at != 0)
    }

    /// Where it is, of so many bytes; `None` without memory. Takes no lock: a child of `fork` finds the
    /// table, or none.
    #[inline]
    pub(crate) fn get_or_reserve(&self, bytes: usize) -> Option<u64> {
        self.get().or_else(|| self.reserve(bytes))
    }

    /// Gives back bytes of it, as far as they are whole pages: nobody uses them any more.
    pub(crate) fn release(&self, bytes: Range<usize>) {
        let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
        if let Some(at) = self.get()
            && start < end
        {
            sys!(libc::SYS_munmap, at + start as u64, end - start);
        }
    }

    #[cold]
    fn reserve(&self, bytes: usize) -> Option<u64> {
        let made = reserve(bytes)?;
        match self.0.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(made),
            Err(there) => {
                sys!(libc::SYS_munmap, made, bytes);
                Some(there)
            }
        }
    }
}

/// Memory that is taken as it is used, zeroes at first. Of tables that are large and hardly used, so in small
/// pages: a large one is filled with zeroes when it is first touched. A core file is not longer by it.
fn reserve(bytes: usize) -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let at = sys!(libc::SYS_mmap, 0, bytes, access, flags, u64::MAX, 0);
    let at = u64::try_from(at).ok()?;
    // A kernel that knows no large pages refuses.
    sys!(libc::SYS_madvise, at, bytes, libc::MADV_NOHUGEPAGE);
    sys!(libc::SYS_madvise, at, bytes, libc::MADV_DONTDUMP);
    Some(at)
}
