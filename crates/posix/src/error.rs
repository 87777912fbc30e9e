//! The errors of the path and descriptor layer.

use crate::Fd;

/// What a call on [`crate::Files`] can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused or failed.
    #[error(transparent)]
    Fs(#[from] novale_core::Error),
    /// No such descriptor is open.
    #[error("descriptor {0} is not open")]
    BadDescriptor(Fd),
    /// The file was opened without the access that the call needs.
    #[error("file is not open for {0}")]
    WrongAccess(&'static str),
    /// The kernel does not map it.
    #[error("not mapped: {0}")]
    NotMapped(std::io::Error),
    /// Two files of one operation lie in different pools.
    #[error("the files lie in different pools")]
    OtherPool,
    /// More symbolic links on the way than are followed.
    #[error("more than {0} symbolic links on the way")]
    TooManySymlinks(u32),
    /// A path longer than a path may be.
    #[error("path of {found} bytes, at most {limit} are taken")]
    PathTooLong {
        /// The path's length in bytes.
        found: usize,
        /// The greatest length in bytes.
        limit: usize,
    },
    /// The descriptor table is full.
    #[error("all {0} descriptors are open")]
    TooManyOpen(usize),
    /// The last component is `.`, `..` or the root, where a name is needed.
    #[error("path ends in '.', '..' or '/', where a name is needed")]
    NotAName,
    /// The path leads out of the file system, where only the kernel can go on.
    #[error("the path leads out of the file system")]
    Leaves,
    /// The same by a symbolic link: a path from the process' root, at which the walk goes on.
    #[error("a symbolic link leads out of the file system")]
    LeavesTo(Vec<u8>),
    /// A symbolic link at the end of a path that must not be one.
    #[error("is a symbolic link")]
    IsSymlink,
}

/// The result of a call on [`crate::Files`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The errno that stands for this error, positive as in `<errno.h>`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Fs(error) => crate::errno(error),
            Self::BadDescriptor(_) | Self::WrongAccess(_) => libc::EBADF,
            Self::NotMapped(error) => error.raw_os_error().unwrap_or(libc::ENODEV),
            Self::TooManySymlinks(_) | Self::IsSymlink => libc::ELOOP,
            Self::PathTooLong { .. } => libc::ENAMETOOLONG,
            Self::TooManyOpen(_) => libc::EMFILE,
            Self::NotAName => libc::EINVAL,
            Self::Leaves | Self::LeavesTo(_) | Self::OtherPool => libc::EXDEV,
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}
