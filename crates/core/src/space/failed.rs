//! Slots that have failed while the pool is open, for all of its clients: a bit for each in a word of the
//! arena. Pages are not taken from them any more; what the pool has there is lost until it is opened with
//! the slot restored.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use novale_arena::Arena;
use novale_layout::PmAddr;

/// The word of the arena's root block.
const FAILED_SLOTS: usize = 40;

/// A bit for each slot that has failed.
#[inline]
pub(crate) fn failed_slots(arena: &Arena) -> u64 {
    arena.root()[FAILED_SLOTS].load(Relaxed)
}

/// Tells all clients.
pub(crate) fn tell_failed(arena: &Arena, slots: u64) {
    arena.root()[FAILED_SLOTS].fetch_or(slots, AcqRel);
}

/// Forgets them, as nobody has the pool open any more who has missed what lies there.
pub(crate) fn forget_failed(arena: &Arena) {
    arena.root()[FAILED_SLOTS].store(0, Release);
}

/// Whether a slot is one of these, by their bits.
#[inline]
pub(crate) fn has_slot(slots: u64, slot: u8) -> bool {
    slots.checked_shr(slot.into()).unwrap_or(0) & 1 != 0
}

/// Whether a place is in a slot that has failed.
#[inline]
pub(crate) fn is_lost(arena: &Arena, addr: PmAddr) -> bool {
    has_slot(failed_slots(arena), addr.slot())
}
