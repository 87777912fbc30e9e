//! How far the slots are worn, and which of them pages may come from (WASA, "Wear-aware Memory Management
//! Scheme for Balancing Lifetime and Performance of Multiple NVM Slots", III).
//!
//! What counts is lines that reach a slot, for any purpose: `novale-pm` counts them, a thread in words of
//! its own in the arena (the paper's counters for each CPU). Added up, with what the slot's wear line had
//! when the pool was opened, they are its wear. They are added up once in [`TAKES`] pages that a thread takes
//! or overwrites; in between each extent that a lane takes counts as if its pages were written once, so that
//! lanes which ask at the same moment do not all take the same slot.
//!
//! Freed pages that a lane or a record has kept are given out again only where their slot is among the
//! cool ones: else an overwritten page would go back and forth within one slot. All words here are hints: any
//! value of them is sound.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, atomic};

use arrayvec::ArrayVec;
use novale_arena::{Arena, AtomicU64, Off};
use novale_layout::{LINES_PER_PAGE, MAX_SLOTS, PmAddr, WearLine};
use novale_pm::{Counters, SPARE_SLOTS};
use novale_policy::{Placement, SlotLoad, SlotPolicy, Turn, wear, wear_of_all};

use crate::base::error::Result;

/// Slots of a pool.
pub(super) const SLOTS_MAX: usize = MAX_SLOTS as usize;
/// Pages taken or overwritten by a thread after which it looks anew how far the slots are worn. Those that it takes
/// at once of a lane's extent are one of them.
const TAKES: u64 = 512;
/// How much more than the coolest slot with room a cool one may have got, in pages written.
const COOL_PAGES: u64 = 128;
/// How many pages more than its share a slot has got that overwrites move away from.
const HOT_PAGES: u64 = 4096;
/// The room that a slot below the mean is to have for what is new, in pages: a quarter of [`HOT_PAGES`], so that
/// what is moved for it wears less than the skew that it mends; of a small slot this part of it.
const COLD_PAGES: u64 = HOT_PAGES / 4;
const COLD_SHARE: u64 = 16;

// Words of the table; then a line for each slot.
/// A bit for each slot that freed pages are given out from.
const COOL: usize = 0;
/// A bit for each slot that overwrites move away from.
const HOT: usize = 1;
const HEAD_WORDS: u64 = 8;
const SLOT_WORDS: u64 = 8;
/// Lines that had reached the slot when the pool was opened.
const BASE: usize = 0;
/// The number of the newest wear line.
const SEQ: usize = 1;
/// Lines that have reached the slot, as far as is known, and those that its taken pages will take.
const EXPECTED: usize = 2;

/// What a slot is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotCells {
    pub(crate) pages: u64,
    /// Writes that a cell endures, 0: unknown.
    pub(crate) endurance: u64,
}

/// Pages that nobody writes are to be moved from one slot to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdMove {
    /// The slot that is to get room for what is new.
    pub from: u8,
    /// The slot that they go to.
    pub to: u8,
    /// How many; the last step may move some more.
    pub pages: u64,
}

/// How far the slots were worn at one moment.
struct Worn {
    lines: Vec<u64>,
    cells: Vec<SlotCells>,
}

impl Worn {
    fn slots(&self) -> Range<usize> {
        0..self.lines.len()
    }

    /// How far a slot is worn, had it got so many pages less.
    fn of(&self, slot: usize, less_pages: u64) -> f64 {
        let cells = self.cells.get(slot).copied();
        let cells = cells.unwrap_or(SlotCells { pages: 1, endurance: 1 });
        let lines = self.lines.get(slot).copied().unwrap_or(0);
        wear(lines.saturating_sub(less_pages * LINES_PER_PAGE), cells.pages, cells.endurance)
    }

    fn mean(&self) -> f64 {
        let all = self.lines.iter().fold(0u64, |sum, lines| sum.saturating_add(*lines));
        wear_of_all(all, self.cells.iter().map(|cells| (cells.pages, cells.endurance)))
    }

    /// Whether a slot that is worn less than the mean has so many free pages.
    fn takes_what_is_new(&self, free: &[u64], room: impl Fn(&SlotCells) -> u64) -> bool {
        let mean = self.mean();
        let slots = self.cells.iter().zip(free).enumerate();
        let mut slots = slots.filter(|(slot, _)| self.of(*slot, 0) < mean);
        slots.any(|(_, (cells, free))| *free >= room(cells))
    }
}

/// How far the slots are worn.
#[derive(Debug)]
pub(crate) struct Wear {
    table: Off,
    slots: Vec<SlotCells>,
    /// Slots that came since.
    added: [OnceLock<SlotCells>; SPARE_SLOTS],
    pub(crate) placement: Placement,
    /// By hint: threads seldom share one.
    taken: [TakeCount; 8],
}

/// Counts the pages of callers who have the same hint, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct TakeCount(atomic::AtomicU64);

