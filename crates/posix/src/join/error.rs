//! Why a pool can't be joined.

use std::io;
use std::path::PathBuf;

use novale_arena::ArenaError;
use novale_pm::{DeviceError, PmError};

use crate::errno::{errno, pm_errno};

/// Why a pool can't be joined, or opened for others to join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Nobody has the pool open.
    #[error("nobody has the pool open: mount it (novale mount -o direct)")]
    NotOpen,
    /// Somebody has the pool open alone: a mount that lets the kernel cache, a check, a repair.
    #[error(
        "{}: is in use by somebody who shares it with nobody: a mount takes others in with -o direct",
        slot.display()
    )]
    NotShared {
        /// The slot.
        slot: PathBuf,
    },
    /// The arena is another user's, or others may write it: who joins would have to trust them.
    #[error(
        "{}: is another user's, or others may write it: only the user who has the pool open can join",
        path.display()
    )]
    Foreign {
        /// The arena.
        path: PathBuf,
    },
    /// The pool is opened or closed just now: trying again soon helps.
    #[error("the pool is being opened or closed: try again")]
    Changing,
    /// The slots.
    #[error(transparent)]
    Pm(PmError),
    /// The pool.
    #[error(transparent)]
    Core(novale_core::Error),
    /// The arena: of another build, of another container, or damaged.
    #[error(transparent)]
    Arena(ArenaError),
    /// All who had the pool open were killed, and what they had only buffered can't be written back.
    #[error(
        "{}: has bytes of programs that were killed before these were in the pool, and writing them back \
         failed: {source}; without that file they are given up",
        path.display()
    )]
    LeftBehind {
        /// Their arena.
        path: PathBuf,
        /// Why not.
        source: novale_core::Error,
    },
    /// All who had the pool open were killed, and what they had only buffered is not in it: a pool that is
    /// only read does not get it.
    #[error(
        "{}: has bytes of programs that were killed before these were in the pool: mount it once for writing, \
         with all slots, which puts them there; to see the pool without them, move that file out of its folder and, \
         unmounted, back; without it they are given up",
        path.display()
    )]
    LeftToWrite {
        /// Their arena.
        path: PathBuf,
    },
    /// The device that was to be emulated.
    #[error(transparent)]
    Device(DeviceError),
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was looked at.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl JoinError {
    pub(crate) fn io(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }

    /// The errno that stands for this error, positive as in `<errno.h>`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotOpen => libc::ENOENT,
            Self::NotShared { .. } => libc::EBUSY,
            Self::Foreign { .. } => libc::EACCES,
            Self::Changing => libc::EAGAIN,
            Self::LeftToWrite { .. } => libc::EROFS,
            Self::Pm(error) => pm_errno(error),
            Self::Core(error) | Self::LeftBehind { source: error, .. } => errno(error),
            Self::Arena(ArenaError::OtherBuild { .. }) => libc::ELIBBAD,
            Self::Arena(ArenaError::Full(_)) | Self::Device(DeviceError::NoMemory) => libc::ENOMEM,
            Self::Arena(ArenaError::NoClientSlot(_)) => libc::EUSERS,
            Self::Arena(ArenaError::Io { source, .. }) | Self::Io { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Self::Arena(_) => libc::EIO,
            Self::Device(DeviceError::Spelling(_)) => libc::EINVAL,
            Self::Device(_) => libc::EOPNOTSUPP,
        }
    }

    /// Whether the caller may not use the pool directly, though others may.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::Pm(PmError::Permission { .. }))
    }
}

impl From<PmError> for JoinError {
    fn from(error: PmError) -> Self {
        if let PmError::InUse { path } = error {
            return Self::NotShared { slot: path };
        }
        Self::Pm(error)
    }
}

impl From<novale_core::Error> for JoinError {
    fn from(error: novale_core::Error) -> Self {
        if matches!(error, novale_core::Error::Closed) { Self::Changing } else { Self::Core(error) }
    }
}

impl From<DeviceError> for JoinError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<ArenaError> for JoinError {
    fn from(error: ArenaError) -> Self {
        if matches!(error, ArenaError::NotFound { .. }) {
            Self::NotOpen
        } else {
            Self::Arena(error)
        }
    }
}
