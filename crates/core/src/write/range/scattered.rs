//! Writes to several places of a file as one operation: what an atomic mapping publishes (NOVA 4.5).
//!
//! It is a copy-on-write of all the pages that are touched, with one commit for all of them: an entry
//! for each run of pages that lie one after the other in the file and in the pool. Crash points as
//! of any write (`write::cow`): before the commit line is durable nothing of it is there, after it
//! all of it.

use std::collections::BTreeMap;

use novale_layout::{Ino, PAGE};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extents, match_extents};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::op::call::{Call, OpKind};
use crate::op::counted::Written;
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::pages::need;
use crate::seeded::{self, Bug};
use crate::write::plan::FILE_BYTES_MAX;

const PAGE_BYTES: usize = 4096;

/// Bytes of a write to several places.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// What of a file's bytes from an offset on was changed: each run of bytes that differ from what was there. What lies
    /// between two of them may be newer in the file.
    pub fn changed(
        offset: u64,
        old: &'a [u8],
        new: &'a [u8],
    ) -> impl Iterator<Item = Self> + Clone {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = old.get(at..)?.iter().zip(new.get(at..)?);
            let start = rest.clone().position(|(old, new)| old != new)?;
            let len = rest.skip(start).take_while(|(old, new)| old != new).count();
            let from = at + start;
            at = from + len;
            Some(Self { offset: offset + from as u64, bytes: new.get(from..at)? })
        })
    }

    /// What of it lies before the end of a file of so many bytes.
    fn before(self, size: u64) -> Option<Self> {
        let left = usize::try_from(size.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(..left).unwrap_or(self.bytes);
        (!bytes.is_empty()).then_some(Self { bytes, ..self })
    }
}

/// The pages that a write touches, as they will be.
type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

impl Fs {
    /// Writes all pieces, one after the other, as one operation: after a crash all of them are there, or
    /// none. They are read while the file is locked, so they must be the caller's own memory, not a
    /// user's.
    ///
    /// # Errors
    /// Before anything changed: those of [`Fs::write`]; [`Error::Pinned`] for a file whose own pages a
    /// client has mapped, which change in place.
    pub fn write_scattered(&self, ctx: &Ctx, ino: Ino, pieces: &[Piece<'_>]) -> Result<()> {
        if pieces.len() > 1 && seeded::is_on(Bug::PublishInTwo) {
            let mut each = pieces.iter();
            return each.try_for_each(|piece| self.write_scattered(ctx, ino, &[*piece]));
        }
        self.write_pieces(ctx, ino, pieces.iter().copied(), |piece, _| Some(piece))
    }

    /// As [`Fs::write_scattered`], of pieces that may be too many for a list of them. The file does not become longer:
    /// what lies beyond the end that it has by then is left out.
    ///
    /// # Errors
    /// As there.
    pub fn publish<'a>(
        &self,
        ctx: &Ctx,
        ino: Ino,
        pieces: impl Iterator<Item = Piece<'a>> + Clone,
    ) -> Result<()> {
        self.write_pieces(ctx, ino, pieces, Piece::before)
    }

    /// Writes what `kept` leaves of each piece in a file of so many bytes.
    fn write_pieces<'a>(
        &self,
        ctx: &Ctx,
        ino: Ino,
        pieces: impl Iterator<Item = Piece<'a>> + Clone,
        kept: impl Fn(Piece<'a>, u64) -> Option<Piece<'a>> + Copy,
    ) -> Result<()> {
        let call = self.begin(OpKind::Write, ctx)?;
        self.check_file(&call, ino)?;
        let locked = self.lock_file(&call, ino)?;
        if locked.view.is_dax() {
            return Err(Error::Pinned);
        }
        let size = locked.view.size();
        let pieces = pieces.filter_map(move |piece| kept(piece, size));
        let pages = self.pages_touched_by(&locked.view, pieces.clone())?;
        if pages.is_empty() {
            return Ok(());
        }
        let ends = pieces.clone().map(|piece| piece.offset + piece.bytes.len() as u64);
        self.commit_pages(&call, &locked, &pages, ends.max().unwrap_or(0))?;
        let bytes = pieces.map(|piece| piece.bytes.len() as u64).sum();
        self.count_written(Written::Published, bytes);
        Ok(())
    }

    /// The pages with the pieces in them, and the file's bytes around.
    fn pages_touched_by<'a>(
        &self,
        view: &View<'_>,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Result<Pages> {
        let mut pages = Pages::new();
        for Piece { offset, bytes } in pieces {
            let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
            end.ok_or(Error::TooLarge)?;
            let (mut at, mut rest) = (offset, bytes);
            while !rest.is_empty() {
                let from = usize::try_from(at % PAGE).unwrap_or(0);
                let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - from));
                let page = match pages.entry(at / PAGE) {
                    std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                    std::collections::btree_map::Entry::Vacant(new) => {
                        let mut page = Box::new([0; PAGE_BYTES]);
                        if now.len() < PAGE_BYTES {
                            self.load_page(view, at / PAGE, &mut page[..])?;
                        }
                        new.insert(page)
                    }
                };
                if let Some(place) = page.get_mut(from..from + now.len()) {
                    place.copy_from_slice(now);
                }
                (at, rest) = (at + now.len() as u64, later);
            }
        }
        Ok(pages)
    }

    fn commit_pages(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        pages: &Pages,
        end: u64,
    ) -> Result<()> {
        let view = &locked.view;
        let mut holes = 0;
        for page in pages.keys() {
            holes += u64::from(view.index().get(self.arena(), *page)? == 0);
        }
        self.allow(call, view.project(), holes, 0)?;
        // What replaces gives back as much as it takes.
        let mut tx = FileTx::begin(self, call, locked);
        tx.take(pages.len() as u64, need(holes == 0))?;
        let runs = match_extents(&runs_of(pages), tx.extents());
        tx.strip()?;
        tx.room_for_runs(&runs, need(true))?;
        if let Some(to) = gap_end(locked, pages) {
            tx.zero_gap(to)?;
        }
        for (index, bytes) in (0..).zip(pages.values()) {
            tx.stream(tx.page(index), &bytes[..]);
        }
        for (page, extent) in &runs {
            tx.map(*page, *extent, &[]);
        }
        tx.grow(end);
        tx.commit(|_, freed| {
            for (page, extent) in &runs {
                let mut extents = Extents::default();
                extents.push(*extent);
                self.map_extents(view, *page, &extents, freed)?;
            }
            Ok(())
        })
    }
}

