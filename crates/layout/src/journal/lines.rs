//! What a journal record is made of: its operation, its inodes with their commit lines.

use std::ops::Deref;

use super::JOURNAL;
use crate::error::check;
use crate::{CommitLine, Ino, LayoutError};

/// The most inodes of a record.
pub const JOURNAL_LINES_MAX: usize = 8;

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
    pub const ALL: [Self; 6] =
        [Self::Create, Self::Unlink, Self::Link, Self::Rename, Self::Exchange, Self::Other];

    /// The number that is stored, 1 to 6.
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
            None => check(false, JOURNAL, "count", "at most 8", u64::from(self.count) + 1),
        }
    }

    /// How many there are.
    #[inline]
    pub(super) const fn count(&self) -> u8 {
        self.count
    }

    /// The lines.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(Ino, CommitLine)] {
        self.items.get(..usize::from(self.count)).unwrap_or(&self.items)
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
