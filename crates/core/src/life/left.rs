//! The session of clients that have all died while the machine went on: what they had only buffered.
//!
//! It is in their arena, which outlives them. A client that joins when all others are dead is in no way
//! different from one that joined before the last of them died: it settles for them, and, as the last to
//! leave, closes the pool, which flushes every file. So no crash and no further death meets anything new
//! here: each step is one that clients make anyway, and until the last of them the arena stays as it was.
//!
//! What is believed of the arena: that of clients that live, by those who look at its file; and that the pool
//! is the one that they left. Before anything is stored, the two are compared: the session, and each inode
//! whose view is loaded and not locked by one of the dead, whose newest line on media must be the view's.
//! A pool that was put back from a copy, or repaired meanwhile, differs there.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Owner, PidInfo};
use novale_pm::{Health, Pm};

use crate::base::error::{Error, Result};
use crate::fs::{Fs, OpenOptions};
use crate::inode::media::MediaInode;
use crate::inode::state::InodePlace;
use crate::life::attach::{count_settled, is_open, tables, tell_files};
use crate::pool::{Pool, nothing_lost};
use crate::space::failed::{failed_slots, forget_failed};
use crate::space::leaving::tell_slots;

/// Whether clients of `arena` have left the pool open in a mode, so that bytes may be there which the pool does not
/// have. Nobody is looked at: the caller knows that none of them lives. Where a second look could not tell, and took
/// one for alive, it would seem that nothing is left.
#[must_use]
pub fn has_left_behind(arena: &Arena) -> bool {
    is_open(arena) && OpenOptions::of_arena(arena).mode.is_some()
}

impl Fs {
    /// Ends the session of clients that have all died: `process` joins, settles for them, writes back what
    /// they have buffered, and closes the pool. `pm` maps it for writing, and nobody else can come to it.
    /// False where the pool is not as they left it: then nothing is stored.
    ///
    /// # Errors
    /// Those of [`Fs::attach`], [`Fs::settle_dead`] and [`Fs::close`]; [`Error::Lost`](crate::Error::Lost) where a
    /// slot fails, and [`Error::OthersLive`](crate::Error::OthersLive): the arena keeps what is not in the pool.
    pub fn end_session_of_dead(
        pm: Pm,
        arena: &Arena,
        now_ns: i64,
        process: PidInfo,
    ) -> Result<bool> {
        if !is_as_left(&pm, arena)? {
            return Ok(false);
        }
        // Files of the same contents that have come to lie elsewhere since are as good.
        tell_files(&pm, arena);
        if failed_slots(arena) != 0 && nothing_lost(&pm, Health::default()).is_ok() {
            // It is back; operations that it ended have left pages behind.
            forget_failed(arena);
            count_settled(arena);
        }
        // One who added a slot may have died beside the superblock that has it.
        tell_slots(arena, pm.slot_count().into());
        let options = OpenOptions { now_ns, ..OpenOptions::of_arena(arena) };
        let fs = Self::attach(pm, arena, &options, process)?;
        fs.settle_dead()?;
        // Closing would end the session, and what is buffered for the slot is in no other place.
        fs.lost(Health::default())?;
        fs.close()?;
        // It only leaves where there seem to be others, which need not be so: it may have no descriptor to look with.
        if fs.is_pool_closed() { Ok(true) } else { Err(Error::OthersLive) }
    }
}

/// Whether the pool is as the clients of an arena have left it.
fn is_as_left(pm: &Pm, arena: &Arena) -> Result<bool> {
    let pool = Pool::read(pm)?;
    let (session, inodes, views) = tables(arena);
    let mut is_same = session == u64::from(pool.state.session);
    if !is_same {
        return Ok(false);
    }
    views.for_each(arena, &mut |view| {
        let lock = arena.word(view.lock_off())?.load(Ordering::Acquire);
        if !is_same || view.kind().is_none() || Owner::of_lock_word(lock).is_some() {
            return Ok(());
        }
        let ino = view.ino();
        let Some(addr) = inodes.addr(arena, ino)? else {
            is_same = false;
            return Ok(());
        };
        let media = MediaInode::read(pm, &InodePlace::new(pool.seed, ino, addr))?;
        is_same = media.newest().is_some_and(|(line, _)| line.op_seq == view.op_seq());
        Ok(())
    })?;
    Ok(is_same)
}
