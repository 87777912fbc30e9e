//! The global page allocator: a bitmap of every slot in ranges of 2 MB, each under a lock of its
//! own, with a summary (free pages, longest run) that is searched without locks, and the free
//! pages of each 64 ranges above it.
//!
//! The slots that the pool was opened with have their tables in one piece. One that is added later has tables
//! of its own, whose places stand in a table for those who join; its ranges have the next numbers from a
//! multiple of [`GROUP`] on. Its tables are in place, with its free pages, before the pool has the slot: so
//! whoever ends the session of a client that died meanwhile finds them.
//!
//! A change of a range's bitmap is noted first (which word, its new value), so that a client that finds
//! a dead owner redoes it; the summary is derived from the words and needs no note.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use novale_arena::{Arena, AtomicU64, Off, Op};
use novale_layout::{FIRST_FREE_PAGE, PAGE, PmAddr};
use novale_pm::SPARE_SLOTS;

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

/// The tables of some slots in the arena.
#[derive(Debug, Clone, Copy)]
struct Tables {
    /// The number of the first range.
    first: u64,
    /// Ranges.
    count: u64,
    table: Off,
    summaries: Off,
    /// Free pages of each [`GROUP`] ranges, and then of each slot.
    groups: Off,
}

/// Words of the table of added slots, before a line for each: how many slots the pool was opened with.
const ADDED_HEAD: u64 = 8;
/// Of such a line: the places of its tables, and what a client needs that has not got the slot with the others.
const ADDED_WORDS: usize = 8;
/// Where the path of its file stands: its bytes in a word, then they.
const ADDED_PATH: usize = 3;
const ADDED_ENDURANCE: usize = 4;
/// File system and inode of its file.
const ADDED_SYSTEM: usize = 5;
const ADDED_INODE: usize = 6;
const ADDED_PAGES: usize = 7;
/// Bytes of a path at most.
const PATH_BYTES_MAX: u64 = 4096;

impl Tables {
    fn create(arena: &Arena, (first, count): (u64, u64), slots: u64) -> Result<Self> {
        let this = Self {
            first,
            count,
            table: arena.alloc_for_good(count * RANGE_WORDS)?,
            summaries: arena.alloc_for_good(count)?,
            groups: arena.alloc_for_good(count.div_ceil(GROUP) + slots)?,
        };
        for range in first..first + count {
            for word in this.range(arena, range)?.iter().skip(BITMAP).take(WORDS) {
                word.store(u64::MAX, Ordering::Relaxed);
            }
        }
        Ok(this)
    }

    fn attach((first, count): (u64, u64), [table, summaries, groups]: [u64; 3]) -> Self {
        let [table, summaries, groups] = [table, summaries, groups].map(Off::from_raw);
        Self { first, count, table, summaries, groups }
    }

    fn places(&self) -> [u64; 3] {
        [self.table, self.summaries, self.groups].map(Off::raw)
    }

    fn end(&self) -> u64 {
        self.first + self.count
    }

    fn range<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a [AtomicU64; 16]> {
        Ok(arena.block::<16>(self.table.add((range - self.first) * RANGE_WORDS * 8))?)
    }
}

/// A slot that was added since the pool was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddedSlot {
    slot: SlotRanges,
    tables: Tables,
}

/// Where a slot that was added is found by the clients that are there, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComingSlot {
    /// Its number.
    pub slot: u8,
    /// Its file; empty where nobody needs it.
    pub path: PathBuf,
    /// File system and inode of that file; zeros of memory without one.
    pub file: (u64, u64),
    /// Its pages.
    pub pages: u64,
    /// Writes that a cell of it endures, 0: unknown.
    pub endurance: u64,
}

