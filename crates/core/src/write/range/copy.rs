//! Copying bytes from one file to another, or within one, without a caller's memory between.
//!
//! It is a write whose bytes come from the pool: new pages throughout, those at the ends filled up
//! with what is around, one commit, crash points as of any write (`write::cow`). Both files are
//! locked from the reading on, so that what is copied is what the source held at one moment; no user
//! memory is touched, so nobody can make the lock wait.

use novale_layout::{Ino, PAGE};

use crate::base::error::{Error, Result};
use crate::base::extent::{ByteRange, pages_touched};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::op::call::{Call, OpKind};
use crate::op::counted::Written;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::write::plan::FILE_BYTES_MAX;

/// The longest copy of one call, in bytes: longer ones end there. Both files are locked while so many
/// are copied.
pub const COPY_BYTES_MAX: u64 = 16 << 20;

/// Pages put together at once, in memory of our own.
const CHUNK_PAGES: usize = 32;
const PAGE_BYTES: usize = 4096;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub ino: Ino,
    /// Bytes from its start.
    pub offset: u64,
}

/// Where bytes are copied from.
#[derive(Clone, Copy)]
struct CopySource<'a> {
    locked: &'a Locked<'a>,
    offset: u64,
}

impl Fs {
    /// Copies up to `len` bytes: fewer at the end of the source, and never more than
    /// [`COPY_BYTES_MAX`]. Returns how many. They are there all together, or after a crash or an
    /// error none of them. Holes are copied as zeros.
    ///
    /// # Errors
    /// Before anything changed: [`Error::NoSpace`]; [`Error::TooLarge`]; [`Error::Invalid`] and
    /// [`Error::IsDirectory`] for what is no regular file, [`Error::Invalid`] where the two ranges
    /// overlap in one file.
    pub fn copy_range(&self, ctx: &Ctx, from: Place, to: Place, len: u64) -> Result<u64> {
        let (copied, times) = self.copy_both_locked(ctx, from, to, len)?;
        if copied > 0 {
            self.touch(ctx, from.ino, times)?;
        }
        Ok(copied)
    }

    /// As [`Fs::copy_range`], and no access to the source, as [`Fs::peek`].
    ///
    /// # Errors
    /// As [`Fs::copy_range`].
    pub fn copy_range_peeking(&self, ctx: &Ctx, from: Place, to: Place, len: u64) -> Result<u64> {
        Ok(self.copy_both_locked(ctx, from, to, len)?.0)
    }

    fn copy_both_locked(
        &self,
        ctx: &Ctx,
        from: Place,
        to: Place,
        len: u64,
    ) -> Result<(u64, crate::map::read::Times)> {
        let call = self.begin(OpKind::Write, ctx)?;
        let locked = self.lock_all(&call, &[from.ino, to.ino])?;
        let of = |ino| locked.iter().find(|locked| locked.id.ino == ino).ok_or(Error::Stale);
        let (source, target) = (of(from.ino)?, of(to.ino)?);
        self.check_data(&source.view, source.kind)?;
        self.check_data(&target.view, target.kind)?;
        self.flush(&call, source)?;
        self.flush(&call, target)?;
        let left = source.view.size().saturating_sub(from.offset);
        let len = len.min(left);
        let is_apart = from.offset.saturating_add(len) <= to.offset
            || to.offset.saturating_add(len) <= from.offset;
        if len > 0 && from.ino == to.ino && !is_apart {
            return Err(Error::Invalid("a range that overlaps the one it is copied to"));
        }
        let len = len.min(COPY_BYTES_MAX);
        if len > 0 {
            let end = to.offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
            let mut range = ByteRange { offset: to.offset, end: end.ok_or(Error::TooLarge)? };
            let mut from = CopySource { locked: source, offset: from.offset };
            if len > PAGE && seeded::is_on(Bug::CopyInTwo) {
                let first = ByteRange { end: range.offset + PAGE, ..range };
                self.copy_locked(&call, from, target, first)?;
                (from.offset, range.offset) = (from.offset + PAGE, range.offset + PAGE);
            }
            self.copy_locked(&call, from, target, range)?;
            self.count_written(Written::Copied, len);
        }
        let state = source.view.state();
        Ok((len, (source.view.atime_ns(), state.mtime_ns, state.ctime_ns)))
    }

