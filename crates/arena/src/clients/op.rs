//! Operations in flight: a claimed record, and the locks taken in its name.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::base::error::{Full, LockError};
use crate::base::off::Off;
use crate::base::sync::{self, Owner, Refused};
use crate::base::word::AtomicU64;
use crate::clients::client::Client;
use crate::clients::record::{Commit, Extent, FREE, LOCKS_MAX, Phase, RecordWords, TAKEN};
use crate::memory::arena::Arena;

/// Settles what dead clients left, so that the locks that they held can be taken.
pub trait Settler: Sync {
    /// Settles for the client that `owner` names; says whether its locks are free then.
    fn settle(&self, owner: Owner) -> bool;
}

/// An operation in flight: a claimed record. Dropping it ends the operation.
///
/// Not for sharing between threads: one operation, one thread.
pub struct Op<'a> {
    client: &'a Client,
    settler: Option<&'a dyn Settler>,
    record: RecordWords<'a>,
    owner: Owner,
    kind: u32,
    /// A bit for each of the record's lock intents that is in use.
    locks_used: Cell<u8>,
}

impl<'a> Op<'a> {
    /// Takes the record if it is free.
    #[inline]
    pub(crate) fn claim(
        client: &'a Client,
        record: RecordWords<'a>,
        owner: Owner,
        kind: u32,
    ) -> Option<Self> {
        let op = || Self { client, settler: None, record, owner, kind, locks_used: Cell::new(0) };
        record.claim(owner.epoch(), kind).then(op)
    }

    /// Lets `settler` see to locks whose owner is dead.
    pub fn set_settler(&mut self, settler: &'a dyn Settler) {
        self.settler = Some(settler);
    }

    /// Whether somebody sees to dead owners for it. Who settles has nobody, and waits for no lock whose owner may wait
    /// for the settling.
    #[must_use]
    pub fn has_settler(&self) -> bool {
        self.settler.is_some()
    }

