//! Copying with the checksum of each chunk: in one pass over the bytes where the CPU has 512-bit
//! carry-less multiplication, which leaves the time of the slower of the two.

use std::mem::MaybeUninit;

use crate::append;

/// Copies `from` to the start of `room`, chunk by chunk, and gives each of `sums` the CRC32C of the
/// chunk with its number, as it was copied: a checksum is of the copy's bytes even where others
/// change `from` meanwhile, as a caller's other processes may. Returns the copy; none where `room`
/// is too short.
///
/// # Panics
/// For chunks of 0 bytes.
#[must_use]
pub fn copy<'a>(
    from: &[u8],
    room: &'a mut [MaybeUninit<u8>],
    chunk: usize,
    sums: &mut [u32],
) -> Option<&'a [u8]> {
    let room = room.get_mut(..from.len())?;
    let mut sums = sums.iter_mut();
    for (from, to) in from.chunks(chunk).zip(room.chunks_mut(chunk)) {
        match sums.next() {
            Some(sum) => *sum = copy_summed(from, to),
            None => copy_plain(from, to),
        }
    }
    // SAFETY: each byte of the room was written above, and is the caller's for 'a.
    Some(unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), room.len()) })
}

fn copy_plain(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    assert_eq!(from.len(), to.len(), "chunks of one length");
    // SAFETY: both have this length, and a unique borrow overlaps nothing.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().cast(), from.len()) };
}

fn copy_summed(from: &[u8], to: &mut [MaybeUninit<u8>]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = wide::copy(from, to) {
        return crc;
    }
    copy_plain(from, to);
    // SAFETY: just written, all of it.
    append(0, unsafe { std::slice::from_raw_parts(to.as_ptr().cast(), to.len()) })
}

