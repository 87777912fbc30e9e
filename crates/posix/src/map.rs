//! Files mapped by the library: their own pages in the pool, or a replica that is published at once.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use novale_core::{Error as FsError, HoldId, MappedRun, Piece, SourceRun};
use novale_pm::Window;

use crate::room::with_room;
use crate::vectored::zeros;
use crate::{Error, File, Result};

const PAGE: u64 = 4096;

/// A range of a file, its own pages: what is stored to it all clients see at once, and a crash keeps any
/// part of it by units of 8 bytes until [`Map::flush`] has made it durable, or somebody who syncs the file
/// ([`File::sync`]; `fsync` of any process), or its end: what may have been stored is written back when it is dropped,
/// and when the pool is closed. Only a flush sets the time of modification. As long as there is one,
/// writes change the file in place, with no more atomicity than that, and no kernel maps or runs the file.
///
/// It ends with its pool ([`Pool::close`](crate::Pool::close)): all calls on it fail with `ESHUTDOWN`
/// then, and nothing is at its address any more.
#[derive(Debug)]
pub struct Map {
    /// `None` only while it is dropped: the pages are the file's until the hold is given up.
    window: Option<Window>,
    file: File,
    hold: HoldId,
    /// Where it begins in the file, bytes.
    offset: u64,
    runs: Vec<MappedRun>,
}

impl File {
    /// Maps `len` bytes from `offset` on, a whole page each, which must lie before the end of the file
    /// but for the last page. Holes get pages.
    ///
    /// # Errors
    /// `EBADF` unless the file is open for reading and writing; `EINVAL` for another range; `EBUSY`
    /// where a kernel has the file mapped; `ENOSPC`; what the kernel says of the mapping (`ENODEV` for
    /// a pool in private memory).
    pub fn map(&self, offset: u64, len: u64) -> Result<Map> {
        let (shared, ino) = (self.mappable()?, self.ino());
        if !offset.is_multiple_of(PAGE) || len == 0 {
            return Err(FsError::Invalid("a mapping that begins within a page").into());
        }
        let (first, pages) = (offset / PAGE, len.div_ceil(PAGE));
        let beyond = FsError::Invalid("a mapping beyond the end of the file");
        let attr = self.attr()?;
        // Before holes get pages.
        if first + pages > attr.size.div_ceil(PAGE) {
            return Err(beyond.into());
        }
        let generation = attr.generation;
        let hold = shared.fs.map_hold(&shared.ctx(), ino, generation)?.ok_or(FsError::Stale)?;
        let mut map = Map { window: None, file: self.clone(), hold, offset, runs: Vec::new() };
        map.hold = shared.fs.hold_to_write(hold)?;
        let runs = shared.fs.map_pages(&shared.ctx(), hold, first, pages)?;
        if runs.iter().map(|run| run.pages).sum::<u64>() != pages {
            // It was cut short meanwhile.
            return Err(beyond.into());
        }
        let pieces: Vec<_> = runs.iter().map(|run| (run.addr, run.pages * PAGE)).collect();
        map.window = Some(shared.fs.pm().window(&pieces).map_err(Error::NotMapped)?);
        // Who closes the pool ends the windows that there are then.
        if shared.fs.is_closed() {
            return Err(FsError::Closed.into());
        }
        map.runs = runs;
        Ok(map)
    }

    /// Writes bytes of a mapping, a range of it, at `offset`. A file whose method of writes is `zcl` has
    /// them as the log of the write where they lie (zero-copy logging); others are written as ever.
    /// Nobody else changes the bytes meanwhile, or those written are of both versions.
    ///
    /// # Errors
    /// `EINVAL` beyond the end of the mapping; those of [`File::write_at`].
    pub fn write_from(&self, offset: u64, map: &Map, range: Range<usize>) -> Result<usize> {
        if range.end > map.len() {
            return Err(FsError::Invalid("bytes beyond the end of a mapping").into());
        }
        let mut bytes = zeros(range.len())?;
        map.load(range.start, &mut bytes)?;
        let shared = self.before_write_at(&bytes)?;
        let of_file = map.offset + range.start as u64..map.offset + range.end as u64;
        let is_one_pool = Arc::ptr_eq(&shared.fs, &map.file.shared().fs);
        let runs = map.runs.iter().filter(|run| is_one_pool && run.touches(&of_file));
        let source: Vec<SourceRun> = runs.map(|run| run.bytes(&of_file)).collect();
        let write = || shared.fs.write_from(&shared.ctx(), self.ino(), offset, &bytes, &source);
        Ok(with_room(&shared.fs, write)?)
    }

