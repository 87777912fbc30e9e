//! Tools for a pool that nobody has open: check, dump, repair.
//!
//! In: the memory of a pool. Out: findings, a description of the bytes, or a repaired pool. Called by the
//! command line and by the crash lab.
//!
//! Never here: the arena. These tools read what is on media.

pub(crate) mod check;
pub mod dump;
pub mod repair;
