//! Making, removing and changing names: for the administrator, whom no permission stops, and for a user
//! in its own directories. For all else the kernel does it, with its checks.

use novale_core::{Attr, Error, FileKind, NewInode, Node, RenameMode};
use novale_posix::Found;

use crate::base::guard::{self, PathBuffer};
use crate::base::sys::{Served, fail, sys};
use crate::calls::attributes::of_descriptor;
use crate::fds::table::{self, BY_OTHER_MOUNT, DIRECTORY};
use crate::fds::{kernel, quiet, shown};
use crate::mounts::state::{self, Rights};
use crate::paths::{Place, W, descriptor, named_descriptor, place, refused};

/// The place of a name that is to be made, moved or removed. With a slash after it it is the kernel's,
/// whose answers then depend on what is there, and on the call.
fn name_here(dir: u64, path: u64, buffer: &mut PathBuffer) -> Result<Place<'_>, Served> {
    let place = here(dir, path, buffer, false)?;
    if place.has_slash() { Err(None) } else { Ok(place) }
}

/// The place that a path leads to, for whom something may be done here.
fn here(dir: u64, path: u64, buffer: &mut PathBuffer, follow: bool) -> Result<Place<'_>, Served> {
    if state::rights() == Rights::Kernel {
        return Err(None);
    }
    place(dir, path, buffer, follow).ok_or(None)
}

fn done<T>(result: Result<Result<T, Error>, Served>) -> Served {
    match result {
        Ok(Ok(_)) => Some(0),
        Ok(Err(error)) => refused(&error),
        Err(served) => served,
    }
}

/// The name of something new, or why it can't be made.
fn new_name<'a>(found: &'a Found<'_>, directory: bool) -> Result<&'a [u8], Served> {
    if found.attr.is_some() {
        return Err(Some(fail(libc::EEXIST)));
    }
    if found.slash && !directory {
        return Err(Some(fail(libc::ENOENT)));
    }
    found.name.as_deref().ok_or(Some(fail(libc::EEXIST)))
}

/// The name and inode of something that is to go or move; the kernel says what is wrong with `.`.
fn old_name<'a>(found: &'a Found<'_>) -> Result<(&'a [u8], Attr), Served> {
    let name = found.name.as_deref().ok_or(None)?;
    let attr = found.attr.ok_or(Some(fail(libc::ENOENT)))?;
    Ok((name, attr))
}

/// Leaves a directory that the kernel knows to it, to be removed or renamed: it may be a mount point.
fn leave_known_directory(place: &Place<'_>, attr: &Attr) -> Result<(), Served> {
    let leaves = attr.kind == FileKind::Directory && is_known(place, attr);
    if leaves { Err(None) } else { Ok(()) }
}

fn is_known(place: &Place<'_>, attr: &Attr) -> bool {
    place.fs.is_known_to_kernel(&place.ctx, attr.ino).is_ok_and(|known| known)
}

/// Makes the kernel look at a name that was taken from an inode which it knows: it would keep it by that name, and
/// its space when the last one is gone. It may wait for who has the folder locked, and that one for this process to give
/// way to its mapping: so this thread is outside, and what the caller knew of the pool is over.
fn look(dir: u64, path: u64) {
    let mut found = std::mem::MaybeUninit::<libc::statx>::uninit();
    let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_TYPE);
    kernel::take_directory(descriptor(dir));
    quiet::outside(|| sys!(libc::SYS_statx, dir, path, flags, mask, found.as_mut_ptr()));
}

/// Makes the kernel look at both names of a rename that was stale to it: where it has a directory at another place
/// than that, it takes note of the move by any call but a rename, which has locked what that takes itself.
pub(crate) fn look_at_both(from: (u64, u64), to: (u64, u64)) {
    look(from.0, from.1);
    look(to.0, to.1);
}

/// `mkdir(path, mode)` and `mkdirat`.
pub(crate) fn mkdir(dir: u64, path: u64, mode: u64) -> Served {
    let mut buffer = PathBuffer::new();
    done((|| {
        let place = name_here(dir, path, &mut buffer)?;
        let found = place.walk_to_name()?;
        let (uid, gid) = state::owner();
        let mode = mode as u32 & 0o1777;
        let new = NewInode { kind: FileKind::Directory, mode, uid, gid, rdev: 0, target: b"" };
        let name = new_name(&found, true)?;
        place.may_change(found.parent)?;
        Ok(place.fs.create_with_umask(&place.ctx, found.parent, name, &new, state::umask()))
    })())
}