    /// Maps a replica of `len` bytes from `offset` on (NOVA 4.5): what is stored to it is the caller's
    /// alone until [`Replica::publish`]. It takes memory twice its length.
    ///
    /// # Errors
    /// `EBADF` unless the file is open for reading and writing; `ENOMEM`, and `EINVAL` for more than
    /// there can be; those of reading it.
    pub fn map_atomic(&self, offset: u64, len: u64) -> Result<Replica> {
        self.mappable()?;
        let len = usize::try_from(len).map_err(|_| FsError::TooLarge)?;
        // Both before either is filled, which takes memory that is only promised until then.
        let (mut base, mut bytes) = (zeros(len)?, zeros(len)?);
        let mut filled = 0;
        while let Some(rest) = base.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(offset + filled as u64, rest)? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        bytes.copy_from_slice(&base);
        Ok(Replica { bytes, base, file: self.clone(), offset })
    }
}

impl Map {
    fn window(&self) -> Result<&Window> {
        self.window.as_ref().ok_or_else(|| FsError::Closed.into())
    }

    /// Its first byte; null never. Others may store there at any time, so nothing but raw pointers may be
    /// made of it. It is valid as long as the map, and until the pool is closed: who loads or stores
    /// there later gets SIGSEGV.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.window.as_ref().map_or(std::ptr::null_mut(), Window::as_ptr)
    }

    /// Bytes: whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.window.as_ref().map_or(0, Window::len)
    }

    /// Never: there is a page at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `at` on in the mapping.
    ///
    /// # Errors
    /// `EINVAL` beyond its end, `ESHUTDOWN` once the pool is closed.
    pub fn load(&self, at: usize, into: &mut [u8]) -> Result<()> {
        let window = self.window()?;
        in_it(window, window.load(at, into))
    }

    /// Stores bytes from `at` on in the mapping. Others see them now; a crash may keep any part.
    ///
    /// # Errors
    /// As [`Map::load`].
    pub fn store(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let window = self.window()?;
        in_it(window, window.store(at, bytes))
    }

    /// Makes durable what was stored in a range of the mapping, and sets the time of modification.
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::map_flush`].
    pub fn flush(&self, range: Range<usize>) -> Result<()> {
        let shared = self.file.shared();
        let (from, to) = (self.offset + range.start as u64, self.offset + range.end as u64);
        let first = from / PAGE;
        let pages = to.div_ceil(PAGE).saturating_sub(first);
        Ok(shared.fs.map_flush(&shared.ctx(), self.file.ino(), first, pages)?)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // The pages are its parent's, who has them mapped still.
        if self.window.as_ref().is_some_and(|window| !window.is_of_this_process()) {
            return;
        }
        // Nobody may reach the pages once they can be another file's.
        drop(self.window.take());
        let shared = self.file.shared();
        let (ctx, ino, first) = (shared.ctx(), self.file.ino(), self.offset / PAGE);
        let pages = self.runs.iter().map(|run| run.pages).sum();
        // Nobody is left to be told; what can fail here, damage and a closed pool, fails everywhere.
        shared.fs.map_write_back(&ctx, ino, first, pages).unwrap_or_default();
        shared.fs.open_release(&ctx, self.hold).unwrap_or_default();
    }
}

/// What to say of bytes that were copied from or to a window, or were not.
fn in_it(window: &Window, copied: bool) -> Result<()> {
    if copied {
        return Ok(());
    }
    let beyond = FsError::Invalid("bytes beyond the end of a mapping");
    Err(if window.has_ended() { FsError::Closed } else { beyond }.into())
}

/// A replica of a range of a file, in memory; what is not published is lost with it.
#[derive(Debug)]
pub struct Replica {
    bytes: Vec<u8>,
    /// What was published last, or read at first.
    base: Vec<u8>,
    file: File,
    /// Where it begins in the file, bytes.
    offset: u64,
}

impl Deref for Replica {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Replica {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Replica {
    /// Writes what was changed since the last time to the file, in one commit: after a crash all of it is
    /// there, or none. The bytes that were changed are written and no others; what lies beyond the end of the
    /// file is not, and stays to be published. Where another client cuts the file during the call, what lay behind
    /// the new end counts as published: if the file grows again, it has zeros there until those bytes are changed
    /// again.
    ///
    /// # Errors
    /// Those of [`novale_core::Fs::publish`]; nothing is published then.
    pub fn publish(&mut self) -> Result<()> {
        let shared = self.file.shared();
        shared.drop_set_id(self.file.ino())?;
        let left = self.file.attr()?.size.saturating_sub(self.offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.bytes.len());
        let (old, new) = (self.base.get_mut(..len), self.bytes.get(..len));
        let (Some(old), Some(new)) = (old, new) else { return Ok(()) };
        let write = || {
            let pieces = Piece::changed(self.offset, old, new);
            shared.fs.publish(&shared.ctx(), self.file.ino(), pieces)
        };
        with_room(&shared.fs, write)?;
        old.copy_from_slice(new);
        Ok(())
    }
}
