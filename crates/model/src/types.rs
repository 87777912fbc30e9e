//! Plain types of the model, the same in meaning as those of the product's library.

use std::fmt;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The greatest file size, in bytes: that of Novale, 2^35 pages.
pub const MAX_FILE_BYTES: u64 = 1 << 47;

/// An inode's number; the model never uses one twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Which reads change a file's access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Atime {
    /// None.
    #[default]
    Noatime,
    /// The first after a change, and the first of a day.
    Relatime,
    /// Each.
    Strict,
}

/// An inode's attributes; times in ns since 1970, size in bytes (0 for a directory).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attr {
    /// The inode's number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Names (a directory: 2 and one for each subdirectory; 0 once removed).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, else 0.
    pub rdev: u32,
    /// The directory tree that it counts for, 0: none.
    pub project: u32,
    /// Length of a file's contents or of a symlink's target.
    pub size: u64,
    /// Last access.
    pub atime_ns: i64,
    /// Last change of the contents.
    pub mtime_ns: i64,
    /// Last change of the contents or the attributes.
    pub ctime_ns: i64,
    /// Creation.
    pub birth_ns: i64,
}

/// What a new inode is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInode {
    /// What it is.
    pub kind: Kind,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the parent directory is set-gid: then the parent's.
    pub gid: u32,
    /// Device number; kept for devices alone.
    pub rdev: u32,
    /// A symlink's target.
    pub target: Vec<u8>,
}

/// Changes of attributes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length to cut or extend to.
    pub size: Option<u64>,
    /// Access time, ns.
    pub atime_ns: Option<i64>,
    /// Modification time, ns.
    pub mtime_ns: Option<i64>,
    /// Directory tree to count for.
    pub project: Option<u32>,
    /// How it is written from now on, by number, which a model does not tell apart.
    pub method: Option<u8>,
    /// Clear set-uid, and set-gid where the group may execute.
    pub clear_set_id: bool,
}

/// What is done to a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeOp {
    /// Make it zeros, as far as the file goes.
    Punch,
    /// Make it zeros; the size rises to cover it.
    Zero,
    /// Make it zeros; the size stays.
    ZeroKeepSize,
    /// Take it out.
    Collapse,
    /// Put zeros in.
    Insert,
}

/// How a rename treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Fail.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// How setting an extended attribute treats one that is there, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XattrMode {
    /// Set it in any case.
    #[default]
    Any,
    /// Fail where it is there.
    Create,
    /// Fail where it is not.
    Replace,
}

/// Why an operation failed; nothing was changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// No entry of that name, or a directory that was removed.
    NotFound,
    /// The name exists already.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// A directory was given where none may be.
    IsDirectory,
    /// A directory to be removed or replaced has entries.
    NotEmpty,
    /// A name of 0 bytes, or one with a NUL or a slash.
    InvalidName,
    /// A name above [`NAME_BYTES_MAX`].
    NameTooLong,
    /// An argument out of range.
    Invalid,
    /// Not allowed on this kind of inode.
    NotPermitted,
    /// An offset or a size above [`MAX_FILE_BYTES`].
    TooLarge,
    /// From one directory tree with a quota into another.
    OtherTree,
    /// The limit of a directory tree.
    QuotaExceeded,
    /// More names than can be counted.
    TooManyLinks,
    /// The inode was removed for good.
    Stale,
    /// Pages of the file are mapped, and would have to move.
    Busy,
    /// No space; the model itself never runs out of it.
    NoSpace,
    /// No memory; the model itself never runs out of it.
    NoMemory,
    /// Read-only; the model itself never is.
    ReadOnly,
    /// No data or hole at or beyond that offset.
    NoSuchOffset,
    /// No extended attribute of that name.
    NoAttribute,
    /// An extended attribute's name of 0 bytes, or above 255.
    NameRange,
    /// An extended attribute's value above 65,536 bytes.
    ValueTooLong,
    /// What this kind of inode has not, and the caller may not ask for.
    Denied,
    /// Not implemented for this kind of inode.
    Unsupported,
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Error {}
