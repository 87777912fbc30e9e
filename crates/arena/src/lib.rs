//! The shared DRAM segment that carries all volatile state of the file system.
//!
//! Everything in it is an `AtomicU64` word addressed by a byte offset, every offset is checked on
//! use, and a block is reused only for blocks of its own class: whatever another client writes, or
//! dies writing, a user of this crate reads words, never undefined memory. So the file system on
//! top needs no unsafe code. It knows nothing of the pool: all that is here can be rebuilt from it.
//!
//! - [`Arena`]: the mapping, its header, blocks and their allocator ([`Class`]).
//! - [`Client`] and [`Op`]: who uses the segment, and what each operation in flight is about to do.
//! - [`Recovery`] and [`Record`]: what a dead client left, for whoever settles it.
//! - [`LockGuard`] and [`SeqCount`]: locks that know their owner, and counters for readers
//!   that take no lock.
//! - [`Radix`] and [`NameTable`]: maps by number and by name hash.
#![allow(unsafe_code, reason = "maps the segment and calls futex; see segment and sync")]
#![allow(
    clippy::inline_always,
    reason = "a read of 64 bytes takes 240 instructions with all of its walk in one place, else 320"
)]

mod alloc;
mod arena;
mod client;
mod error;
mod holds;
mod liveness;
mod names;

mod off;
mod op;
mod radix;
mod record;
mod segment;
mod settle;
mod sync;
mod turn;
mod word;

pub use alloc::Class;
pub use arena::{Arena, Identity};
pub use client::{Client, ClientInfo};
pub use error::{ArenaError, BadOffset, Full, LockError};
pub use holds::HoldSlot;
pub use liveness::PidInfo;
pub use names::NameTable;

pub use off::Off;
pub use op::{LockGuard, Op, Settler};
pub use radix::Radix;
pub use record::{Commit, Extent, Phase, Record};
pub use segment::{GREATEST as SEGMENT_BYTES_MAX, Known};
pub use settle::Recovery;
pub use sync::{Owner, SeqCount};
pub use turn::{sleep_while, wake_all};
pub use word::AtomicU64;
#[cfg(feature = "watched-stores")]
pub use word::{Watcher, watch_stores};

const _: () = assert!(cfg!(target_pointer_width = "64"), "offsets are turned into usize");
const _: () = assert!(cfg!(target_endian = "little"), "a futex is the low half of its word");
