//! Pair lines: which copy of each cache line of a paired page is current.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::transmute;

use crate::error::check;
use crate::{Ino, LayoutError, PmAddr, Seed};

const PAIR: &str = "pair line";
const LOW_MASK: u64 = 0xfff;
const HIGH_SHIFT: u32 = 48;
const HIGH_MASK: u64 = 0xff << HIGH_SHIFT;

raw! {
    struct RawPairLine, "Pair line", 64 {
        0 op_seq: U64,
        8 home: U64,
        16 partner: U64,
        24 install_seq: U64,
        32 word: U64,
        40 changed: U64,
        48 mtime_ns: I64,
        56 data_crc: U32,
        60 line_crc: U32,
    }
}

/// One of the two lines of a pair record; the newest that validates counts.
///
/// The seed is pool, ino, generation: [`PairLine::peek_ino`] says which inode to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairLine {
    /// The operation that wrote the line.
    pub op_seq: u64,
    /// The inode whose page it is, below 2^40.
    pub ino: Ino,
    /// The page that the inode's log maps.
    pub home: PmAddr,
    /// The page with the other copy; null: folded.
    pub partner: PmAddr,
    /// The `op_seq` of the write entry that mapped `home`.
    pub install_seq: u64,
    /// A bit a cache line: set where the partner's copy is current.
    pub word: u64,
    /// The lines that `data_crc` covers; 0: no data check.
    pub changed: u64,
    /// The inode's mtime, ns since 1970.
    pub mtime_ns: i64,
    /// The checksum of the changed lines.
    pub data_crc: u32,
}

impl PairLine {
    /// The inode that a line names, unchecked.
    #[inline]
    #[must_use]
    pub fn peek_ino(bytes: &[u8; 64]) -> Ino {
        let raw: RawPairLine = transmute!(*bytes);
        Ino::new(spare(raw.home.get()) | spare(raw.partner.get()) << 20)
    }

    /// The bytes to store.
    #[inline]
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let ino = self.ino.get();
        let raw = RawPairLine {
            op_seq: self.op_seq.into(),
            home: (self.home.raw() | spread(ino)).into(),
            partner: (self.partner.raw() | spread(ino >> 20)).into(),
            install_seq: self.install_seq.into(),
            word: self.word.into(),
            changed: self.changed.into(),
            mtime_ns: self.mtime_ns.into(),
            data_crc: self.data_crc.into(),
            line_crc: U32::ZERO,
        };
        seed.seal(transmute!(raw))
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, [`LayoutError::Checksum`] when the line is torn,
    /// damaged or of another generation, [`LayoutError::Field`] when it has no home.
    #[inline]
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        if bytes == &[0; 64] {
            return Err(LayoutError::Blank);
        }
        let raw: RawPairLine = transmute!(*bytes);
        seed.check_sealed(bytes, PAIR)?;
        let ino = Self::peek_ino(bytes);
        let home = PmAddr::from_raw(raw.home.get() & !(LOW_MASK | HIGH_MASK));
        let partner = PmAddr::from_raw(raw.partner.get() & !(LOW_MASK | HIGH_MASK));
        check(!home.is_null(), PAIR, "home", "the address of a page", raw.home.get())?;
        Ok(Self {
            op_seq: raw.op_seq.get(),
            ino: Ino::decode(ino.get(), PAIR)?,
            home,
            partner,
            install_seq: raw.install_seq.get(),
            word: raw.word.get(),
            changed: raw.changed.get(),
            mtime_ns: raw.mtime_ns.get(),
            data_crc: raw.data_crc.get(),
        })
    }
}

/// Puts 20 bits into the bits that a page address does not use: 12 low, 8 reserved.
#[inline]
const fn spread(bits: u64) -> u64 {
    (bits & LOW_MASK) | ((bits >> 12 & 0xff) << HIGH_SHIFT)
}

/// Takes those 20 bits out again.
#[inline]
const fn spare(word: u64) -> u64 {
    (word & LOW_MASK) | ((word & HIGH_MASK) >> HIGH_SHIFT << 12)
}
