//! Directories, listed entry by entry.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{MutexGuard, PoisonError};

use novale_layout::NAME_BYTES_MAX;
use novale_posix::{Entry, File, OpenOptions};

use crate::args::Caller;
use crate::border::{Result, call};
use crate::handle::{Directory, Pool};

/// Entries that are read from a directory at once.
const BATCH: usize = 128;
/// An entry of a directory.
#[repr(C)]
pub struct Dirent {
    /// The inode's number.
    pub ino: u64,
    /// For novale_seekdir: where to go on behind this entry.
    pub cookie: u64,
    /// The inode's kind, DT_REG and so on of <dirent.h>.
    pub kind: u8,
    /// The name, with a NUL at its end.
    pub name: [c_char; 256],
}

/// A directory, and what was read of it ahead of the caller.
pub(crate) struct Listing {
    file: File,
    ahead: VecDeque<(Entry, u64)>,
    /// The cookie of the last entry that was read.
    after: u64,
    /// None above this cookie is listed: what is made later would have it go on for ever. Fixed with
    /// the first entry, and anew when the listing starts again.
    last: Option<u64>,
    /// Nothing was behind it when it was read.
    ended: bool,
}

impl Listing {
    fn seek(&mut self, cookie: u64) {
        self.ahead.clear();
        (self.after, self.ended) = (cookie, false);
        if cookie == 0 {
            self.last = None;
        }
    }

    fn next(&mut self) -> Result<Option<(Entry, u64)>> {
        if self.ahead.is_empty() && !self.ended {
            let last = match self.last {
                Some(last) => last,
                None => *self.last.insert(self.file.last_cookie()?),
            };
            let Self { file, ahead, after, ended, .. } = self;
            file.read_dir(*after, |entry, cookie| {
                if cookie > last {
                    return false;
                }
                ahead.push_back((entry, cookie));
                *after = cookie;
                ahead.len() < BATCH
            })?;
            *ended = ahead.len() < BATCH;
        }
        Ok(self.ahead.pop_front())
    }
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
                let ahead = VecDeque::new();
                Ok(Directory::new(Listing { file, ahead, after: 0, last: None, ended: false }))
            })
        })
    }
}

/// Stores the next entry. "." and ".." are not among them. Names that go while a directory is listed
/// may be seen or not, names that come are not seen before it starts again, all others are seen once.
///
/// Returns 1 for an entry, 0 behind the last one. Errors: -EFAULT, -EUCLEAN (damage).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn novale_readdir(directory: *const Directory, entry: *mut Dirent) -> c_int {
    // SAFETY: the header asks the caller for it.
    unsafe {
        call(|caller| {
            let mut listing = listing(caller, directory)?;
            let Some(next) = listing.next()? else { return Ok(false) };
            let stored = caller.put(entry, dirent(&next));
            if stored.is_err() {
                listing.ahead.push_front(next);
            }
            stored.map(|()| true)
        })
    }
}

/// Goes on behind the entry with this cookie, also of another listing of the same directory; 0 is
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
