//! Where the current bytes of a file are.
//!
//! The rest of core asks here and nowhere else for the address of a page of a file, and for the old bytes
//! around a part of a page that is written. A method that keeps newer bytes beside a page's place is
//! overlaid here.

use novale_layout::{PAGE, PmAddr};

use crate::base::error::Result;
use crate::base::extent::pages_touched;
use crate::fs::Fs;
use crate::inode::view::View;

impl Fs {
    /// Where a page of a file lies; none for a hole.
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
                Ok(self.pm.load(addr, page_bytes.get_mut(..live).unwrap_or_default())?)
            }
            _ => Ok(()),
        }
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
        self.unrecovered.lay_over(view.ino(), offset, buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

/// How many bytes from a page's start on are the file's.
#[inline]
pub(crate) fn live_bytes(view: &View<'_>, page: u64) -> usize {
    let live = view.size().saturating_sub(page * PAGE).min(PAGE);
    usize::try_from(live).unwrap_or(0)
}
