//! Dentry entries: a name added to a directory, a name taken from it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::transmute;

use super::header::{EntryKind, LINE_BYTES, RawEntryHeader, raw_header, seal, too_short};
use crate::error::check;
use crate::number::decode_cookie;
use crate::{ENTRY_BYTES_MAX, FileKind, Ino, LayoutError, Name, Seed};

const ADD: &str = "dentry add entry";
const DELETE: &str = "dentry delete entry";
const NAME_OFFSET: usize = 40;

raw! {
    struct RawDentryAdd, "Dentry add entry", 64 {
        0 header: RawEntryHeader,
        16 ino: U64,
        24 cookie: U64,
        32 generation: U32,
        36 kind: u8,
        37 name_length: u8,
        38 reserved: U16,
        40 name: [u8; 24],
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

/// Lines of a dentry with a name of that many bytes.
#[inline]
pub(crate) const fn lines(name_length: u8) -> u8 {
    match name_length {
        0..=24 => 1,
        25..=88 => 2,
        89..=152 => 3,
        153..=216 => 4,
        217..=255 => 5,
    }
}

/// The first line of a dentry, still without its name.
#[inline]
pub(crate) fn encode_first(
    op_seq: u64,
    (ino, generation, kind): (Ino, u32, FileKind),
    cookie: u64,
    name: &Name,
) -> [u8; LINE_BYTES] {
    transmute!(RawDentryAdd {
        header: raw_header(EntryKind::DentryAdd, lines(name.len_u8()), op_seq),
        ino: ino.get().into(),
        cookie: cookie.into(),
        generation: generation.into(),
        kind: kind.to_u8(),
        name_length: name.len_u8(),
        reserved: U16::ZERO,
        name: [0; 24],
    })
}

/// Puts a dentry's first line, its name and the checksum into `out` and returns its bytes.
#[inline]
pub(crate) fn encode(
    first: [u8; LINE_BYTES],
    name: &Name,
    seed: Seed,
    out: &mut [u8; ENTRY_BYTES_MAX],
) -> usize {
    let bytes = usize::from(lines(name.len_u8())) * LINE_BYTES;
    let (entry, _) = out.split_at_mut(bytes);
    let (fixed, rest) = entry.split_at_mut(NAME_OFFSET);
    fixed.copy_from_slice(first.split_at(NAME_OFFSET).0);
    let (text, padding) = rest.split_at_mut(usize::from(name.len_u8()));
    text.copy_from_slice(name.as_bytes());
    padding.fill(0);
    seal(entry, seed);
    bytes
}

/// A dentry add entry in memory, read without its checksum: for look-ups on the hot path.
///
/// The entry was checked when its log was read; the caller validates what it copied by the inode's
/// sequence counter.
#[derive(Debug, Clone, Copy)]
pub struct DentryRef<'a> {
    op_seq: u64,
    ino: Ino,
    cookie: u64,
    generation: u32,
    kind: FileKind,
    name: &'a [u8],
}

impl<'a> DentryRef<'a> {
    /// Lines of the dentry that opens with `first`, and the length of its name in bytes.
    ///
    /// A look-up that wants another length need not read the other lines.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when the line opens no dentry.
    #[inline]
    pub fn peek(first: &[u8; 64]) -> Result<(u8, u8), LayoutError> {
        let raw: RawDentryAdd = transmute!(*first);
        let kind = raw.header.kind;
        check(kind == EntryKind::DentryAdd.to_u8(), ADD, "kind of entry", "4", kind.into())?;
        let length = raw.name_length;
        check(length != 0, ADD, "name_length", "at least 1", 0)?;
        let found = raw.header.lines;
        check(found == lines(length), ADD, "lines", "as many as the name needs", found.into())?;
        Ok((found, length))
    }

    /// Reads the dentry that opens `bytes`, all its lines; its checksum is not looked at.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when it is no dentry, or `bytes` ends before its name.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let Some(first) = bytes.first_chunk::<LINE_BYTES>() else {
            return Err(too_short(ADD, bytes));
        };
        let (_, length) = Self::peek(first)?;
        let raw: RawDentryAdd = transmute!(*first);
        let Some(kind) = FileKind::from_u8(raw.kind) else {
            let found = raw.kind.into();
            return Err(LayoutError::Field {
                structure: ADD,
                field: "kind",
                expected: "1 to 7",
                found,
            });
        };
        let Some(name) = bytes.get(NAME_OFFSET..NAME_OFFSET + usize::from(length)) else {
            return Err(too_short(ADD, bytes));
        };
        Ok(Self {
            op_seq: raw.header.op_seq.get(),
            ino: Ino::decode(raw.ino.get(), ADD)?,
            cookie: decode_cookie(raw.cookie.get(), ADD)?,
            generation: raw.generation.get(),
            kind,
            name,
        })
    }

    /// The operation that wrote the entry.
    #[inline]
    #[must_use]
    pub const fn op_seq(&self) -> u64 {
        self.op_seq
    }

    /// The inode that it names.
    #[inline]
    #[must_use]
    pub const fn ino(&self) -> Ino {
        self.ino
    }

    /// Its place in the order of readdir.
    #[inline]
    #[must_use]
    pub const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The generation of that inode.
    #[inline]
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// The kind of that inode.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// The name.
    #[inline]
    #[must_use]
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }
}

pub(crate) fn encode_delete(
    op_seq: u64,
    ino: Ino,
    cookie: u64,
    generation: u32,
) -> [u8; LINE_BYTES] {
    transmute!(RawDentryDelete {
        header: raw_header(EntryKind::DentryDelete, 1, op_seq),
        ino: ino.get().into(),
        cookie: cookie.into(),
        generation: generation.into(),
        reserved: [0; 28],
    })
}

/// The inode that the deleted name led to, the name's cookie, and that inode's generation.
#[inline]
pub(crate) fn decode_delete(line: &[u8; LINE_BYTES]) -> Result<(Ino, u64, u32), LayoutError> {
    let raw: RawDentryDelete = transmute!(*line);
    let ino = Ino::decode(raw.ino.get(), DELETE)?;
    Ok((ino, decode_cookie(raw.cookie.get(), DELETE)?, raw.generation.get()))
}
