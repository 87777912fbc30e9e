//! Open files: made, read, written, positioned, copied.

use std::ffi::{c_char, c_int, c_void};

use libc::ssize_t;
use novale_posix::{OpenOptions, Whence, fallocate_mode};

use crate::border::args::{Caller, offset};
use crate::border::handle::{OpenFile, Pool};
use crate::border::reply::{Failure, Result, call};

/// Flags that ask for what is so already, or for what there is not: they change nothing.
const WITHOUT_EFFECT: c_int = libc::O_CLOEXEC
    | libc::O_DIRECT
    | libc::O_LARGEFILE
    | libc::O_NOATIME
    | libc::O_NOCTTY
    | libc::O_NONBLOCK;

/// What the flags of open(2) ask for.
fn open_options(flags: c_int, mode: u32) -> Result<OpenOptions> {
    let has = |flag: c_int| flags & flag == flag;
    if has(libc::O_PATH) {
        return Err(Failure::Number(libc::EOPNOTSUPP, "O_PATH is not there"));
    }
    let unnamed = has(libc::O_TMPFILE);
    let known = libc::O_ACCMODE
        | libc::O_APPEND
        | libc::O_CREAT
        | libc::O_DIRECTORY
        | libc::O_EXCL
        | libc::O_NOFOLLOW
        | libc::O_SYNC
        | libc::O_TMPFILE
        | libc::O_TRUNC
        | WITHOUT_EFFECT;
    if flags & !known != 0 || has(libc::O_CREAT | libc::O_DIRECTORY) {
        return Err(Failure::Number(libc::EINVAL, "flags that are unknown or do not go together"));
    }
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Failure::Number(libc::EINVAL, "no such access mode")),
    };
    let options = OpenOptions::new()
        .read(read)
        .append(write && has(libc::O_APPEND))
        .sync(has(libc::O_DSYNC))
        .write(write)
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_EXCL) && (unnamed || has(libc::O_CREAT)))
        .unnamed(unnamed)
        .truncate(has(libc::O_TRUNC))
        .directory(has(libc::O_DIRECTORY) && !unnamed)
        .no_follow(has(libc::O_NOFOLLOW));
    Ok(options.mode(mode))
}

/// Opens a file, as open(2) does; a directory for reading only, to be synced or looked at. With
/// O_TMPFILE makes one without a name, which novale_flink gives it, or closing it takes it away.
///
/// flags: those of <fcntl.h>. O_DIRECT, O_CLOEXEC, O_NOATIME, O_NOCTTY, O_NONBLOCK and O_LARGEFILE
/// change nothing; nor do O_SYNC and O_DSYNC where every write is durable when it returns, which it is
/// but in a file of mode "buffered" (novale_set_mode).
/// mode: permission and set-id bits of a file that is made; the umask takes none of them away.
/// *file: the file, NULL on failure; novale_file_close closes it.
///
/// Returns 0. Errors: those of open(2), -EOPNOTSUPP for O_PATH, and what is a FIFO, a socket or a
/// device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_file_open(
    pool: *const Pool,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut OpenFile,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.lend(file, || {
                let (pool, path) = (caller.pool(pool)?, caller.string(path)?);
                Ok(OpenFile::new(pool.open_file(path, &open_options(flags, mode)?)?))
            })
        })
    }
}

/// Closes a file; the pointer is dead after that. One without a name is gone then.
///
/// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no open file of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_file_close(file: *mut OpenFile) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| caller.take(file).map(drop)) }
}

/// Reads up to bytes bytes at the position and moves it.
///
/// Returns how many, 0 at the end of the file. Errors: -EBADF (not open for reading), -EISDIR,
/// -EFAULT, -EUCLEAN (damage).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_read(
    file: *const OpenFile,
    buffer: *mut c_void,
    bytes: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.file(file)?.read(caller.room(buffer, bytes)?)?)) }
}

/// As novale_read, at an offset in bytes; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_pread(
    file: *const OpenFile,
    buffer: *mut c_void,
    bytes: usize,
    from: i64,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, from) = (caller.file(file)?, offset(from)?);
            Ok(file.read_at(from, caller.room(buffer, bytes)?)?)
        })
    }
}

/// As novale_read, into up to 1024 buffers one after the other, as one read.
///
/// Errors: -EINVAL (too many buffers), -ENOMEM, and those of novale_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_readv(
    file: *const OpenFile,
    buffers: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let file = caller.file(file)?;
            Ok(file.read_vectored(&mut caller.all_room(buffers, count)?)?)
        })
    }
}

/// As novale_readv, at an offset in bytes; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_preadv(
    file: *const OpenFile,
    buffers: *const libc::iovec,
    count: c_int,
    from: i64,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, from) = (caller.file(file)?, offset(from)?);
            Ok(file.read_vectored_at(from, &mut caller.all_room(buffers, count)?)?)
        })
    }
}

