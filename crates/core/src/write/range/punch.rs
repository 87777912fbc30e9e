//! Punching a hole into a file, and zeroing a range of it.
//!
//! Punching: whole pages go by a hole entry; the pages that the range covers in part are replaced
//! copy-on-write, with zeros in the range. What is replaced or goes gives back as much as is taken,
//! so a full pool's reserve serves. Crash points: new pages and entries are stored after the log's
//! tail; a crash before the commit line leaves the file as it was, after it all of the hole is
//! there. Pages are freed after that. Zeroing is a write of zeros, in new pages all of them.

use std::ops::Range;

use novale_layout::{Entry, FilePage, PAGE, PmAddr};
use novale_pm::{Flushed, Purpose};

use crate::base::error::Result;
use crate::base::extent::{ByteRange, Extent, Extents, page_at};
use crate::fs::Fs;
use crate::inode::view::View;
use crate::log::page_crc;
use crate::op::call::Call;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::space::Need;

const PAGE_BYTES: usize = 4096;
/// Most pages of one hole entry: one more would mean the end of the file.
const HOLE_PAGES_MAX: u64 = u32::MAX as u64 - 1;

/// A page that the range covers in part, with the bytes that it is to have.
pub(crate) struct Edge {
    pub(crate) file_page: u64,
    pub(crate) bytes: Box<[u8; PAGE_BYTES]>,
}

/// The pages of a range to be punched.
struct Holes {
    edges: Vec<Edge>,
    /// First page and number of each hole: whole pages, of which the first is mapped.
    whole: Vec<(u64, u64)>,
}

impl Fs {
    /// Makes the bytes `offset..end` a hole, as far as the file goes.
    pub(crate) fn punch(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        range: ByteRange,
    ) -> Result<()> {
        let view = &locked.view;
        let holes = self.holes_to_punch(view, range)?;
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(holes.edges.len() as u64, Need::Release)?;
        tx.sum(self.is_single(holes.edges.len() as u64 * PAGE));
        tx.strip()?;
        tx.room(holes.edges.len() + holes.whole.len(), Need::Release)?;
        for (index, edge) in (0..).zip(&holes.edges) {
            let addr = tx.page(index);
            tx.stream(addr, &edge.bytes[..]);
            let sum = if tx.is_single() { page_crc(&edge.bytes[..]) } else { 0 };
            tx.map(edge.file_page, Extent { addr, pages: 1 }, &[sum]);
        }
        for &(page, pages) in &holes.whole {
            tx.entry(&hole(page, pages));
        }
        tx.grow(0);
        tx.commit(|taken, freed| self.show_holes(view, &holes, taken, freed))
    }

    /// Makes the bytes `offset..end` zeros in pages of their own: new ones for all that the range
    /// touches, mapped by one commit as a write's are. With `extend` the size rises to cover them.
    pub(crate) fn zero(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        range: ByteRange,
        extend: bool,
    ) -> Result<()> {
        let ByteRange { offset, end } = range;
        let view = &locked.view;
        let (first_page, stop) = (offset / PAGE, end.div_ceil(PAGE));
        let pages = stop - first_page;
        self.check_possible(pages)?;
        // What replaces gives back as much as it takes.
        let replaces = view.index().next_gap(self.arena(), first_page, stop)? >= stop;
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(pages, need(replaces))?;
        tx.room_to_map(first_page)?;
        self.zero_edges(&mut tx, range)?;
        if extend {
            tx.zero_gap_before(offset)?;
        }
        self.zero_whole(&mut tx, range);
        self.commit_written(&mut tx, first_page, if extend { end } else { 0 }, &[])
    }

    /// Stores those of a range's new pages that it covers in part.
    fn zero_edges(&self, tx: &mut FileTx<'_>, range: ByteRange) -> Result<()> {
        let ByteRange { offset, end } = range;
        for (file_page, from, to) in edges_of(offset, end) {
            let edge = self.edge(&tx.view(), file_page, from..to)?;
            let addr = tx.page(file_page - offset / PAGE);
            let stored = if seeded::is_on(Bug::ZeroEdgeCached) {
                seeded::stream_but_a_line(&self.pm, addr, &edge.bytes[..], 0)
            } else {
                self.pm.stream(addr, &edge.bytes[..], Purpose::Data)
            };
            tx.also(stored);
        }
        Ok(())
    }

