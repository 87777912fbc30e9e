//! The global page allocator: a bitmap of every slot in ranges of 2 MB, each under a lock of its
//! own, with a summary (free pages, longest run) that is searched without locks, and the free
//! pages of each 64 ranges above it.
//!
//! A change of a range's bitmap is noted first (which word, its new value), so that a client that finds
//! a dead owner redoes it; the summary is derived from the words and needs no note.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Off, Op};
use novale_layout::{FIRST_FREE_PAGE, PAGE, PmAddr};

use crate::base::error::{Error, Result};
use crate::base::extent::Extent;
use crate::space::bits::{Bits, RANGE_PAGES, WORDS};

/// Words of a range: lock, note (word index + 1), note (value), unused, bitmap.
const RANGE_WORDS: u64 = 16;
const LOCK: u64 = 0;
const NOTE_INDEX: usize = 1;
const NOTE_VALUE: usize = 2;
const BITMAP: usize = 4;
/// Ranges whose free pages one word of the group table sums.
const GROUP: u64 = 64;
/// Ranges looked at for a run that is long enough before the best one seen is taken.
const SEARCH_RANGES_MAX: u64 = 64;

/// Where a slot's pages lie in the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRanges {
    /// The slot's first range.
    pub(super) first: u64,
    /// Number of ranges, the last one possibly partial.
    pub(super) count: u64,
    /// Pages of the slot, the reserved ones included.
    pub(crate) pages: u64,
}

impl SlotRanges {
    /// Where a search goes on in it that was at its range number `cursor` last, or at that of another slot.
    fn start(&self, cursor: u64) -> u64 {
        self.first + cursor % self.count.max(1)
    }
}

/// The tables' places in the arena.
#[derive(Debug)]
pub(crate) struct Ranges {
    slots: Vec<SlotRanges>,
    total: u64,
    table: Off,
    summaries: Off,
    /// Free pages of each [`GROUP`] ranges, and then of each slot.
    groups: Off,
}

fn pack(free: u64, longest: u64) -> u64 {
    free << 16 | longest
}

fn longest(summary: u64) -> u64 {
    summary & 0xffff
}

/// The ranges of slots of so many pages, and their number.
fn ranges_of(pages: &[u64]) -> (Vec<SlotRanges>, u64) {
    let mut slots = Vec::new();
    let mut total = 0;
    for &pages in pages {
        let count = pages.div_ceil(RANGE_PAGES);
        slots.push(SlotRanges { first: total, count, pages });
        total += count;
    }
    (slots, total)
}

impl Ranges {
    /// The tables that another client has made, where it said ([`Self::places`]).
    pub(crate) fn attach(pages: &[u64], places: [u64; 3]) -> Self {
        let (slots, total) = ranges_of(pages);
        let [table, summaries, groups] = places.map(Off::from_raw);
        Self { slots, total, table, summaries, groups }
    }

    /// Where the tables are in the arena.
    pub(crate) fn places(&self) -> [u64; 3] {
        [self.table, self.summaries, self.groups].map(Off::raw)
    }

    /// The tables for slots of so many pages, every page in use.
    pub(crate) fn create(arena: &Arena, pages: &[u64]) -> Result<Self> {
        let (slots, total) = ranges_of(pages);
        let table = |words: u64| arena.alloc_table(words.next_power_of_two().max(8).ilog2());
        let this = Self {
            table: table(total * RANGE_WORDS)?,
            summaries: table(total)?,
            groups: table(total.div_ceil(GROUP) + slots.len() as u64)?,
            slots,
            total,
        };
        for range in 0..total {
            for word in this.range(arena, range)?.iter().skip(BITMAP).take(WORDS) {
                word.store(u64::MAX, Ordering::Relaxed);
            }
        }
        Ok(this)
    }

    pub(crate) fn slots(&self) -> &[SlotRanges] {
        &self.slots
    }

    /// Pages that can ever be allocated: without the reserved ones of each slot.
    pub(crate) fn usable_pages(&self) -> u64 {
        self.slots.iter().map(|slot| slot.pages.saturating_sub(FIRST_FREE_PAGE + 1)).sum()
    }

    /// Free pages of a slot's bitmap.
    pub(super) fn free_in_slot(&self, arena: &Arena, slot: usize) -> Result<u64> {
        Ok(self.slot_free(arena, slot)?.load(Ordering::Relaxed))
    }

