//! Slots that another client has added while the pool is open (docs/DESIGN.md, "Beside programs that have the pool
//! open"). Comes in: the number of slots in the arena, which has risen. Goes out: a client that has their tables and
//! their mappings, before its operation goes on; or one that lacks them.
//!
//! A client meets a slot as it begins an operation, when it has no lock, or when it settles for the one who added it.
//! No page is taken there until all operations have ended that began before.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use novale_arena::{Arena, ClientInfo, Record};
use novale_layout::PmAddr;
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::{Fs, SlotOpener};
use crate::life::attach::{added_place, tell_files};
use crate::op::call::{OpKind, known_in};
use crate::op::pages::COUNTING;
use crate::pool::{confirm_superblock, read_slot_state};
use crate::space::failed::has_slot;
use crate::space::leaving::{
    coming_slots, slots_to_know, tell_come, tell_here_to_leave, tell_slots,
};
use crate::space::ranges::{self, AddedSlot, ComingSlot};
use crate::space::wear::SlotCells;

/// The processes that slots which were added wait for, in the middle of an operation that began before; none where
/// no slot waits.
#[must_use]
pub fn awaited_clients(arena: &Arena) -> Option<Vec<u32>> {
    (coming_slots(arena) != 0)
        .then(|| awaited(arena).map(|client| client.process.pid).collect::<Vec<_>>())
}

/// Whether the pool that is open in `arena` has got a slot with this number since, in this file (file system and inode).
///
/// # Errors
/// [`Error::BadArena`]: damage.
pub fn has_come(arena: &Arena, slot: u8, file: (u64, u64)) -> Result<bool> {
    let is_known = u64::from(slot) < slots_to_know(arena);
    Ok(is_known && ranges::file_of_added(arena, added_place(arena), slot)? == Some(file))
}

/// The clients that are in the middle of an operation which began when they knew fewer slots than there are.
fn awaited(arena: &Arena) -> impl Iterator<Item = ClientInfo> + '_ {
    let slots = slots_to_know(arena);
    let is_behind =
        move |client: &ClientInfo| arena.kinds_at_work(client).any(|kind| known_in(kind) < slots);
    arena.clients().filter(is_behind)
}

impl Fs {
    /// Has slots that others add be mapped here by `opener`, from the next operation on. Without one they are lacking.
    pub fn set_slot_opener(&self, opener: Box<SlotOpener>) {
        let _first = self.passes.meeting.opener.set(opener);
    }

    /// A bit for each slot that others have added and that this client can't map: what lies there is lost for it.
    #[must_use]
    pub fn lacking_slots(&self) -> u64 {
        self.pm.lacking()
    }

    /// The files of the slots that were added since this client came, as who added them has named them.
    #[must_use]
    pub fn slots_added(&self) -> Vec<PathBuf> {
        // Nothing may have been done here since.
        self.meet_slots();
        self.added_files().clone()
    }

