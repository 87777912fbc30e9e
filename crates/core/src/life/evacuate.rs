//! Emptying a slot: what inodes have there is moved to other slots (docs/DESIGN.md, "Slots that come and
//! go"). Comes in: an open pool in which the slot is leaving. Goes out: no inode has a page there.
//!
//! Each step is an ordinary operation under the inode's lock, and changes nothing that can be seen: copies
//! of data pages by one commit, a new chain of extended attributes by one, the log in new pages by one. A
//! crash leaves an inode between two of them, and the next call goes on there. Pages that are given back in
//! the slot are not taken again ([`crate::space::Allocator::is_leaving`]), so a second pass finds what is
//! left and no more.
//!
//! Never here: the pages of inodes themselves and those that name them, which [`super::slots`] moves when
//! nobody uses the pool.

use std::ops::Range;

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
use crate::space::Need;

const PAGE_BYTES: usize = 4096;
/// Pages that one commit moves at most.
const PAGES_A_COMMIT: u64 = 64;

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
        if !self.allocator.is_leaving(slot) {
            return Err(Error::Invalid("a slot is emptied that is in use"));
        }
        let chunks = self.inodes.chunk_count(self.arena())?;
        let mut moved = 0;
        for first in (0..chunks * INODES_PER_CHUNK).step_by(64) {
            let index = usize::try_from(first % INODES_PER_CHUNK / 64).unwrap_or(0);
            let used = self.inodes.word(self.arena(), first / INODES_PER_CHUNK, index)?;
            for number in (first..first + 64).filter(|number| used >> (number % 64) & 1 != 0) {
                if number > 0 {
                    self.move_inode_out(ctx, Ino::new(number), slot, &mut |more| {
                        moved += more;
                        progress(Progress { what: "moving pages", done: moved, total: pages });
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Moves what one inode has there, and tells how many pages of data, as it goes on.
    fn move_inode_out(
        &self,
        ctx: &Ctx,
        ino: Ino,
        slot: u8,
        moved: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let call = self.begin(OpKind::Write, ctx)?;
        let locked = match self.lock(&call, ino) {
            // A number that is kept by a lane, or whose inode is gone.
            Err(Error::Stale | Error::NotFound) => return Ok(()),
            locked => locked?,
        };
        if locked.kind != FileKind::Directory {
            self.unpair_all(&call, &locked)?;
            loop {
                let pages = self.move_pages_out(&call, &locked, slot)?;
                moved(pages);
                if pages == 0 {
                    break;
                }
            }
        }
        self.move_xattrs_out(&call, &locked, slot)?;
        self.move_log_out(&call, &locked, slot)
    }

    /// Copies the next pages of a file that are in the slot; says how many.
    fn move_pages_out(&self, call: &Call<'_>, locked: &Locked<'_>, slot: u8) -> Result<u64> {
        let (view, arena) = (&locked.view, self.arena());
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let (mut count, mut from) = (0, 0);
        while count < PAGES_A_COMMIT
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
        tx.take(count, Need::Growth)?;
        let moved = match_extents(&runs, tx.extents());
        let mut bytes = Box::new([0; PAGE_BYTES]);
        let pages = runs.iter().flat_map(|(first, pages)| *first..first + pages);
        for (index, page) in (0..).zip(pages) {
            bytes.fill(0);
            self.load_page(view, page, &mut bytes[..])?;
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
    fn move_xattrs_out(&self, call: &Call<'_>, locked: &Locked<'_>, slot: u8) -> Result<()> {
        let mut xattrs = self.xattrs_of_locked(locked)?;
        let mut is_there = false;
        xattrs.for_each_page(&mut |Extent { addr, .. }| {
            is_there |= addr.slot() == slot;
            Ok(())
        })?;
        if !is_there {
            return Ok(());
        }
        for (namespace, name, value) in xattrs.in_slot(slot) {
            let bytes = value_bytes(&self.pm, &locked.id, &value)?;
            xattrs.set(namespace, &name, &bytes);
        }
        let mut tx = FileTx::begin(self, call, locked);
        let view = &locked.view;
        tx.change_attrs(view.attrs(), view.atime_ns(), Some(xattrs))?;
        tx.room(0, Need::Growth)?;
        tx.commit(|_, _| Ok(()))
    }

    /// Writes the log anew, where a page of it is in the slot, or an entry names one: what no longer counts
    /// must name a place of the pool as well.
    fn move_log_out(&self, call: &Call<'_>, locked: &Locked<'_>, slot: u8) -> Result<()> {
        let state = locked.view.state();
        if state.log_tail.is_null() {
            return Ok(());
        }
        let spare = locked.view.spare();
        let mut named = NamesSlot { slot, any: spare.pages > 0 && spare.addr.slot() == slot };
        let until = Until::Line(state.log_tail);
        log::walk_range(&self.pm, &locked.id, state.log_head, until, &mut |item| match item {
            Item::Page { addr, .. } => {
                named.see(addr);
                Ok(())
            }
            Item::Entry(at, entry) => say(&at, entry, &mut named),
        })?;
        if named.any { self.rewrite_log(call, locked) } else { Ok(()) }
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
