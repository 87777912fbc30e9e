//! The errors of the file system layer.

use std::fmt::Display;

use novale_layout::{Ino, PmAddr};

/// What an operation can fail with; `novale-posix` maps each to an errno.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name, or no such inode.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none may be.
    #[error("is a directory")]
    IsDirectory,
    /// A directory to be removed or replaced has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// A name of 0 bytes, or one with a NUL or a slash.
    #[error("invalid name")]
    InvalidName,
    /// A name above 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// An argument out of range, such as a directory moved below itself.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The kind of inode has not what is asked for, and the caller no right to ask.
    #[error("permission denied: {0}")]
    Denied(&'static str),
    /// The operation is not allowed on this kind of inode.
    #[error("operation not permitted: {0}")]
    NotPermitted(&'static str),
    /// An offset or a size above the greatest file size.
    #[error("file too large")]
    TooLarge,
    /// More links than `nlink` can count.
    #[error("too many links")]
    TooManyLinks,
    /// Too few free pages; nothing was changed.
    #[error("no space left in the pool")]
    NoSpace,
    /// The limit of a directory tree; nothing was changed.
    #[error("quota of the directory tree exceeded")]
    QuotaExceeded,
    /// A name in another directory tree with a quota than the inode's.
    #[error("in another directory tree with a quota of its own")]
    OtherTree,
    /// Too little room in the arena (DRAM); nothing was changed.
    #[error("no room left in the arena")]
    NoMemory,
    /// The file system was opened read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The inode was removed, and its number may belong to another by now.
    #[error("stale file handle")]
    Stale,
    /// A kernel has the file mapped, and this client asked to be told (`Fs::refuse_mapped`): only
    /// through that kernel are mapping and call of one mind.
    #[error("the kernel has the file mapped")]
    Mapped,
    /// A program has the file's own pages mapped, which must stay where they are (`Fs::map_hold`).
    #[error("a program has the file's pages mapped")]
    Pinned,
    /// No data or hole at or beyond that offset.
    #[error("no such offset")]
    NoSuchOffset,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// The name of an extended attribute is empty, or above 255 bytes.
    #[error("an attribute's name has 1 to 255 bytes")]
    NameRange,
    /// The value of an extended attribute is above 65,536 bytes.
    #[error("an attribute's value has at most 65536 bytes")]
    ValueTooLong,
    /// Not implemented for this kind of file or mode.
    #[error("operation not supported: {0}")]
    Unsupported(&'static str),
    /// The pool's bytes contradict the format.
    #[error("damaged pool: {what} at {at}: {found}")]
    Damaged {
        /// The structure, and the inode where there is one.
        what: String,
        /// Where it lies.
        at: PmAddr,
        /// What was found, and what was expected.
        found: String,
    },
    /// It lies in a slot that has failed, or is not there, or was stored to such a slot and is lost.
    #[error("slot {} has failed, and what lies there is lost", .0.slot())]
    Lost(PmAddr),
    /// A pool with damage that makes writing to it unsafe, opened for writing: what the damaged parts
    /// own is unknown, and would be taken for free. Nothing was changed.
    #[error(
        "{first}{}; what it owns is unknown, and writing could destroy it: mount with -o ro and copy \
         what can be read; `novale check` names every finding, `novale check --repair` mends what \
         needs no guess",
        others(*count)
    )]
    Unrecoverable {
        /// The first damage found.
        first: Box<Error>,
        /// How much there is: inodes, records and words of the inode directory.
        count: u64,
    },
    /// This is no Novale pool, or not one that this program can open.
    #[error("{0}")]
    BadPool(String),
    /// The arena holds an offset that points outside: a bad client, or a bug.
    #[error("damaged arena: {0}")]
    BadArena(String),
    /// A client died that holds what is needed, and could not be settled for.
    #[error("a client died in the middle of an operation that can't be ended")]
    OwnerDead,
    /// Who was to close the pool has not, as others seem to have it open.
    #[error(
        "other processes have the pool open, or it can't be seen whether they live (no descriptor left?)"
    )]
    OthersLive,
    /// A repair could not keep a piece of what it was about to give up.
    #[error("a piece could not be kept: {0}")]
    NotKept(String),
    /// As many clients as there can be have the pool open.
    #[error("as many clients as there can be have the pool open")]
    TooManyClients,
    /// Closed, or being closed.
    #[error("file system is shut down")]
    Closed,
}

fn others(count: u64) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!(" (the first of {count} damaged places)"),
    }
}

/// The result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether what was to be read can't be, for good: other things may be read.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Lost(_))
    }

    pub(crate) fn damaged(what: impl Into<String>, at: PmAddr, found: impl Display) -> Self {
        Self::Damaged { what: what.into(), at, found: found.to_string() }
    }

    pub(crate) fn damaged_inode(ino: Ino, what: &str, at: PmAddr, found: impl Display) -> Self {
        Self::damaged(format!("inode {} {what}", ino.get()), at, found)
    }
}

impl From<novale_arena::BadOffset> for Error {
    fn from(error: novale_arena::BadOffset) -> Self {
        Self::BadArena(error.to_string())
    }
}

impl From<novale_arena::Full> for Error {
    fn from(_: novale_arena::Full) -> Self {
        Self::NoMemory
    }
}

impl From<novale_arena::ArenaError> for Error {
    fn from(error: novale_arena::ArenaError) -> Self {
        if matches!(error, novale_arena::ArenaError::Full(_)) {
            return Self::NoMemory;
        }
        Self::BadArena(error.to_string())
    }
}

impl From<novale_arena::LockError> for Error {
    fn from(error: novale_arena::LockError) -> Self {
        if matches!(error, novale_arena::LockError::OwnerDead(_)) {
            return Self::OwnerDead;
        }
        Self::BadArena(error.to_string())
    }
}

impl From<novale_pm::OutOfRange> for Error {
    fn from(error: novale_pm::OutOfRange) -> Self {
        if error.is_lost {
            return Self::Lost(error.addr);
        }
        Self::damaged("address", error.addr, error)
    }
}