    pub(crate) fn added_files(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.passes.meeting.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what needs all slots where one is lacking.
    pub(crate) fn check_none_lacking(&self) -> Result<()> {
        match self.pm.lacking() {
            0 => Ok(()),
            slots => {
                let slot = u8::try_from(slots.trailing_zeros()).unwrap_or(u8::MAX);
                Err(Error::Lost(PmAddr::new(slot, 0)))
            }
        }
    }

    /// Whether there are slots that this client does not know.
    pub(crate) fn has_slots_to_meet(&self) -> bool {
        let known = self.passes.meeting.known.load(Ordering::Acquire);
        slots_to_know(self.arena()) > known.into()
    }

    /// Takes over the slots that others have added. Returns how many it knows then.
    #[cold]
    pub(crate) fn meet_slots(&self) -> u32 {
        if !self.has_slots_to_meet() {
            return self.passes.meeting.known.load(Ordering::Acquire);
        }
        let _one = self.passes.meeting.one.lock().unwrap_or_else(PoisonError::into_inner);
        while self.has_slots_to_meet() {
            let known = self.passes.meeting.known.load(Ordering::Acquire);
            match self.allocator.ranges.next_added(self.arena()) {
                Ok((added, coming)) => self.meet(added, &coming),
                Err(_) => self.lack(known),
            }
            self.passes.meeting.known.store(known + 1, Ordering::Release);
        }
        self.passes.meeting.known.load(Ordering::Acquire)
    }

    fn meet(&self, added: AddedSlot, coming: &ComingSlot) {
        let opener = self.passes.meeting.opener.get().filter(|_| self.pm.lacking() == 0);
        let mapped = opener.and_then(|opener| opener(coming));
        let is_it = |new: &Pm| {
            new.slot_len(0) / novale_layout::PAGE >= coming.pages
                && new.slot_identity(0).unwrap_or_default() == coming.file
        };
        match mapped.filter(is_it).and_then(|new| self.pm.adopt(new)) {
            Some(slot) if slot == coming.slot => self.added_files().push(coming.path.clone()),
            _ => self.lack(coming.slot.into()),
        }
        let cells = SlotCells { pages: coming.pages, endurance: coming.endurance };
        self.allocator.wear.add_slot(cells);
        self.allocator.ranges.publish(added);
    }

    fn lack(&self, slot: u32) {
        let slots = 1u64.checked_shl(slot).unwrap_or(0);
        self.pm.lack(slots);
        self.allocator.lack(slots);
    }

    /// Has all clients know one slot more, which this one has mapped; `new` are its tables.
    pub(crate) fn tell_known(&self, new: AddedSlot, cells: SlotCells) {
        let _one = self.passes.meeting.one.lock().unwrap_or_else(PoisonError::into_inner);
        self.allocator.wear.add_slot(cells);
        self.allocator.ranges.publish(new);
        let known = self.passes.meeting.known.load(Ordering::Acquire) + 1;
        self.passes.meeting.known.store(known, Ordering::Release);
        tell_slots(self.arena(), known.into());
    }

    /// Has pages be taken from the slots that were added, where no operation is under way that began before. Says
    /// whether that is done.
    ///
    /// # Errors
    /// [`Error::BadArena`]: damage.
    pub fn open_slots(&self, ctx: &Ctx) -> Result<bool> {
        if coming_slots(self.arena()) == 0 {
            return Ok(true);
        }
        self.settle_dead()?;
        let call = self.begin(OpKind::Manage, ctx)?;
        let _one = call.op.lock(self.slots_lock())?;
        let (arena, coming) = (self.arena(), coming_slots(self.arena()));
        self.check_none_lacking()?;
        if awaited(arena).next().is_some() {
            return Ok(false);
        }
        for slot in (0..novale_layout::MAX_SLOTS).filter(|slot| coming >> slot & 1 != 0) {
            // Of this slot alone: another one may have failed since it came. Nothing fails behind the count.
            let leaves = self.comes_to_leave(slot)?;
            // Who settles can't know whether they were counted.
            call.op.note_word(COUNTING, u64::from(slot) + 1);
            self.allocator.count_slot(arena, slot)?;
            self.end_coming(slot, leaves);
            call.op.note_word(COUNTING, 0);
        }
        Ok(true)
    }

    /// Whether a slot came for another one to go.
    fn comes_to_leave(&self, slot: u8) -> Result<bool> {
        Ok(read_slot_state(&self.pm, self.seed, slot)?.evacuation_state != 0)
    }

    /// Has a slot that was coming be one as the others, or one that leaves.
    fn end_coming(&self, slot: u8, leaves: bool) {
        if leaves {
            tell_here_to_leave(self.arena(), 1 << slot);
        } else {
            tell_come(self.arena(), 1 << slot);
        }
    }

    /// Ends what a dead client was doing with slots, whose lock it has: one that it was adding the pool has, where
    /// others may know it, or has not.
    pub(crate) fn settle_adding(&self, record: &Record, has_root: bool) -> Result<()> {
        let arena = self.arena();
        let slots = slots_to_know(arena);
        if slots == 0 {
            return Ok(());
        }
        let beyond = u32::try_from(slots).ok().and_then(|slots| u64::MAX.checked_shl(slots));
        tell_come(arena, beyond.unwrap_or(0));
        if has_root {
            // Who sets a feature has the same lock.
            let stored = confirm_superblock(&self.pm, slots)?;
            self.pm.fence(stored).end();
        }
        let counting = record.words.get(COUNTING).copied().flatten();
        let slot = counting.and_then(|word| u8::try_from(word.checked_sub(1)?).ok());
        if let Some(slot) = slot.filter(|slot| has_slot(coming_slots(arena), *slot)) {
            self.end_coming(slot, self.comes_to_leave(slot)?);
            self.allocator.count_anew(arena)?;
        }
        tell_files(&self.pm, arena);
        Ok(())
    }
}
