//! The write buffer: newer bytes of files, in blocks of the arena (`HiNFS`).
//!
//! A file's view has a map from pages to blocks. A block has a bit for each line that it has: those lines
//! are newer than the pool's, and whole. Size and times that the writes gave the file are words of the
//! view beside those of its commit. All of it counts while the view's bit [`BUFFERED`] is set, and changes
//! under the inode's lock, with its counter odd where readers could see a part.
//!
//! A write is put into blocks that nothing leads to, one for each page, chained. One word of the view,
//! `PENDING`, then names the first of them: from here on the write has happened for all clients.
//! [`View::apply_pending`] carries it out, by steps that can be repeated: the client that settles for one
//! that died in it does so from the start. So a death leaves a buffered write whole or not at all.
//!
//! Deaths lose blocks at most: those of a write that its client had not noted, or was giving back.

use std::ops::Range;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Class, Off, Radix, copy_words};
use novale_layout::{LINE, PAGE};
use novale_policy::BufferRules;

use crate::base::error::{Error, Result};
use crate::base::lines::line_runs;
use crate::inode::benefit::Ghost;
use crate::inode::view::View;
use crate::inode::words::BUFFERED;
use crate::seeded::{self, Bug};

/// Words of a block before its bytes.
const HEADER_WORDS: u64 = 8;
const BLOCK_WORDS: u64 = HEADER_WORDS + PAGE / 8;
/// A block: a header, and the bytes of a page.
const BLOCK: Class = Class::new(17, 8 + 512);
pub(crate) const BLOCK_BYTES: u64 = BLOCK.bytes();
const LINE_WORDS: u64 = LINE / 8;

// Words of a block's header.
/// A bit for each line that it has.
const MASK: usize = 0;
/// The page of the file.
const FILE_PAGE: usize = 1;
/// The next block of the same write.
const NEXT: usize = 2;
/// The block in whose place it came.
const REPLACED: usize = 3;
// Of the first block of a write: the words of the view after it.
const SIZE_AFTER: usize = 4;
const TIME_AFTER: usize = 5;
const COUNTS_AFTER: usize = 6;

// Words of the view's last line, after the map from pages to blocks.
const SIZE: usize = 1;
/// When it was last written.
const TIME: usize = 2;
/// The first block of a write that is being applied.
const PENDING: usize = 3;
/// Blocks in the low half; pages of the pool that are reserved for them above.
const COUNTS: usize = 4;
/// When the oldest of what is buffered was written.
const SINCE: usize = 7;

/// Blocks of a write at most: 16 MB.
pub(crate) const WRITE_BLOCKS_MAX: usize = 4096;

/// Words of the table that all clients share.
const BLOCKS: usize = 0;
const BLOCKS_MAX: usize = 1;
/// Rises, and wakes who writes back, when few blocks are left.
const LOW: usize = 2;
// On a line of their own, words that never change: the rules, two words, and where the ghost buffer is.
const RULES: usize = 8;
const GHOST: usize = RULES + BufferRules::WORDS;
const TABLE_WORDS: usize = 16;

/// What the buffers of all files share: how many blocks there are, and may be, and by which rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteBuffer {
    table: Off,
    pub(crate) rules: BufferRules,
    pub(crate) ghost: Ghost,
}

impl WriteBuffer {
    /// A buffer of so many blocks at most; a ghost buffer where it is to be used.
    pub(crate) fn create(
        arena: &Arena,
        blocks_max: u64,
        rules: BufferRules,
        is_used: bool,
    ) -> Result<Self> {
        let table = arena.alloc_table(TABLE_WORDS.ilog2())?;
        // A hint alone: where there is no room for it, there is none.
        let ghost = is_used.then(|| Ghost::create(arena, blocks_max).ok()).flatten();
        let ghost = ghost.unwrap_or(Ghost::NONE);
        let buffer = Self { table, rules, ghost };
        let words = buffer.words(arena)?;
        words[BLOCKS_MAX].store(blocks_max, Ordering::Relaxed);
        for (word, value) in
            words[RULES..].iter().zip(rules.words().into_iter().chain(ghost.words()))
        {
            word.store(value, Ordering::Relaxed);
        }
        Ok(buffer)
    }

    /// The one that another client has made, whose rules hold.
    pub(crate) fn attach(arena: &Arena, table: u64) -> Result<Self> {
        let table = Off::from_raw(table);
        let words: &[AtomicU64; TABLE_WORDS] = arena.block(table)?;
        let two = |at: usize| [load(words, at), load(words, at + 1)];
        let rules = BufferRules::of_words(two(RULES));
        Ok(Self { table, rules, ghost: Ghost::of_words(two(GHOST)) })
    }

