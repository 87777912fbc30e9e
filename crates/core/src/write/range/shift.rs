//! Collapsing a range out of a file, and inserting one: what lies after it gets other offsets.
//!
//! Pages keep their place in the pool. One commit takes everything from the range on out, by a hole
//! entry to the end of the file, and maps each run of pages anew where it belongs, by a write entry
//! each. So an older entry may name a page at an offset that the file has at another by now: what
//! counts is the map in the end, for a reader, for recovery's accounts and for collection, which
//! keeps of a write what the file maps just there. The hole says for every page that is not mapped
//! any more that it is not, so it stays in the log as any other hole does.
//!
//! Crash points: entries are stored after the log's tail; before the commit line is durable the
//! file is as it was. No page of data is stored to. The pages of a collapsed range are freed after
//! the line's fence, as those of a truncation.

use novale_layout::{PAGE, PmAddr};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::FILE_PAGES_MAX;
use crate::log::entries::hole_to_end;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::write::plan::FILE_BYTES_MAX;

/// Pages that lie one after the other in the file as in the pool: those of one entry.
#[derive(Debug, Clone, Copy)]
struct Run {
    file_page: u64,
    extent: Extent,
}

/// What a file's map is to become.
struct Shift {
    /// Everything from this page on changes.
    from: u64,
    /// What is mapped there then, in order.
    runs: Vec<Run>,
    /// Pages that go.
    freed: Extents,
    size: u64,
    need: Need,
}

impl Fs {
    /// Takes the bytes `offset..offset + len` out of the file; what follows moves to `offset`.
    pub(crate) fn collapse(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let (view, from, pages) = (&locked.view, offset / PAGE, len / PAGE);
        self.unpair(call, locked, from..FILE_PAGES_MAX)?;
        let mut runs = self.runs(view, from + pages)?;
        for run in &mut runs {
            run.file_page -= pages;
        }
        let mut freed = Extents::default();
        let mut next = view.index().next(self.arena(), from)?;
        while let Some((page, addr)) = next.filter(|(page, _)| *page < from + pages) {
            freed.push_page(PmAddr::from_raw(addr));
            next = view.index().next(self.arena(), page + 1)?;
        }
        let size = view.size() - len;
        self.shift(call, locked, &Shift { from, runs, freed, size, need: Need::Release })
    }

    /// Makes a hole of `len` bytes at `offset`; what was there moves after it.
    pub(crate) fn insert(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let (view, from, pages) = (&locked.view, offset / PAGE, len / PAGE);
        let size = view.size() + len;
        self.unpair(call, locked, from..FILE_PAGES_MAX)?;
        let mut runs = self.runs(view, from)?;
        for run in &mut runs {
            run.file_page += pages;
        }
        // Pages may be reserved beyond the end of the file.
        let end = runs.last().map_or(0, |run| run.file_page + run.extent.pages);
        if end > FILE_PAGES_MAX {
            return Err(Error::TooLarge);
        }
        let freed = Extents::default();
        self.shift(call, locked, &Shift { from, runs, freed, size, need: Need::Growth })
    }

    /// What is mapped from `page` on.
    fn runs(&self, view: &View<'_>, page: u64) -> Result<Vec<Run>> {
        let (arena, index) = (self.arena(), view.index());
        let mut runs: Vec<Run> = Vec::new();
        let mut next = index.next(arena, page)?;
        while let Some((page, addr)) = next {
            let addr = PmAddr::from_raw(addr);
            match runs.last_mut() {
                Some(Run { file_page, extent })
                    if *file_page + extent.pages == page && extent.end() == addr =>
                {
                    extent.pages += 1;
                }
                _ => runs.push(Run { file_page: page, extent: Extent { addr, pages: 1 } }),
            }
            next = index.next(arena, page + 1)?;
        }
        Ok(runs)
    }

    fn shift(&self, call: &Call<'_>, locked: &Locked<'_>, shift: &Shift) -> Result<()> {
        let view = &locked.view;
        let changes = !shift.runs.is_empty() || !shift.freed.is_empty();
        let entries = if changes { 1 + shift.runs.len() } else { 0 };
        let mut tx = FileTx::begin(self, call, locked);
        tx.strip()?;
        // A data checksum would have to take in every page that moves: the form is the two-fence one.
        tx.room(entries, shift.need)?;
        for run in &shift.runs {
            self.room_in_index(view, run.file_page, run.extent.pages)?;
        }
        if changes && !seeded::is_on(Bug::MovedPagesStay) {
            tx.entry(&hole_to_end(shift.from));
        }
        for run in &shift.runs {
            tx.map(run.file_page, run.extent, &[]);
        }
        tx.free(&shift.freed);
        tx.grow(0);
        tx.next().size = shift.size;
        let op_seq = tx.next().op_seq;
        tx.commit(|_, _| {
            if changes {
                view.set_cut(op_seq, shift.from);
            }
            self.show_shift(view, shift)
        })
    }

    /// Maps all runs where they belong, then takes out what lies between them.
    fn show_shift(&self, view: &View<'_>, shift: &Shift) -> Result<()> {
        let (arena, index) = (self.arena(), view.index());
        for Run { file_page, extent } in &shift.runs {
            index.set_range(arena, *file_page, extent.pages, extent.addr.raw(), PAGE)?;
        }
        let mut at = shift.from;
        for Run { file_page, extent } in &shift.runs {
            index.remove_range(arena, at, *file_page, &mut |_, _| ())?;
            at = file_page + extent.pages;
        }
        index.remove_range(arena, at, FILE_PAGES_MAX, &mut |_, _| ())?;
        view.set_data_pages(view.data_pages() - shift.freed.pages());
        Ok(())
    }
}

/// Refuses a range that can't be taken out of a file of `size` bytes.
pub(crate) fn check_collapse(size: u64, offset: u64, len: u64) -> Result<()> {
    whole_pages(offset, len)?;
    if offset + len >= size {
        return Err(Error::Invalid("a range to collapse that reaches the end of the file"));
    }
    Ok(())
}

/// Refuses a hole that can't be put into a file of `size` bytes.
pub(crate) fn check_insert(size: u64, offset: u64, len: u64) -> Result<()> {
    whole_pages(offset, len)?;
    if size.checked_add(len).is_none_or(|size| size > FILE_BYTES_MAX) {
        return Err(Error::TooLarge);
    }
    if offset >= size {
        return Err(Error::Invalid("a place to insert behind the end of the file"));
    }
    Ok(())
}

/// Refuses a range that does not begin and end with a page, as ext4 does one of other blocks.
fn whole_pages(offset: u64, len: u64) -> Result<()> {
    if offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) {
        return Ok(());
    }
    Err(Error::Invalid("a range that is not of whole pages"))
}
