//! Free pages of the pool: who takes one, where it comes from, where it goes back to.
//!
//! A *lane* owns an extent and gives pages of it by one bump store; when it is used up, the
//! lane takes the next one from the global bitmap ([`ranges`]). Freed extents are gathered in the
//! lane and go back in batches; a single one stays with the operation record that freed it, for its
//! next operation ([`kept`]). A lane also keeps the word of 64 inode numbers that it gives from
//! ([`crate::inode::numbers`]); who works in a lane of its own writes no word that others use.
//! Nothing here touches the pool: a page handed out is not on media until a commit names it, so a
//! crash frees it.
//!
//! Lock order: a lane, then a range. Only [`Allocator::drain`] takes the locks of other
//! lanes, one at a time and holding no other.

mod bits;
mod closed;
pub(crate) mod failed;
mod give;
mod journal;
mod kept;
pub(crate) mod lane;
pub(crate) mod leaving;
pub(crate) mod ranges;
pub(crate) mod wear;

use std::sync::atomic::{AtomicU64 as AtomicWord, Ordering};

use arrayvec::ArrayVec;
use novale_arena::{Arena, AtomicU64, Off, Op, Owner};
use novale_layout::{FIRST_FREE_PAGE, PmAddr};
use novale_policy::Turn;

use crate::base::error::{Error, Result};
use crate::base::extent::{Extent, Extents};
use crate::space::failed::has_slot;
use crate::space::lane::Lane;
use crate::space::leaving::{coming_slots, leaving_slots};
use crate::space::ranges::{Ranges, SlotRanges};
use crate::space::wear::{ColdMove, SLOTS_MAX, Wear};

/// Largest extent that a lane takes at once, in pages: one range.
const LANE_EXTENT_PAGES_MAX: u64 = 512;
/// Words of the block with the count of free pages.
const FREE_WORDS: usize = 8;
/// As [`LANE_EXTENT_PAGES_MAX`], but for a longer write, and for so many takings at most, where slots are to be worn
/// evenly: the wear of two slots differs by what lanes hold.
const WEAR_EXTENT_PAGES_MAX: u64 = 256;
const WEAR_EXTENT_TAKES: u64 = 64;
/// A slot with several others beside it is left alone where its runs are shorter, in pages.
const LEAST_EXTENT_PAGES: u64 = 16;
/// Extents that a lane gathers before they go back to the bitmap.
pub(crate) const BATCH: usize = 64;

/// What pages are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The pool grows fuller by it; leaves the reserve alone.
    Growth,
    /// Deletes, overwrites and collection: what gives pages back may use the reserve, and leaves alone what is
    /// reserved for the write buffer, since the log that it grows by stays.
    Release,
    /// A flush, for which pages are reserved.
    Flush,
}

/// Pages that are wanted at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pages: u64,
    /// As many are likely to be wanted next.
    is_one_of_many: bool,
}

impl Wanted {
    /// For a write, after which others come.
    pub(crate) fn again(pages: u64) -> Self {
        Self { pages, is_one_of_many: true }
    }

    /// For what comes once in many operations.
    pub(crate) fn once(pages: u64) -> Self {
        Self { pages, is_one_of_many: false }
    }

    /// Pages that a lane takes for it and for those that come next, where slots are to be worn evenly.
    fn pages_ahead(self) -> u64 {
        let each = if self.is_one_of_many { self.pages } else { 1 };
        (WEAR_EXTENT_TAKES * each).min(WEAR_EXTENT_PAGES_MAX)
    }
}

/// The page allocator.
pub(crate) struct Allocator {
    pub(crate) ranges: Ranges,
    lanes: Off,
    lane_count: u32,
    /// Free pages in the bitmap (those that lanes and records hold are not counted); in the next word, how
    /// many of them are reserved for what is written later; then how many of these flushes have taken just now.
    free: Off,
    reserve: u64,
    pub(crate) wear: Wear,
    /// A bit for each slot that this client lacks ([`Pm::lack`](novale_pm::Pm::lack)).
    lacking: AtomicWord,
}