/// `symlink(target, path)` and `symlinkat`.
pub(crate) fn symlink(target: u64, dir: u64, path: u64) -> Served {
    let mut buffer = PathBuffer::new();
    done((|| {
        // As in the kernel, what is wrong with it is said before what is wrong with the name.
        let mut of_target = PathBuffer::new();
        let target = of_target.load(target).ok_or(None)?;
        if target.is_empty() {
            return Err(Some(fail(libc::ENOENT)));
        }
        let place = name_here(dir, path, &mut buffer)?;
        let found = place.walk_to_name()?;
        let (uid, gid) = state::owner();
        let kind = FileKind::Symlink;
        let new = NewInode { kind, mode: 0o777, uid, gid, rdev: 0, target };
        let name = new_name(&found, false)?;
        place.may_change(found.parent)?;
        Ok(place.fs.create(&place.ctx, found.parent, name, &new))
    })())
}

/// `unlink(path)`, `rmdir(path)` and `unlinkat`.
pub(crate) fn unlink(dir: u64, path: u64, flags: i32) -> Served {
    if flags & !libc::AT_REMOVEDIR != 0 {
        return None;
    }
    let directory = flags & libc::AT_REMOVEDIR != 0;
    let mut buffer = PathBuffer::new();
    done((|| {
        let place = name_here(dir, path, &mut buffer)?;
        let found = if directory { place.walk(false)? } else { place.walk_to_name()? };
        if let Some(attr) = &found.attr {
            leave_known_directory(&place, attr)?;
        }
        let name =
            if found.slash { old_name(&found)?.0 } else { found.name.as_deref().ok_or(None)? };
        if found.slash && !directory {
            let is_directory = found.attr.is_some_and(|attr| attr.kind == FileKind::Directory);
            return Err(Some(fail(if is_directory { libc::EISDIR } else { libc::ENOTDIR })));
        }
        place.may_change(found.parent)?;
        let removed = place.fs.remove_besides_kernel(&place.ctx, found.parent, name, directory);
        Ok(removed.inspect(|is_known| {
            if *is_known {
                look(dir, path);
            }
        }))
    })())
}

/// `rename` and its kin.
pub(crate) fn rename(from: (u64, u64), to: (u64, u64), flags: u64) -> Served {
    let mode = match flags as u32 {
        0 => RenameMode::Replace,
        libc::RENAME_NOREPLACE => RenameMode::NoReplace,
        libc::RENAME_EXCHANGE => RenameMode::Exchange,
        _ => return None,
    };
    let (mut old, mut new) = (PathBuffer::new(), PathBuffer::new());
    done((|| {
        let mut old = name_here(from.0, from.1, &mut old)?;
        let new = name_here(to.0, to.1, &mut new)?;
        old.renew()?;
        let walked = old.walk(false).and_then(|source| Ok((source, new.walk(false)?)));
        let (source, target) = walked.map_err(by_order)?;
        if !are_of_one_mount(&old, &new) {
            return Err(Some(fail(libc::EXDEV)));
        }
        // What is wrong with `.` comes before what is not there.
        let new_name = target.name.as_deref().ok_or(None)?;
        let (name, attr) = old_name(&source)?;
        may_move(&old, &attr, (source.parent, target.parent))?;
        leave_known_directory(&old, &attr)?;
        if let Some(replaced) = target.attr.as_ref().filter(|_| mode == RenameMode::Exchange) {
            may_move(&new, replaced, (target.parent, source.parent))?;
        }
        new.may_change(target.parent)?;
        if let Some(replaced) = &target.attr {
            leave_known_directory(&new, replaced)?;
        }
        if (source.slash || target.slash) && attr.kind != FileKind::Directory {
            return Err(Some(fail(libc::ENOTDIR)));
        }
        let renamed = old.fs.rename(&old.ctx, source.parent, name, target.parent, new_name, mode);
        // Of a directory that the source lies in the kernel has another word for it.
        if matches!(renamed, Err(Error::IsDirectory)) {
            return Err(None);
        }
        Ok(renamed.inspect(|()| {
            let is_elsewhere = source.parent.ino != target.parent.ino;
            let exchanged = target.attr.filter(|_| mode == RenameMode::Exchange);
            let moved = [(Some(attr), target.parent), (exchanged, source.parent)];
            for (attr, to) in moved.into_iter().filter(|_| is_elsewhere) {
                attr.inspect(|attr| shown::moved(attr.ino, to.ino));
            }
            // Before a look, after which nothing is known of the pool.
            let replaces = target.attr.is_some_and(|replaced| is_known(&new, &replaced));
            if is_known(&old, &attr) {
                look(from.0, from.1);
            }
            if replaces {
                look(to.0, to.1);
            }
        }))
    })())
}

/// What is wrong with one name may be told before the other's being too long, which a walk sees first: the kernel
/// knows the order.
fn by_order(served: Served) -> Served {
    served.filter(|told| *told != fail(libc::ENAMETOOLONG))
}

/// Whether a name can be moved from one place to the other: pools are mounted in several places.
fn are_of_one_mount(one: &Place<'_>, other: &Place<'_>) -> bool {
    let number = |place: &Place<'_>| place.other_mount.map(|part| part.numbers);
    one.mount == other.mount && number(one) == number(other)
}