    /// Where the table is in the arena.
    pub(crate) fn place(self) -> u64 {
        self.table.raw()
    }

    fn words(self, arena: &Arena) -> Result<&[AtomicU64; TABLE_WORDS]> {
        Ok(arena.block(self.table)?)
    }

    /// Blocks in use, and how many there may be.
    pub(crate) fn usage(self, arena: &Arena) -> Result<(u64, u64)> {
        let words = self.words(arena)?;
        // A death may have left a count below 0.
        let blocks = load(words, BLOCKS).cast_signed().max(0).cast_unsigned();
        Ok((blocks, load(words, BLOCKS_MAX)))
    }

    /// The word that rises when few blocks are left.
    pub(crate) fn low_word(self, arena: &Arena) -> Result<&AtomicU64> {
        Ok(&self.words(arena)?[LOW])
    }

    /// Whether so many further blocks may be taken.
    pub(crate) fn has_room(self, arena: &Arena, more: u64) -> Result<bool> {
        let (blocks, blocks_max) = self.usage(arena)?;
        Ok(blocks + more <= blocks_max)
    }

    /// A new block for a page of a file, which has no lines yet.
    pub(crate) fn take(self, arena: &Arena, page: u64) -> Result<Block<'_>> {
        let off = arena.alloc_uncleared(BLOCK)?;
        self.words(arena)?[BLOCKS].fetch_add(1, Ordering::Relaxed);
        let block = Block::at(arena, off)?;
        block.set(MASK, 0);
        block.set(FILE_PAGE, page);
        block.set(NEXT, 0);
        block.set(REPLACED, 0);
        Ok(block)
    }

    /// The block at that place.
    pub(crate) fn block(arena: &Arena, off: Off) -> Result<Block<'_>> {
        Block::at(arena, off)
    }

    /// Gives a block back, which nothing leads to.
    pub(crate) fn give(self, arena: &Arena, off: Off) -> Result<()> {
        arena.free(BLOCK, off);
        self.words(arena)?[BLOCKS].fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back a chain of blocks that nothing leads to.
    pub(crate) fn give_chain(self, arena: &Arena, first: Off) -> Result<()> {
        for off in chain(arena, first)? {
            self.give(arena, off)?;
        }
        Ok(())
    }
}

fn load(words: &[AtomicU64], index: usize) -> u64 {
    words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// The blocks of a write, from its first one on.
fn chain(arena: &Arena, first: Off) -> Result<Vec<Off>> {
    let mut blocks = Vec::new();
    let mut at = first;
    while !at.is_null() {
        if blocks.len() == WRITE_BLOCKS_MAX + 1 {
            return Err(Error::BadArena(format!("the blocks from {first} on have no end")));
        }
        blocks.push(at);
        at = Off::from_raw(Block::at(arena, at)?.get(NEXT));
    }
    Ok(blocks)
}

/// A block of the buffer.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    arena: &'a Arena,
    off: Off,
    words: &'a [AtomicU64],
}

impl std::fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block").field("page", &self.page()).field("mask", &self.mask()).finish()
    }
}

impl<'a> Block<'a> {
    fn at(arena: &'a Arena, off: Off) -> Result<Self> {
        Ok(Self { arena, off, words: arena.slice(off, BLOCK_WORDS)? })
    }

    fn get(&self, index: usize) -> u64 {
        load(self.words, index)
    }

    fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn off(&self) -> Off {
        self.off
    }

    /// The page of the file that it is of.
    pub(crate) fn page(&self) -> u64 {
        self.get(FILE_PAGE)
    }

    /// A bit for each line that it has.
    pub(crate) fn mask(&self) -> u64 {
        self.get(MASK)
    }

    pub(crate) fn add_lines(&self, mask: u64) {
        self.set(MASK, self.get(MASK) | mask);
    }

    /// The block after it of the same write.
    pub(crate) fn set_next(&self, next: Off) {
        self.set(NEXT, next.raw());
    }

    /// Stores bytes, from byte `from` of the page on.
    pub(crate) fn put(&self, from: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.arena.put_bytes(self.off.add(HEADER_WORDS * 8), byte(from), bytes)?)
    }

    /// Copies bytes out, from byte `from` of the page on.
    pub(crate) fn copy_out(&self, from: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.arena.get_bytes(self.off.add(HEADER_WORDS * 8), byte(from), into)?)
    }

    /// Takes over all lines that another block has.
    fn take_lines(&self, other: &Block<'_>) {
        let mask = other.mask();
        for run in line_runs(mask, 0..PAGE).filter(|run| run.in_partner) {
            let words = HEADER_WORDS + run.bytes.start / LINE * LINE_WORDS
                ..HEADER_WORDS + run.bytes.end / LINE * LINE_WORDS;
            let words = byte(words.start)..byte(words.end);
            let [from, to] = [other.words, self.words].map(|all| all.get(words.clone()));
            copy_words(from.unwrap_or_default(), to.unwrap_or_default());
        }
        self.add_lines(mask);
    }
}