/// Writes bytes at the position, or at the file's end with O_APPEND, and moves the position. Once it
/// returns, all bytes are durable; after a crash before that, all are there or none.
///
/// Returns how many: all. Errors, with nothing written: -EBADF (not open for writing), -EFBIG,
/// -ENOSPC, -EDQUOT, -ENOMEM, -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_write(
    file: *const OpenFile,
    buffer: *const c_void,
    bytes: usize,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.file(file)?.write(caller.bytes(buffer, bytes)?)?)) }
}

/// As novale_write, at an offset in bytes, with O_APPEND too; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_pwrite(
    file: *const OpenFile,
    buffer: *const c_void,
    bytes: usize,
    to: i64,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, to) = (caller.file(file)?, offset(to)?);
            Ok(file.write_at(to, caller.bytes(buffer, bytes)?)?)
        })
    }
}

/// As novale_write, of up to 1024 buffers one after the other, as one write: all of them or none.
///
/// Errors: -EINVAL (too many buffers), -ENOMEM, and those of novale_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_writev(
    file: *const OpenFile,
    buffers: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let file = caller.file(file)?;
            Ok(file.write_vectored(&caller.all_bytes(buffers, count)?)?)
        })
    }
}

/// As novale_writev, at an offset in bytes, with O_APPEND too; the position stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_pwritev(
    file: *const OpenFile,
    buffers: *const libc::iovec,
    count: c_int,
    to: i64,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, to) = (caller.file(file)?, offset(to)?);
            Ok(file.write_vectored_at(to, &caller.all_bytes(buffers, count)?)?)
        })
    }
}

/// Moves the position, beyond the end too. from: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE
/// of <unistd.h>.
///
/// Returns the new position in bytes. Errors: -EINVAL (before the start, unknown from), -ENXIO (no
/// data or hole there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_lseek(file: *const OpenFile, by: i64, from: c_int) -> i64 {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.file(file)?.seek(Whence::of_call(by, from)?)?)) }
}

/// Returns once what was written is durable: at once, for it is already, but in a file of mode
/// "buffered" (novale_set_mode).
///
/// Returns 0. Errors: those of every call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fsync(file: *const OpenFile) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.file(file)?.sync()?)) }
}

/// Cuts a file, or extends it by zeros, to a length in bytes. Durable, and all or nothing.
///
/// Returns 0. Errors: -EBADF (not open for writing), -EINVAL (below 0, no regular file), -EFBIG,
/// -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_ftruncate(file: *const OpenFile, length: i64) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.file(file)?.set_len(offset(length)?)?)) }
}

/// Reserves space for a range of bytes, or punches, zeroes, takes out or inserts it. Durable, and all
/// or nothing. mode: 0 or FALLOC_FL_ flags of <linux/falloc.h>, all but FALLOC_FL_UNSHARE_RANGE.
///
/// Returns 0. Errors: -EBADF (not open for writing), -EINVAL (an empty range; one not of whole blocks
/// where it must be), -EOPNOTSUPP (flags), -EFBIG, -ENOSPC, -EDQUOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_fallocate(
    file: *const OpenFile,
    mode: c_int,
    from: i64,
    length: i64,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (file, from, length) = (caller.file(file)?, offset(from)?, offset(length)?);
            Ok(file.fallocate(fallocate_mode(mode)?, from, length)?)
        })
    }
}

/// An offset that a call takes and moves.
struct Moving(*mut i64);

impl Moving {
    fn get(&self, caller: &Caller) -> Result<Option<u64>> {
        caller.get(self.0)?.map(offset).transpose()
    }

    fn set(self, caller: &Caller, start: Option<u64>, by: u64) -> Result<()> {
        let end = start.and_then(|start| i64::try_from(start + by).ok());
        end.map_or(Ok(()), |end| caller.put(self.0, end))
    }
}

/// Copies bytes between two files of a pool, or within one where the ranges do not overlap. Each
/// offset in bytes is moved by what was copied; where it is NULL, the file's position is used and
/// moved. One call copies up to 16 MiB, durably, and all or nothing. flags: 0.
///
/// Returns how many bytes, 0 at the end of the source. Errors: -EBADF (a file's access, O_APPEND),
/// -EINVAL (overlapping ranges, no regular file, flags), -EXDEV (files of two pools), -EFBIG,
/// -ENOSPC, -EDQUOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_copy_file_range(
    source: *const OpenFile,
    source_offset: *mut i64,
    target: *const OpenFile,
    target_offset: *mut i64,
    bytes: usize,
    flags: u32,
) -> ssize_t {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            if flags != 0 {
                return Err(Failure::Number(libc::EINVAL, "no flags are known"));
            }
            let (source, target) = (caller.file(source)?, caller.file(target)?);
            let (source_offset, target_offset) = (Moving(source_offset), Moving(target_offset));
            let (from, to) = (source_offset.get(caller)?, target_offset.get(caller)?);
            let copied = source.copy_range(from, (target, to), bytes as u64)?;
            source_offset.set(caller, from, copied)?;
            target_offset.set(caller, to, copied)?;
            Ok(usize::try_from(copied).unwrap_or(usize::MAX))
        })
    }
}