impl Wear {
    pub(crate) fn create(
        arena: &Arena,
        slots: Vec<SlotCells>,
        saved: &[WearLine],
        placement: Placement,
    ) -> Result<Self> {
        let words = HEAD_WORDS + (slots.len() + SPARE_SLOTS) as u64 * SLOT_WORDS;
        let table = arena.alloc_table(words.next_power_of_two().ilog2())?;
        let this = Self::attach(table, slots, placement);
        for (slot, line) in saved.iter().enumerate() {
            this.begin(arena, slot, line)?;
        }
        this.word(arena, COOL)?.store(u64::MAX, Relaxed);
        Ok(this)
    }

    /// How far a slot is worn from which it counts on.
    pub(crate) fn begin(&self, arena: &Arena, slot: usize, line: &WearLine) -> Result<()> {
        let words = self.slot(arena, slot)?;
        words[BASE].store(line.lines, Relaxed);
        words[EXPECTED].store(line.lines, Relaxed);
        words[SEQ].store(line.seq, Relaxed);
        Ok(())
    }

    /// Has a slot be the last one whose wear has begun.
    pub(crate) fn add_slot(&self, mut cells: SlotCells) {
        if cells.endurance == 0 {
            cells.endurance = self.cells().map(|of| of.endurance).max().unwrap_or(1);
        }
        if let Some(free) = self.added.iter().find(|added| added.get().is_none()) {
            let _first = free.get_or_init(|| cells);
        }
    }

