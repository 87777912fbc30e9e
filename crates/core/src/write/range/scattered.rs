//! Writes to several places of a file as one operation: what an atomic mapping publishes (NOVA 4.5).
//!
//! It is a copy-on-write of all the pages that are touched, with one commit for all of them: an entry
//! for each run of pages that lie one behind the other in the file and in the pool. Crash points as
//! of any write (`write::cow`): before the commit line is durable nothing of it is there, behind it
//! all of it.

use std::collections::BTreeMap;

use novale_layout::{Ino, PAGE};
use novale_pm::{Flushed, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extents, match_extents, page_at};
use crate::base::types::Ctx;
use crate::fs::{Call, Fs, Locked, OpKind, need};
use crate::inode::view::View;
use crate::log::entries::write_entry;
use crate::op::commit::Rest;
use crate::seeded;
use crate::seeded::Bug;
use crate::write::cow::FILE_BYTES_MAX;

const PAGE_BYTES: usize = 4096;

/// Bytes of a write to several places.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What.
    pub bytes: &'a [u8],
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
        let call = self.begin(OpKind::Write, ctx)?;
        self.check_file(&call, ino)?;
        let locked = self.lock_file(&call, ino)?;
        if locked.view.is_dax() {
            return Err(Error::Pinned);
        }
        let pages = self.pages_touched_by(&locked.view, pieces)?;
        if pages.is_empty() {
            return Ok(());
        }
        let ends = pieces.iter().map(|piece| piece.offset + piece.bytes.len() as u64);
        self.commit_pages(&call, &locked, &pages, ends.max().unwrap_or(0))
    }

    /// The pages with the pieces in them, and the file's bytes around.
    fn pages_touched_by(&self, view: &View<'_>, pieces: &[Piece<'_>]) -> Result<Pages> {
        let mut pages = Pages::new();
        for Piece { offset, bytes } in pieces {
            let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
            end.ok_or(Error::TooLarge)?;
            let (mut at, mut rest) = (*offset, *bytes);
            while !rest.is_empty() {
                let from = usize::try_from(at % PAGE).unwrap_or(0);
                let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - from));
                let page = match pages.entry(at / PAGE) {
                    std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                    std::collections::btree_map::Entry::Vacant(new) => {
                        let mut page = Box::new([0; PAGE_BYTES]);
                        if now.len() < PAGE_BYTES {
                            self.copy_out(view, at / PAGE * PAGE, &mut page[..])?;
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
        let taken = self.take_pages(call, pages.len() as u64, need(holes == 0))?;
        let runs = match_extents(&runs_of(pages), &taken);
        let room = match self.room_for_runs(call, locked, &runs, need(true)) {
            Ok(room) => room,
            Err(error) => return self.give(call, &taken).and(Err(error)),
        };
        let gap = match self.gap_beside(locked, pages) {
            Ok(gap) => gap,
            Err(error) => {
                let given = self.no_room(call, room);
                return self.give(call, &taken).and(given).and(Err(error));
            }
        };
        let mut pending = gap.unwrap_or_else(Flushed::none);
        for (index, bytes) in (0..).zip(pages.values()) {
            pending =
                pending.and(self.pm.stream(page_at(&taken, index), &bytes[..], Purpose::Data));
        }
        let mut next = locked.next_state();
        let (mut writer, mut strip, stripped) = self.appender(locked, next.op_seq, room);
        for (page, extent) in &runs {
            writer.push(&write_entry(*page, *extent));
        }
        let mut appended = writer.finish();
        let entries = std::mem::replace(&mut appended.pending, Flushed::none());
        pending = pending.and(stripped).and(entries);
        Locked::apply_log(&mut next, &appended);
        next.size = next.size.max(end);
        (next.mtime_ns, next.ctime_ns) = (call.now_ns, call.now_ns);
        let mut freed = std::mem::take(&mut strip.freed);
        self.commit(call, locked, next, Rest::Pending(pending), || {
            appended.publish(view);
            strip.show(view);
            for (page, extent) in &runs {
                let mut extents = Extents::default();
                extents.push(*extent);
                self.map_extents(view, *page, &extents, &mut freed)?;
            }
            Ok(())
        })?;
        self.give(call, &freed)?;
        self.collect_if_grown(call, locked, &appended)
    }

    /// Zeroes what the last page holds behind the end of the file, unless it is replaced.
    fn gap_beside(&self, locked: &Locked<'_>, pages: &Pages) -> Result<Option<Flushed>> {
        let last = locked.view.size() / PAGE;
        match pages.last_key_value() {
            Some((page, _)) if *page > last && !pages.contains_key(&last) => {
                self.zero_gap(locked, page * PAGE)
            }
            _ => Ok(None),
        }
    }
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
