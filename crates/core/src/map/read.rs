//! Reading: bytes, holes and data, access times. Readers take no lock.

use std::sync::atomic::Ordering;

use novale_layout::{FileKind, Ino, PAGE, PmAddr, VOLATILE_OFFSET};
use novale_pm::Purpose;

use crate::base::error::{Error, Result};
use crate::base::types::{Ctx, Node, Seek};
use crate::fs::{Atime, Fs};
use crate::inode::view::View;
use crate::op::call::OpKind;
use crate::op::lock::regular;
use crate::seeded::{self, Bug};

const DAY_NS: i64 = 86_400_000_000_000;

/// Times of access, modification and change.
pub(crate) type Times = (i64, i64, i64);

impl Fs {
    /// Reads up to `buffer.len()` bytes from `offset`; fewer at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`] for what is no regular file, [`Error::Stale`].
    pub fn read(&self, ctx: &Ctx, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.read_at_once(ctx.hint, ino, offset, buffer) {
            // As the kernel has it, to ask for no bytes is no access.
            Some((count, _)) if buffer.is_empty() => Ok(count),
            Some((count, times)) if !self.is_access_due(ctx, times) => Ok(count),
            Some((count, times)) => self.touch(ctx, ino, times).map(|()| count),
            None => self.read_slowly(ctx, ino, offset, buffer),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self, ctx: &Ctx, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let (count, times) = self.read_out(ctx, ino, offset, buffer)?;
        if !buffer.is_empty() {
            self.touch(ctx, ino, times)?;
        }
        Ok(count)
    }

    /// A read where all is at hand, as it mostly is; none where it takes more, or is refused.
    #[inline]
    fn read_at_once(
        &self,
        hint: u32,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<(usize, Times)> {
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let arena = self.arena().known();
        let (view, begun) = self.views.known(arena, ino, hint)?;
        if !view.is_loaded_as(FileKind::File) {
            return None;
        }
        let health = self.pm.health();
        let left = view.size().saturating_sub(offset);
        let len = left.min(buffer.len() as u64);
        let from = offset % PAGE;
        let is_in_page = len > 0 && len <= PAGE - from;
        let count = if is_in_page && !view.has_pairs() {
            let page = PmAddr::from_raw(view.index().known_page(arena, offset / PAGE)?);
            let piece = buffer.get_mut(..usize::try_from(len).ok()?)?;
            if page.is_null() {
                piece.fill(0);
            } else {
                self.pm.load_in_page(page, from, piece).ok()?;
            }
            piece.len()
        } else if is_in_page
            && let Some(pair) = view
                .known_page_and_pair(arena, offset / PAGE)
                .or_else(|| view.known_apart(arena, offset / PAGE))
            && !pair.home.is_null()
        {
            let piece = buffer.get_mut(..usize::try_from(len).ok()?)?;
            self.load_of_pair(&pair, from..from + len, piece).ok()?;
            piece.len()
        } else {
            self.copy_out(&view, offset, buffer).ok()?
        };
        let times = (view.atime_ns(), view.mtime_ns(), view.ctime_ns());
        (view.read_valid(begun) && self.pm.health() == health).then_some((count, times))
    }

    /// Reads, and tells the times that say whether the access is due to be recorded.
    fn read_out(
        &self,
        ctx: &Ctx,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, Times)> {
        let copy = |view: &View<'_>, kind, buffer: &mut [u8]| {
            self.check_data(view, kind)?;
            let count = self.copy_out(view, offset, buffer)?;
            let (mtime_ns, ctime_ns) = view.seen_times();
            Ok((count, (view.atime_ns(), mtime_ns, ctime_ns)))
        };
        for _ in 0..2 {
            let read = &mut |view: &View<'_>, kind| copy(view, kind, buffer);
            if let Some(done) = self.read_unlocked(ino, read)? {
                return Ok(done);
            }
            // The first use of a file loads its view.
            self.read_view(ctx.hint, ino, |_, _| Ok(()))?;
        }
        // Writers kept getting between. No user memory is touched under a lock.
        let mut own = vec![0; buffer.len()];
        let done = self.read_view(ctx.hint, ino, |view, kind| copy(view, kind, &mut own))?;
        if let (Some(to), Some(from)) = (buffer.get_mut(..done.0), own.get(..done.0)) {
            to.copy_from_slice(from);
        }
        Ok(done)
    }

    /// As [`Fs::read`], of which no access time tells.
    ///
    /// # Errors
    /// Those of [`Fs::read`].
    pub fn peek(&self, ctx: &Ctx, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if let Some((count, _)) = self.read_at_once(ctx.hint, ino, offset, buffer) {
            return Ok(count);
        }
        self.check_open()?;
        self.read_out(ctx, ino, offset, buffer).map(|(count, _)| count)
    }

    /// A symlink's target.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no symlink; [`Error::Stale`].
    pub fn readlink(&self, node: Node) -> Result<Vec<u8>> {
        self.read_node(0, node, |view, kind| {
            if kind != FileKind::Symlink {
                return Err(Error::Invalid("not a symlink"));
            }
            let len = view.size().min(PAGE);
            let mut target = vec![0; usize::try_from(len).unwrap_or(0)];
            self.copy_out(view, 0, &mut target)?;
            Ok(target)
        })
    }

    /// Whether an access is to be recorded, by the mount's rule for access times.
    #[inline]
    fn is_access_due(&self, ctx: &Ctx, (atime, mtime, ctime): Times) -> bool {
        let is_due = match self.atime() {
            Atime::Relatime => {
                atime <= mtime.max(ctime) || ctx.now_ns.saturating_sub(atime) >= DAY_NS
            }
            Atime::Noatime => false,
            Atime::Strict => atime != ctx.now_ns,
        };
        is_due && !self.options.read_only
    }

    /// Records an access, as the mount's rule for access times asks.
    #[inline(never)]
    pub(crate) fn touch(&self, ctx: &Ctx, ino: Ino, times: Times) -> Result<()> {
        if !self.is_access_due(ctx, times) {
            return Ok(());
        }
        let (atime, _, _) = times;
        let call = self.begin(OpKind::Atime, ctx)?;
        let locked = match self.lock(&call, ino) {
            // Removed since it was read, which is no failure of the read.
            Err(Error::Stale) => return Ok(()),
            locked => locked?,
        };
        if locked.view.atime_ns() != atime {
            // Set since then, perhaps explicitly: that stands.
            return Ok(());
        }
        // Ordered words of one line, the time first: it counts only with the others, and may be
        // lost; nothing waits for it.
        let at = locked.place.addr.add(VOLATILE_OFFSET);
        let word =
            |offset: u64, value: u64| self.pm.store_u64(at.add(offset), value, Purpose::Inode);
        let counts = || word(8, locked.view.attr_seq());
        let _early = seeded::is_on(Bug::AccessCountsEarly).then(counts);
        let stored = word(0, ctx.now_ns.cast_unsigned())
            .join(word(16, u64::from(locked.id.generation)))
            .join(counts());
        let _unfenced = self.pm.write_back(stored);
        locked.view.publish(|| locked.view.set_atime_ns(ctx.now_ns));
        Ok(())
    }

    /// The next data or hole at or after `offset`. A file that a kernel has mapped is data up to its end.
    ///
    /// # Errors
    /// [`Error::NoSuchOffset`] beyond the end of the file, or where no data follows;
    /// [`Error::IsDirectory`], [`Error::Invalid`] for what is no regular file.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        if self.read_view(0, ino, |view, _| Ok(view.is_buffered()))? {
            self.flush_early(&Ctx { now_ns: 0, hint: 0 }, ino, true)?;
        }
        self.read_view(0, ino, |view, kind| {
            regular(kind)?;
            let size = view.size();
            if offset >= size {
                return Err(Error::NoSuchOffset);
            }
            // What was stored to a kernel's pages comes when it writes them back: all of it may be data.
            if view.is_mapped() {
                return Ok(if what == Seek::Data { offset } else { size });
            }
            let (arena, page) = (self.arena(), offset / PAGE);
            match what {
                Seek::Data => match view.index().next(arena, page)? {
                    Some((found, _)) if found * PAGE < size => Ok(offset.max(found * PAGE)),
                    _ => Err(Error::NoSuchOffset),
                },
                Seek::Hole => {
                    let hole = view.index().next_gap(arena, page, size.div_ceil(PAGE))? * PAGE;
                    Ok(hole.max(offset).min(size))
                }
            }
        })
    }
}
