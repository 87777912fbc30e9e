//! Settling for clients that died: their operations end, their locks are free again.
//!
//! A client that waits for a lock whose owner is dead settles for all dead clients. An operation that
//! died is judged as recovery judges it after a crash, for the inodes that it had locked and no others:
//! nobody else changes those meanwhile. What stands is written back, a record that does not count is
//! erased, and a certificate ends every op_seq that was seen and does not stand. The inodes' views are
//! dropped, to be built again from their logs: nothing has to be known of how far the operation had come
//! in publishing.
//!
//! Pages that the operation had noted as taken, and that neither its inodes nor its lanes hold, are
//! free again. Pages that it was giving back are given from where it stopped; of those that were on their
//! way from a full lane to the bitmap the allocator loses track until the pool is opened again: a
//! page that is lost for a while does no harm, one that is given twice does. The same goes for
//! inode numbers. A settler may die too: every step can be repeated until the dead record says that
//! pages are given, which it says before. Who goes on from there gives none of the operation's own once
//! more, and where it says that it is settled, which it says before its first lock is free, it is not
//! judged again: others may have changed what that lock protects.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, ClientInfo, Commit, Off, Op, Owner, Phase, Record, Recovery, Settler};
use novale_layout::{
    COMMIT_OFFSETS, FileKind, INODE_SIZE, Ino, JOURNAL_RECORD_BYTES, LINE, PAGE, PmAddr, Seed,
};
use novale_pm::{Flushed, Health, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::fs::Fs;
use crate::inode::dir_index;
use crate::inode::state::InodePlace;
use crate::inode::view::View;
use crate::life::scan::AcceptedLog;
use crate::log::redo::Owed;
use crate::op::call::{Call, OpKind, kind_in};
use crate::op::journal::{Journal, lane_pages};
use crate::op::pages::{BUFFERING, GIVEN, RESERVING};
use crate::op::standing::Standing;
use crate::op::{load, standing};
use crate::pool::nothing_lost;
use crate::seeded::{self, Bug};
use crate::space::Allocator;
use crate::space::lane::Lane;

/// Rounds over all dead clients: one that died while it settled for another comes first.
const ROUNDS_MAX: usize = 64;

/// An inode that a dead operation had locked.
struct HeldInode<'a> {
    ino: Ino,
    view: View<'a>,
    place: InodePlace,
    standing: Option<Standing>,
}

/// An inode that is to be judged, and its view, where it has one.
struct AskedInode<'a> {
    ino: Ino,
    place: InodePlace,
    view: Option<&'a View<'a>>,
}

/// What becomes of inodes of which nothing can be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhatIsDamaged {
    /// Nothing is judged then.
    Refuses,
    Stays,
}

/// What a dead operation had locked.
struct Holdings<'a> {
    inodes: Vec<HeldInode<'a>>,
    lanes: Vec<Lane<'a>>,
}

/// What the logs of these inodes say of pages, by raw address.
#[derive(Default)]
struct LoggedPages {
    /// Those that the inodes have.
    named: BTreeSet<u64>,
    /// Those that the operation's commit has freed, of which none was given back.
    released: BTreeSet<u64>,
}

/// Why a settler stopped.
enum Stopped {
    /// Another dead client has what it needs.
    Blocked,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        let error = error.into();
        if matches!(error, Error::OwnerDead) { Self::Blocked } else { Self::Failed(error) }
    }
}

/// Where the journals of lanes have records that are torn.
fn torn_in(journal: &Journal, lanes: &[Lane<'_>]) -> impl Iterator<Item = PmAddr> {
    let page = |at: PmAddr| (at.slot(), at.byte() / PAGE);
    let pages: Vec<_> = lanes.iter().map(|lane| page(lane.journal().0)).collect();
    journal.torn.iter().copied().filter(move |at| pages.contains(&page(*at)))
}

/// A pool of which inodes are judged.
pub(crate) struct JudgedPool<'a> {
    pub(crate) pm: &'a Pm,
    pub(crate) seed: Seed,
    pub(crate) session: u32,
    pub(crate) lanes: u32,
    /// Where an inode lies.
    pub(crate) place: &'a dyn Fn(Ino) -> Result<InodePlace>,
}

