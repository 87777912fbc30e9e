//! Where the current bytes of a file are.
//!
//! The rest of core asks here and nowhere else for the address of a page of a file, and for the old bytes
//! around a part of a page that is written. A method that keeps newer bytes beside a page's place is
//! overlaid here: of a page with two copies the lines that are current in the second; over both the lines
//! in the write buffer, for readers. Who changes a file's pages flushes it before, and finds them newest.

use std::ops::Range;

use novale_layout::{PAGE, Partner, PmAddr};

use crate::base::error::Result;
use crate::base::extent::pages_touched;
use crate::base::lines::{one_copy, places};
use crate::fs::Fs;
use crate::inode::pairs::{PairPlace, Paired};
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
            Some(home) if live > 0 => {
                let bytes = page_bytes.get_mut(..live).unwrap_or_default();
                match view.pair(self.arena(), page)? {
                    Some(Paired { partner, word, .. }) => {
                        self.load_runs(home, partner, word, 0..live as u64, bytes)
                    }
                    None => Ok(self.pm.load(home, bytes)?),
                }
            }
            _ => Ok(()),
        }
    }

    /// Loads current bytes of a page that may have two copies; at once where they lie in one, as they
    /// mostly do. By a branch, not by a choice of the address: so a CPU that guesses right begins to load
    /// before the word has come.
    #[inline]
    pub(crate) fn load_of_pair(
        &self,
        pair: &PairPlace<'_>,
        bytes: Range<u64>,
        into: &mut [u8],
    ) -> Result<()> {
        let partner = pair.partner();
        match one_copy(pair.word, &bytes) {
            Some(false) => Ok(self.pm.load_in_page(pair.home, bytes.start, into)?),
            Some(true) if !partner.is_shared() => {
                Ok(self.pm.load_in_page(partner.page(), bytes.start, into)?)
            }
            Some(true) | None => self.load_runs(pair.home, partner, pair.word, bytes, into),
        }
    }

    /// Loads bytes of a page run by run, each from the copy that has it.
    #[inline(never)]
    pub(crate) fn load_runs(
        &self,
        home: PmAddr,
        partner: Partner,
        word: u64,
        bytes: Range<u64>,
        mut into: &mut [u8],
    ) -> Result<()> {
        for (at, bytes) in places(home, partner, word, bytes) {
            let len = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
            let (piece, later) = into.split_at_mut(len.min(into.len()));
            self.pm.load_in_page(at.page(), at.byte() % PAGE, piece)?;
            into = later;
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
        places(home, pair.partner, pair.word, bytes)
            .try_for_each(|(at, bytes)| each(at, bytes.end - bytes.start))
    }

    /// Copies a file's bytes out; the caller validates the view afterwards.
    pub(crate) fn copy_out(
        &self,
        view: &View<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        if view.is_buffered() {
            self.copy_out_buffered(view, offset, buffer)
        } else {
            self.copy_out_pages(view, offset, buffer)
        }
    }

    /// As [`Fs::copy_out`], of a file with newer lines in the write buffer.
    #[inline(never)]
    fn copy_out_buffered(&self, view: &View<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = view.seen_size().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let bytes = buffer.get_mut(..count).unwrap_or_default();
        let committed = self.copy_out_pages(view, offset, bytes)?;
        bytes.get_mut(committed..).unwrap_or_default().fill(0);
        view.lay_buffered(self.arena(), offset, bytes)?;
        Ok(count)
    }

    /// As [`Fs::copy_out`], without what is in the write buffer.
    fn copy_out_pages(&self, view: &View<'_>, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = view.size().saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut rest = buffer.get_mut(..count).unwrap_or_default();
        let mut at = offset;
        while !rest.is_empty() {
            let (piece, later) = self.copy_piece(view, at, rest)?;
            at += piece as u64;
            rest = later;
        }
        let read = buffer.get_mut(..count).unwrap_or_default();
        self.unrecovered.lay_over(view.ino(), offset, read);
        Ok(count)
    }

    /// Copies the first of some bytes out, from `at` on: of pages that lie one after the other at once,
    /// of one with two copies alone. Gives how many, and the room for the others.
    fn copy_piece<'b>(
        &self,
        view: &View<'_>,
        at: u64,
        into: &'b mut [u8],
    ) -> Result<(usize, &'b mut [u8])> {
        let (arena, page, from) = (self.arena(), at / PAGE, at % PAGE);
        let pair = view.pair(arena, page)?;
        let most = match pair {
            Some(_) => 1,
            None => view.pages_before_pair(arena, page, pages_touched(at, into.len() as u64))?,
        };
        let (first, pages) = view.index().run(arena, page, most, PAGE)?;
        let now = usize::try_from(pages * PAGE - from).unwrap_or(usize::MAX).min(into.len());
        let (piece, later) = into.split_at_mut(now);
        let home = PmAddr::from_raw(first);
        match pair {
            _ if home.is_null() => piece.fill(0),
            Some(Paired { partner, word, .. }) => {
                self.load_runs(home, partner, word, from..from + now as u64, piece)?;
            }
            None => self.pm.load(home.add(from), piece)?,
        }
        Ok((now, later))
    }
}

/// How many bytes from a page's start on are the file's.
#[inline]
pub(crate) fn live_bytes(view: &View<'_>, page: u64) -> usize {
    let live = view.size().saturating_sub(page * PAGE).min(PAGE);
    usize::try_from(live).unwrap_or(0)
}
