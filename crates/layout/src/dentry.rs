//! Dentry add entries: a fixed part of 40 bytes, then the name.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::transmute;

use crate::entry::{ENTRY_BYTES_MAX, EntryKind, LINE_BYTES, RawEntryHeader, raw_header};
use crate::error::check;
use crate::{FileKind, Ino, LayoutError, Name, Seed};

pub(crate) const DENTRY: &str = "dentry add entry";
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

/// A dentry's fixed part.
#[derive(Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) ino: Ino,
    pub(crate) cookie: u64,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
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

/// Puts a dentry into `out` and returns its bytes.
#[inline]
pub(crate) fn encode(
    fields: Fields,
    name: &Name,
    op_seq: u64,
    seed: Seed,
    out: &mut [u8; ENTRY_BYTES_MAX],
) -> usize {
    let lines = lines(name.len_u8());
    let raw = RawDentryAdd {
        header: raw_header(EntryKind::DentryAdd, lines, op_seq),
        ino: fields.ino.get().into(),
        cookie: fields.cookie.into(),
        generation: fields.generation.into(),
        kind: fields.kind.to_u8(),
        name_length: name.len_u8(),
        reserved: U16::ZERO,
        name: [0; 24],
    };
    let first: [u8; LINE_BYTES] = transmute!(raw);
    let bytes = usize::from(lines) * LINE_BYTES;
    out[..LINE_BYTES].copy_from_slice(&first);
    let (used, _) = out.split_at_mut(bytes);
    let (text, rest) = used[NAME_OFFSET..].split_at_mut(usize::from(name.len_u8()));
    text.copy_from_slice(name.as_bytes());
    rest.fill(0);
    let crc = seed.checksum(&used[4..]);
    used[..4].copy_from_slice(&crc.to_le_bytes());
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
    /// # Errors
    /// [`LayoutError::Field`] when the line opens no dentry.
    #[inline]
    pub fn peek(first: &[u8; 64]) -> Result<(u8, u8), LayoutError> {
        let raw: RawDentryAdd = transmute!(*first);
        let kind = raw.header.kind;
        check(
            kind == EntryKind::DentryAdd as u8,
            DENTRY,
            "kind",
            "4",
            kind.into(),
        )?;
        let length = raw.name_length;
        check(length != 0, DENTRY, "name_length", "at least 1", 0)?;
        let found = raw.header.lines;
        let fits = found == lines(length);
        check(
            fits,
            DENTRY,
            "lines",
            "as many as the name needs",
            found.into(),
        )?;
        Ok((found, length))
    }

    /// Reads the dentry that opens `bytes`; its checksum is not looked at.
    ///
    /// # Errors
    /// [`LayoutError::Field`] when it is no dentry, or `bytes` ends before its name.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let Some(first) = bytes.first_chunk::<LINE_BYTES>() else {
            return Err(too_short(bytes));
        };
        let (_, length) = Self::peek(first)?;
        let raw: RawDentryAdd = transmute!(*first);
        let Some(kind) = FileKind::from_u8(raw.kind) else {
            check(false, DENTRY, "kind of inode", "1 to 7", raw.kind.into())?;
            return Err(too_short(bytes));
        };
        let Some(name) = bytes.get(NAME_OFFSET..NAME_OFFSET + usize::from(length)) else {
            return Err(too_short(bytes));
        };
        Ok(Self {
            op_seq: raw.header.op_seq.get(),
            ino: Ino::new(raw.ino.get()),
            cookie: raw.cookie.get(),
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

fn too_short(bytes: &[u8]) -> LayoutError {
    LayoutError::Field {
        structure: DENTRY,
        field: "bytes",
        expected: "the whole entry",
        found: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
    }
}
