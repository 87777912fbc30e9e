//! x86-64: inline assembly throughout, so that a store or load that races with another process
//! is opaque to the compiler. AVX-512 uses registers 16 and up: they need no `vzeroupper`.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cpu, WriteBackKind};

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

/// Copies one line out; its 8-byte units are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes.
#[inline(always)]
pub(crate) unsafe fn load_line(dst: *mut u8, src: *const u8) {
    // SAFETY: both ranges are valid by the contract; only the named registers change.
    unsafe {
        asm!(
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + 32]",
            "movups {e}, [{s} + 48]",
            "movups [{d}], {a}",
            "movups [{d} + 16], {b}",
            "movups [{d} + 32], {c}",
            "movups [{d} + 48], {e}",
            s = in(reg) src,
            d = in(reg) dst,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            e = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies `len` bytes out of the pool, in no order.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
pub(crate) unsafe fn copy_out(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the same contract.
    unsafe { copy_bytes(dst, src, len) };
}

/// Copies `len` bytes into the pool; each aligned 8-byte unit within is stored at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
pub(crate) unsafe fn copy_in(dst: *mut u8, src: *const u8, len: usize) {
    let head = dst.addr().wrapping_neg() % 8;
    let head = head.min(len);
    let words = (len - head) / 8;
    let done = head + words * 8;
    if head > 0 {
        // SAFETY: the first bytes of both ranges.
        unsafe { copy_bytes(dst, src, head) };
    }
    if words > 0 {
        // SAFETY: `8 * words` bytes of both ranges, within `len`.
        unsafe {
            asm!(
                "2:",
                "mov {t}, [{s}]",
                "mov [{d}], {t}",
                "add {s}, 8",
                "add {d}, 8",
                "dec {n}",
                "jnz 2b",
                s = inout(reg) src.wrapping_add(head) => _,
                d = inout(reg) dst.wrapping_add(head) => _,
                n = inout(reg) words => _,
                t = out(reg) _,
                options(nostack)
            );
        }
    }
    if done < len {
        // SAFETY: the last bytes of both ranges.
        unsafe { copy_bytes(dst.wrapping_add(done), src.wrapping_add(done), len - done) };
    }
}

/// Copies `len` bytes, in no order and by units of any size.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
unsafe fn copy_bytes(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: both ranges are valid by the contract; the direction flag is clear by the ABI.
    unsafe {
        asm!(
            "rep movsb",
            inout("rsi") src => _,
            inout("rdi") dst => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Streams `count` 8-byte units.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `8 * count` bytes; `dst` is aligned to 8.
#[inline]
pub(crate) unsafe fn stream_words(_cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: `8 * count` bytes of both ranges, valid by the contract.
    unsafe {
        asm!(
            "2:",
            "mov {t}, [{s}]",
            "movnti [{d}], {t}",
            "add {s}, 8",
            "add {d}, 8",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            t = out(reg) _,
            options(nostack)
        );
    }
}

/// Streams one line.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes; `dst` is aligned to 64.
#[inline(always)]
pub(crate) unsafe fn stream_line(cpu: Cpu, dst: *mut u8, src: *const u8) {
    if cpu.wide {
        // SAFETY: both ranges are valid and `dst` aligned by the contract; the CPU has AVX-512.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{s}]",
                "vmovntdq [{d}], zmm16",
                s = in(reg) src,
                d = in(reg) dst,
                out("xmm16") _,
                options(nostack, preserves_flags)
            );
        }
    } else {
        // SAFETY: a line is 8 units; the contract is the same.
        unsafe { stream_words(cpu, dst, src, 8) };
    }
}

/// Streams `count` lines.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `64 * count` bytes; `dst` is aligned to 64.
#[inline]
pub(crate) unsafe fn stream_lines(cpu: Cpu, dst: *mut u8, src: *const u8, count: usize) {
    if !cpu.wide {
        // SAFETY: a line is 8 units; the contract is the same.
        return unsafe { stream_words(cpu, dst, src, count * 8) };
    }
    if count == 0 {
        return;
    }
    // SAFETY: `64 * count` bytes of both ranges, valid by the contract; the CPU has AVX-512.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm16, [{s}]",
            "vmovntdq [{d}], zmm16",
            "add {s}, 64",
            "add {d}, 64",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            out("xmm16") _,
            options(nostack)
        );
    }
}

/// Writes `count` lines back, from `dst` on.
///
/// # Safety
/// `dst` is the first byte of `count` mapped lines, and the CPU has the instruction.
#[inline(always)]
pub(crate) unsafe fn write_back_lines(kind: WriteBackKind, dst: *mut u8, count: usize) {
    for line in 0..count {
        // SAFETY: within the `count` lines.
        let at = unsafe { dst.add(line * 64) };
        match kind {
            // SAFETY: `at` is mapped; the CPU has CLWB (66 0F AE /6).
            WriteBackKind::Clwb => unsafe {
                asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags));
            },
            // SAFETY: `at` is mapped; the CPU has CLFLUSHOPT.
            WriteBackKind::ClflushOpt => unsafe {
                asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
            },
            // SAFETY: `at` is mapped; CLFLUSH is part of x86-64.
            WriteBackKind::Clflush => unsafe {
                asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags));
            },
            WriteBackKind::DcCvap | WriteBackKind::DcCvac | WriteBackKind::Portable => {}
        }
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
