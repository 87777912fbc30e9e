//! Words of a view, and what their bits mean.

use novale_layout::{INO_LIMIT, Ino, PmAddr};

/// A directory's parent: its number, and above it what there is room for of its generation, 24 bits. A
/// removed directory that somebody has open leads to its parent as long as there is one, and not to
/// what has the parent's number after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParentWord(u64);

impl ParentWord {
    /// None, or none that is known.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(ino: Ino, generation: u32) -> Self {
        Self(u64::from(generation) << INO_LIMIT.trailing_zeros() | ino.get())
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn ino(self) -> Ino {
        Ino::new(self.0 % INO_LIMIT)
    }

    /// Whether an inode of this generation, which has the number, is the parent.
    pub(crate) fn is_of(self, generation: u32) -> bool {
        Self::new(self.ino(), generation) == self
    }
}

/// Where an inode's attributes lie, and what is asked of them without reading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct XattrSet {
    /// The first page of the chain; null where there are none.
    pub(crate) root: PmAddr,
    /// Pages of the chain and of the values, below 2^28.
    pub(crate) pages: u32,
    /// The `HAS_` bits of [`novale_layout::XattrPageHeader`].
    pub(crate) summary: u32,
}

/// In the view's word for holds: one that has pages mapped.
pub(crate) const DAX_HOLD: u64 = 1 << 32;

/// In the view's word of the kind: a kernel has the file mapped, and what was stored there is not here.
pub(crate) const MAPPED: u64 = 1 << 9;

/// In the same word: somebody has held the inode by [`crate::Fs::hold`], as a kernel does that knows it.
pub(crate) const KNOWN: u64 = 1 << 10;

/// In the same word: a kernel is to map the file, and who has its own pages mapped is to give way.
pub(crate) const WANTED: u64 = 1 << 11;

/// In the same word: among those who have its own pages mapped somebody can't give way. It counts as
/// long as anybody has them mapped.
pub(crate) const FIXED: u64 = 1 << 12;

/// In the same word: some bytes of the file are not those of its pages, which [`crate::op::unrecovered`]
/// has.
pub(crate) const OVERLAID: u64 = 1 << 13;

/// In the same word: the file has newer bytes in the write buffer ([`crate::inode::buffer`]), which stay
/// when its view is loaded again.
pub(crate) const BUFFERED: u64 = 1 << 14;

/// What stays when a view is loaded again, as long as the inode is held.
pub(crate) const KEPT: u64 = MAPPED | KNOWN | WANTED | FIXED;
