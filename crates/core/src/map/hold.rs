//! Holds of one client: an inode stays as long as somebody has it open, and no longer than that one
//! lives.
//!
//! A hold may say that its client has the file's own pages mapped (`map::fill`); it is counted twice
//! then, in one word.
//!
//! Of such a hold its client may say that it stores to the pages (`map::stores`): they are written back before
//! it ends.
//!
//! The inode's view counts all holds; a word of the client's (`novale_arena`, module `holds`) has the
//! inode's number for each of its own. Both change under the inode's lock, the count first.
//!
//! Death. What the count was, and which word is meant, stands in the operation's record before either
//! changes, and counts as long as the operation has the inode's lock. A taking of which the word does
//! not tell is taken back; a giving is completed. What a dead client holds then is given back one by
//! one, each as an operation of the settler's, noted in the settler's record: so it may die as well.

use std::sync::atomic::{Ordering, fence};

use novale_arena::{ClientInfo, HoldSlot, Off, Phase, Record, Recovery};
use novale_layout::Ino;

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::view::View;
use crate::inode::words::DAX_HOLD;
use crate::op::call::{Call, OpKind};
use crate::op::lock::Locked;

/// The word of an operation's record that says which hold it takes or gives: its offset, the lowest
/// bit set for one that is given.
const HOLD: usize = 1;
/// The count of the inode's holds before.
const COUNT: usize = 2;
const GIVING: u64 = 1;
/// Beside it: the hold is of one that has pages mapped.
const OF_PAGES: u64 = 2;
/// In the client's word, beside the number: as [`OF_PAGES`].
const KEY_OF_PAGES: u64 = 1 << 62;
/// In the same word: the client may write to the file; beside [`KEY_OF_PAGES`], it may store to its pages.
const KEY_WRITES: u64 = 1 << 61;

/// A hold of this client's on an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldId {
    ino: Ino,
    slot: HoldSlot,
    of_pages: bool,
    writes: bool,
    /// Who has taken it: the client's slot, and its epoch there. The slot's next client takes the same words.
    taken_by: (u32, u32),
}

/// What one hold counts in the view's word.
fn counts(of_pages: bool) -> u64 {
    if of_pages { 1 | DAX_HOLD } else { 1 }
}

/// What tells a client from all others, those of its slot before and after it included.
fn name_of(client: &ClientInfo) -> (u32, u32) {
    (client.slot, client.epoch)
}

impl HoldId {
    /// A hold of a client's that has no pages mapped.
    pub(crate) fn new(client: &ClientInfo, ino: Ino, slot: HoldSlot) -> Self {
        Self { ino, slot, of_pages: false, writes: false, taken_by: name_of(client) }
    }

    /// The inode that is held.
    #[must_use]
    pub fn ino(self) -> Ino {
        self.ino
    }

    /// The hold that a client's word tells of.
    fn of_key(client: &ClientInfo, slot: HoldSlot, key: u64) -> Self {
        let (of_pages, writes) = (key & KEY_OF_PAGES != 0, key & KEY_WRITES != 0);
        let ino = Ino::new(key & !(KEY_OF_PAGES | KEY_WRITES));
        Self { ino, slot, of_pages, writes, taken_by: name_of(client) }
    }

    fn key(self) -> u64 {
        let pages = if self.of_pages { KEY_OF_PAGES } else { 0 };
        self.ino.get() | pages | if self.writes { KEY_WRITES } else { 0 }
    }

    /// What is noted of it in an operation's record.
    fn noted(self) -> u64 {
        self.slot.off().raw() | if self.of_pages { OF_PAGES } else { 0 }
    }
}

impl Fs {
    /// Holds an inode for an open description of this client, as [`Fs::hold`] does, but no longer than
    /// the client lives; `None` when the inode is gone, or its number another generation's.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Damaged`] when the inode can't be read.
    pub fn open_hold(&self, ctx: &Ctx, ino: Ino, generation: u32) -> Result<Option<HoldId>> {
        let call = self.begin_read(OpKind::Load, ctx)?;
        let hold = HoldId::new(&self.client.info(), ino, self.client.take_hold_slot(ctx.hint)?);
        self.hold_or_give_slot(&call, generation, hold, |_| Ok(()))
    }

