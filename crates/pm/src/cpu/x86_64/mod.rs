//! x86-64: inline assembly throughout, so that a store or load that races with another process
//! is opaque to the compiler. AVX-512 uses registers 16 and up: they need no `vzeroupper`.

mod copy;
mod stream;

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use super::WriteBackKind;

pub(crate) use copy::{copy_in, copy_out, load_line};
pub(crate) use stream::{stream_line, stream_lines, stream_words};

/// The write-back instructions that this CPU has, best first.
pub(crate) fn write_back_kinds() -> Vec<WriteBackKind> {
    // CPUID leaf 7, EBX: bit 23 CLFLUSHOPT, bit 24 CLWB. CLFLUSH is part of x86-64.
    let features = std::arch::x86_64::__cpuid_count(7, 0).ebx;
    let mut kinds = Vec::new();
    if features & (1 << 24) != 0 {
        kinds.push(WriteBackKind::Clwb);
    }
    if features & (1 << 23) != 0 {
        kinds.push(WriteBackKind::ClflushOpt);
    }
    kinds.push(WriteBackKind::Clflush);
    kinds
}

/// Whether a line can be stored by one instruction.
pub(crate) fn has_wide() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
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

/// Executes an instruction for each of `count` lines, at least one.
macro_rules! write_back_each {
    ($instruction:literal, $dst:expr, $count:expr) => {
        asm!(
            "2:",
            concat!($instruction, " [{d}]"),
            "add {d}, 64",
            "dec {n}",
            "jnz 2b",
            d = inout(reg) $dst => _,
            n = inout(reg) $count => _,
            options(nostack)
        )
    };
}

/// Writes `count` lines back, from `dst` on.
///
/// # Safety
/// `dst` is the first byte of `count` mapped lines, at least one, and the CPU has the instruction.
#[inline(always)]
pub(crate) unsafe fn write_back_lines(kind: WriteBackKind, dst: *mut u8, count: usize) {
    // The choice is outside of the loop, so that the loop is two instructions.
    match kind {
        // SAFETY: the lines are mapped; the CPU has CLWB.
        WriteBackKind::Clwb => unsafe { write_back_each!("clwb", dst, count) },
        // SAFETY: the lines are mapped; the CPU has CLFLUSHOPT.
        WriteBackKind::ClflushOpt => unsafe { write_back_each!("clflushopt", dst, count) },
        // SAFETY: the lines are mapped; CLFLUSH is part of x86-64.
        WriteBackKind::Clflush => unsafe { write_back_each!("clflush", dst, count) },
        WriteBackKind::DcCvap | WriteBackKind::DcCvac | WriteBackKind::Portable => {}
    }
}

/// Completes this thread's write-backs and streaming stores.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: SFENCE has no operands and changes nothing but the order of stores.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

/// Asks for the line at `src` to be brought into the cache.
#[inline(always)]
pub(crate) fn prefetch(src: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { asm!("prefetcht0 [{}]", in(reg) src, options(nostack, preserves_flags, readonly)) };
}
