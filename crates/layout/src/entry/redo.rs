//! Redo entries: bytes of the file that go where they lie after the commit.

use zerocopy::little_endian::{U16, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header, seal, too_short};
use crate::error::check;
use crate::{ENTRY_BYTES_MAX, LayoutError, SIZE_LIMIT, Seed};

const REDO: &str = "redo entry";
const BYTES_OFFSET: usize = 32;
/// Bytes of the file in one entry, at most.
pub const REDO_BYTES_MAX: usize = ENTRY_BYTES_MAX - BYTES_OFFSET;

raw! {
    struct RawRedo, "Redo entry", 64 {
        0 header: RawEntryHeader,
        16 offset: U64,
        24 length: U16,
        26 reserved: [u8; 6],
        32 bytes: [u8; 32],
    }
}

/// Bytes of a file, and where they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redo {
    offset: u64,
    length: u16,
    bytes: [u8; REDO_BYTES_MAX],
}

impl Redo {
    /// As many of `bytes` as an entry holds, from byte `offset` of the file on, and how many those are.
    #[must_use]
    pub fn first_of(offset: u64, bytes: &[u8]) -> (Self, usize) {
        let mut redo = Self { offset, length: 0, bytes: [0; REDO_BYTES_MAX] };
        let count = bytes.len().min(REDO_BYTES_MAX);
        for (to, from) in redo.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        redo.length = u16::try_from(count).unwrap_or(0);
        (redo, count)
    }

    /// Where in the file they go.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Lines of the entry.
    pub(crate) fn lines(&self) -> u8 {
        lines(self.length)
    }

    pub(crate) fn encode(&self, op_seq: u64, seed: Seed, out: &mut [u8; ENTRY_BYTES_MAX]) -> usize {
        let first: [u8; LINE_BYTES] = transmute!(RawRedo {
            header: raw_header(EntryKind::Redo, self.lines(), op_seq),
            offset: self.offset.into(),
            length: self.length.into(),
            reserved: [0; 6],
            bytes: [0; 32],
        });
        let len = usize::from(self.lines()) * LINE_BYTES;
        let (entry, _) = out.split_at_mut(len);
        let (fixed, rest) = entry.split_at_mut(BYTES_OFFSET);
        fixed.copy_from_slice(first.split_at(BYTES_OFFSET).0);
        let (bytes, padding) = rest.split_at_mut(usize::from(self.length));
        bytes.copy_from_slice(self.bytes());
        padding.fill(0);
        seal(entry, seed);
        len
    }

    pub(crate) fn decode(first: &[u8; LINE_BYTES], whole: &[u8]) -> Result<Self, LayoutError> {
        let raw: RawRedo = transmute!(*first);
        let (offset, length) = (raw.offset.get(), raw.length.get());
        let in_entry = (1..=REDO_BYTES_MAX).contains(&usize::from(length));
        check(in_entry, REDO, "length", "1 to 288", length.into())?;
        let found = raw.header.lines;
        check(found == lines(length), REDO, "lines", "as many as the bytes need", found.into())?;
        let end = offset.checked_add(length.into());
        let in_file = end.is_some_and(|end| end <= SIZE_LIMIT);
        check(in_file, REDO, "offset", "an end of at most 2^63", offset)?;
        let Some(bytes) = whole.get(BYTES_OFFSET..BYTES_OFFSET + usize::from(length)) else {
            return Err(too_short(REDO, whole));
        };
        let (redo, _) = Self::first_of(offset, bytes);
        Ok(redo)
    }
}

/// Lines of an entry of that many bytes: 1 to 5.
fn lines(length: u16) -> u8 {
    let bytes = BYTES_OFFSET + usize::from(length);
    u8::try_from(bytes.div_ceil(LINE_BYTES)).unwrap_or(u8::MAX)
}
