//! The Novale file system: NOVA's per-inode logs over a pool (`novale-pm`) with its volatile view in
//! an arena (`novale-arena`). It owns no clock, thread, randomness or environment: a caller hands
//! them in with each call ([`Ctx`]), so that a run replays.
//!
//! A mutating operation reads top-down the same way everywhere: make room (all that can fail), store
//! after what is committed, commit (`op::commit`), publish to the view, free what fell out of use.

mod attr;
mod base;
#[cfg(test)]
mod fixture;
mod fs;
mod gc;
mod inode;
mod life;
mod log;
mod map;
mod name;
mod offline;
mod op;
mod pool;
pub mod seeded;
mod space;
mod write;

pub use base::error::{Error, Result};
pub use base::exec::{Executor, Progress, Serial};
pub use base::types::*;
pub use fs::{Atime, Fs, OpenOptions, SlotOpener};
pub use life::adding::Beside;
pub use life::attach::{
    ARENA_ABI, buffer_use_of, can_add_slot, live_clients, live_failed, live_free, stopped_clients,
};
pub use life::coming::{awaited_clients, has_come};
pub use life::device::{emulate, emulated};
pub use life::evacuate::EmptyRound;
pub use life::left::{has_left_behind, stored_behind};
pub use life::mkfs::{FIRST_SLOT_BYTES_MIN, MkfsOptions, SLOT_BYTES_MIN, mkfs, mkfs_check};
pub use life::room::{RoomTurn, Short};
pub use life::saved::{Space, saved_free, space};
pub use life::serving::{Served, mount_served, mounts_served};
pub use life::slots::{
    NewSlot, RoomToLeave, add_slot, confirm_header, confirm_slots, forget_slot, remove_last_slot,
    replace_slot, room_to_leave, set_leaving, set_leaving_for, slot_header, slot_waits,
    take_back_slot, take_lost_place,
};
pub use life::wear::{live_wear, saved_wear, was_slot_of};
pub use map::fill::MappedRun;
pub use map::hold::HoldId;
pub use map::write_back::{BufferUse, WriteBack, WrittenBack};
pub use novale_policy::{BufferRules, CommitCosts, Form, Mode, Placement, SlotLines, UpdatePolicy};
pub use offline::check::{CheckReport, Finding, check};
pub use offline::{dump, repair};
pub use op::counted::{Buffering, Written, counted};
pub use op::quota::{Quota, Usage};
pub use pool::{
    CUT_OFF, PoolInfo, SlotInfo, SlotSeen, going_slot, heir_of_slot, identify_slot, inspect,
    look_at_slot,
};
pub use space::leaving::{
    EmptyProgress, EmptyState, OfferedSlot, SlotAsk, ask_of_slots, slots_asked, wait_for_slots,
    withdraw_slot_ask,
};
pub use space::ranges::ComingSlot;
pub use space::wear::ColdMove;
pub use write::range::copy::{COPY_BYTES_MAX, Place};
pub use write::range::scattered::Piece;
