//! Attributes: `stat` in all forms, `access`, and their changes.

use novale_core::{Attr, FileKind, Ino, SetAttr};
use novale_posix::report::Why;
use novale_posix::{Changer, SET_ID};

use crate::base::guard::{self, PathBuffer};
use crate::base::sys::{Args, Served, fail};
use crate::base::{left, report, settings};
use crate::fds::kernel;
use crate::fds::table::{self, BY_OTHER_MOUNT, DIRECTORY, InUse};
use crate::maps::growing;
use crate::mounts::facts::STATX_MNT_ID_UNIQUE;
use crate::mounts::state::{self, Rights};
use crate::mounts::{self, OtherMount, ctx};
use crate::paths::{Place, W, descriptor, keeps_set_id, may, outside, place, refused};

/// Bits of a mode: what an owner may do; by which a program gets rights.
const OWNERS: u32 = 0o700;
/// Flags that these calls know; with others they are the kernel's, which refuses them or is newer.
const STAT_FLAGS: i32 = PATH_FLAGS | libc::AT_NO_AUTOMOUNT | SYNC_FLAGS;
const ACCESS_FLAGS: i32 = PATH_FLAGS | libc::AT_EACCESS;
const PATH_FLAGS: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
const SYNC_FLAGS: i32 = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
/// What the kernel says of each file, set or not: mounts on demand, roots of mounts, DAX.
const TOLD_OF_ALL: u64 =
    (libc::STATX_ATTR_AUTOMOUNT | libc::STATX_ATTR_MOUNT_ROOT | libc::STATX_ATTR_DAX) as u64;
/// Bits of a mask of `statx` that mean nothing yet.
const STATX_RESERVED: u32 = 1 << 31;
const NS: i64 = 1_000_000_000;
const BLOCK: i64 = 4096;

/// What a call names: an inode of a mount.
pub(super) struct Target {
    pub(super) fs: &'static novale_core::Fs,
    pub(super) mount: usize,
    pub(super) attr: Attr,
    /// By which other mount of the pool the path has led there.
    pub(super) other_mount: Option<OtherMount>,
}

/// Attributes of what is open, unless the kernel calls owners something else here.
fn shown_of(fd: i32, description: &InUse) -> Result<Target, Served> {
    if !state::names_users() {
        kernel::take_any(fd);
        return Err(None);
    }
    let target = of_descriptor(description)?;
    kernel::before_told(fd, description, target.fs);
    Ok(target)
}

pub(super) fn of_descriptor(description: &InUse) -> Result<Target, Served> {
    let mount = description.mount();
    let fs = mounts::fs(mount).ok_or(None)?;
    let attr = fs.getattr(description.ino()).map_err(|error| refused(&error))?;
    Ok(Target { fs, mount, attr, other_mount: None })
}

fn of_place(place: &Place<'_>, follow: bool) -> Result<Target, Served> {
    let attr = place.walk(follow)?.attr.ok_or(Some(fail(libc::ENOENT)))?;
    Ok(Target { fs: place.fs, mount: place.mount, attr, other_mount: place.other_mount })
}

/// What a call with directory, path and flags names. An empty path is the descriptor's own inode.
pub(super) fn target(dir: u64, path: u64, flags: i32) -> Result<Target, Served> {
    let is_empty = || path == 0 || guard::load::<u8>(path) == Some(0);
    if flags & libc::AT_EMPTY_PATH != 0 && is_empty() {
        let description = table::get(descriptor(dir)).ok_or(None)?;
        let mut target = shown_of(descriptor(dir), &description)?;
        if description.is(BY_OTHER_MOUNT) {
            let shown = mounts::other_mount_of(descriptor(dir));
            target.other_mount = Some(shown.ok_or(None)?);
        }
        return Ok(target);
    }
    if state::rights() == Rights::Kernel {
        return Err(None);
    }
    let mut buffer = PathBuffer::new();
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    of_place(&place(dir, path, &mut buffer, follow).ok_or(None)?, follow)
}

fn either(result: Result<(), Served>) -> Served {
    match result {
        Ok(()) => Some(0),
        Err(served) => served,
    }
}

