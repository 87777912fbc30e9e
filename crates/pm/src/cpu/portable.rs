//! Any architecture, and Miri: atomic bytes and words, no cache instructions.
//!
//! Streaming stores are plain ones here. Nothing reaches the media by a write-back: such a
//! machine needs caches that persist.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence as atomic_fence};

use super::{Cpu, WriteBackKind};

/// The write-back instructions that this CPU has, best first.
pub(crate) fn write_back_kinds() -> Vec<WriteBackKind> {
    vec![WriteBackKind::Portable]
}

/// Whether a line can be stored by one instruction.
pub(crate) fn has_wide() -> bool {
    false
}

/// Loads 8 bytes at once.
///
/// # Safety
/// `src` is valid for reading 8 bytes and aligned to 8.
#[inline]
pub(crate) unsafe fn load_u64(src: *const u8) -> u64 {
    // SAFETY: valid and aligned by the contract; the pool is only accessed atomically.
    let word = unsafe { AtomicU64::from_ptr(src.cast_mut().cast()) };
    word.load(Ordering::Acquire)
}

/// Stores 8 bytes at once, after every store before it in program order.
///
/// # Safety
/// `dst` is valid for writing 8 bytes and aligned to 8.
#[inline]
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) {
    // SAFETY: as in `load_u64`.
    let word = unsafe { AtomicU64::from_ptr(dst.cast()) };
    word.store(value, Ordering::Release);
}

/// Copies one line out; its 8-byte units are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes; `src` is aligned to 8.
#[inline]
pub(crate) unsafe fn load_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the contract is stronger than that of `gather`.
    unsafe { gather(dst, src, 64) };
}

/// Copies `len` bytes out of the pool; aligned 8-byte units are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
pub(crate) unsafe fn copy_out(_cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the same contract.
    unsafe { gather(dst, src, len) };
}

/// Copies `len` bytes out of the pool: the aligned 8-byte units of the source, and bytes.
///
/// # Safety
/// As `copy_out`.
unsafe fn gather(dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    while done < len {
        let from = src.wrapping_add(done);
        let to = dst.wrapping_add(done);
        if from.addr() % 8 == 0 && len - done >= 8 {
            // SAFETY: 8 bytes of the source, aligned.
            let word = unsafe { load_u64(from) };
            // SAFETY: 8 bytes of the destination, which is not shared.
            unsafe { to.cast::<u64>().write_unaligned(word) };
            done += 8;
        } else {
            // SAFETY: one byte of each range.
            unsafe { copy_byte(to, from) };
            done += 1;
        }
    }
}

/// Copies `len` bytes into the pool; aligned 8-byte units are each stored at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
pub(crate) unsafe fn copy_in(_cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the same contract.
    unsafe { scatter(dst, src, len) };
}

/// Copies `len` bytes into the pool: the aligned 8-byte units of the destination, and bytes.
///
/// # Safety
/// As `copy_in`.
unsafe fn scatter(dst: *mut u8, src: *const u8, len: usize) {
    let mut done = 0;
    while done < len {
        let from = src.wrapping_add(done);
        let to = dst.wrapping_add(done);
        if to.addr() % 8 == 0 && len - done >= 8 {
            let mut unit = [0; 8];
            // SAFETY: 8 bytes of the source, which may itself be in the pool.
            unsafe { gather(unit.as_mut_ptr(), from, 8) };
            #[allow(clippy::host_endian_bytes, reason = "bytes are moved, not interpreted")]
            let word = u64::from_ne_bytes(unit);
            // SAFETY: 8 bytes of the destination, aligned.
            unsafe { store_u64(to, word) };
            done += 8;
        } else {
            // SAFETY: one byte of each range.
            unsafe { copy_byte(to, from) };
            done += 1;
        }
    }
}

/// Copies a byte.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing a byte.
unsafe fn copy_byte(dst: *mut u8, src: *const u8) {
    // SAFETY: valid by the contract; shared bytes are only accessed atomically.
    let from = unsafe { AtomicU8::from_ptr(src.cast_mut()) };
    // SAFETY: as above.
    let to = unsafe { AtomicU8::from_ptr(dst) };
    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Streams `count` 8-byte units.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `8 * count` bytes; `dst` is aligned to 8.
pub(crate) unsafe fn stream_words(_cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the same contract.
    unsafe { scatter(dst, src, count * 8) };
}

/// Streams one line.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes; `dst` is aligned to 64.
pub(crate) unsafe fn stream_line(_cpu: Cpu, dst: *mut u8, src: *const u8) {
    // SAFETY: the same contract.
    unsafe { scatter(dst, src, 64) };
}

/// Streams `count` lines.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `64 * count` bytes; `dst` is aligned to 64.
pub(crate) unsafe fn stream_lines(_cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the same contract.
    unsafe { scatter(dst, src, count * 64) };
}

/// Writes `count` lines back, from `dst` on: nothing is known that would.
///
/// # Safety
/// `dst` is the first byte of `count` mapped lines.
pub(crate) unsafe fn write_back_lines(_kind: WriteBackKind, _dst: *mut u8, _count: usize) {}

/// Orders what came before ahead of what comes after.
pub(crate) fn fence() {
    atomic_fence(Ordering::SeqCst);
}

/// Asks for the line at `src` to be brought into the cache: not known how.
pub(crate) fn prefetch(_src: *const u8) {}
