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
//!
//! An inode in a slot that has failed and is back may differ by the one commit that met the failure, and by no other:
//! nobody commits an inode whose slot is known to have failed. Either its line came to the slot, and no client was shown
//! it ([`Fs::commit`]): media is one ahead. Or it was lost, one of several whose change was shown: media is behind, and
//! a record has it in a lane of a slot that goes on, where one was to be had. Both are judged as
//! recovery would, with the records and by what the checksums cover, since what was stored before the slot failed need
//! not have come to it whole. Either line may stand: what is buffered goes on top of either, and the operation was an
//! error. What stands is stored again, as a certificate above all numbers that were
//! seen, and the view is dropped, which takes nothing from what is buffered. Before this nothing is stored, and until it is
//! done the arena says that the slot has failed. An inode there that no view shows, and of which a record speaks, is judged
//! with them; views stay while their slot has failed. One that is damaged, since its identity line was lost with a record
//! of it shown, say, stays as it is: it keeps nobody from the others' bytes. Who dies in it leaves lines of the newest number with a view that is
//! behind: of such an inode media is ahead, by one or by the certificate's number too, which is judged again, and
//! stands. Power that goes takes the arena along, and recovery judges the same lines and records alone.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, Owner, PidInfo};
use novale_layout::Ino;
use novale_pm::{Health, Pm};

use crate::base::error::{Error, Result};
use crate::fs::{Fs, OpenOptions};
use crate::inode::media::MediaInode;
use crate::inode::numbers::Inodes;
use crate::inode::state::InodePlace;
use crate::inode::view::{View, Views};
use crate::life::attach::{count_settled, is_open, tables, tell_files};
use crate::life::settle::JudgedPool;
use crate::map::stores::held_to_store;
use crate::op::journal::{Journal, Record, lane_pages};
use crate::op::standing;
use crate::pool::{Pool, nothing_lost};
use crate::space::failed::{failed_slots, forget_failed, is_lost};
use crate::space::leaving::tell_slots;

/// Whether clients of `arena` have left bytes there that the pool does not have, or seem to: where it can't be told,
/// they have. Nobody is looked at: the caller knows that none of them lives. Where a second look could not tell, and
/// took one for alive, it would seem that nothing is left.
#[must_use]
pub fn has_left_behind(arena: &Arena) -> bool {
    is_open(arena)
        && OpenOptions::of_arena(arena).mode.is_some()
        && has_buffered(arena).unwrap_or(true)
}

/// The files to whose pages clients of `arena` may have stored, to be given to [`Fs::sync_left`]. Nobody is looked at: the caller
/// knows that none of them lives, and opens the pool anew.
#[must_use]
pub fn stored_behind(arena: &Arena) -> BTreeSet<Ino> {
    if is_open(arena) { held_to_store(arena, None).unwrap_or_default() } else { BTreeSet::new() }
}

/// Whether the pool is to get bytes from the buffer, or a file is being given some; one that a dead client has locked
/// may be getting its name. How many blocks are in use does not tell: a death may have left a count too low.
fn has_buffered(arena: &Arena) -> Result<bool> {
    let (_, _, views) = tables(arena);
    let mut has = false;
    views.for_each(arena, &mut |view| {
        has = has
            || view.is_owed()
            || is_locked(arena, &view)? && (view.is_buffered() || !view.pending_write().is_null());
        Ok(())
    })?;
    Ok(has)
}