/// The kernel has shown what a path leads to: one that leads into a mount is known from then on.
pub(crate) fn shown(number: i64, args: &Args) -> Option<()> {
    let [a, b, c, _, e, _] = *args;
    let (dir, path, device) = match number {
        libc::SYS_statx => {
            let at = e + std::mem::offset_of!(libc::statx, stx_dev_major) as u64;
            let [major, minor] = guard::load::<[u32; 2]>(at)?;
            (descriptor(a), b, libc::makedev(major, minor))
        }
        // A device number is what begins it.
        libc::SYS_newfstatat => (descriptor(a), b, guard::load(c)?),
        _ => (libc::AT_FDCWD, a, guard::load(b)?),
    };
    mounts::with_device(device)?;
    outside::learn(dir, PathBuffer::new().load(path)?);
    Some(())
}

/// Whether anything is to be learnt from what the kernel shows by a path.
pub(crate) fn is_learnt_from(path: u64) -> bool {
    settings::serves_outside() && guard::load::<u8>(path).is_some_and(|first| first != 0)
}

fn store_stat(target: &Target, at: u64) -> Result<(), Served> {
    let attr = &target.attr;
    growing::grew(target.mount, attr.ino, attr.size);
    // SAFETY: zeroes are a valid value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = mounts::device(target.mount);
    stat.st_ino = attr.ino.get();
    stat.st_mode = attr.kind.with_mode(attr.mode);
    stat.st_nlink = u64::from(attr.nlink);
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = u64::from(attr.rdev);
    stat.st_size = attr.size.cast_signed();
    stat.st_blksize = BLOCK;
    stat.st_blocks = attr.blocks.cast_signed();
    (stat.st_atime, stat.st_atime_nsec) = split(attr.atime_ns);
    (stat.st_mtime, stat.st_mtime_nsec) = split(attr.mtime_ns);
    (stat.st_ctime, stat.st_ctime_nsec) = split(attr.ctime_ns);
    if guard::store(at, &stat) { Ok(()) } else { Err(Some(fail(libc::EFAULT))) }
}

fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(NS), ns.rem_euclid(NS))
}

/// `fstat(fd, buf)`.
pub(crate) fn fstat(args: &Args) -> Served {
    let fd = descriptor(args[0]);
    let description = table::get(fd)?;
    either(shown_of(fd, &description).and_then(|target| store_stat(&target, args[1])))
}

/// The kernel is to say how long a file is that it may have mapped here: see [`kernel::before_told`].
fn told_here(target: Target) -> Result<Target, Served> {
    if kernel::may_have_mapped(target.fs, target.attr.ino) {
        report::because(Why::Mapped);
        return Err(None);
    }
    Ok(target)
}

/// `stat(path, buf)`, and `lstat`.
pub(crate) fn stat(args: &Args, flags: i32) -> Served {
    let [path, buf, ..] = *args;
    let found = target(libc::AT_FDCWD as u64, path, flags).and_then(told_here);
    either(found.and_then(|target| store_stat(&target, buf)))
}

/// `newfstatat(dir, path, buf, flags)`.
pub(crate) fn fstatat(args: &Args) -> Served {
    let [dir, path, buf, flags, ..] = *args;
    if flags as i32 & !STAT_FLAGS != 0 {
        return None;
    }
    let found = target(dir, path, flags as i32).and_then(told_here);
    either(found.and_then(|target| store_stat(&target, buf)))
}

/// `statx(dir, path, flags, mask, buf)`.
pub(crate) fn statx(args: &Args) -> Served {
    let [dir, path, flags, mask, buf, _] = *args;
    let flags = flags as i32;
    let both = flags & SYNC_FLAGS == SYNC_FLAGS;
    if flags & !STAT_FLAGS != 0 || both || mask as u32 & STATX_RESERVED != 0 {
        return None;
    }
    let found = target(dir, path, flags).and_then(told_here);
    either(found.and_then(|target| store_statx(&target, mask as u32, buf)))
}

