//! A lane: what the papers keep per CPU. It owns an extent of free pages, a batch of freed ones, a
//! word of free inode numbers and the two records of its journal. Any client borrows any lane by
//! its lock; a lane whose owner died is consistent, because each change of it is one store.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use novale_arena::{Arena, AtomicU64, LockGuard, Off, Op};
use novale_layout::{Ino, PAGE, PmAddr};

use crate::base::error::Result;
use crate::base::extent::Extent;
use crate::space::BATCH;
use crate::space::failed::has_slot;

/// Words of a lane in the arena.
pub(crate) const LANE_WORDS: usize = 128;
/// Bytes of a lane in the arena.
pub(crate) const LANE_BYTES: u64 = 1024;
const _: () = assert!(LANE_WORDS * 8 == 1024);
const EXTENT: usize = 1;
const EXTENT_PAGES: usize = 2;
const CURSOR: usize = 3;
const TURN: usize = 4;
const SEQ: usize = 5;
const PAGE_ADDR: usize = 7;
const INO_BASE: usize = 8;
const INO_FREE: usize = 9;
const BATCH_LEN: usize = 10;
/// Inode numbers that were taken through the lane, less those that were given back through it; the
/// sum over all lanes is never below what there was when the pool was opened.
const INOS_TAKEN: usize = 11;
/// Addresses of the own lines that the last record of the lane covers, 0 where fewer.
const OWN_LINES: usize = 16;
const OWN_LINES_MAX: usize = 16;
const BATCH_AT: usize = 64;
/// Low bits of a batch word: pages less one.
const COUNT_MASK: u64 = PAGE - 1;

/// A locked lane.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    index: u16,
    words: &'a [AtomicU64; LANE_WORDS],
    /// None for a dead client's lane, whose lock the settler lets be.
    _guard: Option<LockGuard<'a>>,
}

/// Inode numbers taken through a lane, less those given back, read without its lock.
pub(crate) fn inos_taken(arena: &Arena, off: Off) -> Result<i64> {
    let words = arena.block::<LANE_WORDS>(off)?;
    Ok(words[INOS_TAKEN].load(Ordering::Relaxed).cast_signed())
}

/// Pages that a lane holds, read without its lock.
pub(crate) fn held_pages(arena: &Arena, off: Off) -> Result<u64> {
    let words = arena.block::<LANE_WORDS>(off)?;
    let batch: u64 = words
        .iter()
        .skip(BATCH_AT)
        .take(usize::try_from(words[BATCH_LEN].load(Ordering::Relaxed)).unwrap_or(0))
        .map(|word| (word.load(Ordering::Relaxed) & COUNT_MASK) + 1)
        .sum();
    Ok(words[EXTENT_PAGES].load(Ordering::Relaxed) + batch)
}

/// The page of a lane's journal, which stays, read without its lock.
pub(crate) fn journal_page(arena: &Arena, off: Off) -> Result<PmAddr> {
    let words = arena.block::<LANE_WORDS>(off)?;
    Ok(PmAddr::from_raw(words[PAGE_ADDR].load(Ordering::Relaxed)))
}

impl<'a> Lane<'a> {
    pub(crate) fn new(
        arena: &'a Arena,
        index: u16,
        off: Off,
        guard: LockGuard<'a>,
    ) -> Result<Self> {
        Ok(Self { index, words: arena.block(off)?, _guard: Some(guard) })
    }

    /// The lane that a dead client has locked, for the client that settles for it.
    pub(crate) fn of_dead(arena: &'a Arena, index: u16, off: Off) -> Result<Self> {
        Ok(Self { index, words: arena.block(off)?, _guard: None })
    }

