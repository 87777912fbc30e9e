//! Addresses in the pool.

use std::fmt;

use crate::error::check;
use crate::{LINE, LayoutError, PAGE};

const BYTE_BITS: u32 = 48;
const BYTE_MASK: u64 = (1 << BYTE_BITS) - 1;
const SLOT_SHIFT: u32 = 56;
const RESERVED_MASK: u64 = 0xff << BYTE_BITS;

/// An address in the pool: bits 0-47 byte offset in the slot, 48-55 reserved (zero), 56-63 slot.
///
/// Zero is no address: the first page of slot 0 holds the superblock, which nothing points to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PmAddr(u64);

impl PmAddr {
    /// No address.
    pub const NULL: Self = Self(0);

    /// Bytes of the longest slot: 256 TiB.
    pub const SLOT_BYTES_MAX: u64 = 1 << BYTE_BITS;

    /// The address of a byte of a slot.
    ///
    /// # Panics
    /// When `byte` needs more than 48 bits: no slot is that long.
    #[inline]
    #[must_use]
    pub const fn new(slot: u8, byte: u64) -> Self {
        assert!(byte <= BYTE_MASK, "a byte offset in a slot has 48 bits");
        Self((slot as u64) << SLOT_SHIFT | byte)
    }

    /// The address that `raw` spells, unchecked: see [`PmAddr::reserved_bits_clear`].
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The word as it is stored.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The slot.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u8 {
        self.0.to_le_bytes()[7]
    }

    /// The byte offset in the slot, below 2^48.
    #[inline]
    #[must_use]
    pub const fn byte(self) -> u64 {
        self.0 & BYTE_MASK
    }

    /// Whether this is no address.
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Whether it is the first byte of a page.
    #[inline]
    #[must_use]
    pub const fn is_page_aligned(self) -> bool {
        self.0.is_multiple_of(PAGE)
    }

    /// Whether it is the first byte of a cache line.
    #[inline]
    #[must_use]
    pub const fn is_line_aligned(self) -> bool {
        self.0.is_multiple_of(LINE)
    }

    /// Whether the reserved bits 48-55 are zero, as in every address of format version 1.
    #[inline]
    #[must_use]
    pub const fn reserved_bits_clear(self) -> bool {
        self.0 & RESERVED_MASK == 0
    }

    /// The first byte of the page that holds this address.
    #[inline]
    #[must_use]
    pub const fn page(self) -> Self {
        Self(self.0 & !(PAGE - 1))
    }

    /// The address `bytes` further in the same slot.
    ///
    /// # Panics
    /// When that lies beyond the 48 bits of a byte offset.
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        assert!(self.checked_add(bytes).is_some(), "a byte offset in a slot has 48 bits");
        Self(self.0 + bytes)
    }

    /// The same; none when that lies beyond. Of addresses that nobody has checked yet.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        // No overflow: both are below 2^48 where they are added.
        if bytes <= BYTE_MASK && self.byte() + bytes <= BYTE_MASK {
            Some(Self(self.0 + bytes))
        } else {
            None
        }
    }

    /// Takes a word that must be null or the address of a page.
    #[inline]
    pub(crate) fn decode_page(
        raw: u64,
        structure: &'static str,
        field: &'static str,
    ) -> Result<Self, LayoutError> {
        let addr = Self(raw);
        let ok = addr.is_page_aligned() && addr.reserved_bits_clear();
        check(ok, structure, field, "the address of a page, or 0", raw)?;
        Ok(addr)
    }

    /// Takes a word that must be the address of a byte.
    pub(crate) fn decode_byte(
        raw: u64,
        structure: &'static str,
        field: &'static str,
    ) -> Result<Self, LayoutError> {
        let addr = Self(raw);
        check(raw != 0 && addr.reserved_bits_clear(), structure, field, "an address", raw)?;
        Ok(addr)
    }
}

impl fmt::Display for PmAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.slot(), self.byte())
    }
}

impl fmt::Debug for PmAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PmAddr({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_slot_and_byte() {
        let addr = PmAddr::new(63, 0x1234_5678_9040);
        assert_eq!(addr.raw(), 0x3f00_1234_5678_9040);
        assert_eq!((addr.slot(), addr.byte()), (63, 0x1234_5678_9040));
        assert_eq!(addr.to_string(), "63:0x123456789040");
        assert!(addr.is_line_aligned() && !addr.is_page_aligned());
        assert_eq!(addr.page(), PmAddr::new(63, 0x1234_5678_9000));
        assert_eq!(addr.add(0xfc0), PmAddr::new(63, 0x1234_5678_a000));
    }

    #[test]
    fn reserved_bits_are_seen_and_are_no_part_of_the_byte() {
        for bit in 48..56 {
            let addr = PmAddr::from_raw(1 << bit | 4096);
            assert!(!addr.reserved_bits_clear(), "bit {bit}");
            assert_eq!((addr.slot(), addr.byte()), (0, 4096));
            assert!(PmAddr::decode_page(addr.raw(), "test", "addr").is_err());
        }
        assert!(PmAddr::new(255, (1 << 48) - 1).reserved_bits_clear());
    }

    #[test]
    fn slot_0_byte_0_is_null() {
        assert!(PmAddr::new(0, 0).is_null());
        assert!(!PmAddr::new(1, 0).is_null());
        assert!(!PmAddr::new(0, 1).is_null());
    }

    #[test]
    #[should_panic(expected = "48 bits")]
    fn a_byte_offset_above_48_bits_is_a_bug() {
        let _addr = PmAddr::new(0, 1 << 48);
    }

    #[test]
    #[should_panic(expected = "48 bits")]
    fn an_address_does_not_run_into_the_reserved_bits() {
        let _addr = PmAddr::new(1, (1 << 48) - 64).add(64);
    }

    #[test]
    fn no_address_follows_the_end_of_the_longest_slot() {
        let last = PmAddr::new(1, PmAddr::SLOT_BYTES_MAX - 64);
        assert_eq!(last.checked_add(63), Some(PmAddr::new(1, PmAddr::SLOT_BYTES_MAX - 1)));
        for bytes in [64, PmAddr::SLOT_BYTES_MAX, u64::MAX] {
            assert_eq!(last.checked_add(bytes), None);
        }
        // Reserved bits stay what they are, and carry nothing.
        let any = PmAddr::from_raw(u64::MAX);
        assert_eq!((any.checked_add(0), any.checked_add(1)), (Some(any), None));
        let any = PmAddr::from_raw(u64::MAX - 8);
        assert_eq!(any.checked_add(8), Some(PmAddr::from_raw(u64::MAX)));
    }
}
