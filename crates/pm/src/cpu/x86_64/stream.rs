//! Stores past the caches: 64 bytes by AVX-512, else 8 bytes by `movnti`.

use std::arch::asm;

use crate::cpu::Cpu;

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
