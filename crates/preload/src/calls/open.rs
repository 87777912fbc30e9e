//! Opening files.

use novale_core::{Attr, FileKind, NewInode, SetAttr};
use novale_posix::{hold_same, lookup_held};

use crate::guard::{self, PathBuffer};
use crate::kernel;
use crate::mounts;
use crate::paths::{Place, Served, descriptor, place, refused};
use crate::state;
use crate::sys::{Args, Ret, fail, sys};
use crate::table::{self, DIRECTORY, IN_KERNEL, New, SHARED};

/// Flags that a description keeps.
const KEPT: i32 =
    !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY | libc::O_CLOEXEC);
/// The kernel's own flag for large files, which `F_GETFL` shows.
const LARGE_FILE: i32 = 0o100_000;

/// `open(path, flags, mode)`.
pub(crate) fn open(args: &Args) -> Served {
    let [path, flags, mode, ..] = *args;
    open_at(libc::AT_FDCWD as u64, path, flags as i32, mode as u32)
}

/// `creat(path, mode)`.
pub(crate) fn creat(args: &Args) -> Served {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    open_at(libc::AT_FDCWD as u64, args[0], flags, args[1] as u32)
}

/// `openat(dir, path, flags, mode)`.
pub(crate) fn openat(args: &Args) -> Served {
    let [dir, path, flags, mode, ..] = *args;
    open_at(dir, path, flags as i32, mode as u32)
}

/// `openat2(dir, path, how, size)`: with restrictions on the walk it is the kernel's.
pub(crate) fn openat2(args: &Args) -> Served {
    let [dir, path, how, size, ..] = *args;
    if size != 24 {
        return None;
    }
    let [flags, mode, resolve] = guard::load::<[u64; 3]>(how)?;
    if resolve != 0 {
        return None;
    }
    open_at(dir, path, flags as i32, mode as u32)
}

fn open_at(dir: u64, path: u64, flags: i32, mode: u32) -> Served {
    let mut buffer = PathBuffer::new();
    let place = place(dir, path, &mut buffer)?;
    let by_kernel = || Some(adopt(&place, dir, path, flags, mode));
    let special = libc::O_PATH | libc::O_DIRECTORY | libc::O_TMPFILE;
    if flags & special != 0 || !state::is_root() || kernel::needs_all() {
        return by_kernel();
    }
    let found = match place.walk(flags & libc::O_NOFOLLOW == 0 && flags & EXCLUSIVE != EXCLUSIVE) {
        Ok(found) => found,
        Err(None) => return by_kernel(),
        Err(served) => return served,
    };
    match found.attr {
        Some(_) if flags & EXCLUSIVE == EXCLUSIVE => return Some(fail(libc::EEXIST)),
        Some(attr) if attr.kind == FileKind::Symlink => return Some(fail(libc::ELOOP)),
        Some(attr) if attr.kind != FileKind::File => return by_kernel(),
        None if flags & libc::O_CREAT == 0 => return Some(fail(libc::ENOENT)),
        None if found.slash => return Some(fail(libc::EISDIR)),
        _ => {}
    }
    let fd = kernel::placeholder(place.mount, flags);
    if fd < 0 {
        return Some(fd);
    }
    let held = match found.attr {
        Some(attr) => match &found.name {
            Some(name) => lookup_held(place.fs, &place.ctx, found.parent, name),
            None => Ok(attr),
        },
        None => create(&place, &found, flags, mode),
    };
    let done = held.and_then(|attr| {
        if flags & libc::O_TRUNC != 0 && attr.size > 0 {
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            place.fs.setattr(&place.ctx, attr.ino, &empty)?;
        }
        Ok(attr)
    });
    match done {
        Ok(attr) if attr.kind == FileKind::File => {
            let flags = flags & KEPT | LARGE_FILE;
            let new = description(&place, &attr, flags, 0, true);
            insert(fd, &new)
        }
        // The name has become another's meanwhile.
        Ok(attr) => {
            mounts::release(place.mount, attr.ino);
            sys!(libc::SYS_close, fd);
            by_kernel()
        }
        Err(error) => {
            sys!(libc::SYS_close, fd);
            refused(&error)
        }
    }
}

const EXCLUSIVE: i32 = libc::O_CREAT | libc::O_EXCL;

fn create(
    place: &Place<'_>,
    found: &novale_posix::Found,
    flags: i32,
    mode: u32,
) -> Result<Attr, novale_core::Error> {
    let name = found.name.as_deref().ok_or(novale_core::Error::Exists)?;
    let (uid, gid) = state::owner();
    let new =
        NewInode { kind: FileKind::File, mode: mode & 0o7777, uid, gid, rdev: 0, target: b"" };
    let (fs, ctx) = (place.fs, &place.ctx);
    match fs.create_with_umask(ctx, found.parent, name, &new, state::umask()) {
        Ok(new) => hold_same(fs, ctx, new.ino, new.generation)?.ok_or(novale_core::Error::Stale),
        // Somebody else was faster.
        Err(novale_core::Error::Exists) if flags & libc::O_EXCL == 0 => {
            lookup_held(fs, ctx, found.parent, name)
        }
        Err(error) => Err(error),
    }
}

fn description(place: &Place<'_>, attr: &Attr, flags: i32, state: u32, holds: bool) -> New {
    New { ino: attr.ino, generation: attr.generation, flags, state, mount: place.mount, holds }
}

fn insert(fd: Ret, new: &New) -> Served {
    let number = i32::try_from(fd).unwrap_or(-1);
    if table::insert(number, new) {
        return Some(fd);
    }
    if new.holds {
        mounts::release(new.mount, new.ino);
    }
    if new.state & IN_KERNEL != 0 {
        return Some(fd);
    }
    sys!(libc::SYS_close, fd);
    Some(fail(libc::EMFILE))
}

/// Lets the kernel open it, with all its checks, and serves what can be served from then on.
fn adopt(place: &Place<'_>, dir: u64, path: u64, flags: i32, mode: u32) -> Ret {
    let fd = sys!(libc::SYS_openat, descriptor(dir), path, flags, mode);
    if fd < 0 || flags & libc::O_PATH != 0 {
        return fd;
    }
    let Some(attr) = known(place, fd) else { return fd };
    let mut state = IN_KERNEL;
    if attr.kind == FileKind::Directory {
        state |= DIRECTORY | SHARED;
    } else if attr.kind != FileKind::File {
        return fd;
    } else if kernel::needs_all() {
        state |= SHARED;
    }
    let flags = flags & KEPT | LARGE_FILE;
    let _inserted = insert(fd, &description(place, &attr, flags, state, false));
    fd
}

/// The inode behind a descriptor that the kernel has opened, if it is this mount's. It can't go away,
/// since the kernel holds it.
fn known(place: &Place<'_>, fd: Ret) -> Option<Attr> {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_INO | libc::STATX_TYPE;
    let got = sys!(libc::SYS_statx, fd, c"".as_ptr(), flags, mask, found.as_mut_ptr());
    // SAFETY: zeroes are a valid value, which the kernel has filled.
    let found = unsafe { found.assume_init() };
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    if got != 0 || device != mounts::device(place.mount) {
        return None;
    }
    place.fs.getattr(novale_core::Ino::new(found.stx_ino)).ok()
}
