//! Slots from which a client takes nothing: for all of them, and for this one alone; and the free pages of a slot that
//! has come.

use std::sync::atomic::Ordering;

use novale_arena::Arena;
use novale_layout::PmAddr;

use crate::base::error::Result;
use crate::space::Allocator;
use crate::space::failed::{failed_slots, has_slot};
use crate::space::leaving::{closed_slots, coming_slots};

/// How often free pages are counted while others change them.
const COUNT_TRIES: usize = 64;

impl Allocator {
    /// Counts the free pages of a slot that has come.
    pub(crate) fn count_slot(&self, arena: &Arena, slot: u8) -> Result<()> {
        let free = self.ranges.free_in_slot(arena, slot.into())?;
        self.free_word(arena)?.fetch_add(free, Ordering::Relaxed);
        Ok(())
    }

    /// Counts all free pages anew, where one who was counting those of a slot has died. What others take or give in
    /// this moment may be missed, as where a client dies in that.
    pub(crate) fn count_anew(&self, arena: &Arena) -> Result<()> {
        let word = self.free_word(arena)?;
        let mut before = word.load(Ordering::Relaxed);
        for _ in 0..COUNT_TRIES {
            let by_slot = (0..).zip(self.ranges.free_by_slot(arena)?);
            let counted = by_slot.filter(|(slot, _)| !has_slot(coming_slots(arena), *slot));
            let free = counted.map(|(_, free)| free).sum();
            match word.compare_exchange(before, free, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        Ok(())
    }

    /// Has nothing be taken here from slots that this client can't map, by their bits.
    pub(crate) fn lack(&self, slots: u64) {
        self.lacking.fetch_or(slots, Ordering::SeqCst);
    }

    /// Each slot from which this client takes nothing.
    #[inline]
    pub(super) fn closed_slots(&self, arena: &Arena) -> u64 {
        closed_slots(arena) | self.lacking.load(Ordering::Relaxed)
    }

    /// Whether this client takes nothing from where a place is.
    #[inline]
    pub(super) fn is_closed(&self, arena: &Arena, addr: PmAddr) -> bool {
        has_slot(self.closed_slots(arena), addr.slot())
    }

    /// Whether a place is in a slot that has failed, or that this client lacks.
    pub(crate) fn is_lost(&self, arena: &Arena, addr: PmAddr) -> bool {
        has_slot(self.lost_slots(arena), addr.slot())
    }

    /// Each slot that has failed, or that this client lacks, by its bit.
    pub(crate) fn lost_slots(&self, arena: &Arena) -> u64 {
        failed_slots(arena) | self.lacking.load(Ordering::Relaxed)
    }
}
