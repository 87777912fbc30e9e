//! Slots that are added while the pool is open (docs/DESIGN.md, "Slots that come and go while the pool is open").
//! Comes in: a pool of which the caller is the only client, and a slot that waits for a place in it. Goes out: the
//! pool with that slot behind the last, from which pages are taken at once; or, where it came for another to go,
//! from which none ever are.
//!
//! Crash points: until the superblock's first copy says so the pool is what it was, and the slot waits. All that
//! the slot needs to be the last is durable before that, and its tables are in the arena: who ends the session
//! of a client that died in between finds them where the pool has the slot, and does not look where it has not.
//! No page is taken there before the copy is durable.

use std::path::Path;
use std::sync::PoisonError;

use novale_arena::PidInfo;
use novale_layout::{Ino, PmAddr};
use novale_pm::{Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::life::slots::{NewSlot, make_last, slot_header};
use crate::op::call::OpKind;
use crate::pool::Pool;
use crate::space::leaving::{coming_slots, leaving_slots, tell_coming, tell_leaving};
use crate::space::ranges::ComingSlot;
use crate::space::wear::SlotCells;

/// The clients beside which a slot is added.
pub struct Beside<'a> {
    /// Where they find its file.
    pub path: &'a Path,
    /// Whether it may be added beside those that live.
    pub may: &'a dyn Fn(&[PidInfo]) -> bool,
}

impl std::fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Fs {
    /// Adds a slot behind the last, which is mapped alone and waits for that place
    /// ([`crate::slot_waits`]); returns its number. None where another client has the pool open, which would not
    /// have it mapped: nothing is changed then. Where `goes` names a slot, the new one is emptied for that one to go
    /// from the moment when the pool has it: no page is ever taken there, and there is no state between.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a slot has failed or is leaving, or as many were added as can be; [`Error::BadPool`]
    /// for one that does not wait, or is shorter than the one that is to go; [`Error::Lost`] where it has failed
    /// meanwhile; [`Error::ReadOnly`]. The pool is as it was then.
    pub fn add_slot(&self, ctx: &Ctx, new: Pm, goes: Option<u8>) -> Result<Option<u8>> {
        self.add_slot_beside(ctx, new, goes, &Beside { path: Path::new(""), may: &|_| false })
    }

    /// As [`Fs::add_slot`], also beside other clients, where those that live may be: they map it as they begin their
    /// next operation. Pages are taken there when all operations have ended that are under way ([`Fs::open_slots`]).
    ///
    /// # Errors
    /// Those of [`Fs::add_slot`].
    pub fn add_slot_beside(
        &self,
        ctx: &Ctx,
        new: Pm,
        goes: Option<u8>,
        beside: &Beside<'_>,
    ) -> Result<Option<u8>> {
        // Closing waits for it, as for a step of emptying.
        let _step = self.passes.step.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_open()?;
        self.settle_dead()?;
        let call = self.begin(OpKind::Manage, ctx)?;
        let _one = call.op.lock(self.slots_lock())?;
        // Who says in the superblock that a feature is used has this lock.
        let _root = self.lock(&call, Ino::ROOT)?;
        self.meet_slots();
        self.check_none_lacking()?;
        if coming_slots(self.arena()) != 0 {
            return Err(Error::Invalid("another slot was added, and waits for operations to end"));
        }
        if self.failed_slots() != 0 {
            return Err(Error::Invalid("a slot of the pool has failed: none can be added now"));
        }
        if leaving_slots(self.arena()) != 0 {
            return Err(Error::Invalid("a slot of the pool is leaving: none can be added now"));
        }
        // A client that came later has mapped what was added before as any slot: it still is one of the arena's few.
        if !self.pm.can_adopt() || !self.allocator.ranges.can_add() {
            return Err(Error::Invalid(
                "as many slots were added as can be before the pool is opened next",
            ));
        }
        let added = self.among(&call, beside.may, |is_alone| {
            let added = self.bring(new, goes, (!is_alone).then_some(beside.path))?;
            self.added_files().push(beside.path.to_owned());
            Ok(added)
        })?;
        self.check_slots(&call)?;
        Ok(added)
    }

    /// Adds it, beside clients that find its file at a path.
    fn bring(&self, new: Pm, goes: Option<u8>, beside: Option<&Path>) -> Result<u8> {
        let (arena, allocator) = (self.arena(), &self.allocator);
        let mut pool = Pool::read(&self.pm)?;
        let header = slot_header(&new)?;
        let (uuid, index) = (pool.superblock.pool_uuid, pool.superblock.slot_count);
        if (header.pool_uuid, header.index) != (uuid, index) {
            let come = if header.pool_uuid == uuid && header.index < index {
                ": it has other slots by now; make the same call again"
            } else {
                ""
            };
            let why = format!("the new slot does not wait for a place in this pool{come}");
            return Err(Error::BadPool(why));
        }
        let (uuid, endurance) = (header.slot_uuid, header.endurance);
        let made = make_last(&mut pool, &NewSlot { pm: &new, uuid, endurance }, goes)?;
        // What was stored to one that is cut off by now is nowhere, and the pool would not open with it.
        if new.health().failed != 0 {
            return Err(Error::Lost(PmAddr::new(index, 0)));
        }
        let prepared = allocator.ranges.prepare(arena, made.pages)?;
        let coming = ComingSlot {
            slot: index,
            path: beside.unwrap_or(Path::new("")).to_owned(),
            file: new.slot_identity(0).unwrap_or_default(),
            pages: made.pages,
            endurance,
        };
        allocator.ranges.tell_where(arena, &coming)?;
        allocator.wear.begin(arena, index.into(), &made.worn)?;
        if self.pm.adopt(new).is_none() {
            return Err(Error::Invalid("the new slot can't be mapped with the others"));
        }
        if beside.is_some() {
            tell_coming(arena, 1 << index);
        } else if goes.is_some() {
            // Before it is there: who ends the session of one that dies at the commit takes no page there either.
            tell_leaving(arena, 1 << index);
        }
        let cells = SlotCells { pages: made.pages, endurance };
        if beside.is_some() {
            // Others may be in the middle of operations: those that begin from here on know it.
            self.tell_known(prepared, cells);
        }
        let named = self.pm.stream(PmAddr::new(0, 0), &made.superblock, Purpose::Other);
        self.pm.fence(named).end();
        if beside.is_none() {
            self.tell_known(prepared, cells);
            allocator.count_slot(arena, index)?;
        }
        Ok(index)
    }
}
