//! Pools: made, opened or joined, closed.

use std::ffi::{OsStr, c_char, c_int};

use novale_core::{Mode, UpdatePolicy};
use novale_layout::{NAME_BYTES_MAX, PAGE};
use novale_posix::{MakePool, Pool as OpenPool};

use crate::border::args::Caller;
use crate::border::forks;
use crate::border::handle::Pool;
use crate::border::reply::{Failure, Result, call};
use crate::border::version::NOVALE_ABI;
use crate::calls::method::chosen;

/// For novale_mkfs: overwrite what the slots hold.
pub const NOVALE_MKFS_OVERWRITE: u32 = 1;

/// Space and inodes of a pool.
#[repr(C)]
pub struct Statfs {
    /// Bytes of a block; the three numbers of blocks count such ones.
    pub block_size: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks without the reserve for deletes and overwrites on a full pool.
    pub blocks_available: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
    /// The longest name, in bytes without the NUL.
    pub name_max: u64,
}

fn paths(caller: &Caller, slots: *const *const c_char, slot_count: usize) -> Result<Vec<&OsStr>> {
    let paths = caller.strings(slots, slot_count)?;
    if paths.is_empty() || paths.iter().any(|path| path.is_empty()) {
        return Err(Failure::Number(
            libc::EINVAL,
            "a pool has at least one slot, each with a path",
        ));
    }
    Ok(paths)
}

/// Makes an empty pool of 1 to 64 slots. A slot that is not there is made, as a file of slot_bytes
/// bytes that its owner alone may use (0600); one that is there, file or device, keeps its length.
/// The root directory belongs to the calling process's effective user and group, with mode 0755.
///
/// slot_bytes: 2 MiB at least for the first slot, 1 MiB for others; 0 where all slots are there.
/// flags: 0, or NOVALE_MKFS_OVERWRITE.
///
/// Returns 0. Errors: -EEXIST (a slot holds something, and NOVALE_MKFS_OVERWRITE was not given),
/// -EBUSY (a slot is in use), -EINVAL (too small, too many, no size, unknown flags), -ENOSPC, and
/// those of open(2). Files that it has made are removed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_mkfs(
    slots: *const *const c_char,
    slot_count: usize,
    slot_bytes: u64,
    flags: u32,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let how = make_pool(slot_bytes, flags)?;
            let slots = paths(caller, slots, slot_count)?;
            novale_posix::make_pool(&slots, &how).map_err(Failure::Make)
        })
    }
}

fn make_pool(slot_bytes: u64, flags: u32) -> Result<MakePool> {
    if flags & !NOVALE_MKFS_OVERWRITE != 0 {
        return Err(Failure::Number(libc::EINVAL, "unknown flags of novale_mkfs"));
    }
    Ok(MakePool {
        slot_bytes: (slot_bytes > 0).then_some(slot_bytes),
        overwrite: flags & NOVALE_MKFS_OVERWRITE != 0,
        ..MakePool::default()
    })
}

/// As novale_mkfs, of a pool whose files are written by a method and in a mode, where they or their
/// directories choose no other: see novale_set_method and novale_set_mode. NULL: none is said, as
/// novale_mkfs does.
///
/// Returns 0. Errors: -EINVAL (no such name), and those of novale_mkfs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_mkfs_as(
    slots: *const *const c_char,
    slot_count: usize,
    slot_bytes: u64,
    flags: u32,
    method: *const c_char,
    mode: *const c_char,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let method = chosen(caller, method, UpdatePolicy::named)?;
            let mode = chosen(caller, mode, Mode::named)?;
            let how = MakePool { method, mode, ..make_pool(slot_bytes, flags)? };
            let slots = paths(caller, slots, slot_count)?;
            novale_posix::make_pool(&slots, &how).map_err(Failure::Make)
        })
    }
}

/// Opens a pool by the paths of all its slots, in any order. Where another process has it open and
/// shares it (a mount with -o direct, another user of this library), joins that one, else opens it
/// for others to join; after a crash that recovers it first. New inodes belong to the process's
/// effective user and group at this moment.
///
/// abi: NOVALE_ABI. flags: 0. *pool: the pool, NULL on failure; novale_close ends it.
///
/// Returns 0. Errors: -ELIBBAD (abi is not the library's, whose number novale_abi tells, or who has
/// the pool open uses another build), -EBUSY (somebody has the pool alone, and still after a tenth of
/// a second: a mount without -o direct, a check, a recovery), -EAGAIN (it is being closed, for
/// seconds by now), -EACCES (the slots, or the memory that its users share, are another user's),
/// -EUCLEAN (no pool, damage, slots that do not belong together), -ENOMEM, -EINVAL, -EFAULT, and
/// those of open(2). novale_message says more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_open(
    abi: u32,
    slots: *const *const c_char,
    slot_count: usize,
    flags: u32,
    pool: *mut *mut Pool,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            if abi != NOVALE_ABI {
                let why = "the program was built for another interface of libnovale";
                return Err(Failure::Number(libc::ELIBBAD, why));
            }
            if flags != 0 {
                return Err(Failure::Number(libc::EINVAL, "unknown flags of novale_open"));
            }
            caller.lend(pool, || {
                forks::watch();
                let slots = paths(caller, slots, slot_count)?;
                Ok(Pool::new(OpenPool::open(&slots).map_err(Failure::Open)?))
            })
        })
    }
}

/// Leaves a pool, and closes it where nobody else has it. Calls on it and on its files must have
/// returned. Files, directories and mappings that are still open are cut off: calls on them fail with
/// -ESHUTDOWN, and they are to be closed all the same. At the address of a mapping of a file's own
/// pages nothing is any more: who loads or stores there gets SIGSEGV. After this, whatever it returns
/// but -EINVAL, -EBADF or -ESHUTDOWN, the pointer is dead.
///
/// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN (see above), and -EIO or -EUCLEAN where the pool
/// could not be closed in order: nothing is lost, the next opening recovers it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_close(pool: *mut Pool) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| Ok(caller.take(pool)?.pool.close()?)) }
}

/// Space and inodes of a pool.
///
/// Returns 0. Errors: -EFAULT, and those of every call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_statfs(pool: *const Pool, statfs: *mut Statfs) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let found = caller.pool(pool)?.stat_fs()?;
            let told = Statfs {
                block_size: PAGE,
                blocks: found.pages,
                blocks_free: found.pages_free,
                blocks_available: found.pages_available,
                inodes: found.inodes,
                inodes_free: found.inodes_free,
                name_max: NAME_BYTES_MAX as u64,
            };
            caller.put(statfs, told)
        })
    }
}
