//! Journal records: the new commit lines of all inodes of one operation.

use std::ops::Deref;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::transmute;

use crate::error::{check, check_crc};
use crate::{CommitLine, Crc32c, Ino, LayoutError, Seed};

/// Bytes kept for a journal record.
pub const JOURNAL_RECORD_BYTES: usize = 1024;
/// The most inodes of a record.
pub const JOURNAL_LINES_MAX: usize = 8;

const JOURNAL: &str = "journal record";
const HEADER_INOS: usize = 4;
const LINE_BYTES: usize = 64;
const HAS_DATA_CRC: u8 = 1;

raw! {
    struct RawJournalHeader, "Journal record header", 64 {
        0 lane_seq: U64,
        8 session: U32,
        12 data_crc: U32,
        16 count: u8,
        17 kind: u8,
        18 lane: U16,
        20 identity_mask: u8,
        21 flags: u8,
        22 pad: [u8; 2],
        24 inos: [U64; 4],
        56 reserved: [u8; 4],
        60 crc: U32,
    }
}

raw! {
    struct RawJournalInos, "Journal record, more inodes", 64 {
        0 inos: [U64; 4],
        32 reserved: [u8; 32],
    }
}

/// The operation that a record commits; recovery treats all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum JournalKind {
    /// A new inode and its name.
    Create = 1,
    /// A name removed.
    Unlink = 2,
    /// A further name.
    Link = 3,
    /// A name moved, another perhaps replaced.
    Rename = 4,
    /// Two names exchanged.
    Exchange = 5,
    /// Anything else over several inodes.
    Other = 6,
}

impl JournalKind {
    /// Every kind, by number.
    pub const ALL: [Self; 6] = [
        Self::Create,
        Self::Unlink,
        Self::Link,
        Self::Rename,
        Self::Exchange,
        Self::Other,
    ];

    /// The kind with that stored number.
    #[inline]
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Create,
            2 => Self::Unlink,
            3 => Self::Link,
            4 => Self::Rename,
            5 => Self::Exchange,
            6 => Self::Other,
            _ => return None,
        })
    }
}

/// Up to 8 inodes with their new commit lines, in the order of the record.
#[derive(Debug, Clone, Copy, Default)]
pub struct JournalLines {
    items: [(Ino, CommitLine); JOURNAL_LINES_MAX],
    count: u8,
}

impl JournalLines {
    /// No lines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an inode's line.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when there are 8 already.
    #[inline]
    pub fn push(&mut self, ino: Ino, line: CommitLine) -> Result<(), LayoutError> {
        match self.items.get_mut(usize::from(self.count)) {
            Some(item) => {
                *item = (ino, line);
                self.count += 1;
                Ok(())
            }
            None => check(
                false,
                JOURNAL,
                "count",
                "at most 8",
                u64::from(self.count) + 1,
            ),
        }
    }

    /// The lines.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(Ino, CommitLine)] {
        self.items
            .get(..usize::from(self.count))
            .unwrap_or(&self.items)
    }
}

impl Deref for JournalLines {
    type Target = [(Ino, CommitLine)];

    fn deref(&self) -> &Self::Target {
        self.as_slice()
    }
}

impl PartialEq for JournalLines {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for JournalLines {}

/// A redo record of one operation over several inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalRecord {
    /// The lane's record number, which only rises.
    pub lane_seq: u64,
    /// The session that wrote it.
    pub session: u32,
    /// The lane.
    pub lane: u16,
    /// The operation.
    pub kind: JournalKind,
    /// The data checksum of a single-fence commit.
    pub data_crc: Option<u32>,
    /// A bit a line: its inode's identity line is new with this operation, and checksummed.
    pub identity_mask: u8,
    /// The inodes with their new commit lines, exactly as each inode will store its own.
    pub lines: JournalLines,
}

