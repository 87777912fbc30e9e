//! Slots that leave while the pool is open (docs/DESIGN.md, "Slots that come and go while the pool is open").
//! Comes in: a pool that is in use. Goes out: the last slot says durably that it is leaving, and then a word of
//! the arena does; or that it stays.
//!
//! Crash points: the state line is written in turn, so that one which is torn leaves what was said before; who
//! opens the pool next takes no page there, or does, and either is sound. A death between line and word leaves
//! them different until the same is asked again, or the pool is opened.

use std::sync::atomic::Ordering;
use std::time::Duration;

use novale_arena::sleep_while;
use novale_layout::PmAddr;

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::life::slots::{RoomToLeave, set_emptied, set_leaving, set_leaving_for};
use crate::op::call::OpKind;
use crate::space::failed::has_slot;
use crate::space::leaving::{
    EmptyState, SlotAsk, asked, asked_word, claim, coming_slots, count_moved, is_claimed,
    leaving_slots, say_mapped, say_state, tell_leaving, tell_staying,
};

impl Fs {
    /// Has the last slot of the pool leave, where the others have room for what it has in use: no page is
    /// taken there from then on. Other clients may be at work; one that was leaving already goes on to. `goes`
    /// is the number of the slot that is to go, this one or another, where that is known.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another slot, the only one, or a pool of which one has failed; [`Error::ReadOnly`].
    pub fn begin_leaving(&self, ctx: &Ctx, slot: u8, goes: Option<u8>) -> Result<RoomToLeave> {
        let call = self.begin(OpKind::Manage, ctx)?;
        let _one = call.op.lock(self.slots_lock())?;
        self.meet_slots();
        self.check_none_lacking()?;
        if slot == 0 || slot + 1 != self.pm.slot_count() {
            return Err(Error::Invalid("a slot is to leave that is not the last of several"));
        }
        if coming_slots(self.arena()) != 0 {
            return Err(Error::Invalid(
                "a slot that was added waits for operations to end: none can leave now",
            ));
        }
        let (arena, allocator) = (self.arena(), &self.allocator);
        if self.failed_slots() != 0 {
            return Err(Error::Invalid("a slot of the pool has failed: it can't be emptied now"));
        }
        allocator.drain(arena, &call.op)?;
        let used = allocator.used_in(arena, slot)?;
        let needed = used + allocator.reserve() + allocator.pages_reserved(arena)?;
        let here = if has_slot(leaving_slots(arena), slot) {
            0
        } else {
            allocator.free_in(arena, slot)?
        };
        let free = allocator.pages_unclaimed(arena)?.saturating_sub(here);
        let room = RoomToLeave { needed, free, used };
        if room.is_enough() {
            match goes {
                Some(goes) => set_leaving_for(&self.pm, slot, goes)?,
                None => set_leaving(&self.pm, slot, true)?,
            }
            tell_leaving(arena, 1 << slot);
        }
        Ok(room)
    }

    /// Says durably that a slot was emptied, for the one that is to go, unless it stays by now: that goes when
    /// nobody uses the pool.
    ///
    /// # Errors
    /// Those of [`Fs::begin_leaving`].
    pub fn confirm_emptied(&self, ctx: &Ctx, slot: u8, goes: u8) -> Result<()> {
        let call = self.begin(OpKind::Manage, ctx)?;
        let _one = call.op.lock(self.slots_lock())?;
        self.meet_slots();
        self.check_none_lacking()?;
        if has_slot(leaving_slots(self.arena()), slot) && self.failed_slots() == 0 {
            set_emptied(&self.pm, slot, goes)?;
        }
        Ok(())
    }

    /// Has a slot stay that was leaving: pages are taken there again.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a slot has failed; [`Error::ReadOnly`].
    pub fn end_leaving(&self, ctx: &Ctx, slot: u8) -> Result<()> {
        let call = self.begin(OpKind::Manage, ctx)?;
        let _one = call.op.lock(self.slots_lock())?;
        self.meet_slots();
        self.check_none_lacking()?;
        if coming_slots(self.arena()) != 0 {
            return Err(Error::Invalid("a slot that was added waits for operations to end"));
        }
        if self.failed_slots() != 0 {
            return Err(Error::Invalid("a slot of the pool has failed"));
        }
        set_leaving(&self.pm, slot, false)?;
        tell_staying(self.arena(), 1 << (slot % 64));
        Ok(())
    }

    /// The slot that is being emptied.
    #[must_use]
    pub fn leaving_slot(&self) -> Option<u8> {
        let slots = leaving_slots(self.arena());
        u8::try_from(slots.trailing_zeros()).ok().filter(|_| slots != 0)
    }

    /// Whether an operation that is under way has noted that it took pages of a slot, which it may yet give
    /// to an inode.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn is_in_hand(&self, slot: u8) -> Result<bool> {
        let arena = self.arena();
        let mut is_there = false;
        for client in arena.clients() {
            // A list that changes while it is read: somebody is at work.
            let Ok(records) = arena.records(&client) else { return Ok(true) };
            let taken = records.iter().flat_map(|record| &record.taken);
            is_there |= taken.into_iter().any(|of| PmAddr::from_raw(of.addr_raw).slot() == slot);
        }
        Ok(is_there)
    }

    /// What is asked of the one who empties slots, with a number other than `seen`; waits for it as long as
    /// `timeout`, and less now and then. A slot that was added, or could not be, is asked of nobody who comes later.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn wait_for_slot_ask(
        &self,
        seen: u64,
        timeout: Duration,
    ) -> Result<Option<(u64, SlotAsk)>> {
        self.check_open()?;
        let arena = self.arena();
        let is_over = |(turn, ask): &(u64, SlotAsk)| {
            matches!(ask, SlotAsk::Add(..)) && is_claimed(arena, *turn)
        };
        let new = || asked(arena).filter(|asked| asked.0 != seen && !is_over(asked));
        let low = asked_word(arena).load(Ordering::Acquire) & u64::from(u32::MAX);
        if new().is_none() && !timeout.is_zero() {
            sleep_while(asked_word(arena), u32::try_from(low).unwrap_or(0), timeout);
        }
        Ok(new())
    }

    /// Whether this client is the one to add what was asked for with this number: of several that hear it one alone is.
    #[must_use]
    pub fn claim_slot_ask(&self, turn: u64) -> bool {
        claim(self.arena(), turn, self.client.info().process.pid)
    }

    /// Tells those who asked what became of it.
    pub fn tell_emptying(&self, turn: u64, state: EmptyState) {
        say_state(self.arena(), turn, state);
    }

    /// Counts pages that were moved; none begins anew.
    pub fn count_emptied(&self, more: Option<u64>) {
        count_moved(self.arena(), more);
    }

    /// Says how many files are left there, as they are mapped.
    pub fn tell_mapped(&self, files: u64) {
        say_mapped(self.arena(), files);
    }
}
