//! Log pages: a header line and 63 lines of entries.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::check_crc;
use crate::number::decode_seq;
use crate::raw::is_zero;
use crate::{Crc32c, Ino, LayoutError, PmAddr, Seed};

/// Lines of a log page after its header.
pub const LOG_ENTRY_LINES: u64 = 63;
/// The next pointer, in bytes from the start of the page.
pub const LOG_NEXT_OFFSET: u64 = 24;

const LOG: &str = "log page header";

raw! {
    struct RawLogPageHeader, "Log page header", 64 {
        0 ino: U64,
        8 generation: U32,
        12 session: U32,
        16 page_seq: U32,
        20 crc: U32,
        24 next: U64,
        32 page_seq_high: U32,
        36 reserved: [u8; 28],
    }
}

/// The first line of a log page.
///
/// The seed is pool, ino, generation, address of the page. The next pointer lies outside the
/// checksum, because it is stored once the page has a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPageHeader {
    /// The inode whose log it is.
    pub ino: Ino,
    /// That inode's generation.
    pub generation: u32,
    /// The session that took the page.
    pub session: u32,
    /// Rises along the log, for ever: collection takes pages out, and a long-lived log has had
    /// more than a word of 32 bits counts.
    pub page_seq: u64,
    /// The next page of the log, or null. It means nothing on the page of the committed tail.
    pub next: PmAddr,
}

impl LogPageHeader {
    /// The bytes to store.
    #[inline]
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        let mut raw = RawLogPageHeader {
            ino: self.ino.get().into(),
            generation: self.generation.into(),
            session: self.session.into(),
            page_seq: low(self.page_seq).into(),
            crc: U32::ZERO,
            next: self.next.raw().into(),
            page_seq_high: low(self.page_seq >> 32).into(),
            reserved: [0; 28],
        };
        let bytes: [u8; 64] = transmute!(raw);
        raw.crc = checksum(&bytes, seed).into();
        transmute!(raw)
    }

    /// The generation that a header names, unchecked: to ask for its checksum.
    #[must_use]
    pub fn peek_generation(bytes: &[u8; 64]) -> u32 {
        let raw: RawLogPageHeader = transmute!(*bytes);
        raw.generation.get()
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when all are zero, [`LayoutError::Checksum`] when the page is
    /// another log's or damaged, [`LayoutError::Field`] when `next` is no page.
    #[inline]
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        if is_zero(bytes) {
            return Err(LayoutError::Blank);
        }
        let raw: RawLogPageHeader = transmute!(*bytes);
        check_crc(LOG, checksum(bytes, seed), raw.crc.get())?;
        let page_seq = u64::from(raw.page_seq_high.get()) << 32 | u64::from(raw.page_seq.get());
        Ok(Self {
            ino: Ino::decode(raw.ino.get(), LOG)?,
            generation: raw.generation.get(),
            session: raw.session.get(),
            page_seq: decode_seq(page_seq, LOG, "page_seq")?,
            next: PmAddr::decode_page(raw.next.get(), LOG, "next")?,
        })
    }
}

/// The low half of a word.
#[allow(clippy::cast_possible_truncation, reason = "it takes one half of a word")]
const fn low(word: u64) -> u32 {
    word as u32
}

/// The checksum of all but the checksum itself and the next pointer.
#[inline]
fn checksum(bytes: &[u8; 64], seed: Seed) -> u32 {
    let mut crc = Crc32c::seeded(seed);
    crc.update(&bytes[..20]);
    crc.update(&bytes[32..]);
    crc.finish()
}
