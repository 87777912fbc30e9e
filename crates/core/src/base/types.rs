//! What callers hand in and get back.

use novale_arena::AtomicU64;
use novale_layout::PmAddr;
use novale_policy::{Mode, UpdatePolicy};

pub use novale_layout::{FileKind, Ino};

/// What the caller knows and the file system does not: time and where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Ctx {
    /// Wall-clock time in nanoseconds since 1970.
    pub now_ns: i64,
    /// Spreads callers over lanes and operation records: a thread or CPU number, any value.
    pub hint: u32,
}

/// One use of an inode number: the number and its generation. What a walk has found stays told from
/// what gets its number after its removal: every operation on names asks for this, and ends with
/// [`crate::Error::Stale`] where the number is another one's by then.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// The inode's number.
    pub ino: Ino,
    /// No inode is of generation 0: the one that has the number when it is used.
    generation: u32,
}

impl Node {
    /// The root directory, which is never removed.
    pub const ROOT: Self = Self::current(Ino::ROOT);

    /// The inode of this generation.
    #[must_use]
    pub const fn new(ino: Ino, generation: u32) -> Self {
        Self { ino, generation }
    }

    /// Whatever inode has the number when it is used: for who holds the inode, so that its number can't
    /// be used again.
    #[must_use]
    pub const fn current(ino: Ino) -> Self {
        Self { ino, generation: 0 }
    }

    /// Whether an inode of this generation, which has the number, is the one.
    #[inline]
    #[must_use]
    pub const fn is_of(self, generation: u32) -> bool {
        self.generation == 0 || self.generation == generation
    }
}

/// An inode's attributes, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode's number.
    pub ino: Ino,
    /// Rises each time the number is used again.
    pub generation: u32,
    /// File, directory, and so on.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (no type bits), 0 to 0o7777.
    pub mode: u32,
    /// Number of names (a directory: 2 and one for each subdirectory).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a character or block device.
    pub rdev: u32,
    /// The directory tree that it counts for, by number; 0: none.
    pub project: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space in 512-byte units.
    pub blocks: u64,
    /// Last access, ns since 1970.
    pub atime_ns: i64,
    /// Last change of the data.
    pub mtime_ns: i64,
    /// Last change of the attributes.
    pub ctime_ns: i64,
    /// Creation.
    pub birth_ns: i64,
}

impl Attr {
    /// The inode that they are of.
    #[must_use]
    pub const fn node(&self) -> Node {
        Node::new(self.ino, self.generation)
    }
}

/// A new inode's attributes.
#[derive(Debug, Clone, Copy)]
pub struct NewInode<'a> {
    /// File, directory, symlink, device, ...
    pub kind: FileKind,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group (a set-gid parent directory's group takes its place).
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u32,
    /// A symlink's target; empty for all others.
    pub target: &'a [u8],
}

/// How a file without a name is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unnamed {
    /// It may get a name, as by `O_TMPFILE` without `O_EXCL`.
    pub may_be_named: bool,
    /// Permissions that it is not to have, where the directory has no default ACL.
    pub umask: u32,
}

/// Bytes of the pool that lie one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRun {
    /// The first of them.
    pub addr: PmAddr,
    /// How many.
    pub len: u64,
}

/// Changes of attributes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Truncate or extend to this length.
    pub size: Option<u64>,
    /// Access time, ns.
    pub atime_ns: Option<i64>,
    /// Modification time, ns.
    pub mtime_ns: Option<i64>,
    /// Count it for this directory tree; 0: for none. Its names stay where they are; what is made in
    /// it from now on counts for the same. No limit stands in the way: it is there already.
    pub project: Option<u32>,
    /// The update policy of the file, or of what is made in the directory from now on; `Some(None)`:
    /// none of its own.
    pub update: Option<Option<UpdatePolicy>>,
    /// When writes become durable; `Some(None)`: as of all files that don't say so themselves.
    pub mode_of_writes: Option<Option<Mode>>,
    /// Set-id bits to clear, as a change of owner, size or contents must; of a directory none.
    pub clear_set_id: ClearSetId,
}

/// Which set-id bits a change takes from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClearSetId {
    /// None.
    #[default]
    Nothing,
    /// Set-uid, and set-gid where the group may execute: those of programs.
    Executable,
    /// Both: the caller is not in the file's group either.
    All,
}

