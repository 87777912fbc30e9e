//! Log entries: 1 to 5 whole lines, the first opening with a header of 16 bytes.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::transmute;

use crate::dentry::{self, DentryRef};
use crate::error::{check, check_crc};
use crate::{FileKind, FilePage, Ino, LayoutError, Name, PAGE, PmAddr, Seed};

/// Bytes of the longest entry.
pub const ENTRY_BYTES_MAX: usize = 320;

pub(crate) const ENTRY: &str = "log entry";
pub(crate) const LINE_BYTES: usize = 64;
const LINES_MAX: u8 = 5;
const VERSION: u16 = 1;
const VERSION_MASK: u16 = 0xff;
const BYTE_LIMIT: u64 = 1 << 48;

raw! {
    struct RawEntryHeader, "Entry header", 16 {
        0 crc: U32,
        4 kind: u8,
        5 lines: u8,
        6 flags_version: U16,
        8 op_seq: U64,
    }
}

raw! {
    struct RawWrite, "Write entry", 64 {
        0 header: RawEntryHeader,
        16 file_page: U64,
        24 addr: U64,
        32 count: U32,
        36 snapshot_epoch: U32,
        40 reserved: [u8; 24],
    }
}

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

raw! {
    struct RawAttributes, "Attributes entry", 64 {
        0 header: RawEntryHeader,
        16 mode: U32,
        20 uid: U32,
        24 gid: U32,
        28 flags: U32,
        32 project: U32,
        36 policy: u8,
        37 reserved: [u8; 3],
        40 xattr_root: U64,
        48 atime_ns: I64,
        56 reserved_end: [u8; 8],
    }
}

raw! {
    struct RawDentryDelete, "Dentry delete entry", 64 {
        0 header: RawEntryHeader,
        16 ino: U64,
        24 cookie: U64,
        32 generation: U32,
        36 reserved: [u8; 28],
    }
}

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// [`Entry::Write`].
    Write = 1,
    /// [`Entry::Words`].
    Words = 2,
    /// [`Entry::Attributes`].
    Attributes = 3,
    /// [`Entry::DentryAdd`].
    DentryAdd = 4,
    /// [`Entry::DentryDelete`].
    DentryDelete = 5,
}

impl EntryKind {
    /// The kind with that stored number.
    #[inline]
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Write,
            2 => Self::Words,
            3 => Self::Attributes,
            4 => Self::DentryAdd,
            5 => Self::DentryDelete,
            _ => return None,
        })
    }
}

/// The head of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// The operation that wrote the entry.
    pub op_seq: u64,
    /// Lines of the entry, 1 to 5.
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
        if first == &[0; 64] {
            return Err(LayoutError::Blank);
        }
        let (raw, _) = split_header(first);
        let kind = EntryKind::from_u8(raw.kind);
        let Some(kind) = kind else {
            return Err(field("kind", "1 to 5", raw.kind.into()));
        };
        let lines = raw.lines;
        let lines_max = if matches!(kind, EntryKind::DentryAdd) {
            LINES_MAX
        } else {
            1
        };
        if !(1..=lines_max).contains(&lines) {
            return Err(field("lines", "1, or 1 to 5 for a dentry", lines.into()));
        }
        let version = raw.flags_version.get() & VERSION_MASK;
        if version != VERSION {
            return Err(field("version", "1", version.into()));
        }
        Ok(Self {
            op_seq: raw.op_seq.get(),
            lines,
            kind,
        })
    }

    /// Bytes of the entry.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::from(self.lines) * LINE_BYTES
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

/// An inode's attributes, all of them; the newest entry takes the place of the identity line's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permission, set-id and sticky bits, no type bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Attribute flags, as `chattr` has them.
    pub flags: u32,
    /// The project for quota.
    pub project: u32,
    /// The update policy, 0: the mount's.
    pub policy: u8,
    /// The page with extended attributes, or null.
    pub xattr_root: PmAddr,
    /// Last access, ns since 1970.
    pub atime_ns: i64,
}

/// An entry of an inode's log.
///
/// The seed is pool, ino, generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an entry lives on the stack for one encode or decode; a name there costs no heap"
)]
pub enum Entry {
    /// Maps pages of the file.
    Write {
        /// The first page of the file.
        file_page: FilePage,
        /// The first of `count` adjacent pages of the pool; null: a hole.
        addr: PmAddr,
        /// Pages, at least 1; `u32::MAX` with a null address: to the end of the file.
        count: u32,
        /// The snapshot epoch at the time of writing.
        snapshot_epoch: u32,
    },
    /// Changes which copies of up to two paired pages are current.
    Words([WordChange; 2]),
    /// Sets the attributes.
    Attributes(Attributes),
    /// Adds a name to the directory.
    DentryAdd {
        /// The inode that it names.
        ino: Ino,
        /// Its place in the order of readdir.
        cookie: u64,
        /// That inode's generation.
        generation: u32,
        /// That inode's kind.
        kind: FileKind,
        /// The name.
        name: Name,
    },
    /// Takes the name with this cookie from the directory.
    DentryDelete {
        /// The inode that it named.
        ino: Ino,
        /// The cookie of the name.
        cookie: u64,
        /// That inode's generation.
        generation: u32,
    },
}

