//! Tables in the arena: page indexes and names.
//!
//! Never here: locks, and who may look.

pub(crate) mod names;
pub(crate) mod radix;
