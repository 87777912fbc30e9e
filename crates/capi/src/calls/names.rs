//! Names: directories, links, renames.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use libc::ssize_t;
use novale_core::{FileKind, RenameMode};

use crate::border::handle::{OpenFile, Pool};
use crate::border::reply::{Failure, Result, call};
use crate::calls::attributes::{kind_of_mode, rdev_of};

/// Makes a directory. mode: permission bits; the umask takes none of them away.
///
/// Returns 0. Errors: those of mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_mkdir(pool: *const Pool, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.pool(pool)?.create_dir(caller.string(path)?, mode)?;
            Ok(())
        })
    }
}

/// Makes a FIFO, a socket, a device of number device, or an empty file. mode: its kind (S_IFIFO,
/// S_IFSOCK, S_IFCHR, S_IFBLK; S_IFREG or 0 for a file) and permission bits; the umask takes none
/// of them away.
///
/// Returns 0. Errors: those of mknod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_mknod(
    pool: *const Pool,
    path: *const c_char,
    mode: u32,
    device: u64,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let kind = kind_of_mode(mode)?;
            let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
            let device = if is_device { rdev_of(device)? } else { 0 };
            caller.pool(pool)?.make_node(caller.string(path)?, kind, mode, device)?;
            Ok(())
        })
    }
}

/// Removes an empty directory.
///
/// Returns 0. Errors: those of rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_rmdir(pool: *const Pool, path: *const c_char) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.pool(pool)?.remove_dir(caller.string(path)?)?)) }
}

/// Removes a name that is no directory's. What it named goes with its last name, once nobody has it
/// open.
///
/// Returns 0. Errors: those of unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_unlink(pool: *const Pool, path: *const c_char) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.pool(pool)?.remove_file(caller.string(path)?)?)) }
}

fn rename_mode(flags: u32) -> Result<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Failure::Number(libc::EINVAL, "0, RENAME_NOREPLACE or RENAME_EXCHANGE is taken")),
    }
}

/// Renames, replacing what stands at to; with RENAME_NOREPLACE (1) fails where something does, with
/// RENAME_EXCHANGE (2) swaps the two. Durable, and all or nothing.
///
/// Returns 0. Errors: those of renameat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_rename(
    pool: *const Pool,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (pool, mode) = (caller.pool(pool)?, rename_mode(flags)?);
            Ok(pool.rename_with(caller.string(from)?, caller.string(to)?, mode)?)
        })
    }
}

/// Gives what existing names one more name; a symbolic link is linked itself.
///
/// Returns 0. Errors: those of link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_link(
    pool: *const Pool,
    existing: *const c_char,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let pool = caller.pool(pool)?;
            pool.hard_link(caller.string(existing)?, caller.string(path)?)?;
            Ok(())
        })
    }
}

/// Gives an open file one more name, or one that was opened with O_TMPFILE its first.
///
/// Returns 0. Errors: those of link(2), -ENOENT for a file whose last name was removed and for one of
/// O_TMPFILE with O_EXCL, -EXDEV for a file of another pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_flink(
    pool: *const Pool,
    file: *const OpenFile,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (pool, file) = (caller.pool(pool)?, caller.file(file)?);
            Ok(pool.link_file(file, caller.string(path)?)?)
        })
    }
}

/// Makes a symbolic link at path that holds target, whatever that is.
///
/// Returns 0. Errors: those of symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_symlink(
    pool: *const Pool,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.pool(pool)?.symlink(caller.string(target)?, caller.string(path)?)?;
            Ok(())
        })
    }
}

/// Stores what a symbolic link holds, without a NUL; of what is longer than size bytes the start.
///
/// Returns how many bytes were stored. Errors: -EINVAL (no symbolic link, size 0), and others of
/// readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_readlink(
    pool: *const Pool,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            if size == 0 {
                return Err(Failure::Number(libc::EINVAL, "room for 0 bytes"));
            }
            let target = caller.pool(pool)?.read_link(caller.string(path)?)?;
            let room = caller.room(buffer.cast(), size)?;
            Ok(room.iter_mut().zip(target.as_bytes()).map(|(to, from)| *to = *from).count())
        })
    }
}
