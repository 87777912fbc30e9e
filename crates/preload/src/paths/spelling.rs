//! Paths that lead into a mount and do not begin with its mount point: relative ones from outside, and
//! those with `..`, `.` or more slashes than they need.
//!
//! What a name stands for outside the mounts is the kernel's to say: it may be a symbolic link. Known
//! are the directories above a mount point alone, its *way*: each was a directory, under this name,
//! when the mount was found. So a path is followed as far as it stays on a way, from a directory whose
//! place is known, and is the kernel's where it leaves it.
//!
//! Comes in: a path and where it starts. Goes out: a mount, and what of the path is left for it.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use novale_core::Ino;

use crate::base::guard::PATH_MAX;
use crate::base::lock::Lock;
use crate::base::sys::sys;
use crate::fds::quiet;
use crate::mounts;
use crate::mounts::state::{self, Rights};
use crate::paths::outside;

/// By which the kernel names the directory of the process and its root: the same as without them.
const ROOTS: [&[u8]; 2] = [b"/proc/self/root/", b"/proc/thread-self/root/"];
const CWDS: [&[u8]; 2] = [b"/proc/self/cwd/", b"/proc/thread-self/cwd/"];

/// The working directory's path, where it lies outside all mounts and is known.
static CWD: Lock<Vec<u8>> = Lock::new(Vec::new());

/// What a path leads to: a mount, and what of the path is left for it.
pub(crate) type LedTo<'a> = Option<(usize, &'a [u8])>;

/// Where a path starts that does not start in a mount.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Root,
    Cwd,
    Descriptor(i32),
}

/// A directory and a path from it, without what says only that it is the root or the working directory.
pub(crate) fn plain(dir: u64, path: &[u8]) -> (u64, &[u8]) {
    if !path.starts_with(b"/proc/") {
        return (dir, path);
    }
    if let Some(root) = ROOTS.iter().find(|root| path.starts_with(root)) {
        // The slash at its end is the root's.
        return (dir, path.get(root.len() - 1..).unwrap_or(path));
    }
    let Some(rest) = CWDS.iter().find_map(|cwd| path.strip_prefix(*cwd)) else {
        return (dir, path);
    };
    let name = rest.iter().position(|byte| *byte != b'/');
    let rest = name.and_then(|at| rest.get(at..)).unwrap_or(b".");
    (libc::AT_FDCWD as u64, rest)
}

/// The mount that a path leads into from outside all mounts.
pub(crate) fn enter(from: From, path: &[u8]) -> LedTo<'_> {
    match from {
        // Each mount point was looked for already as it is written.
        From::Root if is_plain(path) => None,
        From::Root => enter_any(b"", path),
        From::Cwd => enter_any(&CWD.lock(), path),
        From::Descriptor(fd) => {
            let (way, step) = directory(fd, path)?;
            enter_any(way.step(step), path)
        }
    }
}

/// The mount that a path from the root leads into as it is written.
pub(crate) fn written(path: &[u8]) -> LedTo<'_> {
    mounts::of_path(path).or_else(|| enter(From::Root, path))
}

/// Whether each component of an absolute path is a name.
fn is_plain(path: &[u8]) -> bool {
    !path.windows(2).any(|two| two == b"//" || two == b"/.")
}

fn enter_any<'a>(from: &[u8], path: &'a [u8]) -> LedTo<'a> {
    let of = |(index, mount): (usize, &mounts::Mount)| {
        let target = mount.target.as_slice();
        // The kernel has let the user come to the mount on its way, and not through other directories.
        let on_way = || is_on_way(from, target) || state::rights() == Rights::All;
        on_way().then(|| follow(target, from, path)).flatten().map(|rest| (index, rest))
    };
    mounts::all().iter().enumerate().find_map(of)
}

/// Whether a directory, the root as no bytes, is above a mount point.
fn is_on_way(directory: &[u8], target: &[u8]) -> bool {
    target.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Follows a path from a directory until it comes to a mount point: the rest of the path.
fn follow<'a>(target: &[u8], from: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let mut at = from;
    let mut next = 0;
    loop {
        let rest = path.get(next..)?;
        next += rest.iter().position(|byte| *byte != b'/')?;
        let rest = path.get(next..)?;
        let len = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let name = rest.get(..len)?;
        next += len;
        match name {
            b"." => {}
            b".." => {
                let parent = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                at = at.get(..parent)?;
            }
            _ => {
                let below = target.strip_prefix(at)?.strip_prefix(b"/")?.strip_prefix(name)?;
                match below {
                    [] => return path.get(next..),
                    [b'/', ..] => at = target.get(..target.len() - below.len())?,
                    _ => return None,
                }
            }
        }
    }
}