/// The tables' places in the arena.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Those that the pool was opened with.
    slots: Vec<SlotRanges>,
    base: Tables,
    added: [OnceLock<AddedSlot>; SPARE_SLOTS],
    /// Where it is said which were added.
    place: Off,
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
    pub(crate) fn attach(arena: &Arena, pages: &[u64], places: [u64; 4]) -> Result<Self> {
        let [table, summaries, groups, place] = places;
        let place = Off::from_raw(place);
        let opened_with = usize::try_from(arena.word(place)?.load(Ordering::Acquire));
        let opened_with = opened_with.unwrap_or(usize::MAX).min(pages.len());
        let (first, more) = pages.split_at(opened_with);
        let (slots, total) = ranges_of(first);
        let base = Tables::attach((0, total), [table, summaries, groups]);
        let this = Self { slots, base, added: Default::default(), place };
        for (added, pages) in more.iter().enumerate() {
            let [table, summaries, groups, ..] = this.added_words(arena, added)?;
            let places = [table, summaries, groups].map(|word| word.load(Ordering::Acquire));
            if places.contains(&0) {
                return Err(Error::BadArena(format!("no tables of added slot {added}")));
            }
            let (slot, numbers) = this.next_ranges(*pages);
            this.publish(AddedSlot { slot, tables: Tables::attach(numbers, places) });
        }
        Ok(this)
    }

    /// Where the tables are in the arena.
    pub(crate) fn places(&self) -> [u64; 4] {
        let [table, summaries, groups] = self.base.places();
        [table, summaries, groups, self.place.raw()]
    }

    /// The tables for slots of so many pages, every page in use.
    pub(crate) fn create(arena: &Arena, pages: &[u64]) -> Result<Self> {
        let (slots, total) = ranges_of(pages);
        let base = Tables::create(arena, (0, total), slots.len() as u64)?;
        let words = ADDED_HEAD + (SPARE_SLOTS * ADDED_WORDS) as u64;
        let place = arena.alloc_table(words.next_power_of_two().ilog2())?;
        arena.word(place)?.store(slots.len() as u64, Ordering::Release);
        Ok(Self { slots, base, added: Default::default(), place })
    }

    fn added_words<'a>(&self, arena: &'a Arena, added: usize) -> Result<&'a [AtomicU64; 8]> {
        let at = ADDED_HEAD + (added * ADDED_WORDS) as u64;
        Ok(arena.block::<ADDED_WORDS>(self.place.add(at * 8))?)
    }

    /// What ranges a slot has that is added behind the last, and their first number and count.
    fn next_ranges(&self, pages: u64) -> (SlotRanges, (u64, u64)) {
        let first = self.all_tables().last().map_or(0, Tables::end).next_multiple_of(GROUP);
        let count = pages.div_ceil(RANGE_PAGES);
        (SlotRanges { first, count, pages }, (first, count))
    }

    /// Makes the tables of a slot of so many pages that is to be added, with all of its pages free, and says
    /// where they are. It is none of the slots before [`Self::publish`].
    pub(crate) fn prepare(&self, arena: &Arena, pages: u64) -> Result<AddedSlot> {
        let (slot, numbers) = self.next_ranges(pages);
        let new = AddedSlot { slot, tables: Tables::create(arena, numbers, 1)? };
        for range in new.tables.first..new.tables.end() {
            let mut bits = Bits([0; WORDS]);
            let block = new.tables.range(arena, range)?;
            for (index, (word, place)) in
                bits.0.iter_mut().zip(block.iter().skip(BITMAP)).enumerate()
            {
                *word = outside(slot, range, index);
                place.store(*word, Ordering::Relaxed);
            }
            let longest = bits.runs().map(|run| run.1).max().unwrap_or(0);
            let summary = summary_in(arena, &new.tables, range)?;
            summary.store(pack(bits.free(), longest), Ordering::Release);
            group_in(arena, &new.tables, range)?.fetch_add(bits.free(), Ordering::Relaxed);
            slot_free_in(arena, &new.tables, 0)?.fetch_add(bits.free(), Ordering::Relaxed);
        }
        let words = self.added_words(arena, self.slot_count() - self.slots.len())?;
        for (word, place) in words.iter().zip(new.tables.places()) {
            word.store(place, Ordering::Release);
        }
        Ok(new)
    }

    /// Says where the slot that is added next is found by the clients that are there.
    pub(crate) fn tell_where(&self, arena: &Arena, coming: &ComingSlot) -> Result<()> {
        let bytes = coming.path.as_os_str().as_bytes();
        let len = bytes.len() as u64;
        if len > PATH_BYTES_MAX {
            return Err(Error::Invalid("the path of a slot is too long"));
        }
        let place = arena.alloc_table((1 + len.div_ceil(8)).next_power_of_two().max(8).ilog2())?;
        let text = arena.slice(place, 1 + len.div_ceil(8))?;
        for (word, bytes) in text.iter().skip(1).zip(bytes.chunks(8)) {
            let packed = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            word.store(packed, Ordering::Relaxed);
        }
        arena.word(place)?.store(len, Ordering::Release);
        let words = self.added_words(arena, self.slot_count() - self.slots.len())?;
        words[ADDED_ENDURANCE].store(coming.endurance, Ordering::Relaxed);
        words[ADDED_SYSTEM].store(coming.file.0, Ordering::Relaxed);
        words[ADDED_INODE].store(coming.file.1, Ordering::Relaxed);
        words[ADDED_PAGES].store(coming.pages, Ordering::Relaxed);
        words[ADDED_PATH].store(place.raw(), Ordering::Release);
        Ok(())
    }

    /// The slot behind the last that is known here, which another client has added.
    pub(crate) fn next_added(&self, arena: &Arena) -> Result<(AddedSlot, ComingSlot)> {
        let words = self.added_words(arena, self.slot_count() - self.slots.len())?;
        let word = |index: usize| words.get(index).map_or(0, |word| word.load(Ordering::Acquire));
        let place = Off::from_raw(word(ADDED_PATH));
        let (pages, [table, summaries, groups]) = (word(ADDED_PAGES), [0, 1, 2].map(word));
        if [pages, table, summaries, groups].contains(&0) || place.is_null() {
            return Err(Error::BadArena("nothing says where an added slot is".into()));
        }
        let len = arena.word(place)?.load(Ordering::Acquire).min(PATH_BYTES_MAX);
        let text = arena.slice(place, 1 + len.div_ceil(8))?.iter().skip(1);
        let unpacked = |word: &AtomicU64| {
            let word = word.load(Ordering::Relaxed);
            (0..8).map(move |byte| u8::try_from(word >> (8 * byte) & 0xff).unwrap_or(0))
        };
        let mut bytes: Vec<u8> = text.flat_map(unpacked).collect();
        bytes.truncate(usize::try_from(len).unwrap_or(0));
        let coming = ComingSlot {
            slot: u8::try_from(self.slot_count()).unwrap_or(u8::MAX),
            path: PathBuf::from(OsString::from_vec(bytes)),
            file: (word(ADDED_SYSTEM), word(ADDED_INODE)),
            pages,
            endurance: word(ADDED_ENDURANCE),
        };
        let (slot, numbers) = self.next_ranges(pages);
        let tables = Tables::attach(numbers, [table, summaries, groups]);
        Ok((AddedSlot { slot, tables }, coming))
    }

    /// Has a slot that was prepared be the last one from now on.
    pub(crate) fn publish(&self, new: AddedSlot) {
        if let Some(free) = self.added.iter().find(|added| added.get().is_none()) {
            let _first = free.get_or_init(|| new);
        }
    }

    fn all_tables(&self) -> impl Iterator<Item = &Tables> {
        let added = self.added.iter().map_while(OnceLock::get).map(|added| &added.tables);
        std::iter::once(&self.base).chain(added)
    }

    /// The tables of a range.
    #[inline]
    fn tables(&self, range: u64) -> Result<&Tables> {
        if range < self.base.count {
            return Ok(&self.base);
        }
        let of = self.all_tables().find(|of| (of.first..of.end()).contains(&range));
        of.ok_or_else(|| bad_range(range))
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotRanges> + '_ {
        let added = self.added.iter().map_while(OnceLock::get).map(|added| added.slot);
        self.slots.iter().copied().chain(added)
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len() + self.added.iter().map_while(OnceLock::get).count()
    }

    /// What ranges a slot has.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> Option<SlotRanges> {
        match slot.checked_sub(self.slots.len()) {
            Some(added) => self.added.get(added)?.get().map(|added| added.slot),
            None => self.slots.get(slot).copied(),
        }
    }

    /// Whether there are tables for one more: up to [`SPARE_SLOTS`] since the pool was opened, whoever added them.
    pub(crate) fn can_add(&self) -> bool {
        self.added.iter().any(|added| added.get().is_none())
    }

    fn has_added(&self) -> bool {
        self.added.first().is_some_and(|added| added.get().is_some())
    }

    /// Pages that can ever be allocated: without the reserved ones of each slot.
    pub(crate) fn usable_pages(&self) -> u64 {
        self.slots().map(|slot| slot.pages.saturating_sub(FIRST_FREE_PAGE + 1)).sum()
    }

    /// Free pages of a slot's bitmap.
    pub(super) fn free_in_slot(&self, arena: &Arena, slot: usize) -> Result<u64> {
        Ok(self.slot_free(arena, slot)?.load(Ordering::Relaxed))
    }

    /// Free pages of each slot's bitmap.
    pub(crate) fn free_by_slot(&self, arena: &Arena) -> Result<Vec<u64>> {
        let slots = self.slots().enumerate();
        // A client that died between two steps of a change leaves a count a little wrong.
        slots.map(|(slot, of)| Ok(self.free_in_slot(arena, slot)?.min(of.pages))).collect()
    }

    /// Free pages of all of them.
    pub(crate) fn free_pages(&self, arena: &Arena) -> Result<u64> {
        Ok(self.free_by_slot(arena)?.iter().sum())
    }

    fn slot_free<'a>(&self, arena: &'a Arena, slot: usize) -> Result<&'a AtomicU64> {
        match slot.checked_sub(self.slots.len()) {
            None => slot_free_in(arena, &self.base, slot),
            Some(added) => {
                let found = self.added.get(added).and_then(OnceLock::get);
                let found = found.ok_or(Error::Invalid("a slot that the pool does not have"))?;
                slot_free_in(arena, &found.tables, 0)
            }
        }
    }

    /// Counts pages that are free from now on, or used, in a range's group and slot.
    fn count_free(&self, arena: &Arena, range: u64, more: u64) -> Result<()> {
        self.group(arena, range)?.fetch_add(more, Ordering::Relaxed);
        let (slot, _) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
        self.slot_free(arena, slot.into())?.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn range<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a [AtomicU64; 16]> {
        self.tables(range)?.range(arena, range)
    }

    fn summary<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a AtomicU64> {
        summary_in(arena, self.tables(range)?, range)
    }

    fn group<'a>(&self, arena: &'a Arena, range: u64) -> Result<&'a AtomicU64> {
        group_in(arena, self.tables(range)?, range)
    }

    fn slot_of(&self, range: u64) -> Option<(u8, SlotRanges)> {
        let is_in = |of: &SlotRanges| (of.first..of.first + of.count).contains(&range);
        if range >= self.base.count {
            let (index, slot) = self.slots().enumerate().find(|(_, of)| is_in(of))?;
            return Some((u8::try_from(index).ok()?, slot));
        }
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
        let slot = self.slot(usize::from(addr.slot())).filter(|slot| page < slot.pages);
        // A log named it: pages are taken from slots alone.
        let slot = slot.ok_or_else(|| Error::damaged("a page", addr, "in none of the slots"))?;
        Ok((slot.first + page / RANGE_PAGES, page % RANGE_PAGES))
    }

    /// Takes the bitmaps that recovery or the last clean close found, by slot and word (a set
    /// bit is a page in use), before any client allocates. Returns the number of free pages.
    pub(crate) fn install(&self, arena: &Arena, used: &dyn Fn(usize, u64) -> u64) -> Result<u64> {
        let mut total = 0;
        for range in 0..self.base.count {
            let (number, slot) = self.slot_of(range).ok_or_else(|| bad_range(range))?;
            let base = (range - slot.first) * WORDS as u64;
            let block = self.range(arena, range)?;
            let mut bits = Bits([0; WORDS]);
            for (index, (word, place)) in
                bits.0.iter_mut().zip(block.iter().skip(BITMAP)).enumerate()
            {
                *word = used(number.into(), base + index as u64) | outside(slot, range, index);
                place.store(*word, Ordering::Relaxed);
            }
            total += bits.free();
            self.summarise(arena, range, &bits, 0)?;
        }
        Ok(total)
    }

    /// The bits of a range's word that stand for no allocatable page.
    fn outside(&self, range: u64, index: usize) -> u64 {
        self.slot_of(range).map_or(u64::MAX, |(_, slot)| outside(slot, range, index))
    }

    /// The bitmap word `index` of `range`, for saving it.
    pub(crate) fn word(&self, arena: &Arena, range: u64, index: usize) -> Result<u64> {
        let block = self.range(arena, range)?;
        Ok(block.get(BITMAP + index).map_or(u64::MAX, |word| word.load(Ordering::Relaxed)))
    }

    /// The numbers of all ranges, slot by slot.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots().flat_map(|of| of.first..of.first + of.count)
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
        let guard = op.lock(lock_of(self.tables(range)?, range))?;
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
        self.all_tables().find_map(|of| {
            let at = lock.raw().checked_sub(of.table.raw())?;
            let range = at / (RANGE_WORDS * 8);
            (range < of.count && at % (RANGE_WORDS * 8) == LOCK * 8).then_some(of.first + range)
        })
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

    /// Free pages of a slot in ranges that have a run of so many: at most so many can be taken in such runs.
    pub(super) fn free_near_runs(&self, arena: &Arena, slot: usize, least: u64) -> Result<u64> {
        let Some(home) = self.slot(slot) else { return Ok(0) };
        (home.first..home.first + home.count).try_fold(0, |free, range| {
            let summary = self.summary(arena, range)?.load(Ordering::Relaxed);
            Ok(free + if longest(summary) >= least { summary >> 16 } else { 0 })
        })
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
        let Some(home) = self.slot(slot) else { return Ok(None) };
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
        let Some(home) = self.slot(slot) else { return Ok(None) };
        let (start, end) = (home.start(cursor), home.first + home.count);
        if closed == 0 && !self.has_added() {
            let total = self.base.count;
            let spans = [(start, end), (home.first, start), (end, total), (0, home.first)];
            return self.take_along(arena, op, &spans, (want, 1));
        }
        let sound = |slot: &usize| closed >> slot & 1 == 0;
        let own = [(start, end), (home.first, start)].into_iter().filter(|_| sound(&slot));
        let others = self.slots().enumerate().filter(|(other, _)| sound(other) && *other != slot);
        let others = others.map(|(_, of)| (of.first, of.first + of.count));
        let spans: Vec<_> = own.chain(others).collect();
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
        for _ in 0..=self.all_tables().last().map_or(0, Tables::end) {
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

/// The file of a slot that was added, by its number, of a pool whose added slots are told at `place`.
pub(crate) fn file_of_added(arena: &Arena, place: Off, slot: u8) -> Result<Option<(u64, u64)>> {
    let opened_with = arena.word(place)?.load(Ordering::Acquire);
    let added = u64::from(slot).checked_sub(opened_with);
    let Some(added) = added.filter(|added| *added < SPARE_SLOTS as u64) else { return Ok(None) };
    let at = ADDED_HEAD + added * ADDED_WORDS as u64;
    let words = arena.block::<ADDED_WORDS>(place.add(at * 8))?;
    let word = |index: usize| words.get(index).map_or(0, |word| word.load(Ordering::Acquire));
    Ok(Some((word(ADDED_SYSTEM), word(ADDED_INODE))))
}

/// The bits of a word of a slot's range that stand for no allocatable page.
fn outside(slot: SlotRanges, range: u64, index: usize) -> u64 {
    let base = (range - slot.first) * RANGE_PAGES;
    let mut mask = 0;
    if base < FIRST_FREE_PAGE {
        mask |= Bits::mask(index, 0, FIRST_FREE_PAGE - base);
    }
    let end = (slot.pages - 1).saturating_sub(base).min(RANGE_PAGES);
    mask | Bits::mask(index, end, RANGE_PAGES - end)
}

fn lock_of(tables: &Tables, range: u64) -> Off {
    tables.table.add(((range - tables.first) * RANGE_WORDS + LOCK) * 8)
}

fn summary_in<'a>(arena: &'a Arena, tables: &Tables, range: u64) -> Result<&'a AtomicU64> {
    Ok(arena.word(tables.summaries.add((range - tables.first) * 8))?)
}

fn group_in<'a>(arena: &'a Arena, tables: &Tables, range: u64) -> Result<&'a AtomicU64> {
    Ok(arena.word(tables.groups.add((range - tables.first) / GROUP * 8))?)
}

/// The count of free pages of one of the slots that have these tables.
fn slot_free_in<'a>(arena: &'a Arena, tables: &Tables, slot: usize) -> Result<&'a AtomicU64> {
    let index = tables.count.div_ceil(GROUP) + slot as u64;
    Ok(arena.word(tables.groups.add(index * 8))?)
}

fn bad_range(range: u64) -> Error {
    Error::BadArena(format!("range {range} of no slot"))
}
