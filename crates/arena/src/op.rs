//! Operation records: what an operation is about to do, written before it does it.
//!
//! Whoever finds a dead owner reads its records and settles: so each fact is stored before the act
//! that it announces. A record belongs to one operation at a time, and only that writes it. Counts
//! are published after what they count, so a settler reads whole entries only.
//!
//! A record is 12 lines: state, phase, counts | 8 lock intents | 8 free words | 8 commits (2 words
//! each) | 12 extents taken (2 words each) | 12 extents to be freed. Longer lists go on in blocks
//! of the segment.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::alloc::Class;
use crate::arena::Arena;
use crate::client::Client;
use crate::error::{BadOffset, Full, LockError};
use crate::off::{Off, at};
use crate::sync::{self, Owner, Refused};

/// Operation records of a client.
pub(crate) const RECORDS: usize = 64;
/// Words of a record.
pub(crate) const RECORD_WORDS: usize = 96;

// Words of a record.
const STATE: usize = 0;
const KIND_PHASE: usize = 1;
const COUNTS: usize = 2;
const OVERFLOW: [usize; 2] = [3, 4];
const LOCKS: usize = 8;
const WORDS: usize = 16;
const COMMITS: usize = 24;
const EXTENTS: [usize; 2] = [40, 64];

/// Locks that one operation can hold at a time.
const LOCKS_MAX: usize = 8;
/// Commits that one operation can make: the lines of a journal record.
const COMMITS_MAX: u64 = 8;
/// Words that one operation can note.
const WORDS_MAX: usize = 8;
/// Extents that fit the record itself, of each kind.
const INLINE: u64 = 12;

/// Blocks of further extents: word 0 leads to the block before, 31 extents follow.
const OVERFLOW_CLASS: Class = Class::internal(130, 64);
const OVERFLOW_EXTENTS: u64 = 31;

/// Shifts of the counts in their word: commits 8 bits, extents 24 bits each, a bit each noted word.
const EXTENT_SHIFT: [u32; 2] = [8, 32];
const WORDS_SHIFT: u32 = 56;
const EXTENTS_MAX: u64 = (1 << 24) - 1;

/// How far an operation has come; decides whether a settler takes it back or completes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// There is no operation.
    Idle = 0,
    /// Nothing that could commit it has been stored: it goes back.
    Prepared = 1,
    /// What commits it is being stored: forward if that validates, else ended.
    Committing = 2,
    /// Its commit is durable: forward.
    Fenced = 3,
    /// Readers see it: forward.
    Published = 4,
    /// What it replaced is being freed: forward.
    Freeing = 5,
}

/// Which of the two lists of extents.
#[derive(Debug, Clone, Copy)]
enum List {
    Taken = 0,
    Free = 1,
}

/// An operation in flight: a claimed record. Dropping it ends the operation.
///
/// Not for sharing between threads: one operation, one thread.
#[derive(Debug)]
pub struct Op<'a> {
    client: &'a Client,
    record: &'a [AtomicU64; RECORD_WORDS],
    owner: Owner,
    kind: u32,
    locks_used: Cell<u8>,
    counts: Cell<u64>,
}

impl<'a> Op<'a> {
    /// Takes the record if it is free.
    #[inline]
    pub(crate) fn claim(
        client: &'a Client,
        record: &'a [AtomicU64; RECORD_WORDS],
        owner: Owner,
        kind: u32,
    ) -> Option<Self> {
        let state = u64::from(owner.epoch()) << 32 | 1;
        record[STATE]
            .compare_exchange(0, state, AcqRel, Relaxed)
            .ok()?;
        record[COUNTS].store(0, Relaxed);
        let op = Self {
            client,
            record,
            owner,
            kind,
            locks_used: Cell::new(0),
            counts: Cell::new(0),
        };
        op.set_phase(Phase::Prepared);
        Some(op)
    }

