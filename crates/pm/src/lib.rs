//! The only stores, write-backs and fences to a Novale pool.
//!
//! A [`Pm`] is the pool's slots, mapped. Callers copy bytes out with the `load` methods and put
//! bytes in with the `store` and `stream` methods; nobody ever holds a Rust reference into the
//! pool, because other processes store to it at the same time. What a store still owes before it
//! survives power loss is a type: [`Dirty`] owes a write-back, [`Flushed`] owes a fence,
//! [`Durable`] owes nothing. A function that makes something reachable asks for `Durable`.
//!
//! - `pm` maps and bounds-checks; `load`, `store` and `stream` are the access.
//! - `ahead` has pages mapped before they are stored to.
//! - `token` has the three labels, `counters` what was stored, `observer` who watches.
//! - `device` emulates slower memories.
//! - `window` shows pieces of it to a program that stores itself.
//! - `slot` opens files, DAX files and DAX devices; `cpu` has the instructions.
//! - `given` has what a process inherits, for who handles faults in slots and starts programs.
//!
//! Called by `core` (everything), `lab` (records through [`Observer`]) and `bench`. Never here:
//! what the bytes mean, locks, errno, threads of its own.
#![allow(
    unsafe_code,
    reason = "this crate maps the pool and executes the cache instructions; see DESIGN.md 2"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the labels Dirty, Flushed and Durable are consumed by value: that is the typestate"
)]
#![allow(
    clippy::inline_always,
    reason = "a store is a few instructions; a call around them would cost as much again"
)]

mod ahead;
mod counters;
mod cpu;
mod device;
mod error;
#[cfg(test)]
mod execution_tests;
mod given;
mod load;
mod observer;
mod options;
mod pm;
mod purpose;
mod slot;
mod store;
mod stream;
mod token;
mod window;

pub use counters::{ASKED_KINDS, Asked, CountSource, CountWords, Counters, PurposeCounters};
pub use cpu::WriteBackKind;
pub use device::{Bandwidth, Device, DeviceError, MODEL_WORDS, Model};
pub use error::{OutOfRange, PmError};
pub use given::{
    exec_as_given, is_ignored, keep_descriptors, keep_ended_children, note_given, spawn_as_given,
    unblock,
};
pub use observer::{Both, Observer, StoreEvent, StoreKind};
pub use options::{PmOptions, SlotKind, SlotLock, SlotMemory, SlotSpec};
pub use pm::{Pm, SPARE_SLOTS};
pub use purpose::Purpose;
pub use slot::failure::{
    Ending, Health, end_at_failing_slots, slot_failed_at, survive_failing_slots,
};
pub use slot::forks::{fork_begins, fork_ended, forked, unlock_in_children};
pub use token::{Dirty, Durable, Flushed};
pub use window::Window;

/// What is executed, and mutants of it: for the lab alone.
#[cfg(feature = "lab")]
pub mod lab {
    pub use crate::cpu::traced::{Executed, How, Mutation, Noted, Which, traced};
}

/// Bytes of a cache line: the unit of write-back.
const LINE: u64 = 64;

/// Bytes of a page: slots are whole pages.
const PAGE: u64 = 4096;

const _: () = assert!(usize::BITS == 64, "offsets in a slot are 64-bit");

/// A byte count as an index of this machine.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the assertion above: usize has 64 bits")]
const fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// The number of distinct lines that `len` bytes from byte `byte` touch.
#[inline(always)]
const fn lines_touched(byte: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (byte + (len - 1)) / LINE - byte / LINE + 1 }
}
