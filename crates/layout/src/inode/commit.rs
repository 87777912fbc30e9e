//! Commit lines: the state of an inode, replaced as a whole.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::transmute;

use crate::error::check;
use crate::number::decode_seq;
use crate::{LayoutError, PAGE, PmAddr, SIZE_LIMIT, Seed};

const COMMIT: &str = "commit line";
const FLAGS_MASK: u64 = PAGE - 1;
/// Bytes of the units in which a line counts what its checksum covers of the file's end.
const END_UNIT: u64 = 8;
/// Where among the flags their number is.
const END_SHIFT: u32 = 1;

raw! {
    struct RawCommitLine, "Commit line", 64 {
        0 op_seq: U64,
        8 log_head: U64,
        16 log_tail: U64,
        24 size: U64,
        32 mtime_ns: I64,
        40 ctime_ns: I64,
        48 nlink: U32,
        52 session: U32,
        56 data_crc: U32,
        60 line_crc: U32,
    }
}

/// The state of an inode; the newest of its two lines that validates is the one that counts.
///
/// The seed is pool, ino. Its words are stored in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitLine {
    /// The operation's number, which only rises, also when the inode is reused.
    pub op_seq: u64,
    /// The first log page, or null.
    pub log_head: PmAddr,
    /// [`CommitLine::HAS_DATA_CRC`], and above it [`CommitLine::end_flags`]; 12 bits.
    pub flags: u16,
    /// The last committed line of the log; null: the log is empty.
    pub log_tail: PmAddr,
    /// The length of the file in bytes.
    pub size: u64,
    /// Last change of the data, ns since 1970.
    pub mtime_ns: i64,
    /// Last change of the attributes, ns since 1970.
    pub ctime_ns: i64,
    /// Names of the inode; 0 ends it.
    pub nlink: u32,
    /// The session that wrote the line: `data_crc` counts in that session only.
    pub session: u32,
    /// The data checksum of a single-fence commit, where the flag says that there is one.
    pub data_crc: u32,
}

impl CommitLine {
    /// The line counts, in the session that crashed, only when `data_crc` is right.
    pub const HAS_DATA_CRC: u16 = 1;

    /// Most bytes of a file's end that a data checksum can cover, wherever it begins.
    pub const END_BYTES_MAX: u64 = (FLAGS_MASK >> END_SHIFT) * END_UNIT - 2 * (END_UNIT - 1);

    /// Most pages that the new entries of a line map or change where its data checksum covers them: what a line of
    /// 64 bytes has recovery read is bounded, whoever wrote it.
    pub const SUMMED_PAGES_MAX: u64 = 16;

    /// The flags of a line whose data checksum covers the bytes `from..size` of the file, instead of
    /// the pages that new entries map; and where it does begin, a few bytes before `from`.
    ///
    /// # Panics
    /// For more than [`CommitLine::END_BYTES_MAX`] bytes, or none.
    #[must_use]
    pub fn end_flags(from: u64, size: u64) -> (u16, u64) {
        let units = size.div_ceil(END_UNIT) - from / END_UNIT;
        assert!(from < size && units <= FLAGS_MASK >> END_SHIFT, "{from}..{size} is no end");
        let [low, high, ..] = (units << END_SHIFT).to_le_bytes();
        (u16::from_le_bytes([low, high]) | Self::HAS_DATA_CRC, from / END_UNIT * END_UNIT)
    }

    /// The bytes at the end of the file that the data checksum covers, where it is of them instead of
    /// the pages that new entries map.
    #[must_use]
    pub fn summed_end(&self) -> Option<core::ops::Range<u64>> {
        let units = u64::from(self.flags >> END_SHIFT);
        let from = self.size.div_ceil(END_UNIT).saturating_sub(units) * END_UNIT;
        (self.has_data_crc() && units > 0).then_some(from..self.size)
    }

    /// The page that the word at [`Self::LOG_HEAD_OFFSET`] names, unchecked: a hint of what will be
    /// read next.
    #[must_use]
    pub fn log_head_hint(word: u64) -> PmAddr {
        PmAddr::from_raw(word & !FLAGS_MASK)
    }

    /// Where in the line the word with the log's head lies.
    pub const LOG_HEAD_OFFSET: u64 = core::mem::offset_of!(RawCommitLine, log_head) as u64;

    /// The bytes to store.
    ///
    /// # Panics
    /// When `flags` has more than 12 bits.
    #[inline]
    #[must_use]
    pub fn encode(&self, seed: Seed) -> [u8; 64] {
        assert!(u64::from(self.flags) <= FLAGS_MASK, "the flags of a commit line have 12 bits");
        let raw = RawCommitLine {
            op_seq: self.op_seq.into(),
            log_head: (self.log_head.raw() | u64::from(self.flags)).into(),
            log_tail: self.log_tail.raw().into(),
            size: self.size.into(),
            mtime_ns: self.mtime_ns.into(),
            ctime_ns: self.ctime_ns.into(),
            nlink: self.nlink.into(),
            session: self.session.into(),
            data_crc: self.data_crc.into(),
            line_crc: U32::ZERO,
        };
        seed.seal(transmute!(raw))
    }

    /// The bytes of a line that was never written: zeros, and the checksum that they have there.
    #[inline]
    #[must_use]
    pub fn never_written(seed: Seed) -> [u8; 64] {
        seed.seal([0; 64])
    }

    /// Checks bytes that were read back.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when they are [`CommitLine::never_written`],
    /// [`LayoutError::Checksum`] when the line is torn, damaged, zeroed or another inode's,
    /// [`LayoutError::Field`] when its addresses make no sense, or a number has come to its end.
    #[inline]
    pub fn decode(bytes: &[u8; 64], seed: Seed) -> Result<Self, LayoutError> {
        let raw: RawCommitLine = transmute!(*bytes);
        seed.check_sealed(bytes, COMMIT)?;
        if raw.op_seq.get() == 0 {
            // The checksum is right, so it is that of zeros.
            let is_blank = bytes.starts_with(&[0; 60]);
            check(is_blank, COMMIT, "op_seq", "1 to 2^63 - 1", 0)?;
            return Err(LayoutError::Blank);
        }
        let head = raw.log_head.get();
        let log_head = PmAddr::decode_page(head & !FLAGS_MASK, COMMIT, "log_head")?;
        let log_tail = PmAddr::from_raw(raw.log_tail.get());
        let tail_ok = log_tail.is_null()
            || (!log_head.is_null()
                && log_tail.is_line_aligned()
                && !log_tail.is_page_aligned()
                && log_tail.reserved_bits_clear());
        let expected = "a line behind the header of a log page, or 0";
        check(tail_ok, COMMIT, "log_tail", expected, log_tail.raw())?;
        let size = raw.size.get();
        check(size < SIZE_LIMIT, COMMIT, "size", "below 2^63", size)?;
        let [low, high, ..] = head.to_le_bytes();
        Ok(Self {
            op_seq: decode_seq(raw.op_seq.get(), COMMIT, "op_seq")?,
            log_head,
            flags: u16::from_le_bytes([low, high & 0xf]),
            log_tail,
            size,
            mtime_ns: raw.mtime_ns.get(),
            ctime_ns: raw.ctime_ns.get(),
            nlink: raw.nlink.get(),
            session: raw.session.get(),
            data_crc: raw.data_crc.get(),
        })
    }

    /// Whether the line was written by a single-fence commit.
    #[inline]
    #[must_use]
    pub const fn has_data_crc(&self) -> bool {
        self.flags & Self::HAS_DATA_CRC != 0
    }
}
