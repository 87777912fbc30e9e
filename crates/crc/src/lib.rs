//! CRC32C: of short structures by the CPU's instruction, without set-up; of pages by carry-less
//! multiplication, while they are copied ([`copy()`]) or by themselves.
//!
//! An operation sums some 25 lines and words of 4 to 320 bytes. The general crate prepares each
//! time for long input, which costs more than such a sum itself. It still does what is long on a CPU
//! without wide multiplication, and all of it on one without the instruction.

#![allow(unsafe_code, reason = "a function for a CPU feature is called where that was detected")]

mod copy;

pub use copy::copy;

/// From this length on, folding by carry-less multiplication beats the CRC32 instruction.
const LONG: usize = 512;

/// The CRC32C of what `crc` is of, and `bytes` after it; `crc` is 0 for nothing.
#[inline]
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LONG {
        return long(crc, bytes);
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the function needs SSE4.2, which was detected just now.
        return unsafe { by_instruction(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

fn long(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(sum) = copy::wide::sum(crc, bytes) {
        return sum;
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
pub(crate) fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(!crc);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    #[allow(clippy::cast_possible_truncation, reason = "the instruction leaves the upper half 0")]
    let mut state = wide as u32;
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_the_general_crate_at_every_length_and_alignment() {
        let bytes: Vec<u8> =
            (0..6000_u32).map(|at| u8::try_from(at * 7919 % 251).unwrap()).collect();
        for (len, step) in (0..700).chain([1024, 4095, 4096, 5000]).zip(1..) {
            for from in [0, 1, 7, 8, 63] {
                let (crc, part) = (0x9e37_79b9_u32.wrapping_mul(step), &bytes[from..from + len]);
                assert_eq!(append(crc, part), crc32c::crc32c_append(crc, part), "{len} at {from}");
                assert_eq!(append(0, part), crc32c::crc32c(part), "{len} at {from}");
            }
        }
    }

    proptest! {
        /// Whatever is summed in two pieces, on whichever side of [`LONG`] they lie.
        #[test]
        fn pieces_are_summed_as_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..3 * LONG),
            cut in any::<proptest::sample::Index>(),
        ) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(append(append(0, first), second), crc32c::crc32c(&bytes));
        }
    }

    #[test]
    fn is_crc32c() {
        // RFC 3720, B.4.
        assert_eq!(append(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(append(0, &[0xff; 32]), 0x62a8_ab43);
    }
}