impl JournalRecord {
    /// The bytes to store, and how many of them are used, a multiple of 64.
    ///
    /// # Panics
    /// When there is no line, or one with a data checksum of its own: the record's covers all.
    #[must_use]
    pub fn encode(&self, pool_seed: Seed) -> ([u8; JOURNAL_RECORD_BYTES], usize) {
        let lines = self.lines.as_slice();
        assert!(!lines.is_empty(), "a journal record has 1 to 8 lines");
        let mut inos = [U64::ZERO; JOURNAL_LINES_MAX];
        for (to, (ino, _)) in inos.iter_mut().zip(lines) {
            *to = ino.get().into();
        }
        let inos: [[U64; HEADER_INOS]; 2] = transmute!(inos);
        let mut raw = RawJournalHeader {
            lane_seq: self.lane_seq.into(),
            session: self.session.into(),
            data_crc: self.data_crc.unwrap_or(0).into(),
            count: self.lines.count,
            kind: self.kind as u8,
            lane: self.lane.into(),
            identity_mask: self.identity_mask,
            flags: if self.data_crc.is_some() {
                HAS_DATA_CRC
            } else {
                0
            },
            pad: [0; 2],
            inos: inos[0],
            reserved: [0; 4],
            crc: U32::ZERO,
        };
        let mut out = [0; JOURNAL_RECORD_BYTES];
        let more: [u8; LINE_BYTES] = transmute!(RawJournalInos {
            inos: inos[1],
            reserved: [0; 32]
        });
        out[LINE_BYTES..2 * LINE_BYTES].copy_from_slice(&more);
        let (start, used) = extent(lines.len());
        let (slots, _) = out[start..used].as_chunks_mut::<LINE_BYTES>();
        for (slot, (ino, line)) in slots.iter_mut().zip(lines) {
            assert!(
                !line.has_data_crc(),
                "a line in a record has no data checksum of its own"
            );
            *slot = line.encode(pool_seed.ino(*ino));
        }
        let header: [u8; LINE_BYTES] = transmute!(raw);
        raw.crc = checksum(&header, &out[LINE_BYTES..used], pool_seed).into();
        let header: [u8; LINE_BYTES] = transmute!(raw);
        out[..LINE_BYTES].copy_from_slice(&header);
        (out, used)
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when the first line is zero, else the first thing that is wrong.
    pub fn decode(
        bytes: &[u8; JOURNAL_RECORD_BYTES],
        pool_seed: Seed,
    ) -> Result<Self, LayoutError> {
        let header: &[u8; LINE_BYTES] = bytes.first_chunk().unwrap_or(&[0; LINE_BYTES]);
        if header == &[0; LINE_BYTES] {
            return Err(LayoutError::Blank);
        }
        let raw: RawJournalHeader = transmute!(*header);
        let count = usize::from(raw.count);
        let count_ok = (1..=JOURNAL_LINES_MAX).contains(&count);
        check(count_ok, JOURNAL, "count", "1 to 8", raw.count.into())?;
        let (start, used) = extent(count);
        check_crc(
            JOURNAL,
            checksum(header, &bytes[LINE_BYTES..used], pool_seed),
            raw.crc.get(),
        )?;
        let Some(kind) = JournalKind::from_u8(raw.kind) else {
            return Err(LayoutError::Field {
                structure: JOURNAL,
                field: "kind",
                expected: "1 to 6",
                found: raw.kind.into(),
            });
        };
        let mask = raw.identity_mask;
        let mask_ok = u32::from(mask) >> count == 0;
        check(
            mask_ok,
            JOURNAL,
            "identity_mask",
            "no bit beyond count",
            mask.into(),
        )?;
        Ok(Self {
            lane_seq: raw.lane_seq.get(),
            session: raw.session.get(),
            lane: raw.lane.get(),
            kind,
            data_crc: (raw.flags & HAS_DATA_CRC != 0).then_some(raw.data_crc.get()),
            identity_mask: mask,
            lines: decode_lines(bytes, raw.inos, count, start, pool_seed)?,
        })
    }
}

fn decode_lines(
    bytes: &[u8; JOURNAL_RECORD_BYTES],
    header_inos: [U64; HEADER_INOS],
    count: usize,
    start: usize,
    pool_seed: Seed,
) -> Result<JournalLines, LayoutError> {
    let (slots, _) = bytes.as_chunks::<LINE_BYTES>();
    let more: RawJournalInos = transmute!(slots[1]);
    let inos = header_inos.into_iter().chain(more.inos);
    let stored = slots.iter().skip(start / LINE_BYTES);
    let mut lines = JournalLines::new();
    for (ino, slot) in inos.zip(stored).take(count) {
        let ino = Ino::decode(ino.get(), JOURNAL)?;
        let line = CommitLine::decode(slot, pool_seed.ino(ino))?;
        let flags = line.flags;
        check(
            !line.has_data_crc(),
            JOURNAL,
            "line flags",
            "no data checksum",
            flags.into(),
        )?;
        lines.push(ino, line)?;
    }
    Ok(lines)
}

/// Where the commit lines of a record with `count` of them start and end, in bytes.
const fn extent(count: usize) -> (usize, usize) {
    let start = if count > HEADER_INOS {
        2 * LINE_BYTES
    } else {
        LINE_BYTES
    };
    (start, start + count * LINE_BYTES)
}

/// The checksum of the header without its own, then everything behind the header.
fn checksum(header: &[u8; LINE_BYTES], rest: &[u8], pool_seed: Seed) -> u32 {
    let mut crc = Crc32c::seeded(pool_seed);
    crc.update(&header[..60]);
    crc.update(rest);
    crc.finish()
}