impl Entry {
    /// What the entry says.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> EntryKind {
        match self {
            Self::Write { .. } => EntryKind::Write,
            Self::Words(_) => EntryKind::Words,
            Self::Attributes(_) => EntryKind::Attributes,
            Self::DentryAdd { .. } => EntryKind::DentryAdd,
            Self::DentryDelete { .. } => EntryKind::DentryDelete,
        }
    }

    /// Lines of the entry, 1 to 5.
    #[inline]
    #[must_use]
    pub fn lines(&self) -> usize {
        match self {
            Self::DentryAdd { name, .. } => usize::from(dentry::lines(name.len_u8())),
            Self::Write { .. }
            | Self::Words(_)
            | Self::Attributes(_)
            | Self::DentryDelete { .. } => 1,
        }
    }

    /// Puts the bytes to store at the start of `out` and returns how many, a multiple of 64.
    #[inline]
    pub fn encode(&self, op_seq: u64, seed: Seed, out: &mut [u8; ENTRY_BYTES_MAX]) -> usize {
        let header = raw_header(self.kind(), 1, op_seq);
        match self {
            Self::Write {
                file_page,
                addr,
                count,
                snapshot_epoch,
            } => {
                let raw = RawWrite {
                    header,
                    file_page: file_page.get().into(),
                    addr: addr.raw().into(),
                    count: (*count).into(),
                    snapshot_epoch: (*snapshot_epoch).into(),
                    reserved: [0; 24],
                };
                seal_line(transmute!(raw), seed, out)
            }
            Self::Words([first, second]) => {
                let raw = RawWords {
                    header,
                    first: raw_word(first),
                    second: raw_word(second),
                };
                seal_line(transmute!(raw), seed, out)
            }
            Self::Attributes(attributes) => {
                seal_line(transmute!(raw_attributes(header, attributes)), seed, out)
            }
            Self::DentryAdd {
                ino,
                cookie,
                generation,
                kind,
                name,
            } => {
                let dentry = dentry::Fields {
                    ino: *ino,
                    cookie: *cookie,
                    generation: *generation,
                    kind: *kind,
                };
                dentry::encode(dentry, name, op_seq, seed, out)
            }
            Self::DentryDelete {
                ino,
                cookie,
                generation,
            } => {
                let raw = RawDentryDelete {
                    header,
                    ino: ino.get().into(),
                    cookie: (*cookie).into(),
                    generation: (*generation).into(),
                    reserved: [0; 28],
                };
                seal_line(transmute!(raw), seed, out)
            }
        }
    }

    /// Checks the entry that opens `bytes`, which is the rest of its log page.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when the first line is zero, [`LayoutError::Checksum`] when the
    /// entry is torn, damaged or another inode's, [`LayoutError::Field`] when it is too long for
    /// the page or says what the format does not allow.
    #[inline]
    pub fn decode(bytes: &[u8], seed: Seed) -> Result<(EntryHeader, Self), LayoutError> {
        let Some(first) = bytes.first_chunk::<LINE_BYTES>() else {
            return Err(field("bytes", "a whole line", length(bytes)));
        };
        let header = EntryHeader::peek(first)?;
        let Some(whole) = bytes.get(..header.bytes()) else {
            return Err(field(
                "lines",
                "no more than the page has left",
                header.lines.into(),
            ));
        };
        let (raw, _) = split_header(first);
        check_crc(ENTRY, seed.checksum(&whole[4..]), raw.crc.get())?;
        let entry = match header.kind {
            EntryKind::Write => decode_write(first)?,
            EntryKind::Words => decode_words(first),
            EntryKind::Attributes => decode_attributes(first)?,
            EntryKind::DentryAdd => decode_dentry_add(whole)?,
            EntryKind::DentryDelete => decode_dentry_delete(first)?,
        };
        Ok((header, entry))
    }
}

/// The header of an entry, its checksum still zero.
#[inline]
pub(crate) fn raw_header(kind: EntryKind, lines: u8, op_seq: u64) -> RawEntryHeader {
    RawEntryHeader {
        crc: U32::ZERO,
        kind: kind as u8,
        lines,
        flags_version: VERSION.into(),
        op_seq: op_seq.into(),
    }
}

