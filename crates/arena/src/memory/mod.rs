//! The arena's memory: segments, blocks, and threads that sleep on a word of it.
//!
//! Never here: who uses it, and for what.

pub(crate) mod alloc;
pub(crate) mod arena;
pub(crate) mod bytes;
pub(crate) mod segment;
pub(crate) mod turn;