    fn copy_locked(
        &self,
        call: &Call<'_>,
        source: CopySource<'_>,
        target: &Locked<'_>,
        range: ByteRange,
    ) -> Result<()> {
        let ByteRange { offset, end } = range;
        let view = &target.view;
        if view.is_dax() {
            let mut bytes = vec![0; bytes(end - offset)];
            self.copy_out(&source.locked.view, source.offset, &mut bytes)?;
            // Zeros of a slot that fails in this load would take the place of the file's bytes.
            self.check_slots(call)?;
            return self.write_in_place(call, target, offset, &bytes);
        }
        let (first_page, pages) = (offset / PAGE, pages_touched(offset, end - offset));
        let stop = first_page + pages;
        // What replaces gives back as much as it takes.
        let replaces = view.index().next_gap(self.arena(), first_page, stop)? >= stop;
        let mut tx = FileTx::begin(self, call, target);
        tx.take(pages, need(replaces))?;
        tx.room_to_map(first_page)?;
        self.copy_pages(source, target, range, &mut tx)?;
        tx.zero_gap_before(offset)?;
        self.commit_written(&mut tx, first_page, end, &[])
    }

    /// Stores the new pages of `offset..end`, some at a time.
    fn copy_pages(
        &self,
        source: CopySource<'_>,
        target: &Locked<'_>,
        range: ByteRange,
        tx: &mut FileTx<'_>,
    ) -> Result<()> {
        let (CopySource { locked: source, offset: mut from }, ByteRange { offset, end }) =
            (source, range);
        let mut buffer = vec![0; CHUNK_PAGES * PAGE_BYTES];
        let (base, mut at) = (offset / PAGE, offset);
        while at < end {
            let first = at / PAGE;
            let stop = end.min((first + CHUNK_PAGES as u64) * PAGE);
            let pages = pages_touched(at, stop - at);
            let bytes = buffer.get_mut(..bytes(pages * PAGE)).unwrap_or_default();
            // The ends are filled up with what is there already.
            if at % PAGE > 0 || stop % PAGE > 0 {
                let (head, tail) = (at / PAGE, (stop - 1) / PAGE);
                self.old_page(target, head, bytes.get_mut(..PAGE_BYTES))?;
                let last = bytes.len().saturating_sub(PAGE_BYTES);
                if tail > head {
                    self.old_page(target, tail, bytes.get_mut(last..))?;
                }
            }
            let piece = bytes_between(at, stop, first);
            self.copy_out(&source.view, from, bytes.get_mut(piece).unwrap_or_default())?;
            for (index, page) in (first - base..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                tx.stream(tx.page(index), page);
            }
            (from, at) = (from + (stop - at), stop);
        }
        Ok(())
    }

    /// What a page of a file holds, zeros beyond its end.
    fn old_page(&self, locked: &Locked<'_>, page: u64, into: Option<&mut [u8]>) -> Result<()> {
        let into = into.unwrap_or_default();
        into.fill(0);
        self.load_page(&locked.view, page, into)
    }
}

/// A length that a chunk has room for.
fn bytes(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Where bytes `at..stop` of a file lie in a buffer that starts with page `first`.
fn bytes_between(at: u64, stop: u64, first: u64) -> std::ops::Range<usize> {
    bytes(at - first * PAGE)..bytes(stop - first * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Atime;
    use crate::fixture::with_file;

    #[test]
    fn who_copies_nothing_has_read_nothing() {
        let (fs, ino) = with_file();
        fs.set_atime(Atime::Strict);
        let at = |now_ns| Ctx { now_ns, hint: 0 };
        fs.write(&at(2), ino, 0, &[1; 100]).unwrap();
        let place = |offset| Place { ino, offset };
        let atime_ns = || fs.getattr(ino).unwrap().atime_ns;
        let before = atime_ns();
        assert_eq!(fs.copy_range(&at(5), place(100), place(4096), 50).unwrap(), 0);
        assert_eq!(atime_ns(), before);
        assert_eq!(fs.copy_range(&at(6), place(50), place(4096), 50).unwrap(), 50);
        assert_eq!(atime_ns(), 6);
    }
}
