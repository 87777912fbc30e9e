//! Stores through the caches, write-backs and fences; `stream` has the stores past the caches.
//!
//! An address outside of the pool, or not aligned as the store needs, is a bug of the caller and
//! panics: addresses that come from the media are checked before they get here. So is a store to
//! a read-only pool.

use std::panic::Location;

use novale_layout::PmAddr;

use crate::cpu::Cpu;
use crate::pm::assert_aligned;
use crate::{
    Dirty, Durable, Flushed, LINE, Observer, Pm, Purpose, StoreEvent, StoreKind, WriteBackKind,
    cpu, lines_touched, to_usize,
};

impl Pm {
    /// Stores a little-endian word at once, after every earlier store of this thread (release).
    ///
    /// # Panics
    /// When `addr` is not in a slot or not aligned to 8.
    #[inline]
    #[track_caller]
    pub fn store_u64(&self, addr: PmAddr, value: u64, purpose: Purpose) -> Dirty {
        let stored = Dirty::new(addr, 8, purpose);
        let Some(dst) = self.store_ptr(addr, 8) else { return stored };
        assert_aligned(addr, 8);
        if let Some(observer) = &self.observer {
            let bytes = value.to_le_bytes();
            tell_store(
                observer.as_ref(),
                addr,
                &bytes,
                StoreKind::Ordered,
                purpose,
                Location::caller(),
            );
        }
        // SAFETY: `store_ptr` found 8 writable bytes, and they are aligned.
        unsafe { put_word(dst, value) };
        self.count_stored(addr, 8, purpose);
        stored
    }

    /// Stores a line by eight 8-byte stores in ascending order: a crash keeps a prefix of them.
    ///
    /// # Panics
    /// When `addr` is not in a slot or not aligned to 64.
    #[inline]
    #[track_caller]
    pub fn store_line(&self, addr: PmAddr, line: &[u8; 64], purpose: Purpose) -> Dirty {
        let stored = Dirty::new(addr, LINE, purpose);
        let Some(dst) = self.store_ptr(addr, LINE) else { return stored };
        assert_aligned(addr, LINE);
        if let Some(observer) = &self.observer {
            tell_store(
                observer.as_ref(),
                addr,
                line,
                StoreKind::Ordered,
                purpose,
                Location::caller(),
            );
        }
        // SAFETY: `store_ptr` found 64 writable bytes, and they are aligned.
        unsafe { put_line(dst, line) };
        self.count_stored(addr, LINE, purpose);
        stored
    }

