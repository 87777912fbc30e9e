//! By which mount a pool is used: the one that it was joined by, or the next one of the same pool at the mount
//! point, since a daemon that is killed takes its mount along.
//!
//! What else lies at the mount point by now is nobody's here: another pool's mount, whose inodes have the same
//! numbers, or a folder of another user's.

use std::sync::atomic::{AtomicU64, Ordering};

use novale_core::{Fs, Ino};

use crate::base::sys::Ret;
use crate::mounts::facts::{self, STATX_MNT_ID_UNIQUE};
use crate::mounts::{JOINING, Mount, all, device_of, fs, numbers_in, with_device};
use crate::numbers::limits;

/// Said in [`Mount::numbers`] of a number that the kernel does not have.
const NONE: u64 = u64::MAX;

/// What the kernel shows for the mount that came before, whose root is still kept: the working directory may be in it.
#[derive(Default)]
pub(super) struct Former {
    pub(super) device: AtomicU64,
    /// The number that is never given twice.
    own: AtomicU64,
}

/// The mount of the pool at the mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Known,
    /// It has come since, and is the known one from here on.
    Next,
}

impl Mount {
    /// Whether the mount with a number that is never given twice is the known one, or the one before.
    pub(super) fn is_own(&self, number: u64) -> bool {
        let own = [&self.own, &self.former.own];
        number != 0 && own.iter().any(|own| own.load(Ordering::Acquire) == number)
    }

    /// The inode that a path with a NUL, or a descriptor with an empty one, leads to by the known mount.
    fn inode(&self, dir: i32, path: &[u8]) -> Option<Ino> {
        let seen = if let Some(seen) = facts::look(dir, path, 0) {
            Some(seen).filter(|seen| self.is_own(seen.mount))?
        } else {
            // Its root is kept, so that nobody else has these numbers.
            let known = [self.number(0), self.device.load(Ordering::Acquire)];
            facts::guess(dir, path)
                .filter(|seen| !known.contains(&0) && [seen.mount, seen.device] == known)?
        };
        Some(Ino::new(seen.ino))
    }

    /// One of the numbers that the kernel shows for the mount; 0 where it has none.
    fn number(&self, which: usize) -> u64 {
        let masks = [libc::STATX_MNT_ID, STATX_MNT_ID_UNIQUE];
        let (Some(known), Some(mask)) = (self.numbers.get(which), masks.get(which)) else {
            return 0;
        };
        let mut number = known.load(Ordering::Acquire);
        if number == 0 {
            number = Some(super::number(self, *mask)).filter(|found| *found != 0).unwrap_or(NONE);
            known.store(number, Ordering::Release);
        }
        if number == NONE { 0 } else { number }
    }

    /// Looks at what lies at the mount point: its device, and whether a living client of the pool serves it, which is
    /// the known mount from here on.
    pub(super) fn look(&self, fs: &Fs) -> (u64, bool) {
        let path = [self.target.as_slice(), b"\0"].concat();
        let seen = facts::look(libc::AT_FDCWD, &path, 0);
        let device = seen.map_or_else(|| device_of(&self.target), |seen| seen.device);
        // A folder of it may be mounted over it.
        let is_root = seen.is_none_or(|seen| Ino::new(seen.ino) == Ino::ROOT);
        let is_own = is_root && serves(fs, device);
        if is_own {
            // The number and the device were told by one answer.
            self.note(device, seen.map_or(0, |seen| seen.mount));
        }
        (device, is_own)
    }

    fn note(&self, device: u64, own: u64) {
        let before = self.device.load(Ordering::Acquire);
        if before == device && self.own.load(Ordering::Acquire) == own {
            return;
        }
        let root = self.root.load(Ordering::Acquire);
        let is_first = self.former.device.load(Ordering::Acquire) == 0;
        if before != device && before != 0 && root != 0 && is_first {
            let kept = facts::look(root, b"\0", 0).or_else(|| facts::guess(root, b"\0"));
            if kept.is_some_and(|kept| kept.device == before) {
                self.former.own.store(self.own.load(Ordering::Acquire), Ordering::Release);
                self.former.device.store(before, Ordering::Release);
            }
        }
        self.device.store(device, Ordering::Release);
        self.own.store(own, Ordering::Release);
        for (which, number) in self.numbers.iter().enumerate() {
            number.store(0, Ordering::Release);
            // Where no number is for good they are asked for while the device is the pool's.
            if own == 0 {
                self.number(which);
            }
        }
    }
}

/// The numbers that the kernel shows for a mount: the short one, and the one that is never given twice.
pub(crate) fn numbers_of(mount: usize) -> [u64; 2] {
    all().get(mount).map_or([0; 2], |known| [0, 1].map(|which| known.number(which)))
}

/// The inode that the kernel has opened by the known mount. Nobody is asked for it.
pub(crate) fn own_inode(mount: usize, fd: Ret) -> Option<Ino> {
    all().get(mount)?.inode(i32::try_from(fd).ok()?, b"\0")
}

/// The inode of a joined pool that the kernel has opened by whatever mount, in another namespace too: it lies on a device
/// that a living client of the pool serves. Nobody is asked for it.
pub(crate) fn served(fd: i32) -> Option<(usize, Ino)> {
    let seen = facts::look(fd, b"\0", 0).or_else(|| facts::guess(fd, b"\0"))?;
    let mount = with_device(seen.device)?;
    serves(fs(mount)?, seen.device).then_some((mount, Ino::new(seen.ino)))
}

/// The device that a descriptor's file lies on; 0 where that is not known. Nobody is asked for it.
pub(crate) fn device_by(fd: i32) -> u64 {
    let seen = facts::look(fd, b"\0", 0).or_else(|| facts::guess(fd, b"\0"));
    seen.map_or(0, |seen| seen.device)
}

/// Whether a living client of a pool serves a device, which is there: else its number may be another's.
pub(crate) fn serves(fs: &Fs, device: u64) -> bool {
    device != 0 && limits::undisturbed(|| fs.serves_mount(numbers_in(device)))
}

/// Whether the known mount lies at the mount point. Nobody is asked for it.
pub(crate) fn is_there_still(mount: usize) -> bool {
    let at_target = |known: &Mount| {
        let path = [known.target.as_slice(), b"\0"].concat();
        known.inode(libc::AT_FDCWD, &path)
    };
    all().get(mount).and_then(at_target) == Some(Ino::ROOT)
}

/// The mount of the pool at the mount point, if there is one. Not with the numbers locked.
pub(crate) fn there(mount: usize) -> Option<There> {
    if is_there_still(mount) {
        return Some(There::Known);
    }
    let (known, fs) = (all().get(mount)?, fs(mount)?);
    // Who joins looks at the same.
    let _joining = JOINING.lock();
    // Another mount of the pool may show a part of it there.
    let is_root = |seen: &facts::Seen| seen.ino == Ino::ROOT.get();
    let path = [known.target.as_slice(), b"\0"].concat();
    let is_whole = facts::look(libc::AT_FDCWD, &path, 0).is_none_or(|seen| is_root(&seen));
    (is_whole && known.look(fs).1).then_some(There::Next)
}
