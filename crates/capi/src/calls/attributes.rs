//! Attributes: shown, and changed.

use std::ffi::{c_char, c_int};

use novale_core::{Attr, FileKind, SetAttr};
use novale_layout::PAGE;
use novale_posix::wall_clock_ns;

use crate::border::args::Caller;
use crate::border::handle::{OpenFile, Pool};
use crate::border::reply::{Failure, Result, call};

const SECOND_NS: i64 = 1_000_000_000;
/// Leaves an owner or a group as it is, in C -1.
const LEAVE: u32 = u32::MAX;

/// What a file, directory, link or other inode is.
#[repr(C)]
pub struct Stat {
    /// The inode's number.
    pub ino: u64,
    /// Rises each time the number is used again.
    pub generation: u32,
    /// Kind (S_IFMT of <sys/stat.h>) and permission, set-id and sticky bits.
    pub mode: u32,
    /// Number of names; of a directory 2 and one for each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of a block, in which space is given out.
    pub block_size: u32,
    /// A device's number, as makedev(3) makes it; 0 of others.
    pub rdev: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: libc::timespec,
    /// Last change of the contents.
    pub mtime: libc::timespec,
    /// Last change of the attributes.
    pub ctime: libc::timespec,
    /// When it was made.
    pub btime: libc::timespec,
}

/// The kind that mknod(2) is asked for.
pub(crate) fn kind_of_mode(mode: u32) -> Result<FileKind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(FileKind::File),
        libc::S_IFIFO => Ok(FileKind::Fifo),
        libc::S_IFSOCK => Ok(FileKind::Socket),
        libc::S_IFCHR => Ok(FileKind::CharDevice),
        libc::S_IFBLK => Ok(FileKind::BlockDevice),
        libc::S_IFDIR => Err(Failure::Number(libc::EPERM, "novale_mkdir makes directories")),
        _ => Err(Failure::Number(libc::EINVAL, "no such kind")),
    }
}

/// A device's number as inodes have it, the kernel's 32 bits: minor 0 to 7, major, minor 8 to 19.
pub(crate) fn rdev_of(device: u64) -> Result<u32> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Failure::Number(libc::EINVAL, "a device number above what inodes hold"));
    }
    Ok(minor & 0xff | major << 8 | (minor & 0xf_ff00) << 12)
}

fn device_of(rdev: u32) -> u64 {
    libc::makedev(rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00)
}

fn timespec(ns: i64) -> libc::timespec {
    libc::timespec { tv_sec: ns.div_euclid(SECOND_NS), tv_nsec: ns.rem_euclid(SECOND_NS) }
}

impl From<Attr> for Stat {
    fn from(attr: Attr) -> Self {
        let is_device = matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Self {
            ino: attr.ino.get(),
            generation: attr.generation,
            mode: attr.kind.with_mode(attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            block_size: u32::try_from(PAGE).unwrap_or_default(),
            rdev: if is_device { device_of(attr.rdev) } else { 0 },
            size: attr.size,
            blocks: attr.blocks,
            atime: timespec(attr.atime_ns),
            mtime: timespec(attr.mtime_ns),
            ctime: timespec(attr.ctime_ns),
            btime: timespec(attr.birth_ns),
        }
    }
}

/// Tells what a path names, the end of a final symbolic link.
///
/// Returns 0. Errors: those of stat(2), without permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_stat(
    pool: *const Pool,
    path: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let attr = caller.pool(pool)?.stat(caller.string(path)?)?;
            caller.put(stat, Stat::from(attr))
        })
    }
}

/// As novale_stat, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lstat(
    pool: *const Pool,
    path: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let attr = caller.pool(pool)?.lstat(caller.string(path)?)?;
            caller.put(stat, Stat::from(attr))
        })
    }
}

/// As novale_stat, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fstat(file: *const OpenFile, stat: *mut Stat) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| caller.put(stat, Stat::from(caller.file(file)?.attr()?))) }
}

