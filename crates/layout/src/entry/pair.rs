//! Pair entries: a page of a file that has two copies, and which lines are current in which.

use zerocopy::little_endian::U64;
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{FilePage, LINE, LayoutError, PAGE, PmAddr};

const PAIR: &str = "pair entry";

raw! {
    struct RawPair, "Pair entry", 64 {
        0 header: RawEntryHeader,
        16 file_page: U64,
        24 home: U64,
        32 partner: U64,
        40 word: U64,
        48 changed: U64,
        56 reserved: [u8; 8],
    }
}

/// Set in a partner's word: the lines lie in slots of a page that pages of the file share.
const SHARED: u64 = 1 << 6;
const SHIFT: u64 = SHARED - 1;
const LINES: u64 = PAGE / LINE;

/// Where the second copies of a page's lines lie: each in the same line of a page of their own, or in
/// slots of a page that pages of the file share, all moved round by the same number of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partner(u64);

impl Partner {
    /// A page of their own.
    #[must_use]
    pub const fn own(page: PmAddr) -> Self {
        Self(page.raw())
    }

    /// Slots of a page, line 0 in that of number `shift`, below 64.
    #[must_use]
    pub const fn slots(page: PmAddr, shift: u32) -> Self {
        Self(page.raw() | SHARED | shift as u64 & SHIFT)
    }

    /// The page that they lie in.
    #[inline]
    #[must_use]
    pub const fn page(self) -> PmAddr {
        PmAddr::from_raw(self.0 & !(SHARED | SHIFT))
    }

    /// Whether pages of the file share that page.
    #[inline]
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// The slot of line 0; 0 in a page of their own.
    #[inline]
    #[must_use]
    pub const fn shift(self) -> u32 {
        (self.0 & SHIFT) as u32
    }

    /// The slots of lines, a bit each.
    #[inline]
    #[must_use]
    pub const fn slots_of(self, lines: u64) -> u64 {
        lines.rotate_left(self.shift())
    }

    /// Where byte `at` of the page of the file lies in the partner's page, and how many bytes of it do
    /// up to that page's end.
    #[inline]
    #[must_use]
    pub const fn place(self, at: u64) -> (u64, u64) {
        let from = (at / LINE + self.shift() as u64) % LINES * LINE + at % LINE;
        (from, PAGE - from)
    }

    /// All of it in a word; the bits of an address that a page's has not are 0 but for the lowest seven.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// What [`Partner::raw`] gave.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// A page of a file in two copies, of which each line is current in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The page of the file.
    pub file_page: FilePage,
    /// The copy that a write entry maps.
    pub home: PmAddr,
    /// The other copy.
    pub partner: Partner,
    /// A bit a line: set, the line is current in the partner.
    pub word: u64,
    /// The lines that the operation stored; at least one.
    pub changed: u64,
}

fn decode_partner(raw: u64) -> Result<Partner, LayoutError> {
    let shift = if raw & SHARED == 0 { 0 } else { SHARED | SHIFT };
    PmAddr::decode_page(raw & !shift, PAIR, "partner")?;
    Ok(Partner(raw))
}

impl Pair {
    /// The page that lines of it lie in beside the home; none where slots are named, and no line is in
    /// one: the page has no second copy then.
    #[inline]
    #[must_use]
    pub fn partner_page(&self) -> Option<PmAddr> {
        (self.word != 0 || !self.partner.is_shared()).then(|| self.partner.page())
    }

    pub(crate) fn encode(&self, op_seq: u64) -> [u8; LINE_BYTES] {
        transmute!(RawPair {
            header: raw_header(EntryKind::Pair, 1, op_seq),
            file_page: self.file_page.get().into(),
            home: self.home.raw().into(),
            partner: self.partner.raw().into(),
            word: self.word.into(),
            changed: self.changed.into(),
            reserved: [0; 8],
        })
    }

    pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<Self, LayoutError> {
        let raw: RawPair = transmute!(*line);
        let pair = Self {
            file_page: FilePage::decode(raw.file_page.get(), PAIR)?,
            home: PmAddr::decode_page(raw.home.get(), PAIR, "home")?,
            partner: decode_partner(raw.partner.get())?,
            word: raw.word.get(),
            changed: raw.changed.get(),
        };
        check(!pair.home.is_null(), PAIR, "home", "a page", 0)?;
        let page = pair.partner.page();
        let apart = !page.is_null() && page != pair.home;
        check(apart, PAIR, "partner", "a page beside the home", pair.partner.raw())?;
        check(pair.changed != 0, PAIR, "changed", "a line at least", 0)?;
        Ok(pair)
    }
}
