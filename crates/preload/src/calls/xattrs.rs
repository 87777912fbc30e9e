//! Extended attributes, by path and by descriptor.
//!
//! Served are those of users and the administrator's, and the reading of ACLs. What else the kernel
//! has rules of its own for (`security.`, setting an ACL), what the daemon makes up (quotas), and all of
//! a mount that hides some, goes through the mount.

use std::sync::atomic::{AtomicU8, Ordering};

use novale_core::{Error, FileKind, SetXattr, XattrMode};

use super::attributes::{Target, of_descriptor, take_open, target, target_of_rights};
use crate::base::guard::{self, PathBuffer};
use crate::base::sys::{Args, Served, fail, sys};
use crate::fds::table;
use crate::mounts::state::{self, Rights};
use crate::mounts::{self, ctx};
use crate::paths::{R, W, descriptor, may, refused};

/// Bytes of a name and of a value at most, as in Linux.
const NAME_MAX: usize = 255;
const VALUE_MAX: u64 = 65_536;
/// Attributes that the daemon makes up.
const QUOTAS: &[u8] = b"trusted.novale.";
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    Set,
    List,
    Remove,
}

/// `getxattr(path, ..)` and its kin; `flags` say whether a symbolic link is followed.
pub(crate) fn of_path(ask: Ask, args: &Args, flags: i32) -> Served {
    if state::rights() == Rights::Kernel {
        return None;
    }
    let target = match target(libc::AT_FDCWD as u64, args[0], flags) {
        Ok(target) => target,
        // The kernel looks at the attribute's name, and at what is to be set, before it looks for the file.
        Err(_) if ask == Ask::Set || ask != Ask::List && !is_name(args[1]) => return None,
        Err(served) => return served,
    };
    done(serve(ask, &target, args))
}

/// `fgetxattr(fd, ..)` and its kin.
pub(crate) fn of_file(ask: Ask, args: &Args) -> Served {
    let description = table::get(descriptor(args[0]))?;
    let served = if state::rights() != Rights::Kernel && !description.is_path() {
        of_descriptor(&description).and_then(|target| serve(ask, &target, args))
    } else {
        Err(None)
    };
    drop(description);
    done(served).or_else(|| super::data::other(args))
}

fn done(result: Result<i64, Served>) -> Served {
    result.map_or_else(|served| served, Some)
}

fn is_name(at: u64) -> bool {
    let mut buffer = PathBuffer::new();
    buffer.load(at).is_some_and(|name| (1..=NAME_MAX).contains(&name.len()))
}

fn serve(ask: Ask, target: &Target, args: &Args) -> Result<i64, Served> {
    if mounts::hides_attributes(target.mount) {
        return Err(None);
    }
    let rights = state::rights();
    if ask == Ask::List {
        // Users are shown those that they may read.
        may(if rights == Rights::All { rights } else { Rights::Kernel }, &target.attr, 0)?;
        let names = target.fs.listxattr(target.attr.node()).map_err(|error| refused(&error))?;
        return hand_out(&names, args[1], args[2]);
    }
    let mut buffer = PathBuffer::new();
    let name = buffer.load(args[1]).filter(|name| name.len() <= NAME_MAX).ok_or(None)?;
    if is_absent(ask, target, name) {
        return Err(Some(fail(libc::ENODATA)));
    }
    if !is_served(ask, name, target.attr.kind) {
        if may_take_rights(ask, name) {
            take_open(target);
        }
        return Err(None);
    }
    if name.starts_with(b"user.") {
        may(rights, &target.attr, if ask == Ask::Get { R } else { W })?;
    } else if !ACLS.contains(&name) && rights != Rights::All {
        return Err(None);
    }
    let (fs, attr) = (target.fs, &target.attr);
    let changed = match ask {
        Ask::Get | Ask::List => {
            let value = fs.getxattr(attr.node(), name).map_err(|error| refused(&error))?;
            return hand_out(&value, args[2], args[3]);
        }
        Ask::Set => {
            let (value, mode) = value_and_mode(args)?;
            let set = SetXattr { name, value: &value, mode, clear_set_gid: false };
            fs.setxattr(&ctx(), attr.node(), &set)
        }
        Ask::Remove => fs.removexattr(&ctx(), attr.node(), name),
    };
    changed.map(|()| 0).map_err(|error| refused(&error))
}

fn is_served(ask: Ask, name: &[u8], kind: FileKind) -> bool {
    let is_plain = matches!(kind, FileKind::File | FileKind::Directory);
    // Of `user.` alone the kernel looks at the kind of the file first.
    name.starts_with(b"user.") && name != b"user."
        || name.starts_with(b"trusted.") && !name.starts_with(QUOTAS)
        || ask == Ask::Get && is_plain && ACLS.contains(&name)
}

/// Whether a change is of an ACL, which may take the owner's own rights as `chmod` may.
fn may_take_rights(ask: Ask, name: &[u8]) -> bool {
    ask == Ask::Set && ACLS.contains(&name) && state::rights() != Rights::All
}

/// `setxattrat(dir, path, flags, name, ..)`, which is the kernel's.
pub(crate) fn set_at(args: &Args) -> Served {
    let [dir, path, flags, name, ..] = *args;
    let mut buffer = PathBuffer::new();
    if may_take_rights(Ask::Set, buffer.load(name)?)
        && let Ok(target) = target_of_rights(dir, path, flags as i32)
    {
        take_open(&target);
    }
    None
}

/// Whether an attribute of the kernel's is asked for that is not there: `ls` and `cp` ask for these of
/// each file.
fn is_absent(ask: Ask, target: &Target, name: &[u8]) -> bool {
    let known = match name {
        b"security.capability" => true,
        // Where it is active it makes a label up.
        b"security.selinux" => !has_selinux(),
        _ => false,
    };
    let found = || target.fs.getxattr(target.attr.node(), name);
    ask == Ask::Get && known && matches!(found(), Err(Error::NoAttribute))
}

fn has_selinux() -> bool {
    /// 0 before anybody has asked, then 1 or 2.
    static ACTIVE: AtomicU8 = AtomicU8::new(0);
    if ACTIVE.load(Ordering::Relaxed) == 0 {
        let status = c"/sys/fs/selinux/status";
        let there = sys!(libc::SYS_access, status.as_ptr(), libc::F_OK) == 0;
        ACTIVE.store(1 + u8::from(there), Ordering::Relaxed);
    }
    ACTIVE.load(Ordering::Relaxed) == 2
}

fn value_and_mode(args: &Args) -> Result<(Vec<u8>, XattrMode), Served> {
    let [_, _, value, size, flags, _] = *args;
    // Of unknown ones the kernel says so.
    let mode = novale_posix::xattr_mode(flags as i32).map_err(|_| None)?;
    if size > VALUE_MAX {
        return Err(Some(fail(libc::E2BIG)));
    }
    let len = usize::try_from(size).unwrap_or(0);
    Ok((guard::copied(value, len).ok_or(Some(fail(libc::EFAULT)))?, mode))
}

/// Copies what is asked for to the program, or says how long it is where it has no room.
fn hand_out(bytes: &[u8], at: u64, size: u64) -> Result<i64, Served> {
    let len = bytes.len() as i64;
    if size == 0 {
        return Ok(len);
    }
    if bytes.len() as u64 > size {
        return Err(Some(fail(libc::ERANGE)));
    }
    let is_whole = guard::copy_out(at, bytes) == bytes.len();
    if is_whole { Ok(len) } else { Err(Some(fail(libc::EFAULT))) }
}