    /// What lock words name while this operation holds them.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The segment.
    #[must_use]
    pub fn arena(&self) -> &'a Arena {
        self.client.arena()
    }

    /// Takes the lock whose word is at `off`; sleeps while a living client holds it.
    ///
    /// # Errors
    /// [`LockError::OwnerDead`]: the caller settles the owner's operations and tries again.
    /// [`LockError::Held`], [`LockError::TooMany`], [`LockError::BadOffset`]: mistakes.
    #[inline]
    pub fn lock(&self, off: Off) -> Result<LockGuard<'_>, LockError> {
        let (word, index) = self.intend(off)?;
        let is_dead = |owner: Owner| self.arena().is_dead(owner);
        match sync::lock(word, self.owner, &is_dead) {
            Ok(()) => Ok(LockGuard {
                op: self,
                word,
                index,
            }),
            Err(refused) => {
                self.forget_intent(index);
                Err(match refused {
                    Refused::Dead(owner) => LockError::OwnerDead(owner),
                    Refused::Held => LockError::Held(off),
                })
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
            Ok(Some(LockGuard {
                op: self,
                word,
                index,
            }))
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
        self.intent(index).store(off.raw(), Relaxed);
        Ok((word, index))
    }

    #[inline]
    fn forget_intent(&self, index: u32) {
        self.intent(index).store(0, Release);
        self.locks_used.set(self.locks_used.get() & !(1 << index));
    }

    #[inline]
    fn intent(&self, index: u32) -> &AtomicU64 {
        at(self.record, LOCKS + index as usize)
    }

    /// Says how far the operation has come.
    #[inline]
    pub fn set_phase(&self, phase: Phase) {
        let word = u64::from(self.kind) << 32 | phase as u64;
        self.record[KIND_PHASE].store(word, Release);
    }

    /// Notes a commit that is going to be stored: the inode (below 2^56), its op_seq, and which
    /// of the inode's lines or the lane's records it goes to.
    ///
    /// # Panics
    /// On a ninth commit of one operation.
    #[inline]
    pub fn note_commit(&self, inode: u64, op_seq: u64, slot: u8) {
        let counts = self.counts.get();
        let index = counts & 0xff;
        assert!(
            index < COMMITS_MAX,
            "an operation commits at most {COMMITS_MAX} inodes"
        );
        let first = COMMITS + 2 * index as usize;
        at(self.record, first).store(u64::from(slot) << 56 | inode, Relaxed);
        at(self.record, first + 1).store(op_seq, Relaxed);
        self.publish(counts + 1);
    }

    /// Notes any word of the operation's own (old tail, journal record, ...) as number `index`.
    ///
    /// # Panics
    /// For an index above 7.
    #[inline]
    pub fn note_word(&self, index: usize, value: u64) {
        assert!(
            index < WORDS_MAX,
            "an operation notes at most {WORDS_MAX} words"
        );
        at(self.record, WORDS + index).store(value, Relaxed);
        self.publish(self.counts.get() | 1 << (WORDS_SHIFT as usize + index));
    }

    /// Notes pages that are going to be taken: `pages` from `addr_raw` on.
    ///
    /// # Errors
    /// [`Full`] when a further block for the list is needed and there is none.
    #[inline]
    pub fn note_taken(&self, addr_raw: u64, pages: u32) -> Result<(), Full> {
        self.note(List::Taken, addr_raw, pages)
    }

    /// Notes pages that are going to be freed once the operation is durable.
    ///
    /// # Errors
    /// [`Full`] when a further block for the list is needed and there is none.
    #[inline]
    pub fn note_free(&self, addr_raw: u64, pages: u32) -> Result<(), Full> {
        self.note(List::Free, addr_raw, pages)
    }

    #[inline]
    fn note(&self, list: List, addr_raw: u64, pages: u32) -> Result<(), Full> {
        let counts = self.counts.get();
        let shift = EXTENT_SHIFT[list as usize];
        let index = counts >> shift & EXTENTS_MAX;
        if index < INLINE {
            let first = EXTENTS[list as usize] + 2 * index as usize;
            at(self.record, first).store(addr_raw, Relaxed);
            at(self.record, first + 1).store(u64::from(pages), Relaxed);
        } else {
            self.note_overflow(list, index, addr_raw, pages)?;
        }
        self.publish(counts + (1 << shift));
        Ok(())
    }

    #[cold]
    fn note_overflow(&self, list: List, index: u64, addr: u64, pages: u32) -> Result<(), Full> {
        let full = || Full {
            asked: 0,
            used: index,
            limit: EXTENTS_MAX,
        };
        if index == EXTENTS_MAX {
            return Err(full());
        }
        let head = &self.record[OVERFLOW[list as usize]];
        let place = (index - INLINE) % OVERFLOW_EXTENTS;
        if place == 0 {
            let made = self.arena().alloc(OVERFLOW_CLASS)?;
            let block = self.overflow_block(made).map_err(|_| full())?;
            block[0].store(head.load(Relaxed), Relaxed);
            head.store(made.raw(), Release);
        }
        let block = self
            .overflow_block(Off::from_raw(head.load(Relaxed)))
            .map_err(|_| full())?;
        at(block, 1 + 2 * place as usize).store(addr, Relaxed);
        at(block, 2 + 2 * place as usize).store(u64::from(pages), Relaxed);
        Ok(())
    }

    fn overflow_block(&self, off: Off) -> Result<&'a [AtomicU64; 64], BadOffset> {
        self.arena().block::<64>(off)
    }

    #[inline]
    fn publish(&self, counts: u64) {
        self.counts.set(counts);
        self.record[COUNTS].store(counts, Release);
    }

    /// Forgets commits, words and extents; locks and phase stay.
    pub fn clear_notes(&self) {
        let counts = self.counts.get();
        self.publish(0);
        for list in [List::Taken, List::Free] {
            let extents = counts >> EXTENT_SHIFT[list as usize] & EXTENTS_MAX;
            if extents > INLINE {
                let blocks = (extents - INLINE).div_ceil(OVERFLOW_EXTENTS);
                self.free_overflow(list, blocks);
            }
        }
    }

    #[cold]
    fn free_overflow(&self, list: List, blocks: u64) {
        let head = &self.record[OVERFLOW[list as usize]];
        for _ in 0..blocks {
            let off = Off::from_raw(head.load(Relaxed));
            let Ok(block) = self.overflow_block(off) else {
                break;
            };
            head.store(block[0].load(Relaxed), Relaxed);
            self.arena().free(OVERFLOW_CLASS, off);
        }
        head.store(0, Relaxed);
    }
}

impl Drop for Op<'_> {
    #[inline]
    fn drop(&mut self) {
        self.clear_notes();
        self.record[KIND_PHASE].store(0, Relaxed);
        self.record[STATE].store(0, Release);
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