    /// Free pages of each slot's bitmap.
    pub(crate) fn free_by_slot(&self, arena: &Arena) -> Result<Vec<u64>> {
        let slots = self.slots.iter().enumerate();
        // A client that died between two steps of a change leaves a count a little wrong.
        slots.map(|(slot, of)| Ok(self.free_in_slot(arena, slot)?.min(of.pages))).collect()
    }

    /// Free pages of all of them.
    pub(crate) fn free_pages(&self, arena: &Arena) -> Result<u64> {
        Ok(self.free_by_slot(arena)?.iter().sum())
    }

    fn slot_free<'a>(&self, arena: &'a Arena, slot: usize) -> Result<&'a AtomicU64> {
        let index = self.total.div_ceil(GROUP) + slot as u64;
        Ok(arena.word(self.groups.add(index * 8))?)
    }

    /// Counts pages that are free from now on, or used, in a range's group and slot.
    fn count_free(&self, arena: &Arena, range: u64, more: u64) -> Result<()> {
        self.group(arena, range)?.fetch_add(more, Ordering::Relaxed);
        let (slot, _) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
        self.slot_free(arena, slot.into())?.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn range<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a [AtomicU64; 16]> {
        Ok(arena.block::<16>(self.table.add(range * RANGE_WORDS * 8))?)
    }

    fn summary<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a AtomicU64> {
        Ok(arena.word(self.summaries.add(range * 8))?)
    }

    fn group<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a AtomicU64> {
        Ok(arena.word(self.groups.add(range / GROUP * 8))?)
    }

    fn slot_of(&self, range: u64) -> Option<(u8, SlotRanges)> {
        let index = self.slots.partition_point(|slot| slot.first + slot.count <= range);
        let slot = self.slots.get(index)?;
        Some((u8::try_from(index).ok()?, *slot))
    }

    fn addr_of(&self, range: u64, bit: u64) -> Result<PmAddr> {
        let (slot, ranges) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
        Ok(PmAddr::new(slot, ((range - ranges.first) * RANGE_PAGES + bit) * PAGE))
    }

    fn place_of(&self, addr: PmAddr) -> Result<(u64, u64)> {
        let page = addr.byte() / PAGE;
        let slot = self.slots.get(usize::from(addr.slot())).filter(|slot| page < slot.pages);
        // A log named it: pages are taken from slots alone.
        let slot = slot.ok_or_else(|| Error::damaged("a page", addr, "in none of the slots"))?;
        Ok((slot.first + page / RANGE_PAGES, page % RANGE_PAGES))
    }

    /// Takes the bitmaps that recovery or the last clean close found, by slot and word (a set
    /// bit is a page in use), before any client allocates. Returns the number of free pages.
    pub(crate) fn install(&self, arena: &Arena, used: &dyn Fn(usize, u64) -> u64) -> Result<u64> {
        let mut total = 0;
        for range in 0..self.total {
            let (slot, first) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
            let slot = usize::from(slot);
            let base = (range - first.first) * WORDS as u64;
            let block = self.range(arena, range)?;
            let mut bits = Bits([0; WORDS]);
            for (index, (word, place)) in
                bits.0.iter_mut().zip(block.iter().skip(BITMAP)).enumerate()
            {
                *word = used(slot, base + index as u64) | self.outside(range, index);
                place.store(*word, Ordering::Relaxed);
            }
            total += bits.free();
            self.summarise(arena, range, &bits, 0)?;
        }
        Ok(total)
    }

    /// The bits of a range's word that stand for no allocatable page.
    fn outside(&self, range: u64, index: usize) -> u64 {
        let Some((_, slot)) = self.slot_of(range) else {
            return u64::MAX;
        };
        let base = (range - slot.first) * RANGE_PAGES;
        let mut mask = 0;
        if base < FIRST_FREE_PAGE {
            mask |= Bits::mask(index, 0, FIRST_FREE_PAGE - base);
        }
        let end = (slot.pages - 1).saturating_sub(base).min(RANGE_PAGES);
        mask | Bits::mask(index, end, RANGE_PAGES - end)
    }

    /// The bitmap word `index` of `range`, for saving it.
    pub(crate) fn word(&self, arena: &Arena, range: u64, index: usize) -> Result<u64> {
        let block = self.range(arena, range)?;
        Ok(block.get(BITMAP + index).map_or(u64::MAX, |word| word.load(Ordering::Relaxed)))
    }

    pub(crate) fn range_count(&self) -> u64 {
        self.total
    }

    fn summarise(&self, arena: &Arena, range: u64, bits: &Bits, free_before: u64) -> Result<()> {
        let free = bits.free();
        let longest = bits.runs().map(|run| run.1).max().unwrap_or(0);
        self.summary(arena, range)?.store(pack(free, longest), Ordering::Release);
        self.count_free(arena, range, free.wrapping_sub(free_before))
    }

    fn change(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        range: u64,
        pick: impl FnOnce(&Bits) -> Result<Option<(u64, u64, bool)>>,
    ) -> Result<Option<(u64, u64)>> {
        let guard = op.lock(self.table.add((range * RANGE_WORDS + LOCK) * 8))?;
        let block = self.range(arena, range)?;
        let mut bits = Bits([0; WORDS]);
        for (word, place) in bits.0.iter_mut().zip(block.iter().skip(BITMAP)) {
            *word = place.load(Ordering::Relaxed);
        }
        let Some((first, count, take)) = pick(&bits)? else {
            return Ok(None);
        };
        if !take {
            // Before the pages themselves: a group that says nothing is free is not searched.
            self.count_free(arena, range, count)?;
        }
        for index in Bits::words(first, count) {
            let mask = Bits::mask(index, first, count);
            let Some(word) = bits.0.get_mut(index) else { continue };
            let new = if take { *word | mask } else { *word & !mask };
            let (Some(place), note) = (block.get(BITMAP + index), index as u64 + 1) else {
                continue;
            };
            block[NOTE_VALUE].store(new, Ordering::Relaxed);
            block[NOTE_INDEX].store(note, Ordering::Release);
            place.store(new, Ordering::Release);
            block[NOTE_INDEX].store(0, Ordering::Release);
            *word = new;
        }
        if take {
            let free = bits.free();
            self.summarise(arena, range, &bits, free + count)?;
        } else {
            self.summarise_freed(arena, range, bits.run_around(first, count), count)?;
        }
        drop(guard);
        Ok(Some((first, count)))
    }

    /// Adds freed pages, which are part of a free run of that length now, to the summary: no other
    /// run has changed.
    fn summarise_freed(&self, arena: &Arena, range: u64, run: u64, count: u64) -> Result<()> {
        let summary = self.summary(arena, range)?;
        let before = summary.load(Ordering::Relaxed);
        summary.store(pack((before >> 16) + count, longest(before).max(run)), Ordering::Release);
        Ok(())
    }

    /// The range whose lock is at `lock`, if it is one's.
    pub(crate) fn range_of_lock(&self, lock: Off) -> Option<u64> {
        let at = lock.raw().checked_sub(self.table.raw())?;
        let range = at / (RANGE_WORDS * 8);
        (range < self.total && at % (RANGE_WORDS * 8) == LOCK * 8).then_some(range)
    }

    /// Completes what the dead owner of a range's lock had begun: a word whose change it noted, and
    /// the summary. Words of the same change that it did not get to stay as they were; pages that it
    /// took so are free again when the pool is opened next.
    pub(crate) fn mend(&self, arena: &Arena, range: u64) -> Result<()> {
        let block = self.range(arena, range)?;
        let note = usize::try_from(block[NOTE_INDEX].load(Ordering::Acquire)).unwrap_or(0);
        if let Some(place) = note.checked_sub(1).and_then(|index| block.get(BITMAP + index)) {
            place.store(block[NOTE_VALUE].load(Ordering::Relaxed), Ordering::Release);
        }
        block[NOTE_INDEX].store(0, Ordering::Release);
        let mut bits = Bits([0; WORDS]);
        for (word, place) in bits.0.iter_mut().zip(block.iter().skip(BITMAP)) {
            *word = place.load(Ordering::Relaxed);
        }
        let counted = self.summary(arena, range)?.load(Ordering::Relaxed) >> 16;
        self.summarise(arena, range, &bits, counted)
    }

    /// Takes up to `want` contiguous pages of `range`.
    fn take_in(&self, arena: &Arena, op: &Op<'_>, range: u64, want: u64) -> Result<Option<Extent>> {
        let run = self.change(arena, op, range, |bits| {
            Ok(bits.best_run(want).map(|(first, length)| (first, length.min(want), true)))
        })?;
        let Some((first, pages)) = run else {
            return Ok(None);
        };
        Ok(Some(Extent { addr: self.addr_of(range, first)?, pages }))
    }

    /// Gives an extent back; it may span ranges.
    pub(super) fn give(&self, arena: &Arena, op: &Op<'_>, extent: Extent) -> Result<()> {
        let mut addr = extent.addr;
        let mut pages = extent.pages;
        while pages > 0 {
            let (range, first) = self.place_of(addr)?;
            let count = pages.min(RANGE_PAGES - first);
            self.change(arena, op, range, |bits| {
                for index in Bits::words(first, count) {
                    let mask = Bits::mask(index, first, count);
                    let word = bits.0.get(index).copied().unwrap_or(0);
                    if word & mask != mask || mask & self.outside(range, index) != 0 {
                        // Two files named it, or one named a page of the pool's own.
                        let found = "given back, but free or the pool's own";
                        return Err(Error::damaged("a page", addr, found));
                    }
                }
                Ok(Some((first, count, false)))
            })?;
            addr = addr.add(count * PAGE);
            pages -= count;
        }
        Ok(())
    }

    /// Takes up to `want` contiguous pages of a slot, and not fewer than `least`, searching from its
    /// range number `cursor` on. Returns the extent and where to go on next time.
    pub(super) fn take_in_slot(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        slot: usize,
        cursor: u64,
        (want, least): (u64, u64),
    ) -> Result<Option<(Extent, u64)>> {
        let Some(home) = self.slots.get(slot) else { return Ok(None) };
        let (start, end) = (home.start(cursor), home.first + home.count);
        self.take_along(arena, op, &[(start, end), (home.first, start)], (want, least))
    }

    /// The same through all slots but those that are `closed`, by their bits, from one on: any pages that
    /// are free.
    pub(super) fn take(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        (slot, closed): (usize, u64),
        cursor: u64,
        want: u64,
    ) -> Result<Option<(Extent, u64)>> {
        let Some(home) = self.slots.get(slot) else { return Ok(None) };
        let (start, end) = (home.start(cursor), home.first + home.count);
        if closed == 0 {
            let spans = [(start, end), (home.first, start), (end, self.total), (0, home.first)];
            return self.take_along(arena, op, &spans, (want, 1));
        }
        let sound = self.slots.iter().enumerate().filter(|(slot, _)| closed >> slot & 1 == 0);
        let spans: Vec<_> = sound.map(|(_, of)| (of.first, of.first + of.count)).collect();
        self.take_along(arena, op, &spans, (want, 1))
    }

    fn take_along(
        &self,
        arena: &Arena,
        op: &Op<'_>,
        spans: &[(u64, u64)],
        (want, least): (u64, u64),
    ) -> Result<Option<(Extent, u64)>> {
        let want = want.min(RANGE_PAGES);
        // A summary is read without the lock, so the range may be empty once it is taken: the
        // search is repeated, each time over what is free by then.
        for _ in 0..=self.total {
            let Some((range, run)) = self.search(arena, spans, want)? else { return Ok(None) };
            if run < least.min(want) {
                return Ok(None);
            }
            if let Some(extent) = self.take_in(arena, op, range, want)? {
                let (_, of) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
                return Ok(Some((extent, range - of.first)));
            }
        }
        Ok(None)
    }

    /// The range to take from, and its longest run: the first with a long enough one among the next
    /// [`SEARCH_RANGES_MAX`] ranges that have free pages, else the one with the longest.
    fn search(&self, arena: &Arena, spans: &[(u64, u64)], want: u64) -> Result<Option<(u64, u64)>> {
        let mut best: Option<(u64, u64)> = None;
        let mut seen = 0;
        for &(from, to) in spans {
            let mut range = from;
            while range < to {
                if range % GROUP == 0 && self.group(arena, range)?.load(Ordering::Relaxed) == 0 {
                    range += GROUP;
                    continue;
                }
                let run = longest(self.summary(arena, range)?.load(Ordering::Relaxed));
                if run >= want {
                    return Ok(Some((range, run)));
                }
                if run > 0 {
                    seen += 1;
                    if best.is_none_or(|(_, length)| run > length) {
                        best = Some((range, run));
                    }
                    if seen >= SEARCH_RANGES_MAX {
                        return Ok(best);
                    }
                }
                range += 1;
            }
        }
        Ok(best)
    }
}

fn bad_range(range: u64) -> Error {
    Error::BadArena(format!("range {range} of no slot"))
}
