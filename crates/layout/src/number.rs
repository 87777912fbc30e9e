//! Numbers that must not be mixed: inodes, pages of a file.

use std::fmt;

use crate::error::check;
use crate::{INODES_PER_CHUNK, LayoutError, PAGE};

/// Inode numbers lie below this: a pair line keeps them in 40 spare bits of two page addresses.
pub const INO_LIMIT: u64 = 1 << 40;

/// What counts operations, records and writes of a line lies below this. Nothing lives long enough
/// to get there, so a greater one is damage; and a program may add to one without a check.
pub const SEQ_LIMIT: u64 = 1 << 63;
/// What has such a number already is read, but not changed any more: a session could count it up to
/// [`SEQ_LIMIT`].
pub const SEQ_RISE_LIMIT: u64 = SEQ_LIMIT - (1 << 48);
/// Sessions lie below this, so that `op_seq`, which rises with them, stays below [`SEQ_LIMIT`].
pub const SESSION_LIMIT: u32 = 1 << 31;
/// A file is shorter than this, in bytes: offsets are signed in the system's calls.
pub const SIZE_LIMIT: u64 = 1 << 63;
/// The first cookie of a directory's names; those below stand for `.`, `..` and the start.
pub const COOKIE_MIN: u64 = 16;
/// Cookies lie below this.
pub const COOKIE_LIMIT: u64 = 1 << 48;

/// Takes a word that must be a counter.
#[inline]
pub(crate) fn decode_seq(
    raw: u64,
    structure: &'static str,
    field: &'static str,
) -> Result<u64, LayoutError> {
    check(raw < SEQ_LIMIT, structure, field, "below 2^63", raw)?;
    Ok(raw)
}

/// Takes a word that must be the cookie of a name.
#[inline]
pub(crate) fn decode_cookie(raw: u64, structure: &'static str) -> Result<u64, LayoutError> {
    let ok = (COOKIE_MIN..COOKIE_LIMIT).contains(&raw);
    check(ok, structure, "cookie", "16 to 2^48 - 1", raw)?;
    Ok(raw)
}

/// An inode number: chunk x 8192 + index, below 2^40; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(u64);

impl Ino {
    /// No inode.
    pub const NULL: Self = Self(0);
    /// The root directory.
    pub const ROOT: Self = Self(1);

    /// The inode number `number`, unchecked: callers hand in any, see [`Ino::is_valid`].
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether an inode can have this number: neither 0 nor 2^40 or above.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 != 0 && self.0 < INO_LIMIT
    }

    /// The chunk that holds the inode.
    #[inline]
    #[must_use]
    pub const fn chunk(self) -> u64 {
        self.0 / INODES_PER_CHUNK
    }

    /// The inode's index in its chunk.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 % INODES_PER_CHUNK
    }

    /// Takes a word that must be an inode number.
    #[inline]
    pub(crate) fn decode(raw: u64, structure: &'static str) -> Result<Self, LayoutError> {
        let ino = Self(raw);
        check(ino.is_valid(), structure, "ino", "1 to 2^40 - 1", raw)?;
        Ok(ino)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A page of a file: its byte offset divided by 4096.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FilePage(u64);

impl FilePage {
    /// File pages lie below this, so that a byte offset has 64 bits.
    pub const LIMIT: u64 = 1 << 52;

    /// The page with this index.
    #[inline]
    #[must_use]
    pub const fn new(index: u64) -> Self {
        Self(index)
    }

    /// The page that holds the byte at `offset`.
    #[inline]
    #[must_use]
    pub const fn of_byte(offset: u64) -> Self {
        Self(offset / PAGE)
    }

    /// The index.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Takes a word that must be a page of a file.
    #[inline]
    pub(crate) fn decode(raw: u64, structure: &'static str) -> Result<Self, LayoutError> {
        check(raw < Self::LIMIT, structure, "file_page", "below 2^52", raw)?;
        Ok(Self(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_is_chunk_and_index() {
        assert_eq!((Ino::ROOT.chunk(), Ino::ROOT.index()), (0, 1));
        let ino = Ino::new(3 * INODES_PER_CHUNK + 8191);
        assert_eq!((ino.chunk(), ino.index()), (3, 8191));
    }

    #[test]
    fn inode_numbers_end_at_40_bits() {
        assert!(!Ino::NULL.is_valid());
        assert!(Ino::ROOT.is_valid());
        assert!(Ino::new(INO_LIMIT - 1).is_valid());
        assert!(!Ino::new(INO_LIMIT).is_valid());
        assert!(!Ino::new(u64::MAX).is_valid());
    }

    #[test]
    fn file_pages_are_bytes_rounded_down() {
        assert_eq!(FilePage::of_byte(4095), FilePage::new(0));
        assert_eq!(FilePage::of_byte(4096), FilePage::new(1));
        assert!(FilePage::of_byte(u64::MAX).get() < FilePage::LIMIT);
    }
}
