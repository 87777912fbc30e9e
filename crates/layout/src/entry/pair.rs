//! Pair entries: a page of a file that has two copies, and which lines are current in which.

use zerocopy::little_endian::U64;
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{FilePage, LayoutError, PmAddr};

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

/// A page of a file in two copies, of which each line is current in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The page of the file.
    pub file_page: FilePage,
    /// The copy that a write entry maps.
    pub home: PmAddr,
    /// The other copy.
    pub partner: PmAddr,
    /// A bit a line: set, the line is current in the partner.
    pub word: u64,
    /// The lines that the operation stored; at least one.
    pub changed: u64,
}

impl Pair {
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
            partner: PmAddr::decode_page(raw.partner.get(), PAIR, "partner")?,
            word: raw.word.get(),
            changed: raw.changed.get(),
        };
        check(!pair.home.is_null(), PAIR, "home", "a page", 0)?;
        let apart = !pair.partner.is_null() && pair.partner != pair.home;
        check(apart, PAIR, "partner", "a page beside the home", pair.partner.raw())?;
        check(pair.changed != 0, PAIR, "changed", "a line at least", 0)?;
        Ok(pair)
    }
}
