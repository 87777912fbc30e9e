//! Inode numbers and the pages of inodes on media.
//!
//! An inode number is chunk x 8192 + index. The inode directory names a chunk's table, and the table
//! the pages that hold 16 inodes each; pages are made four at a time, wherever there is room, when a
//! word of 64 numbers is first taken. In the arena each chunk has a bitmap of its numbers and the
//! addresses of its pages.
//!
//! A lane takes a word of 64 free numbers at a time, and a number that is given back goes to the word of
//! the giver's lane if it is one of these 64, else to its chunk. Lanes begin at different places of a
//! chunk. So threads with lanes of their own write no word in common when they make and remove inodes,
//! and those of a chunk without a lock: a word of its bitmap is emptied by one exchange and filled by
//! one `and`. Numbers in use are counted by lane.
//!
//! Crash argument of new inode pages: each gets the lines of inodes that were never written, and a fence,
//! then 8-byte stores into the table name them. Before its store a page is free; after it the page holds no
//! inode, and says so: zeros in it are damage. A new table (and a new page of the directory) comes about
//! the same way, zeroed, from the bottom up.

use std::sync::atomic::{Ordering, fence};

use novale_arena::{Arena, AtomicU64, Class, Off, Op, Radix};
use novale_layout::{
    INODE_SIZE, INODES_PER_CHUNK, INODES_PER_PAGE, Ino, MAX_CHUNKS, PAGE, PmAddr, Seed, chunk_slot,
    never_written_inodes,
};
use novale_pm::{Flushed, Pm, Purpose};

use crate::base::error::{Error, Result};
use crate::base::extent::{Extents, page_at};
use crate::pool::nothing_lost;
use crate::seeded::{self, Bug};
use crate::space::{Allocator, Need, PageSource, Wanted};

/// Inode pages made at once: those of a word of 64 numbers.
pub(crate) const INODE_PAGES_AT_ONCE: u64 = 64 / INODES_PER_PAGE;

const CHUNK_CLASS: Class = Class::new(8, 144);
const CHUNK_WORDS: usize = 144;
/// Where the chunk's table lies on media.
const TABLE: usize = 1;
/// Where the addresses of the chunk's pages lie in the arena.
const PAGES: usize = 3;
const BITS: usize = 8;
const BITS_WORDS: usize = 128;
const PAGES_WORDS_LOG2: u32 = 9;
const PAGES_WORDS: u64 = 1 << PAGES_WORDS_LOG2;

/// Words of the table's own block.
const TABLE_CLASS: Class = Class::new(9, 8);
const GROW_LOCK: u64 = 0;
const MAP: usize = 1;
const CHUNKS: usize = 2;
const USED: usize = 3;
const MADE: usize = 4;
/// Where the bits of the chunks with free numbers lie: a word for 64 chunks, and after those a word
/// for 64 words.
const ROOMY: usize = 5;
const ROOMY_WORDS: u64 = 4096;
const ROOMY_GROUPS: u64 = ROOMY_WORDS / 64;
const ROOMY_CLASS: Class = Class::new(11, 4096 + 64);
const _: () = assert!(
    ROOMY_WORDS * 64 == MAX_CHUNKS && ROOMY_CLASS.words() as u64 == ROOMY_WORDS + ROOMY_GROUPS
);

/// The inode numbers of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inodes {
    table: Off,
    /// The root page of the inode directory on media.
    directory: PmAddr,
}

/// A chunk in the arena.
struct ChunkBlock<'a> {
    words: &'a [AtomicU64; CHUNK_WORDS],
    pages: &'a [AtomicU64],
}

