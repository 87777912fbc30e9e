//! Words entries: new words of up to two paired pages, for a write over several pages.

use zerocopy::little_endian::U64;
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::{FilePage, LayoutError};

raw! {
    struct RawWordChange, "Word change", 24 {
        0 file_page: U64,
        8 word: U64,
        16 changed: U64,
    }
}

raw! {
    struct RawWords, "Words entry", 64 {
        0 header: RawEntryHeader,
        16 first: RawWordChange,
        40 second: RawWordChange,
    }
}

/// One change of the words of a paired page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WordChange {
    /// The page of the file.
    pub file_page: FilePage,
    /// The new word: a set bit means that the line is current in the partner.
    pub word: u64,
    /// The lines that the operation stored; 0: this half of the entry is unused.
    pub changed: u64,
}

impl WordChange {
    fn raw(&self) -> RawWordChange {
        RawWordChange {
            file_page: self.file_page.get().into(),
            word: self.word.into(),
            changed: self.changed.into(),
        }
    }

    fn from_raw(raw: RawWordChange) -> Result<Self, LayoutError> {
        let file_page = FilePage::decode(raw.file_page.get(), "words entry")?;
        Ok(Self { file_page, word: raw.word.get(), changed: raw.changed.get() })
    }
}

pub(crate) fn encode(op_seq: u64, [first, second]: &[WordChange; 2]) -> [u8; LINE_BYTES] {
    transmute!(RawWords {
        header: raw_header(EntryKind::Words, 1, op_seq),
        first: first.raw(),
        second: second.raw(),
    })
}

pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<[WordChange; 2], LayoutError> {
    let raw: RawWords = transmute!(*line);
    Ok([WordChange::from_raw(raw.first)?, WordChange::from_raw(raw.second)?])
}
