//! Wear over the life of a pool: counted in the arena while it is open ([`crate::space::wear`]), kept in the
//! wear lines of its slots.
//!
//! A wear line is written to the next of the 64 lines of the slot's wear page, so that one which is cut off
//! leaves the one before. Nothing depends on it but the choice of slots: what was not saved before a crash is
//! not counted.

use std::sync::atomic::Ordering;

use novale_arena::{Arena, Off};
use novale_layout::{MAX_SLOTS, PmAddr, Seed, WearLine};
use novale_pm::{Flushed, Pm, Purpose};
use novale_policy::Placement;

use crate::base::error::Result;
use crate::base::types::Ctx;
use crate::fs::Fs;
use crate::life::attach::WEAR_PLACE;
use crate::op::call::OpKind;
use crate::pool::{Pool, PoolInfo, SlotInfo};
use crate::space::wear::{SlotCells, Wear};

/// The newest wear line of a slot that validates; one without lines where there is none.
fn newest(pm: &Pm, seed: Seed, slot: u8) -> Result<WearLine> {
    newest_in(pm, seed.addr(PmAddr::new(slot, 0)), slot)
}

/// The same of a slot that is mapped alone, with the seed that its lines have.
pub(crate) fn newest_of(pm: &Pm, seed: Seed) -> Result<WearLine> {
    newest_in(pm, seed, 0)
}

fn newest_in(pm: &Pm, seed: Seed, slot: u8) -> Result<WearLine> {
    let mut newest = WearLine::default();
    if pm.is_absent(slot) {
        return Ok(newest);
    }
    for turn in 0..WearLine::TURNS {
        let line = pm.load_line(WearLine::addr(slot, turn))?;
        let Ok(line) = WearLine::decode(&line, seed) else { continue };
        if line.seq >= newest.seq {
            newest = line;
        }
    }
    Ok(newest)
}

/// Lines of 64 bytes that reached each slot of a pool since it was made, as its wear lines say: those of the
/// time that it is open come later.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) where a slot can't be read.
pub fn saved_wear(pm: &Pm, info: &PoolInfo) -> Result<Vec<u64>> {
    let seed = Seed::pool(&info.uuid);
    info.slots.iter().map(|slot| Ok(newest(pm, seed, slot.index)?.lines)).collect()
}

/// Whether a slot that is mapped alone was one of a pool's: its wear lines say so, which stay when it goes.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) where they can't be read.
pub fn was_slot_of(pm: &Pm, pool: &[u8; 16]) -> Result<bool> {
    let seed = Seed::pool(pool);
    for slot in 0..MAX_SLOTS {
        if newest_of(pm, seed.addr(PmAddr::new(slot, 0)))?.seq > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// As [`saved_wear`], of a pool that is open in `arena`, up to now; none where it is being opened.
///
/// # Errors
/// [`Error::BadArena`](crate::Error::BadArena) when the arena is damaged.
pub fn live_wear(arena: &Arena, info: &PoolInfo) -> Result<Option<Vec<u64>>> {
    let cells = |slot: &SlotInfo| SlotCells { pages: slot.pages, endurance: 0 };
    let table = Off::from_raw(arena.root()[WEAR_PLACE].load(Ordering::Acquire));
    if table.is_null() {
        return Ok(None);
    }
    let slots = info.slots.iter().map(cells).collect();
    Wear::attach(table, slots, Placement::default()).lines(arena).map(Some)
}

/// The wear of a pool's slots, as it is opened.
pub(crate) fn create(pm: &Pm, arena: &Arena, pool: &Pool, placement: Placement) -> Result<Wear> {
    let saved: Vec<WearLine> = pool
        .slots
        .iter()
        .map(|(header, _)| newest(pm, pool.seed, header.index))
        .collect::<Result<_>>()?;
    Wear::create(arena, cells(pool), &saved, placement)
}

/// The wear of a pool's slots, where another client has opened it.
pub(crate) fn attach(arena: &Arena, pool: &Pool, placement: Placement) -> Wear {
    let place = arena.root()[WEAR_PLACE].load(Ordering::Relaxed);
    Wear::attach(Off::from_raw(place), cells(pool), placement)
}

fn cells(pool: &Pool) -> Vec<SlotCells> {
    let cells = |header: &novale_layout::SlotHeader| SlotCells {
        pages: header.pages,
        endurance: header.endurance,
    };
    pool.slots.iter().map(|(header, _)| cells(header)).collect()
}

impl Fs {
    /// How the slots of the pool are used.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.allocator.wear.placement
    }

    /// Lines of 64 bytes that reached each slot since the pool was made.
    ///
    /// # Errors
    /// [`Error::BadArena`](crate::Error::BadArena) when the arena is damaged.
    pub fn wear(&self) -> Result<Vec<u64>> {
        self.allocator.wear.lines(self.arena())
    }

    /// Saves how far the slots are worn, durably, where the pool is open for writing: a crash takes back
    /// only what was counted since.
    ///
    /// # Errors
    /// [`Error::BadArena`](crate::Error::BadArena) when the arena is damaged.
    pub fn save_wear(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let call = self.begin(OpKind::Manage, &Ctx { now_ns: 0, hint: 0 })?;
        let _saving = call.op.lock(self.wear_lock())?;
        self.pm.fence(self.store_wear()?).end();
        Ok(())
    }

    /// Stores the slots' next wear lines; nobody else does meanwhile. A slot that has failed gets none: its file
    /// may hold something else by now.
    ///
    /// No commit depends on a wear line, and one that is torn leaves the one before. So it may be stored at any
    /// time, also of a pool that is left as after a crash.
    pub(crate) fn store_wear(&self) -> Result<Flushed> {
        let failed = self.failed_slots();
        let lines = (0..).zip(self.allocator.wear.next_lines(self.arena())?);
        let lines = lines.filter(|(slot, _): &(u8, _)| failed >> slot & 1 == 0);
        Ok(lines.fold(Flushed::none(), |pending, (slot, line)| {
            let bytes = line.encode(self.seed.addr(PmAddr::new(slot, 0)));
            pending.and(self.pm.stream(WearLine::addr(slot, line.seq), &bytes, Purpose::Other))
        }))
    }
}