/// Pages kept back of so many that can be allocated.
pub(crate) fn reserve_of(usable: u64) -> u64 {
    (usable / 32).min(1024)
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("lanes", &self.lane_count).finish_non_exhaustive()
    }
}

impl Allocator {
    pub(crate) fn create(
        arena: &Arena,
        pages: &[u64],
        lane_count: u32,
        wear: Wear,
    ) -> Result<Self> {
        let ranges = Ranges::create(arena, pages)?;
        let words = u64::from(lane_count) * lane::LANE_BYTES / 8;
        let lanes = arena.alloc_table(words.next_power_of_two().ilog2())?;
        let free = arena.alloc_table(FREE_WORDS.ilog2())?;
        let reserve = reserve_of(ranges.usable_pages());
        Ok(Self { ranges, lanes, lane_count, free, reserve, wear, lacking: AtomicWord::new(0) })
    }

    /// The allocator that another client has made, where it said ([`Self::places`]).
    pub(crate) fn attach(
        arena: &Arena,
        pages: &[u64],
        places: [u64; 7],
        wear: Wear,
    ) -> Result<Self> {
        let [lanes, lane_count, free, ranges @ ..] = places;
        let ranges = Ranges::attach(arena, pages, ranges)?;
        Ok(Self {
            reserve: reserve_of(ranges.usable_pages()),
            ranges,
            lanes: Off::from_raw(lanes),
            lane_count: u32::try_from(lane_count).unwrap_or(1).max(1),
            free: Off::from_raw(free),
            wear,
            lacking: AtomicWord::new(0),
        })
    }

    /// Where all of it is in the arena.
    pub(crate) fn places(&self) -> [u64; 7] {
        let [table, summaries, groups, added] = self.ranges.places();
        let lane_count = u64::from(self.lane_count);
        let (lanes, free) = (self.lanes.raw(), self.free.raw());
        [lanes, lane_count, free, table, summaries, groups, added]
    }

