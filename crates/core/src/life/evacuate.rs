//! Emptying a slot: what inodes have there is moved to other slots (docs/DESIGN.md, "Slots that come and
//! go"). Comes in: an open pool in which the slot is leaving. Goes out: no inode has a page there, but for
//! files whose own pages a program has mapped.
//!
//! Each step is an ordinary operation under the inode's lock, and changes nothing that can be seen: copies
//! of data pages by one commit, a new chain of extended attributes by one, the log in new pages by one. So
//! others may be at work meanwhile. A crash leaves an inode between two of them, and the next call goes on
//! there. Pages that are given back in the slot are not taken again ([`crate::space::leaving`]), so a
//! second round finds what is left and no more: what operations that had begun before had taken.
//!
//! Never here: the pages of inodes themselves and those that name them, which [`super::slots`] moves when
//! nobody uses the pool.

use std::ops::Range;
use std::sync::PoisonError;

use novale_layout::{Attributes, FileKind, INODES_PER_CHUNK, Ino, Pair, PmAddr};

use crate::base::error::{Error, Result};
use crate::base::exec::Progress;
use crate::base::extent::{Extent, Extents, match_extents};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::log::redo::RedoFrom;
use crate::log::replay::{Fold, NameSaid, say};
use crate::log::{self, Item, Logged, Until};
use crate::op::call::{Call, OpKind};
use crate::op::file_tx::FileTx;
use crate::op::lock::Locked;
use crate::op::xattr_set::value_bytes;
use crate::seeded::{self, Bug};
use crate::space::Need;
use crate::space::failed::has_slot;
use crate::space::leaving::leaving_slots;

const PAGE_BYTES: usize = 4096;
/// Pages that one commit moves at most.
const PAGES_A_COMMIT: u64 = 64;
/// Of files that stay, those of which a round says which they are.
const NAMED_MAX: usize = 64;
/// Pages of a file that are looked at under one taking of its lock.
const PAGES_LOOKED_AT: u64 = 4096;

/// What a round through all inodes has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmptyRound {
    /// Pages that were moved: those of data, of extended attributes, of logs.
    pub moved: u64,
    /// Files that stay there as long as a program has their own pages mapped.
    pub mapped: u64,
    /// The first of these.
    pub mapped_files: Vec<Ino>,
    /// It was stopped before its end.
    pub is_stopped: bool,
}

/// What a step has left of an inode.
pub(super) enum Left {
    Nothing,
    /// Pages of data, from this one on.
    From(u64),
    /// All of it: its own pages are mapped.
    Mapped,
}

/// A step over an inode.
pub(super) struct Stepped {
    /// Pages that it moved.
    pub(super) moved: u64,
    pub(super) left: Left,
}

impl Fs {
    /// Moves all that inodes have in a slot that is leaving ([`crate::set_leaving`]) to others. This client
    /// must be the only one. `pages` are those in use there, which `progress` is told of.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the others have no room for it; [`Error::Invalid`] for a slot that is not
    /// leaving. What was moved stays so.
    pub fn empty_slot(
        &self,
        ctx: &Ctx,
        slot: u8,
        pages: u64,
        progress: &dyn Fn(Progress),
    ) -> Result<()> {
        let mut done = 0;
        self.empty_round(ctx, slot, &mut |more| {
            done += more;
            progress(Progress { what: "moving pages", done, total: pages });
            true
        })?;
        Ok(())
    }

