//! Where a mount is, held on to: a path may have come to lead to another one since it was looked up, by the
//! hand of who owns a directory on the way.

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
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        Path::new(&folder).join(&self.name)
    }
}
