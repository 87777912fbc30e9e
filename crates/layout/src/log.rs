//! Log pages: a header line and 63 lines of entries.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::number::decode_seq;
use crate::raw::is_zero;
use crate::{Crc32c, Ino, LayoutError, PAGE, PmAddr, Seed};

/// Lines of a log page after its header.
pub const LOG_ENTRY_LINES: u64 = 63;
/// The link to the next page, in bytes from the start of the page.
pub const LOG_NEXT_OFFSET: u64 = 24;

const LOG: &str = "log page header";
/// Bits of the count of lines in a link, and of its complement behind it.
const LINES_BITS: u32 = 6;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

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

/// The word of a log page's header that names the next page, and says where this one ends.
///
/// An address of a page has 12 low bits to spare: 0-5 say how many lines of entries this page has,
/// 6-11 are their complement, since no checksum covers the word. All zero, they say nothing: such a
/// page is of an earlier build, and ends by a blank line, or is full.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LogLink(u64);

impl LogLink {
    /// No next page.
    pub const NONE: Self = Self(0);

    /// The next page is `next`, and this page has `lines` lines of entries: 1 to 63.
    ///
    /// # Panics
    /// When `next` is no page, or a page has no such number of lines.
    #[inline]
    #[must_use]
    pub const fn new(next: PmAddr, lines: u64) -> Self {
        assert!(next.is_page_aligned() && !next.is_null(), "a link names a page");
        assert!(lines >= 1 && lines <= LOG_ENTRY_LINES, "a log page has 1 to 63 lines of entries");
        Self(next.raw() | (lines ^ LINES_MASK) << LINES_BITS | lines)
    }

    /// A page alone: what the head of a log says, or a page of an earlier build.
    #[inline]
    #[must_use]
    pub const fn page(page: PmAddr) -> Self {
        Self(page.raw())
    }

    /// The same end, and another page behind it.
    #[inline]
    #[must_use]
    pub const fn with_next(self, next: PmAddr) -> Self {
        Self(next.raw() | self.0 & (PAGE - 1))
    }

    /// The next page, or null.
    #[inline]
    #[must_use]
    pub const fn next(self) -> PmAddr {
        PmAddr::from_raw(self.0).page()
    }

    /// Lines of entries that this page has; none where it does not say so.
    #[inline]
    #[must_use]
    pub const fn lines(self) -> Option<u64> {
        if self.0.is_multiple_of(PAGE) { None } else { Some(self.0 & LINES_MASK) }
    }

    /// The word as it is stored.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The link that `raw` spells, unchecked.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Takes a word that was read back.
    fn decode(raw: u64) -> Result<Self, LayoutError> {
        let link = Self(raw);
        let next = PmAddr::decode_page(link.next().raw(), LOG, "next")?;
        let ends = raw & (PAGE - 1);
        let lines = ends & LINES_MASK;
        let is_said = lines != 0 && ends >> LINES_BITS == lines ^ LINES_MASK;
        check(
            ends == 0 || is_said && !next.is_null(),
            LOG,
            "next",
            "a page, and where this one ends",
            raw,
        )?;
        Ok(link)
    }
}

impl fmt::Debug for LogLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogLink({:?}, {:?} lines)", self.next(), self.lines())
    }
}

/// The first line of a log page.
///
/// The seed is pool, ino, generation, address of the page. The link lies outside the checksum,
/// because it is stored once the page has a successor.
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
    /// The next page of the log, or none, and where this one ends. It means nothing on the page of
    /// the committed tail.
    pub next: LogLink,
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
    /// another log's or damaged, [`LayoutError::Field`] when `next` is no link.
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
            next: LogLink::decode(raw.next.get())?,
        })
    }
}

/// The low half of a word.
#[allow(clippy::cast_possible_truncation, reason = "it takes one half of a word")]
const fn low(word: u64) -> u32 {
    word as u32
}

/// The checksum of all but the checksum itself and the link.
#[inline]
fn checksum(bytes: &[u8; 64], seed: Seed) -> u32 {
    let mut crc = Crc32c::seeded(seed);
    crc.update(&bytes[..20]);
    crc.update(&bytes[32..]);
    crc.finish()
}
