//! Memory of this library's own: a signal handler that interrupts the program's `malloc` may open
//! a file, which must not need that `malloc`.
//!
//! It is mapped ahead, and given back later, by threads that begin a call. To map memory takes the process' table of
//! mappings, which another thread may have in a page fault of a file of a mount, until the mount's daemon has got the lock of
//! an inode: a thread that has that lock, or the heap's while the first one needs it, would wait for it for ever.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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

/// Memory that is mapped for the heap, and not the heap's yet: an address, and so many bytes.
struct Ahead {
    at: AtomicUsize,
    left: AtomicUsize,
    /// What the heap has given up, and how much of each; not unmapped yet.
    gone: [(AtomicUsize, AtomicUsize); GONE_MAX],
    gone_count: AtomicUsize,
}

/// Mapped at once.
const CHUNK: usize = 1 << 20;
/// The least that is kept ahead: no call takes more as a rule.
const AHEAD_LEAST: usize = CHUNK / 4;
/// More ranges than these stay the heap's.
const GONE_MAX: usize = 8;

/// Changed by who has the heap locked.
static AHEAD: Ahead = Ahead {
    at: AtomicUsize::new(0),
    left: AtomicUsize::new(0),
    gone: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; GONE_MAX],
    gone_count: AtomicUsize::new(0),
};
/// The kernel gives no memory ahead.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

impl Ahead {
    /// So many bytes of it, which are zeroes; nothing where it has less.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let (at, left) = (self.at.load(Ordering::Relaxed), self.left.load(Ordering::Relaxed));
        let rest = left.checked_sub(size)?;
        self.at.store(at + size, Ordering::Relaxed);
        self.left.store(rest, Ordering::Relaxed);
        Some(std::ptr::with_exposed_provenance_mut(at))
    }

    /// Notes what is to be unmapped; false where it stays.
    fn gives_up(&self, at: usize, size: usize) -> bool {
        let count = self.gone_count.load(Ordering::Relaxed);
        let Some((start, len)) = self.gone.get(count) else { return false };
        start.store(at, Ordering::Relaxed);
        len.store(size, Ordering::Relaxed);
        self.gone_count.store(count + 1, Ordering::Relaxed);
        true
    }

    /// Whether memory is to be mapped or unmapped.
    #[inline]
    fn is_to_be_tended(&self) -> bool {
        let is_short = self.left.load(Ordering::Relaxed) < AHEAD_LEAST;
        is_short && !IS_REFUSED.load(Ordering::Relaxed)
            || self.gone_count.load(Ordering::Relaxed) > 0
    }
}

/// Maps memory ahead and gives back what the heap has given up, for a thread that has no locks.
#[inline]
pub(crate) fn tend() {
    if AHEAD.is_to_be_tended() {
        tend_now();
    }
}

#[cold]
fn tend_now() {
    let unmap = |(at, len): (usize, usize)| sys!(libc::SYS_munmap, at, len);
    let mut rest = (0, 0);
    if AHEAD.left.load(Ordering::Relaxed) < AHEAD_LEAST {
        let made = map(CHUNK);
        IS_REFUSED.store(made.is_none(), Ordering::Relaxed);
        if let Some(made) = made {
            // The first page of a mapping takes the table, too.
            // SAFETY: the memory is nobody's yet, and as long as a chunk.
            unsafe { made.write_volatile(0) };
            let _heap = HEAP.0.lock();
            rest = (AHEAD.at.load(Ordering::Relaxed), AHEAD.left.load(Ordering::Relaxed));
            AHEAD.at.store(made.expose_provenance(), Ordering::Relaxed);
            AHEAD.left.store(CHUNK, Ordering::Relaxed);
        }
    }
    let mut gone = [(0, 0); GONE_MAX];
    let heap = HEAP.0.lock();
    let count = AHEAD.gone_count.swap(0, Ordering::Relaxed);
    for (gone, (at, len)) in gone.iter_mut().zip(&AHEAD.gone) {
        *gone = (at.load(Ordering::Relaxed), len.load(Ordering::Relaxed));
    }
    drop(heap);
    for range in gone.into_iter().take(count).chain([rest]).filter(|(_, len)| *len > 0) {
        unmap(range);
    }
}

/// A fresh mapping.
fn map(size: usize) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = sys!(libc::SYS_mmap, 0, size, access, flags, u64::MAX, 0);
    usize::try_from(at).ok().map(std::ptr::with_exposed_provenance_mut)
}

/// Memory from the kernel, in whole pages, or of the reserve.
struct Pages;

// SAFETY: each range is a fresh private mapping of the length that is asked for, or a part of one that nobody else
// has, and is given back whole or by parts as the allocator says.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        match AHEAD.take(size).or_else(|| map(size)) {
            Some(at) => (at, size, 0),
            None => (RESERVE.take(size), size, OF_RESERVE),
        }
    }

    fn remap(&self, _at: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, at: *mut u8, old: usize, new: usize) -> bool {
        if RESERVE.has(at) {
            RESERVE.give(at, new, old);
            return true;
        }
        AHEAD.gives_up(at.expose_provenance() + new, old - new)
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        if RESERVE.has(at) {
            RESERVE.give(at, 0, size);
            return true;
        }
        AHEAD.gives_up(at.expose_provenance(), size)
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
