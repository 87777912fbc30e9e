//! Words in which a client's threads count, for others to read and add up.
//!
//! They lie in blocks that belong to a client slot, in a chain, as its holds do: made when they are needed,
//! kept for the slot's next client, which counts on in them. So the sum over all slots is that of all clients
//! there ever were, those that died included, and nobody has to save a dead one's counts. What the words
//! mean is the caller's; each has one writer, which needs no locked instruction.
//!
//! The words are the machine's, whoever watches stores: no other word depends on one of them, and a client
//! that dies on purpose goes on counting until its thread is told.

use std::ptr::NonNull;
use std::sync::atomic;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::BadOffset;
use crate::base::off::{Off, at};
use crate::base::word::{AtomicU64, machine_word, machine_words};
use crate::clients::client::{Client, SLOT_COUNTS, index_u32};
use crate::memory::arena::{Arena, CLIENT_WORDS, CLIENTS};
use crate::memory::segment::Segment;

/// A line before the words of a block: the next block, and how many words there are.
const HEAD_WORDS: usize = 8;
const NEXT: usize = 0;
const COUNT: usize = 1;

/// The most words of a block: 64 slots and more.
const WORDS_MAX: u64 = 1 << 16;
/// Blocks of one slot, at most: a block for each thread that counts at the same time.
const BLOCKS_MAX: usize = 1 << 16;

/// Gives a client's threads blocks of words, each to one at a time.
#[derive(Debug)]
pub struct CountBlocks {
    arena: Arena,
    slot: u32,
    /// The next block of those that earlier clients left.
    left: Mutex<Off>,
}

/// A block of words, which stays mapped as long as this does.
#[derive(Debug)]
pub struct CountBlock {
    words: NonNull<[atomic::AtomicU64]>,
    _segment: Arc<Segment>,
}

// SAFETY: atomic words of a mapping that is not tied to a thread.
unsafe impl Send for CountBlock {}
// SAFETY: as above.
unsafe impl Sync for CountBlock {}

impl AsRef<[atomic::AtomicU64]> for CountBlock {
    fn as_ref(&self) -> &[atomic::AtomicU64] {
        // SAFETY: checked when the block was taken; the segment stays mapped.
        unsafe { self.words.as_ref() }
    }
}

impl Client {
    /// What the client's threads count in; asked for once.
    #[must_use]
    pub fn count_blocks(&self) -> CountBlocks {
        let (arena, slot) = (self.arena().clone(), self.info().slot);
        let left = Mutex::new(Off::from_raw(arena.counts_word(slot).load(Acquire)));
        CountBlocks { arena, slot, left }
    }
}

impl CountBlocks {
    /// A block of so many words, which are those of an earlier thread or client, or 0. None where there
    /// is no room.
    #[must_use]
    pub fn take(&self, words: usize) -> Option<CountBlock> {
        let words = u64::try_from(words).ok().filter(|words| *words <= WORDS_MAX)?;
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..BLOCKS_MAX {
            if left.is_null() {
                return self.make(words);
            }
            let (next, block) = self.arena.count_block(*left).ok()?;
            *left = next;
            if block.len() as u64 >= words {
                return Some(self.keep(block));
            }
        }
        None
    }

    fn keep(&self, words: &[atomic::AtomicU64]) -> CountBlock {
        CountBlock { words: NonNull::from(words), _segment: Arc::clone(self.arena.segment()) }
    }

    /// Makes a block and chains it to the others; a death in between loses it. Threads that do so at the
    /// same time have the lock.
    fn make(&self, words: u64) -> Option<CountBlock> {
        let made = self.arena.take_unwatched(HEAD_WORDS as u64 + words)?;
        let all = machine_words(self.arena.slice(made, HEAD_WORDS as u64 + words).ok()?);
        let (head, counts) = all.split_first_chunk::<HEAD_WORDS>()?;
        let first = machine_word(self.arena.counts_word(self.slot));
        head[COUNT].store(words, Relaxed);
        head[NEXT].store(first.load(Acquire), Relaxed);
        first.store(made.raw(), Release);
        Some(self.keep(counts))
    }
}