    /// Zeroes those of a range's new pages that it covers whole.
    fn zero_whole(&self, tx: &mut FileTx<'_>, range: ByteRange) {
        let ByteRange { offset, end } = range;
        let base = offset / PAGE;
        let mut skip = offset.div_ceil(PAGE) - base;
        let mut left = (end / PAGE).saturating_sub(base + skip);
        let mut pending = Flushed::none();
        for Extent { addr, pages } in tx.extents().iter() {
            let skipped = skip.min(pages);
            let zeroed = (pages - skipped).min(left);
            (skip, left) = (skip - skipped, left - zeroed);
            if zeroed > 0 {
                let at = addr.add(skipped * PAGE);
                pending = pending.and(self.pm.stream_zero(at, zeroed * PAGE, Purpose::Data));
            }
        }
        tx.also(pending);
    }

    fn holes_to_punch(&self, view: &View<'_>, range: ByteRange) -> Result<Holes> {
        let ByteRange { offset, end } = range;
        let (arena, index) = (self.arena(), view.index());
        // Bytes beyond the end of the file are nobody's: its last page may go as a whole.
        let end = if end >= view.size() { end.next_multiple_of(PAGE) } else { end };
        let mut edges = Vec::new();
        for (file_page, from, to) in edges_of(offset, end) {
            if file_page * PAGE + from as u64 >= view.size() || index.get(arena, file_page)? == 0 {
                continue;
            }
            edges.push(self.edge(view, file_page, from..to)?);
        }
        let (mut page, stop) = (offset.div_ceil(PAGE), end / PAGE);
        let mut whole = Vec::new();
        // As many turns as a file has pages, divided by those of an entry: at most nine.
        while let Some((first, _)) = index.next(arena, page)?.filter(|(first, _)| *first < stop) {
            let pages = (stop - first).min(HOLE_PAGES_MAX);
            whole.push((first, pages));
            page = first + pages;
        }
        Ok(Holes { edges, whole })
    }

    /// A page with zeros in a range of its bytes and beyond the end of the file, and the file's
    /// bytes elsewhere.
    pub(crate) fn edge(
        &self,
        view: &View<'_>,
        file_page: u64,
        zeros: Range<usize>,
    ) -> Result<Edge> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        self.load_page(view, file_page, &mut bytes[..])?;
        if let Some(range) = bytes.get_mut(zeros) {
            range.fill(0);
        }
        Ok(Edge { file_page, bytes })
    }

    /// Maps the new pages, takes the whole ones out; all that falls out of use goes to `freed`.
    fn show_holes(
        &self,
        view: &View<'_>,
        holes: &Holes,
        extents: &Extents,
        freed: &mut Extents,
    ) -> Result<()> {
        let (arena, index) = (self.arena(), view.index());
        for (at, edge) in (0..).zip(&holes.edges) {
            // In the place of another, so no room is needed.
            let old = index.set(arena, edge.file_page, page_at(extents, at).raw())?;
            freed.push_page(PmAddr::from_raw(old));
        }
        let replaced = freed.pages();
        for &(page, pages) in &holes.whole {
            index.remove_range(arena, page, page + pages, &mut |_, addr| {
                freed.push_page(PmAddr::from_raw(addr));
            })?;
        }
        view.set_data_pages(view.data_pages() - (freed.pages() - replaced));
        Ok(())
    }
}

/// The pages that a range of bytes covers in part, and from where to where: none, one or two.
pub(crate) fn edges_of(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (first, last) = (offset / PAGE, end / PAGE);
    let [from, to] = [offset % PAGE, end % PAGE].map(|byte| usize::try_from(byte).unwrap_or(0));
    let head_to = if first == last { to } else { PAGE_BYTES };
    let head = (from > 0).then_some((first, from, head_to));
    let tail = (to > 0 && (first < last || from == 0)).then_some((last, 0, to));
    head.into_iter().chain(tail)
}

/// The entry that takes pages out.
fn hole(page: u64, pages: u64) -> Entry {
    Entry::Write {
        file_page: FilePage::new(page),
        addr: PmAddr::NULL,
        count: u32::try_from(pages).unwrap_or(u32::MAX),
        snapshot_epoch: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_the_bytes_of_a_range_in_pages_covered_in_part() {
        let edges = |offset, end| edges_of(offset, end).collect::<Vec<_>>();
        assert_eq!(edges(0, 4096), []);
        assert_eq!(edges(4096, 12_288), []);
        assert_eq!(edges(0, 1), [(0, 0, 1)]);
        assert_eq!(edges(1, 4096), [(0, 1, 4096)]);
        assert_eq!(edges(5000, 5001), [(1, 904, 905)]);
        assert_eq!(edges(4095, 4097), [(0, 4095, 4096), (1, 0, 1)]);
        assert_eq!(edges(1, 12_288), [(0, 1, 4096)]);
        assert_eq!(edges(8192, 12_289), [(3, 0, 1)]);
    }
}