fn store_statx(target: &Target, mask: u32, at: u64) -> Result<(), Served> {
    let attr = &target.attr;
    growing::grew(target.mount, attr.ino, attr.size);
    // SAFETY: zeroes are a valid value.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    let time = |ns| {
        // SAFETY: zeroes are a valid value.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        let (seconds, rest) = split(ns);
        time.tv_sec = seconds;
        time.tv_nsec = u32::try_from(rest).unwrap_or(0);
        time
    };
    let by = if mask & STATX_MNT_ID_UNIQUE != 0 { STATX_MNT_ID_UNIQUE } else { libc::STATX_MNT_ID };
    let own = || mounts::numbers_of(target.mount);
    let [short, unique] = target.other_mount.map_or_else(own, |part| part.numbers);
    statx.stx_mnt_id = if by == STATX_MNT_ID_UNIQUE { unique } else { short };
    let known = if statx.stx_mnt_id == 0 { 0 } else { by };
    statx.stx_mask = libc::STATX_BASIC_STATS | mask & libc::STATX_BTIME | known;
    statx.stx_attributes_mask = TOLD_OF_ALL;
    if Some(attr.ino) == target.other_mount.map_or(Some(Ino::ROOT), |part| part.root) {
        statx.stx_attributes = libc::STATX_ATTR_MOUNT_ROOT as u64;
    }
    statx.stx_blksize = 4096;
    statx.stx_nlink = attr.nlink;
    statx.stx_uid = attr.uid;
    statx.stx_gid = attr.gid;
    statx.stx_mode = u16::try_from(attr.kind.with_mode(attr.mode)).unwrap_or(0);
    statx.stx_ino = attr.ino.get();
    statx.stx_size = attr.size;
    statx.stx_blocks = attr.blocks;
    statx.stx_atime = time(attr.atime_ns);
    if mask & libc::STATX_BTIME != 0 {
        statx.stx_btime = time(attr.birth_ns);
    }
    statx.stx_ctime = time(attr.ctime_ns);
    statx.stx_mtime = time(attr.mtime_ns);
    statx.stx_rdev_major = libc::major(u64::from(attr.rdev));
    statx.stx_rdev_minor = libc::minor(u64::from(attr.rdev));
    let device = mounts::device(target.mount);
    statx.stx_dev_major = libc::major(device);
    statx.stx_dev_minor = libc::minor(device);
    if guard::store(at, &statx) { Ok(()) } else { Err(Some(fail(libc::EFAULT))) }
}

/// `access(path, mode)`, `faccessat` and `faccessat2` with their flags. Whether a file may be run depends
/// on the mount too.
pub(crate) fn access(dir: u64, path: u64, wanted: i32, flags: i32) -> Served {
    if wanted & !7 != 0 || flags & !ACCESS_FLAGS != 0 {
        return None;
    }
    either(target(dir, path, flags).and_then(|target| {
        let attr = &target.attr;
        let rights = state::rights();
        if rights != Rights::All && wanted & 7 != 0 {
            let is_run = attr.kind != FileKind::Directory && wanted & libc::X_OK != 0;
            may(if is_run { Rights::Kernel } else { rights }, attr, wanted as u32 & 7)?;
        }
        let is_file = attr.kind == FileKind::File;
        let is_no_exec = || mounts::is_no_exec(target.mount);
        if is_file
            && wanted & libc::X_OK != 0
            && target.other_mount.map_or_else(is_no_exec, |part| part.no_exec)
        {
            return Err(None);
        }
        let may_run = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        if wanted & libc::X_OK != 0 && !may_run { Err(Some(fail(libc::EACCES))) } else { Ok(()) }
    }))
}

/// Leaves changes that need an owner, and these of its bits, to the kernel, unless they may be made here.
fn of_owner(target: Result<Target, Served>, bits: u32) -> Result<Target, Served> {
    let target = target?;
    may(state::rights(), &target.attr, bits)?;
    Ok(target)
}

fn set(target: Result<Target, Served>, changes: impl FnOnce(&Attr) -> SetAttr) -> Served {
    either(target.and_then(|target| {
        let changes = changes(&target.attr);
        let set = target.fs.setattr(&ctx(), target.attr.node(), &changes);
        set.map(drop).map_err(|error| refused(&error))
    }))
}

/// What a descriptor leads to, for its owner: the kernel checks what others may.
fn own(fd: u64) -> Result<Target, Served> {
    let description = table::get(descriptor(fd)).ok_or(None)?;
    if description.is_path() {
        return Err(None);
    }
    of_owner(of_descriptor(&description), 0)
}

