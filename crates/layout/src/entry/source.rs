//! Source entries: bytes of the file that lie elsewhere in the pool, and go where they belong after the
//! commit.

use zerocopy::little_endian::{U32, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{LayoutError, PmAddr, SIZE_LIMIT};

const SOURCE: &str = "source entry";
/// Bytes that one entry names, at most.
pub const SOURCE_BYTES_MAX: u32 = 1 << 30;

raw! {
    struct RawSource, "Source entry", 64 {
        0 header: RawEntryHeader,
        16 offset: U64,
        24 length: U32,
        28 bytes_crc: U32,
        32 from: U64,
        40 reserved: [u8; 24],
    }
}

/// Bytes in the pool, and where in the file they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The first byte of the file.
    pub offset: u64,
    /// How many bytes, 1 to [`SOURCE_BYTES_MAX`].
    pub length: u32,
    /// The CRC32C of the bytes: what else lies there is not the file's.
    pub crc: u32,
    /// Where the first of them lies; any byte.
    pub from: PmAddr,
}

impl Source {
    pub(crate) fn encode(&self, op_seq: u64) -> [u8; LINE_BYTES] {
        transmute!(RawSource {
            header: raw_header(EntryKind::Source, 1, op_seq),
            offset: self.offset.into(),
            length: self.length.into(),
            bytes_crc: self.crc.into(),
            from: self.from.raw().into(),
            reserved: [0; 24],
        })
    }

    pub(crate) fn decode(line: &[u8; LINE_BYTES]) -> Result<Self, LayoutError> {
        let raw: RawSource = transmute!(*line);
        let (offset, length) = (raw.offset.get(), raw.length.get());
        let in_entry = (1..=SOURCE_BYTES_MAX).contains(&length);
        check(in_entry, SOURCE, "length", "1 to 2^30", length.into())?;
        let end = offset.checked_add(length.into());
        let in_file = end.is_some_and(|end| end <= SIZE_LIMIT);
        check(in_file, SOURCE, "offset", "an end of at most 2^63", offset)?;
        let from = PmAddr::decode_byte(raw.from.get(), SOURCE, "from")?;
        Ok(Self { offset, length, crc: raw.bytes_crc.get(), from })
    }
}
