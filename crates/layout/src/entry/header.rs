//! The 16 bytes that open every entry, and the checksum that seals it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::transmute;

use crate::error::check;
use crate::raw::is_zero;
use crate::{LayoutError, Seed};

pub(crate) const ENTRY: &str = "log entry";
pub(crate) const LINE_BYTES: usize = 64;

const LINES_MAX: u8 = 5;
const VERSION: u8 = 1;

raw! {
    struct RawEntryHeader, "Entry header", 16 {
        0 crc: U32,
        4 kind: u8,
        5 lines: u8,
        6 flags_version: U16,
        8 op_seq: U64,
    }
}

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// [`crate::Entry::Write`].
    Write = 1,
    /// [`crate::Entry::Pair`].
    Pair = 2,
    /// [`crate::Entry::Attributes`].
    Attributes = 3,
    /// [`crate::Entry::DentryAdd`].
    DentryAdd = 4,
    /// [`crate::Entry::DentryDelete`].
    DentryDelete = 5,
    /// [`crate::Entry::Redo`].
    Redo = 6,
    /// [`crate::Entry::Source`].
    Source = 7,
}

impl EntryKind {
    /// Every kind, by number.
    pub const ALL: [Self; 7] = [
        Self::Write,
        Self::Pair,
        Self::Attributes,
        Self::DentryAdd,
        Self::DentryDelete,
        Self::Redo,
        Self::Source,
    ];

    /// The number that is stored, 1 to 7.
    #[inline]
    #[must_use]
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The kind with that stored number.
    #[inline]
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Write,
            2 => Self::Pair,
            3 => Self::Attributes,
            4 => Self::DentryAdd,
            5 => Self::DentryDelete,
            6 => Self::Redo,
            7 => Self::Source,
            _ => return None,
        })
    }
}

/// The head of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// The operation that wrote the entry.
    pub op_seq: u64,
    /// Lines of the entry: 1, or 1 to 5 for a dentry or bytes to be redone.
    pub lines: u8,
    /// What it says.
    pub kind: EntryKind,
}

impl EntryHeader {
    /// Reads the header of the entry that opens with `first`, without its checksum.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when the line is zero, [`LayoutError::Field`] when its kind, length
    /// or version is unknown.
    #[inline]
    pub fn peek(first: &[u8; 64]) -> Result<Self, LayoutError> {
        if is_zero(first) {
            return Err(LayoutError::Blank);
        }
        let (raw, _): (RawEntryHeader, [u8; 48]) = split(first);
        let Some(kind) = EntryKind::from_u8(raw.kind) else {
            let found = raw.kind.into();
            return Err(LayoutError::Field {
                structure: ENTRY,
                field: "kind",
                expected: "1 to 7",
                found,
            });
        };
        let lines = raw.lines;
        let is_long = matches!(kind, EntryKind::DentryAdd | EntryKind::Redo);
        let lines_max = if is_long { LINES_MAX } else { 1 };
        let lines_ok = (1..=lines_max).contains(&lines);
        check(lines_ok, ENTRY, "lines", "1, or 1 to 5 for a dentry or a redo", lines.into())?;
        let [version, _] = raw.flags_version.get().to_le_bytes();
        check(version == VERSION, ENTRY, "version", "1", version.into())?;
        Ok(Self { op_seq: raw.op_seq.get(), lines, kind })
    }

    /// Bytes of the entry.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::from(self.lines) * LINE_BYTES
    }
}

/// A header whose checksum is still zero.
#[inline]
pub(crate) fn raw_header(kind: EntryKind, lines: u8, op_seq: u64) -> RawEntryHeader {
    RawEntryHeader {
        crc: U32::ZERO,
        kind: kind.to_u8(),
        lines,
        flags_version: u16::from(VERSION).into(),
        op_seq: op_seq.into(),
    }
}

/// Puts the checksum of a whole entry into its first four bytes.
#[inline]
pub(crate) fn seal(entry: &mut [u8], seed: Seed) {
    if let Some((crc, rest)) = entry.split_first_chunk_mut::<4>() {
        *crc = seed.checksum(rest).to_le_bytes();
    }
}

/// The stored checksum of an entry, and the bytes that it covers.
#[inline]
pub(crate) fn crc_and_rest(entry: &[u8]) -> (u32, &[u8]) {
    match entry.split_first_chunk::<4>() {
        Some((crc, rest)) => (u32::from_le_bytes(*crc), rest),
        None => (0, entry),
    }
}

/// The error of an entry that is longer than the bytes at hand.
#[cold]
pub(crate) fn too_short(structure: &'static str, bytes: &[u8]) -> LayoutError {
    LayoutError::Field {
        structure,
        field: "bytes",
        expected: "the whole entry",
        found: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
    }
}

#[inline]
fn split(line: &[u8; LINE_BYTES]) -> (RawEntryHeader, [u8; 48]) {
    transmute!(*line)
}
