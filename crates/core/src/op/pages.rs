//! Pages that an operation takes from the allocator and frees.
//!
//! What is about to be freed is noted in the operation record: the client that settles for a client that
//! dies goes on where it stopped. Until then a commit is noted whose pages were not given yet, and settling
//! finds these in the log.

use novale_arena::Phase;
use novale_layout::{FileKind, PAGE, PmAddr};

use crate::base::error::Result;
use crate::base::extent::Extents;
use crate::fs::Fs;
use crate::inode::state::LogId;
use crate::inode::view::View;
use crate::op::call::Call;
use crate::op::counted::Buffering;
use crate::op::load;
use crate::op::lock::Locked;
use crate::op::quota::UsageChange;
use crate::op::xattr_set::Xattrs;
use crate::space::{Need, Wanted};

/// The word of an operation's record that counts the extents of its list that it began to give.
pub(crate) const GIVEN: usize = 0;

/// The word that says which slot's pages it counts, which has come: its number, and one.
pub(crate) const COUNTING: usize = 5;

/// The word that says how many pages of the pool it has reserved for them.
pub(crate) const RESERVING: usize = 6;

/// The word that says which blocks of the write buffer it has filled, by the first of them.
pub(crate) const BUFFERING: usize = 7;

/// Notes pages that are going to be freed: the client that settles for this client, if it dies, goes on
/// where it stopped.
fn note_free(call: &Call<'_>, extents: &Extents) {
    call.op.clear_notes_but_commits();
    for extent in extents.iter() {
        let pages = u32::try_from(extent.pages).unwrap_or(u32::MAX);
        // Without room in the arena a death loses the rest until the next opening.
        let _noted = call.op.note_free(extent.addr.raw(), pages);
    }
    call.op.set_phase(Phase::Freeing);
}

/// What an operation wants its pages for: growth, unless all that it does is replace.
pub(crate) fn need(replaces: bool) -> Need {
    if replaces { Need::Release } else { Need::Growth }
}

impl Fs {
    /// Makes room in a file's index for pages to be mapped from `first` on. Where memory is short there is none for what
    /// was not mapped: one file could take what all others need for their inodes and names.
    pub(crate) fn room_in_index(&self, view: &View<'_>, first: u64, pages: u64) -> Result<()> {
        Ok(view.index().sparing().reserve(self.arena(), first, pages)?)
    }

    /// Exactly so many new pages, which the caller is going to store to.
    pub(crate) fn take_pages(
        &self,
        call: &Call<'_>,
        wanted: Wanted,
        need: Need,
    ) -> Result<Extents> {
        let extents = self.allocator.take_all(self.arena(), &call.op, call.hint, wanted, need)?;
        for extent in extents.iter() {
            self.pm.expect_stores(extent.addr, extent.pages * PAGE);
        }
        Ok(extents)
    }

    /// The same of one slot.
    pub(crate) fn take_pages_in(&self, call: &Call<'_>, slot: u8, pages: u64) -> Result<Extents> {
        self.allocator.take_all_in(self.arena(), &call.op, call.hint, slot, pages)
    }

    /// Frees pages that nothing durable names any more.
    pub(crate) fn give(&self, call: &Call<'_>, extents: &Extents) -> Result<()> {
        // One page goes by a single store, and is known to be kept then: the notes go after it.
        if extents.pages() <= 1
            && (extents.is_empty() || self.allocator.keep(self.arena(), &call.op, extents)?)
        {
            call.op.clear_notes();
            return Ok(());
        }
        note_free(call, extents);
        self.give_noted(call, extents)?;
        call.op.set_phase(Phase::Published);
        Ok(())
    }

    pub(crate) fn give_noted(&self, call: &Call<'_>, extents: &Extents) -> Result<()> {
        self.allocator.give_each(self.arena(), &call.op, call.hint, extents, |index| {
            call.op.note_word(GIVEN, index + 1);
        })?;
        call.op.clear_notes();
        Ok(())
    }

    /// Drops what the buffer has of an inode that is going: nobody needs it any more.
    fn forget_buffered(&self, view: &View<'_>) -> Result<()> {
        if view.is_buffered() {
            self.count_buffering(Buffering::Dropped, [1, view.buffered_lines(self.arena())?]);
            view.publish(|| view.set_unbuffered());
            self.give_buffer(view)?;
        }
        Ok(())
    }

    /// Gives back what a file had in the buffer, which is in the pool, or nobody's any more.
    pub(crate) fn give_buffer(&self, view: &View<'_>) -> Result<()> {
        let arena = self.arena();
        // At once: what a client has taken over and not given up when it dies nobody gives up until the arena goes.
        self.allocator.unreserve_pages(arena, view.take_reserved())?;
        view.give_blocks(arena, self.buffer)
    }

    /// Frees all that an inode without names and holds has, and its number. The commit that took
    /// its last name is durable, so nothing is stored.
    pub(crate) fn reclaim(&self, call: &Call<'_>, locked: &Locked<'_>) -> Result<()> {
        self.reclaim_view(call, &locked.view, &locked.id, locked.kind)
    }

    /// As [`Fs::reclaim`], for a client that has the lock in another way.
    pub(crate) fn reclaim_view(
        &self,
        call: &Call<'_>,
        view: &View<'_>,
        id: &LogId,
        kind: FileKind,
    ) -> Result<()> {
        let arena = self.arena();
        let state = view.state();
        let mut freed = Extents::default();
        self.forget_buffered(view)?;
        if kind != FileKind::Directory {
            view.index().for_each(arena, &mut |_, addr| {
                freed.push_page(PmAddr::from_raw(addr));
            })?;
            view.for_each_partner(arena, |partner| freed.push_page(partner))?;
        }
        crate::log::pages(&self.pm, id, state.log_head, state.log_tail, &mut |page| {
            freed.push_page(page);
        })?;
        Xattrs::read(&self.pm, id, view.xattrs().root)?.for_each_page(&mut |extent| {
            freed.push(extent);
            Ok(())
        })?;
        // All that can be damaged was read.
        if kind != FileKind::Directory {
            self.take_parked(view, &mut freed)?;
        }
        let spare = view.spare();
        if spare.pages > 0 {
            freed.push(spare);
        }
        note_free(call, &freed);
        self.count(view.project(), UsageChange::whole(view).back())?;
        view.publish(|| {
            view.set_unloaded();
            load::reset(arena, view)
        })?;
        self.give_noted(call, &freed)?;
        // The phase stays: the client that settles for a death from here on must not do this again while
        // the inode is locked. Its number is lost until the pool is opened again then.
        self.inodes.give(&self.env(call), view.ino())
    }
}
