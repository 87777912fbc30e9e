//! What stores are for: the key of the counters.

/// What a store is for: the key of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// File contents.
    Data,
    /// Log entries and log page headers.
    Log,
    /// Commit lines.
    Commit,
    /// Journal records.
    Journal,
    /// Identity lines and other parts of inodes.
    Inode,
    /// Everything else: superblock, pairs, wear, saved allocator.
    Other,
}

impl Purpose {
    /// All purposes, in the order of their counters.
    pub const ALL: [Self; 6] =
        [Self::Data, Self::Log, Self::Commit, Self::Journal, Self::Inode, Self::Other];
}