/// The descriptor of a change that is not made here is handed to the kernel.
fn own_or_kernel(
    args: &Args,
    may: impl FnOnce(Result<Target, Served>) -> Result<Target, Served>,
    change: impl FnOnce(Result<Target, Served>) -> Served,
) -> Served {
    match may(own(args[0])) {
        Err(None) if !state::is_root() => super::data::other(args),
        target => change(target),
    }
}

/// Leaves it to the kernel to give something to somebody, but for the administrator.
fn of_root(target: Result<Target, Served>) -> Result<Target, Served> {
    if state::is_root() { target } else { target.and(Err(None)) }
}

/// Leaves modes to the kernel by which a user's or a group's rights are given: it asks whose the group is,
/// and takes them away with the next write. What it would not open any more is handed over before.
fn of_mode(target: Result<Target, Served>, mode: u32) -> Result<Target, Served> {
    let target = of_owner(target, 0)?;
    if state::rights() == Rights::All {
        return Ok(target);
    }
    let of = (target.mount, target.attr.ino);
    if mode & SET_ID != 0 {
        table::each(&mut |fd, file| {
            if (file.mount(), file.ino()) == of {
                kernel::give(fd, file);
            }
        });
        return Err(None);
    }
    if target.attr.mode & OWNERS & !mode != 0 {
        take_open(&target);
    }
    Ok(target)
}

/// Has the kernel open what this process has open of an inode, which its owner may not be able to open any more.
pub(super) fn take_open(target: &Target) {
    take_all_of((target.mount, target.attr.ino), target.attr.kind == FileKind::Directory);
}

fn take_all_of(of: (usize, Ino), is_directory: bool) {
    table::each(&mut |_, file| {
        // A directory may be on the way to any other one.
        if (file.mount(), file.ino()) == of || is_directory && file.is(DIRECTORY) {
            kernel::take(file);
        }
    });
}

/// What a call names that may take its owner's rights ([`take_open`]). Of a descriptor of the kernel's own
/// (`O_PATH`), which makes the call then, that is done here.
pub(super) fn target_of_rights(dir: u64, path: u64, flags: i32) -> Result<Target, Served> {
    let target = target(dir, path, flags);
    if matches!(target, Err(None))
        && flags & libc::AT_EMPTY_PATH != 0
        && matches!(state::rights(), Rights::Own(_))
        && let Some(found) = mounts::of_descriptor(descriptor(dir))
    {
        take_all_of((found.mount, found.ino), found.is_directory);
    }
    target
}

/// `chmod(path, mode)`, `fchmodat(dir, path, mode)` and `fchmodat2`, which may be about a link itself: that is refused,
/// by the kernel.
pub(crate) fn chmod(dir: u64, path: u64, mode: u64, flags: i32) -> Served {
    if flags & !(libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return None;
    }
    let is_link = |target: &Target| target.attr.kind == FileKind::Symlink;
    let target = target_of_rights(dir, path, flags)
        .and_then(|target| if is_link(&target) { Err(None) } else { Ok(target) });
    let mode = mode as u32 & 0o7777;
    set(of_mode(target, mode), |_| SetAttr { mode: Some(mode), ..SetAttr::default() })
}

/// `fchmod(fd, mode)`.
pub(crate) fn fchmod(args: &Args) -> Served {
    let mode = args[1] as u32 & 0o7777;
    let change = |target| set(target, |_| SetAttr { mode: Some(mode), ..SetAttr::default() });
    own_or_kernel(args, |target| of_mode(target, mode), change)
}

fn owners(uid: u64, gid: u64) -> impl FnOnce(&Attr) -> SetAttr {
    let given = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    let changes = SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() };
    move |_| Changer::PRIVILEGED.owning(&changes)
}

/// `chown(path, uid, gid)` and its kin.
pub(crate) fn chown(dir: u64, path: u64, (uid, gid): (u64, u64), flags: i32) -> Served {
    if flags & !PATH_FLAGS != 0 {
        return None;
    }
    let unknown = |target: Target| if is_known(&target) { Err(None) } else { Ok(target) };
    give(of_root(target(dir, path, flags)).and_then(unknown), owners(uid, gid))
}

