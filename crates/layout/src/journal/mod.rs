//! Journal records: the new commit lines of all inodes of one operation.

mod lines;

pub use lines::{JOURNAL_LINES_MAX, JournalKind, JournalLines};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{transmute, transmute_ref};

use crate::error::{check, check_crc};
use crate::number::decode_seq;
use crate::{CommitLine, Crc32c, Ino, LayoutError, Seed};

/// Bytes kept for a journal record.
pub const JOURNAL_RECORD_BYTES: usize = 1024;

const JOURNAL: &str = "journal record";
const HEADER_INOS: usize = 4;
const LINE_BYTES: usize = 64;
const RECORD_LINES: usize = JOURNAL_RECORD_BYTES / LINE_BYTES;
const HAS_DATA_CRC: u8 = 1;

type RecordLines = [[u8; LINE_BYTES]; RECORD_LINES];

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
        let count = self.lines.len();
        assert!(count != 0, "a journal record has 1 to 8 lines");
        let mut inos = [U64::ZERO; JOURNAL_LINES_MAX];
        for (to, (ino, _)) in inos.iter_mut().zip(self.lines.iter()) {
            *to = ino.get().into();
        }
        let [inos, more_inos]: [[U64; HEADER_INOS]; 2] = transmute!(inos);
        let mut record: RecordLines = [[0; LINE_BYTES]; RECORD_LINES];
        let [header, more, ..] = &mut record;
        *header = transmute!(self.raw_header(inos));
        *more = transmute!(RawJournalInos { inos: more_inos, reserved: [0; 32] });
        for (to, (ino, line)) in record.iter_mut().skip(first_line(count)).zip(self.lines.iter()) {
            assert!(!line.has_data_crc(), "a line in a record has no data checksum of its own");
            *to = line.encode(pool_seed.ino(*ino));
        }
        let used = first_line(count) + count;
        let crc = checksum(&record, used, pool_seed);
        let [header, ..] = &mut record;
        let mut raw: RawJournalHeader = transmute!(*header);
        raw.crc = crc.into();
        *header = transmute!(raw);
        (transmute!(record), used * LINE_BYTES)
    }

    /// The commit lines in what [`JournalRecord::encode`] gave for `count` lines: the bytes that
    /// each inode stores as its own.
    pub fn own_lines(
        bytes: &[u8; JOURNAL_RECORD_BYTES],
        count: usize,
    ) -> impl Iterator<Item = &[u8; LINE_BYTES]> {
        let record: &RecordLines = transmute_ref!(bytes);
        record.iter().skip(first_line(count)).take(count)
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when the first line is zero, else the first thing that is wrong.
    pub fn decode(
        bytes: &[u8; JOURNAL_RECORD_BYTES],
        pool_seed: Seed,
    ) -> Result<Self, LayoutError> {
        let record: &RecordLines = transmute_ref!(bytes);
        let [header, ..] = record;
        if header == &[0; LINE_BYTES] {
            return Err(LayoutError::Blank);
        }
        let raw: RawJournalHeader = transmute!(*header);
        let count = usize::from(raw.count);
        let count_ok = (1..=JOURNAL_LINES_MAX).contains(&count);
        check(count_ok, JOURNAL, "count", "1 to 8", raw.count.into())?;
        let used = first_line(count) + count;
        check_crc(JOURNAL, checksum(record, used, pool_seed), raw.crc.get())?;
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
        check(mask_ok, JOURNAL, "identity_mask", "no bit beyond count", mask.into())?;
        Ok(Self {
            lane_seq: decode_seq(raw.lane_seq.get(), JOURNAL, "lane_seq")?,
            session: raw.session.get(),
            lane: raw.lane.get(),
            kind,
            data_crc: (raw.flags & HAS_DATA_CRC != 0).then_some(raw.data_crc.get()),
            identity_mask: mask,
            lines: decode_lines(record, raw.inos, count, pool_seed)?,
        })
    }

    fn raw_header(&self, inos: [U64; HEADER_INOS]) -> RawJournalHeader {
        RawJournalHeader {
            lane_seq: self.lane_seq.into(),
            session: self.session.into(),
            data_crc: self.data_crc.unwrap_or(0).into(),
            count: self.lines.count(),
            kind: self.kind.to_u8(),
            lane: self.lane.into(),
            identity_mask: self.identity_mask,
            flags: if self.data_crc.is_some() { HAS_DATA_CRC } else { 0 },
            pad: [0; 2],
            inos,
            reserved: [0; 4],
            crc: U32::ZERO,
        }
    }
}

fn decode_lines(
    record: &RecordLines,
    header_inos: [U64; HEADER_INOS],
    count: usize,
    pool_seed: Seed,
) -> Result<JournalLines, LayoutError> {
    let [_, more, ..] = record;
    let more: RawJournalInos = transmute!(*more);
    let inos = header_inos.into_iter().chain(more.inos).take(count);
    let mut lines = JournalLines::new();
    for (ino, stored) in inos.zip(record.iter().skip(first_line(count))) {
        let ino = Ino::decode(ino.get(), JOURNAL)?;
        let line = CommitLine::decode(stored, pool_seed.ino(ino))?;
        let flags = line.flags.into();
        check(!line.has_data_crc(), JOURNAL, "line flags", "no data checksum", flags)?;
        lines.push(ino, line)?;
    }
    Ok(lines)
}

/// The line of a record with `count` commit lines that holds the first of them.
const fn first_line(count: usize) -> usize {
    if count > HEADER_INOS { 2 } else { 1 }
}

/// The checksum of the header and of the commit lines, each without its last four bytes, and of the
/// line of further inodes between them.
///
/// A CRC that runs over bytes and then over those bytes' own CRC ends in a state that does not
/// depend on the bytes: with the commit lines' checksums taken in, any other valid line of the same
/// inode could take a line's place unseen.
fn checksum(record: &RecordLines, used: usize, pool_seed: Seed) -> u32 {
    let mut crc = Crc32c::seeded(pool_seed);
    for (index, line) in record.iter().enumerate().take(used) {
        let further_inodes = index == 1 && used > HEADER_INOS + 1;
        crc.update(if further_inodes { line } else { &line[..60] });
    }
    crc.finish()
}
