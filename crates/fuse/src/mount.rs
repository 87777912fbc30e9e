//! Making a mount: mount(2) as root, fusermount3 for everybody else.
//!
//! fuser's own mount call is not used: it cannot show the type `fuse.novale` on a direct mount, and
//! takes some options its own way.

use std::ffi::{CString, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::asking::ask;
use crate::mount_table::{MountTable, canonical_target, is_dead};
use crate::place::{Place, Spot};
use crate::{MountEntry, MountOptions, UnknownOption, fusermount};

/// What follows `fuse.` in the type.
const SUBTYPE: &str = "novale";
/// The type in `/proc/mounts`.
pub const KIND: &str = "fuse.novale";
/// Dead mounts that are detached from one directory before something else must be wrong.
const DEAD_MAX: u32 = 16;

/// Why a mount could not be made, changed or taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point is no directory that can be mounted on.
    #[error("the mount point {}: {why}", target.display())]
    Target {
        /// The mount point as given.
        target: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The FUSE device.
    #[error("the FUSE device: {0}")]
    Device(#[source] io::Error),
    /// The mount was made, but could not be served.
    #[error("serving the mount: {0}")]
    Serve(#[source] io::Error),
    /// mount(2), or umount(2).
    #[error("{call} {}: {error}", target.display())]
    Call {
        /// The system call.
        call: &'static str,
        /// The mount point.
        target: PathBuf,
        /// What it returned.
        error: io::Error,
    },
    /// fusermount3, which mounts for users without privileges.
    #[error("fusermount3: {0}")]
    Fusermount(String),
    /// An option word.
    #[error(transparent)]
    Option(#[from] UnknownOption),
    /// No Novale mount is there.
    #[error("{} is not a Novale mount{}", target.display(), other.as_ref().map(|kind| format!(", but one of type {kind}")).unwrap_or_default())]
    NotMounted {
        /// The mount point.
        target: PathBuf,
        /// The type of what is mounted there, if anything.
        other: Option<String>,
    },
    /// It is the caller's own root directory. umount(2) says of that one that it is done, and makes its file system
    /// read-only, for all who have it.
    #[error("{} is the root directory of this program, which is not taken away under it", target.display())]
    OwnRoot {
        /// The mount point.
        target: PathBuf,
    },
    /// Files on the mount are open, or programs have their working directory there.
    #[error("{} is busy: files are open there, or it is some program's working directory", target.display())]
    Busy {
        /// The mount point.
        target: PathBuf,
    },
}

/// A mount that was made by [`mount`].
#[derive(Debug)]
pub struct Mounted {
    target: PathBuf,
    device: (u32, u32),
}

impl Mounted {
    /// The mount point, absolute.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Its device number, major and minor.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Whether the mount is still the one seen at its mount point.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        let table = MountTable::read()?;
        Ok(table.top(&self.target).is_some_and(|entry| entry.device == self.device))
    }

    /// Whether the connection is cut already: asks, and waits until a thread has answered or the last
    /// descriptor of the device is closed. An answer that is lost is not waited for.
    pub(crate) fn is_cut(&self, limit: Duration) -> io::Result<bool> {
        let (target, device) = (self.target.clone(), self.device);
        let is_cut = move || {
            let Ok(place) = Place::of(&target, device) else { return false };
            let answer = rustix::fs::statfs(place.path()).map_err(io::Error::from);
            answer.is_err_and(|error| is_dead(&error))
        };
        Ok(ask("novale-ask", limit, is_cut)?.unwrap_or(false))
    }

    /// Takes the mount out of the tree, and the other directories that show all of it with it, as far as nothing hides
    /// them; files that are open there stay usable. No error when it is out already: then others are left alone, for
    /// their device may be another one with the same number.
    pub(crate) fn detach(&self) -> Result<(), MountError> {
        if !self.is_there().map_err(MountError::Device)? {
            return Ok(());
        }
        let table = MountTable::read().map_err(MountError::Device)?;
        let others = table.all_whole(self.device).filter(|entry| entry.target != self.target);
        for entry in others.filter(|_| privileged()) {
            // Best effort: it is dead from now on, as a bind mount of a part is.
            detach(&entry.target, self.device).unwrap_or_default();
        }
        detach(&self.target, self.device)
    }

    /// Cuts the connection, so that what is still open fails: needs `/sys/fs/fuse/connections`.
    pub(crate) fn cut(&self) -> io::Result<()> {
        cut(self.device)
    }
}

/// Cuts the connection of the mount with a device number, in all namespaces: what is open fails from
/// then on, and its daemon ends.
///
/// # Errors
/// No such mount, another user's, or no `/sys/fs/fuse/connections` here.
pub fn cut((major, minor): (u32, u32)) -> io::Result<()> {
    let number = u64::from(major) << 20 | u64::from(minor);
    let switch = format!("/sys/fs/fuse/connections/{number}/abort");
    std::fs::OpenOptions::new().write(true).open(switch)?.write_all(b"1")
}

pub(crate) fn privileged() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts: from here on requests wait in the returned device.
///
/// # Errors
/// What is wrong with the mount point, `/dev/fuse` or the rights of the caller.
pub fn mount(
    options: &MountOptions,
    source: &OsStr,
    target: &Path,
) -> Result<(OwnedFd, Mounted), MountError> {
    let spot = Spot::of(target)?;
    let device = if privileged() {
        mount_directly(options, source, &spot)?
    } else {
        fusermount::mount(&options.fusermount_words(), source, SUBTYPE, &spot.now()?)?
    };
    let target = spot.now()?;
    let table = MountTable::read().map_err(MountError::Device)?;
    let top = table.top(&target).filter(|entry| entry.kind == KIND);
    let number = top.map(|entry| entry.device).ok_or_else(|| MountError::NotMounted {
        target: target.clone(),
        other: table.top(&target).map(|entry| entry.kind.clone()),
    })?;
    Ok((device, Mounted { target, device: number }))
}

fn mount_directly(
    options: &MountOptions,
    source: &OsStr,
    spot: &Spot,
) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| MountError::Device(error.into()))?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        if options.allow_other == Some(false) { "" } else { ",allow_other" },
    );
    let data = CString::new(data).map_err(|_| MountError::Device(io::ErrorKind::Other.into()))?;
    rustix::mount::mount(source, spot.path(), KIND, options.flags(), data.as_c_str())
        .or_else(|error| Err(called("mount", &spot.now()?, error)))?;
    Ok(device)
}