    /// Moves what inodes have in a slot that is leaving to others, beside other clients' operations, in
    /// steps of some pages. Between them, with no lock held, `step` is told how many pages the one before
    /// has moved, and says whether to go on.
    ///
    /// # Errors
    /// As [`Fs::empty_slot`].
    pub fn empty_round(
        &self,
        ctx: &Ctx,
        slot: u8,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<EmptyRound> {
        self.drain_lanes(ctx)?;
        let mut round = EmptyRound::default();
        self.each_inode(&mut |ino| {
            self.empty_inode(ctx, ino, slot, step, &mut round)?;
            Ok(!round.is_stopped)
        })?;
        Ok(round)
    }

    /// Visits the numbers of all inodes in use, until told to stop.
    fn each_inode(&self, visit: &mut dyn FnMut(Ino) -> Result<bool>) -> Result<()> {
        self.each_inode_of(0..u64::MAX, visit).map(drop)
    }

    /// The same of those in a range; says whether it was told to stop.
    pub(crate) fn each_inode_of(
        &self,
        numbers: Range<u64>,
        visit: &mut dyn FnMut(Ino) -> Result<bool>,
    ) -> Result<bool> {
        let arena = self.arena();
        let mut first = numbers.start / 64 * 64;
        while first < numbers.end.min(self.inodes.chunk_count(arena)? * INODES_PER_CHUNK) {
            let index = usize::try_from(first % INODES_PER_CHUNK / 64).unwrap_or(0);
            let used = self.inodes.word(arena, first / INODES_PER_CHUNK, index)?;
            let of_word = first.max(numbers.start)..(first + 64).min(numbers.end);
            for number in of_word.filter(|number| used >> (number % 64) & 1 != 0) {
                if number > 0 && !visit(Ino::new(number))? {
                    return Ok(true);
                }
            }
            first += 64;
        }
        Ok(false)
    }

    /// Goes through an inode by `some`, a step from a page of it on, until that leaves nothing to go on with; says
    /// how it ended. Between the steps, with no lock held, `step` is told how many pages the one before has moved;
    /// none where it says not to go on.
    pub(super) fn steps_of(
        &self,
        some: &mut dyn FnMut(u64) -> Result<Stepped>,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Left>> {
        let mut from = 0;
        loop {
            let Stepped { moved, left } = {
                // Who closes the pool waits for it.
                let _one = self.passes.step.lock().unwrap_or_else(PoisonError::into_inner);
                some(from)?
            };
            if moved > 0 && !step(moved) {
                return Ok(None);
            }
            match left {
                Left::From(page) => from = page,
                Left::Nothing | Left::Mapped => return Ok(Some(left)),
            }
        }
    }

    /// Gives what lanes hold back, so that nothing of a slot is in hand there.
    pub(super) fn drain_lanes(&self, ctx: &Ctx) -> Result<()> {
        let _one = self.passes.step.lock().unwrap_or_else(PoisonError::into_inner);
        let call = self.begin(OpKind::Manage, ctx)?;
        self.allocator.drain(self.arena(), &call.op)
    }

    /// Moves what one inode has there.
    fn empty_inode(
        &self,
        ctx: &Ctx,
        ino: Ino,
        slot: u8,
        step: &mut dyn FnMut(u64) -> bool,
        round: &mut EmptyRound,
    ) -> Result<()> {
        let mut moved = 0;
        let some = &mut |from| {
            let stepped = self.move_some_out(ctx, ino, slot, from)?;
            moved += stepped.moved;
            Ok(stepped)
        };
        let left = self.steps_of(some, step)?;
        round.moved += moved;
        match left {
            None => round.is_stopped = true,
            Some(Left::Mapped) => {
                round.mapped += 1;
                if round.mapped_files.len() < NAMED_MAX {
                    round.mapped_files.push(ino);
                }
            }
            Some(Left::Nothing | Left::From(_)) => {}
        }
        Ok(())
    }

    /// Moves pages of data from one of the file's on, or, where there are none, all else.
    fn move_some_out(&self, ctx: &Ctx, ino: Ino, slot: u8, from: u64) -> Result<Stepped> {
        let nothing = Stepped { moved: 0, left: Left::Nothing };
        let call = self.begin(OpKind::Write, ctx)?;
        if !has_slot(leaving_slots(self.arena()), slot) {
            return Err(Error::Invalid("a slot is emptied that is in use"));
        }
        let locked = match self.lock(&call, ino) {
            // A number that is kept by a lane, or whose inode is gone.
            Err(Error::Stale | Error::NotFound) => return Ok(nothing),
            locked => locked?,
        };
        let mut moved = 0;
        if locked.kind != FileKind::Directory {
            let (page, is_there) = self.next_there(&locked, slot, from)?;
            if is_there && locked.view.is_dax() {
                return Ok(Stepped { left: Left::Mapped, ..nothing });
            }
            if is_there {
                self.settle_pages(&call, &locked)?;
                moved += self.move_pages(&call, &locked, (slot, None), page)?;
            }
            if let Some(page) = page {
                return Ok(Stepped { moved, left: Left::From(page) });
            }
        }
        moved += self.move_xattrs_out(&call, &locked, slot)?;
        moved += self.move_log_out(&call, &locked, slot)?;
        Ok(Stepped { moved, left: Left::Nothing })
    }

    /// Stores what is buffered of a file, and takes its pairs apart: what moves pages knows of one copy.
    pub(super) fn settle_pages(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        self.flush(call, locked)?;
        if locked.kind == FileKind::Directory { Ok(()) } else { self.unpair_all(call, locked) }
    }

    /// The first page of a file from one on that is in the slot, and that there is one; of a long stretch
    /// without any the page behind it, and of one to the end none.
    pub(super) fn next_there(
        &self,
        locked: &Locked<'_>,
        slot: u8,
        mut from: u64,
    ) -> Result<(Option<u64>, bool)> {
        for _ in 0..PAGES_LOOKED_AT {
            let Some((page, addr)) = locked.view.index().next(self.arena(), from)? else {
                return Ok((None, false));
            };
            if PmAddr::from_raw(addr).slot() == slot {
                return Ok((Some(page), true));
            }
            from = page + 1;
        }
        Ok((Some(from), false))
    }

    /// Copies the next pages of a file that are in a slot, to another one or wherever there is room; says how
    /// many.
    pub(super) fn move_pages(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        (slot, to): (u8, Option<u8>),
        first: Option<u64>,
    ) -> Result<u64> {
        let (view, arena) = (&locked.view, self.arena());
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let (mut count, mut from) = (0, first.unwrap_or(0));
        let end = from + PAGES_LOOKED_AT;
        while count < PAGES_A_COMMIT
            && from < end
            && let Some((page, addr)) = view.index().next(arena, from)?
        {
            from = page + 1;
            if PmAddr::from_raw(addr).slot() != slot {
                continue;
            }
            count += 1;
            match runs.last_mut() {
                Some((first, pages)) if *first + *pages == page => *pages += 1,
                _ => runs.push((page, 1)),
            }
        }
        if runs.is_empty() {
            return Ok(0);
        }
        let mut tx = FileTx::begin(self, call, locked);
        match to {
            Some(to) => tx.take_in(to, count)?,
            None => tx.take(count, Need::Growth)?,
        }
        let moved = match_extents(&runs, tx.extents());
        let mut bytes = Box::new([0; PAGE_BYTES]);
        let pages = runs.iter().flat_map(|(first, pages)| *first..first + pages);
        for (index, page) in (0..).zip(pages) {
            bytes.fill(0);
            self.load_page(view, page, &mut bytes[..])?;
            if seeded::is_on(Bug::EmptiedLineCached) {
                tx.also(seeded::stream_but_a_line(&self.pm, tx.page(index), &bytes[..], 0));
                continue;
            }
            tx.stream(tx.page(index), &bytes[..]);
        }
        tx.room_for_runs(&moved, Need::Growth)?;
        for (page, extent) in &moved {
            tx.map(*page, *extent, &[]);
        }
        tx.commit(|_, freed| {
            for (page, extent) in &moved {
                let mut extents = Extents::default();
                extents.push(*extent);
                self.map_extents(view, *page, &extents, freed)?;
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Stores the extended attributes anew, where a page of them is in the slot.
    fn move_xattrs_out(&self, call: &Call<'_>, locked: &Locked<'_>, slot: u8) -> Result<u64> {
        let mut xattrs = self.xattrs_of_locked(locked)?;
        let mut there = 0;
        xattrs.for_each_page(&mut |Extent { addr, pages }| {
            there += if addr.slot() == slot { pages } else { 0 };
            Ok(())
        })?;
        if there == 0 {
            return Ok(0);
        }
        self.flush(call, locked)?;
        for (namespace, name, value) in xattrs.in_slot(slot) {
            let bytes = value_bytes(&self.pm, &locked.id, &value)?;
            xattrs.set(namespace, &name, &bytes);
        }
        let mut tx = FileTx::begin(self, call, locked);
        let view = &locked.view;
        tx.change_attrs(view.attrs(), view.atime_ns(), Some(xattrs))?;
        tx.room(0, Need::Growth)?;
        tx.commit(|_, _| Ok(()))?;
        Ok(there)
    }

    /// Writes the log anew, where a page of it is in the slot, or an entry names one: what no longer counts
    /// must name a place of the pool as well. Says how many pages of it were there.
    fn move_log_out(&self, call: &Call<'_>, locked: &Locked<'_>, slot: u8) -> Result<u64> {
        let state = locked.view.state();
        if state.log_tail.is_null() {
            return Ok(0);
        }
        let spare = locked.view.spare();
        let mut named = NamesSlot { slot, any: spare.pages > 0 && spare.addr.slot() == slot };
        let mut there = 0;
        let until = Until::Line(state.log_tail);
        log::walk_range(&self.pm, &locked.id, state.log_head, until, &mut |item| match item {
            Item::Page { addr, .. } => {
                there += u64::from(addr.slot() == slot);
                named.see(addr);
                Ok(())
            }
            Item::Entry(at, entry) => say(&at, entry, &mut named),
        })?;
        if named.any {
            self.settle_pages(call, locked)?;
            self.rewrite_log(call, locked)?;
        }
        Ok(there)
    }
}

/// Whether a log names a place in a slot.
struct NamesSlot {
    slot: u8,
    any: bool,
}

impl NamesSlot {
    fn see(&mut self, addr: PmAddr) {
        self.any |= !addr.is_null() && addr.slot() == self.slot;
    }
}

impl Fold for NamesSlot {
    fn map(&mut self, _at: &Logged<'_>, _first: u64, extent: Extent) -> Result<()> {
        self.see(extent.addr);
        Ok(())
    }

    fn unmap(&mut self, _at: &Logged<'_>, _pages: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn redo(&mut self, _at: &Logged<'_>, from: RedoFrom<'_>) -> Result<()> {
        if let RedoFrom::Pool(source) = from {
            self.see(source.from);
        }
        Ok(())
    }

    fn pair(&mut self, _at: &Logged<'_>, pair: &Pair) -> Result<()> {
        self.see(pair.home);
        pair.partner_page().into_iter().for_each(|page| self.see(page));
        Ok(())
    }

    fn attributes(&mut self, _at: &Logged<'_>, attributes: &Attributes) -> Result<()> {
        self.see(attributes.xattr_root);
        Ok(())
    }

    fn name(&mut self, _at: &Logged<'_>, _name: &NameSaid<'_>) -> Result<()> {
        Ok(())
    }

    fn unname(&mut self, _at: &Logged<'_>, _cookie: u64) -> Result<()> {
        Ok(())
    }
}
