//! Blocks: lock-free free lists of one class each, filled from a bump pointer.
//!
//! A free list is a Treiber stack. Its head holds the first block's number (in lines, 32 bits) and
//! a tag (32 bits) that rises with every change, so that a head seen twice is a list unchanged. A
//! free block keeps the number of the next in its last word. A process that dies between taking a
//! block off the list (one compare-and-swap) and making use of it leaks that block, nothing more.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::error::Full;
use crate::base::off::{LINE, Off, at, high32, low32};
use crate::base::word::{AtomicU64, machine_word};
use crate::memory::arena::Arena;
use crate::memory::segment::FIXED;

/// Words of a line: block sizes are multiples of it.
const LINE_WORDS: u32 = 8;

/// Classes below are the caller's.
const CALLER_CLASSES: u8 = 128;

/// Classes from here on, one each power of two: [`Arena::alloc_table`].
const TABLE_CLASSES: u8 = 192;

/// The greatest table: 2^34 words, 128 GB.
const TABLE_LOG2_MAX: u32 = 34;

/// Classes whose free blocks go to others where memory is short, the smallest first: one file's index or one directory's
/// names may have taken all of it. So a late reader of a map may find any words in them: it checks each, offset or
/// value, before it follows it, and believes nothing before its counter says so. A map whose readers could not keeps
/// its nodes ([`Radix::vacate`]).
///
/// [`Radix::vacate`]: crate::Radix::vacate
const LENDERS: [Class; 4] = [BUCKET, INDEX_NODE, INDEX_PAIRS, INDEX_PARENT];
/// Nodes of radix maps; those above leaves; leaves of maps of pairs.
pub(crate) const INDEX_NODE: Class = Class::internal(131, 72);
pub(crate) const INDEX_PARENT: Class = Class::internal(134, 200);
pub(crate) const INDEX_PAIRS: Class = Class::internal(135, 136);
/// Buckets of name tables.
pub(crate) const BUCKET: Class = Class::internal(132, 64);

/// How often a contended list head is tried before going round it: to fresh memory when taking,
/// to a leaked block when giving back. Each failure means that another thread got through.
const TRIES: u32 = 1 << 16;

/// A kind of block: all blocks of a class have one size, and are reused for that class only; but those of indexes and
/// name tables for any other where memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    id: u8,
    words: u32,
}

impl Class {
    /// The caller's class `id` (0 to 127), of blocks of `words` words, rounded up to whole lines.
    ///
    /// # Panics
    /// In constant evaluation, for an id above 127 or no words at all.
    #[must_use]
    pub const fn new(id: u8, words: u32) -> Self {
        assert!(id < CALLER_CLASSES, "class ids of callers are below 128");
        Self::internal(id, words)
    }

    pub(crate) const fn internal(id: u8, words: u32) -> Self {
        assert!(words > 0 && words <= u32::MAX - LINE_WORDS, "a block has words");
        Self { id, words: words.next_multiple_of(LINE_WORDS) }
    }

    /// Words of a block.
    #[must_use]
    pub const fn words(self) -> u32 {
        self.words
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.words as u64 * 8
    }
}

impl Arena {
    /// Takes a block whose words are all 0.
    ///
    /// # Errors
    /// [`Full`] if the segment or its file system has no more room.
    #[inline]
    pub fn alloc(&self, class: Class) -> Result<Off, Full> {
        self.take(class.id, u64::from(class.words), true, false)
    }

    /// The same for what one user may have any number of: the last eighth of fresh memory is kept from it.
    ///
    /// # Errors
    /// [`Full`] if there is no more.
    pub(crate) fn alloc_sparing(&self, class: Class) -> Result<Off, Full> {
        self.take(class.id, u64::from(class.words), true, true)
    }

    /// Takes a block as its last user left it (a fresh one: all 0), but for its last word, which is
    /// undefined. For objects whose counters must go on rising when they are reused.
    ///
    /// # Errors
    /// [`Full`] if the segment or its file system has no more room.
    #[inline]
    pub fn alloc_uncleared(&self, class: Class) -> Result<Off, Full> {
        self.take(class.id, u64::from(class.words), false, false)
    }

    /// Gives a block back, for other blocks of its class. A client that still reads it sees its words
    /// change, and must notice by a sequence counter. Null is ignored.
    #[inline]
    pub fn free(&self, class: Class, off: Off) {
        self.give(class.id, u64::from(class.words), off);
    }

