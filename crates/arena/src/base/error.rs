//! What can go wrong in the segment.

use crate::base::sync::Owner;

/// The segment, or the file system that it lies on, has no room for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("arena full: {asked} bytes asked for, {used} of {limit} in use")]
pub struct Full {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes handed out so far.
    pub used: u64,
    /// The segment's greatest size in bytes.
    pub limit: u64,
}

/// An offset that is null, misaligned, or outside the segment.
///
/// A reader that takes no lock can meet one by racing with a writer: it validates its sequence
/// counter before it believes the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bad arena offset {off:#x}: {bytes} bytes there, the segment ends at {limit:#x}")]
pub struct BadOffset {
    /// The offset, in bytes.
    pub off: u64,
    /// The length that was to be used, in bytes.
    pub bytes: u64,
    /// Where the allocated part of the segment ends.
    pub limit: u64,
}

/// Why a segment can't be made, opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// No room.
    #[error(transparent)]
    Full(#[from] Full),
    /// An offset in the segment leads nowhere.
    #[error(transparent)]
    BadOffset(#[from] BadOffset),
    /// There is no segment of that name.
    #[error("no arena at {path}")]
    NotFound {
        /// The path that was asked for.
        path: String,
    },
    /// There is a segment of that name already.
    #[error("an arena exists at {path}")]
    Exists {
        /// The path that was asked for.
        path: String,
    },
    /// The file is no segment, or one that was never finished.
    #[error("no arena: {found}")]
    NotArena {
        /// What was found in its place.
        found: String,
    },
    /// The segment was made by a program with another idea of its contents.
    #[error("arena of another build: layout {found:#x}, this program has {expected:#x}")]
    OtherBuild {
        /// This program's layout hash.
        expected: u64,
        /// The segment's.
        found: u64,
    },
    /// The segment belongs to another pool.
    #[error("arena of another pool: {found:032x}, expected {expected:032x}")]
    OtherPool {
        /// The pool's UUID as asked for.
        expected: u128,
        /// The segment's.
        found: u128,
    },
    /// The segment's clients are processes of another pid namespace (another container), whose
    /// numbers mean others here, or of another time namespace, where they have begun at other times.
    #[error("arena of another {kind} namespace: {found}, this process is of {own}")]
    OtherNamespace {
        /// Of which kind: `pid` or `time`.
        kind: &'static str,
        /// The inode of the segment's namespace.
        found: u64,
        /// This process' own.
        own: u64,
    },
    /// The segment was given up: a new one takes its place once all clients have left.
    #[error("arena is poisoned")]
    Poisoned,
    /// All client slots are taken.
    #[error("all {0} client slots of the arena are taken")]
    NoClientSlot(u32),
    /// A size that no segment can have.
    #[error("arena size {found} is not between {least} and {greatest} bytes")]
    BadSize {
        /// The size asked for, in bytes.
        found: u64,
        /// The least size.
        least: u64,
        /// The greatest size.
        greatest: u64,
    },
    /// A key or a value that the structure cannot hold.
    #[error("{what} {found:#x} is outside {least:#x}..={greatest:#x}")]
    OutOfRange {
        /// Which argument.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The least value allowed.
        least: u64,
        /// The greatest value allowed.
        greatest: u64,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Why a lock was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The owner is dead: settle its operations, then try again.
    #[error("lock held by a dead client: {0:?}")]
    OwnerDead(Owner),
    /// This operation holds the lock already: a mistake of the caller.
    #[error("lock {0} is held by this operation already")]
    Held(crate::Off),
    /// The operation's record has no room for another lock: a mistake of the caller.
    #[error("an operation can hold no more than {0} locks")]
    TooMany(usize),
    /// The lock word's offset leads nowhere.
    #[error(transparent)]
    BadOffset(#[from] BadOffset),
}