    /// What lock words name while this operation holds them.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// A word that outlasts the operation: the next one that gets this record finds it, be it another
    /// client's. 0 before anything was stored.
    #[inline]
    #[must_use]
    pub fn lasting_word(&self) -> &'a AtomicU64 {
        self.record.lasting()
    }

    /// The segment.
    #[must_use]
    pub fn arena(&self) -> &'a Arena {
        self.client.arena()
    }

    /// Takes the lock whose word is at `off`; sleeps while a living client holds it. The settler,
    /// where there is one, sees to a dead owner.
    ///
    /// # Errors
    /// [`LockError::OwnerDead`]: nobody has settled the owner's operations.
    /// [`LockError::Held`], [`LockError::TooMany`], [`LockError::BadOffset`]: mistakes.
    #[inline]
    pub fn lock(&self, off: Off) -> Result<LockGuard<'_>, LockError> {
        let is_dead = |owner, slept| self.arena().is_dead_to_waiter(owner, slept);
        loop {
            let (word, index) = self.intend(off)?;
            let refused = match sync::lock(word, self.owner, &is_dead) {
                Ok(()) => return Ok(LockGuard { op: self, word, index }),
                Err(refused) => refused,
            };
            self.forget_intent(index);
            match refused {
                Refused::Held => return Err(LockError::Held(off)),
                Refused::Dead(owner) if self.settler.is_some_and(|all| all.settle(owner)) => {}
                Refused::Dead(owner) => return Err(LockError::OwnerDead(owner)),
            }
        }
    }

    /// As [`Op::lock`], for as long as `wanted` says yes, which is asked now and then while others
    /// have the lock; none once it says no. For the lock of a block that may be used for something
    /// else meanwhile: a client that waits for it could otherwise wait for a lock that comes before its
    /// own.
    ///
    /// # Errors
    /// As [`Op::lock`].
    #[inline]
    pub fn lock_while(
        &self,
        off: Off,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<LockGuard<'_>>, LockError> {
        let gives_up = |owner, slept| !wanted() || self.arena().is_dead_to_waiter(owner, slept);
        loop {
            let (word, index) = self.intend(off)?;
            let refused = match sync::lock(word, self.owner, &gives_up) {
                Ok(()) => return Ok(Some(LockGuard { op: self, word, index })),
                Err(refused) => refused,
            };
            self.forget_intent(index);
            match refused {
                _ if !wanted() => return Ok(None),
                Refused::Held => return Err(LockError::Held(off)),
                Refused::Dead(owner) if self.settler.is_some_and(|all| all.settle(owner)) => {}
                Refused::Dead(owner) => return Err(LockError::OwnerDead(owner)),
            }
        }
    }

    /// Takes the lock whose word is at `off` if it is free.
    ///
    /// # Errors
    /// As [`Op::lock`], but for the dead owner, whom it does not look for.
    #[inline]
    pub fn try_lock(&self, off: Off) -> Result<Option<LockGuard<'_>>, LockError> {
        let (word, index) = self.intend(off)?;
        if sync::try_lock(word, self.owner) {
            Ok(Some(LockGuard { op: self, word, index }))
        } else {
            self.forget_intent(index);
            Ok(None)
        }
    }

    /// Notes which lock is going to be taken.
    #[inline]
    fn intend(&self, off: Off) -> Result<(&'a AtomicU64, u32), LockError> {
        let word = self.arena().word(off)?;
        let index = self.locks_used.get().trailing_ones();
        if index as usize >= LOCKS_MAX {
            return Err(LockError::TooMany(LOCKS_MAX));
        }
        self.locks_used.set(self.locks_used.get() | 1 << index);
        self.record.intent(index).store(off.raw(), Relaxed);
        Ok((word, index))
    }

    #[inline]
    fn forget_intent(&self, index: u32) {
        self.record.intent(index).store(0, Release);
        self.locks_used.set(self.locks_used.get() & !(1 << index));
    }

    /// Says how far the operation has come.
    #[inline]
    pub fn set_phase(&self, phase: Phase) {
        self.record.set_phase(self.kind, phase);
    }

    /// Notes a commit that is going to be stored: the inode (below 2^56), its `op_seq`, and which
    /// of the inode's lines or the lane's records it goes to.
    ///
    /// # Panics
    /// On a ninth commit of one operation.
    #[inline]
    pub fn note_commit(&self, inode: u64, op_seq: u64, slot: u8) {
        self.record.note_commit(Commit { inode, op_seq, slot });
    }

    /// Notes any word of the operation's own (old tail, journal record, ...) as number `index`.
    ///
    /// # Panics
    /// For an index above 7.
    #[inline]
    pub fn note_word(&self, index: usize, value: u64) {
        self.record.note_word(index, value);
    }

    /// Notes pages that are going to be taken: `pages` from `addr_raw` on.
    ///
    /// # Errors
    /// [`Full`] when a further block for the list is needed and there is none.
    #[inline]
    pub fn note_taken(&self, addr_raw: u64, pages: u32) -> Result<(), Full> {
        self.record.note(self.arena(), &TAKEN, Extent { addr_raw, pages })
    }

    /// Notes pages that are going to be freed once the operation is durable.
    ///
    /// # Errors
    /// [`Full`] when a further block for the list is needed and there is none.
    #[inline]
    pub fn note_free(&self, addr_raw: u64, pages: u32) -> Result<(), Full> {
        self.record.note(self.arena(), &FREE, Extent { addr_raw, pages })
    }

    /// Forgets the pages noted as taken: from here on they are somebody's, or free.
    #[inline]
    pub fn forget_taken(&self) {
        self.record.forget_taken(self.arena());
    }

    /// Forgets commits, words and extents; locks and phase stay.
    #[inline]
    pub fn clear_notes(&self) {
        self.record.clear_notes(self.arena());
    }

    /// Forgets words and extents: the commits stay as well.
    #[inline]
    pub fn clear_notes_but_commits(&self) {
        self.record.clear_notes_but_commits(self.arena());
    }

    /// Forgets commits, before others are noted.
    #[inline]
    pub fn forget_commits(&self) {
        self.record.forget_commits();
    }
}

impl std::fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Op").field("owner", &self.owner).field("kind", &self.kind).finish()
    }
}

impl Drop for Op<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record.end(self.arena());
        self.client.record_freed();
    }
}

/// A lock that is held; dropping it unlocks.
#[derive(Debug)]
pub struct LockGuard<'o> {
    op: &'o Op<'o>,
    word: &'o AtomicU64,
    index: u32,
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // The intent goes last: a death in between leaves an intent on a lock that names no owner.
        let held = sync::unlock(self.word, self.op.owner);
        debug_assert!(held, "the lock was taken away from its living owner");
        self.op.forget_intent(self.index);
    }
}
