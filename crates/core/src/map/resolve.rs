//! Where the current bytes of a file are.
//!
//! The rest of core asks here and nowhere else for the address of a page of a file, and for the old bytes
//! around a part of a page that is written. A method that keeps newer bytes beside a page's place is
//! overlaid here: of a page with two copies the lines that are current in the second.

use std::ops::Range;

use novale_layout::{PAGE, PmAddr};

use crate::base::error::Result;
use crate::base::extent::pages_touched;
use crate::base::lines::line_runs;
use crate::fs::Fs;
use crate::inode::view::View;

impl Fs {
    /// Where a page of a file lies; none for a hole. Of a page with two copies it is the first.
    #[allow(clippy::inline_always, reason = "what it returns is made where it stays")]
    #[inline(always)]
    pub(crate) fn page_addr(&self, view: &View<'_>, page: u64) -> Result<Option<PmAddr>> {
        let addr = PmAddr::from_raw(view.index().get(self.arena(), page)?);
        Ok(Some(addr).filter(|addr| !addr.is_null()))
    }

    /// Fills the start of `page_bytes`, which are zeros, with what the file has of a page: none of it in
    /// a hole, nor beyond the end of the file. What lies there in the pool is nobody's.
    #[inline]
    pub(crate) fn load_page(
        &self,
        view: &View<'_>,
        page: u64,
        page_bytes: &mut [u8],
    ) -> Result<()> {
        let live = live_bytes(view, page);
        match self.page_addr(view, page)? {
            Some(addr) if live > 0 => {
                let bytes = page_bytes.get_mut(..live).unwrap_or_default();
                self.pm.load(addr, bytes)?;
                self.lay_partners(view, page * PAGE, bytes)
            }
            _ => Ok(()),
        }
    }

    /// Puts over bytes of a file, which are those of its pages' first copies, the lines of which the
    /// second is current.
    #[inline]
    fn lay_partners(&self, view: &View<'_>, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if view.has_pairs() { self.lay_partners_over(view, offset, bytes) } else { Ok(()) }
    }

    #[inline(never)]
    fn lay_partners_over(&self, view: &View<'_>, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let arena = self.arena();
        let end = offset + bytes.len() as u64;
        let mut next = view.next_pair(arena, offset / PAGE)?;
        while let Some(page) = next.filter(|page| page * PAGE < end) {
            next = view.next_pair(arena, page + 1)?;
            let Some(pair) = view.pair(arena, page)? else { continue };
            let start = page * PAGE;
            let inside = offset.max(start) - start..end.min(start + PAGE) - start;
            for run in line_runs(pair.word, inside).filter(|run| run.in_partner) {
                let [from, to] = [run.bytes.start, run.bytes.end]
                    .map(|byte| usize::try_from(start + byte - offset).unwrap_or(usize::MAX));
                let lines = bytes.get_mut(from..to).unwrap_or_default();
                self.pm.load(pair.partner.add(run.bytes.start), lines)?;
            }
        }
        Ok(())
    }

    /// Calls `each` with the place and length of each run of current bytes of a page that lies at `home`.
    pub(crate) fn each_current(
        &self,
        view: &View<'_>,
        page: u64,
        home: PmAddr,
        bytes: Range<u64>,
        mut each: impl FnMut(PmAddr, u64) -> Result<()>,
    ) -> Result<()> {
        let Some(pair) = view.pair(self.arena(), page)? else {
            return each(home.add(bytes.start), bytes.end - bytes.start);
        };
        for run in line_runs(pair.word, bytes) {
            let copy = if run.in_partner { pair.partner } else { home };
            each(copy.add(run.bytes.start), run.bytes.end - run.bytes.start)?;
        }
        Ok(())
    }

    /// Copies a file's bytes out; the caller validates the view afterwards.
    pub(crate) fn copy_out(
        &self,
        view: &View<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let left = view.size().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut rest = buffer.get_mut(..count).unwrap_or_default();
        let mut at = offset;
        let index = view.index();
        while !rest.is_empty() {
            // Pages that lie one after the other are copied at once.
            let (from, most) = (at % PAGE, pages_touched(at, rest.len() as u64));
            let (first, pages) = index.run(self.arena(), at / PAGE, most, PAGE)?;
            let now = usize::try_from(pages * PAGE - from).unwrap_or(usize::MAX).min(rest.len());
            let (piece, later) = rest.split_at_mut(now);
            if first == 0 {
                piece.fill(0);
            } else {
                self.pm.load(PmAddr::from_raw(first).add(from), piece)?;
            }
            at += now as u64;
            rest = later;
        }
        let read = buffer.get_mut(..count).unwrap_or_default();
        self.lay_partners(view, offset, read)?;
        self.unrecovered.lay_over(view.ino(), offset, read);
        Ok(count)
    }
}

/// How many bytes from a page's start on are the file's.
#[inline]
pub(crate) fn live_bytes(view: &View<'_>, page: u64) -> usize {
    let live = view.size().saturating_sub(page * PAGE).min(PAGE);
    usize::try_from(live).unwrap_or(0)
}