    /// The lane's number.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    fn get(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Release);
        }
    }

    // Pages.

    /// Pages left of the extent.
    pub(crate) fn held(&self) -> u64 {
        self.get(EXTENT_PAGES)
    }

    /// Where the extent begins.
    pub(crate) fn extent(&self) -> PmAddr {
        PmAddr::from_raw(self.get(EXTENT))
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.get(CURSOR)
    }

    pub(crate) fn next_turn(&self) -> u64 {
        let turn = self.get(TURN);
        self.set(TURN, turn + 1);
        turn
    }

    /// Takes up to `want` pages from the extent. The pages are taken by one store: the extent
    /// shrinks from its end, so that its first page never moves.
    pub(crate) fn bump(&self, op: &Op<'_>, want: u64) -> Result<Option<Extent>> {
        let held = self.held();
        if held == 0 {
            return Ok(None);
        }
        let pages = held.min(want);
        let first = PmAddr::from_raw(self.get(EXTENT));
        let addr = first.add((held - pages) * PAGE);
        op.note_taken(addr.raw(), u32::try_from(pages).unwrap_or(u32::MAX))?;
        self.set(EXTENT_PAGES, held - pages);
        Ok(Some(Extent { addr, pages }))
    }

    /// Puts an extent in place of the one held, which is returned.
    pub(crate) fn replace_extent(&self, extent: Extent, cursor: u64) -> Extent {
        let rest = Extent { addr: PmAddr::from_raw(self.get(EXTENT)), pages: self.held() };
        self.set(EXTENT_PAGES, 0);
        self.set(EXTENT, extent.addr.raw());
        self.set(EXTENT_PAGES, extent.pages);
        self.set(CURSOR, cursor);
        rest
    }

    /// Adds a freed extent to the batch; `false` when it has no room for it.
    pub(crate) fn gather(&self, extent: Extent) -> bool {
        let len = self.get(BATCH_LEN);
        let Some(index) = usize::try_from(len).ok().filter(|len| *len < BATCH) else {
            return false;
        };
        if extent.pages > COUNT_MASK + 1 || extent.pages == 0 {
            return extent.pages == 0;
        }
        self.set(BATCH_AT + index, extent.addr.raw() | (extent.pages - 1));
        self.set(BATCH_LEN, len + 1);
        true
    }

    /// Whether an extent that goes to the batch, for which the lane was locked, is not there yet.
    pub(crate) fn lacks(&self, extent: Extent) -> bool {
        (1..=COUNT_MASK + 1).contains(&extent.pages) && !self.holds_page(extent.addr)
    }

    /// Takes freed pages from the last extent of the batch, by one store; none where it has fewer, or they
    /// may not be taken. A longer one shrinks from its end, but not for a single page.
    pub(crate) fn reuse(
        &self,
        op: &Op<'_>,
        want: u64,
        may: impl Fn(PmAddr) -> Result<bool>,
    ) -> Result<Option<Extent>> {
        let Some(len) = self.get(BATCH_LEN).checked_sub(1) else {
            return Ok(None);
        };
        let index = BATCH_AT + usize::try_from(len).unwrap_or(BATCH);
        let word = self.get(index);
        let Some(left) = ((word & COUNT_MASK) + 1).checked_sub(want).filter(|_| word != 0) else {
            return Ok(None);
        };
        if left > 0 && want == 1 {
            return Ok(None);
        }
        let addr = PmAddr::from_raw(word & !COUNT_MASK).add(left * PAGE);
        if !may(addr)? {
            return Ok(None);
        }
        op.note_taken(addr.raw(), u32::try_from(want).unwrap_or(u32::MAX))?;
        match left {
            0 => self.set(BATCH_LEN, len),
            _ => self.set(index, word - want),
        }
        Ok(Some(Extent { addr, pages: want }))
    }

    /// Removes an extent from the batch.
    pub(crate) fn ungather(&self) -> Option<Extent> {
        let len = self.get(BATCH_LEN).checked_sub(1)?;
        let word = self.get(BATCH_AT + usize::try_from(len).ok()?);
        self.set(BATCH_LEN, len);
        Some(Extent { addr: PmAddr::from_raw(word & !COUNT_MASK), pages: (word & COUNT_MASK) + 1 })
    }

    /// Whether a page is among those that the lane holds.
    pub(crate) fn holds_page(&self, page: PmAddr) -> bool {
        let within = |extent: Extent| page >= extent.addr && page < extent.end();
        let len = usize::try_from(self.get(BATCH_LEN)).unwrap_or(0).min(BATCH);
        let batch = (BATCH_AT..BATCH_AT + len).map(|index| {
            let word = self.get(index);
            let addr = PmAddr::from_raw(word & !COUNT_MASK);
            Extent { addr, pages: (word & COUNT_MASK) + 1 }
        });
        let own = Extent { addr: PmAddr::from_raw(self.get(EXTENT)), pages: self.held() };
        batch.chain(std::iter::once(own)).any(within)
    }

    // Inode numbers.

    /// Takes an inode number from the lane's word.
    pub(crate) fn take_ino(&self) -> Option<Ino> {
        let free = self.get(INO_FREE);
        if free == 0 {
            return None;
        }
        self.set(INO_FREE, free & (free - 1));
        self.set(INOS_TAKEN, self.get(INOS_TAKEN).wrapping_add(1));
        Some(Ino::new(self.get(INO_BASE) + u64::from(free.trailing_zeros())))
    }

    /// Counts a number that is given back, and puts it into the lane's word if that is of its 64; says
    /// whether it is there. (Other lanes may have free numbers of the same 64: each has its own.)
    pub(crate) fn give_ino(&self, ino: Ino) -> bool {
        self.set(INOS_TAKEN, self.get(INOS_TAKEN).wrapping_sub(1));
        let bit = ino.get().wrapping_sub(self.get(INO_BASE));
        if bit >= 64 {
            return false;
        }
        self.set(INO_FREE, self.get(INO_FREE) | 1 << bit);
        true
    }

    /// Puts a word of free inode numbers in place of the used-up one.
    pub(crate) fn set_inos(&self, base: u64, free: u64) {
        self.set(INO_FREE, 0);
        self.set(INO_BASE, base);
        self.set(INO_FREE, free);
    }

    /// The word of free inode numbers: its first number and a bit for each.
    pub(crate) fn inos(&self) -> (u64, u64) {
        (self.get(INO_BASE), self.get(INO_FREE))
    }

    // Journal.

    /// The lane's page on media and the sequence number of its last record.
    pub(crate) fn journal(&self) -> (PmAddr, u64) {
        (PmAddr::from_raw(self.get(PAGE_ADDR)), self.get(SEQ))
    }

    pub(crate) fn set_journal(&self, page: PmAddr, seq: u64) {
        self.set(PAGE_ADDR, page.raw());
        self.set(SEQ, seq);
    }

    /// Counts a record. `own_lines` are the inodes' own lines that must be durable before the record's space is used
    /// again; then those of the record before it that were lost as this one wrote them back. The next record is stored
    /// over the one before, which stands for the latter. That is sound because nobody takes the lane for one until
    /// their slot is back and what lies there is judged (`Allocator::journal_lane`).
    pub(crate) fn record_written(&self, seq: u64, mut own_lines: impl Iterator<Item = PmAddr>) {
        let mut index = OWN_LINES;
        for addr in own_lines.by_ref().take(OWN_LINES_MAX) {
            self.set(index, addr.raw());
            index += 1;
        }
        debug_assert!(own_lines.next().is_none(), "more own lines than a lane has room for");
        if index < OWN_LINES + OWN_LINES_MAX {
            self.set(index, 0);
        }
        self.set(SEQ, seq);
    }

    /// The own lines of the last record, which may still be in a cache.
    pub(crate) fn own_lines(&self) -> impl Iterator<Item = PmAddr> + '_ {
        (OWN_LINES..OWN_LINES + OWN_LINES_MAX)
            .map(|index| PmAddr::from_raw(self.get(index)))
            .take_while(|addr| !addr.is_null())
    }

    /// Those in some slots, by the bits of these.
    pub(crate) fn own_lines_in(&self, slots: u64) -> ArrayVec<PmAddr, OWN_LINES_MAX> {
        if slots == 0 {
            return ArrayVec::new();
        }
        self.own_lines().filter(|addr| has_slot(slots, addr.slot())).collect()
    }
}

