//! Inode numbers and the chunks of inodes on media.
//!
//! An inode number is chunk x 8192 + index. A chunk is 2 MB of inodes anywhere in the pool, found
//! through the inode directory. In the arena each chunk has a bitmap of its numbers; a lane takes
//! a word of 64 free ones at a time.
//!
//! Crash argument of a new chunk: its pages are zeroed and fenced, then one 8-byte store into the
//! directory names it. Before that store the pages are free; behind it the chunk holds no inode.

use std::sync::atomic::{AtomicU64, Ordering};

use novale_arena::{Arena, Class, Off, Op, Radix};
use novale_layout::{
    CHUNK_PAGES, INODE_SIZE, INODES_PER_CHUNK, Ino, MAX_CHUNKS, PAGE, PmAddr, chunk_slot,
};
use novale_pm::{Pm, Purpose};

use super::{Allocator, Need};
use crate::error::{Error, Result};
use crate::extent::Extent;

const CHUNK_CLASS: Class = Class::new(8, 144);
const CHUNK_WORDS: usize = 144;
const ADDR: usize = 1;
const FREE: usize = 2;
const BITS: usize = 8;
const BITS_WORDS: usize = 128;

/// Words of the table's own block.
const TABLE_CLASS: Class = Class::new(9, 8);
const GROW_LOCK: u64 = 0;
const MAP: usize = 1;
const CHUNKS: usize = 2;
const USED: usize = 3;

/// The inode numbers of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inodes {
    table: Off,
    /// The root page of the inode directory on media.
    directory: PmAddr,
}

impl Inodes {
    pub(crate) fn create(arena: &Arena, directory: PmAddr) -> Result<Self> {
        Ok(Self { table: arena.alloc(TABLE_CLASS)?, directory })
    }

