//! Where a mount is or is to be, held on to: a path may have come to lead to another place since it was looked
//! up, by the hand of who owns a directory on the way.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::mount::{MountError, called};

/// A name in a directory on which a mount was seen. As long as it is mounted, the kernel lets nobody move it.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: OsString,
}

impl Place {
    /// The place at `target`, if the mount with this device number is there.
    pub(crate) fn of(target: &Path, device: (u32, u32)) -> Result<Self, MountError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = target.parent().unwrap_or(target);
        let folder = rustix::fs::open(folder, flags, Mode::empty())
            .map_err(|error| called("open", target, error))?;
        let name = target.file_name().map_or_else(|| OsString::from("."), OsString::from);
        // It asks no daemon.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&folder, &name, flags, StatxFlags::empty())
            .map_err(|error| called("statx", target, error))?;
        if (found.stx_dev_major, found.stx_dev_minor) != device {
            return Err(MountError::NotMounted { target: target.to_owned(), other: None });
        }
        Ok(Self { folder, name })
    }

    /// A path that leads there whatever becomes of the directories above.
    pub(crate) fn path(&self) -> PathBuf {
        // A thread may have descriptors of its own.
        let folder = format!("/proc/thread-self/fd/{}", self.folder.as_raw_fd());
        Path::new(&folder).join(&self.name)
    }
}

/// A directory to mount on, from when it was looked at.
#[derive(Debug)]
pub(crate) struct Spot(OwnedFd);

impl Spot {
    /// The directory that a path leads to now.
    pub(crate) fn of(target: &Path) -> Result<Self, MountError> {
        let wrong = |error: std::io::Error| {
            let why = match error.raw_os_error() {
                Some(libc::ENOTDIR) if target.exists() => "not a directory".to_owned(),
                _ => error.to_string(),
            };
            MountError::Target { target: target.to_owned(), why }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let spot =
            rustix::fs::open(target, flags, Mode::empty()).map_err(|error| wrong(error.into()))?;
        // On a mount whose daemon is gone nothing is mounted.
        rustix::fs::fstat(&spot).map_err(|error| wrong(error.into()))?;
        Ok(Self(spot))
    }

    /// A path that leads to the directory itself, below whatever is mounted on it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Where it is by now, absolute and without links.
    pub(crate) fn now(&self) -> Result<PathBuf, MountError> {
        let path = self.path();
        std::fs::read_link(&path).map_err(|error| MountError::Call {
            call: "readlink",
            target: path,
            error,
        })
    }

    /// The place of what is mounted on it.
    pub(crate) fn place(&self) -> Result<Place, MountError> {
        let now = self.now()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.0, "..", flags, Mode::empty())
            .map_err(|error| called("open", &now, error))?;
        let name = now.file_name().map_or_else(|| OsString::from("."), OsString::from);
        Ok(Place { folder, name })
    }
}
