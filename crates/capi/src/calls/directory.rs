//! Directories, listed entry by entry.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{MutexGuard, PoisonError};

use novale_layout::NAME_BYTES_MAX;
use novale_posix::{Entry, OpenOptions};

use crate::border::args::Caller;
use crate::border::handle::{Directory, Pool};
use crate::border::listing::Listing;
use crate::border::reply::{Result, call};

/// An entry of a directory.
#[repr(C)]
pub struct Dirent {
    /// The inode's number.
    pub ino: u64,
    /// For novale_seekdir: where to go on after this entry.
    pub cookie: u64,
    /// The inode's kind, DT_REG and so on of <dirent.h>.
    pub kind: u8,
    /// The name, with a NUL at its end.
    pub name: [c_char; 256],
}

fn listing(caller: &Caller, directory: *const Directory) -> Result<MutexGuard<'_, Listing>> {
    let directory = caller.handle(directory)?;
    Ok(directory.listing.lock().unwrap_or_else(PoisonError::into_inner))
}

fn dirent((entry, cookie): &(Entry, u64)) -> Dirent {
    let mut name = [0; NAME_BYTES_MAX + 1];
    // The last place stays NUL; no name reaches it.
    for (to, from) in name.iter_mut().take(NAME_BYTES_MAX).zip(entry.name.as_bytes()) {
        *to = c_char::from_le_bytes([*from]);
    }
    Dirent { ino: entry.ino.get(), cookie: *cookie, kind: entry.kind.dirent_type(), name }
}

/// Opens a directory to be listed. *directory: the listing, NULL on failure; novale_closedir ends it.
///
/// Returns 0. Errors: those of opendir(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_opendir(
    pool: *const Pool,
    path: *const c_char,
    directory: *mut *mut Directory,
) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            caller.lend(directory, || {
                let how = OpenOptions::new().read(true).directory(true);
                let file = caller.pool(pool)?.open_file(caller.string(path)?, &how)?;
                Ok(Directory::new(Listing::new(file)))
            })
        })
    }
}

/// Stores the next entry. "." and ".." are not among them. Names that go while a directory is listed
/// may be seen or not, names that come are not seen before it starts again, all others are seen once.
///
/// Returns 1 for an entry, 0 after the last one. Errors: -EFAULT, -EUCLEAN (damage).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_readdir(directory: *const Directory, entry: *mut Dirent) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let mut listing = listing(caller, directory)?;
            let Some(next) = listing.next()? else { return Ok(false) };
            let stored = caller.put(entry, dirent(&next));
            if stored.is_err() {
                listing.put_back(next);
            }
            stored.map(|()| true)
        })
    }
}

/// Goes on after the entry with this cookie, also of another listing of the same directory; 0 is
/// the start.
///
/// Returns 0. Errors: those of every call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_seekdir(directory: *const Directory, cookie: u64) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| listing(caller, directory).map(|mut listing| listing.seek(cookie))) }
}

/// Ends a listing; the pointer is dead after that.
///
/// Returns 0. Errors: -EINVAL, -EBADF, -ESHUTDOWN for what is no open listing of this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_closedir(directory: *mut Directory) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe { call(|caller| caller.take(directory).map(drop)) }
}
