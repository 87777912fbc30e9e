//! A slot by itself: which one of which pool it is, and when it was in use last, for who has only some of a
//! pool's slots.

use novale_layout::{
    PAGE, PmAddr, SLOT_STATE_OFFSETS, SUPERBLOCK_BYTES, Seed, SlotState, Superblock,
};
use novale_pm::Pm;

use crate::base::error::{Error, Result};
use crate::pool::{copies, damaged_behind, read_state};

/// What to do about a slot that is shorter than it was made, in words.
pub const CUT_OFF: &str =
    "restore all of it from a copy, for one that is made longer lacks what lay there";

/// What a slot says of itself, one that was opened alone.
#[derive(Debug, Clone, Copy)]
pub struct SlotSeen {
    /// The pool that it is of.
    pub pool: [u8; 16],
    /// Its number there.
    pub index: u8,
    /// The session that it took part in last.
    pub session: u64,
    /// A newer state line of it may be damaged: it was in the next session as well, if the pool was.
    pub may_be_newer: bool,
    /// Of slot 0, the session that its pool was in last.
    pub pool_session: Option<u32>,
    /// Slots of the pool, where its superblock or the replica is in this one.
    pub slot_count: Option<u8>,
}

/// How the name begins of the slot that takes the place of the only one of `pm`, which may be erased in part.
///
/// # Errors
/// [`Error::BadPool`] where it is none of a pool.
pub fn heir_of_slot(pm: &Pm) -> Result<Option<[u8; 8]>> {
    Ok(state_of(pm)?.heir())
}

/// The number of the slot that is to go once the only one of `pm` is empty, and that it is.
///
/// # Errors
/// [`Error::BadPool`] where it is none of a pool.
pub fn going_slot(pm: &Pm) -> Result<Option<(u8, bool)>> {
    let state = state_of(pm)?;
    Ok(state.goes().map(|slot| (slot, state.evacuation_state == SlotState::EMPTIED)))
}

/// The newest state line of the only slot of `pm`, which may be erased in part.
fn state_of(pm: &Pm) -> Result<SlotState> {
    let (header, _) = copies::slot_header(pm, 0)?;
    let seed = Seed::pool(&header.pool_uuid).addr(PmAddr::new(header.index, 0));
    let mut newest = SlotState::default();
    for offset in SLOT_STATE_OFFSETS {
        let line = pm.load_line(PmAddr::new(0, offset))?;
        newest = SlotState::decode(&line, seed)
            .ok()
            .filter(|state| state.seq > newest.seq)
            .unwrap_or(newest);
    }
    Ok(newest)
}

/// What the only slot of `pm` says of itself.
///
/// # Errors
/// [`Error::BadPool`] says why it can't be a part of its pool: it is damaged, or was cut short.
pub fn look_at_slot(pm: &Pm) -> Result<SlotSeen> {
    let (header, _) = copies::slot_header(pm, 0)?;
    let pages = pm.slot_len(0) / PAGE;
    if pages < header.pages {
        let made = header.pages;
        return Err(Error::BadPool(format!(
            "it was cut off: it has {pages} pages of {made}; {CUT_OFF}"
        )));
    }
    let seed = Seed::pool(&header.pool_uuid);
    // Its own lines say which slot it is, and not in which place it was opened here.
    let state = state_of(pm)?;
    if state.seq == 0 {
        return Err(Error::BadPool("its two state lines are damaged".into()));
    }
    let may_be_newer = damaged_behind(pm, 0, seed, (header.index, &state))?.is_some();
    let pool_session = match header.index {
        0 => Some(read_state(pm, seed)?.session),
        _ => None,
    };
    // Slot 0 has the pool's own line, and was in that session with it.
    let is_newer =
        pool_session.is_some_and(|of| may_be_newer && u64::from(of) == state.session + 1);
    let superblock = |page: u64| -> Result<Option<u8>> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        pm.load(PmAddr::new(0, page * PAGE), &mut bytes)?;
        let found = Superblock::decode(&bytes).ok();
        let ours = found.filter(|found| found.pool_uuid == header.pool_uuid);
        Ok(ours.map(|found| found.slot_count))
    };
    let first = if header.index == 0 { superblock(0)? } else { None };
    let slot_count = first.or(superblock(header.pages.saturating_sub(1))?);
    let (pool, index) = (header.pool_uuid, header.index);
    let session = state.session + u64::from(is_newer);
    Ok(SlotSeen { pool, index, session, may_be_newer, pool_session, slot_count })
}
