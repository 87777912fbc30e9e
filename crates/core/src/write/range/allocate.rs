//! `fallocate`: which operation a mode is, and reserving pages, which is the plain one.
//!
//! Reserving. Every hole of the range gets zeroed pages, all in one commit. Crash points: pages and
//! entries are stored after the log's tail; before the commit line is durable a crash frees them.

use novale_layout::{Ino, PAGE, RoFeature};

use crate::base::error::{Error, Result};
use crate::base::extent::ByteRange;
use crate::base::types::{Ctx, Fallocate};
use crate::fs::Fs;
use crate::map::fill::{Bytes, InPlace, NewPages};
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::pages::need;
use crate::write::plan::FILE_BYTES_MAX;
use crate::write::range::shift::{check_collapse, check_insert};

impl Fs {
    /// Changes where a range of a file's bytes has pages: see [`Fallocate`]. One commit, whatever the
    /// length: after a crash all of it is there, or nothing.
    ///
    /// # Errors
    /// Before anything changed: [`Error::NoSpace`]; [`Error::TooLarge`] for a range or a new end
    /// above 2^47 bytes; [`Error::Invalid`] for an empty range, and where [`Fallocate`] says so.
    pub fn fallocate(
        &self,
        ctx: &Ctx,
        ino: Ino,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange) {
            self.use_feature(ctx, RoFeature::MovedPages)?;
        }
        let call = self.begin(OpKind::Write, ctx)?;
        self.check_file(&call, ino)?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        let locked = self.lock_file(&call, ino)?;
        if how == Fallocate::CollapseRange {
            check_collapse(locked.view.size(), offset, len)?;
        } else if how == Fallocate::InsertRange {
            check_insert(locked.view.size(), offset, len)?;
        }
        if locked.view.is_dax()
            && let Some(change) = in_place(how, offset, end)?
        {
            return self.change_in_place(&call, &locked, &change);
        }
        if how == Fallocate::Extend {
            self.unpark_below(&call, &locked, end)?;
        }
        let range = ByteRange { offset, end };
        match how {
            Fallocate::Extend => self.allocate(&call, &locked, range, true),
            Fallocate::KeepSize => self.allocate(&call, &locked, range, false),
            Fallocate::PunchHole => self.punch(&call, &locked, range),
            Fallocate::ZeroRange => self.zero(&call, &locked, range, true),
            Fallocate::ZeroRangeKeepSize => self.zero(&call, &locked, range, false),
            Fallocate::CollapseRange => self.collapse(&call, &locked, offset, len),
            Fallocate::InsertRange => self.insert(&call, &locked, offset, len),
        }
    }

    pub(crate) fn allocate(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        range: ByteRange,
        extend: bool,
    ) -> Result<()> {
        let ByteRange { offset, end } = range;
        let holes = self.holes(locked, offset / PAGE, end.div_ceil(PAGE))?;
        let pages = holes.iter().map(|(_, pages)| pages).sum();
        self.allow(call, locked.view.project(), pages, 0)?;
        let mut tx = FileTx::begin(self, call, locked);
        let new_pages = self.pages_for(&mut tx, &holes)?;
        let size = locked.view.size();
        let size = if extend { size.max(end) } else { size };
        self.fill_holes(tx, Some(size), &new_pages)
    }

    /// The holes among the pages `from..to`: first page and number of each.
    pub(crate) fn holes(&self, locked: &Locked<'_>, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
        let (arena, index) = (self.arena(), locked.view.index());
        let mut holes = Vec::new();
        let mut at = from;
        let mut total = 0;
        while at < to {
            let first = index.next_gap(arena, at, to)?;
            if first >= to {
                break;
            }
            let end = index.next(arena, first)?.map_or(to, |(page, _)| page.min(to));
            holes.push((first, end - first));
            total += end - first;
            at = end;
        }
        self.check_possible(total)?;
        Ok(holes)
    }

    /// Refuses at once what no pool of this size has pages for.
    pub(crate) fn check_possible(&self, pages: u64) -> Result<()> {
        if pages > self.allocator.ranges.usable_pages() { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Maps zeroed pages, in one commit with the size; without one it is not seen, and is no change of
    /// the file.
    pub(crate) fn fill_holes(
        &self,
        mut tx: FileTx<'_>,
        new_size: Option<u64>,
        new_pages: &NewPages,
    ) -> Result<()> {
        let view = tx.view();
        if new_size.is_some() {
            tx.strip()?;
        }
        let size = new_size.unwrap_or(view.size());
        tx.room_for_runs(&new_pages.runs, need(new_pages.runs.is_empty()))?;
        tx.zero_gap(size)?;
        for (page, extent) in &new_pages.runs {
            tx.stream_zero(extent.addr, extent.pages * PAGE);
            tx.map(*page, *extent, &[]);
        }
        let (old_size, now_ns) = (view.size(), tx.now_ns());
        let next = tx.next();
        if size != old_size {
            (next.size, next.mtime_ns) = (size, now_ns);
        }
        if new_size.is_some() {
            next.ctime_ns = now_ns;
        }
        self.unpark_new(&view, new_pages)?;
        tx.commit(|_, _| self.show_new(&view, new_pages))
    }
}

/// What changes a file in place that somebody has mapped; none of what only adds pages.
fn in_place(how: Fallocate, offset: u64, end: u64) -> Result<Option<InPlace<'static>>> {
    let zeros = |fills, extends| InPlace { offset, end, bytes: Bytes::Zeros, fills, extends };
    match how {
        Fallocate::Extend | Fallocate::KeepSize => Ok(None),
        // Its pages stay: they may be mapped.
        Fallocate::PunchHole => Ok(Some(zeros(false, false))),
        Fallocate::ZeroRange => Ok(Some(zeros(true, true))),
        Fallocate::ZeroRangeKeepSize => Ok(Some(zeros(true, false))),
        Fallocate::CollapseRange | Fallocate::InsertRange => Err(Error::Pinned),
    }
}