/// A place in a page.
fn byte(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// What the words of a view are after a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AfterWrite {
    pub(crate) size: u64,
    pub(crate) now_ns: i64,
    pub(crate) blocks: u64,
    pub(crate) reserved: u64,
}

impl<'a> View<'a> {
    fn buffer_word(&self, index: usize) -> u64 {
        load(self.buffer_words(), index)
    }

    fn set_buffer_word(&self, index: usize, value: u64) {
        if let Some(word) = self.buffer_words().get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Whether the file has bytes in the buffer.
    #[inline]
    pub(crate) fn is_buffered(&self) -> bool {
        self.kind_word().load(Ordering::Relaxed) & BUFFERED != 0
    }

    /// Whether the pool is to get bytes from the buffer: those of a file without a name go with it.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_buffered() && self.nlink() > 0
    }

    fn buffer(&self) -> Radix<'a> {
        let [index, ..] = self.buffer_words();
        Radix::new(index)
    }

    /// The length of the file as its readers see it.
    #[inline]
    pub(crate) fn seen_size(&self) -> u64 {
        if self.is_buffered() { self.buffer_word(SIZE) } else { self.size() }
    }

    /// Times of modification and of change as readers see them.
    #[inline]
    pub(crate) fn seen_times(&self) -> (i64, i64) {
        if self.is_buffered() {
            let written = self.buffer_word(TIME).cast_signed();
            (written, self.ctime_ns().max(written))
        } else {
            (self.mtime_ns(), self.ctime_ns())
        }
    }

    /// How many blocks it has, and the pages of the pool that are reserved for them.
    pub(crate) fn buffer_counts(&self) -> (u64, u64) {
        if self.is_buffered() {
            let counts = self.buffer_word(COUNTS);
            (counts & u64::from(u32::MAX), counts >> 32)
        } else {
            (0, 0)
        }
    }

    /// When the oldest of what is buffered was written, and the newest.
    pub(crate) fn buffer_times(&self) -> (i64, i64) {
        (self.buffer_word(SINCE).cast_signed(), self.buffer_word(TIME).cast_signed())
    }

    /// The block that the buffer has of a page.
    pub(crate) fn block(&self, arena: &'a Arena, page: u64) -> Result<Option<Block<'a>>> {
        match self.buffer().get(arena, page)? {
            0 => Ok(None),
            off => Block::at(arena, Off::from_raw(off)).map(Some),
        }
    }

    /// The first block of a page from `from` on.
    pub(crate) fn next_block(&self, arena: &'a Arena, from: u64) -> Result<Option<Block<'a>>> {
        let next = self.buffer().next(arena, from)?;
        next.map(|(_, off)| Block::at(arena, Off::from_raw(off))).transpose()
    }

    /// How many lines of the file the buffer has.
    pub(crate) fn buffered_lines(&self, arena: &'a Arena) -> Result<u64> {
        let mut lines = 0;
        let mut next = self.next_block(arena, 0)?;
        while let Some(block) = next {
            lines += u64::from(block.mask().count_ones());
            next = self.next_block(arena, block.page() + 1)?;
        }
        Ok(lines)
    }

    /// Room in the map for the blocks of a write.
    pub(crate) fn reserve_blocks(&self, arena: &Arena, pages: Range<u64>) -> Result<()> {
        Ok(self.buffer().reserve(arena, pages.start, pages.end - pages.start)?)
    }

    /// Puts the lines that the buffer has over bytes of the file.
    pub(crate) fn lay_buffered(
        &self,
        arena: &'a Arena,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let mut next = self.buffer().next(arena, offset / PAGE)?;
        while let Some((page, off)) = next.filter(|(page, _)| page * PAGE < end) {
            let block = Block::at(arena, Off::from_raw(off))?;
            let start = page * PAGE;
            let inside = offset.max(start) - start..end.min(start + PAGE) - start;
            for run in line_runs(block.mask(), inside).filter(|run| run.in_partner) {
                let [from, to] =
                    [run.bytes.start, run.bytes.end].map(|at| byte(start + at - offset));
                block.copy_out(run.bytes.start, bytes.get_mut(from..to).unwrap_or_default())?;
            }
            next = self.buffer().next(arena, page + 1)?;
        }
        Ok(())
    }

    /// The write that is put into these blocks happens; for all of it there is room.
    pub(crate) fn put_write(
        &self,
        arena: &'a Arena,
        buffer: WriteBuffer,
        blocks: &[Off],
        after: AfterWrite,
        happened: impl FnOnce(),
    ) -> Result<()> {
        let Some(first) = blocks.first() else { return Ok(()) };
        let block = Block::at(arena, *first)?;
        block.set(SIZE_AFTER, after.size);
        block.set(TIME_AFTER, after.now_ns.cast_unsigned());
        block.set(COUNTS_AFTER, after.reserved << 32 | after.blocks);
        let [_, _, _, pending, ..] = self.buffer_words();
        if seeded::is_on(Bug::BufferedInPart) {
            self.apply(arena, *first)?;
        }
        pending.store(first.raw(), Ordering::Release);
        happened();
        self.apply_pending(arena, buffer)
    }

    /// The first block of the write that is being applied; null where there is none.
    pub(crate) fn pending_write(&self) -> Off {
        Off::from_raw(self.buffer_word(PENDING))
    }

    /// Carries out the write that has happened, if there is one: again, where its client died in it.
    pub(crate) fn apply_pending(&self, arena: &'a Arena, buffer: WriteBuffer) -> Result<()> {
        let first = self.pending_write();
        if first.is_null() {
            return Ok(());
        }
        self.apply(arena, first)?;
        let blocks = chain(arena, first)?;
        for off in &blocks {
            let block = Block::at(arena, *off)?;
            let replaced = Off::from_raw(block.get(REPLACED));
            if !replaced.is_null() {
                block.set(REPLACED, 0);
                buffer.give(arena, replaced)?;
            }
        }
        // Its own blocks stay as long as it may be applied again.
        self.forget_pending();
        for off in blocks {
            if self.buffer().get(arena, Block::at(arena, off)?.page())? != off.raw() {
                buffer.give(arena, off)?;
            }
        }
        Ok(())
    }

    /// No write is to be applied any more.
    pub(crate) fn forget_pending(&self) {
        self.set_buffer_word(PENDING, 0);
    }

    /// Applies the write whose first block is given.
    fn apply(&self, arena: &'a Arena, first: Off) -> Result<()> {
        let block = Block::at(arena, first)?;
        let [size, time, counts] =
            [SIZE_AFTER, TIME_AFTER, COUNTS_AFTER].map(|index| block.get(index));
        self.publish(|| {
            for off in chain(arena, first)? {
                self.apply_block(arena, off)?;
            }
            self.set_buffer_word(SIZE, size);
            self.set_buffer_word(TIME, time);
            self.set_buffer_word(COUNTS, counts);
            if !self.is_buffered() {
                self.set_buffer_word(SINCE, time);
                self.kind_word().fetch_or(BUFFERED, Ordering::Release);
            }
            Ok(())
        })
    }

    fn apply_block(&self, arena: &Arena, off: Off) -> Result<()> {
        let block = Block::at(arena, off)?;
        let there = Off::from_raw(self.buffer().get(arena, block.page())?);
        if there == off {
            return Ok(());
        }
        if !there.is_null() && block.mask() != u64::MAX {
            Block::at(arena, there)?.take_lines(&block);
            return Ok(());
        }
        block.set(REPLACED, there.raw());
        self.buffer().set(arena, block.page(), off.raw())?;
        Ok(())
    }

    /// The file has nothing in the buffer from here on: what it had is in the pool, by a commit that is
    /// durable, or is nobody's any more. With the counter odd.
    pub(crate) fn set_unbuffered(&self) {
        self.kind_word().fetch_and(!BUFFERED, Ordering::Release);
    }

    /// Takes over how many pages are reserved for the blocks of a file that has nothing in the buffer any more.
    pub(crate) fn take_reserved(&self) -> u64 {
        let reserved = self.buffer_word(COUNTS) >> 32;
        self.set_buffer_word(COUNTS, 0);
        reserved
    }

    /// Gives those blocks back.
    pub(crate) fn give_blocks(&self, arena: &Arena, buffer: WriteBuffer) -> Result<()> {
        let mut next = self.buffer().next(arena, 0)?;
        while let Some((page, off)) = next {
            self.buffer().vacate(arena, page)?;
            buffer.give(arena, Off::from_raw(off))?;
            next = self.buffer().next(arena, page + 1)?;
        }
        Ok(self.buffer().clear(arena)?)
    }

    /// Whether blocks are left of what the file had in the buffer, by a client that died.
    pub(crate) fn has_old_blocks(&self) -> bool {
        !self.is_buffered() && !self.buffer().is_empty()
    }
}