/// How far what the file has beyond its end is to be zeroed: in its last page, and in those reserved after
/// it, which may lie between the pieces.
fn gap_end(locked: &Locked<'_>, pages: &Pages) -> Option<u64> {
    let last = locked.view.size() / PAGE;
    let (page, _) = pages.last_key_value()?;
    (*page > last).then_some(page * PAGE)
}

/// First page and number of each run of pages.
fn runs_of(pages: &Pages) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for page in pages.keys() {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *page => *count += 1,
            _ => runs.push((*page, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use novale_pm::Purpose;

    use super::*;
    use crate::base::types::{Fallocate, Node, SetAttr};
    use crate::fixture::{CTX, FILE, with_file};

    /// Another client cut the file while the changes of a mapping were looked for: publishing them made it long again.
    #[test]
    fn what_is_published_makes_no_file_longer() {
        let (fs, ino) = with_file();
        fs.write(&CTX, ino, 0, &[1; 100]).unwrap();
        let pieces = [20, 90, 9000].map(|offset| Piece { offset, bytes: &[2; 40] });
        fs.publish(&CTX, ino, pieces.into_iter()).unwrap();
        let mut bytes = [0; 200];
        assert_eq!(fs.read(&CTX, ino, 0, &mut bytes).unwrap(), 100);
        assert_eq!((&bytes[20..60], &bytes[90..100]), (&[2; 40][..], &[2; 10][..]));
        let beyond = Piece { offset: 100, bytes: &[3; 10] };
        fs.publish(&CTX, ino, std::iter::once(beyond)).unwrap();
        assert_eq!(fs.getattr(ino).unwrap().size, 100);
    }

    /// One at the greatest offset was left out, and the others were written.
    #[test]
    fn no_piece_is_left_out_of_a_write() {
        let (fs, ino) = with_file();
        let pieces = [0, u64::MAX].map(|offset| Piece { offset, bytes: &[1; 10] });
        let written = fs.write_scattered(&CTX, ino, &pieces);
        assert!(matches!(written, Err(Error::TooLarge)), "{written:?}");
        assert_eq!(fs.getattr(ino).unwrap().size, 0);
    }

    #[test]
    fn in_a_full_pool_pages_are_replaced_and_no_hole_is_filled() {
        let (fs, ino) = with_file();
        fs.write(&CTX, ino, 0, &[1; PAGE_BYTES]).unwrap();
        let full = fs.create(&CTX, Node::ROOT, b"full", &FILE).unwrap().ino;
        for len in [16 * PAGE_BYTES, PAGE_BYTES] {
            while fs.append(&CTX, full, &vec![1; len]).is_ok() {}
        }
        let there = Piece { offset: 100, bytes: &[2; 10] };
        let hole = Piece { offset: PAGE, ..there };
        fs.write_scattered(&CTX, ino, &[there]).unwrap();
        for pieces in [&[hole][..], &[there, hole]] {
            let written = fs.write_scattered(&CTX, ino, pieces);
            assert!(matches!(written, Err(Error::NoSpace)), "{written:?}");
        }
    }

    /// A client that had the file mapped has stored to pages that lie between the pieces and are reserved
    /// beyond the end. A write that also touched the page in which the file ended did not zero them.
    #[test]
    fn what_a_mapping_stored_beyond_the_end_is_not_shown_between_pieces() {
        for first in [0, PAGE] {
            let (fs, ino) = with_file();
            fs.write(&CTX, ino, 0, &vec![1; 8 * PAGE_BYTES]).unwrap();
            let generation = fs.getattr(ino).unwrap().generation;
            let hold = fs.map_hold(&CTX, ino, generation).unwrap().unwrap();
            let [run] = fs.map_pages(&CTX, hold, 0, 8).unwrap()[..] else { panic!("one run") };
            let size = Some(100);
            fs.setattr(&CTX, Node::current(ino), &SetAttr { size, ..SetAttr::default() }).unwrap();
            fs.fallocate(&CTX, ino, Fallocate::KeepSize, 0, 8 * PAGE).unwrap();
            let behind = run.addr.add(PAGE);
            let left = vec![0xee; 6 * PAGE_BYTES];
            fs.pm.fence(fs.pm.stream(behind, &left, Purpose::Data)).end();
            fs.open_release(&CTX, hold).unwrap();
            let pieces = [first, 6 * PAGE].map(|offset| Piece { offset, bytes: &[2; 10] });
            fs.write_scattered(&CTX, ino, &pieces).unwrap();
            let size = usize::try_from(fs.getattr(ino).unwrap().size).unwrap();
            let mut bytes = vec![0; size];
            assert_eq!(fs.read(&CTX, ino, 0, &mut bytes).unwrap(), size);
            let shown = bytes.iter().position(|byte| *byte == 0xee);
            assert_eq!(shown, None, "{first}");
        }
    }
}