    /// Takes an array of 2^`log2_words` words (at least 8), all 0.
    ///
    /// # Errors
    /// [`Full`] if the segment or its file system has no more room.
    pub fn alloc_table(&self, log2_words: u32) -> Result<Off, Full> {
        match table_class(log2_words) {
            Some((id, words)) => self.take(id, words, true, false),
            None => Err(self.full(u64::MAX)),
        }
    }

    /// Takes an array of so many words, all 0, that is never given back: it takes what is asked for, where a table takes
    /// up to twice as much.
    ///
    /// # Errors
    /// [`Full`] if the segment or its file system has no more room.
    pub fn alloc_for_good(&self, words: u64) -> Result<Off, Full> {
        if !self.grants() {
            return Err(self.full(words.saturating_mul(8)));
        }
        self.bump(words)
    }

    /// Gives back an array that `alloc_table` gave for the same size.
    pub fn free_table(&self, log2_words: u32, off: Off) {
        if let Some((id, words)) = table_class(log2_words) {
            self.give(id, words, off);
        }
    }

    /// Bytes that were ever handed out, the header's included; freed blocks count, as they stay
    /// with their class.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.bump_word().load(Relaxed)
    }

    #[inline]
    fn take(&self, id: u8, words: u64, clear: bool, spares: bool) -> Result<Off, Full> {
        if !self.grants() {
            self.note_refusal();
            return Err(self.full(words.saturating_mul(8)));
        }
        let (head, size, free) = self.class_line(id);
        if !is_size(size, words) {
            return self.bump(words);
        }
        let Some((off, block)) = self.pop(head, words) else {
            return self.take_beside(id, words, spares);
        };
        free.fetch_sub(1, Relaxed);
        if clear {
            for word in block {
                word.store(0, Relaxed);
            }
        }
        Ok(off)
    }

    #[inline]
    fn give(&self, id: u8, words: u64, off: Off) {
        if off.is_null() {
            return;
        }
        let (head, size, free) = self.class_line(id);
        let block = self.slice(off, words);
        debug_assert!(block.is_ok(), "freed what was never allocated: {block:?}");
        // A block of another size, or outside, is left alone: it is lost, but nobody gets it.
        let Ok(Some(link)) = block.map(<[AtomicU64]>::last) else {
            return;
        };
        if is_size(size, words) && push(head, link, off) && free.fetch_add(1, Relaxed) == 0 {
            // All operations read this line: it is written once for each class.
            let (word, bit) = (at(self.bump_line(), 1 + usize::from(id) / 64), 1 << (id % 64));
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    }

    /// Bytes of the blocks that were given back and not taken again. About: a process that died may
    /// have left a count out by one block.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let given = self.bump_line().iter().skip(1).take(4).zip((0..=u8::MAX).step_by(64));
        given.fold(0, |sum, (word, first)| {
            let (mut sum, mut left) = (sum, word.load(Relaxed));
            // At most 64 turns: each takes a bit away.
            while left != 0 {
                let (_, size, free) =
                    self.class_line(first + u8::try_from(left.trailing_zeros()).unwrap_or(0));
                // Taken and counted later, a count may be below 0 for a moment.
                let blocks = free.load(Relaxed).cast_signed().max(0).cast_unsigned();
                sum += blocks * size.load(Relaxed) * 8;
                left &= left - 1;
            }
            sum
        })
    }

    /// The head of a class' list, the size of its blocks in words, and how many are on the list.
    #[inline]
    fn class_line(&self, id: u8) -> (&AtomicU64, &AtomicU64, &AtomicU64) {
        let heads = self.class_heads();
        let line = usize::from(id) * 8;
        (at(heads, line), at(heads, line + 1), at(heads, line + 2))
    }

    /// Takes the first block of a list; none if it is empty, or damaged.
    #[inline]
    fn pop(&self, head: &AtomicU64, words: u64) -> Option<(Off, &[AtomicU64])> {
        let mut now = head.load(Acquire);
        for _ in 0..TRIES {
            if low32(now) == 0 {
                return None;
            }
            let off = Off::from_raw(u64::from(low32(now)) * LINE);
            let block = self.slice(off, words).ok()?;
            // If the block was taken meanwhile this is any number, and the tag has moved on.
            let next = low32(block.last()?.load(Relaxed));
            match head.compare_exchange_weak(now, retagged(now, next), Acquire, Acquire) {
                Ok(_) => return Some((off, block)),
                Err(seen) => now = seen,
            }
        }
        None
    }

    /// Takes a block of a class that has none, all 0: fresh memory, or what other classes have. The last fresh memory is
    /// for what no free block is large enough for, and not for who `spares` it.
    #[cold]
    fn take_beside(&self, id: u8, words: u64, spares: bool) -> Result<Off, Full> {
        let is_short = self.is_short();
        if is_short && let Some(lent) = self.borrow(id, words) {
            return Ok(lent);
        }
        let fresh = if is_short && spares { Err(self.full(words * 8)) } else { self.bump(words) };
        fresh
            .or_else(|full| self.borrow(id, words).ok_or(full))
            .inspect_err(|_full| self.note_refusal())
    }

    /// Takes a part of a free block of another class for good, which is all 0 then; the rest of it is free in the new
    /// class, as far as it goes.
    fn borrow(&self, id: u8, words: u64) -> Option<Off> {
        let fits = |class: &&Class| class.id != id && u64::from(class.words) >= words;
        let (lender, (off, block)) = LENDERS.iter().filter(fits).find_map(|class| {
            let (head, _, free) = self.class_line(class.id);
            let found = self.pop(head, u64::from(class.words))?;
            free.fetch_sub(1, Relaxed);
            Some((class, found))
        })?;
        for word in block {
            word.store(0, Relaxed);
        }
        let mut rest = words;
        while rest + words <= u64::from(lender.words) {
            self.give(id, words, Off::from_raw(off.raw() + rest * 8));
            rest += words;
        }
        if rest + u64::from(BUCKET.words) <= u64::from(lender.words) {
            self.free(BUCKET, Off::from_raw(off.raw() + rest * 8));
        }
        Some(off)
    }

    /// Takes fresh memory, which is all 0.
    #[cold]
    fn bump(&self, words: u64) -> Result<Off, Full> {
        let bump = self.bump_word();
        self.raise_bump(words, |now, end| bump.compare_exchange_weak(now, end, Relaxed, Relaxed))
    }

    /// The same for what nobody gives back, without asking whether it is granted, or telling who watches
    /// stores.
    pub(crate) fn take_unwatched(&self, words: u64) -> Option<Off> {
        let bump = machine_word(self.bump_word());
        let raise = |now, end| bump.compare_exchange_weak(now, end, Relaxed, Relaxed);
        self.raise_bump(words, raise).ok()
    }

    fn raise_bump(
        &self,
        words: u64,
        exchange: impl Fn(u64, u64) -> Result<u64, u64>,
    ) -> Result<Off, Full> {
        let bytes = words.saturating_mul(8);
        let mut now = self.bump_word().load(Relaxed);
        for _ in 0..TRIES {
            // Rounded and bounded in case that somebody damaged the word.
            let start = now.max(FIXED).next_multiple_of(LINE);
            let end = start.checked_add(bytes).ok_or_else(|| self.full(bytes))?;
            self.segment().ensure(end).map_err(|_| self.full(bytes))?;
            match exchange(now, end) {
                Ok(_) => return Ok(Off::from_raw(start)),
                Err(seen) => now = seen,
            }
        }
        Err(self.full(bytes))
    }

    fn full(&self, asked: u64) -> Full {
        Full { asked, used: self.used_bytes(), limit: self.max_bytes() }
    }
}

