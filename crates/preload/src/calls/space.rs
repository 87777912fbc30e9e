//! How much space there is: `statfs` and `fstatfs`.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::attributes::{Target, of_descriptor, target};
use crate::base::guard;
use crate::base::sys::{Args, Served, fail, sys};
use crate::fds::table::{self, BY_OTHER_MOUNT};
use crate::mounts;
use crate::mounts::state::{self, Rights};
use crate::paths::{descriptor, refused};

/// What the kernel says of each mount that does not change by use: the kind of its file system, its
/// flags. They are as they were when they were first asked for.
/// Null before; never freed.
static TOLD: [AtomicPtr<libc::statfs>; mounts::MOUNTS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; mounts::MOUNTS_MAX];

/// `statfs(path, buf)`.
pub(crate) fn of_path(args: &Args) -> Served {
    let found = target(libc::AT_FDCWD as u64, args[0], 0);
    found.and_then(|target| store(&target, args[1])).unwrap_or_else(|served| served)
}

/// `fstatfs(fd, buf)`.
pub(crate) fn of_file(args: &Args) -> Served {
    let description = table::get(descriptor(args[0]))?;
    let is_kernels = state::rights() == Rights::Kernel || description.is(BY_OTHER_MOUNT);
    let stored = if is_kernels {
        Err(None)
    } else {
        of_descriptor(&description).and_then(|target| store(&target, args[1]))
    };
    drop(description);
    stored.unwrap_or_else(|served| served).or_else(|| super::data::other(args))
}

fn store(target: &Target, at: u64) -> Result<Served, Served> {
    // Flags are the mount's, and not the pool's.
    let told = target.other_mount.is_none().then_some(target.mount).and_then(told);
    let mut found = *told.ok_or(None)?;
    let space = target.fs.statfs_of(target.attr.ino).map_err(|error| refused(&error))?;
    found.f_blocks = space.pages;
    found.f_bfree = space.pages_free;
    found.f_bavail = space.pages_available;
    found.f_files = space.inodes.saturating_add(space.inodes_free);
    found.f_ffree = space.inodes_free;
    if guard::store(at, &found) { Ok(Some(0)) } else { Err(Some(fail(libc::EFAULT))) }
}

fn told(mount: usize) -> Option<&'static libc::statfs> {
    let known = TOLD.get(mount)?;
    if known.load(Ordering::Acquire).is_null() {
        // Another thread may be doing the same.
        known.store(Box::leak(Box::new(ask(mount)?)), Ordering::Release);
    }
    // SAFETY: what stands there was leaked above.
    unsafe { known.load(Ordering::Acquire).as_ref() }
}

fn ask(mount: usize) -> Option<libc::statfs> {
    let mut path = mounts::all().get(mount)?.target.clone();
    path.push(0);
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    let got = sys!(libc::SYS_statfs, path.as_ptr(), found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    (got == 0).then_some(found)
}