impl Arena {
    /// Words that a caller's own allocation begins with, without whoever watches them, to be kept.
    ///
    /// # Errors
    /// [`BadOffset`] if they are not wholly inside.
    pub fn shared_words(&self, off: Off, words: usize) -> Result<CountBlock, BadOffset> {
        let words = NonNull::from(machine_words(self.slice(off, words as u64)?));
        Ok(CountBlock { words, _segment: Arc::clone(self.segment()) })
    }

    /// Shows all words that clients have counted in, those that have left or died included, a block at a
    /// time.
    ///
    /// # Errors
    /// [`BadOffset`]: damage.
    pub fn visit_counts(
        &self,
        visit: &mut dyn FnMut(&[atomic::AtomicU64]),
    ) -> Result<(), BadOffset> {
        for slot in 0..index_u32(CLIENTS) {
            let mut next = Off::from_raw(self.counts_word(slot).load(Acquire));
            for _ in 0..BLOCKS_MAX {
                if next.is_null() {
                    break;
                }
                let (after, words) = self.count_block(next)?;
                visit(words);
                next = after;
            }
        }
        Ok(())
    }

    /// The next block after one, and its words.
    fn count_block(&self, off: Off) -> Result<(Off, &[atomic::AtomicU64]), BadOffset> {
        let head = self.block::<HEAD_WORDS>(off)?;
        let words = head[COUNT].load(Relaxed).min(WORDS_MAX);
        let counts = self.slice(off.word(HEAD_WORDS as u64), words)?;
        Ok((Off::from_raw(head[NEXT].load(Relaxed)), machine_words(counts)))
    }

    /// The first block of words in which the clients of a slot count.
    fn counts_word(&self, slot: u32) -> &AtomicU64 {
        let slot = (slot as usize).min(CLIENTS - 1);
        at(self.client_slots(), slot * CLIENT_WORDS + SLOT_COUNTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PidInfo;

    fn sum(arena: &Arena) -> u64 {
        let mut sum = 0;
        let mut add = |words: &[atomic::AtomicU64]| {
            sum += words.iter().map(|word| word.load(Relaxed)).sum::<u64>();
        };
        arena.visit_counts(&mut add).unwrap();
        sum
    }

    #[test]
    fn counts_stay_and_their_words_are_taken_over_by_the_slots_next_client() {
        let arena = Arena::anonymous(4 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let other = arena.attach(PidInfo::current()).unwrap();
        let blocks = client.count_blocks();
        let taken: Vec<_> = (0..3).map(|_| blocks.take(100).unwrap()).collect();
        for (block, count) in taken.iter().zip(1..) {
            assert_eq!(block.as_ref().len(), 100);
            block.as_ref()[99].store(count, Relaxed);
        }
        other.count_blocks().take(100).unwrap().as_ref()[0].store(10, Relaxed);
        assert_eq!(sum(&arena), 16);
        drop((taken, blocks, client));
        let used = arena.used_bytes();
        let next = arena.attach(PidInfo::current()).unwrap();
        let blocks = next.count_blocks();
        let mut left: Vec<u64> =
            (0..3).map(|_| blocks.take(100).unwrap().as_ref()[99].load(Relaxed)).collect();
        left.sort_unstable();
        assert_eq!((left, arena.used_bytes()), (vec![1, 2, 3], used));
        assert_eq!(blocks.take(100).unwrap().as_ref()[99].load(Relaxed), 0);
        assert!(arena.used_bytes() > used);
        assert_eq!(sum(&arena), 16);
    }

    #[test]
    fn of_words_that_are_no_blocks_a_reader_is_told() {
        let arena = Arena::anonymous(4 << 20).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        arena.counts_word(client.info().slot).store(1 << 60, Relaxed);
        assert!(arena.visit_counts(&mut |_| ()).is_err());
        assert!(client.count_blocks().take(8).is_none());
    }
}