/// Leaves it to the kernel to move what may not be moved here: a directory that changes its parent is
/// itself written to.
fn may_move(place: &Place<'_>, attr: &Attr, (from, to): (Node, Node)) -> Result<(), Served> {
    if attr.kind == FileKind::Directory && from.ino != to.ino {
        place.may(attr, W)?;
    }
    place.may_change(from)
}

/// `link` and `linkat`. A descriptor is linked by a path that leads to it, or by an empty one.
pub(crate) fn link(from: (u64, u64), to: (u64, u64), flags: i32) -> Served {
    if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return None;
    }
    let (mut old, mut new) = (PathBuffer::new(), PathBuffer::new());
    if let Some(fd) = linked_descriptor(from, flags, &mut old) {
        return link_file(fd, to);
    }
    if flags & libc::AT_EMPTY_PATH != 0 {
        return None;
    }
    done((|| {
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let mut old = here(from.0, from.1, &mut old, follow)?;
        let new = name_here(to.0, to.1, &mut new)?;
        old.renew()?;
        let source = old.walk(follow)?;
        let attr = source.attr.ok_or(Some(fail(libc::ENOENT)))?;
        let target = new.walk(false)?;
        let name = new_name(&target, false)?;
        // In this order, as the kernel.
        if !are_of_one_mount(&old, &new) {
            return Err(Some(fail(libc::EXDEV)));
        }
        old.may(&attr, 0)?;
        new.may_change(target.parent)?;
        if attr.kind == FileKind::Directory {
            return Err(Some(fail(libc::EPERM)));
        }
        Ok(old.fs.link(&old.ctx, attr.node(), target.parent, name))
    })())
}

/// The descriptor that is to be linked, if it is one.
fn linked_descriptor((dir, path): (u64, u64), flags: i32, buffer: &mut PathBuffer) -> Option<i32> {
    let path = buffer.load(path)?;
    if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        return Some(descriptor(dir));
    }
    if flags & libc::AT_SYMLINK_FOLLOW == 0 { None } else { named_descriptor(path) }
}

/// Gives an open file a name, which may be its first.
fn link_file(fd: i32, to: (u64, u64)) -> Served {
    let file = table::get(fd)?;
    let mut buffer = PathBuffer::new();
    done((|| {
        let new = name_here(to.0, to.1, &mut buffer)?;
        let target = new.walk(false)?;
        // By which other mount of the pool a file was opened the kernel knows.
        if new.other_mount.is_some() || file.is(BY_OTHER_MOUNT) {
            return Err(None);
        }
        if file.mount() != new.mount {
            return Err(Some(fail(libc::EXDEV)));
        }
        let name = new_name(&target, false)?;
        new.may(&of_descriptor(&file)?.attr, 0)?;
        new.may_change(target.parent)?;
        if file.is(DIRECTORY) {
            return Err(Some(fail(libc::EPERM)));
        }
        Ok(new.fs.link(&new.ctx, file.node(), target.parent, name))
    })())
}

/// Copies where a link leads to the program, as much as there is room for.
fn hand_out(target: &[u8], buf: u64, len: u64) -> Result<i64, i32> {
    let len = usize::try_from((len as i32).max(0)).unwrap_or(0).min(target.len());
    if len == 0 {
        return Err(libc::EINVAL);
    }
    let is_whole = guard::copy_out(buf, target.get(..len).unwrap_or_default()) == len;
    if is_whole { Ok(len as i64) } else { Err(libc::EFAULT) }
}

/// `readlink` and `readlinkat`.
pub(crate) fn readlink(dir: u64, path: u64, buf: u64, len: u64) -> Served {
    // Said before anything is looked for.
    if len as i32 <= 0 {
        return Some(fail(libc::EINVAL));
    }
    let mut buffer = PathBuffer::new();
    let shown = buffer.load(path).and_then(named_descriptor).and_then(shown::target);
    if let Some(shown) = shown {
        return Some(hand_out(&shown, buf, len).unwrap_or_else(fail));
    }
    // A file itself is no link; what stands for it in the kernel is.
    let is_file = |fd| table::get(fd).is_some_and(|file| !file.is(DIRECTORY));
    if buffer.load(path).is_some_and(<[u8]>::is_empty) && is_file(descriptor(dir)) {
        return Some(fail(libc::ENOENT));
    }
    let mut read = || {
        let place = here(dir, path, &mut buffer, false)?;
        let found = place.walk(false)?;
        let attr = found.attr.ok_or(Some(fail(libc::ENOENT)))?;
        if attr.kind != FileKind::Symlink {
            return Err(Some(fail(libc::EINVAL)));
        }
        let target = place.fs.readlink(attr.node()).map_err(|error| refused(&error))?;
        hand_out(&target, buf, len).map_err(|errno| Some(fail(errno)))
    };
    match read() {
        Ok(len) => Some(len),
        Err(served) => served,
    }
}
