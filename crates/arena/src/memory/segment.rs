//! The mapping: turns checked offsets into references to atomic words.
//!
//! Invariants: `base` is page-aligned and maps `len` bytes for as long as the `Segment` lives; the
//! first `limit` of them are really allocated, so touching them cannot fault as long as nobody
//! shortens the file; `limit` only grows and never exceeds `len`. All access is through `AtomicU64`, so
//! any other process may write at any time.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::base::error::{ArenaError, BadOffset, Full};
use crate::base::off::{LINE, Off, to_usize};
use crate::base::word::AtomicU64;

/// Segments are as long as so many of these bytes.
pub(crate) const STEP: u64 = 2 << 20;

/// Memory is allocated for real in steps of this many bytes: a client that needs it waits until the
/// kernel has cleared them, 4 us a page.
const GROWTH: u64 = 256 << 10;

/// So much more is mapped than there is, so that nobody has to map any while he has locks: that takes the process'
/// table of mappings, which another thread may have that waits for just these locks, in a page fault of a file of a mount.
const AHEAD: u64 = 32 << 20;

/// The least segment: one step, of which the header takes [`FIXED`] bytes.
pub(crate) const LEAST: u64 = STEP;

/// The greatest segment, in bytes: 32-bit block numbers in units of a line.
pub const GREATEST: u64 = LINE << 32;

/// The header, class heads and client slots: bytes at fixed offsets, allocated from the start.
pub(crate) const FIXED: u64 = 96 << 10;

/// The least length that a const-sized block can rely on.
const BLOCK_BYTES_MAX: u64 = 64 << 10;

/// How often an allocation that a signal interrupted is tried again.
const INTERRUPTS_MAX: u32 = 1000;

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    len: u64,
    /// This process' knowledge of how much is allocated; another process may have added more.
    limit: AtomicU64,
    /// Bytes of the file that are mapped; may be more than it has.
    mapped: AtomicU64,
    file: Option<File>,
}

// SAFETY: the mapping belongs to the value, not to a thread, and is only reached through atomics.
unsafe impl Send for Segment {}
// SAFETY: as above; `limit` is atomic and `file` is only handed to the kernel.
unsafe impl Sync for Segment {}

