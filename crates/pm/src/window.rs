//! Pieces of the pool shown one after the other in memory, for a program that stores to them itself.
//!
//! What is stored so no counter counts and no observer sees; it becomes durable by a write-back of the
//! pool's own addresses ([`Pm::write_back_range`]) and a fence.

use std::ffi::c_void;
use std::io;
use std::ptr;

use novale_layout::PmAddr;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::cpu::{self, Cpu};
use crate::{PAGE, Pm, SlotKind, to_usize};

/// Pieces of a pool's slots, mapped once more; unmapped when dropped. The one who has one sees to it that
/// the pieces stay what they are meanwhile.
#[derive(Debug)]
pub struct Window {
    base: *mut u8,
    len: usize,
    writes: bool,
    cpu: Cpu,
}

// SAFETY: the range is not tied to a thread, and is reached by raw pointers and racing-safe copies.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Pm {
    /// Maps pieces of the pool, each an address and its bytes in whole pages, one after the other.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for no pieces, or such as are not whole pages of a slot;
    /// [`io::ErrorKind::Unsupported`] for slots without a file; what the kernel says.
    pub fn window(&self, pieces: &[(PmAddr, u64)]) -> io::Result<Window> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let is_whole = |(addr, len): &(PmAddr, u64)| {
            *len > 0 && (addr.byte() | len).is_multiple_of(PAGE) && self.contains(*addr, *len)
        };
        if pieces.is_empty() || !pieces.iter().all(is_whole) {
            return Err(invalid());
        }
        let len = to_usize(pieces.iter().map(|(_, len)| len).sum());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        let writes = !self.is_read_only();
        let window = Window { base: base.cast(), len, writes, cpu: self.cpu };
        let mut at = 0;
        for (addr, len) in pieces {
            self.show(*addr, *len, window.base.wrapping_add(at).cast())?;
            at += to_usize(*len);
        }
        // A child of fork is no client of the pool, and must not reach what may be another file's by
        // then. SAFETY: the range is this window; nothing of it changes here.
        unsafe { madvise(base, len, Advice::LinuxDontFork) }?;
        Ok(window)
    }

    /// Maps a piece over addresses that are reserved for it.
    fn show(&self, addr: PmAddr, len: u64, at: *mut c_void) -> io::Result<()> {
        let file = self.slot_file(addr.slot()).ok_or(io::ErrorKind::Unsupported)?;
        let mut access = ProtFlags::READ;
        access.set(ProtFlags::WRITE, !self.is_read_only());
        let flags = match self.slot_kind(addr.slot()) {
            SlotKind::DaxFile => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            SlotKind::File | SlotKind::DaxDevice | SlotKind::Anonymous => MapFlags::SHARED,
        };
        let flags = flags | MapFlags::FIXED;
        // SAFETY: a part of what `window` has reserved, which nobody has seen yet.
        unsafe { mmap(at, to_usize(len), access, flags, file, addr.byte()) }?;
        Ok(())
    }
}

impl Window {
    /// Its first byte. What is stored there others see at once; nothing beyond [`Window::len`] is its.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: there is a page at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `into` with the bytes from `offset` on; false, and nothing, where they are not all in it.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let inside = offset.checked_add(into.len()).is_some_and(|end| end <= self.len);
        if inside {
            let from = self.base.wrapping_add(offset);
            // SAFETY: so many bytes are mapped there, and `into` is not in the pool.
            unsafe { cpu::copy_out(self.cpu, into.as_mut_ptr(), from, into.len()) };
        }
        inside
    }

    /// Stores bytes from `offset` on; false, and nothing, where there is no room, or the pool is read
    /// only.
    #[must_use]
    pub fn store(&self, offset: usize, bytes: &[u8]) -> bool {
        let inside = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len);
        if inside && self.writes {
            let to = self.base.wrapping_add(offset);
            // SAFETY: so many bytes are mapped there, and `bytes` is not in the pool.
            unsafe { cpu::copy_in(self.cpu, to, bytes.as_ptr(), bytes.len()) };
        }
        inside && self.writes
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // If the kernel refuses, the range stays in use until the process ends.
        // SAFETY: the range is this value's alone.
        let _unmapped = unsafe { munmap(self.base.cast(), self.len) };
    }
}