/// Whether a client has an inode locked; one that is dead has died in its operation.
fn is_locked(arena: &Arena, view: &View<'_>) -> Result<bool> {
    let lock = arena.word(view.lock_off())?.load(Ordering::Acquire);
    Ok(Owner::of_lock_word(lock).is_some())
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
        let Some(left) = LeftPool::read(&pm, arena)? else { return Ok(false) };
        let Some(doubts) = left.doubts()? else { return Ok(false) };
        // Files of the same contents that have come to lie elsewhere since are as good.
        tell_files(&pm, arena);
        if failed_slots(arena) != 0 && nothing_lost(&pm, Health::default()).is_ok() {
            left.end_doubts(&doubts)?;
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
struct Doubt {
    ino: Ino,
    /// The number of the line that its view shows, where media may be behind that.
    owed: Option<u64>,
}

/// A pool beside the arena of the dead who had it open.
struct LeftPool<'a> {
    pm: &'a Pm,
    arena: &'a Arena,
    pool: Pool,
    inodes: Inodes,
    views: Views,
}

impl<'a> LeftPool<'a> {
    /// None where it is of another session than the arena.
    fn read(pm: &'a Pm, arena: &'a Arena) -> Result<Option<Self>> {
        let pool = Pool::read(pm)?;
        let (session, inodes, views) = tables(arena);
        let is_same = session == u64::from(pool.state.session);
        Ok(is_same.then_some(Self { pm, arena, pool, inodes, views }))
    }

    fn place(&self, ino: Ino) -> Result<InodePlace> {
        let addr = self.inodes.addr(self.arena, ino)?.ok_or(Error::Stale)?;
        Ok(InodePlace::new(self.pool.seed, ino, addr))
    }

    fn judged<T>(&self, ask: impl FnOnce(&JudgedPool<'_>) -> Result<T>) -> Result<T> {
        ask(&JudgedPool {
            pm: self.pm,
            seed: self.pool.seed,
            session: self.pool.state.session,
            lanes: self.pool.superblock.lane_count,
            place: &|ino| self.place(ino),
        })
    }

    /// The inodes that are not as the clients have left them, where that may be; none where the pool is another.
    fn doubts(&self) -> Result<Option<Vec<Doubt>>> {
        let (mut is_same, mut doubts) = (true, Vec::new());
        self.views.for_each(self.arena, &mut |view| {
            if !is_same || view.kind().is_none() || is_locked(self.arena, &view)? {
                return Ok(());
            }
            let ino = view.ino();
            let Some(addr) = self.inodes.addr(self.arena, ino)? else {
                is_same = false;
                return Ok(());
            };
            let media = MediaInode::read(self.pm, &self.place(ino)?)?;
            let (seen, stored) = (view.op_seq(), media.newest().map_or(0, |(line, _)| line.op_seq));
            let had_failed = is_lost(self.arena, addr);
            if stored == seen && !(had_failed && media.torn_line().is_some()) {
                return Ok(());
            }
            is_same = had_failed;
            // One who died in the middle of this has left a certificate, which may be above the line.
            let next = view.state().next_op_seq(self.pool.state.session);
            let is_ahead = stored == next || stored == next + 1;
            doubts.push(Doubt { ino, owed: (!is_ahead).then_some(seen) });
            Ok(())
        })?;
        if is_same && doubts.iter().any(|doubt| doubt.owed.is_some()) {
            is_same = self.judged(|judged| are_behind_by_one(judged, &doubts))?;
        }
        if is_same && failed_slots(self.arena) != 0 {
            self.add_unloaded(&mut doubts)?;
        }
        Ok(is_same.then_some(doubts))
    }

    /// Adds the inodes in slots that have failed of which records speak, and no view: where a line was lost only the
    /// record says so, and its lane is used for others once the slots are back.
    fn add_unloaded(&self, doubts: &mut Vec<Doubt>) -> Result<()> {
        let (pm, pool) = (self.pm, &self.pool);
        let journal = Journal::read(pm, pool.seed, &lane_pages(pm, pool.superblock.lane_count)?)?;
        let named: BTreeSet<Ino> = journal.records.iter().flat_map(Record::inos).collect();
        let known: BTreeSet<Ino> = doubts.iter().map(|doubt| doubt.ino).collect();
        for ino in named.difference(&known).copied() {
            let addr = self.inodes.addr(self.arena, ino)?;
            if !addr.is_some_and(|addr| is_lost(self.arena, addr)) {
                continue;
            }
            let view = self.views.find(self.arena, ino)?;
            if let Some(view) = &view
                && (view.kind().is_some() || is_locked(self.arena, view)?)
            {
                continue;
            }
            doubts.push(Doubt { ino, owed: None });
        }
        Ok(())
    }

    /// Makes views and lines of inodes the same. Who dies here leaves them so, or to be done again.
    fn end_doubts(&self, doubts: &[Doubt]) -> Result<()> {
        let views =
            doubts.iter().map(|doubt| Ok((doubt.ino, self.views.find(self.arena, doubt.ino)?)));
        let views = views.collect::<Result<Vec<_>>>()?;
        self.judged(|judged| judged.settle_views(self.arena, &views))
    }
}

/// Whether what recovery would take from lines and records is behind the views by the commit that met the failure at
/// most, and by the one before it, whose line may have been lost as it was written back.
fn are_behind_by_one(judged: &JudgedPool<'_>, doubts: &[Doubt]) -> Result<bool> {
    let journal = judged.journal_of(&doubts.iter().map(|doubt| doubt.ino).collect())?;
    let first = u64::from(judged.session) << 32;
    for Doubt { ino, owed } in doubts {
        let place = (judged.place)(*ino)?;
        let standing = standing::decide(judged.pm, Some(judged.session), &journal, *ino, &place);
        let standing = match standing {
            // One that is damaged says nothing of the others.
            Err(Error::Damaged { .. }) => continue,
            standing => standing?,
        };
        let next = standing.map_or(0, |standing| standing.line.op_seq + 1).max(first);
        if owed.is_some_and(|owed| ![next - 1, next, next + 1].contains(&owed)) {
            return Ok(false);
        }
    }
    Ok(true)
}
