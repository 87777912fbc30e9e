//! How files are written: by which method, and when that is durable.

use std::ffi::{c_char, c_int};

use libc::ssize_t;
use novale_core::{Mode, UpdatePolicy};

use crate::border::args::{Caller, offset};
use crate::border::handle::{Mapped, Mapping, OpenFile, Pool};
use crate::border::reply::{Failure, Result, call};
use crate::calls::xattr::give;

/// What a name stands for; none for NULL.
pub(crate) fn chosen<T>(
    caller: &Caller,
    name: *const c_char,
    named: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    if name.is_null() {
        return Ok(None);
    }
    let chosen = caller.string(name)?.to_str().and_then(named);
    chosen.map(Some).ok_or(Failure::Number(libc::EINVAL, "no method or mode has that name"))
}

/// Chooses the method by which a file is written, by its name; of a directory, the method of what is
/// made in it from now on. "auto", "cow", "inplace", "finelog", "paired", "adl", "zcl", "lawn": see README.md.
/// NULL takes the choice away, so that the pool's holds. What was written by one method is read and
/// written by all. With "inplace" an overwrite is atomic by 8 bytes alone.
///
/// Returns 0. Errors: -EINVAL (no such name; neither file nor directory), -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_set_method(
    pool: *const Pool,
    path: *const c_char,
    method: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (pool, path) = (caller.pool(pool)?, caller.string(path)?);
            Ok(pool.set_method(path, chosen(caller, method, UpdatePolicy::named)?)?)
        })
    }
}

/// Tells the name of the method by which a file is written, or what is made in a directory: its own,
/// or the pool's. The name gets no NUL. size 0 asks for the length alone.
///
/// Returns the name's length in bytes. Errors: -ERANGE (longer than size).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_get_method(
    pool: *const Pool,
    path: *const c_char,
    name: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let found = caller.pool(pool)?.method(caller.string(path)?)?.name();
            give(caller, found.as_bytes(), name.cast(), size)
        })
    }
}

/// Chooses when the writes of a file become durable; of a directory, those of what is made in it from
/// now on. "strict": when they return. "buffered": with the file's next novale_fsync, or when the
/// pool is closed; a mount that shares the pool does so after some seconds, too, and this library does
/// not. A crash before that, of the machine or of all processes that have the pool open, leaves what
/// some first part of the writes made. NULL takes the choice away, so that the pool's holds. It counts
/// in a pool that has a mode (novale_mkfs_as, novale mkfs --mode, or -o mode= of the mount that opened
/// it); in others all is strict.
///
/// Returns 0. Errors: -EINVAL (no such name; neither file nor directory), -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_set_mode(
    pool: *const Pool,
    path: *const c_char,
    mode: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (pool, path) = (caller.pool(pool)?, caller.string(path)?);
            Ok(pool.set_mode(path, chosen(caller, mode, Mode::named)?)?)
        })
    }
}

/// As novale_get_method, of the mode.
///
/// Returns the name's length in bytes. Errors: -ERANGE (longer than size).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_get_mode(
    pool: *const Pool,
    path: *const c_char,
    name: *mut c_char,
    size: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let found = caller.pool(pool)?.mode(caller.string(path)?)?.name();
            give(caller, found.as_bytes(), name.cast(), size)
        })
    }
}

/// As novale_pwrite, of bytes bytes of a mapping, from its byte from on. Where the mapping is of a
/// file's own pages, in the same pool, and the file written has the method "zcl", the mapped bytes are
/// the log of the write: they are stored once. Nobody must change them meanwhile.
///
/// Returns how many: all. Errors: -EINVAL (beyond the mapping; a replica's), and those of
/// novale_pwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_write_from(
    file: *const OpenFile,
    to: i64,
    map: *const Mapping,
    from: usize,
    bytes: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, to) = (caller.file(file)?, offset(to)?);
            let beyond = Failure::Number(libc::EINVAL, "beyond the mapping");
            let end = from.checked_add(bytes);
            match &caller.handle(map)?.mapped {
                Mapped::Own(map) => match end.filter(|end| *end <= map.len()) {
                    Some(end) => Ok(file.write_from(to, map, from..end)?),
                    None => Err(beyond),
                },
                Mapped::Replica(_) => {
                    let why = "a replica is not in the pool: novale_pwrite writes from it";
                    Err(Failure::Number(libc::EINVAL, why))
                }
            }
        })
    }
}