impl JudgedPool<'_> {
    /// Judges inodes that nobody has locked, and nobody can come to, as those of an operation that died; those that are
    /// damaged stay as they are. The views that they have are dropped. It can be repeated until then.
    pub(crate) fn settle_views(
        &self,
        arena: &Arena,
        inodes: &[(Ino, Option<View<'_>>)],
    ) -> Result<()> {
        let asked = inodes.iter().map(|(ino, view)| {
            Ok(AskedInode { ino: *ino, place: (self.place)(*ino)?, view: view.as_ref() })
        });
        self.decide(&asked.collect::<Result<Vec<_>>>()?, &[], &[], WhatIsDamaged::Stays)?;
        // What failed meanwhile need not have the certificates: with the views the next try asks the same again.
        nothing_lost(self.pm, Health::default())?;
        inodes
            .iter()
            .filter_map(|(_, view)| view.as_ref())
            .try_for_each(|view| load::forget(arena, view))
    }

    /// Decides what stands of each inode, makes it durable, and ends what does not stand.
    fn decide(
        &self,
        inodes: &[AskedInode<'_>],
        lanes: &[Lane<'_>],
        commits: &[Commit],
        damaged: WhatIsDamaged,
    ) -> Result<(Vec<Option<Standing>>, LoggedPages)> {
        let inos: BTreeSet<Ino> = inodes.iter().map(|inode| inode.ino).collect();
        let pm = self.pm;
        let health = pm.health();
        let (mut logged, mut owed) = (LoggedPages::default(), Vec::new());
        let mut standings = Vec::new();
        if inos.is_empty() {
            return Ok((standings, logged));
        }
        let journal = self.journal_of(&inos)?;
        let mut pending = journal.write_back(pm, self.session);
        let mut torn = Vec::new();
        for inode in inodes {
            let (standing, accepted) = self.judge(&journal, inode, commits, damaged)?;
            if !seeded::is_on(Bug::SettledNotFlushed) {
                let range = pm.write_back_range(inode.place.addr, INODE_SIZE, Purpose::Inode);
                pending = pending.and(range);
            }
            if let (Some(standing), Some(accepted)) = (&standing, accepted) {
                pending = pending.and(accepted.pending);
                logged.named.extend(accepted.pages);
                let released = accepted.released.into_iter();
                logged.released.extend(released.filter(|_| inode.may_release()));
                if !accepted.owed.is_empty() {
                    torn.extend(standing.torn_lines(&inode.place));
                }
                owed.extend(accepted.owed);
            }
            standings.push(standing);
        }
        // What has failed meanwhile was read as zeros, which no checksum covers: nothing is rejected for that.
        nothing_lost(pm, health)?;
        for at in torn {
            pending = pending.and(pm.stream_zero(at, LINE, Purpose::Commit));
        }
        let rejected = journal.records.iter().filter(|record| record.is_judged());
        for record in rejected.filter(|record| !record.good) {
            let zeroed = pm.stream_zero(record.at, JOURNAL_RECORD_BYTES as u64, Purpose::Journal);
            pending = pending.and(zeroed);
        }
        // A record that its client died in the middle of: as a power cut's, in recovery.
        for at in torn_in(&journal, lanes) {
            let zeroed = pm.stream_zero(at, JOURNAL_RECORD_BYTES as u64, Purpose::Journal);
            pending = pending.and(zeroed);
        }
        // Certificates take the place of what is accepted and erased so, and of what is redone.
        if owed.is_empty() || !seeded::is_on(Bug::RedoTooEarly) {
            pm.fence(std::mem::replace(&mut pending, Flushed::none())).end();
        }
        if !owed.is_empty() {
            let stored = owed.iter().fold(Flushed::none(), |stored, Owed { at, bytes, .. }| {
                stored.and(pm.stream(*at, bytes, Purpose::Data))
            });
            pm.fence(pending.and(stored)).end();
        }
        let mut pending = Flushed::none();
        for (inode, standing) in inodes.iter().zip(&standings) {
            let Some(standing) = standing else { continue };
            for (slot, line) in COMMIT_OFFSETS.iter().zip(standing.install) {
                let Some(line) = line else { continue };
                let (at, line) = (inode.place.addr.add(*slot), line.encode(inode.place.seed));
                pending = pending.and(pm.stream(at, &line, Purpose::Commit));
            }
        }
        pm.fence(pending).end();
        Ok((standings, logged))
    }

    /// The records that name these inodes, judged.
    pub(crate) fn journal_of(&self, inos: &BTreeSet<Ino>) -> Result<Journal> {
        let mut journal = Journal::read(self.pm, self.seed, &lane_pages(self.pm, self.lanes)?)?;
        journal.keep_naming(inos);
        journal.judge(self.pm, self.seed, self.session, &|ino| (self.place)(ino).ok())?;
        Ok(journal)
    }

    /// As [`JudgedPool::judge_sound`]; nothing of an inode that is damaged, and stays.
    fn judge(
        &self,
        journal: &Journal,
        inode: &AskedInode<'_>,
        commits: &[Commit],
        damaged: WhatIsDamaged,
    ) -> Result<(Option<Standing>, Option<AcceptedLog>)> {
        match self.judge_sound(journal, inode, commits) {
            Err(Error::Damaged { .. }) if damaged == WhatIsDamaged::Stays => Ok((None, None)),
            judged => judged,
        }
    }

    /// What stands of an inode, and what its log comes to where that may be read.
    fn judge_sound(
        &self,
        journal: &Journal,
        inode: &AskedInode<'_>,
        commits: &[Commit],
    ) -> Result<(Option<Standing>, Option<AcceptedLog>)> {
        let AskedInode { ino, place, .. } = inode;
        let standing = standing::decide(self.pm, Some(self.session), journal, *ino, place)?;
        let logged = standing.as_ref().filter(|_| inode.has_log(standing.as_ref()));
        let commit = inode.commit(commits);
        let accepted = logged
            .map(|standing| AcceptedLog::read(self.pm, self.seed, *ino, place, standing, commit));
        let accepted = accepted.transpose()?;
        Ok((standing, accepted))
    }
}

impl Settler for Fs {
    fn settle(&self, owner: Owner) -> bool {
        // What it holds beyond its operations waits for somebody who has no lock.
        // Who can't read all that a dead client had leaves it to the others.
        self.settle_all(false).is_ok() && self.arena().has_ended(owner)
    }
}

impl Fs {
    /// Ends the operations of all clients that died and frees their locks. A client that waits for such a
    /// lock does it by itself; returns the number of clients settled for.
    ///
    /// # Errors
    /// [`Error::Damaged`] when an inode that a dead client had locked can't be read.
    pub fn settle_dead(&self) -> Result<u32> {
        self.settle_all(true)
    }

    /// The same of clients that died in the middle of an operation alone, and not what they hold, by a look at words
    /// in the arena where there are none. What such an operation has committed and not shown others see from then
    /// on: until somebody settles they see the state before it. Nobody is looked at by a descriptor unless one of them
    /// seems to have ended.
    ///
    /// # Errors
    /// As [`Fs::settle_dead`].
    pub fn settle_cut_off(&self) -> Result<()> {
        let arena = self.arena();
        let is_cut_off = |client| {
            let may_be = arena.is_at_work(&client) && arena.may_have_ended(&client);
            may_be && arena.is_dead_client(&client)
        };
        if arena.clients().any(is_cut_off) {
            self.settle_all(false)?;
        }
        Ok(())
    }

    /// Ends the operations of dead clients, and gives back what they hold where that is asked for: a
    /// client whose operations have ended is there until that is done.
    fn settle_all(&self, holds: bool) -> Result<u32> {
        let arena = self.arena();
        let dead = || arena.clients().filter(|client| arena.is_dead_client(client));
        if dead().next().is_none() {
            return Ok(0);
        }
        self.meet_slots();
        self.check_none_lacking()?;
        // Taken first: all others may be waited in by threads that wait for this one. It has no
        // settler, which would be this thread.
        let kind = OpKind::Release;
        let call = |op| Call { op, kind, now_ns: 0, hint: 0, health: self.health() };
        let known = self.passes.meeting.known.load(Ordering::Acquire);
        let call = holds.then(|| call(self.client.op(kind.with_known(known), 0)));
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(op) = self.client.settling_op(OpKind::Settle as u32) else {
            return Err(Error::BadArena("the record for settling is in use".into()));
        };
        let mut settled = 0;
        for _ in 0..ROUNDS_MAX {
            let mut blocked = false;
            let mut pass = |step: &dyn Fn(&Recovery<'_>) -> Result<(), Stopped>, ends: bool| {
                for client in dead() {
                    match self.settle_client(&op, client, step, ends) {
                        Ok(ended) => settled += u32::from(ended),
                        Err(Stopped::Blocked) => blocked = true,
                        Err(Stopped::Failed(error)) => return Err(error),
                    }
                }
                Ok(())
            };
            // Locks of structures that every step leaves sound go first: what follows needs them.
            pass(&|recovery| self.free_small_locks(recovery), false)?;
            pass(&|recovery| self.settle_operations(&op, recovery), !holds)?;
            // Nobody's recovery ends here whose operations are blocked: a client stays while it has any.
            if let Some(call) = &call {
                pass(&|recovery| Ok(self.give_back_holds(call, recovery)?), true)?;
            }
            if !blocked {
                return Ok(settled);
            }
        }
        Err(Error::BadArena("dead clients that wait for each other".into()))
    }

    fn settle_client(
        &self,
        op: &Op<'_>,
        client: ClientInfo,
        step: &dyn Fn(&Recovery<'_>) -> Result<(), Stopped>,
        ends: bool,
    ) -> Result<bool, Stopped> {
        let Some(recovery) = self.arena().recover(op, client)? else { return Ok(false) };
        // One that died between two operations has left nothing that the allocator could have lost.
        if !recovery.records()?.is_empty() {
            crate::life::attach::count_settled(self.arena());
        }
        step(&recovery)?;
        Ok(ends && recovery.finish()?)
    }

    /// Frees the locks of ranges and tables, and the right to settle for another client that died.
    fn free_small_locks(&self, recovery: &Recovery<'_>) -> Result<(), Stopped> {
        let arena = self.arena();
        for record in recovery.records()? {
            for lock in record.locks.iter().copied() {
                if !recovery.holds(&record, lock)? {
                    continue;
                }
                if let Some(range) = self.allocator.ranges.range_of_lock(lock) {
                    self.allocator.ranges.mend(arena, range)?;
                } else if self.is_lasting_lock(lock)
                    || self.allocator.lane_of_lock(arena, lock)?.is_some()
                    || self.views.view_of_lock(arena, lock)?.is_some()
                {
                    continue;
                }
                recovery.release(&record, lock)?;
            }
        }
        Ok(())
    }

    fn settle_operations(&self, op: &Op<'_>, recovery: &Recovery<'_>) -> Result<(), Stopped> {
        for record in recovery.records()? {
            if record.phase != Phase::Settled {
                self.settle_operation(op, recovery, &record)?;
            }
            recovery.end(&record)?;
        }
        Ok(())
    }

    fn settle_operation(
        &self,
        op: &Op<'_>,
        recovery: &Recovery<'_>,
        record: &Record,
    ) -> Result<(), Stopped> {
        let mut holdings = self.holdings(recovery, record)?;
        if recovery.holds(record, self.slots_lock())? {
            let has_root = holdings.inodes.iter().any(|held| held.ino == Ino::ROOT);
            self.settle_adding(record, has_root)?;
        }
        self.settle_buffered(recovery, record, &holdings)?;
        if let [held] = holdings.inodes.as_slice() {
            self.settle_hold(record, &held.view)?;
        }
        let logged = self.decide(&mut holdings, &record.commits)?;
        let giving = record.phase == Phase::Freeing;
        let started = given(record, &holdings);
        // One that settled for it and died has begun to give what is the operation's own.
        let is_begun = giving && started == u64::MAX;
        let own =
            if is_begun { Extents::default() } else { self.pages_of(record, &holdings, &logged)? };
        let rest = if giving { left(&record.free, started) } else { Vec::new() };
        let stay = seeded::is_on(Bug::SettledViewStays);
        for held in holdings.inodes.iter().filter(|_| !stay) {
            self.drop_view(held)?;
        }
        if kind_in(record.kind) == OpKind::Rename as u32 {
            self.find_parents(&holdings)?;
        }
        recovery.set_phase(record, Phase::Freeing)?;
        // Before anything is given: where a lane is locked, nobody has settled for this operation before.
        self.free_lanes(recovery, record)?;
        for (extent, given) in rest {
            recovery.note_word(record, GIVEN, given)?;
            self.allocator.give_extent(self.arena(), op, extent)?;
        }
        // All of its list is given, and of its own pages nobody is to say again which they are.
        if !seeded::is_on(Bug::OwnGivenTwice) {
            recovery.note_word(record, GIVEN, u64::MAX)?;
        }
        for extent in own.iter() {
            self.allocator.give_extent(self.arena(), op, extent)?;
        }
        if !giving {
            self.reclaim_nameless(record, &holdings)?;
        }
        Ok(())
    }

    /// Frees its lanes' locks, whose journals are decided: an inode that is freed needs a lane, perhaps the
    /// only one, and what is stopped by this very lock would be lost.
    fn free_lanes(&self, recovery: &Recovery<'_>, record: &Record) -> Result<()> {
        for lock in record.locks.iter().copied() {
            if recovery.holds(record, lock)?
                && self.allocator.lane_of_lock(self.arena(), lock)?.is_some()
            {
                recovery.release(record, lock)?;
            }
        }
        Ok(())
    }

    fn holdings(&self, recovery: &Recovery<'_>, record: &Record) -> Result<Holdings<'_>> {
        let arena = self.arena();
        let mut holdings = Holdings { inodes: Vec::new(), lanes: Vec::new() };
        for lock in record.locks.iter().copied() {
            if !recovery.holds(record, lock)? {
                continue;
            }
            if let Some(lane) = self.allocator.lane_of_lock(arena, lock)? {
                holdings.lanes.push(lane);
            } else if let Some(view) = self.views.view_of_lock(arena, lock)? {
                let ino = view.ino();
                let place = self.place(ino)?;
                holdings.inodes.push(HeldInode { ino, view, place, standing: None });
            }
        }
        Ok(holdings)
    }

    fn decide(&self, holdings: &mut Holdings<'_>, commits: &[Commit]) -> Result<LoggedPages> {
        let place = |ino| self.place(ino);
        let pool = JudgedPool {
            pm: &self.pm,
            seed: self.seed,
            session: self.session,
            lanes: self.allocator.lane_count(),
            place: &place,
        };
        let asked: Vec<_> = holdings.inodes.iter().map(HeldInode::asked).collect();
        let (standings, logged) =
            pool.decide(&asked, &holdings.lanes, commits, WhatIsDamaged::Refuses)?;
        for (held, standing) in holdings.inodes.iter_mut().zip(standings) {
            held.standing = standing;
        }
        Ok(logged)
    }

    /// Ends a write to the buffer: it is carried out where it has happened, else its blocks are free. So are
    /// those that a flush has left. What is buffered stays.
    fn settle_buffered(
        &self,
        recovery: &Recovery<'_>,
        record: &Record,
        holdings: &Holdings<'_>,
    ) -> Result<()> {
        let arena = self.arena();
        let first = Off::from_raw(record.words.get(BUFFERING).copied().flatten().unwrap_or(0));
        let is_pending = |held: &HeldInode<'_>| held.view.pending_write() == first;
        let has_happened = !first.is_null() && holdings.inodes.iter().any(is_pending);
        let reserved = record.words.get(RESERVING).copied().flatten().unwrap_or(0);
        if reserved > 0 && !has_happened {
            recovery.note_word(record, RESERVING, 0)?;
            self.allocator.unreserve_pages(arena, reserved)?;
        }
        if !first.is_null() {
            // The one who settles after this one, if it dies, is not to give them again.
            recovery.note_word(record, BUFFERING, 0)?;
            if !has_happened {
                self.buffer.give_chain(arena, first)?;
            }
        }
        for held in holdings.inodes.iter().filter(|held| !held.view.was_directory()) {
            if seeded::is_on(Bug::BufferedWriteLost) {
                held.view.forget_pending();
            }
            held.view.apply_pending(arena, self.buffer)?;
            if seeded::is_on(Bug::SettledBufferDropped) {
                held.view.set_unbuffered();
            }
            if held.view.has_old_blocks() {
                self.give_buffer(&held.view)?;
            }
        }
        Ok(())
    }

    /// Drops an inode's view, but for what it alone knows.
    fn drop_view(&self, held: &HeldInode<'_>) -> Result<()> {
        load::forget(self.arena(), &held.view)
    }

    /// Sets the parents of directories that may have moved, by the directories that name them.
    fn find_parents(&self, holdings: &Holdings<'_>) -> Result<()> {
        for directory in &holdings.inodes {
            if !directory.has_log() || self.load_held(directory)? != Some(FileKind::Directory) {
                continue;
            }
            for named in dir_index::inos(&self.pm, self.arena(), &directory.view)? {
                let moved = holdings.inodes.iter().find(|held| held.ino == named);
                if let Some(moved) = moved {
                    moved.view.set_parent(directory.view.as_parent());
                }
            }
        }
        Ok(())
    }

    /// Loads the view of an inode whose lock a dead client has.
    fn load_held(&self, held: &HeldInode<'_>) -> Result<Option<FileKind>> {
        if held.view.kind().is_none() {
            let id_of = |generation| self.log_id(held.ino, generation);
            let (place, unrecovered) = (&held.place, &self.unrecovered);
            load::load(&self.pm, self.arena(), &held.view, place, unrecovered, &id_of)?;
        }
        Ok(held.view.kind())
    }

    /// Frees the inodes whose last name the operation had taken, or whose last hold.
    fn reclaim_nameless(&self, record: &Record, holdings: &Holdings<'_>) -> Result<()> {
        let kinds = [OpKind::Unlink, OpKind::Rename, OpKind::Release];
        if !kinds.iter().any(|kind| *kind as u32 == kind_in(record.kind)) {
            return Ok(());
        }
        for held in &holdings.inodes {
            let nameless = held.standing.as_ref().is_some_and(|standing| standing.line.nlink == 0);
            if !nameless || held.holds() > 0 {
                continue;
            }
            // As if it were held, or it would not load.
            held.view.holds().store(1, Ordering::Relaxed);
            let loaded = self.load_held(held);
            held.view.holds().store(0, Ordering::Relaxed);
            let Some(file_kind) = loaded? else { continue };
            let kind = OpKind::Release;
            let Some(op) = self.client.freeing_op(kind as u32) else {
                return Err(Error::BadArena("the record for freeing is in use".into()));
            };
            let call = Call { op, kind, now_ns: 0, hint: 0, health: self.health() };
            let id = self.log_id(held.ino, held.view.generation());
            self.reclaim_view(&call, &held.view, &id, file_kind)?;
        }
        Ok(())
    }
}

impl HeldInode<'_> {
    fn asked(&self) -> AskedInode<'_> {
        AskedInode { ino: self.ino, place: self.place, view: Some(&self.view) }
    }

    fn holds(&self) -> u64 {
        self.asked().holds()
    }

    /// As [`AskedInode::has_log`].
    fn has_log(&self) -> bool {
        self.asked().has_log(self.standing.as_ref())
    }
}

impl AskedInode<'_> {
    /// The number of the commit of this inode whose pages the operation had not begun to give back.
    fn commit(&self, commits: &[Commit]) -> Option<u64> {
        let mut commits = commits.iter();
        commits.find(|commit| commit.inode == self.ino.get()).map(|commit| commit.op_seq)
    }

    /// Whether pages that are not the inode's any more may be used elsewhere: not where others have them
    /// mapped.
    fn may_release(&self) -> bool {
        !self.view.is_some_and(|view| view.is_dax() || view.has_parked())
    }

    fn holds(&self) -> u64 {
        self.view.map_or(0, |view| view.holds().load(Ordering::Relaxed))
    }

    /// Whether its log may be read: that of an inode without names and holds may be used elsewhere.
    fn has_log(&self, standing: Option<&Standing>) -> bool {
        standing.is_some_and(|standing| standing.line.nlink > 0 || self.holds() > 0)
    }
}

/// How many extents of its list the operation has given. Of the one in hand the lane knows, which was locked
/// for it, or which has nothing of it yet.
fn given(record: &Record, holdings: &Holdings<'_>) -> u64 {
    let given = record.words.get(GIVEN).copied().flatten().unwrap_or(0);
    let in_hand = given.checked_sub(1).and_then(|at| record.free.get(usize::try_from(at).ok()?));
    let is_left = in_hand
        .map(extent_of)
        .is_some_and(|extent| holdings.lanes.iter().any(|lane| lane.lacks(extent)));
    given.saturating_sub(u64::from(is_left || seeded::is_on(Bug::GivenTwice)))
}

/// What is left of a list of which `started` extents were given, and how many are with each of them. All of
/// them were, of a list that another one has settled for who died of it: `started` is the largest number then.
fn left(free: &[novale_arena::Extent], started: u64) -> Vec<(Extent, u64)> {
    let extents = free.iter().map(extent_of).zip(1..);
    extents.filter(|(_, given)| *given > started).collect()
}

fn extent_of(noted: &novale_arena::Extent) -> Extent {
    Extent { addr: PmAddr::from_raw(noted.addr_raw), pages: u64::from(noted.pages) }
}

impl Fs {
    /// The pages that are the dead operation's alone: those noted as taken, and those that its inodes
    /// keep for their logs, that no inode has and neither its lanes nor its record hold; and those that
    /// its commit has freed. Not what it has begun to give back.
    fn pages_of(
        &self,
        record: &Record,
        holdings: &Holdings<'_>,
        logged: &LoggedPages,
    ) -> Result<Extents> {
        let spare = holdings.inodes.iter().map(|held| held.view.spare());
        let all: BTreeSet<u64> =
            record.taken.iter().map(extent_of).chain(spare).flat_map(Extent::each_raw).collect();
        let mut own = Extents::default();
        let none = BTreeSet::new();
        let named = if seeded::is_on(Bug::SettledPagesTwice) { &none } else { &logged.named };
        let giving = record.phase == Phase::Freeing && !seeded::is_on(Bug::ReleasedTwice);
        let is_done = giving || seeded::is_on(Bug::ReleasedLost);
        let released = if is_done { &none } else { &logged.released };
        let begun = record.free.iter().filter(|_| giving).map(extent_of);
        let begun: BTreeSet<u64> = begun.flat_map(Extent::each_raw).collect();
        let unnamed = all.difference(named).filter(|page| !begun.contains(page));
        let unnamed: BTreeSet<u64> = unnamed.copied().collect();
        for raw in unnamed.union(released) {
            let page = PmAddr::from_raw(*raw);
            let held = holdings.lanes.iter().any(|lane| lane.holds_page(page));
            if !held && !Allocator::is_kept(self.arena(), record.owner, page)? {
                own.push_page(page);
            }
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use novale_arena::PidInfo;
    use novale_layout::IDENTITY_OFFSET;

    use super::*;
    use crate::base::types::Node;
    use crate::fixture::{CTX, FILE, with_file};

    /// What an inode is can't be read any more.
    fn damage(fs: &Fs, ino: Ino) {
        let at = fs.place(ino).unwrap().addr.add(IDENTITY_OFFSET);
        fs.pm.fence(fs.pm.stream(at, &[0x5a; 64], Purpose::Inode)).end();
    }

    #[test]
    fn of_what_another_one_has_given_nothing_is_left() {
        let noted = |addr_raw| novale_arena::Extent { addr_raw, pages: 1 };
        let free = [noted(1), noted(2)];
        let extent = |raw| Extent { addr: PmAddr::from_raw(raw), pages: 1 };
        assert_eq!(left(&free, 0), [(extent(1), 1), (extent(2), 2)]);
        assert_eq!(left(&free, 1), [(extent(2), 2)]);
        for list in [&free[..], &[]] {
            assert_eq!(left(list, u64::MAX), []);
        }
    }

    /// A settler that stops behind this is followed by another.
    #[test]
    fn what_a_dead_client_has_reserved_is_given_up_once() {
        let (fs, ino) = with_file();
        let arena = fs.arena();
        let ended = PidInfo { start_time: u64::MAX, ..PidInfo::current() };
        let dead = arena.attach(ended).unwrap();
        let op = ManuallyDrop::new(dead.op(OpKind::Write as u32, 0));
        let view = fs.views.find(arena, ino).unwrap().unwrap();
        let _held = ManuallyDrop::new(op.lock(view.lock_off()).unwrap());
        assert!(fs.allocator.reserve_pages(arena, 5).unwrap());
        op.note_word(RESERVING, 3);
        damage(&fs, ino);
        for _ in 0..2 {
            let settled = fs.settle_dead();
            assert!(matches!(settled, Err(Error::Damaged { .. })), "{settled:?}");
            assert_eq!(fs.allocator.pages_reserved(arena).unwrap(), 2);
        }
    }

    /// The views go of all of them.
    #[test]
    fn of_inodes_that_nobody_has_locked_a_damaged_one_keeps_no_other() {
        let (fs, damaged) = with_file();
        let sound = fs.create(&CTX, Node::ROOT, b"sound", &FILE).unwrap().ino;
        damage(&fs, damaged);
        let pool = JudgedPool {
            pm: &fs.pm,
            seed: fs.seed,
            session: fs.session,
            lanes: fs.allocator.lane_count(),
            place: &|ino| fs.place(ino),
        };
        let view = |ino| fs.views.find(fs.arena(), ino).unwrap();
        let inodes = [damaged, sound].map(|ino| (ino, view(ino)));
        pool.settle_views(fs.arena(), &inodes).unwrap();
        for ino in [damaged, sound] {
            assert!(view(ino).is_none_or(|view| view.kind().is_none()));
        }
        assert!(fs.getattr(sound).is_ok());
    }
}