    /// The lane whose lock is at `lock`, if it is one's, for the client that settles for its dead owner.
    pub(crate) fn lane_of_lock<'a>(&self, arena: &'a Arena, lock: Off) -> Result<Option<Lane<'a>>> {
        let Some(at) = lock.raw().checked_sub(self.lanes.raw()) else { return Ok(None) };
        let index = at / lane::LANE_BYTES;
        if at % lane::LANE_BYTES != 0 || index >= u64::from(self.lane_count) {
            return Ok(None);
        }
        let (index, off) = self.lane_at(u32::try_from(index).unwrap_or(0));
        Ok(Some(Lane::of_dead(arena, index, off)?))
    }

    /// Whether an operation's record keeps this page for its next one.
    pub(crate) fn is_kept(arena: &Arena, owner: Owner, page: PmAddr) -> Result<bool> {
        kept::has(arena, owner, page)
    }

    /// Takes over the bitmap found at mount.
    pub(crate) fn install(&self, arena: &Arena, used: &dyn Fn(usize, u64) -> u64) -> Result<()> {
        let free = self.ranges.install(arena, used)?;
        self.free_word(arena)?.store(free, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn free_word<'a>(&self, arena: &'a Arena) -> Result<&'a AtomicU64> {
        Ok(arena.word(self.free)?)
    }

    pub(crate) fn lane_count(&self) -> u32 {
        self.lane_count
    }

    /// Whether the pool is far from full, so that nobody needs to ask what pages are wanted for.
    #[inline]
    pub(crate) fn is_roomy(&self, arena: &Arena) -> Result<bool> {
        let [free, reserved, ..] = arena.block::<FREE_WORDS>(self.free)?;
        let free = self.less_closed(arena, free.load(Ordering::Relaxed))?;
        Ok(free > self.reserve * 3 + reserved.load(Ordering::Relaxed))
    }

    /// Pages that are reserved: a flush alone takes them.
    pub(crate) fn pages_reserved(&self, arena: &Arena) -> Result<u64> {
        Ok(arena.word(self.free.word(1))?.load(Ordering::Acquire))
    }

    /// Reserves pages for what is taken later, as [`Need::Flush`]; says whether there are so many.
    pub(crate) fn reserve_pages(&self, arena: &Arena, pages: u64) -> Result<bool> {
        let word = arena.word(self.free.word(1))?;
        let reserved = word.fetch_add(pages, Ordering::AcqRel) + pages;
        if self.pages_unclaimed(arena)? >= self.reserve + reserved {
            return Ok(true);
        }
        word.fetch_sub(pages, Ordering::AcqRel);
        Ok(false)
    }

    /// Gives up what was reserved.
    pub(crate) fn unreserve_pages(&self, arena: &Arena, pages: u64) -> Result<()> {
        arena.word(self.free.word(1))?.fetch_sub(pages, Ordering::AcqRel);
        Ok(())
    }

    /// So many of what is reserved are taken, and not given up yet: they count twice until then. A client that
    /// dies in it leaves as many to others, until the arena goes.
    pub(crate) fn begin_flush(&self, arena: &Arena, pages: u64) -> Result<()> {
        arena.word(self.free.word(2))?.fetch_add(pages, Ordering::AcqRel);
        Ok(())
    }

    /// What was reserved for them is given up, or they are free again.
    pub(crate) fn end_flush(&self, arena: &Arena, pages: u64) -> Result<()> {
        arena.word(self.free.word(2))?.fetch_sub(pages, Ordering::AcqRel);
        Ok(())
    }

    /// Free pages that no lane holds, and that can be taken.
    #[inline]
    pub(crate) fn pages_unclaimed(&self, arena: &Arena) -> Result<u64> {
        self.less_closed(arena, self.free_word(arena)?.load(Ordering::Relaxed))
    }

    /// So many free pages of all slots, less those of slots that have failed, or are being emptied.
    #[inline]
    fn less_closed(&self, arena: &Arena, free: u64) -> Result<u64> {
        match self.closed_slots(arena) {
            0 => Ok(free),
            // Those of slots that come are not counted yet.
            closed => self.outside(arena, closed & !coming_slots(arena), free),
        }
    }

    #[cold]
    fn outside(&self, arena: &Arena, closed: u64, free: u64) -> Result<u64> {
        let by_slot = (0..).zip(self.ranges.free_by_slot(arena)?);
        let there = by_slot.filter(|(slot, _)| has_slot(closed, *slot)).map(|(_, free)| free);
        Ok(free.saturating_sub(there.sum()))
    }

    /// Free pages of a slot's bitmap.
    pub(crate) fn free_in(&self, arena: &Arena, slot: u8) -> Result<u64> {
        self.ranges.free_in_slot(arena, slot.into())
    }

    /// Pages of a slot that are in use, by its bitmap: what lanes and records have in hand there counts.
    pub(crate) fn used_in(&self, arena: &Arena, slot: u8) -> Result<u64> {
        let of = self.ranges.slot(usize::from(slot));
        let usable = of.map_or(0, |of| of.pages.saturating_sub(FIRST_FREE_PAGE + 1));
        Ok(usable.saturating_sub(self.ranges.free_in_slot(arena, slot.into())?))
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// The number and place of the lane for `hint`.
    fn lane_at(&self, hint: u32) -> (u16, Off) {
        let index = hint % self.lane_count;
        let off = self.lanes.add(u64::from(index) * lane::LANE_BYTES);
        (u16::try_from(index).unwrap_or(0), off)
    }

    /// Lane `index`, locked.
    pub(crate) fn lock_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        index: u32,
    ) -> Result<Lane<'a>> {
        let (index, off) = self.lane_at(index);
        Lane::new(arena, index, off, op.lock(off)?)
    }

    /// The lane for `hint`, locked; another one when it is taken.
    pub(crate) fn lane<'a>(&self, arena: &'a Arena, op: &'a Op<'_>, hint: u32) -> Result<Lane<'a>> {
        match self.free_lane(arena, op, hint)? {
            Some(lane) => Ok(lane),
            None => self.lock_lane(arena, op, hint),
        }
    }

    /// As [`Self::lane`], without waiting: none when all that were tried are taken.
    pub(crate) fn free_lane<'a>(
        &self,
        arena: &'a Arena,
        op: &'a Op<'_>,
        hint: u32,
    ) -> Result<Option<Lane<'a>>> {
        for step in 0..self.lane_count.min(4) {
            let (index, off) = self.lane_at(hint.wrapping_add(step));
            if let Some(guard) = op.try_lock(off)? {
                return Ok(Some(Lane::new(arena, index, off, guard)?));
            }
        }
        Ok(None)
    }

    /// Inode numbers taken through lanes, less those given back.
    pub(crate) fn inos_taken(&self, arena: &Arena) -> Result<i64> {
        (0..self.lane_count).map(|index| lane::inos_taken(arena, self.lane_at(index).1)).sum()
    }

    /// Up to `want` contiguous pages (at least one). They are noted in the operation's record
    /// before they are taken.
    pub(crate) fn take(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        wanted: Wanted,
        need: Need,
    ) -> Result<Extent> {
        let want = wanted.pages;
        if need == Need::Growth && !arena.grants() {
            return Err(Error::NoSpace);
        }
        // Pages freed here before are as good as any: they save the bitmap two visits, and this process
        // has most likely mapped them. In a pool that is nearly full they belong to the reserve.
        let reuse = need != Need::Growth || self.is_roomy(arena)?;
        // Pages of a lane's extent are expected to be written: they count as one, however many.
        self.look_at_wear(arena, hint, 1)?;
        let is_cool = |page| self.is_reusable(arena, page);
        if reuse
            && want == 1
            && let Some(extent) = kept::take(op, is_cool)?
        {
            return Ok(extent);
        }
        let leaving = leaving_slots(arena) | self.lacking.load(Ordering::Relaxed);
        if leaving != 0
            && let Some(addr) = kept::let_go(op, |page| has_slot(leaving, page.slot()))
        {
            self.give_extent(arena, op, Extent { addr, pages: 1 })?;
        }
        for attempt in 0..2 {
            let lane = self.lane(arena, op, hint)?;
            if reuse && let Some(extent) = lane.reuse(op, want, is_cool)? {
                drop(lane);
                if want > 1 {
                    self.look_at_wear(arena, hint, want - 1)?;
                }
                return Ok(extent);
            }
            if lane.held() < want || self.is_closed(arena, lane.extent()) {
                self.refill(arena, op, &lane, wanted, need)?;
            }
            if !self.is_closed(arena, lane.extent())
                && let Some(extent) = lane.bump(op, want)?
            {
                return Ok(extent);
            }
            drop(lane);
            // What the lanes hold counts when all else is used up.
            if attempt == 0 {
                self.drain(arena, op)?;
            }
        }
        Err(Error::NoSpace)
    }

    /// Exactly so many pages, in as few extents as there are.
    pub(crate) fn take_all(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        wanted: Wanted,
        need: Need,
    ) -> Result<Extents> {
        let mut extents = Extents::default();
        let taken = fill(&mut extents, wanted.pages, |pages| {
            self.take(arena, op, hint, Wanted { pages, ..wanted }, need)
        });
        self.all_or_none(arena, op, hint, extents, taken)
    }

    /// What was taken, or its error: it goes back then.
    fn all_or_none(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        extents: Extents,
        taken: Result<()>,
    ) -> Result<Extents> {
        if taken.is_err() {
            self.give(arena, op, hint, &extents)?;
        }
        taken.map(|()| extents)
    }

    /// As [`Self::take_all`], of one slot and no other, as what lets the pool grow fuller.
    pub(crate) fn take_all_in(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        hint: u32,
        slot: u8,
        pages: u64,
    ) -> Result<Extents> {
        let mut extents = Extents::default();
        let lane = self.lane(arena, op, hint)?;
        let taken =
            fill(&mut extents, pages, |missing| self.take_in(arena, op, &lane, slot, missing));
        drop(lane);
        self.all_or_none(arena, op, hint, extents, taken)
    }

    /// Up to `want` contiguous pages of a slot (at least one), by a lane.
    fn take_in(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        lane: &Lane<'_>,
        slot: u8,
        want: u64,
    ) -> Result<Extent> {
        let may = !self.is_closed(arena, PmAddr::new(slot, 0)) && arena.grants();
        if !may || self.pages_spare(arena)? < want {
            return Err(Error::NoSpace);
        }
        let found = self.ranges.take_in_slot(arena, op, slot.into(), lane.cursor(), (want, 1))?;
        self.hold(arena, op, lane, found.ok_or(Error::NoSpace)?)?;
        lane.bump(op, want)?.ok_or(Error::NoSpace)
    }

    /// Free pages that no lane holds, less those that are kept back.
    fn pages_spare(&self, arena: &Arena) -> Result<u64> {
        let kept_back = self.reserve + self.pages_reserved(arena)?;
        Ok(self.pages_unclaimed(arena)?.saturating_sub(kept_back))
    }

    /// As [`Self::pages_spare`], with the reserve.
    fn pages_not_reserved(&self, arena: &Arena) -> Result<u64> {
        let [_, reserved, taken, ..] = arena.block::<FREE_WORDS>(self.free)?;
        let [reserved, taken] = [reserved, taken].map(|word| word.load(Ordering::Acquire));
        Ok(self.pages_unclaimed(arena)?.saturating_sub(reserved.saturating_sub(taken)))
    }

    /// Which ways pages that nobody writes are to go, the best one first.
    pub(crate) fn cold_moves(&self, arena: &Arena) -> Result<Vec<ColdMove>> {
        if !self.wear.is_asked() || self.closed_slots(arena) != 0 {
            return Ok(Vec::new());
        }
        // What is in short runs is not taken while another slot has longer ones.
        let free = |slot| self.ranges.free_near_runs(arena, slot, LEAST_EXTENT_PAGES);
        self.wear.cold_moves(arena, &|slots| slots.map(free).collect())
    }

    /// Replaces what is left of a lane's extent by one that holds the pages that are wanted, if it can.
    fn refill(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        lane: &Lane<'_>,
        wanted: Wanted,
        need: Need,
    ) -> Result<()> {
        let want = wanted.pages;
        let spare = self.pages_spare(arena)?;
        let most = match need {
            Need::Growth => spare,
            Need::Release => self.pages_not_reserved(arena)?,
            Need::Flush => u64::MAX,
        };
        if most < want {
            return Ok(());
        }
        let fair = spare / (u64::from(self.lane_count) * 8);
        let most = if self.wear.is_asked() { wanted.pages_ahead() } else { u64::MAX };
        let target = want.max(fair.min(most)).min(LANE_EXTENT_PAGES_MAX);
        let turn =
            Turn { lane: lane.index().into(), lanes: self.lane_count, turn: lane.next_turn() };
        match self.find_extent(arena, op, turn, lane.cursor(), target)? {
            Some(found) => self.hold(arena, op, lane, found),
            None => Ok(()),
        }
    }

    /// Has a lane hold an extent that was found, with where to go on next time, in place of what is left of
    /// its own.
    fn hold(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        lane: &Lane<'_>,
        (extent, cursor): (Extent, u64),
    ) -> Result<()> {
        let free = self.free_word(arena)?;
        self.wear.expect(arena, extent.addr.slot(), extent.pages)?;
        // Never below none: a client that dies between the two steps leaves it a little too low or
        // too high.
        let less = |free: u64| Some(free.saturating_sub(extent.pages));
        let _before = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let rest = lane.replace_extent(extent, cursor);
        self.give_extent(arena, op, rest)
    }

    /// Takes an extent from the slot that the policy names, or from the next one that it names where that has
    /// nothing but short runs; from anywhere where all have. Returns it and where to go on next time.
    fn find_extent(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        turn: Turn,
        cursor: u64,
        target: u64,
    ) -> Result<Option<(Extent, u64)>> {
        let mut slot = 0;
        let closed = self.closed_slots(arena);
        if self.ranges.slot_count() > 1 {
            let mut free = self.free_by_slot(arena)?;
            slot = self.wear.choose(arena, &free, turn)?;
            for _ in 0..free.len() {
                // The policy may name one without room, or that is closed.
                if free.get(slot).is_some_and(|free| *free > 0) {
                    let pages = (target, LEAST_EXTENT_PAGES);
                    let found = self.ranges.take_in_slot(arena, op, slot, cursor, pages)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                if let Some(free) = free.get_mut(slot) {
                    *free = 0;
                }
                slot = self.wear.choose(arena, &free, turn)?;
            }
        }
        self.ranges.take(arena, op, (slot, closed), cursor, target)
    }

    /// Counts pages that are overwritten or taken, and looks anew how far the slots are worn where it
    /// is time.
    #[inline]
    pub(crate) fn look_at_wear(&self, arena: &Arena, hint: u32, pages: u64) -> Result<()> {
        if self.wear.is_due(hint, pages) { self.look_again_at_wear(arena) } else { Ok(()) }
    }

    /// Looks anew how far the slots are worn.
    pub(crate) fn look_again_at_wear(&self, arena: &Arena) -> Result<()> {
        self.wear.refresh(arena, &self.free_by_slot(arena)?)
    }

    /// Whether a freed page is given out again.
    #[inline]
    fn is_reusable(&self, arena: &Arena, page: PmAddr) -> Result<bool> {
        Ok(!self.is_closed(arena, page) && self.wear.is_cool(arena, page)?)
    }

    /// Free pages of each slot's bitmap that can be taken.
    fn free_by_slot(&self, arena: &Arena) -> Result<ArrayVec<u64, SLOTS_MAX>> {
        // A client that died between two steps of a change leaves a count a little wrong.
        let slots = self.ranges.slots().enumerate();
        let closed = self.closed_slots(arena);
        let free = |(slot, of): (usize, SlotRanges)| match closed >> slot & 1 {
            0 => Ok(self.ranges.free_in_slot(arena, slot)?.min(of.pages)),
            _ => Ok(0),
        };
        slots.map(free).collect()
    }

    /// Free pages that can be taken, those that lanes and records hold included.
    pub(crate) fn pages_free(&self, arena: &Arena) -> Result<u64> {
        let mut free = self.pages_unclaimed(arena)?;
        free += kept::count(arena)?;
        for index in 0..self.lane_count {
            free += lane::held_pages(arena, self.lane_at(index).1)?;
        }
        Ok(free)
    }
}