impl ClearSetId {
    /// The bits that fall of a mode of what is no directory.
    #[must_use]
    pub fn taken_from(self, mode: u32) -> u32 {
        const SET_UID: u32 = 0o4000;
        const SET_GID: u32 = 0o2000;
        const GROUP_EXECUTE: u32 = 0o010;
        let falls = match self {
            Self::Nothing => 0,
            Self::Executable if mode & GROUP_EXECUTE == 0 => SET_UID,
            Self::Executable | Self::All => SET_UID | SET_GID,
        };
        mode & falls
    }
}

/// An extended attribute to be set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetXattr<'a> {
    /// Its name, with the namespace's prefix.
    pub name: &'a [u8],
    /// Its value, at most 65,536 bytes.
    pub value: &'a [u8],
    /// What is done where it is there, or is not.
    pub mode: XattrMode,
    /// Clear set-gid where an access ACL is set, as for a caller that is not in the file's group.
    pub clear_set_gid: bool,
}

/// How [`crate::Fs::setxattr`] treats an attribute that is there, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Set it in any case.
    #[default]
    Any,
    /// Fail with [`crate::Error::Exists`] where it is there.
    Create,
    /// Fail with [`crate::Error::NoAttribute`] where it is not.
    Replace,
    /// Fail as either does: both were asked for.
    Neither,
}

/// What a kernel has found that a name leads to when it judged who may take it away: an inode, or nothing. Outside of
/// a kernel, and where that is not known, none.
pub type Judged = Option<Option<Ino>>;

/// How `rename` treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Fail with [`crate::Error::Exists`].
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// Where to go on after this entry: the next `readdir` starts after it.
    pub cookie: u64,
    /// The inode it names.
    pub ino: Ino,
    /// That inode's generation.
    pub generation: u32,
    /// That inode's kind.
    pub kind: FileKind,
    /// Its name.
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    /// The inode that it names.
    #[must_use]
    pub const fn node(&self) -> Node {
        Node::new(self.ino, self.generation)
    }
}

/// What `fallocate` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Reserve pages, raise the size when the range ends beyond it.
    Extend,
    /// Reserve pages, keep the size.
    KeepSize,
    /// Make the range a hole, as far as the file goes; the size stays. Pages that it covers in part
    /// are replaced. Needs no more than the reserve of a full pool.
    PunchHole,
    /// Make the range zeros that have pages; raise the size when it ends beyond it. All of its pages
    /// are new ones, so that many must be free.
    ZeroRange,
    /// The same, but keep the size.
    ZeroRangeKeepSize,
    /// Take the range out of the file: what follows moves to its start. Of whole pages, and it ends
    /// before the file does; anything else is [`crate::Error::Invalid`].
    CollapseRange,
    /// Make a hole of that length, what was there moves after it. Of whole pages, and it starts
    /// before the file ends; anything else is [`crate::Error::Invalid`].
    InsertRange,
}

/// What `seek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next hole, the end of the file counting as one.
    Hole,
}

/// Space and inodes of a pool, in pages of 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Pages in all.
    pub pages: u64,
    /// Free pages.
    pub pages_free: u64,
    /// Free pages without the reserve for deletes and overwrites.
    pub pages_available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
}

/// What the view of a pool takes in the arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexMemory {
    /// Handed out so far; what was given back since is used again, for the same kind of block.
    pub used_bytes: u64,
    /// Of these, given back and not in use again.
    pub free_bytes: u64,
    /// Beyond this, the views of inodes that nobody has used lately are dropped.
    pub wanted_bytes: u64,
    /// What there may be at most.
    pub max_bytes: u64,
}

/// How opening a pool went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenReport {
    /// It had been closed clean.
    pub clean: bool,
    /// The allocator's state was read as it was saved; otherwise all inodes were scanned.
    pub from_saved: bool,
    /// Inodes in use.
    pub inodes: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Log entries scanned.
    pub log_entries: u64,
    /// Inodes whose state was taken from the journal, or replaced since its newest line was rejected.
    pub lines_installed: u64,
    /// Commit lines whose data had not arrived.
    pub lines_rejected: u64,
    /// Journal records whose data had not arrived.
    pub records_rejected: u64,
    /// Damaged places that were found: inodes, records, words of the inode directory. Only a pool
    /// opened read-only has any; what they hold can't be read.
    pub damaged: u64,
}

/// Log pages reclaimed since the pool was opened; beside them all operations read what never changes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct GcCounters {
    pub(crate) fast: AtomicU64,
    pub(crate) thorough: AtomicU64,
}

/// Log pages that collection has reclaimed since the pool was opened, by collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GcStats {
    /// By cutting pages out of the list.
    pub fast_pages: u64,
    /// By copying what is live, the new pages taken off.
    pub thorough_pages: u64,
}
