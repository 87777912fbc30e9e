//! A place in the segment, and the few checked ways from word counts to machine sizes.

use std::fmt;

use crate::base::word::AtomicU64;

/// Bytes of a cache line: every block starts on one.
pub(crate) const LINE: u64 = 64;

/// A byte offset in the segment; 0 is null. Blocks lie on multiples of 64, words on multiples of 8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Off(u64);

impl Off {
    /// Points nowhere.
    pub const NULL: Self = Self(0);

    /// The offset of this many bytes; checked when it is used, not here.
    #[must_use]
    pub const fn from_raw(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The offset in bytes.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// True for the null offset.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The offset `bytes` further on (wrapping: a wrong sum fails the check on use).
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The offset of the `index`-th word after this one.
    #[must_use]
    pub const fn word(self, index: u64) -> Self {
        self.add(index.wrapping_mul(8))
    }
}

impl fmt::Debug for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Off({:#x})", self.0)
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The one conversion from segment sizes to machine sizes; exact, as only 64-bit targets build.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "usize has 64 bits, asserted in lib.rs")]
pub(crate) const fn to_usize(n: u64) -> usize {
    n as usize
}

/// The low half of a word.
#[inline]
pub(crate) const fn low32(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// The high half of a word.
#[inline]
pub(crate) const fn high32(word: u64) -> u32 {
    (word >> 32) as u32
}

/// `array[index % N]`, which is always there; callers' indices are below N already.
#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "the index is taken modulo the length")]
pub(crate) fn at<const N: usize>(array: &[AtomicU64; N], index: usize) -> &AtomicU64 {
    &array[index % N]
}
