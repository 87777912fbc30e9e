//! Wear lines: how many lines were ever sent to a slot.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::check;
use crate::number::decode_seq;
use crate::{LINE, LINES_PER_PAGE, LayoutError, PmAddr, Seed, WEAR_PAGE};

const WEAR: &str = "wear line";

raw! {
    struct RawWear, "Wear line", 64 {
        0 seq: U64,
        8 lines: U64,
        16 reserved: [u8; 44],
        60 crc: U32,
    }
}

/// The wear of a slot (WASA, III.B, which counts calls); the newest line of the slot's wear page that
/// validates counts.
///
/// The seed is pool, address of the slot's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WearLine {
    /// Rises with each write of a wear line.
    pub seq: u64,
    /// Lines of 64 bytes that were sent to the slot since the pool was made, below [`WearLine::LINES_LIMIT`].
    pub lines: u64,
}

impl WearLine {
    /// Counts lie below this, 2^63 bytes a slot, so that they can be added up and be told in bytes.
    pub const LINES_LIMIT: u64 = 1 << 57;
    /// Lines of the wear page that are written in turn, so that counting wears none of them out.
    pub const TURNS: u64 = LINES_PER_PAGE;

    /// Where the line of that number lies.
    #[must_use]
    pub fn addr(slot: u8, seq: u64) -> PmAddr {
        PmAddr::new(slot, WEAR_PAGE * crate::PAGE + seq % Self::TURNS * LINE)
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let raw = RawWear {
            seq: self.seq.into(),
            lines: self.lines.min(Self::LINES_LIMIT - 1).into(),
            reserved: [0; 44],
            crc: U32::ZERO,
        };
        seed.seal(transmute!(raw))
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, else the first thing that is wrong.
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        if bytes == &[0; 64] {
            return Err(LayoutError::Blank);
        }
        let raw: RawWear = transmute!(*bytes);
        seed.check_sealed(bytes, WEAR)?;
        let lines = raw.lines.get();
        check(lines < Self::LINES_LIMIT, WEAR, "lines", "below 2^57", lines)?;
        Ok(Self { seq: decode_seq(raw.seq.get(), WEAR, "seq")?, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `novale wear` overflowed by a count that somebody had put there.
    #[test]
    fn a_count_that_nobody_reaches_is_refused() {
        let seed = Seed::pool(&[7; 16]);
        let with = |lines| WearLine { seq: 1, lines };
        let most = with(WearLine::LINES_LIMIT - 1);
        let raw = RawWear {
            seq: 1.into(),
            lines: WearLine::LINES_LIMIT.into(),
            reserved: [0; 44],
            crc: U32::ZERO,
        };
        let refused = WearLine::decode(&seed.seal(transmute!(raw)), seed);
        assert!(matches!(refused, Err(LayoutError::Field { field: "lines", .. })), "{refused:?}");
        for count in [most, with(u64::MAX)] {
            assert_eq!(WearLine::decode(&count.encode(seed), seed), Ok(most));
        }
    }
}