fn mode_change(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

/// Sets the permission, set-id and sticky bits of what a path names, the end of a final symbolic link.
///
/// Returns 0. Errors: those of chmod(2), without permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_chmod(pool: *const Pool, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.pool(pool)?.set_attr(caller.string(path)?, &mode_change(mode))?;
            Ok(())
        })
    }
}

/// As novale_chmod, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fchmod(file: *const OpenFile, mode: u32) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.file(file)?.set_attr(&mode_change(mode))?;
            Ok(())
        })
    }
}

fn owner_change(uid: u32, gid: u32) -> SetAttr {
    let given = |id: u32| (id != LEAVE).then_some(id);
    SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }
}

/// Sets owner and group of what a path names, the end of a final symbolic link; (uint32_t)-1 leaves
/// one as it is. Set-id bits fall as in Linux.
///
/// Returns 0. Errors: those of chown(2), without permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_chown(
    pool: *const Pool,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.pool(pool)?.set_attr(caller.string(path)?, &owner_change(uid, gid))?;
            Ok(())
        })
    }
}

/// As novale_chown, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lchown(
    pool: *const Pool,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.pool(pool)?.set_link_attr(caller.string(path)?, &owner_change(uid, gid))?;
            Ok(())
        })
    }
}

/// As novale_chown, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fchown(file: *const OpenFile, uid: u32, gid: u32) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.file(file)?.set_attr(&owner_change(uid, gid))?;
            Ok(())
        })
    }
}

/// One time of utimensat(2); `None` leaves it as it is. What nanoseconds since 1970 do not reach is
/// moved to the nearest that they do.
fn time(time: libc::timespec, now_ns: i64) -> Result<Option<i64>> {
    match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(now_ns)),
        0..SECOND_NS => {
            Ok(Some(time.tv_sec.saturating_mul(SECOND_NS).saturating_add(time.tv_nsec)))
        }
        _ => Err(Failure::Number(libc::EINVAL, "0 to 999999999 nanoseconds")),
    }
}

fn time_change(caller: &Caller, times: *const libc::timespec) -> Result<SetAttr> {
    let now_ns = wall_clock_ns();
    let (atime_ns, mtime_ns) = match caller.get(times.cast::<[libc::timespec; 2]>())? {
        Some([atime, mtime]) => (time(atime, now_ns)?, time(mtime, now_ns)?),
        None => (Some(now_ns), Some(now_ns)),
    };
    Ok(SetAttr { atime_ns, mtime_ns, ..SetAttr::default() })
}

/// Sets the times of access (times[0]) and of change (times[1]) of what a path names; NULL is now for
/// both. UTIME_NOW and UTIME_OMIT of <sys/stat.h> are taken for tv_nsec. flags: 0, or
/// AT_SYMLINK_NOFOLLOW of <fcntl.h> for a final symbolic link itself.
///
/// Returns 0. Errors: those of utimensat(2), without permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_utimens(
    pool: *const Pool,
    path: *const c_char,
    times: *const libc::timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (pool, path) = (caller.pool(pool)?, caller.string(path)?);
            let change = time_change(caller, times)?;
            match flags {
                0 => pool.set_attr(path, &change)?,
                libc::AT_SYMLINK_NOFOLLOW => pool.set_link_attr(path, &change)?,
                _ => return Err(Failure::Number(libc::EINVAL, "unknown flags")),
            };
            Ok(())
        })
    }
}

/// As novale_utimens, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_futimens(
    file: *const OpenFile,
    times: *const libc::timespec,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.file(file)?.set_attr(&time_change(caller, times)?)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds_positive() {
        let before = timespec(-1);
        assert_eq!((before.tv_sec, before.tv_nsec), (-1, 999_999_999));
        assert_eq!(time(before, 0).unwrap(), Some(-1));
    }

    #[test]
    fn device_numbers_survive_the_way_into_an_inode_and_back() {
        for (major, minor) in [(1, 3), (8, 0xff), (0xfff, 0xf_ffff), (0, 0x100)] {
            let device = libc::makedev(major, minor);
            assert_eq!(device_of(rdev_of(device).unwrap()), device, "{major}:{minor}");
        }
        assert!(rdev_of(libc::makedev(0x1000, 0)).is_err());
    }
}