impl Segment {
    /// Maps zeroed memory that child processes share.
    pub(crate) fn anonymous(len: u64) -> Result<Self, ArenaError> {
        let len = checked_len(len)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), to_usize(len), access, flags)
        };
        Self::new(mapped, len, None, len)
    }

    /// Maps `file`, of which `len` bytes may be used in the end; it may be shorter now. Addresses are
    /// reserved for all of it, and no more than [`AHEAD`] mapped than there is: a debugger or a checker of memory
    /// looks at all that is mapped.
    pub(crate) fn of_file(file: File, len: u64) -> Result<Self, ArenaError> {
        let len = checked_len(len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                to_usize(len),
                ProtFlags::empty(),
                flags,
            )
        };
        Self::new(reserved, len, Some(file), 0)
    }

    fn new(
        mapped: rustix::io::Result<*mut std::ffi::c_void>,
        len: u64,
        file: Option<File>,
        limit: u64,
    ) -> Result<Self, ArenaError> {
        let base = mapped.map_err(|e| io_error("map the arena", e.into()))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io_error("map the arena", io::ErrorKind::OutOfMemory.into()))?;
        let segment =
            Self { base, len, limit: AtomicU64::new(limit), mapped: AtomicU64::new(limit), file };
        if segment.file.is_none() {
            segment.advise(0, len, Advice::LinuxHugepage);
        }
        segment.ensure(FIXED)?;
        Ok(segment)
    }

    /// Large pages are a gain where the kernel has them for this memory, and no loss elsewhere; a core file of a process
    /// needs nothing of a shared segment, which tells of all users' files. A refusal is no error.
    fn advise(&self, from: u64, to: u64, advice: Advice) {
        // SAFETY: `from` lies in the mapping, or at its end.
        let start = unsafe { self.base.add(to_usize(from)) };
        let (start, len) = (start.as_ptr().cast(), to_usize(to - from));
        // SAFETY: advice on this segment's own mapping; it changes no contents.
        unsafe { rustix::mm::madvise(start, len, advice) }.ok();
    }

    /// Says that the file has bytes up to `to`, which it has, once they are mapped. Returns what is known to be allocated.
    #[cold]
    fn raise(&self, file: &File, to: u64) -> u64 {
        let known = self.limit.load(Relaxed);
        if to <= known || to > self.mapped.load(Relaxed) && !self.map(file, to) {
            return known;
        }
        self.limit.fetch_max(to, Relaxed).max(to)
    }

    /// Maps the file up to `to`, and what may come to be behind it. Threads that do it at once map the same bytes at the
    /// same place.
    fn map(&self, file: &File, to: u64) -> bool {
        let from = self.mapped.load(Relaxed) / GROWTH * GROWTH;
        let to = to.saturating_add(AHEAD).next_multiple_of(GROWTH).min(self.len);
        if to <= from {
            // Another thread has done it meanwhile.
            return true;
        }
        // SAFETY: `from` is at most the length of the mapping.
        let at = unsafe { self.base.add(to_usize(from)) }.as_ptr().cast();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: what lies there is this segment's: its reservation, or the same bytes of the file.
        let mapped =
            unsafe { rustix::mm::mmap(at, to_usize(to - from), access, flags, file, from) };
        if mapped.is_err() {
            return false;
        }
        self.advise(from, to, Advice::LinuxHugepage);
        self.advise(from, to, Advice::LinuxDontDump);
        self.mapped.fetch_max(to, Relaxed);
        true
    }

    /// Maps ahead again where less than half of [`AHEAD`] is left. For a thread that has no locks.
    #[inline]
    pub(crate) fn map_ahead(&self) {
        let (known, mapped) = (self.limit.load(Relaxed), self.mapped.load(Relaxed));
        if mapped.saturating_sub(known) < AHEAD / 2 && mapped < self.len {
            self.map_more(known);
        }
    }

    #[cold]
    fn map_more(&self, known: u64) {
        if let Some(file) = &self.file {
            // Where the kernel refuses, who needs it asks again.
            self.map(file, known);
        }
    }

    /// The segment's greatest size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// `N` words at a fixed offset of the header.
    #[inline]
    pub(crate) fn fixed<const AT: usize, const N: usize>(&self) -> &[AtomicU64; N] {
        const { assert!(AT.is_multiple_of(64) && (AT + N * 8) as u64 <= FIXED) };
        // SAFETY: AT + N words lie below FIXED, which is mapped and allocated.
        let first = unsafe { self.base.add(AT) };
        // SAFETY: in the mapping, aligned, allocated; valid as any bit pattern; lives as `self`.
        unsafe { first.cast::<[AtomicU64; N]>().as_ref() }
    }

    /// `N` words at a line-aligned offset.
    #[inline]
    pub(crate) fn block<const N: usize>(&self, off: u64) -> Result<&[AtomicU64; N], BadOffset> {
        const { assert!(N as u64 * 8 <= BLOCK_BYTES_MAX && BLOCK_BYTES_MAX + LINE <= LEAST) };
        let bytes = N as u64 * 8;
        self.check(off, bytes, LINE)?;
        // SAFETY: `check` has shown that off + bytes lies within the allocated mapping.
        let first = unsafe { self.base.add(to_usize(off)) };
        // SAFETY: in the mapping, aligned, allocated; valid as any bit pattern; lives as `self`.
        Ok(unsafe { first.cast::<[AtomicU64; N]>().as_ref() })
    }

    /// What this process knows to be allocated by now.
    #[inline(always)]
    pub(crate) fn known(&self) -> Known<'_> {
        Known { base: self.base, limit: self.limit.load(Relaxed), segment: PhantomData }
    }

    /// `words` words at a line-aligned offset.
    #[inline]
    pub(crate) fn slice(&self, off: u64, words: u64) -> Result<&[AtomicU64], BadOffset> {
        let bytes = words.checked_mul(8).ok_or_else(|| self.bad(off, u64::MAX))?;
        self.check(off, bytes, LINE)?;
        // SAFETY: `check` has shown that off + bytes lies within the allocated mapping.
        let first = unsafe { self.base.add(to_usize(off)) };
        let all = NonNull::slice_from_raw_parts(first.cast::<AtomicU64>(), to_usize(words));
        // SAFETY: in the mapping, aligned, allocated; valid as any bit pattern; lives as `self`.
        Ok(unsafe { all.as_ref() })
    }

    /// The word at an 8-byte-aligned offset.
    #[inline]
    pub(crate) fn word(&self, off: u64) -> Result<&AtomicU64, BadOffset> {
        self.check(off, 8, 8)?;
        // SAFETY: `check` has shown that off + 8 lies within the allocated mapping.
        let first = unsafe { self.base.add(to_usize(off)) };
        // SAFETY: in the mapping, aligned, allocated; valid as any bit pattern; lives as `self`.
        Ok(unsafe { first.cast::<AtomicU64>().as_ref() })
    }

    /// Refuses a range that is null, misaligned, or not wholly in allocated memory.
    #[inline]
    fn check(&self, off: u64, bytes: u64, align: u64) -> Result<(), BadOffset> {
        if self.is_known(off, bytes, align) { Ok(()) } else { self.check_again(off, bytes, align) }
    }

    /// Whether a range is aligned and wholly in what this process knows to be allocated.
    #[inline(always)]
    fn is_known(&self, off: u64, bytes: u64, align: u64) -> bool {
        // Of 0, which is null, the difference is too great, like that of all that is too low; at
        // least the fixed part is allocated.
        let limit = self.limit.load(Relaxed);
        off & (align - 1) == 0 && off.wrapping_sub(1) < limit.saturating_sub(bytes)
    }

    /// The same after asking the kernel how much other processes have added.
    #[cold]
    fn check_again(&self, off: u64, bytes: u64, align: u64) -> Result<(), BadOffset> {
        let aligned = off != 0 && off & (align - 1) == 0;
        let end = off.checked_add(bytes).ok_or_else(|| self.bad(off, bytes))?;
        if aligned && end <= self.len && end <= self.refresh() {
            Ok(())
        } else {
            Err(self.bad(off, bytes))
        }
    }

    #[cold]
    fn bad(&self, off: u64, bytes: u64) -> BadOffset {
        BadOffset { off, bytes, limit: self.limit.load(Relaxed) }
    }

    /// Learns what other processes have allocated. The file's length says it: it is raised by the
    /// same call that allocates, and only when that succeeded.
    fn refresh(&self) -> u64 {
        let Some(file) = &self.file else {
            return self.len;
        };
        self.raise(file, file_len(file).unwrap_or(0).min(self.len))
    }

    /// Allocates memory up to `end`, in whole steps.
    #[inline]
    pub(crate) fn ensure(&self, end: u64) -> Result<(), Full> {
        if end <= self.limit.load(Relaxed) { Ok(()) } else { self.extend(end) }
    }

    #[cold]
    fn extend(&self, end: u64) -> Result<(), Full> {
        let from = self.refresh();
        let full = Full { asked: end.saturating_sub(from), used: from, limit: self.len };
        if end <= from {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Err(full);
        };
        if end > self.len {
            return Err(full);
        }
        let to = end.next_multiple_of(GROWTH).min(self.len);
        if to > size_limit() {
            return Err(full);
        }
        let mut at = from;
        while at < to {
            let step_end = (at + 1).next_multiple_of(GROWTH).min(to);
            if !allocate(file, at, step_end) {
                return Err(full);
            }
            at = step_end;
        }
        if self.raise(file, to) < end { Err(full) } else { Ok(()) }
    }

    /// The file after the mapping; none for an anonymous segment.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no reference into it
        // outlives `self`.
        // If the kernel refuses, the range stays in use until the process ends.
        let _unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), to_usize(self.len)) };
    }
}

