//! Copies out of the pool and into it, through the caches.

use std::arch::asm;

use crate::cpu::Cpu;

/// Copies one line out; its 8-byte units are each read at once.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing 64 bytes.
#[inline(always)]
pub(crate) unsafe fn load_line(dst: *mut u8, src: *const u8) {
    // SAFETY: both ranges are 64 bytes by the contract.
    unsafe { copy_33_to_64(dst, src, 64) };
}

/// Copies `len` bytes out of the pool. When `src` is aligned to 8, each 8-byte unit is read at
/// once: where two loads overlap, the bytes of the first are kept.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
#[inline]
pub(crate) unsafe fn copy_out(cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    match len {
        // SAFETY: `len` bytes of both ranges, here and in all arms, by the contract.
        0..=7 => unsafe { copy_bytes(dst, src, len) },
        // SAFETY: as above.
        8..=16 => unsafe { copy_8_to_16(dst, src, len) },
        // SAFETY: as above.
        17..=32 => unsafe { copy_17_to_32(dst, src, len) },
        // SAFETY: as above.
        33..=64 => unsafe { copy_33_to_64(dst, src, len) },
        // SAFETY: as above.
        65.. if cpu.wide => unsafe { copy_out_wide(dst, src, len) },
        // SAFETY: as above.
        65.. => unsafe { copy_out_narrow(dst, src, len) },
    }
}

