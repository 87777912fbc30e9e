//! Pieces of the pool shown one after the other in memory, for a program that stores to them itself.
//!
//! What is stored so no counter counts and no observer sees; it becomes durable by a write-back of the
//! pool's own addresses ([`Pm::write_back_range`]) and a fence.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::process;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use novale_layout::PmAddr;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::cpu::{self, Cpu};
use crate::{PAGE, Pm, SlotKind, to_usize};

/// Pieces of a pool's slots, mapped once more; unmapped when dropped. The one who has one sees to it that
/// the pieces stay what they are meanwhile, or ends it first ([`Pm::end_windows`]).
#[derive(Debug)]
pub struct Window {
    range: Arc<Range>,
    all: Arc<Windows>,
}

/// Where a window is.
#[derive(Debug)]
struct Range {
    base: *mut u8,
    len: usize,
    writes: bool,
    cpu: Cpu,
    /// The process that has it; a child of fork has other things there, or nothing.
    process: u32,
    /// Whether it still shows the pool. Held while bytes are copied: they fault once it does not.
    shows: RwLock<bool>,
}

/// The windows of a pool that are mapped, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<BTreeMap<usize, Arc<Range>>>);

// SAFETY: the range is not tied to a thread, and is reached by raw pointers and racing-safe copies.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

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
        let (cpu, process, shows) = (self.cpu, process::id(), RwLock::new(true));
        let range = Range { base: base.cast(), len, writes, cpu, process, shows };
        let window = Window { range: Arc::new(range), all: Arc::clone(&self.windows) };
        let mut at = 0;
        for (addr, len) in pieces {
            self.show(*addr, *len, window.as_ptr().wrapping_add(at).cast())?;
            at += to_usize(*len);
        }
        // A child of fork is no client of the pool, and must not reach what may be another file's by
        // then. SAFETY: the range is this window; nothing of it changes here.
        unsafe { madvise(base, len, Advice::LinuxDontFork) }?;
        self.windows.with(|all| all.insert(window.as_ptr().addr(), Arc::clone(&window.range)));
        Ok(window)
    }

    /// Takes away what all windows show, since it will be somebody else's: who loads or stores by a
    /// pointer into one faults from then on (SIGSEGV). Their addresses stay taken until they are dropped.
    ///
    /// # Errors
    /// What the kernel says, in want of memory; some windows show the pool as before then.
    pub fn end_windows(&self) -> io::Result<()> {
        self.windows.with(|all| all.values().try_for_each(|range| range.end()))
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

impl Windows {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<usize, Arc<Range>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Range {
    /// Copies from or to the place of `len` bytes from `offset` on, if they are all in it and it shows
    /// the pool still.
    fn copy(&self, offset: usize, len: usize, copy: impl FnOnce(*mut u8)) -> bool {
        let shows = self.shows.read().unwrap_or_else(PoisonError::into_inner);
        let is_there = *shows && offset.checked_add(len).is_some_and(|end| end <= self.len);
        if is_there {
            copy(self.base.wrapping_add(offset));
        }
        is_there
    }

    fn end(&self) -> io::Result<()> {
        let mut shows = self.shows.write().unwrap_or_else(PoisonError::into_inner);
        if self.process != process::id() {
            return Ok(());
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is this window, which nobody reaches but by raw pointers while the lock is
        // held; those were to be used no more.
        unsafe { mmap_anonymous(self.base.cast(), self.len, ProtFlags::empty(), flags) }?;
        *shows = false;
        Ok(())
    }
}

impl Window {
    /// Its first byte. What is stored there others see at once; nothing beyond [`Window::len`] is its.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.range.base
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len
    }

    /// Never: there is a page at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Pm::end_windows`] has taken away what it showed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !*self.range.shows.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process has made it: in a child of fork it shows nothing, and is not to be used.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.range.process == process::id()
    }

    /// Fills `into` with the bytes from `offset` on; false, and nothing, where they are not all in it, or
    /// it has ended.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        self.range.copy(offset, into.len(), |from| {
            // SAFETY: so many bytes are mapped there, and `into` is not in the pool.
            unsafe { cpu::copy_out(self.range.cpu, into.as_mut_ptr(), from, into.len()) };
        })
    }

    /// Stores bytes from `offset` on; false, and nothing, where there is no room, the pool is read only,
    /// or the window has ended.
    #[must_use]
    pub fn store(&self, offset: usize, bytes: &[u8]) -> bool {
        let store = |to| {
            // SAFETY: so many bytes are mapped there, and `bytes` is not in the pool.
            unsafe { cpu::copy_in(self.range.cpu, to, bytes.as_ptr(), bytes.len()) };
        };
        self.range.writes && self.range.copy(offset, bytes.len(), store)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let Range { base, len, .. } = *self.range;
        if !self.is_of_this_process() {
            return;
        }
        self.all.with(|all| {
            all.remove(&base.addr());
            // If the kernel refuses, the range stays in use until the process ends.
            // SAFETY: the range is this value's alone.
            let _unmapped = unsafe { munmap(base.cast(), len) };
        });
    }
}