/// Folding over 256 bytes at a time (Gopal et al., "Fast CRC Computation for Generic Polynomials
/// Using PCLMULQDQ Instruction", 2009), in four registers of 64 bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    /// Bytes of a step.
    const STEP: usize = 256;
    /// The polynomial without its highest term, its bits reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// x^n modulo the polynomial as a factor of a reflected 64-bit word.
    const fn power(n: u32) -> u64 {
        let (mut power, mut step) = (1_u32 << 31, 0);
        while step < n {
            power = (power >> 1) ^ if power & 1 == 0 { 0 } else { POLYNOMIAL };
            step += 1;
        }
        (power as u64) << 1
    }

    /// The factors that carry both halves of 128 bits forward by `bits`.
    const fn factors(bits: u32) -> [u64; 2] {
        [power(bits + 32), power(bits - 32)]
    }

    static BY_STEP: [u64; 2] = factors(2048);
    static BY_REGISTER: [u64; 2] = factors(512);

    fn is_able() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("sse4.2")
    }

    /// Copies and sums whole steps; none for other lengths, and where the CPU can't.
    pub(super) fn copy(from: &[u8], to: &mut [MaybeUninit<u8>]) -> Option<u32> {
        let steps = from.len() / STEP;
        if steps == 0 || steps * STEP != from.len() || to.len() != from.len() || !is_able() {
            return None;
        }
        let to = (to.as_mut_ptr(), STEP);
        // SAFETY: the CPU has the instructions; both ranges have `steps` steps, at least one, and
        // a unique borrow overlaps nothing.
        let folded = unsafe { fold(from.as_ptr(), to, steps, u32::MAX) };
        // The start is folded in already: a checksum of all ones starts from a register of 0.
        // SAFETY: SSE4.2 was detected above.
        Some(unsafe { crate::by_instruction(u32::MAX, &folded) })
    }

    /// The CRC32C of what `crc` is of, and `bytes` after it; none where they are short, or the CPU
    /// can't.
    pub(crate) fn sum(crc: u32, bytes: &[u8]) -> Option<u32> {
        let steps = bytes.len() / STEP;
        if steps == 0 || !is_able() {
            return None;
        }
        let (whole, rest) = bytes.split_at(steps * STEP);
        // What is copied is stored to one place, in the nearest cache: it costs no time.
        let mut room = [MaybeUninit::uninit(); STEP];
        // SAFETY: the CPU has the instructions; there are `steps` steps, at least one, and room for
        // one.
        let folded = unsafe { fold(whole.as_ptr(), (room.as_mut_ptr(), 0), steps, !crc) };
        // SAFETY: SSE4.2 was detected above.
        let sum = unsafe { crate::by_instruction(u32::MAX, &folded) };
        // SAFETY: likewise.
        Some(unsafe { crate::by_instruction(sum, rest) })
    }

    /// Copies `steps` steps, at least one, to a place and so many bytes further for each, and folds
    /// them into 64 bytes with the same checksum from a register of 0 as theirs from `start`.
    ///
    /// # Safety
    /// `from` is valid for reading and `to` for writing that many steps, apart from each other; the
    /// CPU has AVX-512F and VPCLMULQDQ.
    unsafe fn fold(
        from: *const u8,
        to: (*mut MaybeUninit<u8>, usize),
        steps: usize,
        start: u32,
    ) -> [u8; 64] {
        let (to, further) = to;
        let mut folded = MaybeUninit::<[u8; 64]>::uninit();
        // SAFETY: as the contract says; `folded` has 64 bytes, and the factors 16 each.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{s}]", "vmovdqu64 zmm17, [{s} + 64]",
                "vmovdqu64 zmm18, [{s} + 128]", "vmovdqu64 zmm19, [{s} + 192]",
                "vmovdqu64 [{d}], zmm16", "vmovdqu64 [{d} + 64], zmm17",
                "vmovdqu64 [{d} + 128], zmm18", "vmovdqu64 [{d} + 192], zmm19",
                "vmovd xmm20, {start:e}",
                "vpxorq zmm16, zmm16, zmm20",
                "vbroadcasti32x4 zmm20, [{by_step}]",
                "dec {n}",
                "jz 3f",
                "2:",
                "add {s}, 256",
                "add {d}, {further}",
                "vmovdqu64 zmm21, [{s}]", "vmovdqu64 zmm22, [{s} + 64]",
                "vmovdqu64 zmm23, [{s} + 128]", "vmovdqu64 zmm24, [{s} + 192]",
                "vpclmulqdq zmm25, zmm16, zmm20, 0x00",
                "vpclmulqdq zmm26, zmm17, zmm20, 0x00",
                "vpclmulqdq zmm27, zmm18, zmm20, 0x00",
                "vpclmulqdq zmm28, zmm19, zmm20, 0x00",
                "vpclmulqdq zmm16, zmm16, zmm20, 0x11",
                "vpclmulqdq zmm17, zmm17, zmm20, 0x11",
                "vpclmulqdq zmm18, zmm18, zmm20, 0x11",
                "vpclmulqdq zmm19, zmm19, zmm20, 0x11",
                "vmovdqu64 [{d}], zmm21", "vmovdqu64 [{d} + 64], zmm22",
                "vmovdqu64 [{d} + 128], zmm23", "vmovdqu64 [{d} + 192], zmm24",
                "vpternlogq zmm16, zmm25, zmm21, 0x96",
                "vpternlogq zmm17, zmm26, zmm22, 0x96",
                "vpternlogq zmm18, zmm27, zmm23, 0x96",
                "vpternlogq zmm19, zmm28, zmm24, 0x96",
                "dec {n}",
                "jnz 2b",
                "3:",
                "vbroadcasti32x4 zmm20, [{by_register}]",
                "vpclmulqdq zmm25, zmm16, zmm20, 0x00",
                "vpclmulqdq zmm16, zmm16, zmm20, 0x11",
                "vpternlogq zmm17, zmm25, zmm16, 0x96",
                "vpclmulqdq zmm25, zmm17, zmm20, 0x00",
                "vpclmulqdq zmm17, zmm17, zmm20, 0x11",
                "vpternlogq zmm18, zmm25, zmm17, 0x96",
                "vpclmulqdq zmm25, zmm18, zmm20, 0x00",
                "vpclmulqdq zmm18, zmm18, zmm20, 0x11",
                "vpternlogq zmm19, zmm25, zmm18, 0x96",
                "vmovdqu64 [{out}], zmm19",
                s = inout(reg) from => _,
                d = inout(reg) to => _,
                n = inout(reg) steps => _,
                further = in(reg) further,
                start = in(reg) start,
                by_step = in(reg) &raw const BY_STEP,
                by_register = in(reg) &raw const BY_REGISTER,
                out = in(reg) folded.as_mut_ptr(),
                out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _, out("xmm20") _,
                out("xmm21") _, out("xmm22") _, out("xmm23") _, out("xmm24") _, out("xmm25") _,
                out("xmm26") _, out("xmm27") _, out("xmm28") _,
                options(nostack)
            );
        }
        // SAFETY: the last instruction stored all of it.
        unsafe { folded.assume_init() }
    }

    #[cfg(test)]
    mod tests {
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

        use super::*;

        fn change(source: &[AtomicU64], done: &AtomicBool) {
            for turn in 1_u64.. {
                for word in source {
                    word.store(turn, Ordering::Relaxed);
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        }

        /// Copies a page while it changes; says whether the sum is that of the copy.
        fn is_sum_of_copy(source: &[AtomicU64; 512]) -> bool {
            let mut room = [MaybeUninit::uninit(); 4096];
            let to = (room.as_mut_ptr(), STEP);
            // SAFETY: both have 16 steps; the CPU was asked.
            let folded = unsafe { fold(source.as_ptr().cast(), to, 16, u32::MAX) };
            // SAFETY: just written, all of it.
            let copy = room.map(|byte| unsafe { byte.assume_init() });
            // SAFETY: the CPU was asked.
            let sum = unsafe { crate::by_instruction(u32::MAX, &folded) };
            sum == crc32c::crc32c(&copy)
        }

        /// Only the instructions above may do this: each byte is loaded once, by none but them.
        #[test]
        fn the_sum_is_of_the_copy_while_the_source_changes() {
            if !is_able() {
                eprintln!("skipped: the_sum_is_of_the_copy: this CPU lacks VPCLMULQDQ");
                return;
            }
            let source = [const { AtomicU64::new(0) }; 512];
            let done = AtomicBool::new(false);
            let wrong = std::thread::scope(|scope| {
                scope.spawn(|| change(&source, &done));
                let wrong = (0..20_000).filter(|_| !is_sum_of_copy(&source)).count();
                done.store(true, Ordering::Relaxed);
                wrong
            });
            assert_eq!(wrong, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn copies_and_sums_each_chunk(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            from in 0..70_usize,
            chunk in prop_oneof![Just(256_usize), Just(512), Just(1024), 1..1500_usize],
            sums in 0..4_usize,
        ) {
            let part = bytes.get(from..).unwrap_or_default();
            let mut room = [MaybeUninit::uninit(); 3001];
            let mut found = vec![0; sums];
            let copied = copy(part, &mut room[1..], chunk, &mut found);
            prop_assert_eq!(copied, Some(part));
            let chunks = part.chunks(chunk).map(crc32c::crc32c);
            let expected: Vec<u32> = chunks.chain(std::iter::repeat(0)).take(sums).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_room_that_is_too_short_gets_nothing() {
        let mut sums = [7];
        assert_eq!(copy(&[1; 9], &mut [MaybeUninit::uninit(); 8], 4, &mut sums), None);
        assert_eq!(sums, [7]);
    }

    #[test]
    fn a_page_of_zeros_and_one_of_ones() {
        let mut room = [MaybeUninit::uninit(); 8192];
        let (mut bytes, mut sums) = ([0; 8192], [0; 2]);
        bytes[4096..].fill(0xff);
        assert_eq!(copy(&bytes, &mut room, 4096, &mut sums), Some(&bytes[..]));
        assert_eq!(sums, [crc32c::crc32c(&[0; 4096]), crc32c::crc32c(&[0xff; 4096])]);
    }
}
