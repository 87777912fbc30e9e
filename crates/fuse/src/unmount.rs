//! Taking a Novale mount away, from outside its daemon.

use std::path::Path;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::asking::ask;
use crate::mount::{MountError, called, detach, privileged};
use crate::place::Place;
use crate::{MountEntry, fusermount};

/// How long a daemon has to take what the kernel writes back before it is cut off.
const WRITE_BACK_MAX: Duration = Duration::from_secs(10);

/// How long a mount that is busy is tried again: whoever looks at all mounts has each open for a moment.
const BUSY_MAX: Duration = Duration::from_millis(500);
const BUSY_TRIES_APART: Duration = Duration::from_millis(10);

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
/// No longer there, busy, or no right to unmount it; [`MountError::OwnRoot`].
pub fn unmount(mount: &MountEntry, how: Unmount) -> Result<(), MountError> {
    let target = mount.target.as_path();
    match how {
        Unmount::Lazily => detach(target, mount.device),
        Unmount::Politely if target == Path::new("/") => {
            Err(MountError::OwnRoot { target: target.to_owned() })
        }
        Unmount::Politely if !privileged() => patiently(|| fusermount::unmount(target, false)),
        Unmount::Politely => patiently(|| call(mount, UnmountFlags::NOFOLLOW)),
        Unmount::ByForce if !privileged() => fusermount::unmount(target, true),
        Unmount::ByForce => {
            write_back(target);
            // The cut comes with FORCE; DETACH, so that programs in the tree don't keep it there.
            let flags = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH;
            call(mount, flags)
        }
    }
}

/// Unmounts as soon as nobody keeps the mount busy, if that is soon.
fn patiently(unmount: impl Fn() -> Result<(), MountError>) -> Result<(), MountError> {
    let begun = Instant::now();
    loop {
        match unmount() {
            Err(MountError::Busy { .. }) if begun.elapsed() < BUSY_MAX => {
                park_timeout(BUSY_TRIES_APART);
            }
            done => return done,
        }
    }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_mount_that_is_busy_for_a_moment_goes_and_one_that_stays_so_is_told() {
        let tries = Cell::new(0);
        let busy_until = |last: u32| {
            tries.set(tries.get() + 1);
            let busy = MountError::Busy { target: "/mnt".into() };
            if tries.get() < last { Err(busy) } else { Ok(()) }
        };
        patiently(|| busy_until(3)).unwrap();
        assert_eq!(tries.get(), 3);
        assert!(matches!(patiently(|| busy_until(u32::MAX)), Err(MountError::Busy { .. })));
        // Whatever else keeps it there is told at once.
        tries.set(0);
        let refused = || {
            tries.set(tries.get() + 1);
            Err(MountError::Fusermount("no right".to_owned()))
        };
        assert!(patiently(refused).is_err() && tries.get() == 1);
    }
}
