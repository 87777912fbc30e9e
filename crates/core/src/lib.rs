//! The Novale file system: NOVA's per-inode logs over a pool (`novale-pm`) with its volatile view in
//! an arena (`novale-arena`). It owns no clock, thread, randomness or environment: a caller hands
//! them in with each call ([`Ctx`]), so that a run replays.
//!
//! A mutating operation reads top-down the same way everywhere: make room (all that can fail), store
//! behind what is committed, commit (module `commit`), publish to the view, free what fell out of use.

mod alloc;
mod append;
mod attach;
mod attr;
mod check;
mod commit;
mod copies;
mod copy_range;
mod covered;
mod cow;
mod dax;
mod dir;
pub mod dump;
mod error;
mod exec;
mod extent;
mod fallocate;
mod file;
#[cfg(test)]
mod fixture;
mod forget;
mod fs;
mod gc;
mod hold;
mod load;
mod log;
mod mapped;
mod mkfs;
mod names;
mod namespace;
mod parent;
mod pool;
mod punch;
mod quota;
mod recover;
mod rename;
pub mod repair;
mod room;
mod scattered;
pub mod seeded;
mod serving;
mod settle;
mod shift;
mod small;
mod strip;
mod types;
mod unnamed;
mod view;
mod xattr;

pub use attach::{ARENA_ABI, live_clients};
pub use check::{CheckReport, Finding, check};
pub use copy_range::{COPY_BYTES_MAX, Place};
pub use dax::MappedRun;
pub use error::{Error, Result};
pub use exec::{Executor, Progress, Serial};
pub use fs::{Atime, Fs, OpenOptions};
pub use gc::GcStats;
pub use hold::HoldId;
pub use mkfs::{FIRST_SLOT_BYTES_MIN, MkfsOptions, SLOT_BYTES_MIN, mkfs, mkfs_check};
pub use novale_policy::Form;
pub use pool::{PoolInfo, SlotInfo, Space, identify_slot, inspect, space};
pub use quota::{Quota, Usage};
pub use recover::OpenReport;
pub use room::RoomTurn;
pub use scattered::Piece;
pub use serving::{Served, mount_served, mounts_served};
pub use types::*;