/// What tells a directory from all others, in this process' mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    mount: u64,
    device: u64,
    ino: u64,
}

/// The identity of what a path or, with an empty one, a descriptor leads to.
fn identity(fd: i32, path: *const u8) -> Option<Identity> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_INO | libc::STATX_MNT_ID;
    let got = sys!(libc::SYS_statx, fd, path, flags, mask, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let known = got == 0 && found.stx_mask & mask == mask;
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    known.then_some(Identity { mount: found.stx_mnt_id, device, ino: found.stx_ino })
}

/// The directories above a mount point, from the root on.
struct Way {
    target: &'static [u8],
    steps: Vec<Step>,
}

struct Step {
    /// Bytes of the mount point's path.
    len: usize,
    identity: Option<Identity>,
}

impl Way {
    fn new(target: &'static [u8]) -> Self {
        let ends = target.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let step = |(len, _): (usize, &u8)| {
            let path = [target.get(..len).unwrap_or_default(), b"/\0"].concat();
            Step { len, identity: identity(libc::AT_FDCWD, path.as_ptr()) }
        };
        Self { target, steps: ends.map(step).collect() }
    }

    /// The path of a directory on the way.
    fn step(&self, step: usize) -> &'static [u8] {
        let len = self.steps.get(step).map_or(0, |step| step.len);
        self.target.get(..len).unwrap_or_default()
    }
}

/// The ways of all mounts, as they were when one was first asked for.
fn ways() -> &'static [Way] {
    static WAYS: AtomicPtr<Vec<Way>> = AtomicPtr::new(std::ptr::null_mut());
    let known = WAYS.load(Ordering::Acquire);
    // SAFETY: what stands there was leaked below.
    if let Some(known) = unsafe { known.as_ref() } {
        return known;
    }
    // Threads that come here at once find the same; a fork finds none of them in the middle of it.
    let ways: Vec<Way> = mounts::all().iter().map(|mount| Way::new(&mount.target)).collect();
    let ways = Box::leak(Box::new(ways));
    WAYS.store(ways, Ordering::Release);
    ways
}

/// The directory on a way that is open as `fd`, where the path may lead on to a mount from one.
fn directory(fd: i32, path: &[u8]) -> Option<(&'static Way, usize)> {
    let first = path.split(|byte| *byte == b'/').find(|name| !matches!(*name, b"" | b"."))?;
    let leads_on = |way: &Way| way.target.split(|byte| *byte == b'/').any(|name| name == first);
    if first != b".." && !ways().iter().any(leads_on) {
        return None;
    }
    let identity = Some(identity(fd, c"".as_ptr().cast())?);
    ways().iter().find_map(|way| {
        let step = way.steps.iter().position(|step| step.identity == identity)?;
        Some((way, step))
    })
}

/// Whether the kernel's working directory is this one of a mount.
pub(crate) fn is_working_directory(mount: usize, ino: Ino) -> bool {
    let here = identity(libc::AT_FDCWD, c"".as_ptr().cast());
    here.is_some_and(|here| {
        here.ino == ino.get() && mounts::with_device(here.device) == Some(mount)
    })
}

/// The working directory's path, as the kernel names it with a NUL after it, where it is outside of all mounts; one
/// that leads to nothing where that is another directory than what has the name now.
pub(crate) fn working_directory_outside(path: Option<&[u8]>) -> &[u8] {
    let named = path.filter(|path| path.starts_with(b"/") && path.len() < PATH_MAX);
    // Without a name: to go through one the kernel asks for the directory's permissions.
    let here = identity(libc::AT_FDCWD, c"".as_ptr().cast());
    // One that is shown by another mount of a pool lies on no way.
    let is_inside = here.is_some_and(|here| mounts::with_device(here.device).is_some());
    if is_inside {
        outside::learn_directory(libc::AT_FDCWD);
    }
    let is_there = |path: &&[u8]| {
        let named = || quiet::outside(|| identity(libc::AT_FDCWD, path.as_ptr()));
        here.is_some() && !is_inside && here == named()
    };
    // A path with a NUL leads to nothing.
    let path = named.filter(is_there).and_then(|path| path.strip_suffix(b"\0")).unwrap_or(b"\0");
    if path == b"/" { b"" } else { path }
}

/// Notes what was found so.
pub(crate) fn note_working_directory(path: &[u8]) {
    let mut noted = CWD.lock();
    noted.clear();
    noted.extend_from_slice(path);
}

/// Keeps other threads out while the process forks.
pub(crate) fn before_fork() {
    CWD.take();
}

/// Called in parent and child.
pub(crate) fn fork_done() {
    CWD.give();
}