/// Puts a line with its checksum into `out`.
#[inline]
fn seal_line(mut line: [u8; LINE_BYTES], seed: Seed, out: &mut [u8; ENTRY_BYTES_MAX]) -> usize {
    let crc = seed.checksum(&line[4..]);
    line[..4].copy_from_slice(&crc.to_le_bytes());
    out[..LINE_BYTES].copy_from_slice(&line);
    LINE_BYTES
}

#[inline]
fn raw_word(change: &WordChange) -> RawWordChange {
    RawWordChange {
        file_page: change.file_page.get().into(),
        word: change.word.into(),
        changed: change.changed.into(),
    }
}

#[inline]
fn raw_attributes(header: RawEntryHeader, attributes: &Attributes) -> RawAttributes {
    RawAttributes {
        header,
        mode: attributes.mode.into(),
        uid: attributes.uid.into(),
        gid: attributes.gid.into(),
        flags: attributes.flags.into(),
        project: attributes.project.into(),
        policy: attributes.policy,
        reserved: [0; 3],
        xattr_root: attributes.xattr_root.raw().into(),
        atime_ns: attributes.atime_ns.into(),
        reserved_end: [0; 8],
    }
}

#[inline]
fn decode_write(line: &[u8; LINE_BYTES]) -> Result<Entry, LayoutError> {
    const WRITE: &str = "write entry";
    let raw: RawWrite = transmute!(*line);
    let file_page = raw.file_page.get();
    let addr = PmAddr::decode_page(raw.addr.get(), WRITE, "addr")?;
    let count = raw.count.get();
    check(count != 0, WRITE, "count", "at least 1", 0)?;
    let to_end = addr.is_null() && count == u32::MAX;
    let page_end = file_page.saturating_add(if to_end { 1 } else { count.into() });
    check(
        page_end <= FilePage::LIMIT,
        WRITE,
        "file_page",
        "an end below 2^52",
        file_page,
    )?;
    let byte_end = addr.byte() + u64::from(count) * PAGE;
    let inside = addr.is_null() || byte_end <= BYTE_LIMIT;
    check(
        inside,
        WRITE,
        "count",
        "an end below 2^48 bytes of the slot",
        count.into(),
    )?;
    let snapshot_epoch = raw.snapshot_epoch.get();
    Ok(Entry::Write {
        file_page: FilePage::new(file_page),
        addr,
        count,
        snapshot_epoch,
    })
}

#[inline]
fn decode_words(line: &[u8; LINE_BYTES]) -> Entry {
    let raw: RawWords = transmute!(*line);
    Entry::Words([raw.first, raw.second].map(|change| WordChange {
        file_page: FilePage::new(change.file_page.get()),
        word: change.word.get(),
        changed: change.changed.get(),
    }))
}

fn decode_attributes(line: &[u8; LINE_BYTES]) -> Result<Entry, LayoutError> {
    const ATTRIBUTES: &str = "attributes entry";
    let raw: RawAttributes = transmute!(*line);
    let mode = raw.mode.get();
    check(
        mode <= 0o7777,
        ATTRIBUTES,
        "mode",
        "no type bits",
        mode.into(),
    )?;
    Ok(Entry::Attributes(Attributes {
        mode,
        uid: raw.uid.get(),
        gid: raw.gid.get(),
        flags: raw.flags.get(),
        project: raw.project.get(),
        policy: raw.policy,
        xattr_root: PmAddr::decode_page(raw.xattr_root.get(), ATTRIBUTES, "xattr_root")?,
        atime_ns: raw.atime_ns.get(),
    }))
}

fn decode_dentry_add(whole: &[u8]) -> Result<Entry, LayoutError> {
    let dentry = DentryRef::decode(whole)?;
    Ok(Entry::DentryAdd {
        ino: Ino::decode(dentry.ino().get(), dentry::DENTRY)?,
        cookie: dentry.cookie(),
        generation: dentry.generation(),
        kind: dentry.kind(),
        name: Name::new(dentry.name())?,
    })
}

fn decode_dentry_delete(line: &[u8; LINE_BYTES]) -> Result<Entry, LayoutError> {
    let raw: RawDentryDelete = transmute!(*line);
    Ok(Entry::DentryDelete {
        ino: Ino::decode(raw.ino.get(), "dentry delete entry")?,
        cookie: raw.cookie.get(),
        generation: raw.generation.get(),
    })
}

#[inline]
fn split_header(line: &[u8; LINE_BYTES]) -> (RawEntryHeader, [u8; 48]) {
    transmute!(*line)
}

#[inline]
fn field(field: &'static str, expected: &'static str, found: u64) -> LayoutError {
    LayoutError::Field {
        structure: ENTRY,
        field,
        expected,
        found,
    }
}

#[inline]
fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
