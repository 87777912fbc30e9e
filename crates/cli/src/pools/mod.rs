//! The files of a pool's slots, and the machine's memory.
//!
//! Never here: who uses a pool.

pub(crate) mod locked;
pub(crate) mod memory;
pub(crate) mod remaining;
pub(crate) mod slot_files;
pub(crate) mod slots;
pub(crate) mod unfinished;
