//! aarch64: `dc cvap` where the CPU has it, else `dc cvac`. Stores past the caches do not exist:
//! a stream is plain stores and the write-back of their lines.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cpu, WriteBackKind};

/// The write-back instructions that this CPU has, best first.
pub(crate) fn write_back_kinds() -> Vec<WriteBackKind> {
    let mut kinds = Vec::new();
    if std::arch::is_aarch64_feature_detected!("dpb") {
        kinds.push(WriteBackKind::DcCvap);
    }
    kinds.push(WriteBackKind::DcCvac);
    kinds
}

/// Whether a line can be stored by one instruction.
pub(crate) fn has_wide() -> bool {
    false
}

/// Loads 8 bytes at once.
///
/// # Safety
/// `src` is valid for reading 8 bytes and aligned to 8.
#[inline(always)]
pub(crate) unsafe fn load_u64(src: *const u8) -> u64 {
    // SAFETY: valid and aligned by the contract; the pool is only accessed atomically or by
    // assembly, so an atomic view of these bytes conflicts with nothing.
    let word = unsafe { AtomicU64::from_ptr(src.cast_mut().cast()) };
    word.load(Ordering::Acquire)
}

/// Stores 8 bytes at once, after every store before it in program order.
///
/// # Safety
/// `dst` is valid for writing 8 bytes and aligned to 8.
#[inline(always)]
pub(crate) unsafe fn store_u64(dst: *mut u8, value: u64) {
    // SAFETY: as in `load_u64`.
    let word = unsafe { AtomicU64::from_ptr(dst.cast()) };
    word.store(value, Ordering::Release);
}

/// Copies one line out; its 8-byte units are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes; `src` is aligned to 8.
#[inline(always)]
pub(crate) unsafe fn load_line(dst: *mut u8, src: *const u8) {
    // SAFETY: the contract is stronger than that of `copy_words`.
    unsafe { copy_words(dst, src, 8) };
}

/// Copies `len` bytes out of the pool; 8-byte units from `src` on are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
pub(crate) unsafe fn copy_out(_cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    let head = (src.addr().wrapping_neg() % 8).min(len);
    // SAFETY: the same contract.
    unsafe { copy_split(dst, src, len, head) };
}

/// Copies `len` bytes into the pool; each aligned 8-byte unit within is stored at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
pub(crate) unsafe fn copy_in(_cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    let head = (dst.addr().wrapping_neg() % 8).min(len);
    // SAFETY: the same contract.
    unsafe { copy_split(dst, src, len, head) };
}

/// Copies `head` bytes, then 8-byte units, then the bytes that are left.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap;
/// `head <= len`.
#[inline]
unsafe fn copy_split(dst: *mut u8, src: *const u8, len: usize, head: usize) {
    let words = (len - head) / 8;
    let done = head + words * 8;
    // SAFETY: the first bytes of both ranges.
    unsafe { copy_bytes(dst, src, head) };
    // SAFETY: `8 * words` bytes of both ranges, within `len`.
    unsafe { copy_words(dst.wrapping_add(head), src.wrapping_add(head), words) };
    // SAFETY: the last bytes of both ranges.
    unsafe { copy_bytes(dst.wrapping_add(done), src.wrapping_add(done), len - done) };
}

/// Copies `count` 8-byte units in ascending order.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `8 * count` bytes; they do not overlap.
#[inline]
unsafe fn copy_words(dst: *mut u8, src: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: `8 * count` bytes of both ranges, valid by the contract.
    unsafe {
        asm!(
            "2:",
            "ldr {t}, [{s}], #8",
            "str {t}, [{d}], #8",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            t = out(reg) _,
            options(nostack)
        );
    }
}

/// Copies `count` bytes in ascending order.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `count` bytes; they do not overlap.
#[inline]
unsafe fn copy_bytes(dst: *mut u8, src: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: `count` bytes of both ranges, valid by the contract.
    unsafe {
        asm!(
            "2:",
            "ldrb {t:w}, [{s}], #1",
            "strb {t:w}, [{d}], #1",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            t = out(reg) _,
            options(nostack)
        );
    }
}

/// Stores `count` 8-byte units of one line and writes it back.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `8 * count` bytes; `dst` is aligned to 8 and
/// the units are in one line.
#[inline]
pub(crate) unsafe fn stream_words(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the same contract.
    unsafe { copy_words(dst, src, count) };
    if let Some(kind) = cpu.write_back {
        let line = dst.wrapping_sub(dst.addr() % 64);
        // SAFETY: the line that holds `dst` is mapped, because mappings are whole pages.
        unsafe { write_back_lines(kind, line, 1) };
    }
}

/// Stores one line and writes it back.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes; `dst` is aligned to 64.
#[inline(always)]
pub(crate) unsafe fn stream_line(cpu: Cpu, dst: *mut u8, src: *const u8) {
    // SAFETY: the same contract.
    unsafe { stream_lines(cpu, dst, src, 1) };
}

/// Stores `count` lines and writes them back.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `64 * count` bytes; `dst` is aligned to 64.
#[inline]
pub(crate) unsafe fn stream_lines(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: the same contract.
    unsafe { copy_words(dst, src, count * 8) };
    if let Some(kind) = cpu.write_back {
        // SAFETY: the lines are mapped; `Cpu::choose` checked the instruction.
        unsafe { write_back_lines(kind, dst, count) };
    }
}

/// Writes `count` lines back, from `dst` on.
///
/// # Safety
/// `dst` is the first byte of `count` mapped lines, and the CPU has the instruction.
#[inline(always)]
pub(crate) unsafe fn write_back_lines(kind: WriteBackKind, dst: *mut u8, count: usize) {
    for line in 0..count {
        let at = dst.wrapping_add(line * 64);
        match kind {
            // SAFETY: `at` is mapped; the CPU has DC CVAP. Spelled as SYS, which every assembler
            // takes whatever its target version.
            WriteBackKind::DcCvap => unsafe {
                asm!("sys #3, c7, c12, #1, {}", in(reg) at, options(nostack, preserves_flags));
            },
            // SAFETY: `at` is mapped; DC CVAC is part of aarch64 and Linux allows it.
            WriteBackKind::DcCvac => unsafe {
                asm!("dc cvac, {}", in(reg) at, options(nostack, preserves_flags));
            },
            WriteBackKind::Clwb
            | WriteBackKind::ClflushOpt
            | WriteBackKind::Clflush
            | WriteBackKind::Portable => {}
        }
    }
}

/// Completes this thread's write-backs.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: a barrier has no operands and changes nothing but the order of accesses.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Asks for the line at `src` to be brought into the cache.
#[inline(always)]
pub(crate) fn prefetch(src: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) src, options(nostack, preserves_flags, readonly));
    };
}