impl ChunkBlock<'_> {
    fn word(&self, page: u64) -> Option<&AtomicU64> {
        self.pages.get(usize::try_from(page).ok()?)
    }

    /// The address of an inode page; null where it is not made.
    fn page(&self, page: u64) -> PmAddr {
        PmAddr::from_raw(self.word(page).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    fn set_page(&self, page: u64, addr: PmAddr) {
        if let Some(word) = self.word(page) {
            word.store(addr.raw(), Ordering::Release);
        }
    }
}

impl Inodes {
    pub(crate) fn create(arena: &Arena, directory: PmAddr) -> Result<Self> {
        let this = Self { table: arena.alloc(TABLE_CLASS)?, directory };
        let roomy = arena.alloc(ROOMY_CLASS)?;
        this.table(arena)?[ROOMY].store(roomy.raw(), Ordering::Relaxed);
        Ok(this)
    }

    /// The table that another client has made.
    pub(crate) fn attach(table: u64, directory: PmAddr) -> Self {
        Self { table: Off::from_raw(table), directory }
    }

    /// The root page of the inode directory on media.
    pub(crate) fn directory(&self) -> PmAddr {
        self.directory
    }

    /// Where the table is in the arena.
    pub(crate) fn place(&self) -> u64 {
        self.table.raw()
    }

    fn table<'a>(&self, arena: &'a Arena) -> Result<&'a [AtomicU64; 8]> {
        Ok(arena.block::<8>(self.table)?)
    }

    pub(crate) fn chunk_count(&self, arena: &Arena) -> Result<u64> {
        Ok(self.table(arena)?[CHUNKS].load(Ordering::Acquire))
    }

    /// Inodes in use.
    pub(crate) fn used(&self, arena: &Arena, allocator: &Allocator) -> Result<u64> {
        let used = self.table(arena)?[USED].load(Ordering::Relaxed);
        // What was given back past all lanes may be more than there was at the start, so neither part
        // says anything alone. After a death the counts may be a little off.
        let used = used.wrapping_add_signed(allocator.inos_taken(arena)?).cast_signed();
        Ok(used.max(0).cast_unsigned())
    }

    /// Inode pages made.
    pub(crate) fn pages(&self, arena: &Arena) -> Result<u64> {
        Ok(self.table(arena)?[MADE].load(Ordering::Relaxed))
    }

    fn chunk<'a>(&self, arena: &'a Arena, chunk: u64) -> Result<Option<ChunkBlock<'a>>> {
        let off = Radix::new(&self.table(arena)?[MAP]).get(arena, chunk)?;
        if off == 0 {
            return Ok(None);
        }
        let off = Off::from_raw(off);
        let words = arena.block::<CHUNK_WORDS>(off)?;
        let pages = Off::from_raw(words[PAGES].load(Ordering::Relaxed));
        Ok(Some(ChunkBlock { words, pages: arena.slice(pages, PAGES_WORDS)? }))
    }

    /// The bits of the chunks with free numbers.
    fn roomy<'a>(&self, arena: &'a Arena) -> Result<Roomy<'a>> {
        let off = Off::from_raw(self.table(arena)?[ROOMY].load(Ordering::Relaxed));
        let groups = arena.slice(off.add(ROOMY_WORDS * 8), ROOMY_GROUPS)?;
        Ok(Roomy { chunks: arena.slice(off, ROOMY_WORDS)?, groups })
    }

    /// Where an inode lies on media; `None` when there is no page for its number.
    pub(crate) fn addr(&self, arena: &Arena, ino: Ino) -> Result<Option<PmAddr>> {
        let Some(chunk) = self.chunk(arena, ino.chunk())? else { return Ok(None) };
        let page = chunk.page(ino.index() / INODES_PER_PAGE);
        let at = page.add(ino.index() % INODES_PER_PAGE * INODE_SIZE);
        Ok((!page.is_null()).then_some(at))
    }

    /// Enters a chunk found on media or just made, with its pages. `used` tells the words of its
    /// bitmap.
    pub(crate) fn install(
        &self,
        arena: &Arena,
        chunk: u64,
        media_table: PmAddr,
        pages: &[PmAddr],
        used: &dyn Fn(usize) -> u64,
    ) -> Result<()> {
        let room = self.room_for(arena, chunk)?;
        self.install_in(arena, (chunk, room), media_table, pages, used)
    }

    /// Memory for a chunk and for its pages, and its place in the map.
    fn room_for(&self, arena: &Arena, chunk: u64) -> Result<[Off; 2]> {
        Radix::new(&self.table(arena)?[MAP]).reserve(arena, chunk, 1)?;
        let off = arena.alloc(CHUNK_CLASS)?;
        let pages_off = arena.alloc_table(PAGES_WORDS_LOG2);
        let pages_off = pages_off.inspect_err(|_full| arena.free(CHUNK_CLASS, off))?;
        Ok([off, pages_off])
    }

    fn install_in(
        &self,
        arena: &Arena,
        (chunk, [off, pages_off]): (u64, [Off; 2]),
        media_table: PmAddr,
        pages: &[PmAddr],
        used: &dyn Fn(usize) -> u64,
    ) -> Result<()> {
        let words = arena.block::<CHUNK_WORDS>(off)?;
        words[TABLE].store(media_table.raw(), Ordering::Relaxed);
        words[PAGES].store(pages_off.raw(), Ordering::Relaxed);
        let mut made = 0;
        for (word, page) in arena.slice(pages_off, PAGES_WORDS)?.iter().zip(pages) {
            word.store(page.raw(), Ordering::Relaxed);
            made += u64::from(!page.is_null());
        }
        let mut free = 0;
        for (index, word) in words.iter().skip(BITS).take(BITS_WORDS).enumerate() {
            let mut bits = used(index);
            if chunk == 0 && index == 0 {
                bits |= 1; // Number 0 stands for none.
            }
            free += u64::from(bits.count_zeros());
            word.store(bits, Ordering::Relaxed);
        }
        let table = self.table(arena)?;
        Radix::new(&table[MAP]).set(arena, chunk, off.raw())?;
        table[USED].fetch_add(INODES_PER_CHUNK - free, Ordering::Relaxed);
        table[MADE].fetch_add(made, Ordering::Relaxed);
        table[CHUNKS].fetch_max(chunk + 1, Ordering::Release);
        if free > 0 {
            self.roomy(arena)?.set(chunk);
        }
        Ok(())
    }

    /// Word `index` of a chunk's bitmap, for saving it.
    pub(crate) fn word(&self, arena: &Arena, chunk: u64, index: usize) -> Result<u64> {
        let words = self.chunk(arena, chunk)?.map(|chunk| chunk.words);
        let word = words.and_then(|words| words.get(BITS + index));
        Ok(word.map_or(u64::MAX, |word| word.load(Ordering::Relaxed)))
    }

    /// Takes a free inode number of the pool with that seed; its page is made where there is none.
    pub(crate) fn take(&self, env: &PageSource<'_>, pm: &Pm, pool: Seed) -> Result<Ino> {
        match self.take_once(env, pm, pool) {
            // The last free numbers that have pages may lie in other lanes.
            Err(Error::NoSpace) => {
                self.drain(env.arena, env.allocator, env.op)?;
                self.take_once(env, pm, pool)
            }
            taken => taken,
        }
    }

    fn take_once(&self, env: &PageSource<'_>, pm: &Pm, pool: Seed) -> Result<Ino> {
        let PageSource { arena, allocator, op, hint } = *env;
        for _ in 0..=MAX_CHUNKS {
            let lane = allocator.lane(arena, op, hint)?;
            while let Some(ino) = lane.take_ino() {
                // One in a slot that has failed stays out of use.
                if !self.addr(arena, ino)?.is_some_and(|at| allocator.is_lost(arena, at)) {
                    return Ok(ino);
                }
            }
            let (index, lanes) = (u64::from(lane.index()), u64::from(allocator.lane_count()));
            drop(lane);
            // Lanes start at different chunks, and at different places of one.
            let word = index * BITS_WORDS as u64 / lanes + index;
            let Some((base, free)) = self.take_word(env, index, word)? else {
                self.grow(env, pm, self.chunk_count(arena)?)?;
                continue;
            };
            let made = self.make_pages(env, pm, pool, base);
            let lane = allocator.lane(arena, op, hint)?;
            if made.is_ok() && lane.inos().1 == 0 {
                lane.set_inos(base, free);
            } else {
                // No page for them, or another thread has filled the lane meanwhile.
                let (chunk, word) = (base / INODES_PER_CHUNK, base % INODES_PER_CHUNK / 64);
                self.clear(arena, chunk, word, free)?;
            }
            made?;
        }
        Err(Error::NoSpace)
    }

    /// Makes the pages of the word of 64 numbers that starts with `base`, where they are missing.
    /// The word's free numbers are the caller's, so nobody else makes the same pages.
    fn make_pages(&self, env: &PageSource<'_>, pm: &Pm, pool: Seed, base: u64) -> Result<()> {
        let Some(chunk) = self.chunk(env.arena, base / INODES_PER_CHUNK)? else {
            return Err(Error::BadArena(format!("inode {base} of no chunk")));
        };
        let first = base % INODES_PER_CHUNK / INODES_PER_PAGE;
        let word = first..first + INODE_PAGES_AT_ONCE;
        let missing: Vec<u64> = word.filter(|page| chunk.page(*page).is_null()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let health = pm.health();
        let start = base - base % INODES_PER_CHUNK;
        let pages = take_filled(env, pm, missing.len() as u64, &|step, at| {
            let page = usize::try_from(step).ok().and_then(|step| missing.get(step));
            let first = Ino::new(start + page.map_or(0, |page| page * INODES_PER_PAGE));
            if seeded::is_on(Bug::PagesOfZeros) {
                return pm.stream_zero(at, PAGE, Purpose::Inode);
            }
            stream_unwritten(pm, pool, first, at)
        })?;
        let table = PmAddr::from_raw(chunk.words[TABLE].load(Ordering::Relaxed));
        let mut pending = Flushed::none();
        for (step, page) in (0..).zip(&missing) {
            let at = table.add(page * 8);
            let word = pm.store_u64(at, page_at(&pages, step).raw(), Purpose::Inode);
            pending = pending.and(pm.write_back(word));
        }
        pm.fence(pending).end();
        nothing_lost(pm, health)?;
        for (step, page) in (0..).zip(&missing) {
            chunk.set_page(*page, page_at(&pages, step));
        }
        self.table(env.arena)?[MADE].fetch_add(missing.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Takes all free numbers of one word: of a chunk at or after a certain one if possible, and
    /// there of a word at or after a certain one.
    fn take_word(
        &self,
        env: &PageSource<'_>,
        start: u64,
        first: u64,
    ) -> Result<Option<(u64, u64)>> {
        let arena = env.arena;
        let (chunks, roomy) = (self.chunk_count(arena)?, self.roomy(arena)?);
        let mut from = start % chunks.max(1);
        // A chunk that is full by now loses its bit: no more turns than there are chunks, and the
        // second half of a round.
        for _ in 0..=chunks + 1 {
            let Some(number) = roomy.next(from) else {
                if from == 0 {
                    return Ok(None);
                }
                from = 0;
                continue;
            };
            let Some(ChunkBlock { words, .. }) = self.chunk(arena, number)? else {
                return Err(Error::BadArena(format!("inode chunk {number} is not there")));
            };
            // What is stored to its table would be lost, and the inodes of new pages with it.
            let table = PmAddr::from_raw(words[TABLE].load(Ordering::Relaxed));
            if env.allocator.is_lost(arena, table) {
                from = number + 1;
                continue;
            }
            let mut taken = take_free(words, first);
            if taken.is_none() {
                roomy.clear(number);
                // A client that gives one back sets the bit after it, and may have found it still set.
                fence(Ordering::SeqCst);
                taken = take_free(words, first);
                if taken.is_some() {
                    roomy.set(number);
                }
            }
            if let Some((index, free)) = taken {
                return Ok(Some((number * INODES_PER_CHUNK + index * 64, free)));
            }
        }
        Ok(None)
    }

    /// Gives a number back.
    pub(crate) fn give(&self, env: &PageSource<'_>, ino: Ino) -> Result<()> {
        let PageSource { arena, allocator, op, hint } = *env;
        match allocator.free_lane(arena, op, hint)? {
            Some(lane) if lane.give_ino(ino) => return Ok(()),
            Some(_) => {}
            // The client that settles for a dead client may not wait for its lanes. Others come here too,
            // when all lanes that they try are in use.
            None => drop(self.table(arena)?[USED].fetch_sub(1, Ordering::Relaxed)),
        }
        self.clear(arena, ino.chunk(), ino.index() / 64, 1 << (ino.index() % 64))
    }

    fn clear(&self, arena: &Arena, chunk: u64, index: u64, bits: u64) -> Result<()> {
        let Some(ChunkBlock { words, .. }) = self.chunk(arena, chunk)? else {
            return Err(Error::BadArena(format!("inode chunk {chunk} is not there")));
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(word) = words.get(BITS..).and_then(|words| words.get(index)) {
            word.fetch_and(!bits, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            self.roomy(arena)?.set(chunk);
        }
        Ok(())
    }

    /// Gives the numbers that lanes hold back to their chunks.
    pub(crate) fn drain(&self, arena: &Arena, allocator: &Allocator, op: &Op<'_>) -> Result<()> {
        for index in 0..allocator.lane_count() {
            let lane = allocator.lock_lane(arena, op, index)?;
            let (base, free) = lane.inos();
            if free != 0 {
                lane.set_inos(base, 0);
                self.clear(arena, base / INODES_PER_CHUNK, base % INODES_PER_CHUNK / 64, free)?;
            }
        }
        Ok(())
    }

    /// Makes the table of chunk `chunk`, unless another client has made it meanwhile.
    fn grow(&self, env: &PageSource<'_>, pm: &Pm, chunk: u64) -> Result<()> {
        let _guard = env.op.lock(self.table.add(GROW_LOCK * 8))?;
        if self.chunk_count(env.arena)? > chunk {
            return Ok(());
        }
        if chunk >= MAX_CHUNKS {
            return Err(Error::NoSpace);
        }
        let (upper, lower) = chunk_slot(chunk);
        let root = self.directory.add(upper * 8);
        let page = PmAddr::from_raw(pm.load_u64(root)?);
        let health = pm.health();
        if !page.is_null() && env.allocator.is_lost(env.arena, page) {
            return Err(Error::Lost(page));
        }
        // Before anything is stored: what media has that the session does not know would not be saved.
        let memory = self.room_for(env.arena, chunk)?;
        let zero = |_step, at| pm.stream_zero(at, PAGE, Purpose::Inode);
        let new =
            take_filled(env, pm, 1 + u64::from(page.is_null()), &zero).inspect_err(|_why| {
                env.arena.free(CHUNK_CLASS, memory[0]);
                env.arena.free_table(PAGES_WORDS_LOG2, memory[1]);
            })?;
        let table = page_at(&new, 0);
        let name = |at: PmAddr, page: PmAddr, pending: Flushed| {
            let word = pm.store_u64(at, page.raw(), Purpose::Inode);
            pm.fence(pm.write_back(word).and(pending)).end();
        };
        if page.is_null() {
            // The new page is reached only with the table in it.
            let page = page_at(&new, 1);
            name(page.add(lower * 8), table, Flushed::none());
            name(root, page, Flushed::none());
        } else {
            // Who named that page may have died before its fence: it is durable with the table's word.
            let named = pm.write_back_range(root, 8, Purpose::Inode);
            name(page.add(lower * 8), table, named);
        }
        nothing_lost(pm, health)?;
        self.install_in(env.arena, (chunk, memory), table, &[], &|_| 0)
    }
}

/// Takes the free numbers of the first word of a chunk's bitmap that has any, from the `first`th on and
/// round.
fn take_free(words: &[AtomicU64; CHUNK_WORDS], first: u64) -> Option<(u64, u64)> {
    (first..first + BITS_WORDS as u64).find_map(|index| {
        let index = index % BITS_WORDS as u64;
        let word = words.get(BITS + usize::try_from(index).ok()?)?;
        if word.load(Ordering::Relaxed) == u64::MAX {
            return None;
        }
        let free = !word.swap(u64::MAX, Ordering::AcqRel);
        (free != 0).then_some((index, free))
    })
}

/// Which chunks have free numbers, so that none is looked for among all chunks. One without a bit has
/// none (or has lost some with a dead client), and one with a bit may have none.
struct Roomy<'a> {
    chunks: &'a [AtomicU64],
    /// A bit for each word above; a bit of a word that is 0 by now goes when it is met.
    groups: &'a [AtomicU64],
}

/// A bit's word and the bit.
fn bit_at(words: &[AtomicU64], index: u64) -> Option<(&AtomicU64, u64)> {
    Some((words.get(usize::try_from(index / 64).ok()?)?, 1 << (index % 64)))
}

/// The first bit at or after `from` in its word.
fn next_in_word(words: &[AtomicU64], from: u64) -> Option<u64> {
    let (word, _) = bit_at(words, from)?;
    let left = word.load(Ordering::Acquire) & u64::MAX << (from % 64);
    (left != 0).then(|| from / 64 * 64 + u64::from(left.trailing_zeros()))
}

impl Roomy<'_> {
    fn set(&self, chunk: u64) {
        for (words, index) in [(self.chunks, chunk), (self.groups, chunk / 64)] {
            if let Some((word, bit)) = bit_at(words, index)
                && word.load(Ordering::Acquire) & bit == 0
            {
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
    }

    fn clear(&self, chunk: u64) {
        let Some((word, bit)) = bit_at(self.chunks, chunk) else { return };
        if word.fetch_and(!bit, Ordering::AcqRel) & !bit != 0 {
            return;
        }
        if let Some((group, bit)) = bit_at(self.groups, chunk / 64) {
            group.fetch_and(!bit, Ordering::AcqRel);
            // Set meanwhile, and perhaps before the group's bit went.
            if word.load(Ordering::Acquire) != 0 {
                group.fetch_or(bit, Ordering::AcqRel);
            }
        }
    }

    /// The first chunk with free numbers at or after `from`.
    fn next(&self, from: u64) -> Option<u64> {
        if let Some(found) = next_in_word(self.chunks, from) {
            return Some(found);
        }
        let mut group = from / 64 + 1;
        // One turn for each word of groups, and one for each that is met empty.
        for _ in 0..ROOMY_WORDS {
            if let Some(found) = next_in_word(self.groups, group) {
                match next_in_word(self.chunks, found * 64) {
                    Some(chunk) => return Some(chunk),
                    None => group = found + 1,
                }
            } else {
                group = (group / 64 + 1) * 64;
            }
            if group >= ROOMY_WORDS {
                return None;
            }
        }
        None
    }
}

/// Stores a page of inodes of which none was written, in the place of those from `first` on.
pub(crate) fn stream_unwritten(pm: &Pm, pool: Seed, first: Ino, page: PmAddr) -> Flushed {
    let seed = |index| pool.ino(Ino::new(first.get() + index));
    pm.stream(page, &never_written_inodes(seed), Purpose::Inode)
}

/// New pages, durably filled by `fill`, which gets their numbers from 0 on.
fn take_filled(
    env: &PageSource<'_>,
    pm: &Pm,
    pages: u64,
    fill: &dyn Fn(u64, PmAddr) -> Flushed,
) -> Result<Extents> {
    let PageSource { arena, allocator, op, hint } = *env;
    let health = pm.health();
    let extents = allocator.take_all(arena, op, hint, Wanted::once(pages), Need::Growth)?;
    let pending = (0..pages)
        .fold(Flushed::none(), |pending, step| pending.and(fill(step, page_at(&extents, step))));
    if seeded::is_on(Bug::PagesNamedEarly) {
        drop(pending);
    } else {
        pm.fence(pending).end();
    }
    // A slot that comes back as it was has something else there.
    if let Err(lost) = nothing_lost(pm, health) {
        allocator.give(arena, op, hint, &extents)?;
        return Err(lost);
    }
    // They are named next, on media: the client that settles for a dead owner must not give them back.
    op.forget_taken();
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use novale_pm::PmOptions;

    use super::*;
    use crate::base::exec::Serial;
    use crate::base::types::{Ctx, NewInode, Node};
    use crate::fixture::{CTX, FILE, MB, NONE, empty, open, open_refusing};
    use crate::op::call::OpKind;
    use crate::{MkfsOptions, check, mkfs};

    /// Memory was refused once the next chunk's table was named on media, which the session did not know then: what a
    /// clean close saved was not of the pool, and each further try lost a page.
    #[test]
    fn a_chunk_that_there_is_no_memory_for_is_not_on_media() {
        let left = Arc::new(AtomicU64::new(NONE));
        let pm = Pm::anonymous(&[64 * MB], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(1, 1)).unwrap();
        let fs = open_refusing(pm, &left, true);
        let create = |directory: Node, number: u64| {
            fs.create(&CTX, directory, format!("f{number}").as_bytes(), &FILE).map(|made| made.ino)
        };
        let count = || fs.inodes.chunk_count(fs.arena()).unwrap();
        (0..8100).for_each(|number| _ = create(Node::ROOT, number).unwrap());
        let new = NewInode { kind: novale_layout::FileKind::Directory, ..FILE };
        let few = Node::current(fs.create(&CTX, Node::ROOT, b"few", &new).unwrap().ino);
        let mut next = 0;
        while count() == 1 {
            let made = (0..200).any(|granted| {
                left.store(granted, Ordering::Relaxed);
                let created = create(few, next);
                left.store(NONE, Ordering::Relaxed);
                created.is_ok()
            });
            assert!(made, "file {next}");
            next += 1;
        }
        fs.close().unwrap();
        assert_eq!(check(fs.pm(), &Serial, &|_| ()).unwrap().findings, vec![]);
    }

    /// More numbers were given back while all lanes were in use than there had been when the pool was
    /// opened: the part of the count that stands beside the lanes' went below zero, and `df -i` showed
    /// 2^64 - 2 inodes in use.
    #[test]
    fn numbers_given_back_past_all_lanes_are_counted() {
        let fs = empty(2);
        let before = fs.statfs().unwrap().inodes;
        let create = |name: u8| fs.create(&CTX, Node::ROOT, &[name], &FILE).unwrap().ino;
        let inos: Vec<Ino> = (b'a'..b'k').map(create).collect();
        let others = fs.call(OpKind::Manage, &CTX);
        let lock = |lane| fs.allocator.lock_lane(fs.arena(), &others.op, lane).unwrap();
        let lanes: Vec<_> = (0..fs.allocator.lane_count()).map(lock).collect();
        for ino in inos {
            let call = fs.call(OpKind::Manage, &CTX);
            fs.inodes.give(&fs.env(&call), ino).unwrap();
        }
        drop(lanes);
        assert_eq!(fs.statfs().unwrap().inodes, before);
    }

    /// A client died between its store of the word that names a page of the directory and its fence, and the
    /// next one made a table there, and inodes: a power cut took the word, and with it all of them.
    #[test]
    fn a_page_of_the_directory_is_durable_before_another_table_is_named_in_it() {
        let fs = empty(2);
        let call = fs.call(OpKind::Manage, &CTX);
        let before = fs.pm.counters();
        fs.inodes.grow(&fs.env(&call), &fs.pm, 1).unwrap();
        // The word in the directory's root, and the table's.
        assert_eq!((fs.pm.counters() - before).write_backs(), 2);
    }

    /// A slot failed that had a chunk's table: one create failed, and the next ones were acknowledged, of inodes in
    /// pages that no table names.
    #[test]
    fn no_number_is_given_whose_page_a_lost_table_would_name() {
        numbers_where(|fs| fs.pm.set_failed(0b10));
        numbers_where(|fs| fs.allocator.lack(0b10));
    }

    /// Takes numbers where slot 1 is lost.
    fn numbers_where(is_lost: impl FnOnce(&crate::fs::Fs)) {
        let pm = Pm::anonymous(&[8 * MB; 2], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(2, 4)).unwrap();
        let fs = open(pm);
        let call = |hint| fs.call(OpKind::Manage, &Ctx { hint, ..CTX });
        let slot_of = |chunk| {
            let words = fs.inodes.chunk(fs.arena(), chunk).unwrap().unwrap().words;
            PmAddr::from_raw(words[TABLE].load(Ordering::Relaxed)).slot()
        };
        for chunk in 1..4 {
            let call = call(u32::try_from(chunk).unwrap());
            fs.inodes.grow(&fs.env(&call), &fs.pm, chunk).unwrap();
        }
        let lost: Vec<u64> = (1..4).filter(|chunk| slot_of(*chunk) == 1).collect();
        assert!(!lost.is_empty(), "all tables are in slot 0");
        is_lost(&fs);
        for hint in 0..4 {
            let call = call(hint);
            let ino = fs.inodes.take(&fs.env(&call), &fs.pm, fs.seed).unwrap();
            assert!(!lost.contains(&ino.chunk()), "{ino:?}");
            assert_eq!(fs.inodes.addr(fs.arena(), ino).unwrap().unwrap().slot(), 0);
        }
    }

    /// Chunks far apart, among 2^18: each is found from before it, also when all between lost theirs.
    #[test]
    fn the_next_chunk_with_free_numbers_is_found_among_all() {
        let words: Vec<AtomicU64> = (0..ROOMY_WORDS).map(|_| AtomicU64::new(0)).collect();
        let groups: Vec<AtomicU64> = (0..ROOMY_GROUPS).map(|_| AtomicU64::new(0)).collect();
        let roomy = Roomy { chunks: &words, groups: &groups };
        assert_eq!(roomy.next(0), None);
        let all = [0, 5, 63, 64, 4095, 4096, 100_000, MAX_CHUNKS - 1];
        for chunk in all {
            roomy.set(chunk);
        }
        for pair in all.windows(2) {
            assert_eq!(roomy.next(pair[0]), Some(pair[0]));
            assert_eq!(roomy.next(pair[0] + 1), Some(pair[1]), "behind {}", pair[0]);
        }
        assert_eq!(roomy.next(MAX_CHUNKS), None);
        for chunk in all.into_iter().take(7) {
            roomy.clear(chunk);
        }
        assert_eq!(roomy.next(0), Some(MAX_CHUNKS - 1));
        roomy.clear(MAX_CHUNKS - 1);
        assert_eq!(roomy.next(0), None);
        assert!(groups.iter().all(|group| group.load(Ordering::Relaxed) == 0));
    }
}
