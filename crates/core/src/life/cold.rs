//! Pages that nobody writes, moved to slots that are worn (docs/DESIGN.md, "Slots are worn evenly"). Comes in:
//! a slot that is worn least and full of such pages, and the most worn one with room. Goes out: room in the
//! first for what is new, which goes where the memory is worn least.
//!
//! Each step is one of emptying a slot ([`super::evacuate`]): an ordinary operation under the inode's lock that
//! changes nothing that can be seen, with that crash argument.

use std::sync::atomic::Ordering::Relaxed;

use novale_layout::{FileKind, Ino};

use crate::base::error::{Error, Result};
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::inode::media::MediaInode;
use crate::life::evacuate::{Left, Stepped};
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
    looked_at: u64,
}

impl Fs {
    /// Which way pages that nobody writes are to go, so that new ones come from memory that is worn less; none
    /// where there is no need, where no slot has room for them, or where a slot is leaving or has failed. The first
    /// is the one that helps most; the others are for where the files there are not cold.
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn cold_moves(&self) -> Result<Vec<ColdMove>> {
        self.allocator.cold_moves(self.arena())
    }

    /// The first of [`Fs::cold_moves`].
    ///
    /// # Errors
    /// [`Error::BadArena`] when the arena is damaged.
    pub fn cold_move(&self) -> Result<Option<ColdMove>> {
        Ok(self.cold_moves()?.first().copied())
    }

    /// Moves pages of files that nobody has changed since `before_ns` (their `ctime`) from one slot to another,
    /// beside other clients' operations, in steps of up to 64 pages. Between them, with no lock held, `step` is
    /// told how many pages the one before has moved, none where only inodes were looked at, and says whether to go
    /// on. It begins with the inode that the last move ended at. Returns how many were moved: fewer than asked for
    /// where there are no more of such files, or no room or memory for them. Files whose own pages a program
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
        let mut moving = Moving { ctx, which, before_ns, moved: 0, looked_at: 0 };
        let first = self.passes.cold_at.load(Relaxed);
        let visit = &mut |ino: Ino| {
            self.passes.cold_at.store(ino.get(), Relaxed);
            self.visit_cold(&mut moving, ino, step)
        };
        let ended = match self.each_inode_of(first..u64::MAX, visit) {
            Ok(false) => self.each_inode_of(0..first, visit),
            ended => ended,
        };
        if moving.moved > 0 {
            // What was freed is for all to take, and at once.
            self.drain_lanes(ctx)?;
            self.allocator.look_again_at_wear(self.arena())?;
        }
        match ended {
            Ok(_) | Err(Error::NoSpace | Error::NoMemory) => Ok(moving.moved),
            Err(error) => Err(error),
        }
    }

    /// Moves what of a file is to be moved, if it is cold; says whether to go on with others.
    fn visit_cold(
        &self,
        moving: &mut Moving<'_>,
        ino: Ino,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        moving.looked_at += 1;
        if moving.looked_at.is_multiple_of(LOOKS_A_STEP) && !step(0) {
            return Ok(false);
        }
        if !self.may_be_cold(ino, moving.before_ns)? {
            return Ok(true);
        }
        let some = &mut |from| self.move_some_cold(moving, ino, from);
        let left = self.steps_of(some, step)?;
        Ok(left.is_some() && moving.moved < moving.which.pages)
    }

    /// Whether an inode may be a file that nobody has changed for so long, as seen without its lock: by its view, or
    /// by what media say where it has none. Any answer is sound, since the lock's holder looks again.
    fn may_be_cold(&self, ino: Ino, before_ns: i64) -> Result<bool> {
        if let Some(view) = self.views.find(self.arena(), ino)?
            && let Some(kind) = view.kind()
        {
            return Ok(kind != FileKind::Directory && view.seen_times().1 < before_ns);
        }
        let media = self.place(ino).and_then(|place| MediaInode::read(&self.pm, &place));
        let Ok(media) = media else { return Ok(true) };
        let is_directory =
            media.identity.is_ok_and(|identity| identity.kind == FileKind::Directory);
        let is_new = media.newest().is_some_and(|(line, _)| line.ctime_ns >= before_ns);
        Ok(!is_directory && !is_new)
    }

    /// Moves the next pages of a file from one on.
    fn move_some_cold(&self, moving: &mut Moving<'_>, ino: Ino, from: u64) -> Result<Stepped> {
        let nothing = Stepped { moved: 0, left: Left::Nothing };
        let ColdMove { from: slot, to, pages } = moving.which;
        let call = self.begin(OpKind::Write, moving.ctx)?;
        let locked = match self.lock(&call, ino) {
            // A number that is kept by a lane, or whose inode is gone.
            Err(Error::Stale | Error::NotFound) => return Ok(nothing),
            locked => locked?,
        };
        let view = &locked.view;
        let is_cold = view.seen_times().1 < moving.before_ns && !view.is_dax();
        if locked.kind == FileKind::Directory || !is_cold {
            return Ok(nothing);
        }
        let (page, is_there) = self.next_there(&locked, slot, from)?;
        let mut moved = 0;
        if is_there {
            self.settle_pages(&call, &locked)?;
            moved = self.move_pages(&call, &locked, (slot, Some(to)), page)?;
            moving.moved += moved;
        }
        let more = page.filter(|_| moving.moved < pages);
        Ok(Stepped { moved, left: more.map_or(Left::Nothing, Left::From) })
    }
}
