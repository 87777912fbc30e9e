//! Extended attributes: by path, of a symbolic link itself, of an open file.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

use libc::ssize_t;
use novale_posix::{At, File, Files};

use crate::border::args::Caller;
use crate::border::handle::{OpenFile, Pool};
use crate::border::reply::{Failure, Result, call};

/// Whose attributes a call is for.
enum Target<'a> {
    Named(&'a Files, At<'a>),
    Open(&'a File),
}

impl<'a> Target<'a> {
    fn path(caller: &'a Caller, pool: *const Pool, path: *const c_char) -> Result<Self> {
        Ok(Self::Named(caller.pool(pool)?, At::Path(caller.string(path)?)))
    }

    fn link(caller: &'a Caller, pool: *const Pool, path: *const c_char) -> Result<Self> {
        Ok(Self::Named(caller.pool(pool)?, At::Link(caller.string(path)?)))
    }

    fn file(caller: &'a Caller, file: *const OpenFile) -> Result<Self> {
        Ok(Self::Open(caller.file(file)?))
    }

    fn get(
        &self,
        caller: &Caller,
        name: *const c_char,
        (value, size): (*mut c_void, usize),
    ) -> Result<usize> {
        let name = caller.string(name)?;
        let found = match self {
            Self::Named(files, at) => files.get_xattr(*at, name)?,
            Self::Open(file) => file.get_xattr(name)?,
        };
        give(caller, &found, value, size)
    }

    fn set(
        &self,
        caller: &Caller,
        name: *const c_char,
        (value, size): (*const c_void, usize),
        flags: c_int,
    ) -> Result<()> {
        let mode = novale_posix::xattr_mode(flags)?;
        let (name, value) = (caller.string(name)?, caller.bytes(value, size)?);
        match self {
            Self::Named(files, at) => files.set_xattr(*at, name, value, mode)?,
            Self::Open(file) => file.set_xattr(name, value, mode)?,
        }
        Ok(())
    }

    fn list(&self, caller: &Caller, (list, size): (*mut c_char, usize)) -> Result<usize> {
        let found = match self {
            Self::Named(files, at) => files.list_xattrs(*at)?,
            Self::Open(file) => file.list_xattrs()?,
        };
        let mut names = Vec::new();
        for name in found {
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        give(caller, &names, list.cast(), size)
    }

    fn remove(&self, caller: &Caller, name: *const c_char) -> Result<()> {
        let name = caller.string(name)?;
        match self {
            Self::Named(files, at) => files.remove_xattr(*at, name)?,
            Self::Open(file) => file.remove_xattr(name)?,
        }
        Ok(())
    }
}

/// Stores what was found; with room for 0 bytes tells only how many there are.
pub(crate) fn give(caller: &Caller, found: &[u8], to: *mut c_void, size: usize) -> Result<usize> {
    if size == 0 {
        return Ok(found.len());
    }
    let room = caller.room(to, size)?;
    let room = room.get_mut(..found.len());
    room.ok_or(Failure::Number(libc::ERANGE, "more bytes than there is room for"))?
        .copy_from_slice(found);
    Ok(found.len())
}

/// Stores the value of an extended attribute, such as "user.note", of what a path names. With size 0
/// only tells how long it is.
///
/// Returns its length in bytes. Errors: -ENODATA (no such attribute), -ERANGE (longer than size), and
/// others of getxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_getxattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::path(caller, pool, path)?.get(caller, name, (value, size))) }
}

/// As novale_getxattr, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lgetxattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::link(caller, pool, path)?.get(caller, name, (value, size))) }
}

/// As novale_getxattr, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fgetxattr(
    file: *const OpenFile,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::file(caller, file)?.get(caller, name, (value, size))) }
}

/// Sets an extended attribute of what a path names to a value of up to 65536 bytes. Durable, and all
/// or nothing. flags: 0, or XATTR_CREATE and XATTR_REPLACE of <sys/xattr.h>.
///
/// Returns 0. Errors: -EEXIST, -ENODATA (flags), -E2BIG, -ERANGE (the name's length), -ENOSPC, and
/// others of setxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_setxattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| Target::path(caller, pool, path)?.set(caller, name, (value, size), flags))
    }
}

/// As novale_setxattr, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lsetxattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| Target::link(caller, pool, path)?.set(caller, name, (value, size), flags))
    }
}

/// As novale_setxattr, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fsetxattr(
    file: *const OpenFile,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::file(caller, file)?.set(caller, name, (value, size), flags)) }
}

/// Stores the names of the extended attributes of what a path names, each with a NUL after it. With
/// size 0 only tells how many bytes they are.
///
/// Returns the bytes of all names and NULs. Errors: -ERANGE (more than size), and others of
/// listxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_listxattr(
    pool: *const Pool,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::path(caller, pool, path)?.list(caller, (list, size))) }
}

/// As novale_listxattr, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_llistxattr(
    pool: *const Pool,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::link(caller, pool, path)?.list(caller, (list, size))) }
}

/// As novale_listxattr, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_flistxattr(
    file: *const OpenFile,
    list: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::file(caller, file)?.list(caller, (list, size))) }
}

/// Removes an extended attribute of what a path names.
///
/// Returns 0. Errors: -ENODATA (no such attribute), and others of removexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_removexattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::path(caller, pool, path)?.remove(caller, name)) }
}

/// As novale_removexattr, of a final symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lremovexattr(
    pool: *const Pool,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::link(caller, pool, path)?.remove(caller, name)) }
}

/// As novale_removexattr, of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fremovexattr(file: *const OpenFile, name: *const c_char) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Target::file(caller, file)?.remove(caller, name)) }
}