#[cfg(test)]
mod tests {
    use novale_arena::PidInfo;

    use super::*;

    fn page(index: u64) -> PmAddr {
        PmAddr::new(0, index * PAGE)
    }

    #[test]
    fn freed_pages_are_given_out_from_the_last_extent_that_has_enough() {
        let arena = Arena::anonymous(16 << 20).unwrap();
        let off = arena.alloc_table(LANE_WORDS.ilog2()).unwrap();
        let client = arena.attach(PidInfo::current()).unwrap();
        let op = client.op(1, 1);
        let lane = Lane::new(&arena, 0, off, op.lock(off).unwrap()).unwrap();
        let reuse = |want| {
            lane.reuse(&op, want, |_| Ok(true)).unwrap().map(|extent| (extent.addr, extent.pages))
        };
        assert_eq!(reuse(1), None);
        assert!(lane.gather(Extent { addr: page(100), pages: 1 }));
        assert!(lane.gather(Extent { addr: page(10), pages: 20 }));
        assert_eq!(reuse(21), None);
        assert_eq!(reuse(1), None, "a long extent stays whole for long writes");
        assert_eq!(reuse(16), Some((page(14), 16)));
        assert!(lane.holds_page(page(13)) && !lane.holds_page(page(14)));
        assert_eq!(reuse(16), None, "four pages are left");
        assert_eq!(reuse(4), Some((page(10), 4)));
        assert_eq!(reuse(2), None, "a single page is left");
        assert_eq!(reuse(1), Some((page(100), 1)));
        assert_eq!((lane.ungather(), held_pages(&arena, off).unwrap()), (None, 0));
        let noted = arena.records(&client.info()).unwrap();
        let taken: Vec<_> = noted.iter().flat_map(|record| &record.taken).collect();
        let expected = [(page(14), 16), (page(10), 4), (page(100), 1)];
        assert!(
            taken.iter().map(|t| (PmAddr::from_raw(t.addr_raw), u64::from(t.pages))).eq(expected)
        );
    }
}
