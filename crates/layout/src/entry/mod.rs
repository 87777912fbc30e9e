//! Log entries: what an inode's log says, in 1 to 5 whole lines each.
//!
//! `header` has the 16 bytes that open every entry and seals an entry by its checksum; the other
//! files have one kind each. An entry never commits itself: it counts once a commit line or a
//! journal record names a tail at or beyond it. Nothing here knows where in a log an entry lies.

mod attributes;
mod dentry;
mod header;
mod pair;
mod redo;
mod source;
mod write;

pub use attributes::Attributes;
pub use dentry::DentryRef;
pub use header::{EntryHeader, EntryKind};
pub use pair::{Pair, Partner};
pub use redo::{REDO_BYTES_MAX, Redo};
pub use source::{SOURCE_BYTES_MAX, Source};

use crate::error::{check, check_crc};
use crate::{FileKind, FilePage, Ino, LayoutError, Name, PmAddr, Seed};
use header::{ENTRY, LINE_BYTES, crc_and_rest, seal};

pub(crate) use {
    attributes::RawAttributes,
    dentry::{RawDentryAdd, RawDentryDelete},
    header::RawEntryHeader,
    pair::RawPair,
    redo::RawRedo,
    source::RawSource,
    write::RawWrite,
};

/// Bytes of the longest entry.
pub const ENTRY_BYTES_MAX: usize = 320;

/// An entry of an inode's log.
///
/// The seed is pool, ino, generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Says which lines of a page are current in which of its two copies. It counts as long as the page
    /// lies where the entry says.
    Pair(Pair),
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
    /// Puts bytes where they lie in the file, as long as no newer operation of it counts.
    Redo(Redo),
    /// As `Redo`, of bytes that lie elsewhere in the pool.
    Source(Source),
}

