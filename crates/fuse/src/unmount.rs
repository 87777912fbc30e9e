//! Taking a Novale mount away, from outside its daemon.

use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::asking::ask;
use crate::mount::{MountError, called, detach, privileged};
use crate::place::Place;
use crate::{MountEntry, fusermount};

/// How long a daemon has to take what the kernel writes back before it is cut off.
const WRITE_BACK_MAX: Duration = Duration::from_secs(10);

/// What happens to files that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// They keep the mount from being taken away: [`MountError::Busy`].
    Politely,
    /// They stay usable, and the pool is closed after the last of them.
    Lazily,
    /// They fail from now on. Mapped pages that were written last may be lost.
    ByForce,
}

/// Takes a mount away that was found, and no other one, whatever its path leads to by now. Its daemon closes
/// the pool afterwards, on its own.
///
/// # Errors
/// No longer there, busy, or no right to unmount it.
pub fn unmount(mount: &MountEntry, how: Unmount) -> Result<(), MountError> {
    let target = mount.target.as_path();
    match how {
        Unmount::Lazily => detach(target, mount.device)?,
        _ if !privileged() => fusermount::unmount(target, how == Unmount::ByForce)?,
        Unmount::Politely => call(mount, UnmountFlags::NOFOLLOW)?,
        Unmount::ByForce => {
            write_back(target);
            // The cut comes with FORCE; DETACH, so that programs in the tree don't keep it there.
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
            call(mount, flags)?;
        }
    }
    Ok(())
}

fn call(mount: &MountEntry, flags: UnmountFlags) -> Result<(), MountError> {
    let place = Place::of(&mount.target, mount.device)?;
    rustix::mount::unmount(place.path(), flags).map_err(|error| match error {
        rustix::io::Errno::BUSY => MountError::Busy { target: mount.target.clone() },
        other => called("umount", &mount.target, other),
    })
}

/// Lets the kernel write mapped pages back, as far as the daemon still answers.
pub(crate) fn write_back(target: &Path) {
    let target = target.to_owned();
    let write = move || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(root) = rustix::fs::open(&target, flags, Mode::empty()) {
            // A dead or refusing daemon is about to be cut off: nothing is left to be done about it.
            rustix::fs::syncfs(&root).unwrap_or_default();
        }
    };
    // One that is late is cut off, too.
    ask("novale-sync", WRITE_BACK_MAX, write).map(drop).unwrap_or_default();
}