    /// Says of a hold of this client's that its file is open for writing, or of one of pages that they may be stored to:
    /// nobody is to run the file then, and who syncs it writes back its pages. Who has it run says first that a kernel
    /// has it mapped, and looks for such holds after that; who writes says so here, and looks after that whether it is
    /// mapped ([`Fs::is_mapped`]). One of them sees the other.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn hold_to_write(&self, hold: HoldId) -> Result<HoldId> {
        self.hold_to(HoldId { writes: true, ..hold })
    }

    /// Takes back what [`Fs::hold_to_write`] has said of a hold of pages: nobody stores to them any more, and what was
    /// stored is durable.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn hold_to_read(&self, hold: HoldId) -> Result<HoldId> {
        self.hold_to(HoldId { writes: false, ..hold })
    }

    fn hold_to(&self, hold: HoldId) -> Result<HoldId> {
        // A word of one's own: the client that settles for this client takes it as it is.
        self.arena().hold_word(hold.slot)?.swap(hold.key(), Ordering::SeqCst);
        Ok(hold)
    }

    /// The file of a hold by which its client may store to pages, where a word of a client's tells of one.
    pub(crate) fn stored_to(key: u64) -> Option<Ino> {
        let both = KEY_OF_PAGES | KEY_WRITES;
        (key & both == both).then(|| Ino::new(key & !both))
    }

    /// Whether a client that lives has the file open for writing without a kernel, or may store to its pages.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn is_held_to_write(&self, ino: Ino) -> Result<bool> {
        fence(Ordering::SeqCst);
        let writes = |key| key & !KEY_OF_PAGES == ino.get() | KEY_WRITES;
        Ok(!self.processes_with(&writes)?.is_empty())
    }

    /// The processes that live and have the file's own pages mapped.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn mapped_by(&self, ino: Ino) -> Result<Vec<u32>> {
        self.processes_with(&|key| key & !KEY_WRITES == ino.get() | KEY_OF_PAGES)
    }

    /// The processes that live and have a hold of which this is so.
    fn processes_with(&self, is_one: &dyn Fn(u64) -> bool) -> Result<Vec<u32>> {
        let arena = self.arena();
        let mut processes = Vec::new();
        for client in arena.clients() {
            let mut has = false;
            arena
                .visit_holds(&client, &mut |_, word| has |= is_one(word.load(Ordering::Acquire)))?;
            if has && !arena.is_dead_client(&client) {
                processes.push(client.process.pid);
            }
        }
        Ok(processes)
    }

    /// Takes a hold of the inode, if it is this generation's, once `ready` has gone well with its lock.
    pub(crate) fn take_hold(
        &self,
        call: &Call<'_>,
        ino: Ino,
        generation: u32,
        ready: impl FnOnce(&Locked<'_>) -> Result<()>,
    ) -> Result<Option<HoldId>> {
        let slot = self.client.take_hold_slot(call.hint)?;
        let hold = HoldId { of_pages: true, ..HoldId::new(&self.client.info(), ino, slot) };
        self.hold_or_give_slot(call, generation, hold, ready)
    }

    fn hold_or_give_slot(
        &self,
        call: &Call<'_>,
        generation: u32,
        hold: HoldId,
        ready: impl FnOnce(&Locked<'_>) -> Result<()>,
    ) -> Result<Option<HoldId>> {
        let taken = self.hold_in(call, generation, hold, ready);
        if !matches!(taken, Ok(true)) {
            self.client.give_hold_slot(hold.slot, call.hint);
        }
        Ok(taken?.then_some(hold))
    }

    fn hold_in(
        &self,
        call: &Call<'_>,
        generation: u32,
        hold: HoldId,
        ready: impl FnOnce(&Locked<'_>) -> Result<()>,
    ) -> Result<bool> {
        let locked = match self.lock(call, hold.ino) {
            Ok(locked) => locked,
            Err(Error::NotFound | Error::Stale) => return Ok(false),
            Err(error) => return Err(error),
        };
        if locked.view.generation() != generation {
            return Ok(false);
        }
        ready(&locked)?;
        self.note_hold(call, &locked.view, hold)?;
        Ok(true)
    }

    /// Takes a hold of the inode whose lock, and no other one's, the operation has.
    pub(crate) fn note_hold(&self, call: &Call<'_>, view: &View<'_>, hold: HoldId) -> Result<()> {
        let count = view.holds().load(Ordering::Relaxed);
        call.op.note_word(COUNT, count);
        call.op.note_word(HOLD, hold.noted());
        view.holds().store(count + counts(hold.of_pages), Ordering::Relaxed);
        Ok(self.arena().set_hold(hold.slot, hold.key())?)
    }

    /// A word for a hold that is to be taken.
    pub(crate) fn take_slot(&self, ctx: &Ctx) -> Result<HoldSlot> {
        Ok(self.client.take_hold_slot(ctx.hint)?)
    }

    /// Gives back a word whose hold was not taken.
    pub(crate) fn give_slot(&self, ctx: &Ctx, slot: HoldSlot) {
        self.client.give_hold_slot(slot, ctx.hint);
    }

    /// Gives up a hold; an inode without names goes with its last one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a hold that was given up already, or is another client's: of a process that was forked,
    /// or has left the pool and joined it again; those of reading the inode.
    pub fn open_release(&self, ctx: &Ctx, hold: HoldId) -> Result<()> {
        if hold.taken_by != name_of(&self.client.info()) {
            return Err(Error::Invalid("a hold of another client"));
        }
        let call = self.begin_read(OpKind::Release, ctx)?;
        let locked = self.lock(&call, hold.ino)?;
        self.give_up(&call, &locked, hold)?;
        self.client.give_hold_slot(hold.slot, ctx.hint);
        Ok(())
    }

    /// Gives up a hold of this client's or of a dead one's.
    fn give_up(&self, call: &Call<'_>, locked: &Locked<'_>, hold: HoldId) -> Result<()> {
        let wanted = locked.view.is_wanted();
        let left = self.note_given(call, &locked.view, hold)?;
        if left == 0 {
            Self::unheld(&locked.view);
        }
        if left == 0 && locked.view.nlink() == 0 {
            self.reclaim(call, locked)?;
            self.note_freed();
            return Ok(());
        }
        if !hold.of_pages || locked.view.is_dax() {
            return Ok(());
        }
        let unparked = self.unpark(call, &locked.view);
        if wanted {
            // Who waits takes the inode's lock next.
            self.arena().next_mappings_turn();
        }
        unparked
    }

    /// Gives up a hold whose client has not written back what it may have stored to pages.
    fn give_up_written_back(
        &self,
        call: &Call<'_>,
        locked: &Locked<'_>,
        hold: HoldId,
    ) -> Result<()> {
        if hold.of_pages && hold.writes {
            // What is lost, or can't be read, stays so: nobody else can keep it either.
            self.write_back_pages(call, locked, 0..u64::MAX).unwrap_or_default();
        }
        self.give_up(call, locked, hold)
    }

    /// Gives up a hold of the inode whose lock, and no other one's, the operation has; says how many are left.
    fn note_given(&self, call: &Call<'_>, view: &View<'_>, hold: HoldId) -> Result<u64> {
        let key = self.arena().hold_word(hold.slot)?.load(Ordering::Relaxed);
        let count = view.holds().load(Ordering::Relaxed);
        let left = count.checked_sub(counts(hold.of_pages)).filter(|_| key == hold.key());
        let Some(left) = left else { return Err(Error::Invalid("a hold that was given up")) };
        call.op.note_word(COUNT, count);
        call.op.note_word(HOLD, hold.noted() | GIVING);
        view.holds().store(left, Ordering::Relaxed);
        self.arena().set_hold(hold.slot, 0)?;
        Ok(left)
    }

    /// Gives up a hold of an inode that can't be read, if it is still there: no more than the hold goes.
    fn give_up_unread(&self, call: &Call<'_>, hold: HoldId) -> Result<()> {
        if self.arena().hold_word(hold.slot)?.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let (view, _guard) = self.lock_view(call, hold.ino, None, false)?;
        self.note_given(call, &view, hold).map(|_left| ())
    }

    /// Decides what stands of a hold that a dead operation was taking or giving, for the inode that it
    /// has locked.
    pub(crate) fn settle_hold(&self, record: &Record, view: &View<'_>) -> Result<()> {
        let [Some(hold), Some(count)] =
            [HOLD, COUNT].map(|word| record.words.get(word).copied().flatten())
        else {
            return Ok(());
        };
        let slot = HoldSlot::at(Off::from_raw(hold & !(GIVING | OF_PAGES)));
        if hold & GIVING != 0 {
            let given = counts(hold & OF_PAGES != 0);
            view.holds().store(count.saturating_sub(given), Ordering::Relaxed);
            self.arena().set_hold(slot, 0)?;
        } else if self.arena().hold_word(slot)?.load(Ordering::Relaxed) == 0 {
            view.holds().store(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives back what a dead client holds, all of whose operations have ended, in the name of `call`.
    /// An inode that somebody has locked is left for the next time: who settles must not wait for it.
    pub(crate) fn give_back_holds(&self, call: &Call<'_>, recovery: &Recovery<'_>) -> Result<()> {
        let mut all = Ok(());
        for (slot, key) in recovery.holds_left()? {
            let hold = HoldId::of_key(&recovery.client(), slot, key);
            call.op.set_phase(Phase::Prepared);
            let given = self.try_lock(call, hold.ino).and_then(|locked| {
                let Some(locked) = locked else { return Ok(()) };
                let given = self.give_up_written_back(call, &locked, hold);
                call.op.clear_notes();
                given
            });
            // One that can't be read keeps no other.
            all = all.and(given);
        }
        all
    }

    /// Gives back what this client holds, each for itself: the first error is told when all have been tried. An inode
    /// that can't be read is none: who has it open next is told.
    pub(crate) fn give_back_own_holds(&self, client: &ClientInfo) -> Result<()> {
        let mut all = Ok(());
        for (slot, key) in self.arena().holds_of(client)? {
            let call = self.call(OpKind::Release, &Ctx { now_ns: 0, hint: 0 });
            let hold = HoldId::of_key(client, slot, key);
            let given = self.lock(&call, hold.ino);
            let given = given.and_then(|locked| self.give_up_written_back(&call, &locked, hold));
            all = all.and(match given {
                Err(error) if error.is_damage() => self.give_up_unread(&call, hold),
                given => given,
            });
        }
        all
    }
}