/// Adds exactly so many pages, by as many extents as `take` gives them in; it is told how many are missing.
#[inline]
fn fill(
    extents: &mut Extents,
    pages: u64,
    mut take: impl FnMut(u64) -> Result<Extent>,
) -> Result<()> {
    let mut missing = pages;
    while missing > 0 {
        let extent = take(missing)?;
        missing -= extent.pages;
        extents.push(extent);
    }
    Ok(())
}

/// Where an operation takes pages from, and gives them back to.
#[derive(Clone, Copy)]
pub(crate) struct PageSource<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) allocator: &'a Allocator,
    pub(crate) op: &'a Op<'a>,
    pub(crate) hint: u32,
}

#[cfg(test)]
mod tests {
    use novale_pm::{Pm, PmOptions};

    use super::*;
    use crate::base::types::{Ctx, Node};
    use crate::fixture::{CTX, FILE, MB, open};
    use crate::{MkfsOptions, mkfs};

    /// Lanes took 64 pages at a time, whatever a write needed: sequential writes of 16 KB and more were slower by a
    /// tenth than where slots are not worn evenly.
    #[test]
    fn a_lane_takes_more_at_a_time_for_longer_writes() {
        let pm = Pm::anonymous(&[16 * MB; 2], &PmOptions::default()).unwrap();
        mkfs(&pm, &MkfsOptions::numbered(2, 4)).unwrap();
        let fs = open(pm);
        let looks = |hint: u32| fs.allocator.wear.takes_counted(hint);
        for (hint, (pages, held)) in (1..).zip([(1, 32..64), (4, 192..256)]) {
            let ctx = Ctx { hint, ..CTX };
            let ino = fs.create(&CTX, Node::ROOT, &[b'a', pages], &FILE).unwrap().ino;
            let before = looks(hint);
            fs.write(&ctx, ino, 0, &vec![1; usize::from(pages) * 4096]).unwrap();
            // One for the pages, one for the log's first.
            assert_eq!(looks(hint) - before, 2, "{pages} pages");
            let (_, lane) = fs.allocator.lane_at(hint);
            let found = lane::held_pages(fs.arena(), lane).unwrap();
            assert!(held.contains(&found), "{found} held after {pages}");
        }
    }
}
