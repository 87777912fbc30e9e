//! Files mapped into a program's memory.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::border::args::offset;
use crate::border::handle::{Mapped, Mapping, OpenFile};
use crate::border::reply::{Failure, call};

/// For novale_mmap: a replica, of which novale_msync publishes all changes at once.
pub const NOVALE_MAP_ATOMIC: c_int = 1;

/// Maps bytes bytes of a file from an offset on, for reading and writing, which the file must be open
/// for.
///
/// flags: 0 or NOVALE_MAP_ATOMIC. With 0 what is mapped are the file's own pages: from is a multiple of
/// 4096, and the last byte must lie in a page of the file. What is stored there all others see at
/// once; a crash keeps any part of it, by units of 8 bytes, until novale_msync has made it durable,
/// and so it does with what is written to the file meanwhile. With NOVALE_MAP_ATOMIC it is a copy in
/// memory, nobody else's.
/// *map: the mapping, NULL on failure; novale_munmap ends it. It needs the file no longer.
///
/// Returns 0. Errors: -EBADF (not open for both), -EINVAL (the range, the flags), -EBUSY (the kernel
/// has the file mapped), -ENOSPC (holes get pages), -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_mmap(
    file: *const OpenFile,
    from: i64,
    bytes: usize,
    flags: c_int,
    map: *mut *mut Mapping,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.lend(map, || {
                let (file, from, len) = (caller.file(file)?, offset(from)?, bytes as u64);
                let mapped = match flags {
                    0 => Mapped::Own(file.map(from, len)?),
                    NOVALE_MAP_ATOMIC => Mapped::Replica(Mutex::new(file.map_atomic(from, len)?)),
                    _ => return Err(Failure::Number(libc::EINVAL, "unknown flags")),
                };
                Ok(Mapping::new(mapped))
            })
        })
    }
}

/// Tells where a mapping is: *address its first byte, and *bytes how many it has, whole pages of the
/// file's own. It is valid until novale_munmap, of the file's own pages until novale_close too, and not
/// in a child of fork.
///
/// Returns 0. Errors: those of every call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_map_address(
    map: *const Mapping,
    address: *mut *mut c_void,
    bytes: *mut usize,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let (at, len) = match &caller.handle(map)?.mapped {
                Mapped::Own(map) => {
                    // Of a pool that is closed there is none.
                    map.load(0, &mut [])?;
                    (map.as_ptr(), map.len())
                }
                Mapped::Replica(replica) => {
                    let mut replica = replica.lock().unwrap_or_else(PoisonError::into_inner);
                    (replica.as_mut_ptr(), replica.len())
                }
            };
            caller.put(address, at.cast())?;
            caller.put(bytes, len)
        })
    }
}

/// Makes durable what was stored in bytes bytes of a mapping, from its byte from on. Of a replica all
/// changes are published, wherever they are: after a crash all of them are there, or none; nothing
/// must be stored to it meanwhile.
///
/// Returns 0. Errors: -EINVAL (beyond the mapping), of a replica -EBUSY (somebody has the file's own
/// pages mapped), -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_msync(map: *const Mapping, from: usize, bytes: usize) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let end = from.checked_add(bytes);
            let end = end.ok_or(Failure::Number(libc::EINVAL, "beyond the mapping"))?;
            match &caller.handle(map)?.mapped {
                Mapped::Own(map) if end <= map.len() => Ok(map.flush(from..end)?),
                Mapped::Own(_) => Err(Failure::Number(libc::EINVAL, "beyond the mapping")),
                Mapped::Replica(replica) => {
                    let mut replica = replica.lock().unwrap_or_else(PoisonError::into_inner);
                    Ok(replica.publish()?)
                }
            }
        })
    }
}

/// Ends a mapping; the pointer and what was mapped are dead after that. What a replica has not
/// published is lost; what was stored to a file's own pages is durable then, as it is after a
/// novale_fsync of the file by any process.
///
/// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no mapping of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_munmap(map: *mut Mapping) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| caller.take(map).map(drop)) }
}