    fn cells(&self) -> impl Iterator<Item = SlotCells> + '_ {
        self.slots.iter().chain(self.added.iter().map_while(OnceLock::get)).copied()
    }

    fn slot_count(&self) -> usize {
        self.slots.len() + self.added.iter().map_while(OnceLock::get).count()
    }

    /// The table that another client has made.
    pub(crate) fn attach(table: Off, slots: Vec<SlotCells>, placement: Placement) -> Self {
        let slots = known_endurance(slots);
        let (added, taken) = Default::default();
        Self { table, slots, added, placement, taken }
    }

    pub(crate) fn place(&self) -> u64 {
        self.table.raw()
    }

    fn word<'a>(&self, arena: &'a Arena, index: usize) -> Result<&'a AtomicU64> {
        Ok(arena.word(self.table.add(index as u64 * 8))?)
    }

    fn slot<'a>(&self, arena: &'a Arena, slot: usize) -> Result<&'a [AtomicU64; 8]> {
        let at = self.table.add((HEAD_WORDS + slot as u64 * SLOT_WORDS) * 8);
        Ok(arena.block::<8>(at)?)
    }

    /// Whether there is anything to choose.
    pub(crate) fn is_asked(&self) -> bool {
        self.slot_count() > 1 && self.placement.is_wear_aware()
    }

    /// Whether freed pages of that slot are given out again.
    #[inline]
    pub(crate) fn is_cool(&self, arena: &Arena, page: PmAddr) -> Result<bool> {
        Ok(!self.is_asked() || self.word(arena, COOL)?.load(Relaxed) >> page.slot() & 1 != 0)
    }

    /// A bit for each slot that overwrites are to move away from.
    #[inline]
    pub(crate) fn hot_slots(&self, arena: &Arena) -> Result<u64> {
        if self.is_asked() { Ok(self.word(arena, HOT)?.load(Relaxed)) } else { Ok(0) }
    }

    /// Counts pages that are taken or overwritten; says whether it is time to look anew. A count that another
    /// thread makes at the same moment may be lost.
    #[inline]
    pub(crate) fn is_due(&self, hint: u32, pages: u64) -> bool {
        let Some(TakeCount(taken)) = self.taken.get(hint as usize % self.taken.len()) else {
            return false;
        };
        if !self.is_asked() {
            return false;
        }
        let before = taken.load(Relaxed);
        let count = before.wrapping_add(pages);
        taken.store(count, Relaxed);
        count / TAKES != before / TAKES
    }

    /// The pages that were counted of those with that hint.
    #[cfg(test)]
    pub(super) fn takes_counted(&self, hint: u32) -> u64 {
        self.taken.get(hint as usize % self.taken.len()).map_or(0, |taken| taken.0.load(Relaxed))
    }

    /// The slot that the next extent of a lane comes from, `free` being the free pages of each.
    pub(crate) fn choose(&self, arena: &Arena, free: &[u64], turn: Turn) -> Result<usize> {
        let mut loads = ArrayVec::<SlotLoad, SLOTS_MAX>::new();
        for (slot, (cells, &pages_free)) in self.cells().zip(free).enumerate() {
            let wear = if self.placement.is_wear_aware() {
                let lines = self.slot(arena, slot)?[EXPECTED].load(Relaxed);
                wear(lines, cells.pages, cells.endurance)
            } else {
                0.0
            };
            loads.push(SlotLoad { pages: cells.pages, pages_free, wear });
        }
        Ok(self.placement.first(&loads, turn))
    }

    /// So many pages of a slot were taken, to be written.
    pub(crate) fn expect(&self, arena: &Arena, slot: u8, pages: u64) -> Result<()> {
        if self.is_asked() {
            let words = self.slot(arena, usize::from(slot))?;
            words[EXPECTED].fetch_add(pages * LINES_PER_PAGE, Relaxed);
        }
        Ok(())
    }

    /// Lines that reached each slot since the pool was made.
    pub(crate) fn lines(&self, arena: &Arena) -> Result<Vec<u64>> {
        let mut sent = [0; SLOTS_MAX];
        arena.visit_counts(&mut |words| Counters::add_slot_lines(words, &mut sent))?;
        let with_base = |(slot, sent): (usize, &u64)| {
            Ok(self.slot(arena, slot)?[BASE].load(Relaxed).saturating_add(*sent))
        };
        sent.iter().take(self.slot_count()).enumerate().map(with_base).collect()
    }

    /// How far the slots are worn just now.
    fn worn(&self, arena: &Arena) -> Result<Worn> {
        Ok(Worn { lines: self.lines(arena)?, cells: self.cells().collect() })
    }

    /// Adds up anew what has reached the slots, and says which are cool, and which hot.
    pub(crate) fn refresh(&self, arena: &Arena, free: &[u64]) -> Result<()> {
        let worn = self.worn(arena)?;
        let with_room = worn.slots().filter(|slot| free.get(*slot).is_some_and(|free| *free > 0));
        let coolest = with_room.map(|slot| worn.of(slot, 0)).min_by(f64::total_cmp);
        let mean = worn.mean();
        // A page that leaves a hot slot needs a place to go.
        let has_refuge = worn.takes_what_is_new(free, |_| COOL_PAGES);
        let (mut cool, mut hot) = (0u64, 0u64);
        for (slot, expected) in worn.lines.iter().enumerate() {
            self.slot(arena, slot)?[EXPECTED].store(*expected, Relaxed);
            let is_cool = coolest.is_none_or(|coolest| worn.of(slot, COOL_PAGES) <= coolest);
            cool |= u64::from(is_cool) << slot;
            hot |= u64::from(has_refuge && worn.of(slot, HOT_PAGES) > mean) << slot;
        }
        self.word(arena, COOL)?.store(cool, Relaxed);
        self.word(arena, HOT)?.store(hot, Relaxed);
        Ok(())
    }

    /// Which ways pages that nobody writes are to go: from the slots that are worn less than the mean, the least
    /// first, to the most worn that has room. Where no slot has got much more than its share there is no need, nor
    /// where one below the mean has room for what is new. `free` is asked for the free pages of the slots.
    pub(crate) fn cold_moves(
        &self,
        arena: &Arena,
        free: &dyn Fn(Range<usize>) -> Result<Vec<u64>>,
    ) -> Result<Vec<ColdMove>> {
        let worn = self.worn(arena)?;
        let mean = worn.mean();
        if !worn.slots().any(|slot| worn.of(slot, HOT_PAGES) > mean) {
            return Ok(Vec::new());
        }
        let free = free(worn.slots())?;
        let room = |cells: &SlotCells| (cells.pages / COLD_SHARE).min(COLD_PAGES);
        if worn.takes_what_is_new(&free, room) {
            return Ok(Vec::new());
        }
        let by_wear = |a: &usize, b: &usize| worn.of(*a, 0).total_cmp(&worn.of(*b, 0));
        let mut sources: Vec<usize> =
            worn.slots().filter(|slot| worn.of(*slot, 0) < mean).collect();
        sources.sort_by(by_wear);
        let move_from = |from: usize| {
            let pages = worn.cells.get(from).map_or(0, room);
            // It is not to be full itself then.
            let has_room = |slot: &usize| free.get(*slot).is_some_and(|free| *free >= 2 * pages);
            let to = worn.slots().filter(has_room).filter(|slot| worn.of(*slot, 0) > mean);
            let [from, to] = [from, to.max_by(by_wear)?].map(u8::try_from);
            Some(ColdMove { from: from.ok()?, to: to.ok()?, pages })
        };
        Ok(sources.into_iter().filter_map(move_from).collect())
    }

    /// The next wear line of each slot. Its number counts as used from now on, so that one that is cut off
    /// is not written over the newest.
    pub(crate) fn next_lines(&self, arena: &Arena) -> Result<Vec<WearLine>> {
        let next = |(slot, lines)| {
            let seq = self.slot(arena, slot)?[SEQ].fetch_add(1, Relaxed) + 1;
            Ok(WearLine { seq, lines })
        };
        self.lines(arena)?.into_iter().enumerate().map(next).collect()
    }
}

/// Slots of which nobody knows what they endure are taken to endure what the best one does.
fn known_endurance(mut slots: Vec<SlotCells>) -> Vec<SlotCells> {
    let best = slots.iter().map(|cells| cells.endurance).max().unwrap_or(0).max(1);
    for cells in slots.iter_mut().filter(|cells| cells.endurance == 0) {
        cells.endurance = best;
    }
    slots
}