    /// Stores `bytes`, in no order; until they are durable, a crash keeps any subset of their
    /// aligned 8-byte units. A unit that the range covers in part may tear by bytes.
    ///
    /// Bytes that are not read back soon are better streamed: the write-back of a line that was
    /// not in the cache costs its read.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn store(&self, addr: PmAddr, bytes: &[u8], purpose: Purpose) -> Dirty {
        let len = bytes.len() as u64;
        let stored = Dirty::new(addr, len, purpose);
        let Some(dst) = self.store_ptr(addr, len) else { return stored };
        if let Some(observer) = &self.observer {
            tell_store(
                observer.as_ref(),
                addr,
                bytes,
                StoreKind::Plain,
                purpose,
                Location::caller(),
            );
        }
        // SAFETY: `store_ptr` found `len` writable bytes; `bytes` is not in the pool.
        unsafe { put_bytes(self.cpu, dst, bytes) };
        self.count_stored(addr, len, purpose);
        stored
    }

    /// Starts the write-back of what was stored.
    #[inline]
    #[track_caller]
    pub fn write_back(&self, dirty: Dirty) -> Flushed {
        self.write_back_range(dirty.addr, dirty.len, dirty.purpose)
    }

    /// Starts the write-back of every line that `len` bytes from `addr` touch, no matter who stored
    /// them: a fence completes its own thread's write-backs only, so what depends on another
    /// thread's stores writes them back again.
    ///
    /// # Panics
    /// When they are not all in one slot.
    #[inline]
    #[track_caller]
    pub fn write_back_range(&self, addr: PmAddr, len: u64, purpose: Purpose) -> Flushed {
        let src = match self.mapped_ptr(addr, len) {
            Ok(src) => src,
            // Nothing of a slot that is not there can be lost again.
            Err(_) if self.is_absent(addr.slot()) || self.count_lacking(addr) => {
                return Flushed::new();
            }
            Err(_) => self.refuse("write-back", addr, len),
        };
        let Some(kind) = self.cpu.write_back else {
            return Flushed::new();
        };
        if len == 0 {
            return Flushed::new();
        }
        if let Some(observer) = &self.observer {
            observer.write_back(addr, len, purpose, Location::caller());
        }
        let lines = lines_touched(addr.byte(), len);
        let first = src.cast_mut().wrapping_sub(to_usize(addr.byte() % LINE));
        // SAFETY: the lines that hold mapped bytes are mapped, because slots are whole pages;
        // there is at least one; `Cpu::choose` checked the instruction.
        unsafe { send_lines(kind, first, to_usize(lines)) };
        self.registry.shard().written_back(purpose, addr.slot(), lines);
        Flushed::new()
    }

    /// Waits until this thread's write-backs and streaming stores are durable.
    #[inline]
    #[track_caller]
    pub fn fence(&self, _flushed: Flushed) -> Durable {
        if let Some(observer) = &self.observer {
            observer.fence(Location::caller());
            wait();
            observer.fenced();
        } else {
            wait();
        }
        self.registry.shard().fenced();
        Durable::new()
    }

    /// Counts the fence before as one that a commit waited for before it stores its line.
    pub fn count_fence_before_commit(&self) {
        self.registry.shard().fenced_before_commit();
    }

    /// Counts a plain store.
    #[inline(always)]
    pub(crate) fn count_stored(&self, addr: PmAddr, len: u64, purpose: Purpose) {
        self.registry.shard().stored(purpose, addr.slot(), addr.byte(), len);
    }
}

// What the methods above execute. They pass their caller on, and so would what they called: the lab
// tells the instructions of this crate apart by their places, and these functions are the places.

/// Stores a word.
///
/// # Safety
/// `dst` is valid for writing 8 bytes and aligned to 8.
#[inline(always)]
unsafe fn put_word(dst: *mut u8, value: u64) {
    // SAFETY: the same contract.
    unsafe { cpu::store_u64(dst, value.to_le()) };
}

/// Stores the words of a line in ascending order.
///
/// # Safety
/// `dst` is valid for writing 64 bytes and aligned to 8.
#[inline(always)]
unsafe fn put_line(dst: *mut u8, line: &[u8; 64]) {
    let (words, _) = line.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let value = u64::from_le_bytes(*word).to_le();
        // SAFETY: word `index` of the 64 bytes.
        unsafe { cpu::store_u64(dst.wrapping_add(index * 8), value) };
    }
}

/// Stores bytes.
///
/// # Safety
/// `dst` is valid for writing as many bytes, which are not in the pool.
#[inline(always)]
unsafe fn put_bytes(cpu: Cpu, dst: *mut u8, bytes: &[u8]) {
    // SAFETY: the same contract.
    unsafe { cpu::copy_in(cpu, dst, bytes.as_ptr(), bytes.len()) };
}

/// Writes `count` lines back, at least one.
///
/// # Safety
/// They are mapped, and the CPU has the instruction.
#[inline(always)]
unsafe fn send_lines(kind: WriteBackKind, first: *mut u8, count: usize) {
    // SAFETY: the same contract.
    unsafe { cpu::write_back_lines(kind, first, count) };
}

/// Completes this thread's write-backs and streaming stores.
#[inline(always)]
fn wait() {
    cpu::fence();
}

/// Tells the observer of one store.
#[cold]
#[inline(never)]
pub(crate) fn tell_store(
    observer: &dyn Observer,
    addr: PmAddr,
    bytes: &[u8],
    kind: StoreKind,
    purpose: Purpose,
    site: &'static Location<'static>,
) {
    if !bytes.is_empty() {
        observer.store(StoreEvent { addr, bytes, kind, purpose, site });
    }
}
