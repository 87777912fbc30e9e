//! Operation records: what an operation is about to do, written before it does it.
//!
//! A client that finds a dead owner reads its records and settles: so each fact is stored before the act
//! that it announces. A record belongs to one operation at a time, and only that writes it. Counts
//! are published after what they count, so a settler reads whole entries only.
//!
//! A record is 12 lines: state, phase, counts | 8 lock intents | 8 free words | 8 commits (2 words
//! each) | 12 extents taken (2 words each) | 12 extents to be freed | a word that outlasts the
//! operation. Longer lists go on in blocks of the segment.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::base::error::{BadOffset, Full};
use crate::base::off::{Off, at, high32, low32, to_usize};
use crate::base::sync::Owner;
use crate::base::word::AtomicU64;
use crate::memory::alloc::Class;
use crate::memory::arena::Arena;

/// Operation records of a client.
pub(crate) const RECORDS: usize = 64;
/// Words of a record.
pub(crate) const RECORD_WORDS: usize = 96;

// Words of a record.
const STATE: usize = 0;
const KIND_PHASE: usize = 1;
const COUNTS: usize = 2;
const LOCKS: usize = 8;
const WORDS: usize = 16;
const COMMITS: usize = 24;
const LASTING: usize = 88;

/// Locks that one operation can hold at a time.
pub(crate) const LOCKS_MAX: usize = 8;
/// Commits that one operation can make: the lines of a journal record.
const COMMITS_MAX: u64 = 8;
/// Words that one operation can note.
const WORDS_MAX: usize = 8;
/// Extents that fit the record itself, of each kind.
const INLINE: u64 = 12;

/// Blocks of further extents: word 0 leads to the block before, 31 extents follow, the last word
/// is the number of the first of them.
const OVERFLOW_WORDS: usize = 64;
const OVERFLOW_CLASS: Class = Class::internal(130, 64);
const OVERFLOW_EXTENTS: u64 = 31;
const OVERFLOW_FIRST: usize = OVERFLOW_WORDS - 1;

/// The counts in their word: commits 8 bits, the two lists of extents 24 bits each, and a bit each
/// noted word.
const COMMITS_MASK: u64 = 0xff;
const EXTENTS_MAX: u64 = (1 << 24) - 1;
const WORDS_SHIFT: usize = 56;

/// An inode's number and a commit's place share a word.
const COMMIT_SLOT_SHIFT: u32 = 56;

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
    /// Another one has settled for it: nothing is left but its locks, of which some may be free.
    Settled = 6,
}

impl Phase {
    /// A number that none of the phases has counts as the one that asks for the most care.
    fn of(number: u32) -> Self {
        match number {
            0 => Self::Idle,
            1 => Self::Prepared,
            3 => Self::Fenced,
            4 => Self::Published,
            5 => Self::Freeing,
            6 => Self::Settled,
            _ => Self::Committing,
        }
    }
}

/// Pages from a raw address on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first page's address, as the noting client wrote it.
    pub addr_raw: u64,
    /// How many pages.
    pub pages: u32,
}

/// A commit that was going to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The inode, as the noting client wrote it (56 bits).
    pub inode: u64,
    /// The operation's number in that inode.
    pub op_seq: u64,
    /// Which line or record it goes to.
    pub slot: u8,
}

/// A copy of what an operation record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose it is; what the words of its locks name.
    pub owner: Owner,
    /// The operation's kind, as given to `Client::op`.
    pub kind: u32,
    /// How far it had come.
    pub phase: Phase,
    /// Locks that it held, or was about to take: the lock word says which.
    pub locks: Vec<Off>,
    /// Commits, in the order noted.
    pub commits: Vec<Commit>,
    /// Words of its own, where noted.
    pub words: [Option<u64>; WORDS_MAX],
    /// Pages taken, or about to be, in the order noted.
    pub taken: Vec<Extent>,
    /// Pages to be freed, in the order noted.
    pub free: Vec<Extent>,
}

/// One of the two lists of extents: where a record keeps it.
#[derive(Debug)]
pub(crate) struct List {
    /// The word of its last further block.
    overflow: usize,
    /// The word of its first extent.
    first: usize,
    /// Where in the word of counts its count begins.
    shift: u32,
}

pub(crate) static TAKEN: List = List { overflow: 3, first: 40, shift: 8 };
pub(crate) static FREE: List = List { overflow: 4, first: 64, shift: 32 };

impl List {
    fn count(&self, counts: u64) -> u64 {
        counts >> self.shift & EXTENTS_MAX
    }
}

/// The words of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordWords<'a>(&'a [AtomicU64; RECORD_WORDS]);

