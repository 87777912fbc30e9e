//! Words, offsets, locks, errors, and who is alive.
//!
//! Never here: where anything lies in the arena.

pub(crate) mod error;
pub(crate) mod liveness;
pub(crate) mod off;
pub(crate) mod sync;
pub(crate) mod word;