/// Puts a block at the head of a list; says whether it is there.
fn push(head: &AtomicU64, link: &AtomicU64, off: Off) -> bool {
    let index = low32(off.raw() / LINE);
    let mut now = head.load(Relaxed);
    for _ in 0..TRIES {
        link.store(u64::from(low32(now)), Relaxed);
        match head.compare_exchange_weak(now, retagged(now, index), Release, Relaxed) {
            Ok(_) => return true,
            Err(seen) => now = seen,
        }
    }
    false
}

/// The head that follows `old`, pointing to `index`.
fn retagged(old: u64, index: u32) -> u64 {
    u64::from(high32(old).wrapping_add(1)) << 32 | u64::from(index)
}

/// True if the class' blocks have this size; its first user decides. Two sizes under one class id
/// are a mistake of the caller: such blocks are never put on the list.
#[inline]
fn is_size(size: &AtomicU64, words: u64) -> bool {
    let mut known = size.load(Relaxed);
    if known == 0 {
        known = size.compare_exchange(0, words, Relaxed, Relaxed).map_or_else(|k| k, |_| words);
    }
    debug_assert_eq!(known, words, "one class id, two block sizes (in words)");
    known == words
}

fn table_class(log2_words: u32) -> Option<(u8, u64)> {
    let log2 = log2_words.max(3);
    let id = TABLE_CLASSES + u8::try_from(log2).ok()?.min(63);
    (log2 <= TABLE_LOG2_MAX).then(|| (id, 1_u64 << log2))
}