impl<'a> RecordWords<'a> {
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64; RECORD_WORDS]) -> Self {
        Self(words)
    }

    /// Takes the record if it is free, for a client of this epoch. What the operation loads sequentially consistent
    /// after it is at least as new as where [`Self::kind_at_work`] has not found it.
    #[inline]
    pub(crate) fn claim(self, epoch: u32, kind: u32) -> bool {
        let state = u64::from(epoch) << 32 | 1;
        if self.0[STATE].compare_exchange(0, state, SeqCst, Relaxed).is_err() {
            return false;
        }
        self.0[COUNTS].store(0, Relaxed);
        self.set_phase(kind, Phase::Prepared);
        true
    }

    pub(crate) fn is_claimed(self) -> bool {
        self.0[STATE].load(Acquire) != 0
    }

    /// The kind of the operation that has the record; 0 where it has just claimed it, none where it is free.
    pub(crate) fn kind_at_work(self) -> Option<u32> {
        let is_claimed = self.0[STATE].load(SeqCst) != 0;
        is_claimed.then(|| high32(self.0[KIND_PHASE].load(Acquire)))
    }

    /// Frees the record. Its lock intents are cleared already.
    #[inline]
    pub(crate) fn end(self, arena: &Arena) {
        self.clear_notes(arena);
        self.0[KIND_PHASE].store(0, Relaxed);
        self.0[STATE].store(0, Release);
    }

    #[inline]
    pub(crate) fn set_phase(self, kind: u32, phase: Phase) {
        self.0[KIND_PHASE].store(u64::from(kind) << 32 | u64::from(phase as u32), Release);
    }

    /// The word that the record's operations hand on to each other.
    #[inline]
    pub(crate) fn lasting(self) -> &'a AtomicU64 {
        &self.0[LASTING]
    }

    /// The word that announces the `index`-th lock.
    #[inline]
    pub(crate) fn intent(self, index: u32) -> &'a AtomicU64 {
        at(self.0, LOCKS + index as usize)
    }

    /// Clears all lock intents, for an owner that is dead.
    pub(crate) fn forget_intents(self) {
        for index in 0..LOCKS_MAX {
            at(self.0, LOCKS + index).store(0, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn note_commit(self, commit: Commit) {
        let counts = self.counts();
        let index = counts & COMMITS_MASK;
        assert!(index < COMMITS_MAX, "an operation commits at most {COMMITS_MAX} inodes");
        let first = COMMITS + 2 * to_usize(index);
        let place = u64::from(commit.slot) << COMMIT_SLOT_SHIFT;
        at(self.0, first).store(place | commit.inode, Relaxed);
        at(self.0, first + 1).store(commit.op_seq, Relaxed);
        self.publish(counts + 1);
    }

    #[inline]
    pub(crate) fn note_word(self, index: usize, value: u64) {
        assert!(index < WORDS_MAX, "an operation notes at most {WORDS_MAX} words");
        at(self.0, WORDS + index).store(value, Relaxed);
        self.publish(self.counts() | 1 << (WORDS_SHIFT + index));
    }

    #[inline]
    pub(crate) fn note(self, arena: &Arena, list: &List, extent: Extent) -> Result<(), Full> {
        let counts = self.counts();
        let index = list.count(counts);
        if index < INLINE {
            put(self.0, list.first + 2 * to_usize(index), extent);
        } else {
            self.note_overflow(arena, list, index, extent)?;
        }
        self.publish(counts + (1 << list.shift));
        Ok(())
    }

    #[cold]
    fn note_overflow(
        self,
        arena: &Arena,
        list: &List,
        index: u64,
        extent: Extent,
    ) -> Result<(), Full> {
        let full = || Full { asked: 16, used: index * 16, limit: EXTENTS_MAX * 16 };
        if index == EXTENTS_MAX {
            return Err(full());
        }
        let head = at(self.0, list.overflow);
        let place = (index - INLINE) % OVERFLOW_EXTENTS;
        if place == 0 {
            let made = arena.alloc(OVERFLOW_CLASS)?;
            let block = overflow(arena, made.raw()).map_err(|_| full())?;
            let before = if index == INLINE { 0 } else { head.load(Relaxed) };
            block[0].store(before, Relaxed);
            block[OVERFLOW_FIRST].store(index, Relaxed);
            head.store(made.raw(), Release);
        }
        let block = overflow(arena, head.load(Relaxed)).map_err(|_| full())?;
        put(block, 1 + 2 * to_usize(place), extent);
        Ok(())
    }

    /// Forgets commits, words and extents.
    #[inline]
    pub(crate) fn clear_notes(self, arena: &Arena) {
        self.keep_of_notes(arena, 0);
    }

    /// Forgets words and extents.
    #[inline]
    pub(crate) fn clear_notes_but_commits(self, arena: &Arena) {
        self.keep_of_notes(arena, COMMITS_MASK);
    }

    /// Forgets commits.
    #[inline]
    pub(crate) fn forget_commits(self) {
        self.publish(self.counts() & !COMMITS_MASK);
    }

    /// Forgets all but the counts of a mask.
    #[inline]
    fn keep_of_notes(self, arena: &Arena, mask: u64) {
        let counts = self.counts();
        self.publish(counts & mask);
        for list in [&TAKEN, &FREE] {
            if list.count(counts) > INLINE {
                free_overflow(arena, at(self.0, list.overflow), list.count(counts));
            }
        }
    }

    /// Forgets the pages taken.
    #[inline]
    pub(crate) fn forget_taken(self, arena: &Arena) {
        let counts = self.counts();
        let count = TAKEN.count(counts);
        self.publish(counts & !(EXTENTS_MAX << TAKEN.shift));
        if count > INLINE {
            free_overflow(arena, at(self.0, TAKEN.overflow), count);
        }
    }

    /// Copies the record out; none if it is free.
    pub(crate) fn read(self, arena: &Arena, owner: Owner) -> Result<Option<Record>, BadOffset> {
        if !self.is_claimed() {
            return Ok(None);
        }
        let kind_phase = self.0[KIND_PHASE].load(Acquire);
        let counts = self.0[COUNTS].load(Acquire);
        let locks =
            (0..LOCKS_MAX).map(|lock| Off::from_raw(at(self.0, LOCKS + lock).load(Acquire)));
        let mut words = [None; WORDS_MAX];
        for (index, word) in words.iter_mut().enumerate() {
            let noted = counts >> (WORDS_SHIFT + index) & 1 != 0;
            *word = noted.then(|| at(self.0, WORDS + index).load(Relaxed));
        }
        Ok(Some(Record {
            owner,
            kind: high32(kind_phase),
            phase: Phase::of(low32(kind_phase)),
            locks: locks.filter(|lock| !lock.is_null()).collect(),
            commits: self.commits(counts & COMMITS_MASK),
            words,
            taken: self.extents(arena, &TAKEN, TAKEN.count(counts))?,
            free: self.extents(arena, &FREE, FREE.count(counts))?,
        }))
    }

    fn commits(self, count: u64) -> Vec<Commit> {
        let commit = |index: u64| {
            let first = COMMITS + 2 * to_usize(index);
            let word = at(self.0, first).load(Relaxed);
            let inode = word & ((1 << COMMIT_SLOT_SHIFT) - 1);
            let slot = (word >> COMMIT_SLOT_SHIFT) as u8;
            Commit { inode, op_seq: at(self.0, first + 1).load(Relaxed), slot }
        };
        (0..count.min(COMMITS_MAX)).map(commit).collect()
    }

    fn extents(self, arena: &Arena, list: &List, count: u64) -> Result<Vec<Extent>, BadOffset> {
        let inline = (0..count.min(INLINE)).map(|i| get(self.0, list.first + 2 * to_usize(i)));
        let mut found: Vec<_> = inline.collect();
        let mut next = if count > INLINE { at(self.0, list.overflow).load(Acquire) } else { 0 };
        let mut blocks = Vec::new();
        for _ in 0..blocks_max(count) {
            if next == 0 {
                break;
            }
            let block = overflow(arena, next)?;
            // The newest block may be there for an extent that was never noted.
            let first = block[OVERFLOW_FIRST].load(Relaxed);
            let here = count.saturating_sub(first).min(OVERFLOW_EXTENTS);
            blocks.push((0..here).map(|i| get(block, 1 + 2 * to_usize(i))));
            next = block[0].load(Acquire);
        }
        // The newest block was found first.
        found.extend(blocks.into_iter().rev().flatten());
        Ok(found)
    }

    /// Only the operation itself writes the counts, so it may read them as it likes.
    #[inline]
    fn counts(self) -> u64 {
        self.0[COUNTS].load(Relaxed)
    }

    #[inline]
    fn publish(self, counts: u64) {
        self.0[COUNTS].store(counts, Release);
    }
}

/// Gives the further blocks of a list back, the newest first; each is off the list before it goes.
#[cold]
fn free_overflow(arena: &Arena, head: &AtomicU64, count: u64) {
    for _ in 0..blocks_max(count) {
        let off = head.load(Relaxed);
        if off == 0 {
            return;
        }
        let next = overflow(arena, off).map_or(0, |block| block[0].load(Relaxed));
        head.store(next, Release);
        arena.free(OVERFLOW_CLASS, Off::from_raw(off));
    }
}

/// Further blocks that a list of `count` extents has at most.
fn blocks_max(count: u64) -> u64 {
    count.saturating_sub(INLINE).div_ceil(OVERFLOW_EXTENTS) + 1
}

fn overflow(arena: &Arena, off: u64) -> Result<&[AtomicU64; OVERFLOW_WORDS], BadOffset> {
    arena.block(Off::from_raw(off))
}

#[inline]
fn put<const N: usize>(words: &[AtomicU64; N], first: usize, extent: Extent) {
    at(words, first).store(extent.addr_raw, Relaxed);
    at(words, first + 1).store(u64::from(extent.pages), Relaxed);
}

fn get<const N: usize>(words: &[AtomicU64; N], first: usize) -> Extent {
    let addr_raw = at(words, first).load(Relaxed);
    Extent { addr_raw, pages: low32(at(words, first + 1).load(Relaxed)) }
}