/// `fchown(fd, uid, gid)`.
pub(crate) fn fchown(args: &Args) -> Served {
    let handed = || table::get(descriptor(args[0])).is_some_and(|found| kernel::take(&found));
    let unknown =
        |target: Target| if is_known(&target) && handed() { Err(None) } else { Ok(target) };
    let may = |target| of_root(target).and_then(unknown);
    let done = own_or_kernel(args, may, |target| give(target, owners(args[1], args[2])));
    if done.is_none() {
        kernel::take_any(descriptor(args[0]));
    }
    done
}

/// Whether the kernel knows an inode. It is to make changes of its owner then: of what a process has open it judges
/// by the owner that it was told last, and asks nobody.
fn is_known(target: &Target) -> bool {
    target.fs.is_known_to_kernel(&ctx(), target.attr.ino).is_ok_and(|known| known)
}

/// Changes owners. What the kernel has met meanwhile, with the owner before, it changes once more.
fn give(target: Result<Target, Served>, changes: impl FnOnce(&Attr) -> SetAttr) -> Served {
    either(target.and_then(|target| {
        let changes = changes(&target.attr);
        let given = target.fs.setattr(&ctx(), target.attr.node(), &changes);
        given.map_err(|error| refused(&error))?;
        if is_known(&target) { Err(None) } else { Ok(()) }
    }))
}

/// Whether what the program has open is the kernel's, which then has to learn of each length: by that it judges a page
/// of a mapping, what it copies or reads from a file, and where an append has ended.
fn is_left_with_descriptors() -> bool {
    let is_left = left::FILES.is_begun();
    if is_left {
        report::because(Why::Asynchronous);
    }
    is_left
}

/// `truncate(path, size)`.
pub(crate) fn truncate(args: &Args) -> Served {
    let [path, size, ..] = *args;
    if size > i64::MAX as u64 || state::has_size_limit() {
        return None;
    }
    let found = target(libc::AT_FDCWD as u64, path, 0);
    let found = of_owner(found, W).and_then(|target| {
        let keeps = keeps_set_id(state::rights(), target.attr.mode);
        let is_left = is_left_with_descriptors();
        if target.attr.kind == FileKind::File && keeps && !is_left { Ok(target) } else { Err(None) }
    });
    let file = found.as_ref().ok().map(|target| (target.mount, target.attr.ino));
    let done = set(found, |_| SetAttr { size: Some(size), ..SetAttr::default() });
    if let (Some(0), Some((mount, ino))) = (done, file) {
        growing::grew(mount, ino, size);
    }
    done
}

/// `utimensat(dir, path, times, flags)`; without a path it is the descriptor's own inode.
pub(crate) fn utimensat(args: &Args) -> Served {
    let [dir, path, times, flags, ..] = *args;
    let flags = flags as i32;
    let by_descriptor = path == 0;
    let known = if by_descriptor { 0 } else { PATH_FLAGS };
    if flags & !known != 0 {
        return None;
    }
    let now = ctx().now_ns;
    let mut given = [Some(now); 2];
    if times != 0 {
        let Some(asked) = guard::load::<[libc::timespec; 2]>(times) else {
            return Some(fail(libc::EFAULT));
        };
        // With nothing to change not even the path is looked at.
        if asked.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT) {
            return Some(0);
        }
        for (to, time) in given.iter_mut().zip(asked) {
            *to = match time.tv_nsec {
                libc::UTIME_NOW => Some(now),
                libc::UTIME_OMIT => None,
                ns if (0..NS).contains(&ns) => {
                    Some(time.tv_sec.checked_mul(NS).and_then(|at| at.checked_add(ns))?)
                }
                // The kernel finds the file first, and then says so.
                _ => return utimensat_by_kernel(args),
            };
        }
    }
    let found = if by_descriptor { own(dir) } else { of_owner(target(dir, path, flags), 0) };
    let [atime_ns, mtime_ns] = given;
    if by_descriptor && matches!(found, Err(None)) {
        return utimensat_by_kernel(args);
    }
    set(found, |_| SetAttr { atime_ns, mtime_ns, ..SetAttr::default() })
}

fn utimensat_by_kernel(args: &Args) -> Served {
    super::data::other(args)
}
