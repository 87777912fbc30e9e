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
//! A pool that was put back from a copy, or repaired meanwhile, differs there. An inode in a slot that has failed and is
//! back may differ by the one commit that met the failure: a line that no client was shown ([`Fs::commit`]), or one that
//! was lost, and that a journal record has. The view goes by the line then, or the line is stored again.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Owner, PidInfo};
use novale_layout::Ino;
use novale_pm::{Health, Pm};

use crate::base::error::{Error, Result};
use crate::fs::{Fs, OpenOptions};
use crate::inode::media::MediaInode;
use crate::inode::state::{InodePlace, State};
use crate::life::attach::{count_settled, is_open, tables, tell_files};
use crate::op::journal::{Journal, lane_pages};
use crate::pool::{Pool, nothing_lost};
use crate::space::failed::{failed_slots, forget_failed, is_lost};
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
        let Some(doubts) = compare(&pm, arena)? else { return Ok(false) };
        // Files of the same contents that have come to lie elsewhere since are as good.
        tell_files(&pm, arena);
        if failed_slots(arena) != 0 && nothing_lost(&pm, Health::default()).is_ok() {
            doubts.iter().try_for_each(|doubt| end_doubt(&pm, arena, doubt))?;
            nothing_lost(&pm, Health::default())?;
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

/// An inode that differs by the commit that met the failure of its slot.
#[derive(Debug, Clone, Copy)]
enum Doubt {
    /// Its line has come to the slot, and its view is the one before.
    Unseen(Ino),
    /// Its line has not, and a journal record and its view say what it was.
    Owed(Ino, InodePlace),
}

/// The inodes that are not as the clients of an arena have left them, where that may be; none where the pool is another.
fn compare(pm: &Pm, arena: &Arena) -> Result<Option<Vec<Doubt>>> {
    let pool = Pool::read(pm)?;
    let (session, inodes, views) = tables(arena);
    if session != u64::from(pool.state.session) {
        return Ok(None);
    }
    let mut journal = None;
    let (mut is_same, mut doubts) = (true, Vec::new());
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
        let (place, seen) = (InodePlace::new(pool.seed, ino, addr), view.op_seq());
        let stored = MediaInode::read(pm, &place)?.newest().map_or(0, |(line, _)| line.op_seq);
        if stored == seen {
            return Ok(());
        }
        is_same = is_lost(arena, addr);
        if stored == view.state().next_op_seq(pool.state.session) {
            doubts.push(Doubt::Unseen(ino));
        } else if is_same {
            let journal = match &mut journal {
                Some(journal) => journal,
                none => none.insert(read_journal(pm, &pool)?),
            };
            is_same = journal.of(ino).iter().any(|(_, line)| line.op_seq == seen);
            doubts.push(Doubt::Owed(ino, place));
        }
        Ok(())
    })?;
    Ok(is_same.then_some(doubts))
}

fn read_journal(pm: &Pm, pool: &Pool) -> Result<Journal> {
    Journal::read(pm, pool.seed, &lane_pages(pm, pool.superblock.lane_count)?)
}

/// Makes view and line of an inode the same. Who dies here leaves it so, or to be done again.
fn end_doubt(pm: &Pm, arena: &Arena, doubt: &Doubt) -> Result<()> {
    let (session, _, views) = tables(arena);
    let (Doubt::Unseen(ino) | Doubt::Owed(ino, _)) = doubt;
    let Some(view) = views.find(arena, *ino)? else { return Ok(()) };
    match doubt {
        Doubt::Unseen(_) => view.publish(|| {
            view.set_unloaded();
            view.set_state(&State { op_seq: 0, ..view.state() });
        }),
        Doubt::Owed(_, place) => {
            let state = view.state();
            let line = state.line(u32::try_from(session).unwrap_or(0), None);
            pm.fence(place.stream_line(pm, state.slot, &line)).end();
        }
    }
    Ok(())
}
