//! Wear lines: how many lines were ever sent to a slot.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

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
    /// Lines of 64 bytes that were sent to the slot since the pool was made.
    pub lines: u64,
}

impl WearLine {
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
            lines: self.lines.into(),
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
        Ok(Self { seq: decode_seq(raw.seq.get(), WEAR, "seq")?, lines: raw.lines.get() })
    }
}