/// The part of a segment that its process knows to be allocated: for a reader's first try, which looks
/// once how much that is. What another process may have added is asked for elsewhere.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    base: NonNull<u8>,
    limit: u64,
    segment: PhantomData<&'a Segment>,
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<'a> Known<'a> {
    /// The block of `N` words at `off`, whose low 6 bits don't count; none where it is not wholly
    /// inside, or null.
    #[inline(always)]
    #[must_use]
    pub fn block<const N: usize>(self, off: Off) -> Option<&'a [AtomicU64; N]> {
        const { assert!(N as u64 * 8 <= BLOCK_BYTES_MAX && BLOCK_BYTES_MAX + LINE <= LEAST) };
        const { assert!(BLOCK_BYTES_MAX <= FIXED, "a limit is never below a block's size") };
        let off = off.raw() & !(LINE - 1);
        // Of null the difference is too great.
        if off.wrapping_sub(1) >= self.limit - N as u64 * 8 {
            return None;
        }
        // SAFETY: off + N words end at or below `limit`, which is allocated and mapped.
        let first = unsafe { self.base.add(to_usize(off)) };
        // SAFETY: in the mapping, aligned by the mask, allocated; valid as any bit pattern; the
        // segment outlives 'a.
        Some(unsafe { first.cast::<[AtomicU64; N]>().as_ref() })
    }
}

/// A block that was checked once and is kept: no check on use.
#[derive(Debug)]
pub(crate) struct Pinned<const N: usize> {
    first: NonNull<[AtomicU64; N]>,
    /// Keeps the mapping in place.
    _segment: Arc<Segment>,
}

// SAFETY: as for `Segment`, which it holds on to.
unsafe impl<const N: usize> Send for Pinned<N> {}
// SAFETY: as for `Segment`, which it holds on to.
unsafe impl<const N: usize> Sync for Pinned<N> {}

impl<const N: usize> Pinned<N> {
    pub(crate) fn new(segment: &Arc<Segment>, off: u64) -> Result<Self, BadOffset> {
        let first = NonNull::from(segment.block::<N>(off)?);
        Ok(Self { first, _segment: Arc::clone(segment) })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64; N] {
        // SAFETY: checked by `new`; the segment stays mapped and its limit never falls.
        unsafe { self.first.as_ref() }
    }
}

fn checked_len(len: u64) -> Result<u64, ArenaError> {
    if (LEAST..=GREATEST).contains(&len) {
        Ok(len.next_multiple_of(STEP))
    } else {
        Err(ArenaError::BadSize { found: len, least: LEAST, greatest: GREATEST })
    }
}

/// Allocates one step of the arena; says whether it is. No call goes over several steps: one that fails gives back
/// what has not been written to in all of its range, which is another process' where that one has just
/// allocated it.
fn allocate(file: &File, from: u64, to: u64) -> bool {
    for _ in 0..INTERRUPTS_MAX {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from) {
            Ok(()) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    false
}

/// How large this process may make a file: the kernel ends who asks for more (`SIGXFSZ`). Where it does not
/// say there is no limit.
fn size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it lives here, and the call writes nothing else.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if told { limit.rlim_cur } else { libc::RLIM_INFINITY }
}

fn file_len(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len())
}

pub(crate) fn io_error(what: &'static str, source: io::Error) -> ArenaError {
    ArenaError::Io { what, source }
}