impl Entry {
    /// What the entry says.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> EntryKind {
        match self {
            Self::Write { .. } => EntryKind::Write,
            Self::Pair(_) => EntryKind::Pair,
            Self::Attributes(_) => EntryKind::Attributes,
            Self::DentryAdd { .. } => EntryKind::DentryAdd,
            Self::DentryDelete { .. } => EntryKind::DentryDelete,
            Self::Redo(_) => EntryKind::Redo,
            Self::Source(_) => EntryKind::Source,
        }
    }

    /// Lines of the entry, 1 to 5.
    #[inline]
    #[must_use]
    pub fn lines(&self) -> usize {
        match self {
            Self::DentryAdd { name, .. } => usize::from(dentry::lines(name.len_u8())),
            Self::Redo(redo) => usize::from(redo.lines()),
            Self::Write { .. }
            | Self::Pair(_)
            | Self::Source(_)
            | Self::Attributes(_)
            | Self::DentryDelete { .. } => 1,
        }
    }

    /// Puts the bytes to store at the start of `out` and returns how many, a multiple of 64.
    ///
    /// What `out` holds after them stays as it was.
    #[inline]
    pub fn encode(&self, op_seq: u64, seed: Seed, out: &mut [u8; ENTRY_BYTES_MAX]) -> usize {
        let line = match self {
            Self::Write { file_page, addr, count, snapshot_epoch } => {
                write::encode(op_seq, *file_page, *addr, *count, *snapshot_epoch)
            }
            Self::Pair(pair) => pair.encode(op_seq),
            Self::Source(source) => source.encode(op_seq),
            Self::Attributes(attributes) => attributes.encode(op_seq),
            Self::DentryAdd { ino, cookie, generation, kind, name } => {
                let fixed = dentry::encode_first(op_seq, (*ino, *generation, *kind), *cookie, name);
                return dentry::encode(fixed, name, seed, out);
            }
            Self::Redo(redo) => return redo.encode(op_seq, seed, out),
            Self::DentryDelete { ino, cookie, generation } => {
                dentry::encode_delete(op_seq, *ino, *cookie, *generation)
            }
        };
        if let Some(first) = out.first_chunk_mut::<LINE_BYTES>() {
            *first = line;
            seal(first, seed);
        }
        LINE_BYTES
    }

    /// Checks the entry that opens `bytes`, which is the rest of its log page.
    ///
    /// # Errors
    /// [`LayoutError::Blank`] when the first line is zero, [`LayoutError::Checksum`] when the
    /// entry is torn, damaged or another inode's, [`LayoutError::Field`] when it is too long for
    /// the page or says what the format does not allow.
    #[inline]
    pub fn decode(bytes: &[u8], seed: Seed) -> Result<(EntryHeader, Self), LayoutError> {
        let mut entry = Self::NONE;
        let header = entry.decode_here(bytes, seed)?;
        Ok((header, entry))
    }

    /// What [`Entry::decode_here`] and [`Entry::reread_here`] may put an entry over.
    pub const NONE: Self = Self::DentryDelete { ino: Ino::NULL, cookie: 0, generation: 0 };

    /// As [`Entry::decode`], into an entry that is there: most of one is room for a name, which a walk
    /// over a log would move about for each.
    ///
    /// # Errors
    /// As [`Entry::decode`]; what is here then is no entry of the log.
    #[inline]
    pub fn decode_here(&mut self, bytes: &[u8], seed: Seed) -> Result<EntryHeader, LayoutError> {
        let Some(first) = bytes.first_chunk::<LINE_BYTES>() else {
            return Err(header::too_short(ENTRY, bytes));
        };
        let header = EntryHeader::peek(first)?;
        let Some(whole) = bytes.get(..header.bytes()) else {
            let lines = header.lines.into();
            check(false, ENTRY, "lines", "no more than the page has left", lines)?;
            return Err(header::too_short(ENTRY, bytes));
        };
        let (stored, rest) = crc_and_rest(whole);
        check_crc(ENTRY, seed.checksum(rest), stored)?;
        self.parse(&header, first, whole)?;
        Ok(header)
    }

    /// Reads the entry that opens `bytes` again, into an entry that is there and without its checksum:
    /// for one that was checked or written in this session, such as those that collection sorts.
    ///
    /// # Errors
    /// As [`Entry::decode`], a wrong checksum left out.
    #[inline]
    pub fn reread_here(&mut self, bytes: &[u8]) -> Result<EntryHeader, LayoutError> {
        let Some(first) = bytes.first_chunk::<LINE_BYTES>() else {
            return Err(header::too_short(ENTRY, bytes));
        };
        let header = EntryHeader::peek(first)?;
        let Some(whole) = bytes.get(..header.bytes()) else {
            return Err(header::too_short(ENTRY, bytes));
        };
        self.parse(&header, first, whole)?;
        Ok(header)
    }

    #[inline]
    fn parse(
        &mut self,
        header: &EntryHeader,
        first: &[u8; LINE_BYTES],
        whole: &[u8],
    ) -> Result<(), LayoutError> {
        match header.kind {
            EntryKind::Write => {
                let (file_page, addr, count, snapshot_epoch) = write::decode(first)?;
                *self = Self::Write { file_page, addr, count, snapshot_epoch };
            }
            EntryKind::Pair => *self = Self::Pair(Pair::decode(first)?),
            EntryKind::Attributes => *self = Self::Attributes(Attributes::decode(first)?),
            EntryKind::DentryAdd => {
                let dentry = DentryRef::decode(whole)?;
                let name = Name::new(dentry.name())?;
                let (ino, cookie) = (dentry.ino(), dentry.cookie());
                let (generation, kind) = (dentry.generation(), dentry.kind());
                *self = Self::DentryAdd { ino, cookie, generation, kind, name };
            }
            EntryKind::DentryDelete => {
                let (ino, cookie, generation) = dentry::decode_delete(first)?;
                *self = Self::DentryDelete { ino, cookie, generation };
            }
            EntryKind::Redo => *self = Self::Redo(Redo::decode(first, whole)?),
            EntryKind::Source => *self = Self::Source(Source::decode(first)?),
        }
        Ok(())
    }
}