/// Changes the flags of an existing mount: read-only and back, nosuid, access times and so on. A pool
/// opened read-only refuses writes whatever the mount says.
///
/// # Errors
/// No right to change it; [`MountError::NotMounted`] where it is no longer there.
pub fn remount(options: &MountOptions, mount: &MountEntry) -> Result<(), MountError> {
    let place = Place::of(&mount.target, mount.device)?;
    rustix::mount::mount_remount(place.path(), options.flags(), c"")
        .map_err(|error| called("remount", &mount.target, error))
}

/// Shows a mount in a second directory, with options of its own there.
///
/// # Errors
/// No right to mount; [`MountError::NotMounted`] where its mount point has come to lead elsewhere.
pub fn mount_again(
    options: &MountOptions,
    mount: &MountEntry,
    target: &Path,
) -> Result<(), MountError> {
    let spot = Spot::of(target)?;
    let shown = Place::of(&mount.target, mount.device)?;
    rustix::mount::mount_bind(shown.path(), spot.path())
        .map_err(|error| called("mount", target, error))?;
    let flags = options.flags() | MountFlags::BIND;
    rustix::mount::mount_remount(spot.place()?.path(), flags, c"")
        .map_err(|error| called("remount", target, error))
}

/// Detaches mounts of Novale from a directory whose daemons are gone; how many there were.
///
/// # Errors
/// When something dead there is no Novale mount, or cannot be detached.
pub fn detach_dead(target: &Path) -> Result<u32, MountError> {
    let mut detached = 0;
    while detached < DEAD_MAX {
        match std::fs::metadata(target) {
            Err(error) if is_dead(&error) => {}
            _ => break,
        }
        let dead = find(target)?;
        detach(&dead.target, dead.device)?;
        detached += 1;
    }
    Ok(detached)
}

/// The Novale mount at a directory, dead or alive.
///
/// # Errors
/// [`MountError::NotMounted`] when nothing or something else is mounted there.
pub fn find(target: &Path) -> Result<MountEntry, MountError> {
    let canonical = canonical_target(target).map_err(|error| MountError::Target {
        target: target.to_owned(),
        why: error.to_string(),
    })?;
    let table = MountTable::read().map_err(MountError::Device)?;
    match table.top(&canonical) {
        Some(entry) if entry.kind == KIND => Ok(entry.clone()),
        other => Err(MountError::NotMounted {
            target: canonical,
            other: other.map(|entry| entry.kind.clone()),
        }),
    }
}

/// Detaches the mount with this device number, if it is there.
pub(crate) fn detach(target: &Path, device: (u32, u32)) -> Result<(), MountError> {
    if !privileged() {
        return detach_top(target);
    }
    detach_top(&Place::of(target, device)?.path())
}

fn detach_top(target: &Path) -> Result<(), MountError> {
    if privileged() {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(target, flags).map_err(|error| called("umount", target, error))
    } else {
        fusermount::unmount(target, true)
    }
}

pub(crate) fn called(call: &'static str, target: &Path, error: rustix::io::Errno) -> MountError {
    MountError::Call { call, target: target.to_owned(), error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It went where the path led by then.
    #[test]
    fn a_mount_is_made_on_the_directory_that_was_looked_at() {
        if !privileged() || !Path::new("/dev/fuse").exists() {
            println!("skipped: only root mounts directly");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name| folder.path().canonicalize().unwrap().join(name);
        let (looked_at, moved, other) = (at("looked_at"), at("moved"), at("other"));
        std::fs::create_dir(&looked_at).unwrap();
        std::fs::create_dir(&other).unwrap();
        let spot = Spot::of(&looked_at).unwrap();
        std::fs::rename(&looked_at, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &looked_at).unwrap();
        let options = MountOptions::default();
        let device = mount_directly(&options, OsStr::new("none"), &spot).unwrap();
        let table = MountTable::read().unwrap();
        let place = spot.place().unwrap();
        let on_moved = table.top(&moved).filter(|entry| entry.kind == KIND).cloned();
        let is_on_other = table.top(&other).is_some();
        detach_top(&if is_on_other { other } else { place.path() }).unwrap();
        drop(device);
        assert!(on_moved.is_some() && !is_on_other);
        assert_eq!(spot.now().unwrap(), moved);
    }
}
