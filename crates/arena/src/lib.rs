//! The shared DRAM segment that carries all volatile state of the file system.
//!
//! Everything in it is an `AtomicU64` word addressed by a byte offset, every offset is checked on
//! use, and a block is reused only for blocks of its own class: whatever another client writes, or
//! dies writing, a user of this crate reads words, never undefined memory. So the file system on
//! top needs no unsafe code. It knows nothing of the pool: all that is here can be rebuilt from it.
//!
//! - [`Arena`]: the mapping, its header, blocks and their allocator ([`Class`]).
//! - [`Client`] and [`Op`]: who uses the segment, and what each operation in flight is about to do.
//! - [`Recovery`] and [`Record`]: what a dead client left, for the client that settles it.
//! - [`CountBlocks`]: words in which clients count, for others to add up.
//! - [`LockGuard`] and [`SeqCount`]: locks that know their owner, and counters for readers
//!   that take no lock.
//! - [`Radix`] and [`NameTable`]: maps by number and by name hash.
#![allow(unsafe_code, reason = "maps the segment and calls futex; see segment and sync")]
#![allow(
    clippy::inline_always,
    reason = "a read of 64 bytes takes 240 instructions with all of its walk in one place, else 320"
)]

mod base;
mod clients;
mod memory;
mod tables;

pub use base::error::{ArenaError, BadOffset, Full, LockError};
pub use base::liveness::{ClientInfo, PidInfo, look_seldom};
pub use base::off::Off;
pub use base::sync::{Owner, SeqCount};
pub use base::word::AtomicU64;
#[cfg(feature = "watched-stores")]
pub use base::word::{Watcher, watch_stores};
pub use clients::client::Client;
pub use clients::counts::{CountBlock, CountBlocks};
pub use clients::holds::HoldSlot;
pub use clients::op::{LockGuard, Op, Settler};
pub use clients::record::{Commit, Extent, Phase, Record};
pub use clients::settle::Recovery;
pub use memory::alloc::Class;
pub use memory::arena::{Arena, Identity};
pub use memory::bytes::copy_words;
pub use memory::segment::{GREATEST as SEGMENT_BYTES_MAX, Known};
pub use memory::turn::{sleep_while, wake_all};
pub use tables::names::NameTable;
pub use tables::radix::{PairRef, Radix};

const _: () = assert!(cfg!(target_pointer_width = "64"), "offsets are turned into usize");
const _: () = assert!(cfg!(target_endian = "little"), "a futex is the low half of its word");