/// Copies 8 to 16 bytes.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes, 8 to 16.
#[inline(always)]
unsafe fn copy_8_to_16(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first and the last 8 bytes of both ranges.
    unsafe {
        asm!(
            "mov {a}, [{s}]",
            "mov {b}, [{s} + {n} - 8]",
            "mov [{d} + {n} - 8], {b}",
            "mov [{d}], {a}",
            s = in(reg) src,
            d = in(reg) dst,
            n = in(reg) len,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies 17 to 32 bytes.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes, 17 to 32.
#[inline(always)]
unsafe fn copy_17_to_32(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first and the last 16 bytes of both ranges.
    unsafe {
        asm!(
            "movups {a}, [{s}]",
            "movups {b}, [{s} + {n} - 16]",
            "movups [{d} + {n} - 16], {b}",
            "movups [{d}], {a}",
            s = in(reg) src,
            d = in(reg) dst,
            n = in(reg) len,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies 33 to 64 bytes.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes, 33 to 64.
#[inline(always)]
unsafe fn copy_33_to_64(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the first and the last 32 bytes of both ranges.
    unsafe {
        asm!(
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + {n} - 32]",
            "movups {e}, [{s} + {n} - 16]",
            "movups [{d} + {n} - 32], {c}",
            "movups [{d} + {n} - 16], {e}",
            "movups [{d}], {a}",
            "movups [{d} + 16], {b}",
            s = in(reg) src,
            d = in(reg) dst,
            n = in(reg) len,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            e = out(xmm_reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies 65 bytes or more by 64-byte moves; the last one first, so that the others overwrite
/// its overlap.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes, at least 65; the CPU has AVX-512.
#[inline]
unsafe fn copy_out_wide(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the last 64 bytes, then `(len - 1) / 64` times 64 bytes from the first on.
    unsafe {
        asm!(
            "vmovdqu64 zmm16, [{s} + {l} - 64]",
            "vmovdqu64 [{d} + {l} - 64], zmm16",
            "2:",
            "vmovdqu64 zmm16, [{s}]",
            "vmovdqu64 [{d}], zmm16",
            "add {s}, 64",
            "add {d}, 64",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) (len - 1) / 64 => _,
            l = in(reg) len,
            out("xmm16") _,
            options(nostack)
        );
    }
}

/// `copy_out_wide` for a CPU without AVX-512.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes, at least 65.
#[inline]
unsafe fn copy_out_narrow(dst: *mut u8, src: *const u8, len: usize) {
    let last = len - 64;
    // SAFETY: the last 64 bytes of both ranges.
    unsafe { copy_33_to_64(dst.wrapping_add(last), src.wrapping_add(last), 64) };
    // SAFETY: `(len - 1) / 64` times 64 bytes from the first on.
    unsafe { copy_lines_narrow(dst, src, (len - 1) / 64) };
}

/// Copies `count` times 64 bytes by 16-byte moves.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `64 * count` bytes; `count` is not 0.
#[inline]
unsafe fn copy_lines_narrow(dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: `64 * count` bytes of both ranges.
    unsafe {
        asm!(
            "2:",
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + 32]",
            "movups {e}, [{s} + 48]",
            "movups [{d}], {a}",
            "movups [{d} + 16], {b}",
            "movups [{d} + 32], {c}",
            "movups [{d} + 48], {e}",
            "add {s}, 64",
            "add {d}, 64",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            e = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Copies `count` times 64 bytes by 64-byte moves.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `64 * count` bytes; `count` is not 0; the CPU
/// has AVX-512.
#[inline]
unsafe fn copy_lines_wide(dst: *mut u8, src: *const u8, count: usize) {
    // SAFETY: `64 * count` bytes of both ranges.
    unsafe {
        asm!(
            "2:",
            "vmovdqu64 zmm16, [{s}]",
            "vmovdqu64 [{d}], zmm16",
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

/// Copies `len` bytes into the pool; each aligned 8-byte unit within is stored at once: bytes up
/// to the first unit, units up to the first line, whole lines, units, bytes.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `len` bytes; they do not overlap.
pub(crate) unsafe fn copy_in(cpu: Cpu, dst: *mut u8, src: *const u8, len: usize) {
    let head = (dst.addr().wrapping_neg() % 8).min(len);
    let line_at = (dst.addr().wrapping_neg() % 64).min(len);
    let words = line_at.saturating_sub(head) / 8;
    let lines = (len - line_at) / 64;
    // A range that ends before its first line does may leave bytes behind its units.
    let tail_at = head + words * 8 + lines * 64;
    let tail_words = (len - tail_at) / 8;
    let bytes_at = tail_at + tail_words * 8;
    // SAFETY: the first bytes of both ranges.
    unsafe { copy_bytes(dst, src, head) };
    // SAFETY: `8 * words` bytes, at most up to the first line.
    unsafe { copy_words(dst.wrapping_add(head), src.wrapping_add(head), words) };
    let (to, from) = (dst.wrapping_add(line_at), src.wrapping_add(line_at));
    if lines > 0 && cpu.wide {
        // SAFETY: `64 * lines` bytes, at most what is left; the CPU has AVX-512.
        unsafe { copy_lines_wide(to, from, lines) };
    } else if lines > 0 {
        // SAFETY: `64 * lines` bytes, at most what is left.
        unsafe { copy_lines_narrow(to, from, lines) };
    }
    // SAFETY: `8 * tail_words` bytes, at most what is left.
    unsafe {
        copy_words(dst.wrapping_add(tail_at), src.wrapping_add(tail_at), tail_words);
    };
    // SAFETY: the last bytes of both ranges.
    unsafe {
        copy_bytes(dst.wrapping_add(bytes_at), src.wrapping_add(bytes_at), len - bytes_at);
    };
}

/// Copies `count` 8-byte units.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `8 * count` bytes; they do not overlap.
#[inline]
unsafe fn copy_words(dst: *mut u8, src: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: `8 * count` bytes of both ranges.
    unsafe {
        asm!(
            "2:",
            "mov {t}, [{s}]",
            "mov [{d}], {t}",
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

/// Copies `count` bytes one by one: a few at the edge of a unit.
///
/// # Safety
/// `src` is valid for reading and `dst` for writing `count` bytes; they do not overlap.
#[inline]
unsafe fn copy_bytes(dst: *mut u8, src: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: `count` bytes of both ranges.
    unsafe {
        asm!(
            "2:",
            "mov {t}, byte ptr [{s}]",
            "mov byte ptr [{d}], {t}",
            "inc {s}",
            "inc {d}",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            n = inout(reg) count => _,
            t = out(reg_byte) _,
            options(nostack)
        );
    }
}