    fn table<'a>(&self, arena: &'a Arena) -> Result<&'a [AtomicU64; 8]> {
        Ok(arena.block::<8>(self.table)?)
    }

    pub(crate) fn chunk_count(&self, arena: &Arena) -> Result<u64> {
        Ok(self.table(arena)?[CHUNKS].load(Ordering::Acquire))
    }

    /// Inodes in use.
    pub(crate) fn used(&self, arena: &Arena) -> Result<u64> {
        Ok(self.table(arena)?[USED].load(Ordering::Relaxed))
    }

    fn chunk<'a>(
        &self,
        arena: &'a Arena,
        chunk: u64,
    ) -> Result<Option<(Off, &'a [AtomicU64; CHUNK_WORDS])>> {
        let off = Radix::new(&self.table(arena)?[MAP]).get(arena, chunk)?;
        if off == 0 {
            return Ok(None);
        }
        let off = Off::from_raw(off);
        Ok(Some((off, arena.block(off)?)))
    }

    /// Where an inode lies on media; `None` when its number belongs to no chunk.
    pub(crate) fn addr(&self, arena: &Arena, ino: Ino) -> Result<Option<PmAddr>> {
        let Some((_, words)) = self.chunk(arena, ino.chunk())? else {
            return Ok(None);
        };
        let base = PmAddr::from_raw(words[ADDR].load(Ordering::Relaxed));
        Ok(Some(base.add(ino.index() * INODE_SIZE)))
    }

    /// Enters a chunk found on media or just made. `used` tells the words of its bitmap.
    pub(crate) fn install(
        &self,
        arena: &Arena,
        chunk: u64,
        addr: PmAddr,
        used: &dyn Fn(usize) -> u64,
    ) -> Result<()> {
        let off = arena.alloc(CHUNK_CLASS)?;
        let words = arena.block::<CHUNK_WORDS>(off)?;
        words[ADDR].store(addr.raw(), Ordering::Relaxed);
        let mut free = 0;
        for (index, word) in words.iter().skip(BITS).take(BITS_WORDS).enumerate() {
            let mut bits = used(index);
            if chunk == 0 && index == 0 {
                bits |= 1; // Number 0 stands for none.
            }
            free += u64::from(bits.count_zeros());
            word.store(bits, Ordering::Relaxed);
        }
        words[FREE].store(free, Ordering::Relaxed);
        let table = self.table(arena)?;
        Radix::new(&table[MAP]).set(arena, chunk, off.raw())?;
        table[USED].fetch_add(INODES_PER_CHUNK - free, Ordering::Relaxed);
        table[CHUNKS].fetch_max(chunk + 1, Ordering::Release);
        Ok(())
    }

    /// Word `index` of a chunk's bitmap, for saving it.
    pub(crate) fn word(&self, arena: &Arena, chunk: u64, index: usize) -> Result<u64> {
        let words = self.chunk(arena, chunk)?.map(|(_, words)| words);
        let word = words.and_then(|words| words.get(BITS + index));
        Ok(word.map_or(u64::MAX, |word| word.load(Ordering::Relaxed)))
    }

    /// Takes a free inode number, from a new chunk where all are in use.
    pub(crate) fn take(
        &self,
        arena: &Arena,
        pm: &Pm,
        allocator: &Allocator,
        op: &Op<'_>,
        hint: u32,
    ) -> Result<Ino> {
        for _ in 0..=MAX_CHUNKS {
            let lane = allocator.lane(arena, op, hint)?;
            if let Some(ino) = lane.take_ino() {
                self.table(arena)?[USED].fetch_add(1, Ordering::Relaxed);
                return Ok(ino);
            }
            // Lanes start at different chunks, so that they seldom meet in one.
            if let Some((base, free)) = self.take_word(arena, op, u64::from(hint))? {
                lane.set_inos(base, free);
                continue;
            }
            drop(lane);
            let chunks = self.chunk_count(arena)?;
            match self.grow(arena, pm, allocator, op, chunks) {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    // The last free numbers may lie in other lanes.
                    self.drain(arena, allocator, op)?;
                    let lane = allocator.lane(arena, op, hint)?;
                    let word = self.take_word(arena, op, 0)?.ok_or(Error::NoSpace)?;
                    lane.set_inos(word.0, word.1);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes all free numbers of one word of some chunk.
    fn take_word(&self, arena: &Arena, op: &Op<'_>, start: u64) -> Result<Option<(u64, u64)>> {
        let chunks = self.chunk_count(arena)?;
        for step in 0..chunks {
            let number = (start + step) % chunks;
            let Some((off, words)) = self.chunk(arena, number)? else {
                continue;
            };
            if words[FREE].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let _guard = op.lock(off)?;
            for (index, word) in words.iter().skip(BITS).take(BITS_WORDS).enumerate() {
                let free = !word.load(Ordering::Relaxed);
                if free != 0 {
                    word.store(u64::MAX, Ordering::Relaxed);
                    words[FREE].fetch_sub(u64::from(free.count_ones()), Ordering::Relaxed);
                    return Ok(Some((number * INODES_PER_CHUNK + index as u64 * 64, free)));
                }
            }
        }
        Ok(None)
    }

    /// Gives a number back.
    pub(crate) fn give(&self, arena: &Arena, op: &Op<'_>, ino: Ino) -> Result<()> {
        self.table(arena)?[USED].fetch_sub(1, Ordering::Relaxed);
        self.clear(arena, op, ino.chunk(), ino.index() / 64, 1 << (ino.index() % 64))
    }

    fn clear(&self, arena: &Arena, op: &Op<'_>, chunk: u64, index: u64, bits: u64) -> Result<()> {
        let Some((off, words)) = self.chunk(arena, chunk)? else {
            return Err(Error::BadArena(format!("inode chunk {chunk} is not there")));
        };
        let _guard = op.lock(off)?;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(word) = words.get(BITS..).and_then(|words| words.get(index)) else {
            return Ok(());
        };
        word.store(word.load(Ordering::Relaxed) & !bits, Ordering::Relaxed);
        words[FREE].fetch_add(u64::from(bits.count_ones()), Ordering::Relaxed);
        Ok(())
    }

    /// Gives the numbers that lanes hold back to their chunks.
    pub(crate) fn drain(&self, arena: &Arena, allocator: &Allocator, op: &Op<'_>) -> Result<()> {
        for index in 0..allocator.lane_count() {
            let lane = allocator.lock_lane(arena, op, index)?;
            let (base, free) = lane.inos();
            if free != 0 {
                lane.set_inos(base, 0);
                self.clear(arena, op, base / INODES_PER_CHUNK, base % INODES_PER_CHUNK / 64, free)?;
            }
        }
        Ok(())
    }

    /// Makes chunk `chunk`, unless another client has made it meanwhile.
    fn grow(
        &self,
        arena: &Arena,
        pm: &Pm,
        allocator: &Allocator,
        op: &Op<'_>,
        chunk: u64,
    ) -> Result<()> {
        let _guard = op.lock(self.table.add(GROW_LOCK * 8))?;
        if self.chunk_count(arena)? > chunk {
            return Ok(());
        }
        if chunk >= MAX_CHUNKS {
            return Err(Error::NoSpace);
        }
        let (upper, lower) = chunk_slot(chunk);
        let slot = self.directory.add(upper * 8);
        let page = PmAddr::from_raw(pm.load_u64(slot)?);
        let extent = allocator.take_range(arena, op, chunk)?;
        let new_page = if page.is_null() {
            match allocator.take(arena, op, 0, 1, Need::Growth) {
                Ok(page) => Some(page),
                Err(error) => {
                    allocator.give_extent(arena, op, extent)?;
                    return Err(error);
                }
            }
        } else {
            None
        };
        write_chunk(
            pm,
            extent,
            slot,
            lower,
            new_page.map_or(page, |page| page.addr),
            new_page.is_some(),
        );
        self.install(arena, chunk, extent.addr, &|_| 0)
    }
}

/// Zeroes a chunk (and a new page of the directory), then names it in the directory.
fn write_chunk(pm: &Pm, chunk: Extent, slot: PmAddr, lower: u64, page: PmAddr, page_is_new: bool) {
    let mut pending = pm.stream_zero(chunk.addr, CHUNK_PAGES * PAGE, Purpose::Inode);
    if page_is_new {
        pending = pending.and(pm.stream_zero(page, PAGE, Purpose::Inode));
    }
    let _zeroed = pm.fence(pending);
    let word = pm.store_u64(page.add(lower * 8), chunk.addr.raw(), Purpose::Inode);
    let mut named = pm.write_back(word);
    if page_is_new {
        // The page is reached only by the word stored behind its contents.
        let _filled = pm.fence(named);
        named = pm.write_back(pm.store_u64(slot, page.raw(), Purpose::Inode));
    }
    let _named = pm.fence(named);
}
