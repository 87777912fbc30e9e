//! Pages that nobody writes, moved to slots that are worn (docs/DESIGN.md, "Slots are worn evenly"). Comes in:
//! a slot that is worn least and full of such pages, and the most worn one with room. Goes out: room in the
//! first for what is new, which goes where the memory is worn least.
//!
//! Each step is one of emptying a slot ([`super::evacuate`]): an ordinary operation under the inode's lock that
//! changes nothing that can be seen, with that crash argument.

use std::sync::PoisonError;

use novale_layout::{FileKind, Ino};

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::op::call::OpKind;
use crate::space::wear::ColdMove;

/// Inodes that are looked at in a step in which no page moves.
const LOOKS_A_STEP: u64 = 64;

/// A move that is under way.
struct Moving<'a> {
    ctx: &'a Ctx,
    which: ColdMove,
    before_ns: i64,
    /// Pages moved so far.
    moved: u64,
}

impl Fs {
    /// Which way pages that nobody writes are to go, so that new ones come from memory that is worn less; none
    /// where there is no need, where no slot has room for them, or where a slot is leaving or has failed.
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn cold_move(&self) -> Result<Option<ColdMove>> {
        self.allocator.cold_move(self.arena())
    }

    /// Moves pages of files that nobody has changed since `before_ns` (their `ctime`) from one slot to another,
    /// beside other clients' operations, in steps of up to 64 pages. Between them, with no lock held, `step` is
    /// told how many pages the one before has moved, none where only inodes were looked at, and says whether to go
    /// on. Returns how many were moved: fewer
    /// than asked for where there are no more of such files, or no room or memory for them. Files whose own pages a program
    /// has mapped stay.
    ///
    /// # Errors
    /// Those of reading and writing the files.
    pub fn move_cold(
        &self,
        ctx: &Ctx,
        which: ColdMove,
        before_ns: i64,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let mut moving = Moving { ctx, which, before_ns, moved: 0 };
        let mut looked_at = 0_u64;
        let ended = self.each_inode(&mut |ino| {
            looked_at += 1;
            if looked_at.is_multiple_of(LOOKS_A_STEP) && !step(0) {
                return Ok(false);
            }
            let mut from = Some(0);
            while let Some(page) = from
                && moving.moved < which.pages
            {
                let before = moving.moved;
                from = {
                    // Who closes the pool waits for it.
                    let _one = self.emptying.lock().unwrap_or_else(PoisonError::into_inner);
                    self.move_some_cold(&mut moving, ino, page)?
                };
                if moving.moved > before && !step(moving.moved - before) {
                    return Ok(false);
                }
            }
            Ok(moving.moved < which.pages)
        });
        if moving.moved > 0 {
            // What was freed is for all to take, and at once.
            self.drain_lanes(ctx)?;
            self.allocator.look_again_at_wear(self.arena())?;
        }
        match ended {
            Ok(()) | Err(Error::NoSpace | Error::NoMemory) => Ok(moving.moved),
            Err(error) => Err(error),
        }
    }

    /// Moves the next pages of a file from one on; says where to go on, if there may be more.
    fn move_some_cold(&self, moving: &mut Moving<'_>, ino: Ino, from: u64) -> Result<Option<u64>> {
        let ColdMove { from: slot, to, .. } = moving.which;
        let call = self.begin(OpKind::Write, moving.ctx)?;
        let locked = match self.lock(&call, ino) {
            // A number that is kept by a lane, or whose inode is gone.
            Err(Error::Stale | Error::NotFound) => return Ok(None),
            locked => locked?,
        };
        let view = &locked.view;
        let is_cold = view.state().ctime_ns < moving.before_ns && !view.is_dax();
        if locked.kind == FileKind::Directory || !is_cold {
            return Ok(None);
        }
        let (page, is_there) = self.next_there(&locked, slot, from)?;
        if is_there {
            self.settle_pages(&call, &locked)?;
            moving.moved += self.move_pages(&call, &locked, (slot, Some(to)), page)?;
        }
        Ok(page)
    }
}
